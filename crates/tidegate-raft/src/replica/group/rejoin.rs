//! Lets a member that lost its disk take part again under its former identity.
//!
//! The member has forgotten its votes and its acknowledgements. So it begins in a term that no member was in
//! while the lost disk existed: one above the highest term of *all* other members. In that term the member
//! counts its vote as given. The member neither votes nor leads before it has committed an entry of that
//! term or a later one. The other members alone elected the leader that proposed this entry. The rejoining
//! member follows no leader of an earlier term, and its higher term makes such a leader step down. So the
//! new leader has every entry that was ever committed, and once the rejoining member has the new leader's
//! entry, it has all these entries, too. The source is the recovery protocol in Liskov and Cowling,
//! *Viewstamped Replication Revisited* (2012), section 4.3.

use super::{Group, GroupOptions, Restored};
use crate::replica::id::Term;
use crate::replica::records::HardState;

/// Moves a rejoining member to the term from which on it takes part, unless it is in a later term already.
/// Returns whether the log has to record the new term.
pub(super) fn begin(options: &GroupOptions, restored: &mut Restored) -> bool {
    let later = |term: &Term| *term > restored.hard_state.term;
    let Some(term) = options.rejoined.filter(later) else {
        return false;
    };
    let vote = options.id;
    restored.hard_state = HardState { term, vote };
    true
}

impl Group {
    /// Returns whether this member durably has every entry that it may ever have acknowledged. A member that
    /// lost its disk may lack such entries. Until it has them, it neither votes nor leads.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let Some(since) = self.options.rejoined else {
            return true;
        };
        // In a group of two, no entry is committed without the other member. That member has every committed
        // entry, so this member counts as whole.
        let log = &self.raft.raft.raft_log;
        let settled = log.committed.min(log.persisted);
        self.options.voters.len() == 2
            || log.term(settled).is_ok_and(|term| Term::new(term) >= since)
    }

    /// Returns the latest term that this member has been in, for another member that lost its disk and must
    /// begin in a higher term. Returns `None` if this member has lost its own disk.
    #[must_use]
    pub fn vouched_term(&self) -> Option<Term> {
        self.is_whole().then_some(self.term())
    }
}
