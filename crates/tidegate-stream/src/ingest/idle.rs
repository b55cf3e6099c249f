//! The times at which to look for batches that were silent for too long.
//!
//! A message only moves the end of its batch further away, so a lower bound of all ends stays valid until the
//! next look. A look walks over all batches, and takes place once a second at most: a batch may live that
//! much longer.

use std::time::Duration;

use tidegate::Time;

use super::IDLE;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The time of the next look.
#[derive(Debug, Default)]
pub(super) struct Idle {
    next: Option<Time>,
}

impl Idle {
    /// Records that a batch may be silent from `now` on.
    pub(super) fn watch(&mut self, now: Time) {
        self.next.get_or_insert(now + IDLE);
    }

    /// Returns the time of the next look.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Returns whether to look now. The caller must then call [`Idle::looked`].
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns whether a batch with its last message at `heard` was silent for too long.
    pub(super) fn is_over(now: Time, heard: Time) -> bool {
        heard + IDLE <= now
    }

    /// Records that the caller looked at all batches. The last messages of the remaining ones arrived at
    /// `oldest` or later.
    pub(super) fn looked(&mut self, now: Time, oldest: Option<Time>) {
        self.next = oldest.map(|oldest| (oldest + IDLE).max(now + LOOK_AGAIN));
    }
}
