//! Tidegate: a self-tuning batching engine.
//!
//! The engine takes many small operations and decides, without any setting, how many of them form a
//! batch and when the batch starts. All modules form one path: **producer -> [`queue`] ->
//! [`controller`] -> batch -> handler -> reply.** An item goes through each stage once, unless a
//! full or closed actor refuses it, the handler gives it back for another try
//! ([`batcher::Batch::retry`]), or [`batcher::Handle::stop`] returns it.
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
//! - [`batcher`], the batch actor: one handler, many senders, one batch at a time or several in flight.
//!   Start here if your program has an expensive call and many small items.
//! - [`controller`], the pure rules that decide the size and the start of a batch. The default is
//!   [`Knee`](controller::Knee). Look here to set an objective or a fixed limit, or to write a rule.
//! - [`boundary`], the pure bookkeeping of one place where batches are cut. Look here to build
//!   batches in an event loop of your own.
//! - [`queue`], a bounded queue of many producers and one consumer. Look here for a queue without an actor,
//!   or for producers that put many items into the queue with one atomic step.
//! - `sim` (feature `sim`), virtual time: arrivals, servers and callers. Look here to
//!   test a controller in simulation.
//!
//! # Features
//!
//! No feature is on by default. Without features the crate has no dependency. `tokio` adds actors
//! that are tasks, and closures with several batches in flight; `futures` adds batches of a
//! `Stream`; `sim` adds the simulator.

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
