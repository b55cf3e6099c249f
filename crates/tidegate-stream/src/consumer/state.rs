//! The part of a consumer that the log keeps, from which a new leader continues the consumer: the last
//! delivery, the ack floor, and the pending messages.
//!
//! This module owns the state and the way in which a [`Delta`] changes it: the same deltas in the same order
//! give the same state on every node. [`super::Consumer`] decides when to write a delta, and owns the parts
//! that a new leader does not have (pulls, heartbeats, the order of redelivery).
//!
//! The state is a little behind the leader's [`super::Consumer`]. After a crash, the consumer repeats the
//! deliveries since the last delta, under the same numbers; an acknowledgement that was in no delta causes
//! one redelivery. The consumer never redelivers a message that a durable delta acknowledges.
//!
//! Invariants: `ack_floor` and `delivered` never go back except by [`State::reset`]; `ack_floor` never passes
//! `delivered`; each pending message lies between them. A message that the consumer has given up is not
//! pending, and its number is not above `delivered`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::delta::{
    Delta, DeltaError, NUMBER_END, Run, Settling, UNACKED_MAX, lists_settled, runs_of,
};
use super::pending::{Pending, Unacked};
use super::restored::Progress;
use super::sequence::ConsumerSeq;
use crate::convert::{or_zero, saturating_u32};
use crate::schema::config::{AckPolicy, ConsumerConfig};
use crate::schema::sequence::StreamSeq;

/// A place in the deliveries of a consumer, and in the consumer's stream. Both numbers together say how far
/// the consumer has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of a delivery among all deliveries of the consumer, from 1; 0 before the first delivery.
    /// Redeliveries count too.
    pub consumer_seq: ConsumerSeq,
    /// The number of a message in the consumer's stream; 0 before the first message. Redeliveries do not
    /// change it.
    pub stream_seq: StreamSeq,
}

impl Position {
    /// Returns the higher one of the two delivery numbers, together with the higher one of the two message
    /// numbers, so that a position never goes back.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            consumer_seq: self.consumer_seq.max(other.consumer_seq),
            stream_seq: self.stream_seq.max(other.stream_seq),
        }
    }
}

/// The message with which a consumer starts. The leader writes it into the command for a consumer that it
/// already serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The consumer starts with the message of this number. If the stream no longer holds it, the consumer
    /// starts with the next message in the stream.
    At(StreamSeq),
    /// The consumer starts with the last message of each subject, of the messages up to this one, and then
    /// delivers all later messages.
    LastPerSubject(StreamSeq),
}

impl Start {
    /// Returns the number of the message after which the consumer delivers every message that its filters
    /// pass. A stream checks by it that it still has the start.
    #[must_use]
    pub const fn after(self) -> StreamSeq {
        match self {
            Self::At(start) => start.saturating_prev(),
            Self::LastPerSubject(resume) => resume,
        }
    }
}

/// The message numbers to which a client may reset a consumer, whether the stream holds these messages or
/// not. The upper end leaves room for further numbers.
pub const RESET_RANGE: RangeInclusive<StreamSeq> = StreamSeq::FIRST..=StreamSeq::new(NUMBER_END);

/// The part of a consumer that the log keeps: position and pending messages. Each node of the group holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending,
    /// The number of the last message in the range from which the consumer delivers only the last message of
    /// each subject; 0 if the consumer has another deliver policy. A new leader needs it to continue.
    pub(super) resume: StreamSeq,
    /// The messages that the consumer has given up and that no receiver has acknowledged since. A stream that
    /// keeps messages only as long as a consumer needs them keeps these, too. At most [`UNACKED_MAX`]; beyond
    /// that, the state drops the lowest.
    pub(super) given_up: BTreeSet<StreamSeq>,
    /// The last message in the range in which the consumer may pass over messages that its filters pass,
    /// because the leader delivers under earlier filters until it has applied their change; 0 if the consumer
    /// is past that range. The stream looks at the messages of this range again. Only a consumer of a stream
    /// that keeps messages by interest has such a range.
    pub(super) recheck: StreamSeq,
}

/// The messages that a consumer has ceased to need by one delta, so that the stream can remove them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// The messages that the delta lists as settled. The stream removes those that no other consumer needs.
    pub(crate) settled: Vec<Run>,
    /// A range in which the consumer may have ceased to need further messages, which the delta does not list.
    /// The stream searches this range.
    pub(crate) unlisted: Option<Run>,
}

impl State {
    /// Returns whether a consumer in this state has nothing to do before a client asks for messages: then the
    /// node need not load the consumer. That holds if no message is unacknowledged, and no list of first
    /// messages depends on the time at which it is made.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.pending.is_empty() && self.resume <= self.delivered.stream_seq
    }

    /// Creates the state of a consumer that starts with the message numbered `start`, and has delivered
    /// nothing yet.
    #[must_use]
    pub fn starting_at(start: StreamSeq) -> Self {
        let before = Position {
            consumer_seq: ConsumerSeq::default(),
            stream_seq: start.saturating_prev(),
        };
        Self {
            delivered: before,
            ack_floor: before,
            ..Self::default()
        }
    }

    /// Creates the state of a consumer that starts with the last message of each subject, of the messages up
    /// to `resume`, and then delivers all later messages.
    #[must_use]
    pub fn starting_last_per_subject(resume: StreamSeq) -> Self {
        Self {
            resume,
            ..Self::default()
        }
    }

    /// Creates the state of a consumer with this start, and without deliveries. The leader has chosen the
    /// start.
    #[must_use]
    pub fn beginning(start: Start) -> Self {
        match start {
            Start::At(start) => Self::starting_at(start),
            Start::LastPerSubject(resume) => Self::starting_last_per_subject(resume),
        }
    }

    /// Creates the state of a consumer with this configuration from a backup. An unacknowledged message is
    /// due for redelivery at the time at which the original consumer would have redelivered it.
    #[must_use]
    pub(crate) fn restored(progress: &Progress, config: &ConsumerConfig) -> Self {
        let position = |(consumer_seq, stream_seq)| Position {
            consumer_seq: ConsumerSeq::new(consumer_seq),
            stream_seq: StreamSeq::new(stream_seq),
        };
        let mut state = Self {
            delivered: position(progress.delivered),
            ack_floor: position(progress.ack_floor),
            ..Self::default()
        };
        if config.ack_policy == AckPolicy::None {
            return state;
        }
        let wait_us = or_zero(config.ack_wait) / 1000;
        for unacked in &progress.unacked {
            let time_us = (unacked.time_ns.max(0) / 1000).unsigned_abs();
            state.pending.insert(Unacked {
                stream_seq: StreamSeq::new(unacked.seq),
                consumer_seq: ConsumerSeq::new(unacked.delivery),
                due_us: time_us.saturating_add(wait_us),
                deliveries: saturating_u32(unacked.count).max(1),
                live: (),
            });
        }
        state
    }

    /// Returns the start of a consumer that has this state and has delivered nothing yet, for the command
    /// that adds the consumer to the log.
    #[must_use]
    pub const fn start(&self) -> Start {
        match self.resume {
            StreamSeq::ZERO => Start::At(self.delivered.stream_seq.saturating_next()),
            resume => Start::LastPerSubject(resume),
        }
    }

    /// Returns the number of the consumer's last delivery, with the highest number of a delivered message in
    /// the stream, as the log has it.
    #[must_use]
    pub const fn delivered(&self) -> Position {
        self.delivered
    }

    /// Returns the ack floor: the position up to which receivers have acknowledged every delivery, as the log
    /// has it.
    #[must_use]
    pub const fn ack_floor(&self) -> Position {
        self.ack_floor
    }

    /// Returns the messages that the consumer has delivered and that receivers have not acknowledged, as the
    /// log has them.
    #[must_use]
    pub const fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Iterates over the messages that the consumer has given up and that no receiver has acknowledged since,
    /// if its stream keeps messages for its consumers. The stream keeps these messages.
    pub fn given_up(&self) -> impl Iterator<Item = StreamSeq> {
        self.given_up.iter().copied()
    }

    /// Returns whether the consumer may still deliver a message of this number that passes its filters, or
    /// waits for the message's acknowledgement, or has given the message up. A stream that keeps messages for
    /// its consumers keeps such a message.
    #[must_use]
    pub fn needs(&self, seq: StreamSeq) -> bool {
        seq > self.delivered.stream_seq
            || self.pending.get(seq).is_some()
            || self.given_up.contains(&seq)
    }

    /// Returns a number below which the consumer needs no message, so that a search for unneeded messages can
    /// begin there.
    pub(crate) fn first_needed(&self) -> StreamSeq {
        let pending = self.pending.first().map(|u| u.stream_seq);
        let next = self.delivered.stream_seq.saturating_next();
        let given_up = self.given_up.first().copied();
        given_up
            .into_iter()
            .chain(pending)
            .fold(next, StreamSeq::min)
    }

    /// Applies a delta that [`super::Consumer::poll_delta`] returned. Each node does this with the deltas of
    /// the log. On an error, the state stays as it was.
    pub fn apply(&mut self, delta: &[u8]) -> Result<(), DeltaError> {
        self.release(delta).map(drop)
    }

    /// Applies a delta as [`State::apply`] does, and returns the messages that the consumer has ceased to
    /// need, so that the stream removes them.
    pub(crate) fn release(&mut self, delta: &[u8]) -> Result<Released, DeltaError> {
        let delta = Delta::decode(delta)?;
        let (before, floor) = (self.delivered.stream_seq, self.ack_floor.stream_seq);
        let recheck = self.recheck;
        self.take(&delta);
        let after = self.delivered.stream_seq;
        // A consumer that begins with the last message of each subject passes over other messages without
        // listing them. A delta without the list comes from before the stream's present retention. In both
        // cases the stream must search.
        let unlisted = match &delta.settling {
            Some(_) if self.resume.max(recheck) > before => Some(before.next()..=after),
            Some(_) => None,
            None => Some(floor.next()..=after),
        };
        Ok(Released {
            settled: delta.settling.map_or_else(Vec::new, |s| s.settled),
            unlisted: unlisted.filter(|run| !run.is_empty()),
        })
    }

    /// Resets the consumer to message `seq`, one of [`RESET_RANGE`]: no message from `seq` on counts as
    /// delivered, every message before `seq` counts as acknowledged, and deliveries count from 1 again. After
    /// the reset, the caller must not apply a delta that the consumer wrote before it, because its positions
    /// are void.
    pub fn reset(&mut self, seq: StreamSeq) {
        *self = Self {
            resume: self.resume,
            ..Self::starting_at(seq)
        };
    }

    fn take(&mut self, delta: &Delta) {
        self.delivered = self.delivered.max(delta.delivered);
        self.ack_floor = self.ack_floor.max(delta.ack_floor);
        for unacked in &delta.unacked {
            if unacked.stream_seq > self.ack_floor.stream_seq {
                self.pending.insert(*unacked);
                self.given_up.remove(&unacked.stream_seq);
            }
        }
        for seq in &delta.removed {
            self.pending.remove(*seq);
            self.given_up.remove(seq);
        }
        if let Some(settling) = &delta.settling {
            self.settle(settling);
        }
        while self.pending.pop_up_to(self.ack_floor.stream_seq).is_some() {}
        if self.recheck <= self.delivered.stream_seq {
            self.recheck = StreamSeq::ZERO;
        }
    }

    /// Notes that the consumer's filters have changed while `last` was the last message of its stream. The
    /// consumer's leader may deliver up to there under the old filters.
    pub(crate) fn note_filters_changed(&mut self, last: StreamSeq) {
        if last > self.delivered.stream_seq {
            self.recheck = last;
        }
    }

    /// Forgets the data that a stream needs only while it keeps messages for its consumers, because the
    /// stream no longer does.
    pub(crate) fn forget_settling(&mut self) {
        self.given_up.clear();
        self.recheck = StreamSeq::ZERO;
    }

    fn settle(&mut self, settling: &Settling) {
        for run in &settling.given_up {
            self.pending.remove_run(*run.start(), *run.end());
            self.given_up
                .extend(run.start().up_to(run.end().saturating_next()));
        }
        for run in &settling.settled {
            self.pending.remove_run(*run.start(), *run.end());
            let settled: Vec<_> = self.given_up.range(run.clone()).copied().collect();
            for seq in settled {
                self.given_up.remove(&seq);
            }
        }
        while self.given_up.len() > UNACKED_MAX {
            self.given_up.pop_first();
        }
    }

    /// Encodes the state of the consumer for a snapshot: the last message of the range from which the
    /// consumer delivers the last message of each subject, and all that the log knows of its messages, as a
    /// delta. After a delta of version 2, the encoding also has `recheck`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let retaining = !self.given_up.is_empty() || self.recheck > StreamSeq::ZERO;
        let all = Delta {
            delivered: self.delivered,
            ack_floor: self.ack_floor,
            unacked: self.pending.iter().copied().collect(),
            removed: Vec::new(),
            settling: retaining.then(|| Settling {
                settled: Vec::new(),
                given_up: runs_of(self.given_up.iter().copied()),
            }),
        };
        let mut out = self.resume.get().to_le_bytes().to_vec();
        all.encode(&mut out);
        if retaining {
            out.extend(self.recheck.get().to_le_bytes());
        }
        out
    }

    /// Decodes the state of a consumer from a snapshot or an export, so that the node can apply further
    /// deltas.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let (resume, mut delta) = bytes.split_first_chunk().ok_or(DeltaError::Short)?;
        let mut state = Self {
            resume: StreamSeq::new(u64::from_le_bytes(*resume)),
            ..Self::default()
        };
        let mut recheck = StreamSeq::ZERO;
        if lists_settled(delta) {
            let (rest, last) = delta.split_last_chunk().ok_or(DeltaError::Short)?;
            delta = rest;
            recheck = StreamSeq::new(u64::from_le_bytes(*last));
        }
        state.apply(delta)?;
        let passed = recheck > StreamSeq::ZERO && recheck <= state.delivered.stream_seq;
        if passed || recheck.get() >= NUMBER_END {
            return Err(DeltaError::Inconsistent);
        }
        state.recheck = recheck;
        Ok(state)
    }

    /// Panics if an invariant of the consumer's state does not hold. Only tests call this, after each delta.
    pub fn check_invariants(&self) {
        self.pending.check_invariants();
        assert!(self.ack_floor.consumer_seq <= self.delivered.consumer_seq);
        assert!(self.ack_floor.stream_seq <= self.delivered.stream_seq);
        for unacked in self.pending.iter() {
            assert!(unacked.stream_seq > self.ack_floor.stream_seq);
            assert!(unacked.stream_seq <= self.delivered.stream_seq);
            assert!(unacked.consumer_seq <= self.delivered.consumer_seq);
        }
        for seq in &self.given_up {
            assert!(*seq <= self.delivered.stream_seq && self.pending.get(*seq).is_none());
        }
        assert!(self.given_up.len() <= UNACKED_MAX);
    }
}
