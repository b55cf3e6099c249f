//! Writes entries that stay uncommitted for long to the log again, so that the log can release their old
//! records although a majority of the members is away.

use tidegate_log::Lsn;

use super::{Batch, Group};
use crate::replica::id::{EntryId, Index};
use crate::replica::records;

/// A batch of entries that the group has written again: the position of the batch's end, and the id and the
/// new position of each entry. The group keeps using the old positions until the batch is durable.
pub(super) type Renewed = (Lsn, Vec<(EntryId, Lsn)>);

impl Group {
    /// Returns the index of the last committed entry that the caller has taken to apply, and that its state
    /// thus includes.
    #[must_use]
    pub fn applied_index(&self) -> Index {
        self.raft.store().applied_index()
    }

    /// Returns the log position of the first entry that the caller has not taken to apply, if the position
    /// is known. So the group needs no record before this position for entries that it has yet to apply.
    #[must_use]
    pub fn unapplied_from(&self) -> Option<Lsn> {
        let tail = self.raft.store();
        let (lsn, ..) = tail.get(tail.applied_index().next())?;
        lsn
    }

    /// Returns the number of bytes of all entries that the caller has not taken to apply.
    /// [`renew`](Self::renew) would write these bytes again.
    #[must_use]
    pub fn unapplied_bytes(&self) -> u64 {
        let tail = self.raft.store();
        let indices = tail.applied_index().next().to(tail.last());
        let bytes = indices.filter_map(|index| Some(tail.get(index)?.2.len() as u64));
        bytes.sum()
    }

    /// Writes to the log again all entries that the caller has not yet taken to apply. The copies equal the
    /// entries that they replace, so only the positions change. Does nothing while a batch is in flight, or
    /// if the entries do not fit into one append: after a crash the log must have all copies or none. Returns
    /// whether the group writes the entries.
    pub fn renew(&mut self) -> bool {
        if !self.is_durable() || !self.committed.is_empty() || self.is_installing() {
            return false;
        }
        let tail = self.raft.store();
        let indices = tail.applied_index().next().to(tail.last());
        let entries = indices.filter_map(|index| {
            let (_, term, data) = tail.get(index)?;
            let group = self.options.group;
            let id = EntryId { index, term };
            Some(records::entry(group, id, data.clone()))
        });
        let records: Vec<_> = entries.collect();
        let bytes: u64 = records.iter().map(|r| r.payload.len() as u64).sum();
        if records.is_empty() || bytes > self.options.batch_bytes_max {
            return false;
        }
        // Raft has already learned that these entries are durable and does not wait for the copies, so the
        // batch has the number 0.
        self.put_out(Batch {
            records,
            since: self.ticks,
            again: true,
            ..Batch::default()
        });
        true
    }

    /// Takes over the new positions of entries that the group has written again, once the copies are durable.
    pub(super) fn place_renewed(&mut self, durable: Lsn) {
        let renewed = self.renewed.take_if(|(end, _)| *end <= durable);
        for (id, lsn) in renewed.map_or_else(Vec::new, |(_, entries)| entries) {
            self.raft.mut_store().placed(id, lsn);
        }
    }
}
