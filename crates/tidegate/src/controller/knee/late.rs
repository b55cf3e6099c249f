//! Detects batches that take far longer than usual: the controller lets other batches run beside them, so
//! that one hung batch does not stop a boundary.
//!
//! Such a batch counts as stuck, and no longer counts in the concurrency, in two cases. In the first, it ran
//! [`LATE`] times as long as batches of its size usually do, and [`PASSED`] batches that started later ended
//! before it: the server works. In the second, all running batches took [`ALL_LATE`] times as long. Then one
//! of them counts as stuck at a time, so that the controller does not flood a server that is merely slow.

use super::Open;
use crate::Time;

/// A batch that later batches have passed is late once it has run for this multiple of its usual cost.
const LATE: f64 = 4.0;
/// All running batches are late once each of them has run for this multiple of its usual cost.
const ALL_LATE: f64 = 16.0;
/// The least time after which a batch is late, so that short batches do not count as late by chance, and the
/// time after which a batch of unknown cost is late, both in nanoseconds.
const LATE_NS: (f64, f64) = (1e6, 10e6);
/// The number of batches that must start after a late batch and end before it until it counts as stuck.
const PASSED: u32 = 4;

/// The times from which a running batch is late, and the state of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    /// The time from which the batch is late if later batches have passed it.
    passed_at: Time,
    /// The time from which the batch is late even if no later batch has passed it.
    at: Time,
    passed: u32,
    is_stuck: bool,
}

impl Late {
    /// Creates the state of a batch that starts now and usually takes `usual_ns` nanoseconds; `None` if its
    /// usual cost is unknown.
    pub(super) fn new(now: Time, usual_ns: Option<f64>) -> Self {
        let after = |times: f64| {
            let ns = usual_ns.map_or(LATE_NS.1, |usual| (times * usual).max(LATE_NS.0));
            now.after(ns as u64)
        };
        Self {
            passed_at: after(LATE),
            at: after(ALL_LATE),
            passed: 0,
            is_stuck: false,
        }
    }

    pub(super) const fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// Records that a batch that started later ended before this batch, so the server works.
    pub(super) const fn passed(&mut self) {
        self.passed = self.passed.saturating_add(1);
    }

    /// Returns the time at which the batch counts as stuck because later batches passed it; `None` if too few
    /// batches did.
    fn stuck_at(&self) -> Option<Time> {
        (self.passed >= PASSED && !self.is_stuck).then_some(self.passed_at)
    }
}

/// Returns the next time at which a running batch counts as stuck, so that the driver asks again then. Takes
/// O(batches) time.
pub(super) fn stuck_at(open: &[Open]) -> Time {
    let counted = || open.iter().map(|open| &open.late).filter(|l| !l.is_stuck);
    let all_late = counted().map(|late| late.at).max();
    let passed = counted().filter_map(Late::stuck_at).min();
    let all_late = all_late.unwrap_or(Time::NEVER);
    passed.map_or(all_late, |at| at.min(all_late))
}

/// Marks the batches that count as stuck at `now`, and calls `each` with the number of their items. Takes
/// O(batches) time.
pub(super) fn mark(open: &mut [Open], now: Time, mut each: impl FnMut(u64)) {
    let mut all_late = true;
    let mut oldest: Option<usize> = None;
    for i in 0..open.len() {
        let late = open[i].late;
        if late.is_stuck {
            continue;
        }
        if late.stuck_at().is_some_and(|at| now >= at) {
            open[i].late.is_stuck = true;
            each(open[i].items);
            continue;
        }
        all_late &= now >= late.at;
        if oldest.is_none_or(|o| late.at < open[o].late.at) {
            oldest = Some(i);
        }
    }
    if let Some(oldest) = oldest.filter(|_| all_late) {
        open[oldest].late.is_stuck = true;
        each(open[oldest].items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// Returns the state of a batch with a usual cost of ten milliseconds: it is late after 40 ms if other
    /// batches passed it, otherwise after 160 ms.
    fn late(start_ms: u64) -> Late {
        Late::new(at(start_ms), Some(10e6))
    }

    #[test]
    fn a_batch_that_others_passed_is_stuck_sooner() {
        let mut batch = late(0);
        assert_eq!(batch.stuck_at(), None);
        for _ in 0..PASSED {
            batch.passed();
        }
        assert_eq!(batch.stuck_at(), Some(at(40)));
        batch.is_stuck = true;
        assert_eq!(batch.stuck_at(), None, "it is no news any more");
    }

    #[test]
    fn no_batch_is_late_within_a_millisecond_and_one_of_unknown_cost_after_ten() {
        assert_eq!(Late::new(at(0), Some(1.0)).at, at(1));
        assert_eq!(Late::new(at(0), None).at, at(10));
    }
}
