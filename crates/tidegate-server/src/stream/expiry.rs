//! When messages go of age, for whoever proposes that they do: nothing is removed because a clock says so.

use super::streams::Streams;

impl Streams {
    /// When something may be due, in microseconds since 1970; `None` if nothing ever is.
    #[must_use]
    pub const fn next_expiry(&self) -> Option<u64> {
        match self.due_us {
            u64::MAX => None,
            due => Some(due),
        }
    }

    /// The streams that hold something due at `now_us`, each to be sent a [`Kind::Expire`](super::Kind::Expire), and whether it is
    /// in memory. Looks at every stream; from then on [`Streams::next_expiry`] speaks of what is due later.
    pub fn expiring(&mut self, now_us: u64) -> Vec<(u32, bool)> {
        let mut expiring = Vec::new();
        self.due_us = u64::MAX;
        for (id, stream) in &mut self.streams {
            match stream.next_due() {
                Some(due) if due <= now_us => expiring.push((*id, stream.in_memory())),
                Some(due) => self.due_us = self.due_us.min(due),
                None => {}
            }
        }
        // The same order everywhere, whatever the map's.
        expiring.sort_unstable();
        expiring
    }
}
