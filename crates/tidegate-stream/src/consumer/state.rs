//! The part of a consumer that the log keeps: the last delivery, the ack floor, and the pending messages.
//!
//! Owns the state and how a [`Delta`] changes it: the same deltas in the same order give the same state on
//! every node. [`super::Consumer`] decides when to write a delta, and owns the parts that a new leader does
//! not have (pulls, heartbeats, the order of redelivery).
//!
//! The state is a little behind the leader's [`super::Consumer`]. After a crash, the consumer repeats the
//! deliveries since the last delta, under the same numbers; an acknowledgement that was in no delta causes
//! one redelivery. The consumer never redelivers a message that a durable delta acknowledges.
//!
//! Invariants: `ack_floor` and `delivered` never go back except by [`State::reset`]; `ack_floor` never passes
//! `delivered`; each pending message lies between them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::delta::{Delta, DeltaError, NUMBER_END};
use super::pending::Pending;
use super::sequence::ConsumerSeq;
use crate::schema::sequence::StreamSeq;

/// A place in a consumer's deliveries and in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// A delivery's number, from 1.
    pub consumer_seq: ConsumerSeq,
    /// A message's number in the stream.
    pub stream_seq: StreamSeq,
}

impl Position {
    /// Returns the higher number of deliveries of the two positions, with the higher message number.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            consumer_seq: self.consumer_seq.max(other.consumer_seq),
            stream_seq: self.stream_seq.max(other.stream_seq),
        }
    }
}

/// The place where a consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The consumer starts with this message.
    At(StreamSeq),
    /// The consumer starts with the last message of each subject up to this message, then delivers all later
    /// messages.
    LastPerSubject(StreamSeq),
}

impl Start {
    /// Returns the number of the message after which the consumer delivers every message that its filters
    /// pass.
    #[must_use]
    pub const fn after(self) -> StreamSeq {
        match self {
            Self::At(start) => start.saturating_prev(),
            Self::LastPerSubject(resume) => resume,
        }
    }
}

/// The numbers of the messages to which a client may reset a consumer, whether the stream holds these
/// messages or not.
pub const RESET_RANGE: RangeInclusive<StreamSeq> = StreamSeq::FIRST..=StreamSeq::new(NUMBER_END);

/// The part of a consumer that the log keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending,
    /// The last message of the range from which the consumer delivers only the last message of each subject;
    /// 0 if the consumer did not start so.
    pub(super) resume: StreamSeq,
}

impl State {
    /// Creates the state of a consumer that starts with message `start`.
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

    /// Creates the state of a consumer that starts with the last message of each subject up to message
    /// `resume`, then delivers all later messages.
    #[must_use]
    pub fn starting_last_per_subject(resume: StreamSeq) -> Self {
        Self {
            resume,
            ..Self::default()
        }
    }

    /// Creates the state of a consumer that starts at `start`.
    #[must_use]
    pub fn beginning(start: Start) -> Self {
        match start {
            Start::At(start) => Self::starting_at(start),
            Start::LastPerSubject(resume) => Self::starting_last_per_subject(resume),
        }
    }

    /// Returns the start of a consumer that has this state and has delivered nothing yet.
    #[must_use]
    pub const fn start(&self) -> Start {
        match self.resume {
            StreamSeq::ZERO => Start::At(self.delivered.stream_seq.saturating_next()),
            resume => Start::LastPerSubject(resume),
        }
    }

    /// Returns the number of the last delivery, and the highest number of a delivered message.
    #[must_use]
    pub const fn delivered(&self) -> Position {
        self.delivered
    }

    /// Returns the position up to which receivers have acknowledged every delivery.
    #[must_use]
    pub const fn ack_floor(&self) -> Position {
        self.ack_floor
    }

    /// Returns the messages that the consumer delivered and that receivers have not acknowledged.
    #[must_use]
    pub const fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Applies a delta that [`super::Consumer::poll_delta`] wrote. On an error, the state stays as it was.
    pub fn apply(&mut self, delta: &[u8]) -> Result<(), DeltaError> {
        let delta = Delta::decode(delta)?;
        self.take(&delta);
        Ok(())
    }

    /// Resets the consumer to message `seq`, one of [`RESET_RANGE`]: no message from there on counts as
    /// delivered, every message before it counts as acknowledged, and deliveries count from 1. After the
    /// reset, the caller must not apply a delta from before the reset.
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
            }
        }
        for seq in &delta.removed {
            self.pending.remove(*seq);
        }
        while self.pending.pop_up_to(self.ack_floor.stream_seq).is_some() {}
    }

    /// Encodes the state for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let all = Delta {
            delivered: self.delivered,
            ack_floor: self.ack_floor,
            unacked: self.pending.iter().copied().collect(),
            removed: Vec::new(),
        };
        let mut out = self.resume.get().to_le_bytes().to_vec();
        all.encode(&mut out);
        out
    }

    /// Decodes a state.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let (resume, delta) = bytes.split_first_chunk().ok_or(DeltaError::Short)?;
        let mut state = Self {
            resume: StreamSeq::new(u64::from_le_bytes(*resume)),
            ..Self::default()
        };
        state.apply(delta)?;
        Ok(state)
    }

    /// Panics if an invariant does not hold: for tests.
    pub fn check_invariants(&self) {
        self.pending.check_invariants();
        assert!(self.ack_floor.consumer_seq <= self.delivered.consumer_seq);
        assert!(self.ack_floor.stream_seq <= self.delivered.stream_seq);
        for unacked in self.pending.iter() {
            assert!(unacked.stream_seq > self.ack_floor.stream_seq);
            assert!(unacked.stream_seq <= self.delivered.stream_seq);
            assert!(unacked.consumer_seq <= self.delivered.consumer_seq);
        }
    }
}
