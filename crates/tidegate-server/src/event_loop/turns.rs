//! Counts the event loop's turns, and measures the CPU time of each turn and how often the loop was late, for
//! the monitor.
//!
//! The loop measures the CPU time of its own thread, which excludes the time for which other processes had
//! the core. A reading takes a system call, so the loop reads the CPU clock only after turns have taken
//! [`READ_EVERY`] in all. Until then the loop counts a turn with its wall-clock time, which is at least as
//! long. It counts the turn with the reading with at most the CPU time since the last reading.
//!
//! Before a sync on its own thread the loop may run further turns only to look for messages. A look that
//! finds nothing does not count, because such looks would hide the long turns among them.

use std::time::Duration;

use hdrhistogram::Histogram;
use tidegate::Time;

use super::clock::cpu_time;
use super::log_limit::LogLimit;

/// The loop counts as late if a timer or a turn is delayed by at least this time, because clients notice it.
const LATE: Duration = Duration::from_millis(100);
/// The least time between two log lines about a late loop, so that the log does not fill.
const LOGGED: Duration = Duration::from_secs(60);
/// The loop reads its thread's CPU time again after turns have taken this time in all, because a reading
/// costs a system call.
const READ_EVERY: Duration = Duration::from_millis(1);
/// The longest time that the histogram records, to bound its memory; a longer turn counts as this long.
const LONGEST: Duration = Duration::from_secs(100);

/// Keeps the measurements of the loop's turns; see the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    /// The histogram of the turns' CPU times in nanoseconds, from which the monitor shows quantiles.
    cpu: Histogram<u64>,
    /// The CPU time of the loop's thread at the last reading, from which the next reading computes the turns'
    /// time; `None` before a reading on this thread.
    used: Option<Duration>,
    /// The wall-clock time of all turns since the last reading of the CPU time, after which the loop decides
    /// to read again.
    unread: Duration,
    begun: Time,
    ended: Time,
    /// The time by which the next turn should begin; `None` if the loop has no deadline. The loop counts as
    /// late if the turn begins [`LATE`] after it.
    due: Option<Time>,
    /// True if the present turn is a look for messages that has found none yet, and no timer is due.
    is_look: bool,
    within: [u64; TURN_BOUNDS_US.len() + 1],
    total_ns: u64,
    late: u64,
    syncs: u64,
    log: LogLimit,
}

/// The bounds of the histogram of a turn's CPU time that the monitor shows, in microseconds.
pub(crate) const TURN_BOUNDS_US: [u64; 10] = [
    30, 100, 300, 500, 1000, 2000, 4000, 10_000, 100_000, 1_000_000,
];

/// The figures of the event loop's turns so far, as the monitor shows them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnStats {
    /// The number of turns that the loop has run so far, without looks that found nothing, for the monitor.
    pub(crate) turns: u64,
    /// The CPU times, in nanoseconds, that 50, 99 and 99.9 per cent of the turns did not exceed, and the
    /// longest CPU time of a turn.
    pub(crate) cpu_ns: [u64; 4],
    /// For each of [`TURN_BOUNDS_US`], the number of turns up to this bound and above the bound before it;
    /// last, the number of longer turns. The monitor shows them as a histogram.
    pub(crate) within: [u64; TURN_BOUNDS_US.len() + 1],
    /// The CPU time of all turns together, in nanoseconds, for the monitor.
    pub(crate) total_ns: u64,
    /// The number of times that the event loop was late by 100 ms or more, for the monitor.
    pub(crate) late: u64,
    /// The number of syncs of the log on the loop's thread, between two turns, for the monitor.
    pub(crate) syncs: u64,
}

impl Turns {
    /// Creates the measurements of a loop that has run no turn. The creation of the histogram never fails,
    /// because its bounds are valid constants.
    pub(super) fn new() -> Self {
        let cpu = Histogram::new_with_max(LONGEST.as_nanos() as u64, 2);
        Self {
            cpu: cpu.unwrap_or_else(|e| unreachable!("the bounds of the histogram fit: {e}")),
            // The measurements start without a reading of the CPU time, because the loop's own thread must
            // read it, and that thread does not exist before the first turn.
            used: None,
            unread: Duration::ZERO,
            begun: Time::ZERO,
            ended: Time::ZERO,
            due: None,
            is_look: false,
            within: [0; TURN_BOUNDS_US.len() + 1],
            total_ns: 0,
            late: 0,
            syncs: 0,
            log: LogLimit::every(LOGGED),
        }
    }

    /// Records that a turn of the loop begins now, and counts the loop as late if it begins [`LATE`] after
    /// its deadline.
    pub(super) fn begin(&mut self, now: Time) {
        self.begun = now;
        if let Some(due) = self.due.take() {
            self.is_look &= now < due;
            self.check(now, due);
        }
    }

    /// Records that the loop runs the next turn only to look for messages.
    pub(super) const fn handle_look(&mut self) {
        self.is_look = true;
    }

    /// Records that the present turn has an event.
    pub(super) const fn handle_event(&mut self) {
        self.is_look = false;
    }

    /// Records that the turn of the loop ends now, and measures it. The next turn should begin at `due` at
    /// the latest, if the loop has a deadline; otherwise it may sleep.
    pub(super) fn end(&mut self, now: Time, due: Option<Time>) {
        self.ended = now;
        let mut took = now - self.begun;
        self.unread += took;
        if self.unread >= READ_EVERY || self.used.is_none() {
            self.unread = Duration::ZERO;
            let used = cpu_time();
            if let Some(before) = self.used.replace(used) {
                took = took.min(used.saturating_sub(before));
            }
        }
        if !std::mem::take(&mut self.is_look) {
            self.cpu.saturating_record(took.as_nanos() as u64);
            self.total_ns += took.as_nanos() as u64;
            let us = took.as_micros() as u64;
            self.within[TURN_BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        }
        self.check(now, self.begun);
        self.due = due;
    }

    /// Counts a sync of the log on the loop's thread, for the monitor.
    pub(super) const fn count_sync(&mut self) {
        self.syncs += 1;
    }

    /// Returns the times at which the last turn began and ended, from which the loop measures its work.
    pub(super) const fn last(&self) -> (Time, Time) {
        (self.begun, self.ended)
    }

    /// Forgets the last reading of the CPU clock, because another thread with a clock of its own runs the
    /// loop from now on.
    pub(super) const fn handle_other_thread(&mut self) {
        self.used = None;
    }

    fn check(&mut self, now: Time, due: Time) {
        if now < due + LATE {
            return;
        }
        self.late += 1;
        if let Some(more) = self.log.due(now) {
            let ms = Duration::from_nanos(now.since(due)).as_millis();
            tracing::warn!(
                "the server's event loop was late by {ms} ms, and clients waited, because other programs kept the cores busy or one turn of the loop took long{more}"
            );
        }
    }

    /// Returns the figures of the event loop's turns so far, for the monitor.
    pub(super) fn stats(&self) -> TurnStats {
        TurnStats {
            turns: self.cpu.len(),
            within: self.within,
            total_ns: self.total_ns,
            cpu_ns: [0.5, 0.99, 0.999, 1.0].map(|q| self.cpu.value_at_quantile(q)),
            late: self.late,
            syncs: self.syncs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a turn at `now`, a look with `look`, with this number of events. Returns the number of turns that
    /// count.
    fn turn(turns: &mut Turns, now: u64, look: bool, events: u32, due: Option<u64>) -> u64 {
        if look {
            turns.handle_look();
        }
        turns.begin(Time::from_nanos(now));
        (0..events).for_each(|_| turns.handle_event());
        turns.end(Time::from_nanos(now + 10), due.map(Time::from_nanos));
        let stats = turns.stats();
        assert_eq!(stats.within.iter().sum::<u64>(), stats.turns);
        stats.turns
    }

    #[test]
    fn looks_that_find_nothing_do_not_count() {
        let mut turns = Turns::new();
        assert_eq!(turn(&mut turns, 0, false, 0, None), 1);
        assert_eq!(turn(&mut turns, 100, true, 0, Some(300)), 1);
        assert_eq!(turn(&mut turns, 200, true, 2, Some(300)), 2, "an event");
        assert_eq!(turn(&mut turns, 300, true, 0, None), 3, "a timer");
        assert_eq!(turn(&mut turns, 400, true, 0, None), 3);
        assert_eq!(turn(&mut turns, 500, false, 0, None), 4);
    }
}
