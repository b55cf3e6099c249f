//! The types of the indices, terms and ids of Raft entries, so that the compiler keeps these numbers apart.
//!
//! The crate `raft` and the codecs use plain numbers. Their callers convert these numbers.

use std::fmt;

/// The index of a Raft entry: its number in its group's log. The first entry of a group has index 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(u64);

impl Index {
    /// The index before the first entry of a group's log, for a log without entries.
    pub const ZERO: Self = Self(0);

    /// Returns the index with this number, for callers that have a plain number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the index as a plain number, for the crate `raft` and for codecs.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the index of the next entry in the group's log.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the index of the entry before this one. The caller must not call this for
    /// [`ZERO`](Self::ZERO), because no entry comes before it.
    #[inline]
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0 - 1)
    }

    /// Returns the index that lies this many entries behind this one in the group's log.
    #[inline]
    #[must_use]
    pub const fn after(self, entries: u64) -> Self {
        Self(self.0 + entries)
    }

    /// Returns the number of entries behind `earlier` up to this index; 0 if this index is not higher than
    /// `earlier`.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns all indices from this one to `last`, both included, for a loop over entries.
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

/// The number of a period of leadership in Raft, by which members recognize outdated leaders. Each term has
/// at most one leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

impl Term {
    /// The term before the group's first election.
    pub const ZERO: Self = Self(0);

    /// Returns the term with this number, for callers that have a plain number.
    #[inline]
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the term as a plain number, for the crate `raft` and for codecs.
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

/// The index and the term of a Raft entry. Two entries of a group with the same id have the same contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryId {
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
}

impl EntryId {
    /// The id before the first entry of a group, for a group without entries: index 0 and term 0.
    pub const ZERO: Self = Self::new(0, 0);

    /// Creates an id from a plain index and term, such as those in the crate `raft`, a log record or a
    /// message.
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
