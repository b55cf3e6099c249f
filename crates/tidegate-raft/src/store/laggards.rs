//! Reads entries from the log for lagging followers, because the leader no longer has these entries in
//! memory. The store reads one stretch of the log at a time.

use bytes::Bytes;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Chunk, Lsn, ReadError};

use super::Store;
use crate::replica::records::KIND_ENTRY;
use crate::replica::{EntryId, Index};

/// The number of bytes of log that the store reads at once for a lagging follower: room for the entries of a
/// few messages, and for the records before them.
const STRETCH_BYTES: usize = 1 << 20;

/// A search in the log for the next entry that a lagging follower of a group needs: the index of the entry,
/// and the log position from which the store reads next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    at: GroupSlot,
    index: Index,
    from: Lsn,
    /// True once the reading thread has accepted the request for the stretch. While the thread's queue is
    /// full, the store has to ask again.
    asked: bool,
}

impl Store {
    /// Hands the entries that the store has read for a lagging follower to the group, which sends them, and
    /// asks the reading thread for the next stretch of the log.
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

    /// Returns a search for the entries that the next lagging follower needs, if a group has a lagging
    /// follower. The groups take turns, so that each of them progresses.
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

    /// Hands the entries that a lagging follower needs from a stretch of the log to the follower's group. If
    /// the stretch has none of them, returns the search that continues with the next stretch.
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
                    "this node cannot read entry {index} of its log to send the entry to another node, so that node must fetch the whole state instead: {error}"
                );
                group.handle_unreadable(index);
                return None;
            }
        };
        let (mut next, mut read) = (index, Vec::<(EntryId, Bytes)>::new());
        for (_, record) in chunk.records {
            let id = EntryId::new(record.index, record.term);
            // A record counts only if its term is valid at its index. A later leader's entry may have
            // replaced the entry in the record.
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
