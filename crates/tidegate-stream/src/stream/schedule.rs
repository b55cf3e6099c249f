//! The times at which the next messages of streams expire, by which the leader knows when to propose their
//! removal.
//!
//! For each stream with messages that can expire, the schedule holds a bound: a time that is not later than
//! the next expiry in the stream. A look at the schedule visits only the streams with a bound in the past,
//! and takes logarithmic time for each.

use std::collections::BTreeSet;

use super::single::Stream;
use crate::schema::number::StreamNumber;

/// The highest time. A stream in which no message can expire has it as its bound, and is not in the schedule.
pub(super) const NEVER: u64 = u64::MAX;

/// The bounds of all streams with messages that can expire, the earliest first, so that a look at the
/// schedule begins with the streams that are due. Times are microseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeSet<(u64, StreamNumber)>);

impl Schedule {
    /// Lowers the bound of a stream after it has stored a message, which expires at `due_us` (microseconds
    /// since 1970) or later. The stream's other messages may expire earlier, so the bound never rises here.
    #[inline]
    pub(super) fn lower(&mut self, stream: &mut Stream, due_us: u64) {
        if due_us < stream.scheduled_us {
            self.set(stream, due_us);
        }
    }

    /// Sets the bound of a stream to the exact time at which its next message expires. The leader calls this
    /// when the bound has passed, because the message of the bound may be gone.
    pub(super) fn renew(&mut self, stream: &mut Stream) {
        let due_us = stream.next_due().unwrap_or(NEVER);
        if due_us != stream.scheduled_us {
            self.set(stream, due_us);
        }
    }

    /// Removes a stream from the schedule, because the group deletes the stream or another group keeps it.
    pub(super) fn remove(&mut self, stream: &mut Stream) {
        self.set(stream, NEVER);
    }

    /// Returns the earliest bound in the schedule, and its stream: no message of any stream expires before
    /// this time. Returns `None` if no message can expire. The leader waits until this time.
    pub(super) fn first(&self) -> Option<(u64, StreamNumber)> {
        self.0.first().copied()
    }

    /// Returns the streams in which a message may have expired by `now_us` (microseconds since 1970), at most
    /// `limit` of them, so that one round of proposals stays short.
    pub(super) fn due(&self, now_us: u64, limit: usize) -> Vec<StreamNumber> {
        let due = self.0.iter().take_while(|(due_us, _)| *due_us <= now_us);
        due.take(limit).map(|(_, id)| *id).collect()
    }

    /// Returns whether the schedule lists the stream at the time that the stream records for its next expiry.
    /// Only tests call this, to check that the two agree.
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
