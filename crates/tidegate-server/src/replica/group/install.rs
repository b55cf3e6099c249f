//! Taking over the state from another member, where the log of none reaches back to where this one is.
//!
//! Raft's snapshot message only says that this is needed. It is kept aside ([`CatchUp`]) while somebody
//! fetches the state and what it refers to, which changes nothing here. Only when a checkpoint of it is
//! durable does Raft hear of it, and then the log notes it; until both are done this member takes no entries
//! (they would stand behind the checkpoint and not belong to it) and does not stand for election.

use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_ID, StateRole};

use super::Group;
use crate::replica::step::StepError;
use crate::replica::tail;

/// What a member needs that the leader's log does not reach back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// Who leads, and has it. Others have it, too, once they have applied as much.
    pub from: u64,
    /// The state is to be as of this entry, or a later one.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
}

/// A state need not, or cannot, be taken over: the member has those entries itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this member has the entries up to that state: apply them instead")]
pub struct Unneeded;

/// A state that is being taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Installing {
    /// Its checkpoint is being written.
    Writing { index: u64, term: u64 },
    /// Raft knows; the log is to say so.
    Noting { index: u64 },
}

impl Group {
    /// What this member is to fetch, as long as it is needed.
    #[must_use]
    pub fn poll_catch_up(&self) -> Option<CatchUp> {
        let needed = |c: &CatchUp| self.lacks(c.index, c.term);
        self.catch_up.filter(needed)
    }

    /// What it was to fetch is not fetched now. Whoever leads says so again, as long as it is needed.
    pub const fn forget_catch_up(&mut self) {
        self.catch_up = None;
    }

    /// A state as of this entry was fetched, and a checkpoint of it is going to be written, in which nothing
    /// in the log counts that is not behind its end now. Nothing may wait to be appended.
    ///
    /// # Errors
    /// It is not needed.
    pub fn begin_install(&mut self, index: u64, term: u64) -> Result<(), Unneeded> {
        assert!(self.outgoing.is_empty(), "everything was appended");
        if self.installing.is_some() || self.leads() || !self.lacks(index, term) {
            return Err(Unneeded);
        }
        self.installing = Some(Installing::Writing { index, term });
        Ok(())
    }

    /// No checkpoint was written.
    pub const fn abort_install(&mut self) {
        self.installing = None;
    }

    /// The checkpoint is durable: entries up to it were applied, none before it is needed.
    pub fn handle_installed(&mut self) {
        let Some(Installing::Writing { index, term }) = self.installing else {
            return;
        };
        let raft = &mut self.raft.raft;
        if raft.state != StateRole::Follower {
            raft.become_follower(raft.term, INVALID_ID);
        }
        let restored = raft.restore(tail::snapshot(index, term, &self.options.voters));
        assert!(restored, "what was not committed when it began is not now");
        let leader = raft.leader_id;
        if leader != INVALID_ID {
            let mut ack = Message::default();
            ack.set_msg_type(MessageType::MsgAppendResponse);
            (ack.from, ack.to, ack.term) = (raft.id, leader, raft.term);
            (ack.index, ack.commit) = (index, index);
            raft.msgs.push(ack);
        }
        self.installing = Some(Installing::Noting { index });
        // All of these are in the state.
        self.committed.clear();
        self.catch_up = None;
        self.collect();
        self.raft.mut_store().applied(index, term, 0);
    }

    /// Returns whether a state is being taken over.
    #[must_use]
    pub const fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    pub(super) const fn is_writing_state(&self) -> bool {
        matches!(self.installing, Some(Installing::Writing { .. }))
    }

    pub(super) fn finish_install(&mut self) {
        if let Some(Installing::Noting { index }) = self.installing
            && self.raft.raft.raft_log.persisted >= index
        {
            self.raft.advance_apply_to(index);
            self.installing = None;
        }
    }

    /// Keeps aside what a leader says that has no older entries.
    pub(super) fn step_snapshot(&mut self, mut message: Message) -> Result<(), StepError> {
        let of = message.get_snapshot().get_metadata();
        let (index, term) = (of.index, of.term);
        let current = message.term >= self.term();
        if current && !self.is_installing() && self.lacks(index, term) {
            let from = message.from;
            self.catch_up = Some(CatchUp { from, index, term });
        } else if current && !self.is_installing() {
            // It has them all: Raft only learns that they are committed.
            message.set_snapshot(tail::snapshot(index, term, &self.options.voters));
            return self.raft_step(message);
        }
        // It is a sign of life.
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to) = (message.from, message.to);
        heartbeat.term = message.term;
        self.raft_step(heartbeat)
    }

    /// Returns whether the state as of this entry cannot be had by applying what is in the log.
    fn lacks(&self, index: u64, term: u64) -> bool {
        let log = &self.raft.raft.raft_log;
        index > log.committed && !log.match_term(index, term)
    }
}
