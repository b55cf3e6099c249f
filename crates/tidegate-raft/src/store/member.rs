//! The store's data of one group: the member itself, its checkpoints, and the places of its messages in the
//! log. All groups share the log.

use std::collections::VecDeque;

use tidegate_log::Lsn;

use super::catch_up::CatchingUp;
use super::checkpoints::Checkpoints;
use super::staged::Staged;
use super::{Live, Relocated};
use crate::replica::{EntryId, Group, Message};

/// See the [module](self).
pub(super) struct Member {
    pub(super) group: Group,
    /// Messages of a leader, in order, that wait until the log has allocated its next segment.
    pub(super) delayed: VecDeque<Message>,
    pub(super) checkpoints: Checkpoints,
    pub(super) catching_up: CatchingUp,
    pub(super) staged: Staged,
    pub(super) live: Live,
    /// Relocations that are durable, in the order of the log.
    pub(super) relocated: VecDeque<Relocated>,
    /// The last entry that was due.
    pub(super) applied: Applied,
    /// The covered position of the last checkpoint that was asked for.
    pub(super) tried: Lsn,
    /// True if that checkpoint could not be written.
    pub(super) failed: bool,
    /// The position of the log from which on the store tries again to make the reserve for the next
    /// checkpoint.
    pub(super) keep_back_at: Lsn,
}

/// An entry that was due, and the position behind its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) entry: EntryId,
    pub(super) next: Lsn,
}

impl Member {
    /// Returns the position before which the log holds no record of the group that was not due, and no
    /// message fetched for another state: `durable` if no entry waits for its commit. Returns `None` while a
    /// record is on its way.
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

    /// Returns whether this member takes over another state, or will continue to when a leader asks for it,
    /// however long the group has no leader. `holding` bounds the bytes that this may hold. A leader needs no
    /// other state.
    pub(super) fn is_between(&self) -> bool {
        self.holds() || (!self.staged.is_empty() && !self.group.leads())
    }

    /// Returns whether the store must keep all segments, because fetched messages lie in them.
    pub(super) const fn holds(&self) -> bool {
        self.catching_up.holds()
    }
}
