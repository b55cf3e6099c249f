//! Memory for items, addressed by position. The code that uses it keeps track of the owner of each position.
//! Under loom each access is a separate step.

use std::mem::MaybeUninit;
use std::ptr;

#[cfg(not(loom))]
pub(super) type Cell<T> = std::cell::UnsafeCell<T>;
#[cfg(loom)]
pub(super) type Cell<T> = loom::cell::UnsafeCell<T>;

/// A power of two of slots, addressed by position. `Slots` does not track ownership: the caller of every
/// access must own the slot.
pub(super) struct Slots<T>(Box<[Cell<MaybeUninit<T>>]>);

impl<T> Slots<T> {
    pub(super) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two());
        Self((0..len).map(|_| Cell::new(MaybeUninit::uninit())).collect())
    }

    #[inline(always)]
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn index(&self, at: u64) -> usize {
        at as usize & (self.0.len() - 1)
    }

    /// # Safety
    /// The caller owns the slot, which holds an item; the item moves out.
    #[inline(always)]
    pub(super) unsafe fn read(&self, at: u64) -> T {
        // SAFETY: the caller owns the slot, as this function requires.
        unsafe { taken_from(&self.0[self.index(at)]) }
    }

    /// Returns the place of a position's slot.
    #[inline(always)]
    pub(super) fn place(&self, at: u64) -> *const Cell<MaybeUninit<T>> {
        self.0.as_ptr().wrapping_add(self.index(at))
    }

    /// Returns the slots from `at` on that lie side by side, at most `n`.
    #[inline(always)]
    pub(super) fn run(&self, at: u64, n: usize) -> (&[Cell<MaybeUninit<T>>], usize) {
        let i = self.index(at);
        let run = n.min(self.0.len() - i);
        (&self.0[i..i + run], run)
    }
}

/// # Safety
/// The caller owns the slot, which holds an item; the item moves out.
#[cfg(not(loom))]
#[inline(always)]
pub(super) unsafe fn taken_from<T>(slot: &Cell<MaybeUninit<T>>) -> T {
    // SAFETY: the caller owns the slot, as this function requires.
    unsafe { (*slot.get()).assume_init_read() }
}

#[cfg(loom)]
pub(super) unsafe fn taken_from<T>(slot: &Cell<MaybeUninit<T>>) -> T {
    // SAFETY: the caller owns the slot, as this function requires.
    slot.with_mut(|slot| unsafe { (*slot).assume_init_read() })
}

/// Returns the items in `slots`, or the places for them.
#[cfg(not(loom))]
#[inline(always)]
const fn items<T>(slots: &[Cell<MaybeUninit<T>>]) -> *mut T {
    Cell::raw_get(slots.as_ptr()).cast()
}

#[cfg(not(loom))]
impl<T> Slots<T> {
    /// # Safety
    /// The caller owns the slot, which holds no item.
    #[inline(always)]
    pub(super) unsafe fn write(&self, at: u64, item: T) {
        // SAFETY: the caller owns the slot, as this function requires; the index is below a length that is
        // never 0.
        unsafe { (*self.0.get_unchecked(self.index(at)).get()).write(item) };
    }

    /// # Safety
    /// The caller owns `n <= len` slots from `at`, and they hold no items. The `n` items at `from` move into
    /// the slots, and lie elsewhere in memory.
    #[inline]
    pub(super) unsafe fn fill(&self, at: u64, from: *const T, n: usize) {
        let (slots, run) = self.run(at, n);
        // SAFETY: the caller owns the slots, as this function requires; a cell of a `MaybeUninit<T>` is laid
        // out like a `T`, and `run` of the cells are in bounds.
        unsafe {
            ptr::copy_nonoverlapping(from, items(slots), run);
            if run < n {
                ptr::copy_nonoverlapping(from.add(run), items(&self.0), n - run);
            }
        }
    }

    /// # Safety
    /// The same as for `fill`. The caller also owns the `n` slots `from`, which hold items, and these move.
    #[inline]
    pub(super) unsafe fn fill_from(&self, at: u64, from: &[Cell<MaybeUninit<T>>], n: usize) {
        // SAFETY: the caller owns both kinds of slots, as this function requires.
        unsafe { self.fill(at, items(from), n) }
    }

    /// # Safety
    /// The caller owns `n <= len` slots from `at`, which hold items, and these move to the `n` places at
    /// `to`.
    #[inline]
    pub(super) unsafe fn take(&self, at: u64, to: *mut T, n: usize) {
        let (slots, run) = self.run(at, n);
        // SAFETY: as in `fill`.
        unsafe {
            ptr::copy_nonoverlapping(items(slots), to, run);
            if run < n {
                ptr::copy_nonoverlapping(items(&self.0), to.add(run), n - run);
            }
        }
    }
}

/// The moves of items in a build for loom, slot by slot, so that loom sees every access.
#[cfg(loom)]
impl<T> Slots<T> {
    pub(super) unsafe fn write(&self, at: u64, item: T) {
        // SAFETY: the caller owns the slot, as this function requires.
        self.0[self.index(at)].with_mut(|slot| unsafe { (*slot).write(item) });
    }

    pub(super) unsafe fn fill(&self, at: u64, from: *const T, n: usize) {
        for i in 0..n {
            // SAFETY: the caller owns the slots, as this function requires.
            unsafe { self.write(at + i as u64, ptr::read(from.add(i))) };
        }
    }

    pub(super) unsafe fn fill_from(&self, at: u64, from: &[Cell<MaybeUninit<T>>], n: usize) {
        for (i, cell) in from[..n].iter().enumerate() {
            // SAFETY: the caller owns the slots, as this function requires.
            unsafe { self.write(at + i as u64, taken_from(cell)) };
        }
    }

    pub(super) unsafe fn take(&self, at: u64, to: *mut T, n: usize) {
        for i in 0..n {
            // SAFETY: the caller owns the slots, as this function requires.
            unsafe { ptr::write(to.add(i), self.read(at + i as u64)) };
        }
    }
}
