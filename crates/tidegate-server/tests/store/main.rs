//! The store of a node: after a restart it has every durable entry, in order, and reads return the
//! bytes that were written.

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
