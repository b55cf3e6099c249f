//! What an operator allows the streams of a group, and what they hold and reserve of it.

use super::super::one::Stream;
use crate::api::config::{Storage, StreamConfig};

/// What an operator allows the streams of a group together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountLimits {
    /// The most streams.
    pub streams: u64,
    /// The most bytes of streams in the log.
    pub file_bytes: u64,
    /// The most bytes of streams in memory.
    pub memory_bytes: u64,
    /// Several nodes keep the streams: those in memory are in the log like the others, because what one
    /// node's memory held could not be had again from another's. The same on all of them.
    pub replicated: bool,
}

impl AccountLimits {
    /// No limit.
    pub const NONE: Self = Self {
        streams: u64::MAX,
        file_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        replicated: false,
    };

    /// Whether messages of such a stream go past the log.
    pub(in crate::stream) fn puts_in_memory(&self, config: &StreamConfig) -> bool {
        config.storage == Storage::Memory && !self.replicated
    }
}

/// What streams hold and reserve of one kind of storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of messages.
    pub bytes: u64,
    /// Bytes that limits of streams reserve.
    pub reserved: u64,
}

/// What streams hold: the operator's limits count those of all groups on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of messages in the log.
    pub file_bytes: u64,
    /// Bytes of messages in memory.
    pub memory_bytes: u64,
}

impl Held {
    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_add(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    /// Counts what became of a stream whose messages had so many bytes before.
    pub(super) fn count(&mut self, before: u64, stream: &Stream) {
        let total = match stream.in_memory() {
            true => &mut self.memory_bytes,
            false => &mut self.file_bytes,
        };
        *total = *total + stream.content.bytes - before;
    }

    /// What is left of it without the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self {
            file_bytes: self.file_bytes.saturating_sub(other.file_bytes),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }
}
