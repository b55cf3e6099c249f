//! The store of a node: what was durable is there after a restart, in order; what is read is what was
//! written.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod basics;
mod cluster;
mod common;
mod crash;
mod full;
mod golden;
mod groups;
mod kill;
mod members;
mod retention;
#[cfg(feature = "lab")]
mod steps;
mod toy;
