//! Predicts how other controllers would have served a recorded boundary.
//!
//! A [`TraceReader`] takes a trace piece by piece: the decisions of several boundaries
//! ([`DecisionLog`](crate::boundary::DecisionLog)) or the log of one controller
//! ([`Recorder`](crate::controller::Recorder)). It keeps a bounded part of each boundary. [`Model::fit`]
//! turns this part into a model: the costs of batches by size, and the source of the items.
//! [`Model::predict`] lets a controller serve the model in virtual time, and [`advise`] compares the figures.
//!
//! # The model
//!
//! - **Costs.** A batch of n items costs a + b·n between the means of neighbouring size classes, times a
//!   factor of a measured batch of about the same size. The factors come in the order of the trace, so that
//!   slow times stay together. A boundary that runs several batches at once has no model yet.
//! - **Sizes.** The model knows the cost of a size within a factor of [`SIZE_REACH`] of a measured size
//!   class, and between two of them that are at most a factor of [`SIZE_GAP`] apart. A controller that puts
//!   more than [`OUTSIDE_TAIL`] of the items into other batches gets no 99th percentile, and a controller
//!   that puts more than [`OUTSIDE_ALL`] there gets no figure at all. The same holds for numbers of running
//!   batches above the largest measured one.
//! - **Items.** If the arrivals depend on the completions as those of callers that return do, the model runs
//!   as many callers in a closed loop, with the think times fitted to the trace. Where callers return in
//!   groups, as from a stage that gathers them, the groups have the recorded sizes, and a controller that
//!   cuts them gets no figures. Otherwise it takes the recorded arrivals as given, also for controllers that
//!   would have answered sooner.
//! - **Driver.** The model repeats the measured delays between the end of a batch and the start of the next,
//!   and between an arrival at an idle boundary and its batch.
//!
//! ```
//! use tidegate::controller::{Bounds, Choice, Greedy, Recorder, write_log};
//! use tidegate::sim::arena::{Curve, Demand, Span, World, run};
//! use tidegate::sim::tune::{Model, TraceReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let world = World::new("demo", Curve::Linear { a: 1.0, b: 0.01 }, Demand::Open(0.3));
//! let mut recorder = Recorder::new(Greedy.controller(), 100_000);
//! let span = Span { warm_ms: 0.0, batches: 500, items: 20_000 };
//! run(&world, 7, 50.0, span, &mut recorder);
//!
//! let mut reader = TraceReader::new();
//! reader.handle_bytes(write_log(recorder.log()).as_bytes())?;
//! let trace = reader.finish()?;
//! let model = Model::fit(&trace.boundaries[0])?;
//! let predicted = model.predict(Choice::GREEDY, 1, &mut |_| true)?;
//! let (real, same) = (model.recorded().items_per_s, predicted.figures.items_per_s);
//! assert!((same.unwrap_or(0.0) / real.unwrap_or(1.0) - 1.0).abs() < 0.1);
//! # Ok(())
//! # }
//! ```

mod advice;
mod callers;
mod costs;
mod error;
mod model;
mod reader;
mod replay;
mod stretch;
#[cfg(test)]
mod tests;

pub use advice::advise;
pub use callers::Source;
pub use error::{FitError, PredictError, TraceError};
pub use model::{Figures, Model, Prediction};
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
/// The share of the items in batches cut by a limit above which a prediction has no figures, where callers
/// return in groups: the trace does not tell how a cut group returns.
pub const GROUPS_CUT: f64 = 0.15;
/// The share of a stretch, from its start, that figures leave out, because the recorded controller learned
/// then.
pub const WARM: f64 = 0.1;
/// The difference between two figures, as a share, below which the advice calls them equal.
pub const ALIKE: f64 = 0.05;
/// The difference between a prediction for the recorded controller and the recorded figures, as a share,
/// above which the model does not fit.
pub const MISFIT: f64 = 0.25;
