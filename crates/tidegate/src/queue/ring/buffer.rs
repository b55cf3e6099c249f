//! A producer's own buffer: its one [`Writer`], and the lock under which items leave it ([`Taking`]).
//! `producer::own` decides how many items the buffer gathers and when it is emptied.

use std::cell::UnsafeCell;
use std::collections::VecDeque;

use super::lock::{Lock, Locked};
use super::slots::Slots;
use super::{Claim, Refused, Ring};
use crate::controller::Counts;
use crate::queue::sync::{Acquire, Arc, AtomicU64, Padded, Relaxed, Release};

/// A producer's own buffer. Its one [`Writer`] writes items into it; the producer (flush) or the consumer
/// (sweep) takes them out, under the lock.
pub(in crate::queue) struct Buffer<T> {
    /// The position after the last item written.
    tail: Padded<AtomicU64>,
    taken: Padded<Lock<Taken>>,
    /// The slots of the items. Only the writer replaces them, under the lock.
    slots: UnsafeCell<Slots<T>>,
}

/// The record of the items that left a buffer.
#[derive(Default)]
pub(in crate::queue) struct Taken {
    /// The position of the first item still in the buffer: all items before it were taken.
    head: u64,
    /// The ring position after the last flushed item: the consumer may sweep the buffer only after it has
    /// read the ring up to there, or this producer's items would overtake each other.
    pub(in crate::queue) ring_end: u64,
    /// The number of items that the consumer swept since the producer last looked.
    pub(in crate::queue) swept: u64,
    /// True if the producer is gone: the registry forgets the buffer once it is empty.
    pub(in crate::queue) orphan: bool,
    /// Batches that left the buffer, by reason.
    pub(in crate::queue) counts: Counts,
}

// SAFETY: slots at or after `tail` belong to the writer; slots in `head..tail` to the holder of the lock.
// `tail` is published with Release and read with Acquire; the writer learns of a new `head` through the
// lock. Items move: `Send`.
unsafe impl<T: Send> Sync for Buffer<T> {}
// SAFETY: the buffer owns its items, so it may move to another thread if they may.
unsafe impl<T: Send> Send for Buffer<T> {}

impl<T> Buffer<T> {
    /// Makes a buffer for `len` items, with memory for the next power of two, and the buffer's one writer.
    pub(in crate::queue) fn new(len: usize) -> (Arc<Self>, Writer<T>) {
        let buffer = Arc::new(Self {
            tail: Padded(AtomicU64::new(0)),
            taken: Padded(Lock::new(Taken::default())),
            slots: UnsafeCell::new(Slots::new(len.max(1).next_power_of_two())),
        });
        let writer = Writer {
            buffer: Arc::clone(&buffer),
            full_at: 0,
        };
        (buffer, writer)
    }

    /// Returns the present slots.
    ///
    /// # Safety
    /// The caller is the writer, or holds the lock for as long as it uses the slots.
    #[inline(always)]
    const unsafe fn slots(&self) -> &Slots<T> {
        // SAFETY: the writer alone replaces the slots, with the lock; the caller is that writer, or holds
        // that lock.
        unsafe { &*self.slots.get() }
    }

    /// Locks the buffer: the right to take items out.
    #[inline]
    pub(in crate::queue) fn lock(&self) -> Taking<'_, T> {
        Taking {
            taken: self.taken.lock(),
            buffer: self,
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        drop(self.lock().take_all());
    }
}

/// A locked [`Buffer`].
pub(in crate::queue) struct Taking<'a, T> {
    taken: Locked<'a, Taken>,
    buffer: &'a Buffer<T>,
}

impl<T> std::ops::Deref for Taking<'_, T> {
    type Target = Taken;
    fn deref(&self) -> &Taken {
        &self.taken
    }
}

impl<T> std::ops::DerefMut for Taking<'_, T> {
    fn deref_mut(&mut self) -> &mut Taken {
        &mut self.taken
    }
}

impl<T> Taking<'_, T> {
    #[inline(always)]
    const fn slots(&self) -> &Slots<T> {
        // SAFETY: `self` holds the lock.
        unsafe { self.buffer.slots() }
    }

    /// Returns the number of items waiting.
    #[inline]
    pub(in crate::queue) fn len(&self) -> u64 {
        self.buffer.tail.load(Acquire) - self.taken.head
    }

    /// Moves as many items as the ring has room for into `ring`, by one claim; the rest stays, in order.
    #[inline]
    pub(in crate::queue) fn flush_into(&mut self, ring: &Ring<T>) -> Result<Claim, Refused> {
        let len = self.len();
        debug_assert!(len > 0);
        let claim = ring.claim(len)?;
        let mut moved = 0;
        while moved < claim.items {
            let (from, run) = self
                .slots()
                .run(self.taken.head + moved, (claim.items - moved) as usize);
            // SAFETY: the items are below `tail`, so they are written (Acquire), and ours under the lock; the
            // claim makes the ring's slots ours. The items are moved: `head` passes them before the lock is
            // released.
            unsafe { ring.slots.fill_from(claim.at + moved, from, run) };
            moved += run as u64;
        }
        self.taken.head += claim.items;
        self.taken.ring_end = claim.at + claim.items;
        ring.publish(&claim);
        Ok(claim)
    }

    /// Moves all items to the end of `out`.
    pub(in crate::queue) fn sweep_into(&mut self, out: &mut VecDeque<T>) -> u64 {
        let len = self.len();
        out.reserve(len as usize);
        for _ in 0..len {
            // SAFETY: the item is below `tail`, so it is written (Acquire); it is ours under the lock, and
            // `head` passes it at once.
            let item = unsafe { self.slots().read(self.taken.head) };
            self.taken.head += 1;
            out.push_back(item);
        }
        len
    }

    /// Passes items to `lane`, in order, until it gives an item back, which stays. `lane` returns the ring
    /// position at which an item that it accepted is due.
    pub(in crate::queue) fn spill(&mut self, mut lane: impl FnMut(T) -> Result<u64, T>) {
        while self.len() > 0 {
            let at = self.taken.head;
            // SAFETY: the item is below `tail`, so it is written (Acquire); it is ours under the lock, and
            // `head` passes it at once.
            let item = unsafe { self.slots().read(at) };
            self.taken.head += 1;
            match lane(item) {
                Ok(due) => self.taken.ring_end = due,
                Err(item) => {
                    // SAFETY: this is the slot just emptied, still ours under the lock.
                    unsafe { self.slots().write(at, item) };
                    self.taken.head = at;
                    return;
                }
            }
        }
    }

    /// Takes all items, as a vector.
    pub(in crate::queue) fn take_all(&mut self) -> Vec<T> {
        let mut all = VecDeque::new();
        self.sweep_into(&mut all);
        all.into()
    }
}

/// The writing end of one [`Buffer`].
pub(in crate::queue) struct Writer<T> {
    buffer: Arc<Buffer<T>>,
    /// The position at which the buffer counts as full: at most the buffer's length after a past `head`, and
    /// not before `tail`.
    full_at: u64,
}

/// Items written at the end of a buffer, which its drop publishes, even if the caller's iterator unwinds.
struct Unpublished<'a, T> {
    at: u64,
    writer: &'a mut Writer<T>,
}

impl<T> Drop for Unpublished<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.writer.buffer.tail.store(self.at, Release);
    }
}

impl<T> Writer<T> {
    #[inline(always)]
    pub(in crate::queue) fn is_full(&self) -> bool {
        self.tail() >= self.full_at
    }

    /// Returns the position after the last item written, which only this writer changes.
    #[inline(always)]
    fn tail(&self) -> u64 {
        self.buffer.tail.load(Relaxed)
    }

    pub(in crate::queue) fn buffer(&self) -> &Arc<Buffer<T>> {
        &self.buffer
    }

    /// Appends an item, unless it would fill the buffer or the buffer is full: then it gives the item back.
    #[inline(always)]
    pub(in crate::queue) fn push_early(&mut self, item: T) -> Result<(), T> {
        let tail = self.tail();
        if self.full_at - tail < 2 {
            return Err(item);
        }
        self.put(tail, item);
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Panics
    /// If the buffer [is full](Self::is_full).
    #[inline]
    pub(in crate::queue) fn push(&mut self, item: T) {
        let tail = self.tail();
        assert!(tail < self.full_at);
        self.put(tail, item);
    }

    #[inline(always)]
    fn put(&mut self, tail: u64, item: T) {
        // SAFETY: the callers saw `tail < full_at`, which is at most the number of slots after `head`, so
        // this slot holds no item; slots from `tail` on are ours, and there is no other writer.
        unsafe { self.buffer.slots().write(tail, item) };
        self.buffer.tail.store(tail + 1, Release);
    }

    /// Appends the items that `items` yields until the buffer is full, publishes them
    /// together, and returns their number.
    #[inline]
    pub(in crate::queue) fn extend(&mut self, items: &mut impl Iterator<Item = T>) -> u64 {
        let first = self.tail();
        let mut all = Unpublished {
            at: first,
            writer: self,
        };
        while all.at < all.writer.full_at
            && let Some(item) = items.next()
        {
            // SAFETY: as in `put`.
            unsafe { all.writer.buffer.slots().write(all.at, item) };
            all.at += 1;
        }
        all.at - first
    }

    /// Takes the last `n` items back, in order, except those that the consumer took first.
    pub(in crate::queue) fn take_back(&mut self, n: u64) -> Vec<T> {
        let taking = self.buffer.lock();
        let n = taking.len().min(n);
        let tail = self.tail() - n;
        self.buffer.tail.store(tail, Relaxed);
        // SAFETY: this writer wrote the items, and under the lock no other thread takes them; `tail` now ends
        // before them.
        (tail..tail + n)
            .map(|at| unsafe { self.buffer.slots().read(at) })
            .collect()
    }

    /// Returns the number of items the buffer has memory for.
    pub(in crate::queue) fn slots_len(&self) -> u64 {
        // SAFETY: `self` is the writer.
        unsafe { self.buffer.slots() }.len() as u64
    }

    /// Moves the items into memory for at least `len` items, and for all items present. The buffer then
    /// counts as full with `len` items.
    pub(in crate::queue) fn resize(&mut self, len: u64) {
        let taking = self.buffer.lock();
        let (head, tail) = (taking.taken.head, self.tail());
        let slots = Slots::new(len.max(tail - head).max(1).next_power_of_two() as usize);
        for at in head..tail {
            // SAFETY: the item is below `tail`, so it is written, and ours under the lock; the new slots hold
            // nothing yet, and there are as many as items. The old slots are dropped without their items,
            // because slots do not drop items.
            unsafe { slots.write(at, taking.slots().read(at)) };
        }
        // SAFETY: `self` is the writer, and no other thread reaches the slots without the lock.
        let old = unsafe { std::mem::replace(&mut *self.buffer.slots.get(), slots) };
        drop(taking);
        drop(old);
        self.set_limit_from(head, len);
    }

    /// Sets the limit: from now on the buffer counts as full with `limit` items.
    pub(in crate::queue) fn set_limit(&mut self, limit: u64) {
        self.taking(limit, |_| ());
    }

    /// Sets the limit from `head`, a recent value of [`Taken::head`].
    fn set_limit_from(&mut self, head: u64, limit: u64) {
        let limit = limit.clamp(1, self.slots_len());
        // With more items than the limit, the buffer counts as full.
        self.full_at = (head + limit).max(self.tail());
    }

    /// Locks the buffer, lets `f` take items, and sets the limit that `f` returns, from the position at which
    /// the buffer then starts.
    #[inline]
    pub(in crate::queue) fn taking<R>(
        &mut self,
        limit: u64,
        f: impl FnOnce(&mut Taking<'_, T>) -> R,
    ) -> R {
        let mut taking = self.buffer.lock();
        let out = f(&mut taking);
        let head = taking.taken.head;
        drop(taking);
        self.set_limit_from(head, limit);
        out
    }
}
