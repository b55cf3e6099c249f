//! What the log keeps of a consumer: how far it has delivered, what is acknowledged, what is not.
//!
//! Owns the state and how a [`Delta`] changes it: the same deltas in the same order give the same state on
//! every node. Leaves when a delta is made, and everything that is forgotten with the leader (pulls,
//! heartbeats, the order of redelivery), to [`super::Consumer`].
//!
//! The state follows the leader: what was delivered after the last delta is, after a crash, delivered again
//! under the same numbers, and an acknowledgement that was in no delta costs one redelivery. Nothing
//! acknowledged in a durable delta is delivered again.
//!
//! Invariants: `ack_floor` and `delivered` never go back unless the consumer is made to begin again
//! ([`State::reset`]), the one never passes the other, and what is pending lies between them.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::delta::{Delta, DeltaError, NUMBER_END};
use super::pending::Pending;

/// A place in a consumer's deliveries and in its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// A delivery's number, from 1.
    pub consumer_seq: u64,
    /// A message's number in the stream.
    pub stream_seq: u64,
}

impl Position {
    /// The later of each.
    #[must_use]
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            consumer_seq: self.consumer_seq.max(other.consumer_seq),
            stream_seq: self.stream_seq.max(other.stream_seq),
        }
    }
}

/// Where a consumer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With this message.
    At(u64),
    /// With the last message of each subject up to this one; then come all that follow it.
    LastPerSubject(u64),
}

impl Start {
    /// The message after which everything is delivered.
    #[must_use]
    pub const fn after(self) -> u64 {
        match self {
            Self::At(start) => start.saturating_sub(1),
            Self::LastPerSubject(resume) => resume,
        }
    }
}

/// The messages a consumer can be made to begin again with, whether they are there or not.
pub const RESET_RANGE: RangeInclusive<u64> = 1..=NUMBER_END;

/// What the log keeps of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) delivered: Position,
    pub(super) ack_floor: Position,
    pub(super) pending: Pending,
    /// Where the last messages of each subject end and all that came later begins; 0 where the consumer did
    /// not start so.
    pub(super) resume: u64,
}

impl State {
    /// A consumer that begins with message `start`.
    #[must_use]
    pub fn starting_at(start: u64) -> Self {
        let before = Position {
            consumer_seq: 0,
            stream_seq: start.saturating_sub(1),
        };
        Self {
            delivered: before,
            ack_floor: before,
            ..Self::default()
        }
    }

    /// A consumer that begins with the last message of each subject up to message `resume`, then goes on with
    /// all that follows.
    #[must_use]
    pub fn starting_last_per_subject(resume: u64) -> Self {
        Self {
            resume,
            ..Self::default()
        }
    }

    /// A consumer that begins there.
    #[must_use]
    pub fn beginning(start: Start) -> Self {
        match start {
            Start::At(start) => Self::starting_at(start),
            Start::LastPerSubject(resume) => Self::starting_last_per_subject(resume),
        }
    }

    /// Where a consumer with this state begins, of which nothing was delivered.
    #[must_use]
    pub const fn start(&self) -> Start {
        match self.resume {
            0 => Start::At(self.delivered.stream_seq.saturating_add(1)),
            resume => Start::LastPerSubject(resume),
        }
    }

    /// The last delivery, and the highest message delivered.
    #[must_use]
    pub const fn delivered(&self) -> Position {
        self.delivered
    }

    /// What is acknowledged with everything before it.
    #[must_use]
    pub const fn ack_floor(&self) -> Position {
        self.ack_floor
    }

    /// What was delivered and is not acknowledged.
    #[must_use]
    pub const fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Takes over what changed, as [`super::Consumer::poll_delta`] wrote it. The state stays as it was if
    /// that cannot be read.
    pub fn apply(&mut self, delta: &[u8]) -> Result<(), DeltaError> {
        let delta = Delta::decode(delta)?;
        self.take(&delta);
        Ok(())
    }

    /// Begins again with message `seq`, one of [`RESET_RANGE`]: nothing from there on was delivered,
    /// everything before it is settled, and deliveries are counted from 1. A delta that was made before must
    /// not be applied after this.
    pub fn reset(&mut self, seq: u64) {
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

    /// The state as bytes, for a snapshot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let all = Delta {
            delivered: self.delivered,
            ack_floor: self.ack_floor,
            unacked: self.pending.iter().copied().collect(),
            removed: Vec::new(),
        };
        let mut out = self.resume.to_le_bytes().to_vec();
        all.encode(&mut out);
        out
    }

    /// A state from bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let (resume, delta) = bytes.split_first_chunk().ok_or(DeltaError::Short)?;
        let mut state = Self {
            resume: u64::from_le_bytes(*resume),
            ..Self::default()
        };
        state.apply(delta)?;
        Ok(state)
    }

    /// Panics if something is not as it always should be: for tests.
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
