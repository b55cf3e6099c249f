//! The times at which the next messages of streams expire.
//!
//! For each stream with mortal messages, the schedule holds a lower bound of that time. A look at the
//! schedule visits only the streams with a bound in the past, and takes logarithmic time for each.

use std::collections::BTreeSet;

use super::single::Stream;
use crate::schema::number::StreamNumber;

/// The bound of a stream without mortal messages.
pub(super) const NEVER: u64 = u64::MAX;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeSet<(u64, StreamNumber)>);

impl Schedule {
    /// Lowers the bound of a stream that has stored a message which expires at `due_us` or later.
    #[inline]
    pub(super) fn lower(&mut self, stream: &mut Stream, due_us: u64) {
        if due_us < stream.scheduled_us {
            self.set(stream, due_us);
        }
    }

    /// Sets the bound of a stream to the time at which its next message expires.
    pub(super) fn renew(&mut self, stream: &mut Stream) {
        let due_us = stream.next_due().unwrap_or(NEVER);
        if due_us != stream.scheduled_us {
            self.set(stream, due_us);
        }
    }

    /// Removes a stream.
    pub(super) fn remove(&mut self, stream: &mut Stream) {
        self.set(stream, NEVER);
    }

    /// Returns the lowest bound, and its stream.
    pub(super) fn first(&self) -> Option<(u64, StreamNumber)> {
        self.0.first().copied()
    }

    /// Returns the streams with a bound of `now_us` or earlier, at most `limit` of them.
    pub(super) fn due(&self, now_us: u64, limit: usize) -> Vec<StreamNumber> {
        let due = self.0.iter().take_while(|(due_us, _)| *due_us <= now_us);
        due.take(limit).map(|(_, id)| *id).collect()
    }

    /// Returns whether it holds the bound of this stream, for tests.
    pub(super) fn has(&self, stream: &Stream) -> bool {
        let listed = self.0.contains(&(stream.scheduled_us, stream.id));
        listed == (stream.scheduled_us != NEVER)
    }

    fn set(&mut self, stream: &mut Stream, due_us: u64) {
        if stream.scheduled_us != NEVER {
            self.0.remove(&(stream.scheduled_us, stream.id));
        }
        stream.scheduled_us = due_us;
        if due_us != NEVER {
            self.0.insert((due_us, stream.id));
        }
    }
}
