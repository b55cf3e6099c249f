//! The type [`Lsn`] of positions in the log. A position counts the bytes of batches before it, so that it
//! names a record for the log's whole life.

use std::fmt;

/// A position in the log: the number of bytes of batches before it, over the whole life of the log.
/// Positions never go back, and the log never uses a position again for other bytes once its bytes were
/// durable. A segment knows the position of its first batch, so the log finds the file and the offset of a
/// position without a search through an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// The log position of the first byte of the first batch that a log ever wrote.
    pub const ZERO: Self = Self(0);

    /// Returns the log position that is `at` bytes behind the log's first byte, for callers that have stored
    /// a position as a number.
    #[must_use]
    pub const fn new(at: u64) -> Self {
        Self(at)
    }

    /// Returns the number of bytes of batches before this position, for callers that store the position.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the position `bytes` bytes behind this one, or the highest possible position if the sum
    /// overflows, so that damaged lengths cannot cause a panic.
    #[must_use]
    pub const fn after(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns the number of bytes from `earlier` to this position: the growth of the log. Returns 0 if
    /// `earlier` is not before this position.
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
