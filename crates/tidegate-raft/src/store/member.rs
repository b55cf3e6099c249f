//! The store's data of one group: this node as a member of the group, the group's checkpoints, and the places
//! of its messages in the log. All groups share the log.

use std::collections::VecDeque;

use tidegate_log::Lsn;

use super::catch_up::CatchingUp;
use super::checkpoints::Checkpoints;
use super::staged::Staged;
use super::{Live, Relocated};
use crate::replica::{EntryId, Group, Message};

/// The store's data of one group, see the [module](self).
pub(super) struct Member {
    pub(super) group: Group,
    /// The messages of the group's leader, in order, that wait until the log has allocated its next segment.
    pub(super) delayed: VecDeque<Message>,
    pub(super) checkpoints: Checkpoints,
    pub(super) catching_up: CatchingUp,
    pub(super) staged: Staged,
    pub(super) live: Live,
    /// The new places of messages that the store has copied durably, in the order of the log. The caller has
    /// not taken these yet.
    pub(super) relocated: VecDeque<Relocated>,
    /// The last entry that the store returned as due.
    pub(super) applied: Applied,
    /// The log position up to which the last requested checkpoint covers the log.
    pub(super) tried: Lsn,
    /// True if the store could not write the last requested checkpoint.
    pub(super) failed: bool,
    /// The end of the log from which on the store tries again to make the reserve for the next checkpoint.
    pub(super) keep_back_at: Lsn,
}

/// An entry that the store returned as due, and the log position behind its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) entry: EntryId,
    pub(super) next: Lsn,
}

impl Member {
    /// Returns the position before which the group needs no record of the log, because the caller has applied
    /// all of them; this is `durable` if no entry waits for its commit. Returns `None` while a record is not
    /// yet durable or applied, and while the member takes over another state.
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
    /// as soon as a leader asks for the takeover again. `holding` bounds the bytes of log that this keeps
    /// from release. A leader needs no other state.
    pub(super) fn is_between(&self) -> bool {
        self.holds() || (!self.staged.is_empty() && !self.group.leads())
    }

    /// Returns whether the store must keep all segments, because fetched messages lie in them.
    pub(super) const fn holds(&self) -> bool {
        self.catching_up.holds()
    }
}
