//! Samples the boundaries of the engine and shows them as JSON and as a page in a browser.
//!
//! **boundary -> [`Observed`] -> [`Sampler`] -> JSON -> page.** A program hands the state of its boundaries
//! to the sampler once a second while a reader looks, and not at all otherwise. The sampler keeps the newest
//! 600 samples of each boundary. All readers share them.
//!
//! The crate has no runtime, no clock and no socket: the time comes as an argument.
#![doc = include_str!("../README.md")]

mod model;
pub mod page;
mod sampler;
mod view;

pub use model::{Outcome, Outcomes};
pub use sampler::{BOUNDARIES_MAX, EVERY, Observed, SAMPLES_MAX, Sampler, WATCHED_FOR};
pub use view::{Boundaries, Boundary, Fit, History, Size};
