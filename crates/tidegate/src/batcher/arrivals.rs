//! The arrival times of calls, for a controller that waits for callers who are about to return.
//!
//! An actor sees single arrivals only while it rests, but a controller that anticipates calls needs the
//! times of arrivals during a batch, too. So each call stores its time in a small ring, and the actor reads
//! the ring before each exchange with the controller. A cast stores no time: no caller waits for its
//! answer, so no caller returns because of it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Time;

/// The number of arrival times that the ring keeps. If more calls arrive between two reads of the ring, the
/// actor reports the overwritten calls with the oldest time that is left.
const LEN: u64 = 512;

/// A ring of arrival times of calls. Every caller writes into the ring, and only the actor reads it.
pub(super) struct Arrivals {
    /// The number of calls since the actor started, which is also the number of the next call.
    next: AtomicU64,
    /// Arrival times in nanoseconds; 0 if a caller has claimed a place in the ring and not yet written its
    /// time.
    times: Box<[AtomicU64]>,
}

impl Arrivals {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            times: (0..LEN).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Records the time of a call that its caller is about to send, for the actor. Costs one atomic
    /// read-modify-write.
    pub(super) fn note(&self, now: Time) {
        let ns = now.as_nanos().max(1);
        // Release: a caller calls again only after its answer. So an actor that reads this count (Acquire)
        // also sees that answer counted.
        let at = self.next.fetch_add(1, Ordering::Release);
        // Relaxed: the store passes on only the time, and orders no other memory access.
        self.times[(at % LEN) as usize].store(ns, Ordering::Relaxed);
    }

    /// Returns the number of calls since the actor started, up to which the actor reads the ring.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Calls `each` for the calls with the numbers from `read` to `next` - 1, so that the actor reports them,
    /// and advances `read` past them. The arguments of `each` are an arrival time and the number of calls
    /// with that time.
    pub(super) fn take(&self, next: u64, read: &mut u64, mut each: impl FnMut(Time, u64)) {
        let missed = (next - *read).saturating_sub(LEN);
        *read += missed;
        let mut together = 1 + missed;
        while *read < next {
            let slot = &self.times[(*read % LEN) as usize];
            let ns = slot.swap(0, Ordering::Relaxed);
            if ns == 0 {
                // The caller has not written the time of its call yet. The actor reports this call after
                // the next read.
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
