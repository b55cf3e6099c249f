//! Reads entries from the log for followers that lag so far that the leader no longer has the entries in
//! memory. The store reads one stretch of the log at a time.

use bytes::Bytes;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Chunk, Lsn, ReadError};

use super::Store;
use crate::replica::records::KIND_ENTRY;
use crate::replica::{EntryId, Index};

/// The bytes of a stretch: room for the entries of a few messages, and for the records before them.
const STRETCH_BYTES: usize = 1 << 20;

/// The next entry that a lagging follower of a group needs, and the position of the stretch in which the
/// store looks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    at: GroupSlot,
    index: Index,
    from: Lsn,
    /// True once the reading thread has accepted the request for the stretch; until then its queue had no
    /// room.
    asked: bool,
}

impl Store {
    /// Hands the entries of the last stretch to their group, and asks the reading thread for the next
    /// stretch.
    pub(super) fn serve_laggards(&mut self) {
        if let (Some(search), Some(outcome)) = (self.search, self.reading.take_records()) {
            self.search = self.take_stretch(search, outcome);
        }
        if self.search.is_none() {
            self.search = self.next_search();
        }
        if let Some(search) = self.search.as_mut().filter(|s| !s.asked) {
            search.asked = self.reading.ask_records(search.from, STRETCH_BYTES);
        }
    }

    /// Returns the next search. The groups take turns.
    fn next_search(&mut self) -> Option<Search> {
        let groups = self.members.len();
        let mut all = self.searched.around(groups);
        let found = all.find_map(|at| {
            let lagging = self.members[at].group.poll_lagging()?;
            Some(Search {
                at,
                index: lagging.index,
                from: lagging.near.lsn,
                asked: false,
            })
        })?;
        self.searched = found.at.next_around(groups);
        Some(found)
    }

    /// Hands the entries of a stretch to the group. If the stretch lacks the entry, returns the search for
    /// the next stretch.
    fn take_stretch(
        &mut self,
        search: Search,
        outcome: Result<Chunk, ReadError>,
    ) -> Option<Search> {
        let Search { at, index, .. } = search;
        let group = &mut self.members[at].group;
        let chunk = match outcome {
            Ok(chunk) if chunk.next > search.from => chunk,
            Ok(_) | Err(ReadError::Released) => {
                group.handle_unreadable(index);
                return None;
            }
            Err(error) => {
                tracing::error!(
                    "this node cannot read entry {index} for another node, which gets the whole state instead: {error}"
                );
                group.handle_unreadable(index);
                return None;
            }
        };
        let (mut next, mut read) = (index, Vec::<(EntryId, Bytes)>::new());
        for (_, record) in chunk.records {
            let id = EntryId::new(record.index, record.term);
            // An entry counts only with the valid term: an entry that another one has replaced has another
            // term.
            let counts = || group.term_of(next) == Some(id.term);
            let entry = record.group == group.number().get() && record.kind == KIND_ENTRY;
            if entry && id.index == next && counts() {
                read.push((id, record.payload));
                next = next.next();
            }
        }
        if read.is_empty() {
            let from = chunk.next;
            return Some(Search {
                at,
                index,
                from,
                asked: false,
            });
        }
        group.handle_read(index, read);
        None
    }
}
