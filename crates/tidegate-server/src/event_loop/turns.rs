//! The account of the event loop's turns: their number, the CPU time of each turn, and how often the loop was
//! late.
//!
//! The CPU time is the loop's own thread's, so it tells the work of a turn from the time for which other
//! processes had the core. It takes a system call, so a turn counts with its time by the clock, which is no
//! shorter, until turns have taken [`READ_EVERY`] in all. Then the CPU time since the last reading bounds it.

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use tidegate::Time;

use super::log_limit::LogLimit;

/// The delay of a timer or of the end of a turn from which the loop counts as late.
const LATE: Duration = Duration::from_millis(100);
/// The interval between two log lines.
const LOGGED: Duration = Duration::from_secs(60);
/// The time of turns after which the thread's CPU time is read again.
const READ_EVERY: Duration = Duration::from_millis(1);
/// A longer turn counts as this long.
const LONGEST: Duration = Duration::from_secs(100);

/// The account of the loop's turns, see the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    /// The CPU times of the turns, in nanoseconds.
    cpu: Histogram<u64>,
    /// The thread's CPU time at the last reading.
    used: Option<Duration>,
    /// The time of all turns since the last reading.
    unread: Duration,
    begun: Time,
    /// The latest time at which the next turn should begin.
    due: Option<Time>,
    within: [u64; TURN_BOUNDS_US.len() + 1],
    total_ns: u64,
    late: u64,
    log: LogLimit,
}

/// The bounds of the histogram of the CPU time of a turn, in microseconds.
pub(crate) const TURN_BOUNDS_US: [u64; 10] = [
    30, 100, 300, 500, 1000, 2000, 4000, 10_000, 100_000, 1_000_000,
];

/// The figures of the turns so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnStats {
    /// The number of turns.
    pub(crate) turns: u64,
    /// The CPU times, in nanoseconds, within which 50, 99 and 99.9 per cent of the turns stayed, and the
    /// longest CPU time.
    pub(crate) cpu_ns: [u64; 4],
    /// The number of turns within each of [`TURN_BOUNDS_US`] and, last, the number of longer turns.
    pub(crate) within: [u64; TURN_BOUNDS_US.len() + 1],
    /// The CPU time of all turns together, in nanoseconds.
    pub(crate) total_ns: u64,
    /// The number of times that the loop was late.
    pub(crate) late: u64,
}

impl Turns {
    /// Creates an account without turns. This never fails: the bounds of the histogram are valid constants.
    pub(super) fn new() -> Self {
        let cpu = Histogram::new_with_max(LONGEST.as_nanos() as u64, 2);
        Self {
            cpu: cpu.unwrap_or_else(|e| unreachable!("the bounds of the histogram fit: {e}")),
            // The CPU time belongs to the loop's thread, which is not known before the first turn.
            used: None,
            unread: Duration::ZERO,
            begun: Time::ZERO,
            due: None,
            within: [0; TURN_BOUNDS_US.len() + 1],
            total_ns: 0,
            late: 0,
            log: LogLimit::every(LOGGED),
        }
    }

    /// Records that a turn begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.begun = now;
        if let Some(due) = self.due.take() {
            self.check(now, due);
        }
    }

    /// Records that the turn ends. The next turn should begin at `due` at the latest, if there is such a
    /// time.
    pub(super) fn end(&mut self, now: Time, due: Option<Time>) {
        let mut took = now - self.begun;
        self.unread += took;
        if self.unread >= READ_EVERY || self.used.is_none() {
            self.unread = Duration::ZERO;
            let used = used();
            if let Some(before) = self.used.replace(used) {
                took = took.min(used.saturating_sub(before));
            }
        }
        self.cpu.saturating_record(took.as_nanos() as u64);
        self.total_ns += took.as_nanos() as u64;
        let us = took.as_micros() as u64;
        self.within[TURN_BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.check(now, self.begun);
        self.due = due;
    }

    fn check(&mut self, now: Time, due: Time) {
        if now < due + LATE {
            return;
        }
        self.late += 1;
        if let Some(more) = self.log.due(now) {
            let ms = Duration::from_nanos(now.since(due)).as_millis();
            tracing::warn!(
                "the event loop was late by {ms} ms, and clients waited: other programs kept the cores busy, or one turn of the loop took long{more}"
            );
        }
    }

    /// Returns the figures of the turns so far.
    pub(super) fn stats(&self) -> TurnStats {
        TurnStats {
            turns: self.cpu.len(),
            within: self.within,
            total_ns: self.total_ns,
            cpu_ns: [0.5, 0.99, 0.999, 1.0].map(|q| self.cpu.value_at_quantile(q)),
            late: self.late,
        }
    }
}

/// Returns the CPU time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The casts lose nothing: the clock of a thread begins at 0.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
