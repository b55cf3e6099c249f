//! Tests of streams as users see them, against a server process: the program's own commands, stock clients
//! and their scripts, and the promises of an acknowledgement while the test kills the server, fills its disk
//! or traces its calls.
//!
//! If `STREAM_SERVER` names a nats-server program, the same tests run against it: it must meet the same
//! demands.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod admit;
mod backups;
#[path = "../cluster/certificates.rs"]
#[allow(dead_code)] // Shared; only the clusters use some of it.
mod certificates;
mod commands;
mod crowd;
mod elsewhere;
mod features;
mod flip;
mod full;
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
mod tls;
