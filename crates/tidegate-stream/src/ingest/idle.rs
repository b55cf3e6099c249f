//! The times at which the server looks for batches with a publisher that was silent for too long.
//!
//! A message only postpones the time at which the server abandons its batch, so a lower bound of these times
//! stays valid until the next look. A look walks over all batches, and takes place at most once a second: a
//! batch may live one second longer.

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
    /// Records that a batch got its first message at `now`, from which it may be silent.
    pub(super) fn watch(&mut self, now: Time) {
        self.next.get_or_insert(now + IDLE);
    }

    /// Returns the time of the next look.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Returns whether the caller must look for silent batches now. The caller must then call
    /// [`Idle::looked`].
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns whether a batch with its last message at `heard` was silent for too long.
    pub(super) fn is_over(now: Time, heard: Time) -> bool {
        heard + IDLE <= now
    }

    /// Records that the caller looked at all batches. The last messages of the remaining batches arrived at
    /// `oldest` or later.
    pub(super) fn looked(&mut self, now: Time, oldest: Option<Time>) {
        self.next = oldest.map(|oldest| (oldest + IDLE).max(now + LOOK_AGAIN));
    }
}
