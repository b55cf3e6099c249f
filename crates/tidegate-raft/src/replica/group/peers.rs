//! A group's contact with its other members: handles their messages, and decides about elections and
//! leadership as time passes.

use raft::ProgressState;
use raft::eraftpb::{Message, MessageType};

use super::{ELECTION_TICKS, Group, RANK_TICKS, StateRole};
use crate::replica::id::{Index, Term};
use crate::replica::step::{self, StepError};

/// The number of ticks after which a batch that is still not durable counts as a sign that this member's disk
/// hangs.
const STALLED_TICKS: u64 = 2 * ELECTION_TICKS;
/// The interval in ticks at which the leader tells a follower again that it needs the state, because the
/// network may have lost the message.
const SNAPSHOT_TICKS: u64 = 2 * ELECTION_TICKS;
/// The greatest number of times that a member doubles its wait before it stands for election again, after it
/// has lost its quorum as a leader. So the wait stays bounded.
const GAVE_WAY_MAX: u32 = 5;
/// A bound in bytes on a group's entries that wait to be appended to the log. While more bytes wait, the
/// member refuses further entries of a leader, to bound its memory.
const OUTGOING_BYTES_MAX: u64 = 64 << 20;

/// The role of a member of a Raft group in its present term, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The member leads the group: it takes proposals and sends entries.
    Leader,
    /// The member follows a leader, or waits until a leader is elected.
    Follower,
    /// The member stands for election, because it has not heard from a leader.
    Candidate,
}

/// A leader's view of another member's progress in the replication, for monitoring and for the choice of a
/// new leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// The id of the other member in the group.
    pub id: u64,
    /// The index of the last entry that the other member has made durable, as far as the leader knows.
    pub matched: Index,
    /// The number of entries of the leader that the other member lacks, as far as the leader knows.
    pub lag: u64,
    /// True if the leader has heard from the other member within the last election timeout.
    pub active: bool,
    /// True if the other member must fetch a state, because the leader's log does not reach back to that
    /// member's position.
    pub behind_the_log: bool,
}

/// The reason why this member refuses to hand its leadership over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// This member does not lead its group, so it has no leadership to hand over.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// The caller names this member itself as the next leader, or a node that is no member of the group.
    #[error("{to:x} is no other member of the group")]
    Unknown {
        /// The id that the caller gave for the next leader.
        to: u64,
    },
}

impl Group {
    /// Handles a message of another member of the group.
    ///
    /// # Errors
    /// See [`StepError`]; a refused message has no effect on the group.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        step::check(&self.raft, &self.options.voters, &message)?;
        let kind = message.get_msg_type();
        let from = message.from;
        match kind {
            MessageType::MsgSnapshot => return self.step_snapshot(message),
            // While the store writes the checkpoint of a fetched state, the log must get no entry behind that
            // state. So the member ignores the entries, and the leader sends them again.
            MessageType::MsgAppend if self.is_writing_state() => return Ok(()),
            MessageType::MsgAppend if self.outgoing_bytes > OUTGOING_BYTES_MAX => {
                return Err(StepError::Full);
            }
            MessageType::MsgTimeoutNow if !self.may_stand() => return Ok(()),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote if !self.is_whole() => {
                return Ok(());
            }
            _ => {}
        }
        if kind == MessageType::MsgAppend {
            self.refused = None;
        }
        self.raft_step(message)?;
        if kind == MessageType::MsgAppendResponse {
            self.look_after_snapshot(from);
        }
        Ok(())
    }

    /// Handles a leader's message without the entries in it, because the log has no room for the `bytes`
    /// bytes of the first entry.
    ///
    /// The member does not answer. So a leader loses its quorum if a majority cannot take its entries, and
    /// the group can elect a member without those entries. If the member took entries that it cannot write,
    /// they would block its votes.
    ///
    /// # Errors
    /// See [`StepError`]; a refused message has no effect on the group.
    pub fn refuse(&mut self, message: Message, bytes: u64) -> Result<(), StepError> {
        step::check(&self.raft, &self.options.voters, &message)?;
        self.refused = Some((Term::new(message.term), bytes));
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to) = (message.from, message.to);
        heartbeat.term = message.term;
        if message.get_msg_type() == MessageType::MsgHeartbeat {
            heartbeat.commit = message.commit;
        }
        self.silent = true;
        let stepped = self.raft_step(heartbeat);
        self.silent = false;
        stepped
    }

    /// Handles a message of another member as [`step`](Self::step) does, but does not answer a heartbeat, so
    /// that the leader does not count this member in its quorum.
    ///
    /// # Errors
    /// See [`StepError`]; a refused message has no effect on the group.
    pub fn step_silently(&mut self, message: Message) -> Result<(), StepError> {
        self.silent = true;
        let stepped = self.step(message);
        self.silent = false;
        stepped
    }

    /// Returns the number of bytes that the first of the last refused entries needs in the log, so that the
    /// caller can make room. Returns `None` if the leader of `term` did not send them.
    #[must_use]
    pub fn refused_bytes(&self, term: Term) -> Option<u64> {
        self.refused
            .filter(|(of, _)| *of == term)
            .map(|(_, bytes)| bytes)
    }

    pub(super) fn raft_step(&mut self, message: Message) -> Result<(), StepError> {
        let stepped = self.raft.step(message);
        self.collect();
        stepped.map_err(|_| StepError::Kind)
    }

    /// Advances the member's clock by one tick, and does the work that becomes due with it, such as a
    /// heartbeat or an election.
    pub fn tick(&mut self) {
        self.ticks += 1;
        if self.is_stalled() {
            self.give_up_leading();
        }
        let waits = self.ticks < self.stands_at;
        if (waits || !self.may_stand()) && !self.leads() {
            self.raft.raft.election_elapsed = 0;
        }
        let led = self.leads();
        self.raft.tick();
        if led && !self.leads() {
            self.let_others_stand();
        }
        if self.ticks.is_multiple_of(SNAPSHOT_TICKS) {
            for peer in self.progress() {
                if peer.behind_the_log {
                    self.report_snapshot(peer.id, false);
                }
            }
        }
        self.collect();
    }

    /// Returns the next message of this member that the caller must send, with the id of the receiver. The
    /// network may lose, duplicate and reorder messages.
    pub fn poll_message(&mut self) -> Option<(u64, Message)> {
        let message = self.outbox.poll()?;
        Some((message.to, message))
    }

    /// Returns the id of the group's leader; `None` if this member knows no leader.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        Some(self.raft.raft.leader_id).filter(|id| *id != 0)
    }

    /// Returns Raft's term that this member is in: the number of the latest leadership or election that it
    /// knows.
    #[must_use]
    pub fn term(&self) -> Term {
        Term::new(self.raft.raft.term)
    }

    /// Returns this member's role in its present term: leader, follower or candidate.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.raft.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Returns the ids of all members that vote in the group, in ascending order.
    #[must_use]
    pub fn voters(&self) -> &[u64] {
        &self.options.voters
    }

    /// Returns this leader's view of the other members, in the order of their ids; an empty list if this
    /// member does not lead.
    #[must_use]
    pub fn progress(&self) -> Vec<PeerProgress> {
        if !self.leads() {
            return Vec::new();
        }
        let (this, last) = (self.options.id, self.last_index());
        let others = self.options.voters.iter().filter(|id| **id != this);
        let progress = others.filter_map(|&id| {
            let peer = self.raft.raft.prs().get(id)?;
            let matched = Index::new(peer.matched);
            Some(PeerProgress {
                id,
                matched,
                lag: last.since(matched),
                active: peer.recent_active,
                behind_the_log: peer.state == ProgressState::Snapshot,
            })
        });
        progress.collect()
    }

    /// Hands the leadership over to member `to` as soon as `to` has all entries; until then this member
    /// takes no proposals. An operator or a balancing node moves the leadership in this way. If the transfer
    /// fails, this member continues to lead.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer_leadership(&mut self, to: u64) -> Result<(), TransferError> {
        if !self.leads() {
            return Err(TransferError::NotLeader);
        }
        if to == self.options.id || !self.options.voters.contains(&to) {
            return Err(TransferError::Unknown { to });
        }
        self.raft.transfer_leader(to);
        self.collect();
        Ok(())
    }

    /// Makes this member stand for election now, without waiting for its timeout, unless it leads already or
    /// could not serve as a leader.
    pub fn campaign(&mut self) {
        if self.may_stand() && !self.leads() {
            // Raft accepts this request from any member, so the group ignores the result.
            let _ = self.raft.campaign();
            self.collect();
        }
    }

    /// Reports to Raft that messages to member `to` do not arrive, for instance because the connection
    /// broke. Raft then sends only one message at a time until the member answers, to save useless copies.
    pub fn report_unreachable(&mut self, to: u64) {
        self.raft.report_unreachable(to);
        self.collect();
    }

    /// Reports to Raft that follower `to` has taken over the state that it needed (`installed`), or has
    /// given the takeover up, so that the leader sends entries again. The follower itself acknowledges the
    /// state later, too.
    pub fn report_snapshot(&mut self, to: u64, installed: bool) {
        let status = match installed {
            true => raft::SnapshotStatus::Finish,
            false => raft::SnapshotStatus::Failure,
        };
        self.raft.report_snapshot(to, status);
        self.collect();
    }

    /// Returns whether a batch has waited for more than `STALLED_TICKS` ticks to become durable, so that
    /// this member must assume that its disk hangs.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let appended = self.undurable.front().map(|(_, _, since)| *since);
        let oldest = appended.or_else(|| self.outgoing.front().map(|b| b.since));
        oldest.is_some_and(|since| since + STALLED_TICKS < self.ticks)
    }

    /// Returns whether this member could serve as a leader: its disk does not hang, it takes over no state,
    /// and it lacks no entry that it may have acknowledged.
    fn may_stand(&self) -> bool {
        self.installing.is_none() && !self.is_stalled() && self.is_whole()
    }

    /// Hands the leadership to the active follower with the most entries, because this member's disk hangs
    /// while the follower's disk may work.
    fn give_up_leading(&mut self) {
        let peers = self.progress();
        let active = peers.iter().filter(|p| p.active && !p.behind_the_log);
        let best = active.max_by_key(|p| p.matched).map(|p| p.id);
        if let Some(best) = best.filter(|_| self.raft.raft.lead_transferee.is_none()) {
            self.raft.transfer_leader(best);
        }
    }

    /// Makes this member wait until all other members could stand for election, after it lost its quorum as a
    /// leader with uncommitted entries.
    ///
    /// A majority of the members may never take these entries, because their disks are full. The group can
    /// elect a member without these entries if this member does not stand first. The wait doubles each time
    /// that this member loses its quorum again without a newly committed entry.
    fn let_others_stand(&mut self) {
        let last = self.last_index();
        if last == self.committed_index() {
            return;
        }
        let fresh = self.committed_index() != self.gave_way.0;
        let times = if fresh { 0 } else { self.gave_way.1 + 1 };
        self.gave_way = (self.committed_index(), times);
        let turns = RANK_TICKS * self.options.voters.len() as u64;
        self.stands_at = self.ticks + (turns << times.min(GAVE_WAY_MAX));
    }

    /// Makes the leader send entries again to a follower that has taken over a state, even if the leader has
    /// meanwhile offered a newer state.
    fn look_after_snapshot(&mut self, peer: u64) {
        if !self.leads() {
            return;
        }
        let first = self.first_index();
        let progress = self.raft.raft.prs().get(peer);
        if progress.is_some_and(|p| {
            p.state == ProgressState::Snapshot && Index::new(p.matched).next() >= first
        }) {
            self.report_snapshot(peer, false);
        }
    }
}
