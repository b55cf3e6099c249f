//! Positions in the log.

use std::fmt;

/// A position: the number of bytes of batches before it, over the whole life of the log.
/// It never goes back and is never used twice for bytes that were durable. A segment knows
/// the position of its first byte, so a position maps directly to a file and an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The position of the first byte ever written.
    pub const ZERO: Self = Self(0);

    /// Returns the position `at` bytes from the beginning.
    #[must_use]
    pub const fn new(at: u64) -> Self {
        Self(at)
    }

    /// Returns the bytes of batches before this position.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the position `bytes` further on; the last position if that exceeds the range.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns the bytes from `earlier` to this position, 0 if `earlier` is not before it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
