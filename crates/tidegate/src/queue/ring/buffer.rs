//! The memory of a producer's own buffer: its one [`Writer`], and the lock under which items leave the
//! buffer ([`Taking`]). `producer::own` decides how many items the buffer gathers and when the producer
//! flushes it.

use std::cell::UnsafeCell;
use std::collections::VecDeque;

use super::lock::{Lock, Locked};
use super::slots::Slots;
use super::{Claim, Refused, Ring};
use crate::controller::Counts;
use crate::queue::sync::{Acquire, Arc, AtomicU64, Padded, Relaxed, Release};

/// A producer's own buffer. Its one [`Writer`] writes items into it. The producer (by a flush) or the
/// consumer (by a sweep) takes the items out, under the lock.
pub(in crate::queue) struct Buffer<T> {
    /// The position after the last item written into the buffer. The holder of the lock takes only items
    /// before it.
    tail: Padded<AtomicU64>,
    taken: Padded<Lock<Taken>>,
    /// The slots of the buffer's items. Only the writer replaces them, under the lock.
    slots: UnsafeCell<Slots<T>>,
}

/// The record of the items that left a producer's buffer. The lock of the buffer protects it.
#[derive(Default)]
pub(in crate::queue) struct Taken {
    /// The position of the first item still in the buffer: all items before this position were taken.
    head: u64,
    /// The ring position after the last flushed item. The consumer may sweep the buffer only after it has
    /// read the ring up to this position, or the items of this producer would overtake each other.
    pub(in crate::queue) ring_end: u64,
    /// The number of items that the consumer has swept since the producer's last flush. The next flush
    /// reports them to the controller or to the rule that sets the buffer's size.
    pub(in crate::queue) swept: u64,
    /// True if the producer is gone. The registry then forgets the buffer once the buffer is empty.
    pub(in crate::queue) orphan: bool,
    /// The batches that have left the buffer since its creation, counted by the reason of each flush or
    /// sweep.
    pub(in crate::queue) counts: Counts,
}

// SAFETY: slots at or after `tail` belong to the writer; slots in `head..tail` to the holder of the lock.
// The writer publishes `tail` with Release, and the holder of the lock reads it with Acquire; the writer
// learns of a new `head` through the lock. Items move between threads, so `T` is `Send`.
unsafe impl<T: Send> Sync for Buffer<T> {}
// SAFETY: the buffer owns its items, so it may move to another thread if the items may.
unsafe impl<T: Send> Send for Buffer<T> {}

impl<T> Buffer<T> {
    /// Makes a buffer for `len` items, with memory for the next power of two, and the one writer of the
    /// buffer.
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

    /// Returns the present slots of the buffer.
    ///
    /// # Safety
    /// The caller is the writer, or holds the lock for as long as it uses the slots.
    #[inline(always)]
    const unsafe fn slots(&self) -> &Slots<T> {
        // SAFETY: only the writer replaces the slots, and only under the lock; the caller is that writer,
        // or holds that lock.
        unsafe { &*self.slots.get() }
    }

    /// Locks the buffer. The holder of the lock may take items out of the buffer.
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

/// A locked [`Buffer`], out of which the holder of the lock may take items.
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
        // SAFETY: `self` holds the lock of the buffer.
        unsafe { self.buffer.slots() }
    }

    /// Returns the number of items that wait in the buffer to be flushed or swept.
    #[inline]
    pub(in crate::queue) fn len(&self) -> u64 {
        self.buffer.tail.load(Acquire) - self.taken.head
    }

    /// Moves as many items as the ring has room for into `ring`, by one claim. The other items stay in the
    /// buffer, in order.
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
            // SAFETY: the items are below `tail`, so they are written (Acquire), and the holder of the lock
            // owns them. The claim gives the ring's slots to this thread. The items move: `head` passes
            // them before the lock is released.
            unsafe { ring.slots.fill_from(claim.at + moved, from, run) };
            moved += run as u64;
        }
        self.taken.head += claim.items;
        self.taken.ring_end = claim.at + claim.items;
        ring.publish(&claim);
        Ok(claim)
    }

    /// Moves all items of the buffer to the end of `out`, for the consumer that sweeps. Returns their number.
    pub(in crate::queue) fn sweep_into(&mut self, out: &mut VecDeque<T>) -> u64 {
        let len = self.len();
        out.reserve(len as usize);
        for _ in 0..len {
            // SAFETY: the item is below `tail`, so it is written (Acquire). The holder of the lock owns the
            // item, and `head` passes the item at once.
            let item = unsafe { self.slots().read(self.taken.head) };
            self.taken.head += 1;
            out.push_back(item);
        }
        len
    }

    /// Passes the items of the buffer to `lane`, in order, until `lane` gives one back; that item and all
    /// later ones stay in the buffer. `lane` returns the ring position at which an accepted item is due.
    pub(in crate::queue) fn spill(&mut self, mut lane: impl FnMut(T) -> Result<u64, T>) {
        while self.len() > 0 {
            let at = self.taken.head;
            // SAFETY: the item is below `tail`, so it is written (Acquire). The holder of the lock owns the
            // item, and `head` passes the item at once.
            let item = unsafe { self.slots().read(at) };
            self.taken.head += 1;
            match lane(item) {
                Ok(due) => self.taken.ring_end = due,
                Err(item) => {
                    // SAFETY: this function has just read the item out of this slot, so the slot is empty,
                    // and the holder of the lock still owns it.
                    unsafe { self.slots().write(at, item) };
                    self.taken.head = at;
                    return;
                }
            }
        }
    }

    /// Takes all items out of the buffer, as a vector, for a producer or consumer that ends.
    pub(in crate::queue) fn take_all(&mut self) -> Vec<T> {
        let mut all = VecDeque::new();
        self.sweep_into(&mut all);
        all.into()
    }
}

/// The writing end of a producer's [`Buffer`], which only that producer holds.
pub(in crate::queue) struct Writer<T> {
    buffer: Arc<Buffer<T>>,
    /// The position at which the buffer counts as full. It is never before `tail`, and never more than the
    /// buffer's number of slots after [`Taken::head`], so the slots from `tail` to this position are free.
    full_at: u64,
}

/// A guard over items written at the end of a buffer. Its drop publishes these items, even if the iterator
/// of the user's code panics.
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

    /// Returns the position after the last item written. Relaxed suffices, because only this writer changes
    /// the position.
    #[inline(always)]
    fn tail(&self) -> u64 {
        self.buffer.tail.load(Relaxed)
    }

    pub(in crate::queue) fn buffer(&self) -> &Arc<Buffer<T>> {
        &self.buffer
    }

    /// Appends an item to the buffer and returns `Ok`, if the buffer has room for at least two items.
    /// Otherwise returns the item, because the item would fill the buffer, and the caller then has more to
    /// do.
    #[inline(always)]
    pub(in crate::queue) fn push_early(&mut self, item: T) -> Result<(), T> {
        let tail = self.tail();
        if self.full_at - tail < 2 {
            return Err(item);
        }
        self.put(tail, item);
        Ok(())
    }

    /// Appends an item to the buffer.
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
        // SAFETY: the callers saw `tail < full_at`, and `full_at` is at most `head` plus the number of slots.
        // So this slot holds no item. Slots from `tail` on belong to this writer, and the buffer has no other
        // writer.
        unsafe { self.buffer.slots().write(tail, item) };
        self.buffer.tail.store(tail + 1, Release);
    }

    /// Appends the items that `items` yields until the buffer is full, and publishes all of them together.
    /// Returns their number.
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
            // SAFETY: `at < full_at`, which is at most the number of slots after `head`, so this slot holds
            // no item. Slots from `tail` on belong to this writer.
            unsafe { all.writer.buffer.slots().write(all.at, item) };
            all.at += 1;
        }
        all.at - first
    }

    /// Takes the last `n` items out of the buffer again, in order, except those that the consumer has swept,
    /// because the queue is closed.
    pub(in crate::queue) fn take_back(&mut self, n: u64) -> Vec<T> {
        let taking = self.buffer.lock();
        let n = taking.len().min(n);
        let tail = self.tail() - n;
        self.buffer.tail.store(tail, Relaxed);
        // SAFETY: this writer wrote the items, and under the lock no other thread takes them; `tail` now
        // ends before them.
        (tail..tail + n)
            .map(|at| unsafe { self.buffer.slots().read(at) })
            .collect()
    }

    /// Returns the number of items for which the buffer has memory, which may be less than its limit.
    pub(in crate::queue) fn slots_len(&self) -> u64 {
        // SAFETY: `self` is the buffer's only writer, and only the writer replaces the slots.
        unsafe { self.buffer.slots() }.len() as u64
    }

    /// Moves the items into new memory, for at least `len` items and for all items present. The buffer then
    /// counts as full with `len` items.
    pub(in crate::queue) fn resize(&mut self, len: u64) {
        let taking = self.buffer.lock();
        let (head, tail) = (taking.taken.head, self.tail());
        let slots = Slots::new(len.max(tail - head).max(1).next_power_of_two() as usize);
        for at in head..tail {
            // SAFETY: the item is below `tail`, so it is written, and the holder of the lock owns it. The
            // new slots hold no item yet, and they are at least as many as the items. The drop of the old
            // slots drops no item, because slots never drop items.
            unsafe { slots.write(at, taking.slots().read(at)) };
        }
        // SAFETY: `self` is the writer, and no other thread reaches the slots without the lock.
        let old = unsafe { std::mem::replace(&mut *self.buffer.slots.get(), slots) };
        drop(taking);
        drop(old);
        self.set_limit_from(head, len);
    }

    /// Sets the limit of the buffer: from now on it counts as full with `limit` items.
    pub(in crate::queue) fn set_limit(&mut self, limit: u64) {
        self.taking(limit, |_| ());
    }

    /// Sets the limit of the buffer, counted from `head`, which is a recent value of [`Taken::head`].
    fn set_limit_from(&mut self, head: u64, limit: u64) {
        let limit = limit.clamp(1, self.slots_len());
        // A buffer with more items than the limit counts as full.
        self.full_at = (head + limit).max(self.tail());
    }

    /// Locks the buffer, lets `f` take items, and sets the limit of the buffer to `limit` items, counted
    /// from the buffer's new first position. Returns the result of `f`.
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
