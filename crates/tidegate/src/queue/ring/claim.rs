//! The producers' side of the ring: claims of positions, the items that move into them, and their
//! publication.
//!
//! No code of the caller runs between a claim and its publication. The documentation of the module `ring`
//! explains the marks, and why producers prefetch cache lines.

use std::ptr;

use super::{CLOSED, POSITION, Refused, Ring, WAITING};
use crate::queue::sync::{AcqRel, Acquire, Relaxed, Release};

/// The distance from the end of a claim, in positions, at which a producer prefetches cache lines, so that
/// the lines are in its core when it claims these positions.
const AHEAD: u64 = 32;
/// The greatest number of items of the next claim for which a producer prefetches cache lines. More lines
/// would not arrive between two claims.
const AHEAD_MOST: u64 = 128;

/// The positions that a producer has claimed in the ring. The producer moves one item into each of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Claim {
    pub(super) at: u64,
    /// The number of ring positions in this claim. A producer that finds no free position makes no claim, so
    /// the number is never 0.
    pub(in crate::queue) items: u64,
    /// True if the consumer had left its mark before the claim, so that the producer must wake the
    /// consumer.
    pub(in crate::queue) wake: bool,
    /// The position up to which the producer knows all positions to be free. It prefetches no cache line
    /// beyond this position.
    room_end: u64,
}

impl<T> Ring<T> {
    /// Pushes `item` into the ring by one claim. Returns whether the producer must wake the consumer.
    #[inline(always)]
    pub(in crate::queue) fn push(&self, item: T) -> Result<bool, (T, Refused)> {
        match self.claim(1) {
            Ok(claim) => {
                // SAFETY: the claim gives this slot to this producer alone, until the claim is published.
                unsafe { self.slots.write(claim.at, item) };
                self.publish(&claim);
                Ok(claim.wake)
            }
            Err(refused) => Err((item, refused)),
        }
    }

    /// Pushes `item`, and runs `between` after the claim and before the publication, as if the scheduler
    /// stopped the producer at that moment.
    #[cfg(test)]
    pub(in crate::queue) fn push_stopped(&self, item: T, between: impl FnOnce()) -> bool {
        let Ok(claim) = self.claim(1) else {
            return false;
        };
        between();
        // SAFETY: the claim gives this slot to this producer alone, until the claim is published.
        unsafe { self.slots.write(claim.at, item) };
        self.publish(&claim);
        true
    }

    /// Moves as many items from the front of `items` into the ring as the ring has room for. The other
    /// items stay in `items`, in order.
    #[inline]
    pub(in crate::queue) fn push_front_of(&self, items: &mut Vec<T>) -> Result<Claim, Refused> {
        let len = items.len();
        debug_assert!(len > 0);
        // A vector may hold more zero-sized items than the ring has positions, so the claim is at most the
        // capacity.
        let claim = self.claim((len as u64).min(self.capacity))?;
        let moved = claim.items as usize;
        // SAFETY: the claim gives these slots to this producer alone. The items move: the length of `items`
        // is 0 before other code could see an item twice, and the items that stay move to the front.
        unsafe {
            items.set_len(0);
            let from = items.as_mut_ptr();
            self.slots.fill(claim.at, from, moved);
            if moved < len {
                ptr::copy(from.add(moved), from, len - moved);
                items.set_len(len - moved);
            }
        }
        self.publish(&claim);
        Ok(claim)
    }

    /// Copies as many items from the front of `items` into the ring as the ring has room for.
    #[inline]
    pub(in crate::queue) fn push_copies(&self, items: &[T]) -> Result<Claim, Refused>
    where
        T: Copy,
    {
        debug_assert!(!items.is_empty());
        let claim = self.claim(items.len() as u64)?;
        // SAFETY: the claim gives these slots to this producer alone, and is at most as long as `items`.
        // `T: Copy`, so the items may stay in both places.
        unsafe {
            self.slots
                .fill(claim.at, items.as_ptr(), claim.items as usize);
        }
        self.publish(&claim);
        Ok(claim)
    }

    /// Claims `want` positions of the ring for this producer, or fewer if fewer are free. Returns the reason
    /// if the producer gets no position.
    #[inline(always)]
    pub(super) fn claim(&self, want: u64) -> Result<Claim, Refused> {
        let mut tail = self.tail.at.load(Relaxed);
        loop {
            // Acquire: the producer that stored `head_seen` had seen the consumer leave the slots before
            // it. With this load, the present producer sees that, too.
            let mut room_end = self.tail.head_seen.load(Acquire) + self.capacity;
            let (mut at, mut items) = (tail, want);
            if tail + want > room_end {
                (at, items, room_end) = self.look_again(tail, want)?;
            }
            // AcqRel: the consumer leaves its waker before its mark. So a claim that replaces the mark also
            // sees the waker.
            match self
                .tail
                .at
                .compare_exchange_weak(tail, at + items, AcqRel, Relaxed)
            {
                Ok(_) => {
                    let wake = tail & WAITING != 0;
                    return Ok(Claim {
                        at,
                        items,
                        wake,
                        room_end,
                    });
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Takes the slow path of a claim: there seems to be no room, because `tail` carries a mark, or because
    /// `head_seen` is old. Returns the first position, the number of positions and the end of the room, or
    /// the reason why there is no room.
    #[cold]
    fn look_again(&self, tail: u64, want: u64) -> Result<(u64, u64, u64), Refused> {
        if tail & CLOSED != 0 {
            return Err(Refused::Closed);
        }
        let at = tail & POSITION;
        let head = if self.has_line() {
            // The free slots belong to the producers that wait in line for room. A claim takes only the slots
            // that these producers opened.
            self.tail.head_seen.load(Acquire)
        } else {
            // Acquire: the consumer has read the slots before `head` before this producer writes to them.
            let head = self.head.load(Acquire) & POSITION;
            self.tail.head_seen.store(head, Release);
            head
        };
        // `tail` may be older than `head`, and `room` then is too large. The compare-exchange of the claim
        // fails in that case.
        let room = (head + self.capacity).saturating_sub(at);
        match room.min(want) {
            0 => Err(Refused::Full),
            items => Ok((at, items, head + self.capacity)),
        }
    }

    #[inline(always)]
    pub(super) fn publish(&self, claim: &Claim) {
        let end = claim.at + claim.items;
        self.stamp(claim.at).store(end, Release);
        // The producer prefetches only lines that the consumer no longer needs. Otherwise the consumer
        // would have to fetch lines back that it still has to read.
        let ahead = end + AHEAD;
        if ahead + claim.items <= claim.room_end {
            fetch_to_write(self.stamp(ahead));
            fetch_to_write(self.slots.place(ahead));
            if claim.items > AHEAD {
                self.fetch_for(end, claim.items);
            }
        }
    }

    /// Prefetches the cache lines for the next claim. Assumes that the next claim has as many items as the
    /// last one.
    #[inline]
    fn fetch_for(&self, at: u64, items: u64) {
        let line = (64 / size_of::<T>().max(1)).max(1);
        fetch_to_write(self.stamp(at));
        for at in (at..at + items.min(AHEAD_MOST)).step_by(line) {
            fetch_to_write(self.slots.place(at));
        }
    }
}

/// Prefetches the cache line of `place` for writing, because this thread writes to it soon.
#[inline(always)]
fn fetch_to_write<P>(place: *const P) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the instruction only gives a hint to the processor, and any address is valid.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    let _ = place;
}
