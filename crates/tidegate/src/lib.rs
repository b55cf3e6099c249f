//! Tidegate: a self-tuning batching engine.
//!
//! It takes a flood of small operations and decides, with no knob to turn, how many go together and when.
//! Everything here is one movement: **producer -> [`queue`] -> [`controller`] -> batch -> handler -> reply.**
//! Items go forward and never back; what returns is a reply or a count.

pub mod batcher;
mod blocking;
pub mod boundary;
pub mod controller;
pub mod queue;
#[cfg(feature = "sim")]
pub mod sim;
mod time;

pub use blocking::WouldBlock;
pub use time::{Clock, Time, nanos};

/// The examples in `docs/` and the README compile.
#[cfg(doctest)]
mod docs {
    #[doc = include_str!("../../../docs/controllers.md")]
    struct Controllers;
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}
