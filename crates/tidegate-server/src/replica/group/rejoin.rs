//! A member that lost its disk takes part again, under the identity it had.
//!
//! It has forgotten for whom it voted, and what it acknowledged. So it begins in a term that nobody was in
//! while it had its disk, one above the highest of *all* the others, with its vote in that term spent; and it
//! helps nobody to lead before it has committed an entry of that term or a later one. Whoever proposed that
//! entry was elected by the others alone: this member follows nobody in an earlier term, which makes whoever
//! led step down. So that leader has everything that was ever committed, and when this member has that entry,
//! so has it. The argument is that of the recovery in Liskov and Cowling, *Viewstamped Replication Revisited*
//! (2012), section 4.3, put in Raft's terms.

use super::{Group, GroupOptions, Restored};
use crate::replica::records::HardState;

/// Puts a member that comes back at the beginning of its term, if it is not beyond; whether the log has to
/// say so.
pub(super) fn begin(options: &GroupOptions, restored: &mut Restored) -> bool {
    let later = |term: &u64| *term > restored.hard_state.term;
    let Some(term) = options.rejoined.filter(later) else {
        return false;
    };
    let vote = options.id;
    restored.hard_state = HardState { term, vote };
    true
}

impl Group {
    /// Returns whether this member has, durably, everything it may ever have acknowledged: always, unless it
    /// lost its disk. Until then it neither votes nor leads.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Some(since) = self.options.rejoined else {
            return true;
        };
        // Of two members the other one has everything: nothing is committed without it.
        let log = &self.raft.raft.raft_log;
        let settled = log.committed.min(log.persisted);
        self.options.voters.len() == 2 || log.term(settled).is_ok_and(|term| term >= since)
    }

    /// The term this member can vouch for to one that lost its disk: it has been in no later one. `None` if
    /// it lost its own.
    #[must_use]
    pub fn vouched_term(&self) -> Option<u64> {
        self.is_whole().then_some(self.raft.raft.term)
    }
}
