//! The arrival times of calls, for a controller that waits for callers who are about to return.
//!
//! An actor sees single arrivals only while it rests, but anticipation depends on the arrivals
//! during a batch. So each call stores its time in a small ring, and the actor reads the ring
//! before each exchange with the controller. A cast stores no time: no caller waits for its answer,
//! so no caller returns because of it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Time;

/// The number of times that the ring keeps. If more calls arrive between two reads, the actor announces the
/// overwritten calls with the oldest time that is left.
const LEN: u64 = 512;

/// A ring of arrival times. Every caller writes it, and only the actor reads it.
pub(super) struct Arrivals {
    /// The number of calls so far.
    next: AtomicU64,
    /// Times in nanoseconds; 0 where a caller has claimed a slot and not yet written its time.
    times: Box<[AtomicU64]>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            times: (0..LEN).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Records a call that is about to be sent, with one read-modify-write.
    pub(super) fn note(&self, now: Time) {
        let ns = now.as_nanos().max(1);
        // A caller calls again only after its answer, so the actor has counted that answer by now.
        let at = self.next.fetch_add(1, Ordering::Release);
        // The slot hands over only the time and orders nothing else.
        self.times[(at % LEN) as usize].store(ns, Ordering::Relaxed);
    }

    /// Returns the number of calls so far.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Passes the calls that arrived since `read` and before `next` to `each`, as a time and a
    /// number of calls, and advances `read`.
    pub(super) fn take(&self, next: u64, read: &mut u64, mut each: impl FnMut(Time, u64)) {
        let missed = (next - *read).saturating_sub(LEN);
        *read += missed;
        let mut together = 1 + missed;
        while *read < next {
            let slot = &self.times[(*read % LEN) as usize];
            let ns = slot.swap(0, Ordering::Relaxed);
            if ns == 0 {
                // The caller has not written the time of its call yet: the next read announces the call.
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
