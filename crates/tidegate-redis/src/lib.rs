//! An async Redis client whose pipelining finds its own flush delay.

mod client;
mod command;
mod commands;
mod config;
mod conn;
mod connect;
mod driver;
mod error;
mod link;
mod nested;
mod pipeline;
mod policy;
mod pubsub;
mod pulse;
mod reply;
mod resp;
mod stats;
mod timer;
mod tls;
mod url;

pub use client::{Client, Reply, connect};
pub use command::{Cmd, ToArgs, cmd};
pub use commands::SetOptions;
pub use config::{Address, Config, Protocol, WhenFull};
pub use error::{CommandError, ConfigError, ConnectError, Executed};
pub use policy::{Auto, Concession, Policy, Spaced};
pub use reply::{FromReply, ReplyError, ServerError, ServerErrorKind, Value, list};
pub use resp::ProtocolError;
pub use stats::{Depths, Stats};
pub use tls::Tls;
