//! A group's dealings with the other members: their messages, time, who leads.

use raft::ProgressState;
use raft::eraftpb::{Message, MessageType};

use super::{ELECTION_TICKS, Group, RANK_TICKS, StateRole};
use crate::replica::step::{self, StepError};

/// What is undurable for so many ticks is on a disk that hangs.
const STALLED_TICKS: u64 = 2 * ELECTION_TICKS;
/// A follower that needs the state is told so again after so many ticks: it may not have heard.
const SNAPSHOT_TICKS: u64 = 2 * ELECTION_TICKS;
/// How often the wait of a leader that lost its quorum doubles.
const GAVE_WAY_MAX: u32 = 5;
/// With so many bytes that wait to be appended no more entries of others are taken.
const OUTGOING_BYTES_MAX: u64 = 64 << 20;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides.
    Leader,
    /// It takes what the leader decides.
    Follower,
    /// It stands for election.
    Candidate,
}

/// What a leader knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// Who.
    pub id: u64,
    /// The last entry it is known to have durably.
    pub matched: u64,
    /// How many entries it lacks, as far as is known.
    pub lag: u64,
    /// It was heard of lately.
    pub active: bool,
    /// It needs the state, because the log does not reach back to where it is.
    pub behind_the_log: bool,
}

/// Why leadership is not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// There is nothing to hand over.
    #[error("this node does not lead its group: ask the leader")]
    NotLeader,
    /// It is no other member.
    #[error("{to:x} is no other member of the group")]
    Unknown {
        /// To whom.
        to: u64,
    },
}

impl Group {
    /// A message of another member.
    ///
    /// # Errors
    /// See [`StepError`]: it had no effect.
    pub fn step(&mut self, message: Message) -> Result<(), StepError> {
        step::check(&self.raft, &self.options.voters, &message)?;
        let kind = message.get_msg_type();
        let from = message.from;
        match kind {
            MessageType::MsgSnapshot => return self.step_snapshot(message),
            // Behind the entry of the state that is being written there is no place for others; they come
            // again.
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

    /// Hears a leader's message and leaves its entries, which take so many bytes of the log and have no room
    /// there.
    ///
    /// The member does not answer: so a leader loses its quorum if a majority cannot take its entries, and a
    /// member without those entries can be elected. Entries that were taken and could not be written would
    /// hold back this member's votes.
    ///
    /// # Errors
    /// See [`StepError`]: it had no effect.
    pub fn refuse(&mut self, message: Message, bytes: u64) -> Result<(), StepError> {
        step::check(&self.raft, &self.options.voters, &message)?;
        self.refused = Some((message.term, bytes));
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
    /// See [`StepError`]: it had no effect.
    pub fn step_silently(&mut self, message: Message) -> Result<(), StepError> {
        self.silent = true;
        let stepped = self.step(message);
        self.silent = false;
        stepped
    }

    /// Returns the bytes that the entries take which this member refused last, if they are of this term.
    #[must_use]
    pub fn refused_bytes(&self, term: u64) -> Option<u64> {
        self.refused
            .filter(|(of, _)| *of == term)
            .map(|(_, bytes)| bytes)
    }

    pub(super) fn raft_step(&mut self, message: Message) -> Result<(), StepError> {
        let stepped = self.raft.step(message);
        self.collect();
        stepped.map_err(|_| StepError::Kind)
    }

    /// Time goes on by one tick.
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

    /// What is to be sent next, and to whom. Messages may be lost, come twice and in any order.
    pub fn poll_message(&mut self) -> Option<(u64, Message)> {
        let message = self.outbox.poll()?;
        Some((message.to, message))
    }

    /// Who leads, as far as this member knows.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        Some(self.raft.raft.leader_id).filter(|id| *id != 0)
    }

    /// This member's term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.raft.raft.term
    }

    /// What this member is in its term.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.raft.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// Who may vote, in the order of their ids.
    #[must_use]
    pub fn voters(&self) -> &[u64] {
        &self.options.voters
    }

    /// What a leader knows of the others, in the order of their ids; nothing of anybody else.
    #[must_use]
    pub fn progress(&self) -> Vec<PeerProgress> {
        if !self.leads() {
            return Vec::new();
        }
        let (this, last) = (self.options.id, self.last_index());
        let others = self.options.voters.iter().filter(|id| **id != this);
        let progress = others.filter_map(|&id| {
            let peer = self.raft.raft.prs().get(id)?;
            Some(PeerProgress {
                id,
                matched: peer.matched,
                lag: last.saturating_sub(peer.matched),
                active: peer.recent_active,
                behind_the_log: peer.state == ProgressState::Snapshot,
            })
        });
        progress.collect()
    }

    /// Hands leadership over, as soon as that member has all entries; until then nothing is proposed. It may
    /// fail; then this member leads on.
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

    /// Stands for election now, if that may lead to anything.
    pub fn campaign(&mut self) {
        if self.may_stand() && !self.leads() {
            // A member may always try.
            let _ = self.raft.campaign();
            self.collect();
        }
    }

    /// Messages to this member do not arrive: for instance, its connection broke.
    pub fn report_unreachable(&mut self, to: u64) {
        self.raft.report_unreachable(to);
        self.collect();
    }

    /// A follower that needed the state has it, or gave up. It says the first itself in time.
    pub fn report_snapshot(&mut self, to: u64, installed: bool) {
        let status = match installed {
            true => raft::SnapshotStatus::Finish,
            false => raft::SnapshotStatus::Failure,
        };
        self.raft.report_snapshot(to, status);
        self.collect();
    }

    /// Returns whether something waits to be durable for longer than a disk takes that works.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let appended = self.undurable.front().map(|(_, _, since)| *since);
        let oldest = appended.or_else(|| self.outgoing.front().map(|b| b.since));
        oldest.is_some_and(|since| since + STALLED_TICKS < self.ticks)
    }

    /// Returns whether it could serve as a leader.
    fn may_stand(&self) -> bool {
        self.installing.is_none() && !self.is_stalled() && self.is_whole()
    }

    /// Followers that can be durable are better leaders than one that cannot.
    fn give_up_leading(&mut self) {
        let peers = self.progress();
        let active = peers.iter().filter(|p| p.active && !p.behind_the_log);
        let best = active.max_by_key(|p| p.matched).map(|p| p.id);
        if let Some(best) = best.filter(|_| self.raft.raft.lead_transferee.is_none()) {
            self.raft.transfer_leader(best);
        }
    }

    /// Lets every other member stand first, after this one lost its quorum with entries that are not
    /// committed.
    ///
    /// A majority may never take these entries, because its disks are full. A member without them can be
    /// elected, if this one does not stand before it. The wait doubles each time that nothing was committed
    /// in between.
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

    /// A follower that has taken over a state older than the last one it was offered goes on from there.
    fn look_after_snapshot(&mut self, peer: u64) {
        if !self.leads() {
            return;
        }
        let first = self.first_index();
        let progress = self.raft.raft.prs().get(peer);
        if progress.is_some_and(|p| p.state == ProgressState::Snapshot && p.matched + 1 >= first) {
            self.report_snapshot(peer, false);
        }
    }
}
