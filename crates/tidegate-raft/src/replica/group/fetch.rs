//! Entries for lagging followers that are no longer in memory: the store reads them from the log, and then
//! Raft asks for them again.

use bytes::Bytes;

use super::Group;
use crate::replica::history::Point;
use crate::replica::id::{EntryId, Index, Term};

/// A request to read entries from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagging {
    /// The index of the first wanted entry. Raft wants about as many entries as fit into a message.
    pub index: Index,
    /// The entry at which to begin reading, at or before `index`. Among records with the same index, the
    /// valid one has the term that [`Group::term_of`] returns.
    pub near: Point,
}

impl Group {
    /// Returns the next request to read. Returns the same request until the caller has answered it.
    #[must_use]
    pub fn poll_lagging(&self) -> Option<Lagging> {
        let (index, near) = self.raft.store().wanted()?;
        Some(Lagging { index, near })
    }

    /// Returns the term of the entry with this index, if this member can still send it.
    #[must_use]
    pub fn term_of(&self, index: Index) -> Option<Term> {
        let known = index > Index::ZERO && index <= self.last_index();
        let term = known.then(|| self.raft.raft.raft_log.term(index.get()).ok());
        term.flatten().map(Term::new).filter(|t| *t > Term::ZERO)
    }

    /// Takes the id and the bytes of the entries that the caller has read, from `index` on. Skips entries
    /// that are overwritten or not consecutive.
    pub fn handle_read(&mut self, index: Index, entries: Vec<(EntryId, Bytes)>) {
        self.raft.mut_store().set_fetched(index, entries);
        for context in self.raft.mut_store().take_waiting(index) {
            self.raft.on_entries_fetched(context);
        }
        self.raft.mut_store().set_fetched(Index::ZERO, Vec::new());
        self.collect();
    }

    /// Notes that the entry with this index cannot be read. The leader gives the state to followers that need
    /// this entry.
    pub fn handle_unreadable(&mut self, index: Index) {
        self.raft.mut_store().lost(index);
        self.handle_read(index, Vec::new());
    }
}
