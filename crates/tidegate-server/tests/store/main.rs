//! Tests the store of a node: after a restart it has every durable entry, in order, and reads return the
//! bytes that the node wrote.

// Clippy recognises tests by their attribute, and would not see that the helpers here are tests too.
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
