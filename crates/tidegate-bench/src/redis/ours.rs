//! The contestant of the bench `redis` that is this repository's client: its settings, and the process of its
//! callers. No other file of the bench uses the client's interface.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tidegate_load::{Ask, Client as Loaded, Running, System, serve};
use tidegate_redis::{BlockingClient, Client, Concession, Config, Policy};

use super::plain::Plain;
use super::{Cell, OURS, PLAIN, Who};
use crate::ALLOCATOR;

/// The settings of our client for callers that call again as soon as they have an answer: the default policy,
/// the default on two threads, and `off`, the policy that never waits.
const CLOSED: &[&str] = &["auto", "auto workers=2", "off"];
/// The further settings of our client in a full run. They show the gain of each part of the default policy,
/// and find the best fixed delay.
const CLOSED_FULL: &[&str] = &[
    "auto-no-spin",
    "latency",
    "off workers=2",
    "auto threads=1",
    "min-cpu:0.95",
    "fixed:20us",
    "fixed:100us",
    "fixed:500us",
];
/// The settings of our client in a cell that compares fixed delays: the policy that gives up a twentieth of
/// the throughput for the least processor time, and the delays with which it competes.
const SWEPT: &[&str] = &[
    "min-cpu:0.95",
    "off",
    "fixed:5us",
    "fixed:10us",
    "fixed:20us",
    "fixed:50us",
    "fixed:100us",
    "fixed:200us",
    "fixed:500us",
    "fixed:1000us",
    "auto-no-spin",
    "auto",
];
/// The settings of our client at a fixed rate, in the order of growing latency and falling processor time.
const OPEN: &[&str] = &[
    "auto",
    "auto workers=2",
    "min-cpu:50us",
    "min-cpu:200us",
    "min-cpu:500us",
    "min-cpu:2000us",
];
const OPEN_FULL: &[&str] = &["off", "min-cpu:100us", "min-cpu:300us", "min-cpu:1000us"];

/// Returns our client's settings for a cell. The ratios in the results compare with the first setting, which
/// is the default policy unless the cell compares fixed delays.
pub(super) fn settings(cell: &Cell, full: bool) -> Vec<Who> {
    let (short, more) = match cell.rate {
        None if cell.sweep => (SWEPT, &[][..]),
        None => (CLOSED, CLOSED_FULL),
        Some(_) if cell.compares_plain() => (&CLOSED[..2], &[][..]),
        Some(_) => (OPEN, OPEN_FULL),
    };
    let more = more.iter().filter(|_| full);
    let who = |(at, &setting): (usize, &&str)| Who {
        peer: OURS.into(),
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some(
            setting
                .replace(" workers=2", ", 2 workers")
                .replace(" threads=1", ", callers as threads"),
        ),
        settings: format!("policy={setting}"),
        subject: at == 0,
    };
    let mut all: Vec<_> = short.iter().chain(more).enumerate().map(who).collect();
    if cell.compares_plain() {
        all.push(Who {
            system: PLAIN.into(),
            version: None,
            controller: None,
            settings: String::new(),
            subject: false,
            ..all[0].clone()
        });
    }
    all
}

/// Runs the process of our own client's callers, until the bench closes its end of the pipe.
pub(crate) fn serve_callers() -> anyhow::Result<()> {
    let system = System {
        name: OURS,
        version: env!("CARGO_PKG_VERSION"),
        start: |ask| match ask.threads {
            false => Running::start::<Tasks>(ask),
            true => Running::start::<Threads>(ask),
        },
    };
    let plain = System {
        name: PLAIN,
        version: env!("CARGO_PKG_VERSION"),
        start: Running::start::<Plain>,
    };
    let allocated = || {
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        (count as u64, stats.bytes_allocated as u64)
    };
    serve(
        io::stdin().lock(),
        io::stdout().lock(),
        &[system, plain],
        allocated,
    )?;
    Ok(())
}

/// The callers of one load, each an asynchronous task with a clone of the client.
#[derive(Clone)]
struct Tasks {
    client: Client,
    /// The value that a caller sends. All commands share its memory, as in an application that avoids copies.
    value: Bytes,
}

impl Tasks {
    fn value(&mut self, text: &str) {
        if self.value.is_empty() {
            self.value = Bytes::copy_from_slice(text.as_bytes());
        }
    }
}

impl Loaded for Tasks {
    async fn connect(ask: &Ask) -> Result<Self, String> {
        let client = Client::open(config(ask)?).await.map_err(text)?;
        let value = Bytes::new();
        Ok(Self { client, value })
    }

    async fn publish(&mut self, channel: &str, message: &str) -> Result<(), String> {
        self.value(message);
        let listeners = self.client.publish(channel, &self.value).await;
        listeners.map(drop).map_err(text)
    }

    async fn get(&mut self, key: &str) -> Result<usize, String> {
        let value = self.client.get::<Bytes>(key).await;
        value.map(|value| value.len()).map_err(text)
    }

    async fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        self.value(value);
        self.client.set(key, &self.value).await.map_err(text)
    }
}

/// The callers of one load, each an operating-system thread that blocks while it waits.
#[derive(Clone)]
struct Threads(BlockingClient);

impl Loaded for Threads {
    const BLOCKS: bool = true;

    async fn connect(ask: &Ask) -> Result<Self, String> {
        BlockingClient::open(config(ask)?).map(Self).map_err(text)
    }

    async fn publish(&mut self, channel: &str, message: &str) -> Result<(), String> {
        let listeners = self.0.wait(|client| client.publish(channel, message));
        listeners.map(drop).map_err(text)
    }

    async fn get(&mut self, key: &str) -> Result<usize, String> {
        let value = self.0.wait(|client| client.get::<Bytes>(key));
        value.map(|value| value.len()).map_err(text)
    }

    async fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        self.0.wait(|client| client.set(key, value)).map_err(text)
    }
}

fn config(ask: &Ask) -> Result<Config, String> {
    if ask.delay.is_some() {
        return Err(format!(
            "delay_us is not supported by {OURS}: give policy=fixed:US"
        ));
    }
    let config = Config::from_url(&format!("redis://{}", ask.addr)).map_err(text)?;
    match &ask.policy {
        Some(policy) => with_policy(config, policy),
        None => Ok(config),
    }
}

/// Parses a policy of our client: `auto`, `auto-no-spin`, `latency`, `off`, `fixed:100us`,
/// `rueidis-stats:100us`, `min-cpu:0.95` or `min-cpu:200us`.
fn with_policy(config: Config, name: &str) -> Result<Config, String> {
    let refused = || format!("policy={name}: there is no such policy");
    let delay = |text: &str| -> Option<Duration> {
        let us = text.strip_suffix("us")?.parse().ok()?;
        Some(Duration::from_micros(us))
    };
    let (rule, of) = name.split_once(':').unwrap_or((name, ""));
    Ok(match (rule, of) {
        ("auto", "") => config,
        ("auto-no-spin", "") => config.spin(false),
        ("latency", "") => config.policy(Policy::Latency),
        ("off", "") => config.policy(Policy::Off),
        ("fixed", of) => config.policy(Policy::Fixed(delay(of).ok_or_else(refused)?)),
        ("rueidis-stats", of) => {
            config.policy(Policy::RueidisStats(delay(of).ok_or_else(refused)?))
        }
        ("min-cpu", of) => {
            let added = delay(of).map(Concession::AddedLatency);
            let fraction = || of.parse().ok().map(Concession::ThroughputFraction);
            let concession = added.or_else(fraction).ok_or_else(refused)?;
            config.policy(Policy::MinCpu(concession))
        }
        _ => return Err(refused()),
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_names_a_policy() {
        let lists = [CLOSED, CLOSED_FULL, SWEPT, OPEN, OPEN_FULL];
        for setting in lists.concat() {
            let policy = setting.split(' ').next().unwrap_or_default();
            let config = Config::from_url("redis://localhost").unwrap();
            assert!(with_policy(config, policy).is_ok(), "{setting}");
        }
        for wrong in ["", "auto:1us", "fixed", "fixed:1", "min-cpu:", "slow"] {
            let config = Config::from_url("redis://localhost").unwrap();
            let refused = with_policy(config, wrong).unwrap_err();
            assert_eq!(refused, format!("policy={wrong}: there is no such policy"));
        }
    }
}
