//! The producers' side of the ring: claims, the items that move into them, and their publication.
//!
//! No code of the caller runs between a claim and its publication; see the module's documentation for the
//! marks and for why lines are fetched ahead.

use std::ptr;

use super::{CLOSED, POSITION, Refused, Ring, WAITING};
use crate::queue::sync::{AcqRel, Acquire, Relaxed, Release};

/// The number of items ahead of its claims for which a producer fetches cache lines.
const AHEAD: u64 = 32;
/// The most items of the next claim for which a producer fetches cache lines: more would not fit between two
/// claims.
const AHEAD_MOST: u64 = 128;

/// A claim, and the number of items moved into it.
#[derive(Clone, Copy, Debug)]
pub(in crate::queue) struct Claim {
    pub(super) at: u64,
    /// The number of items moved into the claim: at least one.
    pub(in crate::queue) items: u64,
    /// True if the consumer had left its mark: the producer must wake it.
    pub(in crate::queue) wake: bool,
    /// The position up to which all positions are known to be free.
    room_end: u64,
}

impl<T> Ring<T> {
    /// Pushes `item` by one claim.
    #[inline(always)]
    pub(in crate::queue) fn push(&self, item: T) -> Result<bool, (T, Refused)> {
        match self.claim(1) {
            Ok(claim) => {
                // SAFETY: the claim makes this slot ours until it is published.
                unsafe { self.slots.write(claim.at, item) };
                self.publish(&claim);
                Ok(claim.wake)
            }
            Err(refused) => Err((item, refused)),
        }
    }

    /// Pushes `item` and runs `between` after the claim and before the publication, as if the scheduler
    /// stopped the producer there.
    #[cfg(test)]
    pub(in crate::queue) fn push_stopped(&self, item: T, between: impl FnOnce()) -> bool {
        let Ok(claim) = self.claim(1) else {
            return false;
        };
        between();
        // SAFETY: the claim makes this slot ours until it is published.
        unsafe { self.slots.write(claim.at, item) };
        self.publish(&claim);
        true
    }

    /// Moves as many items from the front of `items` into the ring as there is room for; the rest stays, in
    /// order.
    #[inline]
    pub(in crate::queue) fn push_front_of(&self, items: &mut Vec<T>) -> Result<Claim, Refused> {
        let len = items.len();
        debug_assert!(len > 0);
        // There may be more zero-sized items than positions.
        let claim = self.claim((len as u64).min(self.capacity))?;
        let moved = claim.items as usize;
        // SAFETY: the claim makes these slots ours. The items are moved: the length is set before other code
        // could see them twice, and the items that stay are moved to the front.
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

    /// Copies as many items from the front of `items` as there is room for.
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

    /// Claims up to `want` positions, at least one.
    #[inline(always)]
    pub(super) fn claim(&self, want: u64) -> Result<Claim, Refused> {
        let mut tail = self.tail.at.load(Relaxed);
        loop {
            // Acquire: the producer that stored this value saw the consumer leave these slots, and now this
            // producer does, too.
            let mut room_end = self.tail.head_seen.load(Acquire) + self.capacity;
            let (mut at, mut items) = (tail, want);
            if tail + want > room_end {
                (at, items, room_end) = self.look_again(tail, want)?;
            }
            // AcqRel: this claim takes the consumer's mark away after the consumer has left its waker.
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

    /// Finds out whether there is no room, or `tail` carries a mark.
    #[cold]
    fn look_again(&self, tail: u64, want: u64) -> Result<(u64, u64, u64), Refused> {
        if tail & CLOSED != 0 {
            return Err(Refused::Closed);
        }
        let at = tail & POSITION;
        let head = if self.has_line() {
            // The free slots belong to the producers in line.
            self.tail.head_seen.load(Acquire)
        } else {
            // Acquire: the reader's reads of the slots before `head` come before our writes to them.
            let head = self.head.load(Acquire) & POSITION;
            self.tail.head_seen.store(head, Release);
            head
        };
        // `tail` may be older than `head`; the exchange will then fail.
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
        // The producer fetches only lines that the consumer no longer needs: the consumer would have to fetch
        // back the lines that it still has to read.
        let ahead = end + AHEAD;
        if ahead + claim.items <= claim.room_end {
            fetch_to_write(self.stamp(ahead));
            fetch_to_write(self.slots.place(ahead));
            if claim.items > AHEAD {
                self.fetch_for(end, claim.items);
            }
        }
    }

    /// Fetches the cache lines of the next claim ahead, as if it were like the last claim.
    #[inline]
    fn fetch_for(&self, at: u64, items: u64) {
        let line = (64 / size_of::<T>().max(1)).max(1);
        fetch_to_write(self.stamp(at));
        for at in (at..at + items.min(AHEAD_MOST)).step_by(line) {
            fetch_to_write(self.slots.place(at));
        }
    }
}

/// Fetches the cache line of `place` ahead, for a write soon.
#[inline(always)]
fn fetch_to_write<P>(place: *const P) {
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    // SAFETY: the instruction only gives a hint, and any address is valid.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    let _ = place;
}
