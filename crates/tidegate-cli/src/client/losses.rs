//! Decides which notes a client command prints about losses of its connection, so that many losses do not
//! flood the terminal. The command prints one note for each loss, until too many losses come within a minute.
//! After that it prints one summary a minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The greatest number of losses per minute that the client reports one by one; one summary note counts the
/// others.
const NOTED_MAX: usize = 3;
/// The time over which the client counts losses, and the least time between two summaries it prints.
const MINUTE: Duration = Duration::from_secs(60);

/// The losses of a connection in the last minute, and the summary in which the client counts further losses.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// The times of the losses within the last minute that the client reported one by one.
    noted: VecDeque<Instant>,
    /// The time of the last summary, and the number of losses since then for the next summary.
    summary: Option<(Instant, u64)>,
}

impl Losses {
    /// Counts a loss. Returns the note to print about it; `None` if a later summary will count it.
    pub(super) fn handle_loss(&mut self, now: Instant) -> Option<String> {
        while self.noted.front().is_some_and(|at| now - *at >= MINUTE) {
            self.noted.pop_front();
        }
        if let Some((since, left_out)) = &mut self.summary {
            *left_out += 1;
            if now - *since < MINUTE {
                return None;
            }
            let (seconds, times) = ((now - *since).as_secs(), *left_out);
            // If only one loss came since the last summary, which is at least a minute old, the client
            // reports losses one by one again.
            if times > 1 {
                self.summary = Some((now, 0));
                return Some(format!(
                    "the connection was lost {times} times in the last {seconds} s: connecting again"
                ));
            }
            self.summary = None;
        }
        if self.noted.len() < NOTED_MAX {
            self.noted.push_back(now);
            return Some("the connection is lost: connecting again".into());
        }
        self.summary = Some((now, 0));
        Some(format!(
            "the connection is lost, the {}th time within a minute: connecting again, with one note a minute from now on",
            NOTED_MAX + 1
        ))
    }

    /// Returns whether losses come so often that the client prints summaries, in place of a note for each
    /// loss.
    pub(super) const fn is_flapping(&self) -> bool {
        self.summary.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_losses_have_a_summary_a_minute() {
        let start = Instant::now();
        let mut losses = Losses::default();
        let mut at = |second| losses.handle_loss(start + Duration::from_secs(second));
        let alone = Some("the connection is lost: connecting again".to_owned());
        assert_eq!(
            [at(0), at(1), at(2)],
            [alone.clone(), alone.clone(), alone.clone()]
        );
        assert!(at(3).unwrap().contains("the 4th time within a minute"));
        assert!((4..63).all(|second| at(second).is_none()));
        let summary = "the connection was lost 60 times in the last 60 s: connecting again";
        assert_eq!(at(63).as_deref(), Some(summary));
        // This loss comes more than two minutes after the last summary, and is the first one since then.
        assert_eq!(at(200), alone);
        assert!(!losses.is_flapping());
    }
}
