//! An async Redis client with pipelining: it adapts the delay before it writes queued commands to the load.
//!
//! Many tasks share one connection. The client writes their commands together, and one of the
//! engine's controllers decides when: **caller -> queue -> controller -> flush -> Redis ->
//! replies, in order -> caller.** With the defaults, a lone caller pays one round trip and the
//! client arms no timer for it. Many callers share system calls, both the client's and Redis's.
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
//! [`Client::open`] spawns the one task of a connection on the runtime of its caller. The client is fastest
//! if this task and its callers share one current-thread runtime: the task then runs after the callers that
//! it woke, and finds their next commands in the queue. On a multi-thread runtime the client works the same,
//! but each command then costs some wake-ups of other threads. The client needs Linux or another Unix.
//!
//! # Guarantees for callers
//!
//! - The client hands each reply to the caller that submitted the command. A dropped
//!   future keeps its place in the order of replies, and the client discards its reply.
//! - Redis executes the commands of one task in the order in which the task submits them,
//!   except for commands that take a connection of the pool ([`Cmd::bulk`], blocking ones).
//! - The commands and bytes queued and in flight are bounded ([`Config::commands_max`],
//!   [`Config::bytes_max`]). A command that exceeds the bound waits or fails ([`WhenFull`]).
//! - If the connection breaks, the commands already written fail as "maybe executed"
//!   ([`CommandError::maybe_executed`]). The queued commands wait for the next connection, within
//!   their timeout.
//!
//! A [`Policy`] decides when to flush; docs/redis.md gives the cost of each.
//! [`Client::stats`] has the measurements.

mod blocking;
mod call;
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
pub use call::Reply;
pub use client::{Client, connect};
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
