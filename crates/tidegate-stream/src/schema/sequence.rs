//! The number of a message in its stream. It has a type of its own, so that the compiler refuses to mix it up
//! with numbers of deliveries or batches, with counts and with times.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a message in its stream, from 1; 0 before the first message. The stream gives rising
/// numbers, and none to two messages.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamSeq(u64);

impl StreamSeq {
    /// The number 0, before a stream's first message, which no message has. In requests it often stands for
    /// no number.
    pub const ZERO: Self = Self(0);
    /// The lowest number that a message of a stream can have, and that the first message of a new stream
    /// gets.
    pub const FIRST: Self = Self(1);
    /// The highest `u64`, which is higher than the number of any message of a stream. A search up to the end
    /// uses it.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the number of a message from an integer in a request, in a subject or in the log, which
    /// contain the plain number.
    #[must_use]
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the message as an integer, for an answer, a subject or the log.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of the message after this one. The caller must rule out the highest `u64`, because
    /// no number follows it.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of the message after this one; the highest `u64` stays as it is, for numbers that
    /// come from clients.
    #[must_use]
    #[inline]
    pub const fn saturating_next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number before this message number. The caller must rule out 0, because no number precedes
    /// it.
    #[must_use]
    #[inline]
    pub const fn prev(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the number before this message number; 0 stays as it is, for numbers that come from clients.
    #[must_use]
    #[inline]
    pub const fn saturating_prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number of the message that is `messages` places after this one. The caller must rule out
    /// an overflow of `u64`.
    #[must_use]
    #[inline]
    pub const fn after(self, messages: u64) -> Self {
        Self(self.0 + messages)
    }

    /// Returns the number of the message that is `messages` places after this one, at most the highest `u64`,
    /// for counts that come from clients.
    #[must_use]
    #[inline]
    pub const fn saturating_after(self, messages: u64) -> Self {
        Self(self.0.saturating_add(messages))
    }

    /// Returns this message number minus the message number `earlier`, which must not be higher. The caller
    /// has compared the two.
    #[must_use]
    #[inline]
    pub const fn distance(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }

    /// Returns this message number minus the message number `earlier`; `None` if `earlier` is higher, for a
    /// caller that has not compared the two.
    #[must_use]
    #[inline]
    pub const fn checked_distance(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns this message number minus the message number `earlier`; 0 if `earlier` is higher, for a caller
    /// that wants only the part above `earlier`.
    #[must_use]
    #[inline]
    pub const fn saturating_distance(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Iterates over the message numbers from this one up to `end`, without `end` itself, for a caller that
    /// visits each number of a run.
    pub fn up_to(self, end: Self) -> impl Iterator<Item = Self> {
        (self.0..end.0).map(Self)
    }
}

impl fmt::Display for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the message number without the name of the type, because the name of the field that holds it says
/// what kind of number it is.
impl fmt::Debug for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns `number` as a message number: a short form, so that tests with many numbers stay readable.
#[cfg(test)]
pub(crate) const fn nth(number: u64) -> StreamSeq {
    StreamSeq::new(number)
}
