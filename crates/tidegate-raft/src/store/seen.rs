//! Summarizes the records of a group in the log while the store opens the log, so that the replay knows
//! which entries count.

use std::ops::Range;

use tidegate_cluster::groups::GroupId;
use tidegate_log::{Lsn, RecordInfo};

use super::checkpoint::Header;
use super::error::OpenError;
use crate::replica::records::{
    HardState, KIND_COMMITTED, KIND_ENTRY, KIND_HARD_STATE, KIND_INSTALLED,
};
use crate::replica::{EntryId, History, Index, Point, Term};

/// Summarizes a group's records in the log for the replay; see the [module](self).
#[derive(Debug)]
pub(super) struct Seen {
    /// The number of the group: the summary ignores records of other groups.
    group: GroupId,
    hard_state: HardState,
    /// The last entry of the group that the opening has found in the log so far.
    last: EntryId,
    /// The highest commit index that the log records for the group. `follow` raises the index to the last
    /// entry of the checkpoint's state, if that entry is higher.
    committed: Index,
    /// The entries of the group that replaced earlier ones, with the log positions of their records, by
    /// which the replay skips the replaced ones.
    overwritten: Vec<Point>,
    /// The gaps in the indices of the group's entries in the log: the missing indices, and the log position
    /// of the entry behind the gap. A gap behind the checkpoint means lost entries.
    gaps: Vec<(Range<Index>, Lsn)>,
    /// The indices of the group's entries that a repair gave up, so that neither a checkpoint nor the log has
    /// them.
    missing: Vec<Range<Index>>,
    /// The log position at which the last record that a repair gave up ended, of any group, or an earlier
    /// position inside the record. `lost` is true if this position lies behind the checkpoint, so that the
    /// checkpoint lacks the record.
    lost_to: Lsn,
    lost: bool,
    /// The positions and terms of the group's entries in the log, for reads on behalf of lagging followers.
    history: History,
    /// The log positions at which the group's checkpoints end, each with the last entry before it. The
    /// summary fills in that entry when it meets an entry behind the position.
    ends: Vec<(Lsn, Option<EntryId>)>,
    /// True if this member took over the checkpoint's state from another member, and the log has no record
    /// of the takeover yet.
    installed: bool,
}

impl Seen {
    /// Begins the summary of a group's records; `ends` are the log positions at which the group's checkpoints
    /// end.
    pub(super) fn new(group: GroupId, ends: impl Iterator<Item = Lsn>) -> Self {
        // The replay of a group without a checkpoint begins at the first position of the log. So the summary
        // treats that position like the end of a checkpoint.
        let ends = ends.chain([Lsn::ZERO]);
        Self {
            group,
            hard_state: HardState::default(),
            last: EntryId::ZERO,
            committed: Index::ZERO,
            overwritten: Vec::new(),
            gaps: Vec::new(),
            missing: Vec::new(),
            lost_to: Lsn::ZERO,
            lost: false,
            history: History::default(),
            ends: ends.map(|end| (end, None)).collect(),
            installed: false,
        }
    }

    pub(super) fn note(&mut self, info: &RecordInfo) {
        if info.group != self.group.get() {
            return;
        }
        match info.kind {
            KIND_HARD_STATE => {
                self.hard_state = HardState {
                    term: Term::new(info.term),
                    vote: info.index,
                };
            }
            KIND_COMMITTED => self.committed = self.committed.max(Index::new(info.index)),
            KIND_INSTALLED => {
                self.note_end(info.lsn);
                // The member took over a state from another member here, so no earlier record of the group
                // counts. A checkpoint that ends before this record lacks all entries up to the state.
                let state = EntryId::new(info.index, info.term);
                self.overwritten.push(Point {
                    index: Index::ZERO,
                    lsn: info.lsn,
                });
                self.gaps.push((Index::ZERO..state.index.next(), info.lsn));
                self.history = History::after(state);
                self.last = state;
            }
            KIND_ENTRY => {
                self.note_end(info.lsn);
                let (next, entry) = (self.last.index.next(), EntryId::new(info.index, info.term));
                let (index, lsn) = (entry.index, info.lsn);
                if index < next {
                    self.overwritten.push(Point { index, lsn });
                } else if index > next {
                    self.gaps.push((next..index, lsn));
                }
                self.history.push(entry, lsn);
                self.last = entry;
            }
            _ => {}
        }
    }

    /// Notes that an entry of the group lies at this log position. For each end of a checkpoint between the
    /// previous entry and this one, the previous entry is the last one before that end.
    fn note_end(&mut self, lsn: Lsn) {
        for (end, before) in &mut self.ends {
            if *end <= lsn && before.is_none() {
                *before = Some(self.last);
            }
        }
    }

    /// Notes that the log lacks a part just before this position. Entries of the group may have stood there,
    /// so the history forgets the earlier ones.
    pub(super) fn note_hole(&mut self, lsn: Lsn) {
        self.history.doubt(lsn);
    }

    /// Notes that a repair gave up a record, which may have been an entry or a vote of this group. `end` is
    /// the log position at which the record ended, or an earlier position inside the record.
    pub(super) fn note_lost(&mut self, end: Lsn) {
        self.lost_to = self.lost_to.max(end);
    }

    /// Makes the group continue from the state of a checkpoint. Missing entries behind the checkpoint are an
    /// error, unless a repair has given them up.
    pub(super) fn follow(&mut self, header: &Header, repaired: bool) -> Result<(), OpenError> {
        let (ours, theirs) = (self.hard_state, header.hard_state);
        if theirs.term > ours.term || (theirs.term == ours.term && ours.vote == 0) {
            self.hard_state = theirs;
        }
        for (gap, lsn) in &self.gaps {
            let from = gap.start.max(header.entry.index.next());
            if *lsn >= header.next && from < gap.end {
                let last = gap.end.previous();
                let text = format!("entries {from} to {last} are missing from the log");
                if !repaired {
                    return Err(OpenError::Damaged(text));
                }
                tracing::warn!(
                    "{text}, because an earlier `tidegate log repair` gave up these entries: the streams lack the changes in these entries"
                );
                self.missing.push(from..gap.end);
            }
        }
        self.overwritten.retain(|point| point.lsn >= header.next);
        self.lost = self.lost_to > header.next;
        let end = self.ends.iter().find(|(end, _)| *end == header.next);
        let went_on = end.is_some_and(|(_, before)| before.is_some());
        if !went_on && self.last != header.entry {
            // This member took over the checkpoint's state from another member: the entries before the end of
            // the checkpoint do not lead to that state.
            self.last = header.entry;
            self.history = History::after(header.entry);
            self.installed = true;
        }
        self.committed = self.committed.max(header.entry.index).min(self.last.index);
        Ok(())
    }

    /// Returns the last commit index that the log or the checkpoint has for the group. The replay applies
    /// the entries up to it.
    pub(super) const fn committed(&self) -> Index {
        self.committed
    }

    /// Returns whether the group must still record in the log that this member took over the checkpoint's
    /// state from another member.
    pub(super) const fn installed(&self) -> bool {
        self.installed
    }

    pub(super) fn take_history(&mut self) -> History {
        std::mem::take(&mut self.history)
    }

    pub(super) fn missing(&self) -> &[Range<Index>] {
        &self.missing
    }

    /// Returns whether this member may have lost an entry or a vote of the group, because a repair gave up a
    /// record that no checkpoint includes.
    pub(super) const fn lost(&self) -> bool {
        self.lost
    }

    pub(super) const fn hard_state(&self) -> HardState {
        self.hard_state
    }

    /// Returns the last entry of the group that the log has or the checkpoint's state includes. The group
    /// continues behind it.
    pub(super) const fn last(&self) -> EntryId {
        self.last
    }

    /// Returns whether the entry with this index at this log position still counts for the replay: no later
    /// record replaces the entry.
    pub(super) fn counts(&self, index: Index, lsn: Lsn) -> bool {
        let over = |point: &Point| point.lsn > lsn && point.index <= index;
        !self.overwritten.iter().any(over)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::groups::ALL;

    use super::*;

    fn info(kind: u8, index: u64, term: u64, lsn: u64) -> RecordInfo {
        RecordInfo {
            lsn: Lsn::new(lsn),
            group: 1,
            kind,
            index,
            term,
            len: 0,
        }
    }

    /// Summarizes entries with these indices and log positions, and checkpoints that end at 50, 60 and 90.
    fn seen(entries: &[(u64, u64)]) -> Seen {
        let mut seen = Seen::new(ALL, [50, 60, 90].map(Lsn::new).into_iter());
        for &(index, lsn) in entries {
            seen.note(&info(KIND_ENTRY, index, 1, lsn));
        }
        seen
    }

    fn header(index: u64, term: u64, next: u64) -> Header {
        Header {
            entry: EntryId::new(index, term),
            next: Lsn::new(next),
            ..Header::default()
        }
    }

    #[test]
    fn a_later_write_of_an_index_takes_the_place_of_it_and_all_after_it() {
        let mut seen = seen(&[(1, 10), (2, 20), (3, 30), (2, 40), (3, 51)]);
        seen.follow(&Header::default(), false).unwrap();
        let counting = [(1, 10), (2, 20), (3, 30), (2, 40), (3, 51)]
            .map(|(index, lsn)| seen.counts(Index::new(index), Lsn::new(lsn)));
        assert_eq!(counting, [true, false, false, true, true]);
        assert_eq!((seen.last(), seen.installed()), (EntryId::new(3, 1), false));
        assert_eq!(seen.take_history().term(Index::new(3)), Some(Term::new(1)));
    }

    #[test]
    fn missing_entries_are_an_error_unless_the_checkpoint_has_them_or_a_repair_said_so() {
        let follow = |entries: &[(u64, u64)], header: &Header, repaired| {
            seen(entries).follow(header, repaired).is_ok()
        };
        assert!(follow(&[(1, 10), (2, 20)], &Header::default(), false));
        assert!(!follow(&[(5, 50)], &Header::default(), false));
        assert!(follow(&[(5, 50)], &header(4, 1, 50), false));
        assert!(!follow(&[(5, 50)], &header(3, 1, 50), false));
        assert!(follow(
            &[(1, 10), (5, 50), (6, 60)],
            &header(5, 1, 60),
            false
        ));
        assert!(!follow(&[(5, 50), (7, 70)], &header(4, 1, 50), false));
        assert!(follow(&[(5, 50), (7, 70)], &header(4, 1, 50), true));
    }

    #[test]
    fn a_state_that_was_taken_over_stands_in_for_all_entries_before_its_end() {
        let taken = |entries: &[(u64, u64)], header: &Header| {
            let mut seen = seen(entries);
            seen.follow(header, false).unwrap();
            let last = (seen.last().index.get(), seen.last().term.get());
            (last, seen.installed(), seen.committed().get())
        };
        // In each of these calls the member took the checkpoint's state over. The log has no entries, fewer
        // entries than the checkpoint, different entries, or further entries that were never committed.
        assert_eq!(taken(&[], &header(9, 7, 90)), ((9, 7), true, 9));
        assert_eq!(taken(&[(1, 10)], &header(9, 7, 90)), ((9, 7), true, 9));
        let other = [(8, 10), (9, 20)];
        assert_eq!(taken(&other, &header(9, 7, 90)), ((9, 7), true, 9));
        let more = [(8, 10), (9, 20), (10, 30)];
        assert_eq!(taken(&more, &header(9, 1, 90)), ((9, 1), true, 9));
        // In the first of these two calls the checkpoint ends with the log's last entry, so the state is the
        // member's own.
        assert_eq!(taken(&other, &header(9, 1, 90)), ((9, 1), false, 9));
        assert_eq!(taken(&more, &header(8, 1, 50)), ((8, 1), true, 8));
    }

    #[test]
    fn behind_a_state_taken_over_the_log_goes_on_and_an_older_checkpoint_leads_nowhere() {
        let noted = || {
            let mut seen = seen(&[(1, 10), (2, 20), (3, 30), (4, 40), (5, 45)]);
            seen.note(&info(KIND_INSTALLED, 4, 7, 60));
            seen.note(&info(KIND_ENTRY, 5, 7, 70));
            seen.note(&info(KIND_COMMITTED, 5, 0, 80));
            seen
        };
        let mut seen = noted();
        seen.follow(&header(4, 7, 60), false).unwrap();
        assert_eq!(
            (seen.last(), seen.committed().get()),
            (EntryId::new(5, 7), 5)
        );
        assert!(!seen.installed() && seen.counts(Index::new(5), Lsn::new(70)));
        assert_eq!(seen.take_history().first(), Index::new(5));
        let older = noted().follow(&header(1, 1, 20), false);
        assert!(matches!(older, Err(OpenError::Damaged(_))));
    }

    #[test]
    fn the_last_hard_state_counts_or_the_checkpoints_if_it_is_later() {
        let mut seen = seen(&[]);
        seen.note(&info(KIND_HARD_STATE, 1, 2, 0));
        seen.note(&info(KIND_HARD_STATE, 1, 3, 9));
        let header = |term| Header {
            hard_state: HardState {
                term: Term::new(term),
                vote: 1,
            },
            ..Header::default()
        };
        seen.follow(&header(2), false).unwrap();
        assert_eq!(seen.hard_state().term, Term::new(3));
        seen.follow(&header(4), false).unwrap();
        assert_eq!(seen.hard_state(), header(4).hard_state);
    }
}
