//! Runs one turn of the bench `features`, which is one cell on one server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tidegate_cli::interrupt;

use super::cell::{COPIES, Cell, Feature, PAYLOAD_BYTES, origin};
use crate::many::requests::Requests;
use crate::many::system::{Home, Running};
use crate::rounds::Sample;
use crate::systems::System;
use crate::wire::{Op, Wire};

/// The messages for which a worker asks at once.
const PULL: u64 = 200;
/// The time that the server keeps a pull open, in nanoseconds.
const PULL_EXPIRES_NS: u64 = 1_000_000_000;
/// The pause between two looks at a stream that takes in messages or gives them away.
const LOOK: Duration = Duration::from_millis(10);
const CONSUMER: &str = "WORKERS";

/// The settings of all turns of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) directory: PathBuf,
    pub(super) nats_server: Option<PathBuf>,
    pub(super) in_flight: u64,
    /// The longest time of each part of a turn.
    pub(super) patience: Duration,
}

impl Plan {
    /// Runs the cell on a fresh server, and measures it.
    ///
    /// # Errors
    /// The server does not start, refuses a request, or does not finish in time.
    pub(super) fn turn(&self, cell: &Cell, system: System) -> anyhow::Result<Sample> {
        let home = Home {
            system,
            directory: self.directory.join("server"),
            nats_server: self.nats_server.clone(),
            patience: self.patience,
            members: Vec::new(),
        };
        if home.directory.exists() {
            std::fs::remove_dir_all(&home.directory)?;
        }
        let sample = self.run(cell, &home);
        // The bench removes the data, because the next server starts with an empty directory.
        let _ = std::fs::remove_dir_all(&home.directory);
        sample
    }

    fn run(&self, cell: &Cell, home: &Home) -> anyhow::Result<Sample> {
        let mut running =
            home.start(|wire, until| wire.api("INFO", &json!({}), until).map(drop))?;
        for config in cell.streams() {
            create(&mut running.wire, &config, self.until())?;
        }
        let prepared = match cell.feature {
            Feature::Republish => None,
            _ => Some(self.publish(&mut running, cell)?),
        };
        let cpu_before = running.server.cpu_ns()?;
        let start = Instant::now();
        let end = match (cell.feature, cell.taker()) {
            (Feature::WorkQueue { workers }, _) => self.work(&mut running, cell, workers)?,
            (Feature::Republish, _) => self.hear(&mut running, cell)?,
            (_, Some(taker)) => self.take_in(&mut running, cell, &taker)?,
            (_, None) => bail!("the cell has no taker"),
        };
        let seconds = (end - start).as_secs_f64();
        let cpu_ns = running.server.cpu_ns()? - cpu_before;
        let mut sample = Sample {
            ops_per_s: cell.messages as f64 / seconds.max(1e-9),
            cpu_s: Some(cpu_ns as f64 / 1e9),
            rss_mb: running.server.rss_mb(),
            ..Sample::default()
        };
        let mut put = |key: &str, value| sample.extra.insert(key.into(), value);
        put("server_cpu_us", cpu_ns as f64 / 1e3 / cell.messages as f64);
        if let Some(seconds) = prepared {
            put("published_per_s", cell.messages as f64 / seconds.max(1e-9));
        }
        Ok(sample)
    }

    fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Publishes all messages of the cell with acknowledgements, and returns the time in seconds.
    fn publish(&self, running: &mut Running, cell: &Cell) -> anyhow::Result<f64> {
        let server = &running.server;
        let watch = || server.rss_mb().map(drop).context("the server is gone");
        let requests = Requests {
            count: cell.messages,
            in_flight: self.in_flight,
            time: self.patience,
            watch: &watch,
        };
        let made = requests.run(&mut running.wire, |n| {
            (cell.subject(n), "x".repeat(PAYLOAD_BYTES))
        });
        if let Some(error) = made.error {
            bail!("not published: {error}");
        }
        ensure!(made.count == cell.messages, "not published in time");
        Ok(made.seconds)
    }

    /// Creates the stream that takes in all messages, and returns the time at which it has them.
    fn take_in(
        &self,
        running: &mut Running,
        cell: &Cell,
        taker: &Value,
    ) -> anyhow::Result<Instant> {
        let until = self.until();
        create(&mut running.wire, taker, until)?;
        let wire = &mut running.wire;
        wait(wire, "TAKER", until, |messages| messages == cell.messages)
    }

    /// Publishes all messages while a subscriber hears the copies, and returns the time at which the
    /// subscriber has all copies and the publisher all acknowledgements.
    fn hear(&self, running: &mut Running, cell: &Cell) -> anyhow::Result<Instant> {
        let until = self.until();
        let mut ear = Wire::open(running.server.addr(), None, ("", ""), self.patience)?;
        ear.write(format!("SUB {COPIES} 1\r\n").as_bytes())?;
        ear.settle(until)?;
        let heard = std::thread::scope(|scope| {
            let heard = scope.spawn(|| {
                let mut heard = 0;
                while heard < cell.messages {
                    heard +=
                        ear.next(until, |op| Ok(u64::from(matches!(op, Op::Message { .. }))))?;
                }
                anyhow::Ok(())
            });
            let published = self.publish(running, cell);
            let heard = heard.join();
            let heard = heard.map_err(|_| anyhow::anyhow!("the subscriber panicked"))?;
            published?;
            heard
        });
        heard.context("not all copies arrived")?;
        Ok(Instant::now())
    }

    /// Lets workers take and acknowledge all messages, and returns the time at which the queue is empty. The
    /// last pulls of the workers end later.
    fn work(&self, running: &mut Running, cell: &Cell, workers: u64) -> anyhow::Result<Instant> {
        let (until, stream) = (self.until(), origin(0));
        let config = json!({ "durable_name": CONSUMER, "ack_policy": "explicit", "max_ack_pending": 100_000 });
        let body = json!({ "stream_name": stream, "config": config });
        let what = format!("CONSUMER.DURABLE.CREATE.{stream}.{CONSUMER}");
        running.wire.api(&what, &body, until)?;
        let (addr, done) = (running.server.addr(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let worker = |_| {
                scope.spawn(|| {
                    let mut wire = Wire::open(addr, None, ("", ""), self.patience)?;
                    serve(&mut wire, &stream, &done, cell.messages, until)
                })
            };
            let all: Vec<_> = (0..workers).map(worker).collect();
            let end = wait(&mut running.wire, &stream, until, |messages| messages == 0);
            for worker in all {
                let ended = worker.join();
                ended.map_err(|_| anyhow::anyhow!("a worker panicked"))??;
            }
            end
        })
    }
}

/// Takes messages from the work queue and acknowledges each, until the workers together have all of them.
fn serve(
    wire: &mut Wire,
    stream: &str,
    done: &AtomicU64,
    messages: u64,
    until: Instant,
) -> anyhow::Result<()> {
    let local = wire.stream.local_addr()?;
    let inbox = format!("_INBOX.worker{}", local.port());
    let pull = json!({ "batch": PULL, "expires": PULL_EXPIRES_NS }).to_string();
    wire.write(format!("SUB {inbox} 1\r\n").as_bytes())?;
    let pull = format!(
        "PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.{CONSUMER} {inbox} {}\r\n{pull}\r\n",
        pull.len()
    );
    let mut out = String::new();
    let mut asked = 0;
    while done.load(Ordering::Relaxed) < messages {
        ensure!(!interrupt::asked(), "interrupted");
        if asked == 0 {
            out += &pull;
            asked = PULL;
        }
        if !out.is_empty() && !wire.is_buffered()? {
            wire.write(out.as_bytes())?;
            out.clear();
        }
        wire.next(until, |op| {
            match op {
                Op::Message {
                    reply: Some(reply), ..
                } => {
                    out += &format!("PUB {reply} 0\r\n\r\n");
                    asked = asked.saturating_sub(1);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                // The server ends the pull with a status, for example because it has expired.
                Op::Message { .. } => asked = 0,
                _ => {}
            }
            Ok(())
        })?;
    }
    wire.write(out.as_bytes())?;
    wire.settle(until)
}

fn create(wire: &mut Wire, config: &Value, until: Instant) -> anyhow::Result<()> {
    let name = config["name"].as_str().unwrap_or_default();
    wire.api(&format!("STREAM.CREATE.{name}"), config, until)
        .map(drop)
}

/// Waits until the number of a stream's messages is as wanted, and returns that time.
fn wait(
    wire: &mut Wire,
    stream: &str,
    until: Instant,
    wanted: impl Fn(u64) -> bool,
) -> anyhow::Result<Instant> {
    let what = format!("STREAM.INFO.{stream}");
    loop {
        let info = wire.api(&what, &json!({}), until)?;
        let messages = info["state"]["messages"].as_u64().unwrap_or_default();
        if wanted(messages) {
            return Ok(Instant::now());
        }
        ensure!(!interrupt::asked(), "interrupted");
        ensure!(
            Instant::now() < until,
            "{stream} has {messages} messages in the end"
        );
        std::thread::sleep(LOOK);
    }
}
