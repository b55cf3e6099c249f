//! The numbers of Raft's entries and leaderships. Pure.
//!
//! The crate `raft` and the codecs use plain numbers; the code that calls them converts the numbers.

use std::fmt;

/// The number of an entry. The first entry of a group has 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(u64);

impl Index {
    /// The index before the first entry.
    pub const ZERO: Self = Self(0);

    /// Returns the index with this number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the index of the next entry.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the index of the entry before this one. [`ZERO`](Self::ZERO) has no such index.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the index of the entry that comes this many entries after this one.
    #[inline]
    #[must_use]
    pub const fn after(self, entries: u64) -> Self {
        Self(self.0 + entries)
    }

    /// Returns the number of entries after `earlier` up to this index; 0 if this index is not higher than
    /// `earlier`.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the indices from this one to `last`, both inclusive.
    #[inline]
    pub fn to(self, last: Self) -> impl DoubleEndedIterator<Item = Self> {
        (self.0..=last.0).map(Self)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a leadership. Each term has at most one leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

impl Term {
    /// The term before the first election.
    pub const ZERO: Self = Self(0);

    /// Returns the term with this number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The index and the term of an entry. Two entries of a group with the same id have the same contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryId {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
}

impl EntryId {
    /// The id before the first entry.
    pub const ZERO: Self = Self::new(0, 0);

    /// Returns the id with these plain numbers, which the crate `raft`, a record or a message has.
    #[inline]
    #[must_use]
    pub const fn new(index: u64, term: u64) -> Self {
        Self {
            index: Index(index),
            term: Term(term),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of term {}", self.index, self.term)
    }
}
