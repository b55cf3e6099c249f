//! Lines about what others can make happen as often as they like: each is said now and then, with how often
//! it came to that.

use std::time::Duration;

use tidegate::Time;

/// Between two of them.
const PAUSE: Duration = Duration::from_secs(10);

/// A line that is said seldom.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seldom {
    next: Time,
    /// Since it was said.
    missed: u64,
}

impl Seldom {
    /// There is reason to say it; if it is to be said now, what is to follow it.
    pub(super) fn due(&mut self, now: Time) -> Option<String> {
        if now < self.next {
            self.missed += 1;
            return None;
        }
        self.next = now + PAUSE;
        Some(match std::mem::take(&mut self.missed) {
            0 => String::new(),
            missed => format!(" ({missed} more since it was said last)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_said_every_ten_seconds() {
        let mut line = Seldom::default();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let said: Vec<_> = (0..300).filter_map(|n| line.due(at(100 * n))).collect();
        let more = " (99 more since it was said last)";
        assert_eq!(said, ["", more, more]);
    }
}
