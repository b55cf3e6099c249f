//! A group's traffic with the other members: their messages, time, and leadership.

use raft::ProgressState;
use raft::eraftpb::{Message, MessageType};

use super::{ELECTION_TICKS, Group, RANK_TICKS, StateRole};
use crate::replica::id::{Index, Term};
use crate::replica::step::{self, StepError};

/// A batch that is not durable after this many ticks is on a disk that hangs.
const STALLED_TICKS: u64 = 2 * ELECTION_TICKS;
/// The leader tells a follower after this many ticks again that it needs the state, because the message may
/// be lost.
const SNAPSHOT_TICKS: u64 = 2 * ELECTION_TICKS;
/// The most doublings of the wait of a leader that lost its quorum.
const GAVE_WAY_MAX: u32 = 5;
/// With this many bytes waiting to be appended, a member takes no more entries of other members.
const OUTGOING_BYTES_MAX: u64 = 64 << 20;

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows the leader.
    Follower,
    /// It stands for election.
    Candidate,
}

/// A leader's view of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// The id of that member.
    pub id: u64,
    /// The last entry that it is known to have durably.
    pub matched: Index,
    /// The number of entries that it lacks, as far as known.
    pub lag: u64,
    /// True if the leader has heard from it lately.
    pub active: bool,
    /// True if it needs the state, because the leader's log does not reach back to its position.
    pub behind_the_log: bool,
}

/// The reason why leadership is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// This member does not lead.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// The receiver is no other member.
    #[error("{to:x} is no other member of the group")]
    Unknown {
        /// The receiver.
        to: u64,
    },
}

impl Group {
    /// Takes a message of another member.
    ///
    /// # Errors
    /// See [`StepError`]; the message had no effect.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        step::check(&self.raft, &self.options.voters, &message)?;
        let kind = message.get_msg_type();
        let from = message.from;
        match kind {
            MessageType::MsgSnapshot => return self.step_snapshot(message),
            // While the store writes the checkpoint of a state, no entry may follow that state. The leader
            // sends the entries again.
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

    /// Takes a leader's message without its entries, for which the log has no room. They would take `bytes`
    /// bytes.
    ///
    /// The member does not answer. So a leader loses its quorum if a majority cannot take its entries, and
    /// the group can elect a member without those entries. If the member took entries that it cannot write,
    /// they would block its votes.
    ///
    /// # Errors
    /// See [`StepError`]; the message had no effect.
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

    /// Takes a message of another member as [`step`](Self::step) does, and does not answer its heartbeat.
    ///
    /// # Errors
    /// See [`StepError`]; the message had no effect.
    pub fn step_silently(&mut self, message: Message) -> Result<(), StepError> {
        self.silent = true;
        let stepped = self.step(message);
        self.silent = false;
        stepped
    }

    /// Returns the log bytes of the entries that this member refused last, if they are of this term.
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

    /// Advances the clock by one tick.
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

    /// Returns the next message to send, and its receiver. Messages may be lost, duplicated and reordered.
    pub fn poll_message(&mut self) -> Option<(u64, Message)> {
        let message = self.outbox.poll()?;
        Some((message.to, message))
    }

    /// Returns the leader, as far as this member knows.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        Some(self.raft.raft.leader_id).filter(|id| *id != 0)
    }

    /// Returns this member's term.
    #[must_use]
    pub fn term(&self) -> Term {
        Term::new(self.raft.raft.term)
    }

    /// Returns this member's role in its term.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.raft.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Returns the voters in the order of their ids.
    #[must_use]
    pub fn voters(&self) -> &[u64] {
        &self.options.voters
    }

    /// Returns a leader's view of the other members in the order of their ids; empty unless this member
    /// leads.
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

    /// Hands leadership over as soon as that member has all entries; until then this member takes no
    /// proposals. If the transfer fails, this member leads on.
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

    /// Stands for election now, unless this member leads or could not serve as a leader.
    pub fn campaign(&mut self) {
        if self.may_stand() && !self.leads() {
            // Raft takes this request from any member.
            let _ = self.raft.campaign();
            self.collect();
        }
    }

    /// Reports that messages to this member do not arrive, for instance because its connection broke.
    pub fn report_unreachable(&mut self, to: u64) {
        self.raft.report_unreachable(to);
        self.collect();
    }

    /// Reports that a follower has taken over the state it needed, or has given it up. The follower also
    /// acknowledges the state itself, in time.
    pub fn report_snapshot(&mut self, to: u64, installed: bool) {
        let status = match installed {
            true => raft::SnapshotStatus::Finish,
            false => raft::SnapshotStatus::Failure,
        };
        self.raft.report_snapshot(to, status);
        self.collect();
    }

    /// Returns whether a batch has waited to become durable for longer than a working disk takes.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let appended = self.undurable.front().map(|(_, _, since)| *since);
        let oldest = appended.or_else(|| self.outgoing.front().map(|b| b.since));
        oldest.is_some_and(|since| since + STALLED_TICKS < self.ticks)
    }

    /// Returns whether this member could serve as a leader.
    fn may_stand(&self) -> bool {
        self.installing.is_none() && !self.is_stalled() && self.is_whole()
    }

    /// Hands leadership to the most advanced active follower, because this member's disk hangs and the
    /// follower's may work.
    fn give_up_leading(&mut self) {
        let peers = self.progress();
        let active = peers.iter().filter(|p| p.active && !p.behind_the_log);
        let best = active.max_by_key(|p| p.matched).map(|p| p.id);
        if let Some(best) = best.filter(|_| self.raft.raft.lead_transferee.is_none()) {
            self.raft.transfer_leader(best);
        }
    }

    /// Lets all other members stand first, after this one lost its quorum as a leader with uncommitted
    /// entries.
    ///
    /// A majority may never take these entries, because its disks are full. The group can elect a member
    /// without them if this one does not stand before it. The wait doubles each time that no entry was
    /// committed in between.
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

    /// Resumes sending entries to a follower that has taken over a state older than the last one offered to
    /// it.
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
