//! Memory for items, addressed by position. The code that uses a slot must keep track of the owner of each
//! position. In a build for loom, each access to a slot is a separate step.

use std::mem::MaybeUninit;
use std::ptr;

#[cfg(not(loom))]
pub(super) type Cell<T> = std::cell::UnsafeCell<T>;
#[cfg(loom)]
pub(super) type Cell<T> = loom::cell::UnsafeCell<T>;

/// A power of two of slots for items, addressed by position. `Slots` does not track ownership: the caller
/// of every access must own the slot.
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

    /// Moves the item out of the slot of position `at`.
    ///
    /// # Safety
    /// The caller owns the slot, and the slot holds an item.
    #[inline(always)]
    pub(super) unsafe fn read(&self, at: u64) -> T {
        // SAFETY: the caller owns the slot, as this function requires.
        unsafe { taken_from(&self.0[self.index(at)]) }
    }

    /// Returns the address of the slot of position `at`, for a prefetch.
    #[inline(always)]
    pub(super) fn place(&self, at: u64) -> *const Cell<MaybeUninit<T>> {
        self.0.as_ptr().wrapping_add(self.index(at))
    }

    /// Returns the slots of the positions from `at` on that lie side by side in memory, at most `n`, and
    /// their number, so that items can be copied in one piece.
    #[inline(always)]
    pub(super) fn run(&self, at: u64, n: usize) -> (&[Cell<MaybeUninit<T>>], usize) {
        let i = self.index(at);
        let run = n.min(self.0.len() - i);
        (&self.0[i..i + run], run)
    }
}

/// Moves the item out of `slot`.
///
/// # Safety
/// The caller owns the slot, and the slot holds an item.
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

/// Returns the address of the first item in `slots`, or of the place for it, so that a caller can copy a run
/// of items.
#[cfg(not(loom))]
#[inline(always)]
const fn items<T>(slots: &[Cell<MaybeUninit<T>>]) -> *mut T {
    Cell::raw_get(slots.as_ptr()).cast()
}

#[cfg(not(loom))]
impl<T> Slots<T> {
    /// Moves `item` into the slot of position `at`.
    ///
    /// # Safety
    /// The caller owns the slot, and the slot holds no item.
    #[inline(always)]
    pub(super) unsafe fn write(&self, at: u64, item: T) {
        // SAFETY: the caller owns the slot, as this function requires; the index is below the number of
        // slots, which is never 0.
        unsafe { (*self.0.get_unchecked(self.index(at)).get()).write(item) };
    }

    /// Moves the `n` items at `from` into the slots of the positions from `at` on.
    ///
    /// # Safety
    /// The caller owns these slots, which hold no items; `n` is at most the number of slots. The items at
    /// `from` lie outside of these slots.
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

    /// Moves the items in the first `n` slots of `from` into the slots of the positions from `at` on.
    ///
    /// # Safety
    /// The caller owns the slots from `at` on, which hold no items, and the `n` slots of `from`, which hold
    /// items; `n` is at most the number of slots. The two lie apart in memory.
    #[inline]
    pub(super) unsafe fn fill_from(&self, at: u64, from: &[Cell<MaybeUninit<T>>], n: usize) {
        // SAFETY: the caller owns the slots that the items leave and those that they enter, as this
        // function requires.
        unsafe { self.fill(at, items(from), n) }
    }

    /// Moves the items in the slots of the `n` positions from `at` on to the `n` places at `to`.
    ///
    /// # Safety
    /// The caller owns these slots, which hold items; `n` is at most the number of slots. The places at
    /// `to` lie outside of these slots.
    #[inline]
    pub(super) unsafe fn take(&self, at: u64, to: *mut T, n: usize) {
        let (slots, run) = self.run(at, n);
        // SAFETY: the caller owns the slots, as this function requires. A cell of a `MaybeUninit<T>` is
        // laid out like a `T`, and `run` of the cells are in bounds.
        unsafe {
            ptr::copy_nonoverlapping(items(slots), to, run);
            if run < n {
                ptr::copy_nonoverlapping(items(&self.0), to.add(run), n - run);
            }
        }
    }
}

/// The functions that move items in a build for loom: they move one slot at a time, so that loom sees every
/// access.
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
