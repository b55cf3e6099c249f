//! The number of a message in its stream. It has a type of its own, so that the compiler refuses to mix it up
//! with numbers of deliveries or batches, with counts and with times.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a message in its stream, from 1; 0 before the first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamSeq(u64);

impl StreamSeq {
    /// The number before the first message, which no message has.
    pub const ZERO: Self = Self(0);
    /// The lowest number that a message can have.
    pub const FIRST: Self = Self(1);
    /// A number that is higher than the number of any message.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the value from a number in a request, in a subject or in the log.
    #[must_use]
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number after this one.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number after this one; the highest number returns itself.
    #[must_use]
    #[inline]
    pub const fn saturating_next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number before this one, which must not be 0.
    #[must_use]
    #[inline]
    pub const fn prev(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the number before this one; 0 returns itself.
    #[must_use]
    #[inline]
    pub const fn saturating_prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number of the message that comes `messages` after this one.
    #[must_use]
    #[inline]
    pub const fn after(self, messages: u64) -> Self {
        Self(self.0 + messages)
    }

    /// Returns the number of the message that comes `messages` after this one, at most the highest number.
    #[must_use]
    #[inline]
    pub const fn saturating_after(self, messages: u64) -> Self {
        Self(self.0.saturating_add(messages))
    }

    /// Returns this number minus `earlier`, which must not be higher.
    #[must_use]
    #[inline]
    pub const fn distance(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }

    /// Returns this number minus `earlier`; `None` if `earlier` is higher.
    #[must_use]
    #[inline]
    pub const fn checked_distance(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns this number minus `earlier`; 0 if `earlier` is higher.
    #[must_use]
    #[inline]
    pub const fn saturating_distance(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Iterates over the numbers from this one up to the number before `end`.
    pub fn up_to(self, end: Self) -> impl Iterator<Item = Self> {
        (self.0..end.0).map(Self)
    }
}

impl fmt::Display for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number without the name of the type, because the field's name already says what kind of number
/// it is.
impl fmt::Debug for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the number of the message at place `number`, for tests.
#[cfg(test)]
pub(crate) const fn nth(number: u64) -> StreamSeq {
    StreamSeq::new(number)
}
