//! Tests of a cluster as its users see it. The tests kill, pause and cut off three processes on this machine
//! under load, and checkers verify every promise.
//!
//! If `STREAM_SERVER` names a nats-server program, the tests run against this program instead, which must
//! meet the same demands.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

#[allow(dead_code)] // Shared; only `tests/routes` uses some of it.
mod certificates;
#[path = "../stream/flip.rs"]
mod flip;
mod nodes;
#[path = "../stream/raw.rs"]
#[allow(dead_code)] // Shared; only `tests/stream` uses some of it.
mod raw;

#[path = "../stream/race.rs"]
mod race;

mod admit;
mod away;
mod command;
mod conditional;
mod damage;
mod disk;
mod faults;
mod flood;
mod form;
mod handover;
mod health;
mod hellos;
mod history;
mod lines;
mod load;
mod mistakes;
mod mounted;
mod moved;
mod net;
mod origins;
mod partition;
mod placed;
mod power;
mod program;
mod queue_groups;
mod rejoin;
mod republish;
mod reset;
mod scrub;
#[cfg(feature = "lab")]
mod steps;
mod tags;
mod tls;
mod traces;
mod unlogged;
mod volume;
