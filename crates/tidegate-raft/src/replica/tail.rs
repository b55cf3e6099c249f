//! The tail: the newest entries of a group, in memory. The crate `raft` uses the tail as its storage, and
//! most reads of entries need only the tail.
//!
//! The tail holds an entry from the moment when Raft creates it, before it is durable. The tail drops the
//! oldest applied entries when it exceeds its bound of bytes. Older entries are only in the log, at positions
//! that [`History`] knows. Raft's request for such entries, for a lagging follower, waits until the store has
//! read them.

use std::cell::RefCell;
use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use tidegate_log::Lsn;

use super::history::{History, Point};
use super::id::{EntryId, Index, Term};
use super::records::HardState;

/// The bytes of memory that each entry in the tail costs besides its own bytes, so that many short entries
/// count, too.
const ENTRY_OVERHEAD: u64 = 64;
/// The greatest number of requests of Raft for older entries that wait until the store has read these
/// entries from the log. The tail drops requests beyond this number, because Raft repeats them.
const WAITING_MAX: usize = 16;

struct Cached {
    id: EntryId,
    /// The log position of the entry's record, for readers; `None` until the log has accepted the record.
    lsn: Option<Lsn>,
    data: Bytes,
}

/// Keeps the newest entries of a group in memory, see the [module](self). Their indices are consecutive,
/// their log positions grow, and entries without a log position come last.
pub(super) struct Tail {
    entries: VecDeque<Cached>,
    /// The id of the entry before the first entry in memory, against which Raft checks the next entry.
    before: EntryId,
    bytes: u64,
    /// The positions and terms of the group's entries in the log, for entries that are no longer in memory.
    history: History,
    /// The id of the last applied entry. This member can give another member the state as of this entry.
    applied: EntryId,
    /// The member's term and vote, with which the crate `raft` starts.
    hard_state: HardState,
    commit: Index,
    voters: Vec<u64>,
    /// Raft's requests for entries that are only in the log, with the first index of each request. A request
    /// waits here until the store has read its entries.
    waiting: RefCell<Vec<(Index, GetEntriesContext)>>,
    /// Consecutive entries that the store has read from the log for a request of Raft, until Raft has taken
    /// them.
    fetched: Vec<Entry>,
}

impl Tail {
    /// Creates a tail without entries. Its first entry will follow the entry `applied`.
    pub(super) fn new(
        applied: EntryId,
        history: History,
        hard_state: HardState,
        voters: Vec<u64>,
    ) -> Self {
        Self {
            entries: VecDeque::new(),
            before: applied,
            bytes: 0,
            history,
            applied,
            hard_state,
            commit: applied.index,
            voters,
            waiting: RefCell::default(),
            fetched: Vec::new(),
        }
    }

    /// Forgets all entries in memory, because the member has taken over a state that ends with the entry
    /// `state`. The next entry must follow the entry `state`.
    pub(super) fn reset(&mut self, state: EntryId) {
        self.entries.clear();
        self.bytes = 0;
        self.before = state;
        self.history = History::after(state);
    }

    /// Returns the index of the first entry that the tail has in memory. Earlier entries are only in the
    /// log.
    fn first_cached(&self) -> Index {
        self.before.index.next()
    }

    /// Returns the index of the first entry that the tail can give to Raft, from memory or from the log.
    pub(super) fn first(&self) -> Index {
        let meets = self.history.last() >= self.before.index;
        match meets && self.history.first() < self.first_cached() {
            true => self.history.first(),
            false => self.first_cached(),
        }
    }

    /// Returns the index of the last entry that the caller has applied: the tail may drop the entries up to
    /// it.
    pub(super) const fn applied_index(&self) -> Index {
        self.applied.index
    }

    pub(super) fn last(&self) -> Index {
        self.before.index.after(self.entries.len() as u64)
    }

    /// Adds an entry that Raft created or received to the tail, in place of all entries from its index on.
    pub(super) fn push(&mut self, id: EntryId, data: Bytes) {
        while self.last() >= id.index {
            let gone = self.entries.pop_back();
            self.bytes -= gone.map_or(0, |e| cost(&e.data));
        }
        assert_eq!(self.last().next(), id.index, "entries are consecutive");
        self.bytes += cost(&data);
        self.entries.push_back(Cached {
            id,
            lsn: None,
            data,
        });
    }

    /// Notes the log position of this entry's record, by which a reader can find the entry later.
    pub(super) fn placed(&mut self, id: EntryId, lsn: Lsn) {
        // If another entry has replaced this entry meanwhile, the tail ignores the position.
        if let Some(entry) = self.get_mut(id.index).filter(|e| e.id == id) {
            entry.lsn = Some(lsn);
            self.history.push(id, lsn);
        }
    }

    /// Adds to the tail an entry that the log held at the start of the node, and that the member does not
    /// know as committed.
    pub(super) fn restore(&mut self, id: EntryId, lsn: Lsn, data: Bytes) {
        self.push(id, data);
        if let Some(entry) = self.entries.back_mut() {
            entry.lsn = Some(lsn);
        }
    }

    /// Returns the log position, the term and the bytes of the entry with this index, if the entry is in
    /// memory.
    pub(super) fn get(&self, index: Index) -> Option<(Option<Lsn>, Term, &Bytes)> {
        let entry = self.entries.get(self.place(index)?)?;
        Some((entry.lsn, entry.id.term, &entry.data))
    }

    fn get_mut(&mut self, index: Index) -> Option<&mut Cached> {
        let place = self.place(index)?;
        self.entries.get_mut(place)
    }

    /// Returns the place in `entries` of the entry with this index; `None` if the entry comes before the
    /// first one in memory.
    fn place(&self, index: Index) -> Option<usize> {
        let place = index.get().checked_sub(self.first_cached().get())?;
        usize::try_from(place).ok()
    }

    /// Returns the bytes of the entry with its record at this log position, if the entry is in memory.
    pub(super) fn at(&self, lsn: Lsn) -> Option<&Bytes> {
        let before = |e: &Cached| e.lsn.is_some_and(|at| at < lsn);
        let entry = self.entries.get(self.entries.partition_point(before))?;
        (entry.lsn == Some(lsn)).then_some(&entry.data)
    }

    /// Notes that the caller has applied all entries up to this one. Drops the oldest applied entries until
    /// at most `bytes_max` bytes of entries are in memory.
    pub(super) fn applied(&mut self, id: EntryId, bytes_max: u64) {
        self.applied = id;
        while self.bytes > bytes_max && self.first_cached() <= id.index {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.bytes -= cost(&entry.data);
            self.before = entry.id;
        }
    }

    /// Notes that the log has released all records before this position, so that the history forgets their
    /// entries.
    pub(super) fn released(&mut self, lsn: Lsn) {
        self.history.trim(lsn);
    }

    /// Returns the index of the first entry that Raft asked for and that is only in the log, and the closest
    /// entry with a known position, at this index or before it.
    pub(super) fn wanted(&self) -> Option<(Index, Point)> {
        let waiting = self.waiting.borrow();
        let located = |&(low, _): &(Index, GetEntriesContext)| {
            self.history.locate(low).map(|point| (low, point))
        };
        waiting.iter().find_map(located)
    }

    /// Takes out the requests of Raft that the tail can answer now: the requests for entries from this index
    /// on, and the requests for entries that the log has released.
    pub(super) fn take_waiting(&mut self, low: Index) -> Vec<GetEntriesContext> {
        let first = self.first();
        let waiting = self.waiting.get_mut().drain(..);
        let these = |(at, _): &(Index, GetEntriesContext)| *at == low || *at < first;
        let (these, others): (Vec<_>, Vec<_>) = waiting.partition(these);
        *self.waiting.get_mut() = others;
        these.into_iter().map(|(_, context)| context).collect()
    }

    /// Drops all waiting requests of Raft, because this member has begun or ceased to lead.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.get_mut().clear();
    }

    /// Keeps the entries that the store has read for a request of Raft, in place of the entries of the
    /// request before. Keeps only consecutive entries that are still valid.
    pub(super) fn set_fetched(&mut self, low: Index, entries: Vec<(EntryId, Bytes)>) {
        self.fetched.clear();
        for (id, data) in entries {
            let next = low.after(self.fetched.len() as u64);
            if id.index == next && self.find_term(id.index).is_ok_and(|term| term == id.term) {
                self.fetched.push(entry(id, data));
            }
        }
    }

    fn find_term(&self, index: Index) -> Result<Term, StorageError> {
        if index == self.before.index {
            return Ok(self.before.term);
        }
        if index < self.before.index {
            let known = index.next() >= self.first();
            let term = known.then(|| self.history.term(index)).flatten();
            return term.ok_or(StorageError::Compacted);
        }
        let found = self.get(index).map(|(_, term, _)| term);
        found.ok_or(StorageError::Unavailable)
    }

    /// Notes that the store cannot read the entries up to this index from the log. From then on the tail
    /// treats them as released, so that a follower gets the state instead.
    pub(super) fn lost(&mut self, index: Index) {
        self.history.forget_to(index);
    }

    fn read_for_raft(
        &self,
        low: u64,
        high: u64,
        max: u64,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let from = self.fetched.first().map_or(u64::MAX, Entry::get_index);
        if let Some(at) = low.checked_sub(from)
            && (at as usize) < self.fetched.len()
        {
            let end = self.fetched.len().min((high - from) as usize);
            let fetched = self.fetched[at as usize..end].iter().cloned();
            return Ok(limited(fetched, max));
        }
        // Raft requires an immediate answer only for entries that are not applied yet, and the tail holds all
        // such entries in memory. So this error does not occur.
        if !context.can_async() {
            return Err(StorageError::Compacted.into());
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < WAITING_MAX {
            waiting.push((Index::new(low), context));
        }
        Err(StorageError::LogTemporarilyUnavailable.into())
    }
}

const fn cost(data: &Bytes) -> u64 {
    data.len() as u64 + ENTRY_OVERHEAD
}

fn entry(id: EntryId, data: Bytes) -> Entry {
    let mut entry = Entry::default();
    entry.set_index(id.index.get());
    entry.set_term(id.term.get());
    entry.set_data(data);
    entry
}

/// Returns the first of these entries, and as many further entries as fit into `max` bytes together with it,
/// to bound a message.
fn limited(entries: impl Iterator<Item = Entry>, max: u64) -> Vec<Entry> {
    let (mut out, mut bytes) = (Vec::new(), 0);
    for entry in entries {
        bytes += entry.data.len() as u64 + ENTRY_OVERHEAD;
        if bytes > max && !out.is_empty() {
            break;
        }
        out.push(entry);
    }
    out
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let mut hard_state = raft::eraftpb::HardState::default();
        hard_state.set_term(self.hard_state.term.get());
        hard_state.set_vote(self.hard_state.vote);
        hard_state.set_commit(self.commit.get());
        let mut conf_state = ConfState::default();
        conf_state.set_voters(self.voters.clone());
        Ok(RaftState::new(hard_state, conf_state))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let max = max_size.into().unwrap_or(u64::MAX);
        let first = self.first_cached().get();
        if low < self.first().get() {
            return Err(StorageError::Compacted.into());
        }
        if low < first {
            return self.read_for_raft(low, high, max, context);
        }
        let range = (low - first) as usize..(high - first) as usize;
        let cached = self.entries.range(range);
        let entries = cached.map(|e| entry(e.id, e.data.clone()));
        Ok(limited(entries, max))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        Ok(self.find_term(Index::new(index))?.get())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first().get())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last().get())
    }

    /// Returns the snapshot that Raft sends to a follower in place of a state: it holds only an index and a
    /// term. The follower fetches the state outside of Raft.
    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        let index = self.applied.index;
        if index == Index::ZERO || index < Index::new(request_index) {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        Ok(snapshot(self.applied, &self.voters))
    }
}

/// Returns a snapshot for Raft that holds the index and the term of the state's last entry, and the voters,
/// but no state.
pub(super) fn snapshot(state: EntryId, voters: &[u64]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (state.index.get(), state.term.get());
    metadata.mut_conf_state().set_voters(voters.to_vec());
    snapshot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        let before = EntryId::new(4, 1);
        let mut tail = Tail::new(before, History::default(), HardState::default(), vec![1]);
        for index in 5..10u64 {
            tail.push(EntryId::new(index, 2), Bytes::from(vec![index as u8; 100]));
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
        tail.placed(EntryId::new(5, 2), Lsn::new(50));
        tail.placed(EntryId::new(6, 2), Lsn::new(60));
        tail.placed(EntryId::new(7, 1), Lsn::new(70));
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
    fn unapplied_entries_stay_and_a_later_write_of_an_index_wins() {
        let mut tail = tail();
        tail.applied(EntryId::new(6, 2), 0);
        assert_eq!(
            (tail.first().get(), tail.last().get(), tail.term(6).unwrap()),
            (7, 9, 2)
        );
        tail.push(EntryId::new(8, 3), Bytes::from_static(b"new"));
        assert_eq!((tail.last().get(), tail.term(8).unwrap()), (8, 3));
        assert!(
            tail.entries(6, 8, None, GetEntriesContext::empty(false))
                .is_err()
        );
        tail.applied(EntryId::new(8, 3), 0);
        assert_eq!(
            (tail.first().get(), tail.last().get(), tail.bytes),
            (9, 8, 0)
        );
        assert_eq!(tail.term(8).unwrap(), 3, "stays answerable");
    }
}
