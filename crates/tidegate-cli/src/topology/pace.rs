//! Open-loop pacing: each line of the topology has its own due time, so that a slow counter does not slow the
//! load.

use std::time::Duration;

use tidegate::{Clock, Time};

/// The rate at which the reader reads lines, so that a bench can offer a fixed load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The number of lines that the reader reads in a second.
    pub per_s: f64,
    /// True if the reader waits for due times to the microsecond, which occupies a core; false if a line may
    /// be late by the time by which a sleep takes too long.
    pub exact: bool,
}

/// Makes the reader wait for the due times of lines at one pace.
pub(super) struct Pacer {
    pace: Pace,
    clock: Clock,
    start: Time,
    line: u64,
}

/// The time before a due time in which an exact pacer does not sleep, because a sleep takes some 60 us too
/// long.
const NEAR: Duration = Duration::from_micros(200);

impl Pacer {
    /// Starts the pace: the first line is due now.
    pub(super) fn new(pace: Pace, clock: Clock) -> Self {
        Self {
            pace,
            clock,
            start: clock.now(),
            line: 0,
        }
    }

    /// Restarts the pace: the next line is due now, and the time since the last line does not count.
    pub(super) fn restart(&mut self) {
        (self.start, self.line) = (self.clock.now(), 0);
    }

    /// Waits until the next line is due. If it must wait, calls `before` first, so that the reader can flush.
    /// Returns the due time, or `None` if `stop` returns true meanwhile.
    #[inline]
    pub(super) fn next(
        &mut self,
        mut before: impl FnMut(),
        stop: impl Fn() -> bool,
    ) -> Option<Time> {
        let due = self
            .start
            .after((self.line as f64 * 1e9 / self.pace.per_s) as u64);
        self.line += 1;
        if due > self.clock.now() {
            before();
        }
        loop {
            let left = Duration::from_nanos(due.since(self.clock.now()));
            if left.is_zero() {
                return Some(due);
            }
            if stop() {
                return None;
            }
            // The sleeps are at most 50 ms, so that the loop notices a stop.
            let sleep = left.min(Duration::from_millis(50));
            if !self.pace.exact {
                std::thread::sleep(sleep);
            } else if left > NEAR {
                std::thread::sleep(sleep.saturating_sub(NEAR / 2));
            } else {
                std::thread::yield_now();
            }
        }
    }
}
