//! Streams as users meet them: the program's own commands, stock clients and their scripts, and the promises
//! of an acknowledgement under kills, a full disk and a tracer, against a server in a process of its own.
//!
//! The same tests run against nats-server where `STREAM_SERVER` names that program: what is asked of ours
//! must hold there, too.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod admit;
mod commands;
mod crowd;
mod features;
mod flip;
mod full;
mod ingest;
mod kill;
mod library;
mod program;
mod python;
mod race;
mod raw;
mod reset;
mod scrub;
mod server;
mod sync;
