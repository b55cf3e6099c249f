//! A cluster as its users meet it: three processes on this machine, killed, paused and cut off under load,
//! with checkers of what was promised.
//!
//! The same tests run against nats-server where `STREAM_SERVER` names that program: what is asked of ours
//! must hold there, too.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

#[allow(dead_code)] // Shared; some of it is for who is refused.
mod certificates;
#[path = "../stream/flip.rs"]
mod flip;
mod nodes;
#[path = "../stream/raw.rs"]
#[allow(dead_code)] // Shared; some of it is for a server alone.
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
mod hellos;
mod history;
mod lasting;
mod load;
mod mistakes;
mod mounted;
mod moved;
mod net;
mod partition;
mod placed;
mod power;
mod program;
mod queue_groups;
mod rejoin;
mod reset;
mod scrub;
#[cfg(feature = "lab")]
mod steps;
mod tls;
mod volume;
