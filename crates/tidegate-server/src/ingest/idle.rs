//! When to look for batches that have been silent for too long.
//!
//! Whoever is not silent only moves its end further away, so a lower bound of all ends holds until somebody
//! looks. Looking costs a walk over all batches and is done once a second at most: a batch may live that much
//! longer.

use std::time::Duration;

use tidegate::Time;

use super::IDLE;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The next look.
#[derive(Debug, Default)]
pub(super) struct Idle {
    next: Option<Time>,
}

impl Idle {
    /// Somebody may be silent from `now` on.
    pub(super) fn watch(&mut self, now: Time) {
        self.next.get_or_insert(now + IDLE);
    }

    /// When to look.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Returns whether to look now; then [`Idle::looked`] must follow.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns whether something heard of last at `heard` has been silent for too long.
    pub(super) fn is_over(now: Time, heard: Time) -> bool {
        heard + IDLE <= now
    }

    /// All batches were looked at; what is left was heard of at `oldest` or later.
    pub(super) fn looked(&mut self, now: Time, oldest: Option<Time>) {
        self.next = oldest.map(|oldest| (oldest + IDLE).max(now + LOOK_AGAIN));
    }
}
