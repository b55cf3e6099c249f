//! Tidegate: a self-tuning batching engine.
//!
//! It takes a flood of small operations and decides, with no knob to turn, how many go together and when.
//! Everything here is one movement: **producer -> [`queue`] -> [`controller`] -> batch -> handler -> reply.**
//! Items go forward and never back; what returns is a reply or a count.
//!
//! ```
//! use std::time::Duration;
//!
//! use tidegate::batcher::{Builder, map_batch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The handler gets the items of a batch and returns one result an item, in order.
//! let squares = Builder::new().spawn(map_batch(|items: &mut Vec<u64>| {
//!     items.iter().map(|n| n * n).collect()
//! }))?;
//! assert_eq!(squares.blocking_call(12)?, 144); // a task awaits `squares.call(12)`
//! println!("{}", squares.stats());
//! squares.blocking_drain(Duration::from_secs(5))?; // everything accepted is handled
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - [`batcher`], the batch actor: one handler, many senders, one batch at a time or several in flight. Begin
//!   here with an expensive call and many small items.
//! - [`controller`], the rules for the size and the start of a batch, pure. The default is
//!   [`Knee`](controller::Knee). For an objective, a fixed limit, or a rule of your own.
//! - [`boundary`], the bookkeeping of one place where batches are cut, pure. For an event loop of your own.
//! - [`queue`], a bounded queue of many producers and one consumer. For the queue without an actor, or for
//!   producers that pay one claim for many items.
//! - `sim` (feature `sim`), virtual time: arrivals, servers and callers. To try a controller beforehand.
//!
//! # Features
//!
//! No feature is on by default, and then the crate has no dependency. `tokio` adds actors that are tasks and
//! closures with several batches in flight; `futures` adds batches of a `Stream`; `sim` adds the simulator.

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

/// The examples in these documents compile. Some of them need tokio.
#[cfg(all(doctest, feature = "tokio"))]
mod docs {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/tuning.md")]
    struct Tuning;
}
