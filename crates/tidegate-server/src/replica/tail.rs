//! The newest entries of a group, in memory: what Raft asks its storage for, and what is read most.
//!
//! Entries are here from the moment Raft makes them, before they are durable, and leave once they were applied and the bound
//! on bytes is passed. Older ones are in the log only.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use tidegate_log::Lsn;

use super::records::HardState;

/// What an entry costs beside its bytes.
const ENTRY_OVERHEAD: u64 = 64;

struct Cached {
    index: u64,
    term: u64,
    /// Where its record is; `None` until the log has accepted it.
    lsn: Option<Lsn>,
    data: Bytes,
}

/// See the [module](self). Indices are consecutive; positions grow with them, and those without come last.
pub(super) struct Tail {
    entries: VecDeque<Cached>,
    /// The index and the term of the entry before the first.
    before: (u64, u64),
    bytes: u64,
    /// What Raft begins with.
    hard_state: HardState,
    commit: u64,
    voters: Vec<u64>,
}

impl Tail {
    /// No entries, after one of this index and term.
    pub(super) const fn new(
        before: (u64, u64),
        commit: u64,
        hard_state: HardState,
        voters: Vec<u64>,
    ) -> Self {
        Self {
            entries: VecDeque::new(),
            before,
            bytes: 0,
            hard_state,
            commit,
            voters,
        }
    }

    pub(super) fn first(&self) -> u64 {
        self.before.0 + 1
    }

    pub(super) fn last(&self) -> u64 {
        self.before.0 + self.entries.len() as u64
    }

    /// An entry Raft made. It takes the place of all from its index on.
    pub(super) fn push(&mut self, index: u64, term: u64, data: Bytes) {
        while self.last() >= index {
            let gone = self.entries.pop_back();
            self.bytes -= gone.map_or(0, |e| cost(&e.data));
        }
        assert_eq!(self.last() + 1, index, "entries are consecutive");
        self.bytes += cost(&data);
        self.entries.push_back(Cached {
            index,
            term,
            lsn: None,
            data,
        });
    }

    /// The log has given the entry this position.
    pub(super) fn placed(&mut self, index: u64, term: u64, lsn: Lsn) {
        // One that was written over meanwhile has no position of interest.
        if let Some(entry) = self.get_mut(index).filter(|e| e.term == term) {
            entry.lsn = Some(lsn);
        }
    }

    /// The entry's position, term and bytes.
    pub(super) fn get(&self, index: u64) -> Option<(Option<Lsn>, u64, &Bytes)> {
        let at = index.checked_sub(self.first())?;
        let entry = self.entries.get(usize::try_from(at).ok()?)?;
        Some((entry.lsn, entry.term, &entry.data))
    }

    fn get_mut(&mut self, index: u64) -> Option<&mut Cached> {
        let at = index.checked_sub(self.first())?;
        self.entries.get_mut(usize::try_from(at).ok()?)
    }

    /// The bytes of the entry whose record is there.
    pub(super) fn at(&self, lsn: Lsn) -> Option<&Bytes> {
        let before = |e: &Cached| e.lsn.is_some_and(|at| at < lsn);
        let entry = self.entries.get(self.entries.partition_point(before))?;
        (entry.lsn == Some(lsn)).then_some(&entry.data)
    }

    /// Lets go of the oldest, none after `applied`, until at most so many bytes are left.
    pub(super) fn trim(&mut self, applied: u64, bytes_max: u64) {
        while self.bytes > bytes_max && self.first() <= applied {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= cost(&entry.data);
            self.before = (entry.index, entry.term);
        }
    }
}

const fn cost(data: &Bytes) -> u64 {
    data.len() as u64 + ENTRY_OVERHEAD
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard_state = raft::eraftpb::HardState::default();
        hard_state.set_term(self.hard_state.term);
        hard_state.set_vote(self.hard_state.vote);
        hard_state.set_commit(self.commit);
        let mut conf_state = ConfState::default();
        conf_state.set_voters(self.voters.clone());
        Ok(RaftState::new(hard_state, conf_state))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(StorageError::Compacted.into());
        }
        let (max, mut bytes) = (max_size.into().unwrap_or(u64::MAX), 0);
        let mut out = Vec::new();
        for cached in self
            .entries
            .range((low - self.first()) as usize..(high - self.first()) as usize)
        {
            bytes += cost(&cached.data);
            if bytes > max && !out.is_empty() {
                break;
            }
            let mut entry = Entry::default();
            entry.set_index(cached.index);
            entry.set_term(cached.term);
            entry.set_data(cached.data.clone());
            out.push(entry);
        }
        Ok(out)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.before.0 {
            return Ok(self.before.1);
        }
        match self.get(index) {
            Some((_, term, _)) => Ok(term),
            None if index < self.before.0 => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        let mut tail = Tail::new((4, 1), 4, HardState::default(), vec![1]);
        for index in 5..10u64 {
            tail.push(index, 2, Bytes::from(vec![index as u8; 100]));
        }
        tail
    }

    fn entries(tail: &Tail, low: u64, high: u64, max: u64) -> Vec<u64> {
        let all = tail.entries(low, high, max, GetEntriesContext::empty(false));
        all.unwrap().iter().map(Entry::get_index).collect()
    }

    #[test]
    fn entries_are_found_by_index_and_by_position() {
        let mut tail = tail();
        tail.placed(5, 2, Lsn::new(50));
        tail.placed(6, 2, Lsn::new(60));
        tail.placed(7, 1, Lsn::new(70));
        assert_eq!(tail.at(Lsn::new(60)).unwrap()[0], 6);
        assert_eq!(tail.at(Lsn::new(70)), None, "another term");
        assert_eq!(tail.at(Lsn::new(55)), None);
        assert_eq!(entries(&tail, 5, 10, u64::MAX), [5, 6, 7, 8, 9]);
        assert_eq!(entries(&tail, 6, 9, 1), [6], "at least one");
        assert_eq!(entries(&tail, 6, 9, 330), [6, 7]);
        assert_eq!((tail.term(4).unwrap(), tail.term(9).unwrap()), (1, 2));
        assert!(tail.term(3).is_err() && tail.term(10).is_err());
    }

    #[test]
    fn what_was_not_applied_stays_and_a_later_write_of_an_index_wins() {
        let mut tail = tail();
        tail.trim(6, 0);
        assert_eq!(
            (tail.first(), tail.last(), tail.term(6).unwrap()),
            (7, 9, 2)
        );
        tail.push(8, 3, Bytes::from_static(b"new"));
        assert_eq!((tail.last(), tail.term(8).unwrap()), (8, 3));
        assert!(
            tail.entries(6, 8, None, GetEntriesContext::empty(false))
                .is_err()
        );
        tail.trim(8, 0);
        assert_eq!((tail.first(), tail.last(), tail.bytes), (9, 8, 0));
        assert_eq!(tail.term(8).unwrap(), 3, "stays answerable");
    }
}
