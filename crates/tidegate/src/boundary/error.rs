//! The errors of a boundary: the driver made a call that contradicts its earlier calls.

use std::error::Error;
use std::fmt;

use crate::Time;
use crate::controller::BatchId;

/// The error of a call to a boundary that contradicts earlier calls. The call changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundaryError {
    /// The call gives a moment before the moment of an earlier call.
    TimeWentBack {
        /// The moment of this call.
        now: Time,
        /// The moment of the latest earlier call, before which no call may be.
        last: Time,
    },
    /// The driver reports the start of a batch without items.
    EmptyBatch,
    /// As many batches run as the bounds allow, so no further batch may start.
    Full {
        /// The greatest number of batches that the bounds of this boundary allow to run at once.
        in_flight_max: u32,
    },
    /// The batch with this id is done already.
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
