//! The consumer's side of the ring: the reader's position, the slots that it frees, and the consumer's
//! mark.
//!
//! The reader reads each slot once, before `head` passes the slot; the user's code may panic in between.

use super::slots::taken_from;
use super::{Ring, WAITING};
use crate::queue::sync::{AcqRel, Acquire, Relaxed, SeqCst};

/// The reading end of a ring. It holds a position and no reference to the ring, so that the consumer can
/// own both.
pub(in crate::queue) struct Reader {
    /// The id of the ring to which this reader belongs. The reader asserts it, because another ring would be
    /// unsound.
    ring: u64,
    /// The position of the next item that the reader reads from the ring.
    head: u64,
    /// The position that the reader last published as the ring's `head`: producers may reuse all slots before
    /// it.
    freed: u64,
    /// The position up to which the reader has found all claims published. Before this position it reads
    /// items without another look at a stamp.
    known: u64,
}

impl Reader {
    /// Creates the reader of the new ring with the id `ring`. Only [`Ring::new`] may call this, so that a
    /// ring has one reader.
    pub(super) const fn new(ring: u64) -> Self {
        Self {
            ring,
            head: 0,
            freed: 0,
            known: 0,
        }
    }

    pub(in crate::queue) const fn head(&self) -> u64 {
        self.head
    }

    /// Returns whether the ring holds a published item that the reader has not read, so that a drain finds an
    /// item.
    #[inline]
    pub(in crate::queue) fn ready<T>(&mut self, ring: &Ring<T>) -> bool {
        self.check(ring);
        if self.head == self.known {
            let end = ring.stamp(self.known).load(Acquire);
            self.known = self.known.max(end);
        }
        self.head < self.known
    }

    /// Counts the published items that the reader has not read, up to the first claim that is not published
    /// yet. The reader reads each stamp once, because `known` keeps the result.
    #[inline]
    pub(in crate::queue) fn published<T>(&mut self, ring: &Ring<T>) -> u64 {
        self.check(ring);
        let claimed = ring.claimed();
        while self.known < claimed {
            let end = ring.stamp(self.known).load(Acquire);
            if end <= self.known {
                break;
            }
            self.known = end;
        }
        self.known - self.head
    }

    /// Passes up to `limit` items of the ring to `each`. Does not read at or after the position that `stop`
    /// returns; the reader calls `stop` after each look at a stamp. If `each` panics, the items that it has
    /// not received remain in the ring. Returns the number of items.
    #[inline]
    pub(in crate::queue) fn each<T>(
        &mut self,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
        mut each: impl FnMut(T),
    ) -> u64 {
        self.check(ring);
        let first = self.head;
        let last = first.saturating_add(limit);
        let mut at = At {
            head: first,
            known: self.known,
            reader: self,
        };
        while at.head < last {
            if at.head == at.known {
                let end = ring.stamp(at.head).load(Acquire);
                if end <= at.head {
                    break;
                }
                at.known = end;
            }
            let end = at.known.min(last).min(stop());
            if end <= at.head {
                break;
            }
            while at.head < end {
                let (run, _) = ring.slots.run(at.head, (end - at.head) as usize);
                for slot in run {
                    // SAFETY: the slot is below `known`, so it is published (Acquire) and not read yet. The
                    // reader counts the slot as read before it hands the item out.
                    let item = unsafe { taken_from(slot) };
                    at.head += 1;
                    each(item);
                }
            }
        }
        drop(at);
        self.head - first
    }

    /// Moves up to `limit` items of the ring, in order, to the end of `out`. Stops at the position that
    /// `stop` returns, as [`Reader::each`] does. Returns the number of items.
    #[inline]
    pub(in crate::queue) fn append<T>(
        &mut self,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
        out: &mut Vec<T>,
    ) -> u64 {
        let first = self.head;
        let last = first.saturating_add(limit);
        while self.head < last && self.ready(ring) {
            let end = self.known.min(last).min(stop());
            if end <= self.head {
                break;
            }
            let n = (end - self.head) as usize;
            out.reserve(n);
            // SAFETY: the slots are below `known`, so they are published (Acquire) and not read yet. `out`
            // has room for `n` more items, and its length grows only after they are in place.
            unsafe {
                ring.slots
                    .take(self.head, out.as_mut_ptr().add(out.len()), n);
                out.set_len(out.len() + n);
            }
            self.head = end;
        }
        self.head - first
    }

    /// Gives the slots that the reader has read since the last call back to the producers. Returns whether
    /// a producer waits for room.
    #[inline]
    pub(in crate::queue) fn publish<T>(&mut self, ring: &Ring<T>) -> bool {
        self.check(ring);
        if self.head == self.freed {
            return false;
        }
        self.freed = self.head;
        // Release: the reader has read the slots before a producer writes to them again. Acquire: a
        // producer leaves its waker before its mark, so the consumer that finds the mark also sees the
        // waker.
        let before = ring.head.swap(self.head, AcqRel);
        before & WAITING != 0
    }

    /// Leaves the consumer's mark, if every claimed position is read: the next claim then finds the mark.
    /// Returns false if a claimed position is not read yet (its item comes in a moment), or if the ring is
    /// closed.
    pub(in crate::queue) fn mark_waiting<T>(&self, ring: &Ring<T>) -> bool {
        self.check(ring);
        ring.tail
            .at
            .compare_exchange(self.head, self.head | WAITING, SeqCst, Relaxed)
            .is_ok()
            || ring.tail.at.load(Relaxed) == self.head | WAITING
    }

    /// Removes the consumer's mark from the ring, because the consumer does not sleep.
    pub(in crate::queue) fn unmark<T>(&self, ring: &Ring<T>) {
        self.check(ring);
        ring.tail.at.fetch_and(!WAITING, SeqCst);
    }

    #[inline(always)]
    fn check<T>(&self, ring: &Ring<T>) {
        assert!(self.ring == ring.id, "the reader of another ring");
    }
}

/// A guard that keeps the position while the reader hands out items. Its drop stores the position in the
/// reader, even if the user's code panics.
struct At<'a> {
    head: u64,
    known: u64,
    reader: &'a mut Reader,
}

impl Drop for At<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.reader.head = self.head;
        self.reader.known = self.known;
    }
}
