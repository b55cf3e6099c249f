//! The number of a message in its stream, as a type of its own: next to it stand numbers of deliveries, of
//! batches, counts and times.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a message in its stream, from 1; 0 before the first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamSeq(u64);

impl StreamSeq {
    /// The number before the first, which no message has.
    pub const ZERO: Self = Self(0);
    /// The lowest number that a message can have.
    pub const FIRST: Self = Self(1);
    /// A number above those of all messages.
    pub const MAX: Self = Self(u64::MAX);

    /// Takes a number as it stands in a request, in a subject or in the log.
    #[must_use]
    #[inline]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next number.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the next number, or the highest after itself.
    #[must_use]
    #[inline]
    pub const fn saturating_next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number before; 0 has none.
    #[must_use]
    #[inline]
    pub const fn prev(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the number before, or 0 before itself.
    #[must_use]
    #[inline]
    pub const fn saturating_prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number `messages` later.
    #[must_use]
    #[inline]
    pub const fn after(self, messages: u64) -> Self {
        Self(self.0 + messages)
    }

    /// Returns the number `messages` later, or the highest.
    #[must_use]
    #[inline]
    pub const fn saturating_after(self, messages: u64) -> Self {
        Self(self.0.saturating_add(messages))
    }

    /// Returns how many numbers later this one is than `earlier`, which must not be after it.
    #[must_use]
    #[inline]
    pub const fn distance(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }

    /// Returns how many numbers later this one is than `earlier`; `None` if it is before.
    #[must_use]
    #[inline]
    pub const fn checked_distance(self, earlier: Self) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns how many numbers later this one is than `earlier`; 0 if it is before.
    #[must_use]
    #[inline]
    pub const fn saturating_distance(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Iterates over the numbers from this one to the one before `end`.
    pub fn up_to(self, end: Self) -> impl Iterator<Item = Self> {
        (self.0..end.0).map(Self)
    }
}

impl fmt::Display for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number alone: the reader knows the kind from the field.
impl fmt::Debug for StreamSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the number of the `number`th message, for tests.
#[cfg(test)]
pub(crate) const fn nth(number: u64) -> StreamSeq {
    StreamSeq::new(number)
}
