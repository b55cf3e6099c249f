//! Streams as a replicated state machine: committed entries in, outcomes and effects out. No clock, no file, no socket.
//!
//! [`command`] is what entries hold.

pub mod command;

pub use command::{Command, EncodeError, Encoder, Entry, EntryError, Kind, Place};
