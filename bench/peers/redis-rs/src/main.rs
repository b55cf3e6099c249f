//! Runs the Redis clients in Rust that the bench compares with Tidegate's, each with one multiplexed
//! connection, for a bench that controls the process by lines on standard input (bench/peers/README.md). The
//! callers come from `bench/load`, as for our own client.

use std::alloc::System as Allocator;
use std::io;

use redis::aio::MultiplexedConnection;
use rustis::client::Client as Rustis;
use rustis::commands::{PubSubCommands as _, StringCommands as _};
use rustis::resp::BulkString;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tidegate_load::{Ask, Client, Running, System, serve};

/// Counts allocations, as the program of our own client does, so that the figures are comparable.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<Allocator> = &INSTRUMENTED_SYSTEM;

const SYSTEMS: [System; 2] = [
    System {
        name: "redis-rs",
        version: env!("VERSION_REDIS"),
        start: Running::start::<RedisRs>,
    },
    System {
        name: "rustis",
        version: env!("VERSION_RUSTIS"),
        start: Running::start::<OfRustis>,
    },
];

fn main() -> io::Result<()> {
    serve(io::stdin().lock(), io::stdout().lock(), &SYSTEMS, || {
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        (count as u64, stats.bytes_allocated as u64)
    })
}

/// Refuses the settings `delay_us` and `policy`, because neither of these two clients has them.
fn refuse_settings(ask: &Ask) -> Result<(), String> {
    let set = [
        ("delay_us", ask.delay.is_some()),
        ("policy", ask.policy.is_some()),
    ];
    match set.into_iter().find(|(_, set)| *set) {
        Some((key, _)) => Err(format!("{key} is not supported by {}", ask.system)),
        None => Ok(()),
    }
}

#[derive(Clone)]
struct RedisRs(MultiplexedConnection);

impl Client for RedisRs {
    async fn connect(ask: &Ask) -> Result<Self, String> {
        refuse_settings(ask)?;
        let client = redis::Client::open(format!("redis://{}/", ask.addr)).map_err(text)?;
        let connected = client.get_multiplexed_async_connection().await;
        connected.map(Self).map_err(text)
    }

    async fn publish(&mut self, channel: &str, message: &str) -> Result<(), String> {
        let mut command = redis::cmd("PUBLISH");
        let command = command.arg(channel).arg(message);
        let listeners: Result<u64, _> = command.query_async(&mut self.0).await;
        listeners.map(drop).map_err(text)
    }

    async fn get(&mut self, key: &str) -> Result<usize, String> {
        let mut command = redis::cmd("GET");
        let value: Result<Vec<u8>, _> = command.arg(key).query_async(&mut self.0).await;
        value.map(|value| value.len()).map_err(text)
    }

    async fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let mut command = redis::cmd("SET");
        let command = command.arg(key).arg(value);
        command.query_async(&mut self.0).await.map_err(text)
    }
}

#[derive(Clone)]
struct OfRustis(Rustis);

impl Client for OfRustis {
    async fn connect(ask: &Ask) -> Result<Self, String> {
        refuse_settings(ask)?;
        let connected = Rustis::connect(format!("redis://{}", ask.addr)).await;
        connected.map(Self).map_err(text)
    }

    async fn publish(&mut self, channel: &str, message: &str) -> Result<(), String> {
        let listeners = (&self.0).publish(channel, message).await;
        listeners.map(drop).map_err(text)
    }

    async fn get(&mut self, key: &str) -> Result<usize, String> {
        let value: Result<BulkString, _> = (&self.0).get(key).await;
        value.map(|value| value.len()).map_err(text)
    }

    async fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        (&self.0).set(key, value).await.map_err(text)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
