//! The errors of settings that the default controller rejects.

use crate::controller::{BoundsError, ObjectiveError};

/// The error of settings that [`Knee`](super::Knee) rejects, with the setting that the user must change.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum KneeError {
    /// No batch can satisfy the bounds.
    Bounds(BoundsError),
    /// The objective is out of its range.
    Objective(ObjectiveError),
    /// The controller counts bytes, and its bounds leave bytes unbounded: set `bytes_max`.
    BytesUnbounded,
}

impl std::fmt::Display for KneeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bounds(e) => e.fmt(f),
            Self::Objective(e) => e.fmt(f),
            Self::BytesUnbounded => {
                f.write_str("a limit in bytes needs a bound on bytes: set bytes_max")
            }
        }
    }
}

impl std::error::Error for KneeError {}

impl From<BoundsError> for KneeError {
    fn from(e: BoundsError) -> Self {
        Self::Bounds(e)
    }
}

impl From<ObjectiveError> for KneeError {
    fn from(e: ObjectiveError) -> Self {
        Self::Objective(e)
    }
}
