//! Rate-limits log lines about events that clients or peers can cause as often as they like. So the log does
//! not fill. Each line gives the number of events since the last line.

use std::time::Duration;

use tidegate::Time;

/// The default of the shortest time between two log lines of one kind, for kinds without a pause of their
/// own.
const PAUSE: Duration = Duration::from_secs(10);

/// The rate limit of one kind of log line, which the loop asks before it logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimit {
    pause: Duration,
    /// The greatest number of lines that the loop logs in one `pause`, and (`lines`) the number of lines in
    /// the current pause so far, by which the limit decides.
    lines_max: u32,
    lines: u32,
    next: Time,
    /// The number of events since the last log line, which the next line states.
    missed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::every(PAUSE)
    }
}

impl LogLimit {
    /// Creates a limit of one log line in each `pause`, for events that all look alike.
    pub(super) const fn every(pause: Duration) -> Self {
        Self::lines(1, pause)
    }

    /// Creates a limit of `lines_max` log lines in ten seconds, for a kind of line that names a client or a
    /// node, because a single line would name only one of many.
    pub(super) const fn of_lines(lines_max: u32) -> Self {
        Self::lines(lines_max, PAUSE)
    }

    const fn lines(lines_max: u32, pause: Duration) -> Self {
        Self {
            pause,
            lines_max,
            lines: 0,
            next: Time::ZERO,
            missed: 0,
        }
    }

    /// Counts an event. If a log line is due now, returns the line's suffix, with the number of events since
    /// the last line; otherwise `None`, and the caller logs nothing.
    pub(super) fn due(&mut self, now: Time) -> Option<String> {
        if self.is_spent(now) {
            self.missed += 1;
            return None;
        }
        if now >= self.next {
            self.next = now + self.pause;
            self.lines = 0;
        }
        self.lines += 1;
        Some(match std::mem::take(&mut self.missed) {
            0 => String::new(),
            missed => format!(" ({missed} more since the last such line)"),
        })
    }

    /// Returns whether the limit forbids a log line now, without counting an event, for a caller that needs
    /// no log line.
    pub(super) fn is_spent(&self, now: Time) -> bool {
        now < self.next && self.lines >= self.lines_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_event_is_logged_every_ten_seconds() {
        let mut line = LogLimit::default();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let said: Vec<_> = (0..300).filter_map(|n| line.due(at(100 * n))).collect();
        let more = " (99 more since the last such line)";
        assert_eq!(said, ["", more, more]);
    }

    #[test]
    fn different_lines_share_a_limit() {
        let mut line = LogLimit::of_lines(3);
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let said: Vec<_> = (0..200).filter_map(|n| line.due(at(100 * n))).collect();
        let more = " (97 more since the last such line)";
        assert_eq!(said, ["", "", "", more, "", ""]);
    }
}
