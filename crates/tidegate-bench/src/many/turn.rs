//! Runs one turn of the bench `many`, which is one cell on one server: makes the cell's streams, consumers or
//! subjects, measures the idle server, publishes alone, and starts the server again after a kill and after a
//! stop.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::cell::{
    Cell, ONE, Request, Thing, create_consumer, create_last_consumer, create_stream, filter,
};
use super::figures::Held;
use super::requests::{Made, Requests, lone};
use super::system::{Home, Running, members};
use crate::handlers::sync_us;
use crate::latency::{self, quantile_us};
use crate::rounds::{Sample, median};
use crate::stream::Server;
use crate::systems::System;
use crate::wire::Wire;

/// The number of messages that a lone publisher sends, each after the answer to the one before, to measure
/// its wait.
const LONE: u64 = 200;
/// The number of requests for the information of a stream, of which the bench takes the median time.
const INFOS: usize = 9;
/// The subject of the first stream, which at first is the only stream of the server.
const ONE_SUBJECT: &str = "one";

/// The settings of all turns of a run. A turn is one cell on one server.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) directory: PathBuf,
    pub(super) nats_server: Option<PathBuf>,
    pub(super) in_flight: u64,
    /// The time for which the bench measures the processor time of the idle server.
    pub(super) idle: Duration,
    /// The longest time for which the bench waits until the server is at rest, before the bench measures it
    /// anyway.
    pub(super) rest_max: Duration,
    /// The longest time that the server may take to make the things of a cell, and for each of its starts and
    /// stops.
    pub(super) cell_max: Duration,
    /// The limit of the server's resident memory, in MiB: above it the bench ends a cell.
    pub(super) rss_max_mb: f64,
}

/// The figures of one cell of the bench `many` on one server, for the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) sample: Sample,
    /// Remarks on the figures, which the table shows to the user.
    pub(super) notes: Vec<String>,
    /// The error that ended the turn early; `None` if the turn is complete, or only its time ran out.
    pub(super) error: Option<String>,
}

impl Outcome {
    fn put(&mut self, key: &str, value: f64) {
        self.sample.extra.insert(key.into(), value);
    }
}

impl Plan {
    /// Runs the cell on a fresh server, and measures it.
    ///
    /// # Errors
    ///
    /// The server does not start, or refuses a single stream.
    pub(super) fn turn(&self, cell: &Cell, system: System) -> anyhow::Result<Outcome> {
        let home = Home {
            system,
            directory: self.directory.join("server"),
            nats_server: self.nats_server.clone(),
            patience: self.cell_max,
            members: members(cell.nodes)?,
        };
        if home.directory.exists() {
            std::fs::remove_dir_all(&home.directory)?;
        }
        let mut outcome = Outcome::default();
        let ran = self.run(cell, &home, &mut outcome);
        // The bench removes the data, because the next server starts with an empty directory.
        let _ = std::fs::remove_dir_all(&home.directory);
        match ran {
            Err(e) if outcome.sample.ops_per_s > 0.0 => outcome.error = Some(format!("{e:#}")),
            ran => ran?,
        }
        Ok(outcome)
    }

    fn run(&self, cell: &Cell, home: &Home, outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut running = home.start(|wire, until| {
            let (subject, body) = create_stream(ONE, ONE_SUBJECT, cell.nodes);
            asked(wire, &(subject, body), until).map(drop)
        })?;
        let alone = lone(&mut running.wire, ONE_SUBJECT, LONE, self.until())?;
        put_latencies(outcome, "alone_", &alone);
        outcome.put("alone_sync_us", sync_us(&self.directory)?);
        let prepared = self.make(&mut running, cell.prepared(), |n| cell.prepare(n));
        if let Some(error) = prepared.error {
            bail!("not prepared: {error}");
        }
        ensure!(prepared.count == cell.prepared(), "not prepared in time");

        let (rss_before_mb, _) = self.rest(&running, outcome)?;
        let cpu_before = running.ticked_s()?;
        let made = self.make(&mut running, cell.count, |n| cell.make(n));
        self.put_made(cell, &made, outcome);
        if let Some(error) = made.error {
            bail!(error);
        }
        ensure!(made.count > 0, "nothing is made in time");
        let count = made.count as f64;
        let cpu_s = running.ticked_s()? - cpu_before;
        outcome.sample.cpu_s = Some(cpu_s);
        outcome.put("server_cpu_us", cpu_s * 1e6 / count);

        let (rss_mb, at_rest) = self.rest(&running, outcome)?;
        outcome.sample.rss_mb = Some(rss_mb);
        outcome.put("rss_before_mb", rss_before_mb);
        outcome.put("bytes_each", (rss_mb - rss_before_mb) * 1_048_576.0 / count);
        if !at_rest {
            let seconds = self.rest_max.as_secs();
            let note = format!("memory or processor time is not steady after {seconds} s");
            outcome.notes.push(note);
        }
        outcome.put("idle_cpu_percent", running.idle_percent(self.idle)?);
        let (stream, subject) = cell.last(made.count);
        let last = lone(&mut running.wire, &subject, LONE, self.until())?;
        latency::put(&mut outcome.sample, &last);
        outcome.put("sync_us", sync_us(&self.directory)?);
        if cell.thing == Thing::Subjects {
            self.ask_about(&mut running.wire, &stream, outcome)?;
        }
        self.restarts(home, running, (&stream, &subject), outcome)
    }

    fn until(&self) -> Instant {
        Instant::now() + self.cell_max
    }

    /// Sends requests to the server, and stops if the server takes too much memory.
    pub(super) fn make(
        &self,
        running: &mut Running,
        count: u64,
        request: impl Fn(u64) -> Request,
    ) -> Made {
        let (server, others, max) = (&running.server, &running.others, self.rss_max_mb);
        let watch = || {
            let all = std::iter::once(server).chain(others);
            let rss: Option<f64> = all.map(Server::rss_mb).sum();
            let rss = rss.context("the server is gone")?;
            ensure!(
                rss <= max,
                "the server has more than {max:.0} MiB of memory"
            );
            Ok(())
        };
        let requests = Requests {
            count,
            in_flight: self.in_flight,
            time: self.cell_max,
            watch: &watch,
        };
        requests.run(&mut running.wire, request)
    }

    fn put_made(&self, cell: &Cell, made: &Made, outcome: &mut Outcome) {
        outcome.sample.ops_per_s = made.count as f64 / made.seconds.max(1e-9);
        outcome.put("count", cell.count as f64);
        outcome.put("made", made.count as f64);
        outcome.put("made_s", made.seconds);
        // If a cell has few requests, their answers come in a few bursts, which say nothing about a tenth of
        // the work. So the bench shows no rates for its first and last tenth.
        let enough = cell.count >= 20 * self.in_flight;
        if let Some((first, last)) = made.tenths.rates().filter(|_| enough) {
            outcome.put("first_tenth_per_s", first);
            outcome.put("last_tenth_per_s", last);
        }
        if made.count < cell.count {
            let (made, count) = (made.count, cell.count);
            let note = format!(
                "made {made} of {count} within {:.0} s",
                self.cell_max.as_secs()
            );
            outcome.notes.push(note);
        }
    }

    fn rest(&self, running: &Running, outcome: &mut Outcome) -> anyhow::Result<(f64, bool)> {
        let start = Instant::now();
        let rest = running.rest(self.idle, self.rest_max)?;
        // A turn waits twice until the server is at rest, and this figure keeps the second wait: the time
        // that the server took to come to rest after it had made the things.
        outcome.put("rest_s", start.elapsed().as_secs_f64());
        Ok(rest)
    }

    /// Measures requests about a stream: for its information, and for a consumer of all subjects, of a part
    /// of the subjects, and of the last message of each subject.
    fn ask_about(
        &self,
        wire: &mut Wire,
        stream: &str,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let info = (format!("$JS.API.STREAM.INFO.{stream}"), String::new());
        let mut took = Vec::new();
        for _ in 0..INFOS {
            took.push(timed(wire, &info, self.until())?);
        }
        outcome.put("info_ms", median(took).unwrap_or_default());
        for (key, name, create) in [
            ("consumer_ms", "ALL", create_consumer(stream, "ALL", None)),
            (
                "filtered_consumer_ms",
                "PART",
                create_consumer(stream, "PART", Some(filter())),
            ),
            (
                "last_consumer_ms",
                "LAST",
                create_last_consumer(stream, "LAST"),
            ),
        ] {
            outcome.put(key, timed(wire, &create, self.until())?);
            let delete = format!("$JS.API.CONSUMER.DELETE.{stream}.{name}");
            asked(wire, &(delete, String::new()), self.until())?;
        }
        Ok(())
    }

    /// Kills the server and starts it again, then stops it and starts it again. Measures the times of the
    /// starts and of the stop.
    fn restarts(
        &self,
        home: &Home,
        mut running: Running,
        (stream, subject): (&str, &str),
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let mut wanted = held(&mut running.wire, stream, self.until())?;
        let first = |wire: &mut Wire, until: Instant| {
            let info = (format!("$JS.API.STREAM.INFO.{stream}"), String::new());
            asked(wire, &info, until)?;
            lone(wire, subject, 1, until).map(drop)
        };
        let mut start = |after: &str, outcome: &mut Outcome| {
            let mut running = home
                .start(first)
                .with_context(|| format!("after a {after}"))?;
            outcome.put(&format!("start_after_{after}_ms"), millis(running.started));
            if let Some(rss_mb) = running.rss_mb() {
                outcome.put(&format!("rss_after_{after}_mb"), rss_mb);
            }
            let has = held(&mut running.wire, stream, self.until())?;
            // A restarted server counts as started only after it has stored one more message.
            wanted.messages += 1;
            let differs = has.differs(&wanted);
            outcome
                .notes
                .extend(differs.map(|text| format!("after a {after} {text}")));
            wanted = has;
            Ok::<_, anyhow::Error>(running)
        };
        running.kill();
        let running = start("kill", outcome)?;
        outcome.put("stop_ms", millis(running.stop(self.cell_max)?));
        start("stop", outcome)?.kill();
        Ok(())
    }
}

fn put_latencies(outcome: &mut Outcome, prefix: &str, latencies: &Histogram<u64>) {
    for (name, q) in [("p50_us", 0.5), ("p99_us", 0.99)] {
        outcome.put(&format!("{prefix}{name}"), quantile_us(latencies, q));
    }
}

/// Sends a request to the server's API of streams, and returns the answer.
fn asked(wire: &mut Wire, (subject, body): &Request, until: Instant) -> anyhow::Result<Value> {
    let answer: Value = serde_json::from_slice(&wire.ask(subject, body, until)?)?;
    ensure!(
        answer.get("error").is_none(),
        "{subject}: {}",
        answer["error"]
    );
    Ok(answer)
}

/// Sends a request to the server's API of streams, and returns the time until the answer in milliseconds.
fn timed(wire: &mut Wire, request: &Request, until: Instant) -> anyhow::Result<f64> {
    let start = Instant::now();
    asked(wire, request, until)?;
    Ok(millis(start.elapsed()))
}

/// Returns the numbers of streams, consumers and messages that the server reports, to check them.
fn held(wire: &mut Wire, stream: &str, until: Instant) -> anyhow::Result<Held> {
    let account = wire.api("INFO", &json!({}), until)?;
    let info = wire.api(&format!("STREAM.INFO.{stream}"), &json!({}), until)?;
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    Ok(Held {
        streams: count(&account["streams"]),
        consumers: count(&account["consumers"]),
        messages: count(&info["state"]["messages"]),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
