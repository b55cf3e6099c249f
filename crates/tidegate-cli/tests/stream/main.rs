//! Tests of streams as users see them, against a server process: with the program's own commands, with stock
//! clients and their scripts. They check the promises of an acknowledgement while they kill the server, fill
//! its disk or trace its calls.
//!
//! If `STREAM_SERVER` names a nats-server program, the tests run against this program instead, which must
//! meet the same demands.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod admit;
mod backups;
#[path = "../cluster/certificates.rs"]
#[allow(dead_code)] // Shared; only the clusters use some of it.
mod certificates;
mod commands;
mod crowd;
mod elsewhere;
mod extremes;
mod features;
mod flip;
mod flow;
mod full;
mod headroom;
mod ingest;
mod kill;
mod library;
mod mapping;
mod origins;
mod program;
mod python;
mod race;
mod raw;
mod reconnect;
mod record;
mod reset;
mod retention;
mod scrub;
mod server;
mod sync;
mod taker;
mod tls;
mod why;
