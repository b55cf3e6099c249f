//! Entries that are not committed for long, written once more: so that the log may let go of where they
//! stood, though a majority is away.

use tidegate_log::Lsn;

use super::{Batch, Group};
use crate::replica::records;

/// Where entries end that were written again, and index, term and new position of each. Until they are
/// durable they count where they stood before.
pub(super) type Renewed = (Lsn, Vec<((u64, u64), Lsn)>);

impl Group {
    /// The index of the last entry that was handed out to be applied.
    #[must_use]
    pub fn applied_index(&self) -> u64 {
        self.raft.store().applied_index()
    }

    /// Where in the log the first entry stands that was not handed out to be applied, if that is known: all
    /// the group has before it is applied, or written again behind it.
    #[must_use]
    pub fn unapplied_from(&self) -> Option<Lsn> {
        let tail = self.raft.store();
        let (lsn, ..) = tail.get(tail.applied_index() + 1)?;
        lsn
    }

    /// Bytes of the entries that were not handed out to be applied.
    #[must_use]
    pub fn unapplied_bytes(&self) -> u64 {
        let tail = self.raft.store();
        let indices = tail.applied_index() + 1..=tail.last();
        let bytes = indices.filter_map(|index| Some(tail.get(index)?.2.len() as u64));
        bytes.sum()
    }

    /// Has all entries written once more that were not handed out to be applied. They take the places of what
    /// they are equal to, so nothing changes but where they stand. Not while anything is on its way, and only
    /// in one append: a crash leaves all of them or none. Whether it is done.
    pub fn renew(&mut self) -> bool {
        if !self.is_durable() || !self.committed.is_empty() || self.is_installing() {
            return false;
        }
        let tail = self.raft.store();
        let indices = tail.applied_index() + 1..=tail.last();
        let entries = indices.filter_map(|index| {
            let (_, term, data) = tail.get(index)?;
            let group = self.options.group;
            Some(records::entry(group, index, term, data.clone()))
        });
        let records: Vec<_> = entries.collect();
        let bytes: u64 = records.iter().map(|r| r.payload.len() as u64).sum();
        if records.is_empty() || bytes > self.options.batch_bytes_max {
            return false;
        }
        // No batch of Raft's: it knows that they are durable.
        self.put_out(Batch {
            records,
            since: self.ticks,
            again: true,
            ..Batch::default()
        });
        true
    }

    /// What was written again and is durable counts where it stands now.
    pub(super) fn place_renewed(&mut self, durable: Lsn) {
        let renewed = self.renewed.take_if(|(end, _)| *end <= durable);
        for ((index, term), lsn) in renewed.map_or_else(Vec::new, |(_, entries)| entries) {
            self.raft.mut_store().placed(index, term, lsn);
        }
    }
}
