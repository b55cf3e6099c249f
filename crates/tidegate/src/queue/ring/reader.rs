//! The consumer's side of the ring: its position, the slots it frees, and its mark.
//!
//! A slot is read once, before `head` passes it; the caller's code may unwind in between.

use super::slots::taken_from;
use super::{Ring, WAITING};
use crate::queue::sync::{AcqRel, Acquire, Relaxed, SeqCst};

/// The reading end of one ring: a position, not a reference, so that it can live together with the consumer.
pub(in crate::queue) struct Reader {
    /// The number of the ring to which the reader belongs.
    ring: u64,
    /// The next position to read.
    head: u64,
    /// The value of `head` last published.
    freed: u64,
    /// The end of the claims known to be published: at least `head`.
    known: u64,
}

impl Reader {
    /// Creates the reader of the new ring `ring`: only [`Ring::new`] may call this.
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

    /// Returns whether an item can be read.
    #[inline]
    pub(in crate::queue) fn ready<T>(&mut self, ring: &Ring<T>) -> bool {
        self.check(ring);
        if self.head == self.known {
            let end = ring.stamp(self.known).load(Acquire);
            self.known = self.known.max(end);
        }
        self.head < self.known
    }

    /// Counts the items that can be read now, up to the first claim that is not published yet. The reader
    /// reads each stamp once: later reads find the claims in `known`.
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

    /// Passes up to `limit` items to `each`, and none at or after the position that `stop` returns after the
    /// last look at the ring. If `each` panics, the items that it had not received remain.
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
                    // SAFETY: the slot is below `known`, so it is published (Acquire) and not read yet; the
                    // reader counts it as read before it hands the item out.
                    let item = unsafe { taken_from(slot) };
                    at.head += 1;
                    each(item);
                }
            }
        }
        drop(at);
        self.head - first
    }

    /// Moves up to `limit` items, in order, to the end of `out`, stopping as [`Reader::each`] does.
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
            // SAFETY: the slots are below `known`, so they are published (Acquire) and not read yet; there is
            // room for `n` items behind those of `out`, and its length grows only when they are there.
            unsafe {
                ring.slots
                    .take(self.head, out.as_mut_ptr().add(out.len()), n);
                out.set_len(out.len() + n);
            }
            self.head = end;
        }
        self.head - first
    }

    /// Gives the slots read since the last call back to the producers. Returns whether a producer wants room.
    #[inline]
    pub(in crate::queue) fn publish<T>(&mut self, ring: &Ring<T>) -> bool {
        self.check(ring);
        if self.head == self.freed {
            return false;
        }
        self.freed = self.head;
        // Release: our reads come before a producer's next writes. Acquire: the producer
        // left its waker before its mark.
        let before = ring.head.swap(self.head, AcqRel);
        before & WAITING != 0
    }

    /// Leaves the consumer's mark, if no position is claimed: the next claim reports the mark. Returns false
    /// if a position is claimed (and will be published in a moment), or the ring is closed.
    pub(in crate::queue) fn mark_waiting<T>(&self, ring: &Ring<T>) -> bool {
        self.check(ring);
        ring.tail
            .at
            .compare_exchange(self.head, self.head | WAITING, SeqCst, Relaxed)
            .is_ok()
            || ring.tail.at.load(Relaxed) == self.head | WAITING
    }

    /// Takes the consumer's mark back.
    pub(in crate::queue) fn unmark<T>(&self, ring: &Ring<T>) {
        self.check(ring);
        ring.tail.at.fetch_and(!WAITING, SeqCst);
    }

    #[inline(always)]
    fn check<T>(&self, ring: &Ring<T>) {
        assert!(self.ring == ring.id, "the reader of another ring");
    }
}

/// Keeps the reader's position right if the caller's code unwinds.
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
