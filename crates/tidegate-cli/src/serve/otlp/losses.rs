//! Decides when the log gets a line about data that the collector did not get, pure: the first line at once,
//! further ones at most every half minute, with the count since the last one.

use std::time::Duration;

use tokio::time::Instant;

/// The least time between two lines.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// The losses of one signal.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The spans, or exports of metrics, lost since the last line.
    lost: u64,
    /// The reason of the last failure; empty before the first one.
    why: String,
    said: Option<Instant>,
    /// True if there is something that no line has told.
    is_untold: bool,
}

impl Losses {
    /// Counts losses, and keeps their reason.
    pub(super) fn add(&mut self, lost: u64, why: &str) {
        self.lost += lost;
        why.clone_into(&mut self.why);
        self.is_untold = true;
    }

    /// Returns the count and the reason for a line that is due now.
    pub(super) fn due(&mut self, now: Instant) -> Option<(u64, &str)> {
        let is_early = self.said.is_some_and(|said| now < said + SAID_EVERY);
        match is_early {
            true => None,
            false => self.rest(now),
        }
    }

    /// Returns the count and the reason for the last line, which does not wait.
    pub(super) fn rest(&mut self, now: Instant) -> Option<(u64, &str)> {
        if !std::mem::take(&mut self.is_untold) {
            return None;
        }
        self.said = Some(now);
        Some((std::mem::take(&mut self.lost), &self.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rare_and_count_everything() {
        let mut losses = Losses::default();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        assert_eq!(losses.due(start), None);
        losses.add(0, "down");
        assert_eq!(losses.due(start), Some((0, "down")));
        losses.add(3, "down");
        losses.add(4, "slow");
        assert_eq!(losses.due(after(29)), None);
        assert_eq!(losses.due(after(30)), Some((7, "slow")));
        assert_eq!(losses.due(after(99)), None);
        losses.add(1, "slow");
        assert_eq!(losses.due(after(31)), None);
        assert_eq!(losses.rest(after(31)), Some((1, "slow")));
        assert_eq!(losses.rest(after(31)), None);
    }
}
