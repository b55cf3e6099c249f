//! The numbers of streams and of their moves, as types of their own: next to them stand numbers of groups and
//! of messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a stream among the streams of the group that has it, from 1; 0 for no stream. A group never
/// uses a number again.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(u32);

impl StreamNumber {
    /// The number of no stream.
    pub const NONE: Self = Self(0);
    /// The number of a group's first stream.
    pub const FIRST: Self = Self(1);

    /// Takes a number as it stands in the log or in a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the next stream.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number alone: the reader knows the kind from the field.
impl fmt::Debug for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a stream in the directory, which lists the streams of all groups. The group that keeps the
/// stream has another number for it, a [`StreamNumber`]. In the group of all nodes, which has the directory,
/// both are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectoryNumber(u32);

impl DirectoryNumber {
    /// Takes a number as it stands in the log or in a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl DirectoryNumber {
    /// Returns the number in the directory of the stream with this number in the group of all nodes.
    #[must_use]
    #[inline]
    pub const fn of_entry(entry: StreamNumber) -> Self {
        Self(entry.0)
    }

    /// Returns the number in the group of all nodes.
    #[must_use]
    #[inline]
    pub const fn entry(self) -> StreamNumber {
        StreamNumber(self.0)
    }
}

impl fmt::Display for DirectoryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number alone: the reader knows the kind from the field.
impl fmt::Debug for DirectoryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a move among the moves of a stream, from 1; 0 before the first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveNumber(u32);

impl MoveNumber {
    /// The number before the first move, which no move has.
    pub const ZERO: Self = Self(0);

    /// Takes a number as it stands in the log or in a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the next move.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for MoveNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number alone: the reader knows the kind from the field.
impl fmt::Debug for MoveNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
