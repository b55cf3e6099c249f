//! Keeps the pace of a neighbour: its operations are due at fixed times, even if earlier operations have no
//! answer, and the latency of an operation counts from its due time. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use super::figures::{ByPhase, Recorder, Starts};

/// The greatest number of operations of a neighbour without an answer, to bound the memory. It is several
/// times the number of operations that are due in a minute.
const FLIGHT_MAX: usize = 1 << 16;

/// The operations of one neighbour, in the order of the fixed times at which they are due.
#[derive(Debug)]
pub(super) struct Pace {
    every_ns: u64,
    /// The time at which the next operation is due, in nanoseconds of the clients' clock.
    next_ns: u64,
    /// The number of the neighbour's next operation, counted from 0.
    next: u64,
    /// The operations without an answer, in order: the number and the due time of each.
    flight: VecDeque<(u64, u64)>,
    starts: Arc<Starts>,
    recorder: Recorder,
}

impl Pace {
    pub(super) fn new(first_ns: u64, every_ns: u64, starts: Arc<Starts>) -> Self {
        Self {
            every_ns,
            next_ns: first_ns,
            next: 0,
            flight: VecDeque::new(),
            starts,
            recorder: Recorder::new(),
        }
    }

    /// Returns the number of the next operation that is due, and counts the operation as started. The caller
    /// repeats the call until it returns `None`.
    pub(super) fn due(&mut self, now: u64) -> Option<u64> {
        if self.next_ns > now || self.starts.is_over(self.next_ns) {
            return None;
        }
        if self.flight.len() == FLIGHT_MAX {
            let (_, due) = self.flight.pop_front()?;
            self.put(due, now, Some("too many operations without an answer"));
        }
        let number = self.next;
        self.flight.push_back((number, self.next_ns));
        self.next += 1;
        self.next_ns += self.every_ns;
        Some(number)
    }

    /// Returns the time at which the next operation is due, in nanoseconds of the clients' clock.
    pub(super) const fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Records the answer to the operation of this number, or the failure of the operation.
    pub(super) fn answered(&mut self, number: u64, now: u64, failure: Option<&str>) {
        let at = self.flight.iter().position(|(n, _)| *n == number);
        if let Some((_, due)) = at.and_then(|at| self.flight.remove(at)) {
            self.put(due, now, failure);
        }
    }

    /// Records the answer to the oldest operation, on a connection with answers in order.
    pub(super) fn answered_next(&mut self, now: u64) {
        if let Some((_, due)) = self.flight.pop_front() {
            self.put(due, now, None);
        }
    }

    /// Records that all operations without an answer have failed, because their connection broke.
    pub(super) fn broken(&mut self, now: u64, failure: &str) {
        while let Some((_, due)) = self.flight.pop_front() {
            self.put(due, now, Some(failure));
        }
    }

    /// Returns whether the last phase of the run is over, so that no further operation is due.
    pub(super) fn is_over(&self, now: u64) -> bool {
        self.starts.is_over(now)
    }

    /// Returns whether the last phase is over and every operation has its answer.
    pub(super) fn is_done(&self, now: u64) -> bool {
        self.starts.is_over(now) && self.flight.is_empty()
    }

    pub(super) fn figures(&self) -> ByPhase {
        self.recorder.figures()
    }

    fn put(&mut self, due: u64, now: u64, failure: Option<&str>) {
        let phase = self.starts.phase(due);
        self.recorder
            .record(phase, now.saturating_sub(due), failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        let starts = Arc::new(Starts::new());
        starts.advance(0);
        Pace::new(1000, 1000, starts)
    }

    #[test]
    fn latencies_count_from_the_due_moment() {
        let mut pace = pace();
        assert_eq!(pace.due(999), None);
        assert_eq!((pace.due(1000), pace.due(1000)), (Some(0), None));
        // The client was delayed, so three more operations are due at once.
        let late: Vec<_> = std::iter::from_fn(|| pace.due(4500)).collect();
        assert_eq!((late, pace.next_ns()), (vec![1, 2, 3], 5000));
        pace.answered(3, 4600, None);
        pace.answered_next(9000);
        pace.answered(1, 9000, Some("refused"));
        pace.answered(77, 9000, None);
        let figures = pace.figures().before;
        assert_eq!((figures.count, figures.failures), (3, 1));
        assert!((figures.worst_us.unwrap() - 8.0).abs() < 0.1);
        assert!((figures.p50_us.unwrap() - 7.0).abs() < 0.1);
    }

    #[test]
    fn a_lost_connection_fails_the_operations_in_flight() {
        let mut pace = pace();
        while pace.due(3000).is_some() {}
        pace.broken(10_000, "closed");
        let figures = pace.figures().before;
        assert_eq!((figures.count, figures.failures), (3, 3));
        assert_eq!(figures.said.as_deref(), Some("closed"));
    }

    #[test]
    fn nothing_is_due_after_the_end() {
        let mut pace = pace();
        for at in [1500, 2500, 3500] {
            pace.starts.advance(at);
        }
        let all: Vec<_> = std::iter::from_fn(|| pace.due(9000)).collect();
        assert_eq!(all, [0, 1, 2]);
        assert!(!pace.is_done(9000));
        pace.broken(9000, "no answer");
        assert!(pace.is_done(9000));
    }
}
