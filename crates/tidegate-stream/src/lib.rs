//! Streams of messages and their consumers, as pure code: the state machine that each node of a group applies
//! the same entries to, and the JetStream API around it. No socket, no file, no clock.
//!
//! [`stream`] holds the streams and applies entries to them. [`consumer`] decides deliveries, redeliveries
//! and acknowledgements. [`ingest`] takes batches of messages. [`api`] reads the requests of clients and
//! writes the answers; [`schema`] holds the configurations and errors that all of them share.

pub mod api;
pub mod consumer;
pub mod ingest;
pub mod schema;
pub mod stream;
