//! When calls arrived, for a controller that waits for callers who are about to return.
//!
//! An actor sees single arrivals only while it rests; those during a batch are what anticipation lives on. So
//! each call leaves its time here, in a small ring, and the actor reads the ring before it asks or tells the
//! controller anything. Casts leave nothing: nobody waits for them, so nobody comes back because of them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Time;

/// Times kept between two looks of the actor. More calls than that are announced as having come with the last
/// of them.
const LEN: u64 = 512;

/// Written by every caller, read by the one actor.
pub(super) struct Arrivals {
    /// Calls so far.
    next: AtomicU64,
    /// Nanoseconds; 0 where a caller has taken its place and not yet written.
    times: Box<[AtomicU64]>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            times: (0..LEN).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A call is about to be sent. One read-modify-write.
    pub(super) fn note(&self, now: Time) {
        let ns = now.as_nanos().max(1);
        // A caller comes again only after its answer, so the actor has counted that answer by now.
        let at = self.next.fetch_add(1, Ordering::Release);
        // A time is all that is handed over: it orders nothing.
        self.times[(at % LEN) as usize].store(ns, Ordering::Relaxed);
    }

    /// Calls so far.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Tells `each` of those that arrived since `read` and before `next`, as a time and a number of calls,
    /// and moves `read` on.
    pub(super) fn take(&self, next: u64, read: &mut u64, mut each: impl FnMut(Time, u64)) {
        let missed = (next - *read).saturating_sub(LEN);
        *read += missed;
        let mut together = 1 + missed;
        while *read < next {
            let slot = &self.times[(*read % LEN) as usize];
            let ns = slot.swap(0, Ordering::Relaxed);
            if ns == 0 {
                // Its caller has not written yet: next time.
                *read -= together - 1;
                return;
            }
            each(Time::from_nanos(ns), together);
            together = 1;
            *read += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_announced_once_also_when_there_are_too_many() {
        let arrivals = Arrivals::new();
        let (mut read, mut calls, mut times) = (0, 0, 0);
        for n in [0, 1, 3, LEN, LEN + 100, 5] {
            (0..n).for_each(|at| arrivals.note(Time::from_nanos(at)));
            arrivals.take(arrivals.next(), &mut read, |_, n| {
                calls += n;
                times += 1;
            });
        }
        assert_eq!(calls, 1 + 3 + LEN + LEN + 100 + 5);
        assert_eq!(times, 1 + 3 + LEN + LEN + 5);
    }
}
