//! Takes over the state of another member, because no member's log reaches back to this member's position.
//!
//! The leader's snapshot message only says that this member needs the state. The group keeps that request
//! ([`CatchUp`]) while the node fetches the state and its messages; the group itself does not change
//! meanwhile. Raft learns of the new state only once a checkpoint of this state is durable, and then the log
//! records the takeover. While the store writes the checkpoint, this member takes no entries: such entries
//! would lie behind the checkpoint in the log although they do not continue its state. Until the record of
//! the takeover is durable, this member does not stand for election.

use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_ID, StateRole};

use super::Group;
use crate::replica::id::{EntryId, Index, Term};
use crate::replica::step::StepError;
use crate::replica::tail;

/// A request of the leader: this member must fetch a state, because the leader's log does not reach back to
/// the member's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// The id of the leader, which has the state. Any other member that has applied the entry with this
    /// `index` can give the state, too.
    pub from: u64,
    /// The index of the entry that the fetched state must include. A state with later entries serves as
    /// well.
    pub index: Index,
    /// The term of the entry that `index` names. Index and term together identify the entry.
    pub term: Term,
}

impl CatchUp {
    /// Returns the id of the entry that the fetched state must include: the member's own log cannot lead up
    /// to this entry.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

/// The error for a takeover of a state that the member does not need, or cannot begin: the member's own log
/// has all entries up to the state, the member leads, or another takeover is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this member has the entries up to that state: apply them instead")]
pub struct Unneeded;

/// The progress of a takeover of another member's state, which decides what this member may do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installing {
    /// The store is writing the checkpoint of the fetched state, which ends with this entry.
    Writing(EntryId),
    /// The checkpoint is durable and Raft knows the new state, but the log has not recorded the takeover yet.
    Noting { index: Index },
}

impl Group {
    /// Returns the leader's request for a state that this member has to fetch from another member; `None` if
    /// the member needs no other state.
    #[must_use]
    pub fn poll_catch_up(&self) -> Option<CatchUp> {
        let needed = |c: &CatchUp| self.lacks(c.id());
        self.catch_up.filter(needed)
    }

    /// Drops the leader's request that this member fetches a state. The leader repeats the request as long as
    /// this member needs a state.
    pub const fn forget_catch_up(&mut self) {
        self.catch_up = None;
    }

    /// Begins the takeover of a fetched state that ends with the entry `state`. The store then writes the
    /// checkpoint of this state. At a later start, the node replays only log records behind the log's
    /// present end. The caller must have appended all waiting batches.
    ///
    /// # Errors
    /// The member does not need the state.
    pub fn begin_install(&mut self, state: EntryId) -> Result<(), Unneeded> {
        assert!(self.outgoing.is_empty(), "everything was appended");
        if self.installing.is_some() || self.leads() || !self.lacks(state) {
            return Err(Unneeded);
        }
        self.installing = Some(Installing::Writing(state));
        Ok(())
    }

    /// Ends a takeover of a state without effect, because the store could not write the state's checkpoint.
    /// The member keeps its old state.
    pub const fn abort_install(&mut self) {
        self.installing = None;
    }

    /// Completes the takeover of a state after the state's checkpoint has become durable. From then on all
    /// entries up to the state count as applied, and Raft continues behind them.
    pub fn handle_installed(&mut self) {
        let Some(Installing::Writing(state)) = self.installing else {
            return;
        };
        let raft = &mut self.raft.raft;
        if raft.state != StateRole::Follower {
            raft.become_follower(raft.term, INVALID_ID);
        }
        let restored = raft.restore(tail::snapshot(state, &self.options.voters));
        assert!(
            restored,
            "entries not committed at the start are not committed now"
        );
        let leader = raft.leader_id;
        if leader != INVALID_ID {
            let mut ack = Message::default();
            ack.set_msg_type(MessageType::MsgAppendResponse);
            (ack.from, ack.to, ack.term) = (raft.id, leader, raft.term);
            (ack.index, ack.commit) = (state.index.get(), state.index.get());
            raft.msgs.push(ack);
        }
        self.installing = Some(Installing::Noting { index: state.index });
        // The new state includes all committed entries that the caller has not taken yet, so the group drops
        // these entries.
        self.committed.clear();
        self.catch_up = None;
        self.collect();
        self.raft.mut_store().applied(state, 0);
    }

    /// Returns whether this member is taking over a state of another member, and so cannot lead.
    #[must_use]
    pub const fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    pub(super) const fn is_writing_state(&self) -> bool {
        matches!(self.installing, Some(Installing::Writing(_)))
    }

    pub(super) fn finish_install(&mut self) {
        if let Some(Installing::Noting { index }) = self.installing
            && self.raft.raft.raft_log.persisted >= index.get()
        {
            self.raft.advance_apply_to(index.get());
            self.installing = None;
        }
    }

    /// Handles the snapshot message of a leader that no longer has the entries which this member lacks. Keeps
    /// the leader's request that this member fetches the state.
    pub(super) fn step_snapshot(&mut self, mut message: Message) -> Result<(), StepError> {
        let of = message.get_snapshot().get_metadata();
        let state = EntryId::new(of.index, of.term);
        let current = Term::new(message.term) >= self.term();
        if current && !self.is_installing() && self.lacks(state) {
            let (from, EntryId { index, term }) = (message.from, state);
            self.catch_up = Some(CatchUp { from, index, term });
        } else if current && !self.is_installing() {
            // The member has all entries up to the state, so it fetches nothing. Raft learns from the message
            // only that these entries are committed.
            message.set_snapshot(tail::snapshot(state, &self.options.voters));
            return self.raft_step(message);
        }
        // The node fetches the state outside of Raft. So the group passes the message to Raft as a mere
        // heartbeat, which only shows that the leader is alive.
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to) = (message.from, message.to);
        heartbeat.term = message.term;
        self.raft_step(heartbeat)
    }

    /// Returns whether this member lacks entries up to `state`, so that it cannot reach the state from its
    /// own log.
    fn lacks(&self, state: EntryId) -> bool {
        let log = &self.raft.raft.raft_log;
        let (index, term) = (state.index.get(), state.term.get());
        index > log.committed && !log.match_term(index, term)
    }
}
