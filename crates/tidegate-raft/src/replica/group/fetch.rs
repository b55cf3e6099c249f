//! Serves lagging followers with entries that are no longer in the leader's memory: the store reads the
//! entries from the log, and then the leader sends them.

use bytes::Bytes;

use super::Group;
use crate::replica::history::Point;
use crate::replica::id::{EntryId, Index, Term};

/// A request of a group to read entries from the log for a lagging follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagging {
    /// The index of the first entry that the follower needs. Raft wants about as many entries as fit into a
    /// message.
    pub index: Index,
    /// The closest entry at or before `index` with a known log position. The store reads the log from there.
    /// If several records have the same index, the term that [`Group::term_of`] returns tells which of them
    /// is valid.
    pub near: Point,
}

impl Group {
    /// Returns the next request to read entries from the log for a lagging follower. Returns the same request
    /// until the caller has answered it.
    #[must_use]
    pub fn poll_lagging(&self) -> Option<Lagging> {
        let (index, near) = self.raft.store().wanted()?;
        Some(Lagging { index, near })
    }

    /// Returns the term of the entry with this index, by which the store knows the valid record; `None` if
    /// this member can no longer send the entry.
    #[must_use]
    pub fn term_of(&self, index: Index) -> Option<Term> {
        let known = index > Index::ZERO && index <= self.last_index();
        let term = known.then(|| self.raft.raft.raft_log.term(index.get()).ok());
        term.flatten().map(Term::new).filter(|t| *t > Term::ZERO)
    }

    /// Takes the ids and the bytes of the entries that the caller has read from the log for a lagging
    /// follower, from `index` on. Skips entries that later ones have replaced, or that are not consecutive.
    pub fn handle_read(&mut self, index: Index, entries: Vec<(EntryId, Bytes)>) {
        self.raft.mut_store().set_fetched(index, entries);
        for context in self.raft.mut_store().take_waiting(index) {
            self.raft.on_entries_fetched(context);
        }
        self.raft.mut_store().set_fetched(Index::ZERO, Vec::new());
        self.collect();
    }

    /// Notes that the store cannot read the entry with this index from the log. The leader then offers its
    /// state to followers that need this entry.
    pub fn handle_unreadable(&mut self, index: Index) {
        self.raft.mut_store().lost(index);
        self.handle_read(index, Vec::new());
    }
}
