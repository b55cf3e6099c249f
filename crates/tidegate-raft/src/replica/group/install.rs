//! Takes over the state of another member when no member's log reaches back to this member's position.
//!
//! A snapshot message of a leader only says that a takeover is needed. The group keeps the request
//! ([`CatchUp`]) while the node fetches the state and its messages; the group itself does not change in that
//! time. Raft learns of the new state only once a checkpoint of this state is durable, and then the log
//! records the takeover. From the start of the checkpoint's write until both are done, this member does not
//! stand for election and takes no entries: such entries would lie behind the checkpoint in the log and not
//! belong to it.

use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_ID, StateRole};

use super::Group;
use crate::replica::id::{EntryId, Index, Term};
use crate::replica::step::StepError;
use crate::replica::tail;

/// A state that a member needs because the leader's log does not reach back to the member's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// The leader, which has the state. Other members have it, too, once they have applied as much.
    pub from: u64,
    /// The least index of the last entry in the state.
    pub index: Index,
    /// The term of the entry with this index.
    pub term: Term,
}

impl CatchUp {
    /// Returns the index and the term of the last entry in the state.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

/// The error of a takeover that is not needed or not possible, because the member has the entries up to the
/// state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this member has the entries up to that state: apply them instead")]
pub struct Unneeded;

/// The progress of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installing {
    /// The store writes the state's checkpoint.
    Writing(EntryId),
    /// Raft knows of the state, and the log has not recorded the takeover yet.
    Noting { index: Index },
}

impl Group {
    /// Returns the state that this member has to fetch, as long as it needs the state.
    #[must_use]
    pub fn poll_catch_up(&self) -> Option<CatchUp> {
        let needed = |c: &CatchUp| self.lacks(c.id());
        self.catch_up.filter(needed)
    }

    /// Drops the request to fetch a state. The leader repeats the request as long as this member needs the
    /// state.
    pub const fn forget_catch_up(&mut self) {
        self.catch_up = None;
    }

    /// Begins the takeover of a fetched state, with `state` as its last entry. The store then writes the
    /// checkpoint of this state; of the log, only records behind its present end will count. No batch may
    /// wait to be appended.
    ///
    /// # Errors
    /// The state is not needed.
    pub fn begin_install(&mut self, state: EntryId) -> Result<(), Unneeded> {
        assert!(self.outgoing.is_empty(), "everything was appended");
        if self.installing.is_some() || self.leads() || !self.lacks(state) {
            return Err(Unneeded);
        }
        self.installing = Some(Installing::Writing(state));
        Ok(())
    }

    /// Ends a takeover because the store could not write the checkpoint.
    pub const fn abort_install(&mut self) {
        self.installing = None;
    }

    /// Completes a takeover after the checkpoint has become durable. All entries up to the state count as
    /// applied, and the member needs no earlier entry.
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
        // The state includes all committed entries that the caller has not taken.
        self.committed.clear();
        self.catch_up = None;
        self.collect();
        self.raft.mut_store().applied(state, 0);
    }

    /// Returns whether the member takes over a state.
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

    /// Keeps the request of a leader that this member takes over its state, because the leader no longer has
    /// the older entries.
    pub(super) fn step_snapshot(&mut self, mut message: Message) -> Result<(), StepError> {
        let of = message.get_snapshot().get_metadata();
        let state = EntryId::new(of.index, of.term);
        let current = Term::new(message.term) >= self.term();
        if current && !self.is_installing() && self.lacks(state) {
            let (from, EntryId { index, term }) = (message.from, state);
            self.catch_up = Some(CatchUp { from, index, term });
        } else if current && !self.is_installing() {
            // The member has all these entries; Raft only learns that they are committed.
            message.set_snapshot(tail::snapshot(state, &self.options.voters));
            return self.raft_step(message);
        }
        // To Raft the message is only a heartbeat of the leader.
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
