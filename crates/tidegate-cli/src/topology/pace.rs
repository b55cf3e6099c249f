//! Open-loop pacing: each line has a moment at which it is due, whatever became of those before it.

use std::time::Duration;

use tidegate::{Clock, Time};

/// How fast lines are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Lines a second.
    pub per_s: f64,
    /// Whether to be on time to the microsecond, at the price of a core, rather than within a sleep's
    /// overshoot.
    pub exact: bool,
}

/// Waits for the moments of one pace.
pub(super) struct Pacer {
    pace: Pace,
    clock: Clock,
    start: Time,
    line: u64,
}

/// Sleeping overshoots by some 60 us: nearer than this it is not exact.
const NEAR: Duration = Duration::from_micros(200);

impl Pacer {
    /// The first line is due now.
    pub(super) fn new(pace: Pace, clock: Clock) -> Self {
        Self {
            pace,
            clock,
            start: clock.now(),
            line: 0,
        }
    }

    /// The next line is due now, as if the time since the last had not been.
    pub(super) fn restart(&mut self) {
        (self.start, self.line) = (self.clock.now(), 0);
    }

    /// Waits until the next line is due, but first calls `before`; answers when that was, or `None` if `stop`
    /// says so while it waits.
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
            // In short sleeps, to notice the stop.
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
