//! An async Redis client whose pipelining finds its own flush delay.
//!
//! Many tasks share one connection. The client writes their commands together, and one of
//! the engine's controllers decides when: **caller -> queue -> controller -> flush -> Redis
//! -> replies, in order -> caller.** With the defaults, a lone caller pays one round trip
//! and no timer is armed for it, and many callers share system calls, theirs and Redis's.
//!
//! ```no_run
//! use tidegate_redis::{Client, cmd};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("redis://localhost:6379").await?;
//! client.set("greeting", "hello").await?;
//! let greeting: String = client.get("greeting").await?;
//!
//! // Submitted when made, awaited when that suits: these three share a flush.
//! let (a, b, c) = (client.incr("n"), client.incr("n"), client.send::<i64>(cmd("STRLEN").arg("greeting")));
//! println!("{greeting} {} {} {}", a.await?, b.await?, c.await?);
//! # Ok(())
//! # }
//! ```
//!
//! # Where it runs
//!
//! The connection has one task, spawned where [`Client::open`] is called. It is fastest beside its callers on
//! one current-thread runtime: it runs behind the callers it woke, and finds their next commands there. On a
//! multi-thread runtime it works the same and costs some hops more. It needs Linux or another Unix.
//!
//! # Guarantees for callers
//!
//! - A reply goes to the caller whose command it answers. A dropped future keeps its place; its reply is thrown away.
//! - Commands of one task are executed in the order they were submitted in, but for those that take a connection of the pool
//!   ([`Cmd::bulk`], blocking ones).
//! - Commands and bytes queued and in flight are bounded ([`Config::commands_max`], [`Config::bytes_max`]); what finds no
//!   room waits or fails ([`WhenFull`]).
//! - When the connection breaks, what was written fails as "maybe executed" ([`CommandError::maybe_executed`]); what was not
//!   waits for the next connection, within its timeout.
//!
//! A [`Policy`] decides when to flush; docs/redis.md gives the cost of each.
//! [`Client::stats`] has the measurements.

mod blocking;
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
mod pool;
mod pubsub;
mod pulse;
mod reply;
mod resp;
mod run;
mod slot;
mod stats;
mod timer;
mod tls;
mod trial;
mod url;
mod wire;

pub use blocking::BlockingClient;
pub use client::{Client, Reply, connect};
pub use command::{Args, Cmd, ToArgs, cmd};
pub use commands::SetOptions;
pub use config::{Address, Config, Protocol, WhenFull};
pub use error::{CommandError, ConfigError, ConnectError, Executed};
pub use policy::{Auto, Concession, Policy, Spaced};
pub use pool::Dedicated;
pub use pubsub::{Message, Subscription};
pub use reply::{FromReply, ReplyError, ServerError, ServerErrorKind, Value, list};
pub use resp::{ProtocolError, decode};
pub use run::{Pipeline, Transaction};
pub use slot::key_slot;
pub use stats::{Depths, Stats};
pub use tls::Tls;

/// The examples in `docs/` compile.
#[cfg(doctest)]
mod docs {
    #[doc = include_str!("../../../docs/redis.md")]
    struct Redis;
}
