//! The history of a group: the positions of its entries in the log, and the entries' terms. With the
//! history, the store finds any entry by a short read, in bounded memory. The code is pure.
//!
//! To save memory, the history keeps the position of one entry for each [`STRIDE_BYTES`] of log, and drops
//! every second position once there are too many; a reader scans the log between two positions. The history
//! keeps terms as runs of entries. The history forgets the entries of a segment that the log releases: the
//! leader gives the state to a follower that needs such entries.

use std::collections::VecDeque;

use tidegate_log::Lsn;

use super::id::{EntryId, Index, Term};

/// The history keeps the position of one entry in each stretch of the log of this many bytes, so that it
/// needs little memory and a read stays short.
const STRIDE_BYTES: u64 = 64 << 10;
/// The greatest number of positions that the history keeps, enough for 4 GiB of log. Beyond that the history
/// drops every second position.
const POINTS_MAX: usize = 1 << 16;

/// An entry of a group and the position of its record in the log, at which a reader can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The entry's index.
    pub index: Index,
    /// The log position of the entry's record, at which the store can begin to read.
    pub lsn: Lsn,
}

/// A run of consecutive entries with the same term: the history stores the term only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: Index,
    term: Term,
}

/// Knows the approximate positions of a group's entries in the log, and their terms, for reads of old
/// entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The id of the entry before the first entry of the history. Its term is known although the entry is
    /// gone.
    before: EntryId,
    /// The index of the last entry that the history has. The next pushed entry follows it.
    last: Index,
    /// The entries with a known log position, by index; the positions grow, too. The first of them is the
    /// first entry of the history.
    points: VecDeque<Point>,
    /// The number of times that the history has dropped every second position, and so doubled the distance
    /// between them.
    halved: u32,
    /// The runs of entries with the same term, in order; the first run may begin before the first entry of
    /// the history.
    terms: VecDeque<Run>,
}

impl History {
    /// Creates an empty history: the first entry that it takes follows the entry `before`.
    #[must_use]
    pub fn after(before: EntryId) -> Self {
        Self {
            before,
            last: before.index,
            ..Self::default()
        }
    }

    /// Returns the index of the first entry in the history; in an empty history, the index behind
    /// [`last`](Self::last).
    #[must_use]
    pub const fn first(&self) -> Index {
        self.before.index.next()
    }

    /// Returns the index of the last entry in the history; in an empty history, the index of the entry behind
    /// which the history begins.
    #[must_use]
    pub const fn last(&self) -> Index {
        self.last
    }

    /// Adds an entry to the history, in place of all entries from its index on. If the entry lies behind a
    /// gap, or before all known entries, the history starts again, empty, behind this entry.
    pub fn push(&mut self, entry: EntryId, lsn: Lsn) {
        let EntryId { index, term } = entry;
        if index > self.last.next() || index <= self.before.index {
            *self = Self::after(entry);
            return;
        }
        while self.points.back().is_some_and(|point| point.index >= index) {
            self.points.pop_back();
        }
        while self.terms.back().is_some_and(|run| run.first >= index) {
            self.terms.pop_back();
        }
        self.last = index;
        let newest = self.terms.back().map_or(self.before.term, |run| run.term);
        if newest != term || self.terms.is_empty() {
            self.terms.push_back(Run { first: index, term });
        }
        let stride = STRIDE_BYTES << self.halved;
        let far = |point: &Point| lsn.get().saturating_sub(point.lsn.get()) >= stride;
        if self.points.back().is_none_or(far) {
            self.points.push_back(Point { index, lsn });
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

    /// Returns the term of the entry with this index if the history has the entry, or if it is the entry
    /// before the history's first entry; otherwise `None`.
    #[must_use]
    pub fn term(&self, index: Index) -> Option<Term> {
        if index == self.before.index {
            return Some(self.before.term);
        }
        if index < self.before.index || index > self.last {
            return None;
        }
        let run = self.terms.partition_point(|run| run.first <= index);
        self.terms.get(run.checked_sub(1)?).map(|run| run.term)
    }

    /// Returns the place in the log from which a reader must look for the entry with this index: the closest
    /// entry at this index or before it with a known position.
    #[must_use]
    pub fn locate(&self, index: Index) -> Option<Point> {
        if index > self.last {
            return None;
        }
        let point = self.points.partition_point(|point| point.index <= index);
        self.points.get(point.checked_sub(1)?).copied()
    }

    /// Forgets the entries before this log position, because the log has released them. Also forgets the
    /// entries behind it up to the next known position, so that the position of the first entry is always
    /// known.
    pub fn trim(&mut self, lsn: Lsn) {
        let gone = self.points.partition_point(|point| point.lsn < lsn);
        self.forget(gone);
    }

    /// Forgets the entries up to this index, and those behind it up to the next known position, so that the
    /// position of the first entry is always known.
    pub fn forget_to(&mut self, index: Index) {
        let gone = self.points.partition_point(|point| point.index <= index);
        self.forget(gone);
    }

    /// Forgets the entries before this log position, because the log lacks a part before it, and entries in
    /// that part may have replaced the older entries. Also forgets the entries behind it up to and including
    /// the next known position.
    pub fn doubt(&mut self, lsn: Lsn) {
        let before = self.points.partition_point(|point| point.lsn < lsn);
        if before < self.points.len() {
            // The entries between the gap and the first known position behind it are doubtful, too. So the
            // entry at that position becomes the entry before the first one.
            self.forget(before + 1);
        } else {
            *self = Self::after(self.id_of(self.last));
        }
    }

    /// Returns the id of the entry with this index. If the history does not know the entry's term, takes the
    /// term of the entry before its first one.
    fn id_of(&self, index: Index) -> EntryId {
        let term = self.term(index).unwrap_or(self.before.term);
        EntryId { index, term }
    }

    fn forget(&mut self, points: usize) {
        if points == 0 {
            return;
        }
        let first = self
            .points
            .get(points)
            .map_or_else(|| self.last.next(), |point| point.index);
        let before = self.id_of(first.previous());
        self.points.drain(..points);
        self.before = before;
        while self.terms.get(1).is_some_and(|run| run.first <= first) {
            self.terms.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(number: u64) -> Index {
        Index::new(number)
    }

    fn push(history: &mut History, index: u64, term: u64, lsn: Lsn) {
        history.push(EntryId::new(index, term), lsn);
    }

    fn term(history: &History, index: u64) -> Option<u64> {
        history.term(Index::new(index)).map(Term::get)
    }

    fn locate(history: &History, index: u64) -> Option<(u64, Lsn)> {
        let point = history.locate(Index::new(index));
        point.map(|point| (point.index.get(), point.lsn))
    }

    fn at(index: u64) -> Lsn {
        Lsn::new(index * 20_000)
    }

    fn history() -> History {
        let mut history = History::default();
        for index in 1..=20 {
            push(&mut history, index, 1 + index / 8, at(index));
        }
        history
    }

    #[test]
    fn every_entry_is_found_a_little_before_it_with_its_term() {
        let history = history();
        assert_eq!((history.first().get(), history.last().get()), (1, 20));
        for index in 1..=20 {
            let (near, lsn) = locate(&history, index).unwrap();
            assert!(near <= index && index - near < 4 && lsn == at(near));
            assert_eq!(term(&history, index), Some(1 + index / 8));
        }
        assert_eq!((locate(&history, 0), locate(&history, 21)), (None, None));
        assert_eq!((term(&history, 0), term(&history, 21)), (Some(0), None));
    }

    #[test]
    fn a_later_write_of_an_index_wins_and_a_gap_leaves_nothing_before_it() {
        let mut history = history();
        push(&mut history, 6, 9, at(30));
        assert_eq!((history.last().get(), term(&history, 6)), (6, Some(9)));
        assert_eq!((term(&history, 5), term(&history, 7)), (Some(1), None));
        assert!(locate(&history, 6).unwrap().0 <= 6);
        push(&mut history, 7, 9, at(40));
        assert_eq!(term(&history, 7), Some(9));
        push(&mut history, 9, 9, at(50));
        assert_eq!((history.first().get(), term(&history, 9)), (10, Some(9)));
        push(&mut history, 10, 9, at(51));
        assert_eq!(locate(&history, 10), Some((10, at(51))));
        push(&mut history, 3, 10, at(60));
        assert_eq!((history.first().get(), term(&history, 3)), (4, Some(10)));
    }

    #[test]
    fn forgotten_entries_leave_the_term_before_the_first() {
        let mut history = history();
        history.trim(Lsn::new(at(9).get() + 1));
        let first = history.first().get();
        assert!((10..=13).contains(&first));
        assert_eq!(term(&history, first - 1), Some(1 + (first - 1) / 8));
        assert_eq!(term(&history, first - 2), None);
        assert_eq!(locate(&history, first).unwrap().0, first);
        history.forget_to(index(20));
        assert_eq!((history.first().get(), history.last().get()), (21, 20));
        assert_eq!(term(&history, 20), Some(3));
        push(&mut history, 21, 3, at(21));
        assert_eq!(locate(&history, 21), Some((21, at(21))));
        assert_eq!(term(&history, 21), Some(3));
    }

    #[test]
    fn entries_that_may_be_overwritten_are_forgotten() {
        // Entries 4 to 9 of term 2 overwrote those of term 1, and the log has lost entries 4 to 7 of term 2.
        let mut history = History::default();
        (1..=9).for_each(|index| push(&mut history, index, 1, at(index)));
        (8..=20).for_each(|index| push(&mut history, index, 2, at(40 + index)));
        assert_eq!(term(&history, 7), Some(1));
        history.doubt(at(41));
        let first = history.first().get();
        assert!((9..=14).contains(&first), "{first}");
        assert_eq!(
            (term(&history, first - 1), term(&history, first - 2)),
            (Some(2), None)
        );
        assert_eq!(term(&history, 20), Some(2));
        assert_eq!(locate(&history, first).map(|(near, _)| near), Some(first));
        history.doubt(at(100));
        assert_eq!((history.first().get(), term(&history, 20)), (21, Some(2)));
        push(&mut history, 21, 2, at(101));
        assert_eq!(term(&history, 21), Some(2));
    }

    #[test]
    fn positions_are_bounded() {
        let mut history = History::default();
        for index in 1..=POINTS_MAX as u64 + 10 {
            push(&mut history, index, 1, Lsn::new(index * STRIDE_BYTES));
        }
        assert_eq!(history.first().get(), 1);
        assert!(history.points.len() <= POINTS_MAX);
        for index in [1, 2, 3, 1000, POINTS_MAX as u64 + 10] {
            let (near, lsn) = locate(&history, index).unwrap();
            assert!(near <= index && index - near < 2);
            assert_eq!(lsn.get(), near * STRIDE_BYTES);
        }
    }
}
