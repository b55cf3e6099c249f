//! The number of a message in its stream. It has a type of its own, so that the compiler refuses to mix it up
//! with numbers of deliveries or batches, with counts and with times.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a message in its stream, from 1; 0 before the first message.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamSeq(u64);

impl StreamSeq {
    /// The number 0, before a stream's first message, which no message has.
    pub const ZERO: Self = Self(0);
    /// The lowest number that a message of a stream can have.
    pub const FIRST: Self = Self(1);
    /// The highest `u64`, which is higher than the number of any message of a stream.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the number of a message from an integer in a request, in a subject or in the log.
    #[must_use]
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the message as an integer.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of the message after this one. The caller must rule out the highest `u64`.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of the message after this one; the highest `u64` stays the same.
    #[must_use]
    #[inline]
    pub const fn saturating_next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number before this message number. The caller must rule out 0.
    #[must_use]
    #[inline]
    pub const fn prev(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the number before this message number; 0 stays the same.
    #[must_use]
    #[inline]
    pub const fn saturating_prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number of the message that is `messages` places after this one. The caller must rule out
    /// an overflow.
    #[must_use]
    #[inline]
    pub const fn after(self, messages: u64) -> Self {
        Self(self.0 + messages)
    }

    /// Returns the number of the message that is `messages` places after this one, at most the highest `u64`.
    #[must_use]
    #[inline]
    pub const fn saturating_after(self, messages: u64) -> Self {
        Self(self.0.saturating_add(messages))
    }

    /// Returns this message number minus the message number `earlier`, which must not be higher.
    #[must_use]
    #[inline]
    pub const fn distance(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }

    /// Returns this message number minus the message number `earlier`; `None` if `earlier` is higher.
    #[must_use]
    #[inline]
    pub const fn checked_distance(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns this message number minus the message number `earlier`; 0 if `earlier` is higher.
    #[must_use]
    #[inline]
    pub const fn saturating_distance(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Iterates over the message numbers from this one up to `end`, without `end` itself.
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

/// Returns `number` as a message number: a short form for tests.
#[cfg(test)]
pub(crate) const fn nth(number: u64) -> StreamSeq {
    StreamSeq::new(number)
}
