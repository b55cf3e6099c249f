//! The number of a delivery in its consumer. It has a type of its own, so that the compiler refuses to mix it
//! up with the number of a message in the stream.

use std::fmt;

use serde::Serialize;

/// The number of a delivery among all deliveries of its consumer, from 1; 0 before the first delivery. A
/// receiver notices a missed message by a gap in these numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ConsumerSeq(u64);

impl ConsumerSeq {
    /// Creates the number of a delivery from a number in a reply subject or in the log, after the caller has
    /// checked its range.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the delivery as an integer, for a reply subject or the log.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns this delivery number plus `deliveries`, for the next deliveries of the consumer.
    #[must_use]
    pub(super) const fn after(self, deliveries: u64) -> Self {
        Self(self.0 + deliveries)
    }

    /// Returns the number of the delivery before this one; 0 before the first delivery. The caller must rule
    /// out 0, because there is no number below it.
    #[must_use]
    pub(super) const fn before(self) -> Self {
        Self(self.0 - 1)
    }
}

impl fmt::Display for ConsumerSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
