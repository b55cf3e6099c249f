//! The part of a consumer that the log keeps: the last delivery, the ack floor, and the pending messages.
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

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::delta::{Delta, DeltaError, NUMBER_END};
use super::pending::Pending;
use super::sequence::ConsumerSeq;
use crate::schema::sequence::StreamSeq;

/// A place in the deliveries of a consumer, and in the consumer's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of a delivery among all deliveries of the consumer, from 1; 0 before the first delivery.
    pub consumer_seq: ConsumerSeq,
    /// The number of a message in the consumer's stream; 0 before the first message.
    pub stream_seq: StreamSeq,
}

impl Position {
    /// Returns the higher one of the two delivery numbers, together with the higher one of the two message
    /// numbers.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            consumer_seq: self.consumer_seq.max(other.consumer_seq),
            stream_seq: self.stream_seq.max(other.stream_seq),
        }
    }
}

/// The message with which a consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The consumer starts with the message of this number.
    At(StreamSeq),
    /// The consumer starts with the last message of each subject, of the messages up to this one, then
    /// delivers all later messages.
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

/// The message numbers to which a client may reset a consumer, whether the stream holds these messages or
/// not.
pub const RESET_RANGE: RangeInclusive<StreamSeq> = StreamSeq::FIRST..=StreamSeq::new(NUMBER_END);

/// The part of a consumer that the log keeps: position and pending messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending,
    /// The number of the last message in the range from which the consumer delivers only the last message of
    /// each subject; 0 if the consumer has another deliver policy.
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

    /// Creates the state of a consumer that starts with the last message of each subject, of the messages up
    /// to `resume`, then delivers all later messages.
    #[must_use]
    pub fn starting_last_per_subject(resume: StreamSeq) -> Self {
        Self {
            resume,
            ..Self::default()
        }
    }

    /// Creates the state of a consumer with this start, and without deliveries.
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

    /// Returns the number of the consumer's last delivery, with the highest number of a delivered message.
    #[must_use]
    pub const fn delivered(&self) -> Position {
        self.delivered
    }

    /// Returns the ack floor: the position up to which receivers have acknowledged every delivery.
    #[must_use]
    pub const fn ack_floor(&self) -> Position {
        self.ack_floor
    }

    /// Returns the messages that the consumer has delivered and that receivers have not acknowledged.
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

    /// Resets the consumer to message `seq`, one of [`RESET_RANGE`]: no message from `seq` on counts as
    /// delivered, every message before `seq` counts as acknowledged, and deliveries count from 1 again. After
    /// the reset, the caller must not apply a delta that the consumer wrote before it.
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

    /// Decodes the state of a consumer from a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let (resume, delta) = bytes.split_first_chunk().ok_or(DeltaError::Short)?;
        let mut state = Self {
            resume: StreamSeq::new(u64::from_le_bytes(*resume)),
            ..Self::default()
        };
        state.apply(delta)?;
        Ok(state)
    }

    /// Panics if an invariant of the consumer's state does not hold. Only tests call this.
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
