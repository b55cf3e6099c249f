//! The types that the JetStream API shares with streams and consumers: the configurations that clients give
//! ([`config`]) with their [`metadata`], the errors that clients get ([`error`]), the API levels that clients
//! may require ([`level`]), the numbers of messages ([`sequence`]), of streams and of moves ([`number`]), and
//! times ([`timestamp`]).

pub mod config;
pub mod error;
pub mod level;
pub mod mapping;
pub mod metadata;
pub mod number;
pub mod sequence;
pub mod timestamp;
