//! The limits that an operator sets for the streams of a group, and the usage that counts against them.

use super::super::single::Stream;
use crate::schema::config::{Storage, StreamConfig};

/// The limits that an operator sets for all streams of a node or cluster together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountLimits {
    /// The largest number of streams that the server or cluster may have; `u64::MAX` means no limit.
    pub streams: u64,
    /// The most bytes of messages that all streams in the log together may hold; `u64::MAX` means no limit.
    pub file_bytes: u64,
    /// The most bytes of messages that all streams in memory together may hold; `u64::MAX` means no limit.
    pub memory_bytes: u64,
    /// True if several nodes keep the streams. Then the messages of streams in memory go through the log,
    /// too, because a node could not recover them from another node's memory. All nodes must have the same
    /// value.
    pub replicated: bool,
}

impl AccountLimits {
    /// The limits of an operator who sets none, on a single server.
    pub const NONE: Self = Self {
        streams: u64::MAX,
        file_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        replicated: false,
    };

    /// Returns whether the messages of a stream with this configuration bypass the log, and lie only in
    /// memory.
    pub(in crate::stream) fn puts_in_memory(&self, config: &StreamConfig) -> bool {
        config.storage == Storage::Memory && !self.replicated
    }
}

/// The bytes that the streams of one kind of storage hold, and the bytes that their limits reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of bytes of messages that the streams hold.
    pub bytes: u64,
    /// The sum of the byte limits of the streams, which the server reserves.
    pub reserved: u64,
}

/// The messages that the streams of a group hold: their number, and their bytes. The operator's limits count
/// the bytes of all groups on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The number of bytes of messages of streams in the log.
    pub file_bytes: u64,
    /// The number of bytes of messages of streams in memory.
    pub memory_bytes: u64,
}

impl Held {
    /// Returns the sums of the messages and bytes that two groups hold.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_add(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// Counts the change of a stream with messages of `before` bytes before the change.
    pub(super) fn count(&mut self, before: u64, stream: &Stream) {
        let total = match stream.in_memory() {
            true => &mut self.memory_bytes,
            false => &mut self.file_bytes,
        };
        *total = *total + stream.content.bytes - before;
    }

    /// Returns the counts of this group minus those of `other`, each at least 0.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_sub(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }
}
