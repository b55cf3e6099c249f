//! The store's data of one group: this node's membership in the group, the group's checkpoints, and the
//! places of its messages in the log that all groups share.

use std::collections::VecDeque;

use tidegate_log::Lsn;

use super::catch_up::CatchingUp;
use super::checkpoints::Checkpoints;
use super::staged::Staged;
use super::{Live, Relocated};
use crate::replica::{EntryId, Group, Message};

/// The store's data of one group; see the [module](self).
pub(super) struct Member {
    pub(super) group: Group,
    /// The messages of the group's leader that wait, in order, until the log has allocated its next segment.
    pub(super) delayed: VecDeque<Message>,
    pub(super) checkpoints: Checkpoints,
    pub(super) catching_up: CatchingUp,
    pub(super) staged: Staged,
    pub(super) live: Live,
    /// The messages that the store has copied durably, with their new places, in the order of the log. They
    /// wait until the event loop tells the streams.
    pub(super) relocated: VecDeque<Relocated>,
    /// The last entry that the store returned to the event loop. The group's streams include this entry.
    pub(super) applied: Applied,
    /// The log position up to which the checkpoint that the store began last covers the log, even if its
    /// write failed. The growth of the log from there decides when the next checkpoint is due.
    pub(super) tried: Lsn,
    /// True if the store's files were near the quota at the last review of the segments, and the group's
    /// checkpoints blocked the release of one. A checkpoint is due then, once it costs fewer bytes than the
    /// log has grown.
    pub(super) blocks_release: bool,
    /// True if the write of the last checkpoint failed, mostly because the disk is full.
    pub(super) failed: bool,
    /// The position of the log at which the store tries again to make the reserve for the next checkpoint:
    /// once the log is durable up to there.
    pub(super) keep_back_at: Lsn,
}

/// An entry that the event loop applies, and the log position behind the entry's record. A checkpoint of the
/// state continues there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) entry: EntryId,
    pub(super) next: Lsn,
}

impl Member {
    /// Returns the log position before which the group needs no record, because the caller has applied all
    /// entries there. This is the position of the first uncommitted entry, or `durable`, the end of the
    /// durable log, if all entries are committed. Returns `None` while a record is not yet durable or a
    /// committed entry not yet applied, and while the member takes over another state.
    pub(super) fn settled_to(&self, durable: Lsn) -> Option<Lsn> {
        let on_its_way = !self.relocated.is_empty()
            || !self.group.is_durable()
            || self.group.applied_index() != self.applied.entry.index
            || self.group.committed_index() != self.applied.entry.index;
        if on_its_way || self.is_between() {
            return None;
        }
        match self.group.last_index() == self.applied.entry.index {
            true => Some(durable),
            false => self.group.unapplied_from(),
        }
    }

    /// Returns whether this member takes over another state, or keeps fetched messages for a takeover that a
    /// leader will ask for again. The log must then keep its segments; the module `holding` bounds the kept
    /// bytes. A leader needs no other state, so its fetched messages do not count.
    pub(super) fn is_between(&self) -> bool {
        self.holds() || (!self.staged.is_empty() && !self.group.leads())
    }

    /// Returns whether the store must keep all segments, because they may hold messages that this member has
    /// fetched.
    pub(super) const fn holds(&self) -> bool {
        self.catching_up.holds()
    }
}
