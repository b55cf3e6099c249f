//! The numbers of a link's messages, which name them in acknowledgements.

use std::fmt;

/// The number of a message within its session, or on its connection in the plain protocol, by which
/// acknowledgements name it. The first message is 1; [`Seq::NONE`] comes before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// The number that comes before the number of the first message: 0. It stands for no message.
    pub const NONE: Self = Self(0);
    /// The number of a session's first message: 1.
    pub const FIRST: Self = Self(1);

    /// The highest message number that either side accepts from the other. Higher numbers are invalid, and
    /// leave room to count without overflow.
    pub const LAST: Self = Self(u64::MAX >> 1);

    /// Returns message number `n`; [`Seq::NONE`] for 0.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Returns the message number as an integer.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next message number. Numbers do not run out: at a billion messages a second they last for
    /// centuries.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the message number that is `n` after this number.
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// Returns how many messages follow `earlier` up to and including this one; 0 if `earlier` is not earlier
    /// than this one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Seq {
    fn from(n: u64) -> Self {
        Self(n)
    }
}

impl From<Seq> for u64 {
    fn from(seq: Seq) -> Self {
        seq.0
    }
}
