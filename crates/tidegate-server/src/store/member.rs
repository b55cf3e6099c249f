//! What a store keeps of one of its groups: the member itself, its checkpoints, and what of its messages lies
//! where in the log. The log is all groups'.

use std::collections::VecDeque;

use tidegate_log::Lsn;

use super::apart::Apart;
use super::catch_up::CatchingUp;
use super::checkpoints::Checkpoints;
use super::{Live, Relocated};
use crate::replica::{Group, Message};

/// See the [module](self).
pub(super) struct Member {
    pub(super) group: Group,
    /// Messages of a leader, in order, that wait until the log has allocated its next segment.
    pub(super) delayed: VecDeque<Message>,
    pub(super) checkpoints: Checkpoints,
    pub(super) catching_up: CatchingUp,
    pub(super) apart: Apart,
    pub(super) live: Live,
    /// Relocations that are durable, in the order of the log.
    pub(super) relocated: VecDeque<Relocated>,
    /// The index and the term of the last entry that was due, and the position behind its record.
    pub(super) applied: (u64, u64, Lsn),
    /// The log was here when the last checkpoint was asked for.
    pub(super) tried: Lsn,
    /// That one could not be written.
    pub(super) failed: bool,
    /// From here of the log on it is tried to keep space back for the next, if there is too little.
    pub(super) keep_back_at: Lsn,
}

impl Member {
    /// How far the log holds nothing of the group that was not due, and nothing that was fetched of another
    /// state: `durable` if no entry waits to be committed. `None` while something is on its way.
    pub(super) fn settled_to(&self, durable: Lsn) -> Option<Lsn> {
        let on_its_way = !self.relocated.is_empty()
            || !self.group.is_durable()
            || self.group.applied_index() != self.applied.0
            || self.group.committed_index() != self.applied.0;
        if on_its_way || self.is_between() {
            return None;
        }
        match self.group.last_index() == self.applied.0 {
            true => Some(durable),
            false => self.group.unapplied_from(),
        }
    }

    /// It takes over another state, or is going to go on with that when a leader says that it is needed,
    /// however long nobody does: what that may cost is bounded in bytes (`holding`). A leader needs none.
    pub(super) fn is_between(&self) -> bool {
        self.holds() || (!self.apart.is_empty() && !self.group.leads())
    }

    /// Segments have to stay, as they are or as messages are being fetched for.
    pub(super) const fn holds(&self) -> bool {
        self.catching_up.holds()
    }
}
