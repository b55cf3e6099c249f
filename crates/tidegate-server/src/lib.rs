//! A NATS server on one event loop.
//!
//! Core NATS: publish and subscribe with wildcards, queue groups, headers and request/reply; TLS, users and
//! permissions; a monitor over HTTP. `docs/nats-support.md` lists the supported and the missing features.
//!
//! Everything is one movement: **socket -> parse -> subscriptions -> outboxes -> sockets.** The loop takes
//! the events that are ready, handles them together, then writes. A [`tidegate`] controller decides how much
//! the loop gathers before it writes.

pub mod config;
pub mod errors;
pub mod event_loop;
mod fair;
mod monitor;
pub mod sessions;
pub mod streams;

pub use errors::{RunError, StartError};
pub use event_loop::handle::Handle;
pub use event_loop::{IdentityError, Server};
pub use monitor::Monitor;
