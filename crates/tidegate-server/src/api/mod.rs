//! The JetStream API as pure code: requests in, answers out. No clock, no socket, no file.
//!
//! [`config`] holds what users ask of streams and consumers, [`error`] every error a client can be told, [`timestamp`]
//! the times in both.

pub mod config;
pub mod error;
pub mod timestamp;
