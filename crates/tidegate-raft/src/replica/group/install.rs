//! Takes over the state of another member when no member's log reaches back to this member's position.
//!
//! A snapshot message of Raft only says that this is needed. The group keeps it aside ([`CatchUp`]) while the
//! node fetches the state and the messages in it, which changes nothing here. Raft learns of the state only
//! once a checkpoint of it is durable, and then the log records it. Until both are done this member does not
//! stand for election and takes no entries, because they would lie behind the checkpoint and not belong to
//! it.

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
    /// That entry's term.
    pub term: Term,
}

impl CatchUp {
    /// Returns the index and the term of that entry.
    #[must_use]
    pub const fn id(&self) -> EntryId {
        EntryId {
            index: self.index,
            term: self.term,
        }
    }
}

/// The error of a takeover that is not needed or not possible: the member has those entries itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this member has the entries up to that state: apply them instead")]
pub struct Unneeded;

/// The progress of a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installing {
    /// The store writes the state's checkpoint.
    Writing(EntryId),
    /// Raft knows of the state, and the log has yet to record it.
    Noting { index: Index },
}

impl Group {
    /// Returns the state that this member has to fetch, as long as it is needed.
    #[must_use]
    pub fn poll_catch_up(&self) -> Option<CatchUp> {
        let needed = |c: &CatchUp| self.lacks(c.id());
        self.catch_up.filter(needed)
    }

    /// Drops the request to fetch a state. The leader repeats it as long as it is needed.
    pub const fn forget_catch_up(&mut self) {
        self.catch_up = None;
    }

    /// Begins the takeover of a fetched state as of this entry. The store then writes its checkpoint; only
    /// records behind the present end of the log will count. No batch may wait to be appended.
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

    /// Ends a takeover because the checkpoint could not be written.
    pub const fn abort_install(&mut self) {
        self.installing = None;
    }

    /// Completes a takeover after its checkpoint became durable: all entries up to it are applied, and no
    /// earlier one is needed.
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
        // The state includes all of these.
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

    /// Keeps the request of a leader that no longer has the older entries.
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
        // The message counts as a heartbeat.
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to) = (message.from, message.to);
        heartbeat.term = message.term;
        self.raft_step(heartbeat)
    }

    /// Returns whether the log's entries cannot lead to the state as of this entry.
    fn lacks(&self, state: EntryId) -> bool {
        let log = &self.raft.raft.raft_log;
        let (index, term) = (state.index.get(), state.term.get());
        index > log.committed && !log.match_term(index, term)
    }
}
