//! The limits that an operator sets for the streams of a group, and the usage that counts against them, so
//! that the leader can refuse requests in time.

use super::super::single::Stream;
use crate::schema::config::{Storage, StreamConfig};

/// The limits that an operator sets for all streams of a node or cluster together. The leader refuses
/// requests beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountLimits {
    /// The limit on the streams of the server or cluster; `u64::MAX` means no limit. The leader refuses to
    /// create more.
    pub streams: u64,
    /// The limit on the messages of all streams in the log together, in bytes; `u64::MAX` means no limit. The
    /// leader refuses messages beyond it.
    pub file_bytes: u64,
    /// The limit on the messages of all streams in memory together, in bytes; `u64::MAX` means no limit. The
    /// leader refuses messages beyond it.
    pub memory_bytes: u64,
    /// True if several nodes keep the streams. Then the messages of streams in memory go through the log,
    /// too, because a node could not recover them from another node's memory. All nodes must have the same
    /// value.
    pub replicated: bool,
}

impl AccountLimits {
    /// The limits of an operator who sets none, on a single server. Tests use it too.
    pub const NONE: Self = Self {
        streams: u64::MAX,
        file_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        replicated: false,
    };

    /// Returns whether the messages of a stream with this configuration bypass the log, and lie only in
    /// memory, which saves the writes to the disk.
    pub(in crate::stream) fn puts_in_memory(&self, config: &StreamConfig) -> bool {
        config.storage == Storage::Memory && !self.replicated
    }
}

/// The bytes that the streams of one kind of storage hold, and the bytes that their limits reserve. The
/// server reports them to clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The size of the messages that the streams hold now, in bytes.
    pub bytes: u64,
    /// The sum of the byte limits of the streams, in bytes. The server reserves this space, so that each
    /// stream can fill up.
    pub reserved: u64,
}

/// The messages that the streams of a group hold: their number, and their bytes. The operator's limits count
/// the bytes of all groups on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The size of the messages of streams in the log, in bytes, for the operator's limit on storage.
    pub file_bytes: u64,
    /// The size of the messages of streams in memory, in bytes, for the operator's limit on memory.
    pub memory_bytes: u64,
    /// The number of messages of all streams, without incomplete copies of streams that are moving to the
    /// group, because their home group counts those messages.
    pub messages: u64,
}

/// The messages of one stream, as [`Held`] counts them: their number, and their bytes. The group subtracts
/// the old totals and adds the new ones after each change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    messages: u64,
    bytes: u64,
}

impl Totals {
    /// Returns the messages that the stream holds now. A copy that is not complete counts its bytes but no
    /// messages.
    #[inline]
    pub(super) fn of(stream: &Stream) -> Self {
        Self {
            messages: match stream.is_filling() {
                true => 0,
                false => stream.content.messages,
            },
            bytes: stream.content.bytes,
        }
    }
}

impl Held {
    /// Returns the sums of the messages and bytes that two groups hold, because the operator's limits count
    /// all groups of a node.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_add(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            messages: self.messages.saturating_add(other.messages),
        }
    }

    /// Updates the counts after a change of one stream, which held the messages `before` the change. So no
    /// query has to sum over all streams.
    #[inline]
    pub(super) fn count(&mut self, before: Totals, stream: &Stream) {
        let now = Totals::of(stream);
        let bytes = match stream.in_memory() {
            true => &mut self.memory_bytes,
            false => &mut self.file_bytes,
        };
        *bytes = *bytes + now.bytes - before.bytes;
        self.messages = self.messages + now.messages - before.messages;
    }

    /// Returns the counts of this group minus those of `other`, each at least 0. So a caller gets the counts
    /// of the other groups from those of all groups.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_sub(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            messages: self.messages.saturating_sub(other.messages),
        }
    }
}
