//! The positions of a group's entries in the log, and their terms: enough to find any entry by a short read,
//! in bounded memory. Pure.
//!
//! The history keeps the position of one entry per [`STRIDE_BYTES`] of log, and of fewer once there are too
//! many; a reader scans the log between two of them. It keeps terms as runs. The history forgets the entries
//! of a segment that the log releases: the leader gives a follower that needs them the state instead.

use std::collections::VecDeque;

use tidegate_log::Lsn;

/// The history keeps one position for about this many bytes of log.
const STRIDE_BYTES: u64 = 64 << 10;
/// The most positions kept, enough for 4 GiB of log; beyond that the history drops every second one.
const POINTS_MAX: usize = 1 << 16;

/// The approximate positions of a group's entries in the log, and their terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Index and term of the entry before the first.
    before: (u64, u64),
    /// The last index.
    last: u64,
    /// Index and position, both growing; the first is that of the first entry.
    points: VecDeque<(u64, Lsn)>,
    /// The number of times that every second position was dropped.
    halved: u32,
    /// The first index of each run of one term, in order; the first run may begin before the first entry.
    terms: VecDeque<(u64, u64)>,
}

impl History {
    /// Creates an empty history behind an entry with this index and term.
    #[must_use]
    pub fn after(index: u64, term: u64) -> Self {
        Self {
            before: (index, term),
            last: index,
            ..Self::default()
        }
    }

    /// Returns the index of the first entry; without entries, the index that follows the last.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.before.0 + 1
    }

    /// Returns the index of the last entry; without entries, the index before the first.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Adds an entry, which replaces all entries from its index on. An entry behind a gap, or before all
    /// known entries, restarts the history behind it.
    pub fn push(&mut self, index: u64, term: u64, lsn: Lsn) {
        if index > self.last + 1 || index <= self.before.0 {
            *self = Self::after(index, term);
            return;
        }
        while self.points.back().is_some_and(|&(at, _)| at >= index) {
            self.points.pop_back();
        }
        while self.terms.back().is_some_and(|&(from, _)| from >= index) {
            self.terms.pop_back();
        }
        self.last = index;
        let newest = self.terms.back().map_or(self.before.1, |&(_, term)| term);
        if newest != term || self.terms.is_empty() {
            self.terms.push_back((index, term));
        }
        let stride = STRIDE_BYTES << self.halved;
        let far = |&(_, at): &(u64, Lsn)| lsn.get().saturating_sub(at.get()) >= stride;
        if self.points.back().is_none_or(far) {
            self.points.push_back((index, lsn));
        }
        if self.points.len() > POINTS_MAX {
            self.halved += 1;
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Returns the term of the entry, also of the entry before the first.
    #[must_use]
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.before.0 {
            return Some(self.before.1);
        }
        if index < self.before.0 || index > self.last {
            return None;
        }
        let run = self.terms.partition_point(|&(from, _)| from <= index);
        self.terms.get(run.checked_sub(1)?).map(|&(_, term)| term)
    }

    /// Returns the entry at which to begin reading for this entry: its index and position.
    #[must_use]
    pub fn locate(&self, index: u64) -> Option<(u64, Lsn)> {
        if index > self.last {
            return None;
        }
        let point = self.points.partition_point(|&(at, _)| at <= index);
        self.points.get(point.checked_sub(1)?).copied()
    }

    /// Forgets the entries before this position, and perhaps some after it.
    pub fn trim(&mut self, lsn: Lsn) {
        let gone = self.points.partition_point(|&(_, at)| at < lsn);
        self.forget(gone);
    }

    /// Forgets entries up to this index, and perhaps some after it.
    pub fn forget_to(&mut self, index: u64) {
        let gone = self.points.partition_point(|&(at, _)| at <= index);
        self.forget(gone);
    }

    /// Forgets the entries before this position, and perhaps some after it: the log lacks a part before the
    /// position, and that part may have overwritten them.
    pub fn doubt(&mut self, lsn: Lsn) {
        let before = self.points.partition_point(|&(_, at)| at < lsn);
        if before < self.points.len() {
            // The entries before the first known position behind the gap are doubtful, too. So that entry
            // becomes the one before the first.
            self.forget(before + 1);
        } else {
            let term = self.term(self.last).unwrap_or(self.before.1);
            *self = Self::after(self.last, term);
        }
    }

    fn forget(&mut self, points: usize) {
        if points == 0 {
            return;
        }
        let first = self.points.get(points).map_or(self.last + 1, |&(at, _)| at);
        let term = self.term(first - 1).unwrap_or(self.before.1);
        self.points.drain(..points);
        self.before = (first - 1, term);
        while self.terms.get(1).is_some_and(|&(from, _)| from <= first) {
            self.terms.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> Lsn {
        Lsn::new(index * 20_000)
    }

    fn history() -> History {
        let mut history = History::default();
        for index in 1..=20 {
            history.push(index, 1 + index / 8, at(index));
        }
        history
    }

    #[test]
    fn every_entry_is_found_a_little_before_it_with_its_term() {
        let history = history();
        assert_eq!((history.first(), history.last()), (1, 20));
        for index in 1..=20 {
            let (near, lsn) = history.locate(index).unwrap();
            assert!(near <= index && index - near < 4 && lsn == at(near));
            assert_eq!(history.term(index), Some(1 + index / 8));
        }
        assert_eq!((history.locate(0), history.locate(21)), (None, None));
        assert_eq!((history.term(0), history.term(21)), (Some(0), None));
    }

    #[test]
    fn a_later_write_of_an_index_wins_and_a_gap_leaves_nothing_before_it() {
        let mut history = history();
        history.push(6, 9, at(30));
        assert_eq!((history.last(), history.term(6)), (6, Some(9)));
        assert_eq!((history.term(5), history.term(7)), (Some(1), None));
        assert!(history.locate(6).unwrap().0 <= 6);
        history.push(7, 9, at(40));
        assert_eq!(history.term(7), Some(9));
        history.push(9, 9, at(50));
        assert_eq!((history.first(), history.term(9)), (10, Some(9)));
        history.push(10, 9, at(51));
        assert_eq!(history.locate(10), Some((10, at(51))));
        history.push(3, 10, at(60));
        assert_eq!((history.first(), history.term(3)), (4, Some(10)));
    }

    #[test]
    fn forgotten_entries_leave_the_term_before_the_first() {
        let mut history = history();
        history.trim(Lsn::new(at(9).get() + 1));
        let first = history.first();
        assert!((10..=13).contains(&first));
        assert_eq!(history.term(first - 1), Some(1 + (first - 1) / 8));
        assert_eq!(history.term(first - 2), None);
        assert_eq!(history.locate(first).unwrap().0, first);
        history.forget_to(20);
        assert_eq!((history.first(), history.last()), (21, 20));
        assert_eq!(history.term(20), Some(3));
        history.push(21, 3, at(21));
        assert_eq!(history.locate(21), Some((21, at(21))));
        assert_eq!(history.term(21), Some(3));
    }

    #[test]
    fn entries_that_may_be_overwritten_are_forgotten() {
        // Entries of term 2 overwrote entries 4 to 9 of term 1, and the log has lost those of term 2 before
        // index 8.
        let mut history = History::default();
        (1..=9).for_each(|index| history.push(index, 1, at(index)));
        (8..=20).for_each(|index| history.push(index, 2, at(40 + index)));
        assert_eq!(history.term(7), Some(1));
        history.doubt(at(41));
        let first = history.first();
        assert!((9..=14).contains(&first), "{first}");
        assert_eq!(
            (history.term(first - 1), history.term(first - 2)),
            (Some(2), None)
        );
        assert_eq!(history.term(20), Some(2));
        assert_eq!(history.locate(first).map(|(near, _)| near), Some(first));
        history.doubt(at(100));
        assert_eq!((history.first(), history.term(20)), (21, Some(2)));
        history.push(21, 2, at(101));
        assert_eq!(history.term(21), Some(2));
    }

    #[test]
    fn positions_are_bounded() {
        let mut history = History::default();
        for index in 1..=POINTS_MAX as u64 + 10 {
            history.push(index, 1, Lsn::new(index * STRIDE_BYTES));
        }
        assert_eq!(history.first(), 1);
        assert!(history.points.len() <= POINTS_MAX);
        for index in [1, 2, 3, 1000, POINTS_MAX as u64 + 10] {
            let (near, lsn) = history.locate(index).unwrap();
            assert!(near <= index && index - near < 2);
            assert_eq!(lsn.get(), near * STRIDE_BYTES);
        }
    }
}
