//! Entries that are only in the log any more, for followers that lag: somebody reads them, then Raft asks
//! again.

use bytes::Bytes;
use tidegate_log::Lsn;

use super::Group;

/// Entries to be read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagging {
    /// The first that is wanted; about as many as go into a message are.
    pub index: u64,
    /// Reading begins here, at the record of this entry or one before it. Of entries with one index the one
    /// counts whose term [`Group::term_of`] tells.
    pub near: (u64, Lsn),
}

impl Group {
    /// What is to be read next; the same until it was.
    #[must_use]
    pub fn poll_lagging(&self) -> Option<Lagging> {
        let (index, near) = self.raft.store().wanted()?;
        Some(Lagging { index, near })
    }

    /// The term of the entry with this index, if it can still be sent.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        let known = index > 0 && index <= self.last_index();
        let term = known.then(|| self.raft.raft.raft_log.term(index).ok());
        term.flatten().filter(|term| *term > 0)
    }

    /// Entries from this index on were read: index, term and bytes of each. Those that do not count, or not
    /// follow each other, are passed over.
    pub fn handle_read(&mut self, index: u64, entries: Vec<(u64, u64, Bytes)>) {
        self.raft.mut_store().set_fetched(index, entries);
        for context in self.raft.mut_store().take_waiting(index) {
            self.raft.on_entries_fetched(context);
        }
        self.raft.mut_store().set_fetched(0, Vec::new());
        self.collect();
    }

    /// The entry with this index cannot be read: whoever needs it is given the state instead.
    pub fn handle_unreadable(&mut self, index: u64) {
        self.raft.mut_store().lost(index);
        self.handle_read(index, Vec::new());
    }
}
