//! A cluster as its users meet it: three processes on this machine, killed, paused and cut off under load, with checkers of what was
//! promised.
//!
//! The same tests run against nats-server where `STREAM_SERVER` names that program: what is asked of ours must hold there, too.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod nodes;
#[path = "../stream/raw.rs"]
#[allow(dead_code)] // Shared; some of it is for a server alone.
mod raw;

mod command;
mod conditional;
mod disk;
mod faults;
mod form;
mod history;
mod load;
mod net;
mod partition;
mod program;
