//! The store's data of one group: this node's membership in the group, the group's checkpoints, and the
//! places of its messages in the log. All groups share the log.

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
    /// The messages that the store has copied durably, with their new places, in the order of the log. The
    /// event loop has not taken these yet.
    pub(super) relocated: VecDeque<Relocated>,
    /// The last entry that the store returned to the event loop as due, so that the group's streams include
    /// it.
    pub(super) applied: Applied,
    /// The log position up to which the checkpoint that the store began last covers the log, even if its
    /// write failed. The growth of the log from there decides when the next checkpoint is due.
    pub(super) tried: Lsn,
    /// True if the write of the checkpoint that the store began last failed.
    pub(super) failed: bool,
    /// The durable position of the log at which the store tries again to make the reserve for the next
    /// checkpoint.
    pub(super) keep_back_at: Lsn,
}

/// An entry that the store returned to the event loop as due, and the log position behind the entry's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) entry: EntryId,
    pub(super) next: Lsn,
}

impl Member {
    /// Returns the log position before which the group needs no record, because the caller has applied them
    /// all. It is the position of the first entry that waits for its commit, or `durable`, the end of the
    /// durable log, if no entry waits. Returns `None` while a record is not yet durable or a committed entry
    /// not yet applied, and while the member takes over another state.
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

    /// Returns whether this member takes over another state, or has fetched messages with which it continues
    /// as soon as a leader asks for the takeover again. The log must then keep its segments; the module
    /// `holding` bounds the bytes that it keeps for this. A leader needs no other state, so its fetched
    /// messages do not count.
    pub(super) fn is_between(&self) -> bool {
        self.holds() || (!self.staged.is_empty() && !self.group.leads())
    }

    /// Returns whether the store must keep all segments, because they may hold messages that this member has
    /// fetched.
    pub(super) const fn holds(&self) -> bool {
        self.catching_up.holds()
    }
}
