//! The terms that the API shares with streams and consumers: the configurations that clients give
//! ([`config`]), the errors that they get ([`error`]), the levels that they may require ([`level`]), the
//! numbers of messages ([`sequence`]), of streams and of moves ([`number`]), and times ([`timestamp`]).

pub mod config;
pub mod error;
pub mod level;
pub mod number;
pub mod sequence;
pub mod timestamp;
