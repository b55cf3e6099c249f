//! The numbers of streams and of their moves between groups. Each has a type of its own, so that the compiler
//! refuses to mix them up with each other or with the numbers of groups and of messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a stream within its Raft group, from 1; 0 stands for no stream. A group gives no number to
/// two streams, because a message in flight names its stream by the number.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(u32);

impl StreamNumber {
    /// The stream number that stands for no stream, as in a command that creates one.
    pub const NONE: Self = Self(0);
    /// The number of the first stream that a group creates. Tests use it for their only stream.
    pub const FIRST: Self = Self(1);

    /// Creates the number of a stream from an integer of the log or of a message between nodes, which contain
    /// the plain number.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the stream as an integer, for the log or a message between nodes.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the stream that the group creates after the stream with this number, because a
    /// group numbers its streams in order.
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

/// Shows the stream's number without the name of the type, because the name of the field that holds it says
/// what kind of number it is.
impl fmt::Debug for StreamNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a stream in the directory, which lists the streams of all groups. The group of all nodes
/// keeps the directory, and there this is also the [`StreamNumber`] of the stream. If another group keeps the
/// stream, that group has a [`StreamNumber`] of its own for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectoryNumber(u32);

impl DirectoryNumber {
    /// Creates the directory number of a stream from an integer of the log or of a message between nodes,
    /// which contain the plain number.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the directory number of the stream as an integer, for the log or a message between nodes.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl DirectoryNumber {
    /// Returns the directory number of the stream that has the number `entry` in the group of all nodes,
    /// which is the directory's own number for it.
    #[must_use]
    #[inline]
    pub const fn of_entry(entry: StreamNumber) -> Self {
        Self(entry.0)
    }

    /// Returns the number that the stream has in the group of all nodes, under which the directory has the
    /// stream's entry.
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

/// Shows the directory number without the name of the type, because the name of the field that holds it says
/// what kind of number it is.
impl fmt::Debug for DirectoryNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a move of a stream from group to group, among all moves of this stream, from 1; 0 before the
/// first move. By it a group recognises a late command of an earlier move.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MoveNumber(u32);

impl MoveNumber {
    /// The number before the first move of a stream, which no move has. A new stream has it.
    pub const ZERO: Self = Self(0);

    /// Creates the number of a move from an integer of the log or of a message between nodes, which contain
    /// the plain number.
    #[must_use]
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the move as an integer, for the log or a message between nodes.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the number of the stream's next move after this one, because a stream's moves have successive
    /// numbers.
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

/// Shows the number of the move without the name of the type, because the name of the field that holds it
/// says what kind of number it is.
impl fmt::Debug for MoveNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
