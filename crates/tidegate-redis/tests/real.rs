//! Against a real redis-server: what the client can do, what once went wrong elsewhere, and kills.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "real/features.rs"]
mod features;
#[path = "real/kills.rs"]
mod kills;
#[path = "real/large.rs"]
mod large;
#[path = "real/policies.rs"]
mod policies;
#[path = "real/regressions.rs"]
mod regressions;
#[path = "real/security.rs"]
mod security;
#[path = "real/threads.rs"]
mod threads;
