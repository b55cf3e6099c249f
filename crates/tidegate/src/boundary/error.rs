//! The errors of a boundary: calls that contradict earlier calls.

use std::error::Error;
use std::fmt;

use crate::Time;
use crate::controller::BatchId;

/// A call that contradicts earlier calls. The call changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundaryError {
    /// The moment given is before the moment of an earlier call.
    TimeWentBack {
        /// The moment of this call.
        now: Time,
        /// The moment of the latest call before.
        last: Time,
    },
    /// The batch has no items.
    EmptyBatch,
    /// As many batches run as the bounds allow.
    Full {
        /// The number of batches that the bounds allow.
        in_flight_max: u32,
    },
    /// The batch of this id is done already.
    AlreadyDone {
        /// The id of the batch.
        id: BatchId,
    },
    /// This boundary never gave this id to a batch.
    NeverStarted {
        /// The id of the batch.
        id: BatchId,
    },
}

impl fmt::Display for BoundaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeWentBack { now, last } => write!(
                f,
                "the time went back from {last:?} to {now:?}: give a moment that is not before the last one"
            ),
            Self::EmptyBatch => {
                f.write_str("a batch of 0 items: start a batch only with at least 1 item")
            }
            Self::Full { in_flight_max } => write!(
                f,
                "{in_flight_max} batches run, as many as the bounds allow: finish one before the next starts"
            ),
            Self::AlreadyDone { id } => write!(
                f,
                "batch {} is done already: a batch is done once",
                id.get()
            ),
            Self::NeverStarted { id } => write!(
                f,
                "batch {} never started here: give the id that `started` of this boundary returned",
                id.get()
            ),
        }
    }
}

impl Error for BoundaryError {}
