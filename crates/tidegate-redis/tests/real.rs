//! Tests with a real redis-server: the features of the client, known bugs of other clients, and kills.

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
