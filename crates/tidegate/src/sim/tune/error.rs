//! The errors of traces, fits and predictions.

use std::fmt;

use crate::controller::{ChoiceError, EntryError};

/// The longest line that a trace may have, in bytes: several times the longest entry.
pub(super) const LINE_MAX: usize = 4096;

/// The error of a trace that the reader cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace has no line.
    Empty,
    /// The first line is not the header of a trace.
    Header,
    /// The header names a version that this release does not read.
    Version {
        /// The version that the header names.
        found: String,
        /// The header that this release reads.
        expected: &'static str,
    },
    /// A line is longer than any entry can be.
    Long {
        /// The number of the line, counted from 1.
        line: u64,
    },
    /// A line is not UTF-8 text.
    Binary {
        /// The number of the line, counted from 1.
        line: u64,
    },
    /// A line is not an entry.
    Line {
        /// The number of the line, counted from 1.
        line: u64,
        /// The part of the line that is missing or wrong.
        cause: EntryError,
    },
    /// A line names a boundary that has not begun, or its bounds or its count of lost entries are wrong.
    Form {
        /// The number of the line, counted from 1.
        line: u64,
        /// The form that the line must have.
        expected: &'static str,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace is empty"),
            Self::Header => f.write_str(
                "not a trace: the first line is neither `tidegate-decisions 1` nor `tidegate-log 2`",
            ),
            Self::Version { found, expected } => write!(
                f,
                "a trace of version {found}: this release reads `{expected}`, record the trace again"
            ),
            Self::Long { line } => {
                write!(f, "line {line} is longer than {LINE_MAX} bytes, so it is not an entry")
            }
            Self::Binary { line } => write!(f, "line {line} is not text"),
            Self::Line { line, cause } => write!(f, "line {line}: {cause}"),
            Self::Form { line, expected } => write!(f, "line {line}: expected {expected}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Line { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// The reason why a recorded boundary gives no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FitError {
    /// Too few batches ended in the longest stretch of the trace.
    Few {
        /// The number of batches that ended in the longest stretch.
        batches: u64,
        /// The number of batches that a model needs.
        needed: u64,
    },
    /// The driver reports neither arrivals nor a backlog, so the trace does not tell when items arrived.
    NoArrivals,
    /// The driver starts most batches without asking the controller, or many before the controller allows it,
    /// so another controller would change little.
    Unasked,
    /// The boundary runs several batches at once, and the model does not know how much they slow each other
    /// down.
    Several,
    /// The costs of all batches are zero or unknown.
    NoCosts,
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few { batches, needed } => write!(
                f,
                "the trace has {batches} batches of this boundary in one stretch, a prediction needs {needed}"
            ),
            Self::NoArrivals => f.write_str(
                "this boundary reports neither arrivals nor a backlog, so the trace does not tell how long items wait",
            ),
            Self::Unasked => f.write_str(
                "this boundary starts batches without asking its controller, or before the controller allows it, so no prediction can be made",
            ),
            Self::Several => f.write_str(
                "this boundary runs several batches at once, and the trace does not tell how much they slow each other down",
            ),
            Self::NoCosts => f.write_str("the trace has no cost of a batch of this boundary"),
        }
    }
}

impl std::error::Error for FitError {}

/// The reason why a controller gives no prediction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PredictError {
    /// The controller cannot be built within the bounds of the boundary.
    Choice(ChoiceError),
    /// The caller stopped the simulation.
    Stopped,
}

impl fmt::Display for PredictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Choice(cause) => cause.fmt(f),
            Self::Stopped => f.write_str("the simulation was stopped"),
        }
    }
}

impl std::error::Error for PredictError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Choice(cause) => Some(cause),
            Self::Stopped => None,
        }
    }
}
