//! The numbers of streams and of their moves. They have types of their own, so that the compiler refuses to
//! mix them up with the numbers of groups and of messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a stream among the streams of the group that has it, from 1; 0 for no stream. A group never
/// uses a number again.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(u32);

impl StreamNumber {
    /// The number that stands for no stream.
    pub const NONE: Self = Self(0);
    /// The number of a group's first stream.
    pub const FIRST: Self = Self(1);

    /// Creates the value from a number that the caller read from the log or from a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the stream that the group creates after this one.
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

/// Shows the number without the name of the type, because the field's name already says what kind of number
/// it is.
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
    /// Creates the value from a number that the caller read from the log or from a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl DirectoryNumber {
    /// Returns the directory number of the stream that has the number `entry` in the group of all nodes.
    #[must_use]
    #[inline]
    pub const fn of_entry(entry: StreamNumber) -> Self {
        Self(entry.0)
    }

    /// Returns the number that the stream has in the group of all nodes.
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

/// Shows the number without the name of the type, because the field's name already says what kind of number
/// it is.
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

    /// Creates the value from a number that the caller read from the log or from a message.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the move after this one.
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

/// Shows the number without the name of the type, because the field's name already says what kind of number
/// it is.
impl fmt::Debug for MoveNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
