//! A NATS server on one event loop.
//!
//! Core NATS: publish and subscribe with wildcards, queue groups, headers and request/reply; TLS, users and
//! permissions; a monitor over HTTP. What is and is not supported stands in `docs/nats-support.md`.
//!
//! Everything is one movement: **socket -> parse -> subscriptions -> outboxes -> sockets.** The loop takes
//! what is ready, acts once, then writes; a [`tidegate`] controller decides how much is gathered before it
//! writes.

pub mod api;
pub mod catchup;
pub mod cluster;
pub mod config;
pub mod consumer;
pub mod ingest;
pub mod lab;
mod monitor;
pub mod nats;
pub mod node;
pub mod replica;
pub mod store;
pub mod stream;

pub use monitor::Monitor;
pub use node::{Handle, Server, StartError};
