//! Finds the time at which the server looks for silent batches: batches with a publisher that has sent no
//! message for 10 s. The server abandons them to free their memory.
//!
//! A message only postpones the time at which the server abandons its batch, so a lower bound of these times
//! stays valid until the next look. A look walks over all batches, and takes place at most once a second, so
//! a silent batch may live one second longer.

use std::time::Duration;

use tidegate::Time;

use super::IDLE;

const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The time at which the server next looks for silent batches; `None` if no batch is open and the server need
/// not look.
#[derive(Debug, Default)]
pub(super) struct Idle {
    next: Option<Time>,
}

impl Idle {
    /// Records that a batch got its first message at `now`, so that a look takes place 10 s later at the
    /// latest, and finds the batch if it is silent.
    pub(super) fn watch(&mut self, now: Time) {
        self.next.get_or_insert(now + IDLE);
    }

    /// Returns the time at which the server next looks for silent batches; `None` if no batch is open. The
    /// event loop sets its timer by it.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Returns whether the caller must look for silent batches now. After the look, the caller must call
    /// [`Idle::looked`], which sets the time of the next look.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Returns whether a batch is silent: whether its latest message arrived at `heard`, 10 s or more before
    /// `now`. The server then abandons the batch.
    pub(super) fn is_over(now: Time, heard: Time) -> bool {
        heard + IDLE <= now
    }

    /// Records that the caller has looked at all batches and closed the silent ones; the remaining batches
    /// got their latest messages at `oldest` or later. The next look is due 10 s after that.
    pub(super) fn looked(&mut self, now: Time, oldest: Option<Time>) {
        self.next = oldest.map(|oldest| (oldest + IDLE).max(now + LOOK_AGAIN));
    }
}
