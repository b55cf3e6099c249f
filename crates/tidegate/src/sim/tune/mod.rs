//! Reads recorded traces, to predict how other controllers would have served a recorded boundary.
//!
//! A [`TraceReader`] takes a trace piece by piece: the decisions of several boundaries
//! ([`DecisionLog`](crate::boundary::DecisionLog)) or the log of one controller
//! ([`Recorder`](crate::controller::Recorder)). It keeps a bounded part of each boundary.

#![allow(dead_code)] // The models that follow use the rest.

mod callers;
mod costs;
mod error;
mod reader;
mod stretch;

pub use callers::Source;
pub use error::{FitError, PredictError, TraceError};
pub use reader::{Recorded, Trace, TraceReader};

/// The factor by which a size may differ from the nearest measured size, so that the model still knows its
/// cost.
pub const SIZE_REACH: f64 = 1.25;
/// The factor between two neighbouring measured sizes, so that the model knows the costs of the sizes between
/// them.
pub const SIZE_GAP: f64 = 2.0;
/// The share of the items in batches of unknown cost above which a prediction has no 99th percentile.
pub const OUTSIDE_TAIL: f64 = 0.001;
/// The share of the items in batches of unknown cost above which a prediction has no figures.
pub const OUTSIDE_ALL: f64 = 0.02;
/// The share of the items in batches of sizes with a mean cost that the trace tells less exactly than to 10
/// %, above which a prediction has no figures.
pub const UNSURE: f64 = 0.2;
/// The share of a stretch, from its start, that figures leave out, because the recorded controller learned
/// then.
pub const WARM: f64 = 0.1;
/// The difference between two figures, as a share, below which the advice calls them equal.
pub const ALIKE: f64 = 0.05;
/// The difference between a prediction for the recorded controller and the recorded figures, as a share,
/// above which the model does not fit.
pub const MISFIT: f64 = 0.25;
