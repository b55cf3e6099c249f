//! An index in memory from the record numbers of a group to log positions, at eight bytes a record. Users of
//! the log keep one to find records; the log itself does not need it.

use std::collections::VecDeque;

use crate::{Lsn, RecordInfo};

/// Maps the consecutive indices of one group's records to the log positions of these records, so that a user
/// of the log can read a record by its index.
///
/// The last write wins, as Raft requires: a record with a known index replaces the earlier record of this
/// index and all records behind the earlier record. So a caller can push the records in the order in which
/// [`Log::open`](crate::Log::open) visits them.
#[derive(Clone, Debug, Default)]
pub struct GroupIndex {
    first: u64,
    positions: VecDeque<Lsn>,
}

impl GroupIndex {
    /// Creates an empty group index, to which the caller adds the records of a group.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first: 0,
            positions: VecDeque::new(),
        }
    }

    /// Adds a record of the group at position `lsn`. If `index` leaves a gap, or lies before the first
    /// record, first forgets all earlier positions, because the indices must be consecutive.
    pub fn push(&mut self, index: u64, lsn: Lsn) {
        let next = self.first + self.positions.len() as u64;
        if self.positions.is_empty() || index > next || index < self.first {
            self.positions.clear();
            self.first = index;
        } else {
            self.positions.truncate((index - self.first) as usize);
        }
        self.positions.push_back(lsn);
    }

    /// Adds the record that `entry` describes as [`push`](Self::push) does, for callers that visit the
    /// records of a log.
    pub fn push_record(&mut self, entry: &RecordInfo) {
        self.push(entry.index, entry.lsn);
    }

    /// Returns the log position of the record with this index, for a read; `None` if the group index lacks
    /// the record.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Lsn> {
        let at = index.checked_sub(self.first)?;
        self.positions.get(usize::try_from(at).ok()?).copied()
    }

    /// Returns the indices of the first and the last record in the group index; `None` if the group index
    /// has no record.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let len = self.positions.len() as u64;
        (len > 0).then(|| (self.first, self.first + len - 1))
    }

    /// Forgets the positions of all records of the group before this index, to free memory when the group no
    /// longer needs them.
    pub fn trim_before(&mut self, index: u64) {
        let gone = index
            .saturating_sub(self.first)
            .min(self.positions.len() as u64);
        self.positions.drain(..gone as usize);
        self.first += gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_written_wins_and_what_is_trimmed_is_gone() {
        let mut index = GroupIndex::new();
        assert_eq!((index.range(), index.get(0)), (None, None));
        (5..10).for_each(|i| index.push(i, Lsn::new(100 * i)));
        assert_eq!(index.range(), Some((5, 9)));
        index.push(7, Lsn::new(7777));
        assert_eq!(
            (index.range(), index.get(7)),
            (Some((5, 7)), Some(Lsn::new(7777)))
        );
        assert_eq!(index.get(8), None, "it was written over");
        index.trim_before(6);
        assert_eq!((index.get(5), index.get(6)), (None, Some(Lsn::new(600))));
        index.trim_before(100);
        assert_eq!(index.range(), None);
        index.push(50, Lsn::new(1));
        index.push(60, Lsn::new(2));
        assert_eq!(index.range(), Some((60, 60)), "after a gap");
        index.push(3, Lsn::new(3));
        assert_eq!(index.range(), Some((3, 3)), "before everything");
    }
}
