//! `peers`: runs the rivals of the queue that are Rust libraries, for a bench that controls the process by
//! lines on standard input (bench/peers/README.md). The process is long-lived, so that a bench can interleave
//! rounds of several systems.

mod histogram;
mod peers;
mod request;
mod ring;
mod run;

use std::io::{self, BufRead as _, Write as _};

use request::{Answer, Request};

/// The name of every rival, with the version that is built into this program, for the answer to `hello`.
const SYSTEMS: [(&str, &str); 6] = [
    ("bare-ring", env!("CARGO_PKG_VERSION")),
    ("crossbeam-channel", env!("VERSION_CROSSBEAM_CHANNEL")),
    ("disruptor", env!("VERSION_DISRUPTOR")),
    ("flume", env!("VERSION_FLUME")),
    ("kanal", env!("VERSION_KANAL")),
    ("tokio-mpsc", env!("VERSION_TOKIO")),
];

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer =
            answer(&line).unwrap_or_else(|error| Answer::default().text("error", &error).end());
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<String, String> {
    let request = Request::parse(line)?;
    match request.verb {
        "hello" => Ok(hello()),
        "queue" => queue(&request),
        "cores" => Ok(Answer::default()
            .float("round_trip_ns", run::core_round_trip_ns())
            .end()),
        "queue_paced" => queue_paced(&request),
        verb => Err(format!("unknown request: {verb}")),
    }
}

fn hello() -> String {
    let systems: Vec<_> = SYSTEMS
        .iter()
        .map(|(system, version)| {
            Answer::default()
                .text("system", system)
                .text("version", version)
                .end()
        })
        .collect();
    Answer::default()
        .raw("systems", &format!("[{}]", systems.join(",")))
        .end()
}

/// Calls `$run` with both ends of the named rival's queue. A function cannot do this, because each rival has
/// types of its own.
macro_rules! with_peer {
    ($system:expr, $capacity:expr, |$ends:ident| $run:expr) => {
        with_peer!(@match $system, $capacity, $ends, $run,
            "bare-ring" => bare_ring, "crossbeam-channel" => crossbeam, "disruptor" => disruptor,
            "flume" => flume, "kanal" => kanal, "tokio-mpsc" => tokio)
    };
    (@match $system:expr, $capacity:expr, $ends:ident, $run:expr, $($name:literal => $make:ident),+) => {
        match $system {
            $($name => {
                let $ends = peers::$make($capacity);
                Ok($run)
            })+
            system => Err(format!("unknown system: {system}")),
        }
    };
}

/// Returns whether the rival can insert several items by one call, so that the mode `batch` makes sense.
fn has_batch_insert<P: peers::Push, D>(_ends: &(P, D)) -> bool {
    P::BATCH_INSERT
}

fn queue(request: &Request<'_>) -> Result<String, String> {
    let (system, mode) = (request.text("system")?, request.text("mode")?);
    let (producers, items): (u64, u64) = (request.number("producers")?, request.number("items")?);
    let capacity: usize = request.number_or("capacity", CAPACITY)?;
    let batch: u64 = match mode {
        "single" => 1,
        "batch" => request.number("batch")?,
        mode => return Err(format!("mode={mode} is not supported by {system}")),
    };
    if !(1..=PRODUCERS_MAX).contains(&producers)
        || items == 0
        || !(2..=CAPACITY_MAX).contains(&capacity)
    {
        return Err("producers, items or capacity out of range".to_string());
    }
    if batch == 0 || batch > capacity as u64 {
        return Err("a batch must be within 1 and the capacity".to_string());
    }
    let (seen, batch_insert) = with_peer!(system, capacity, |ends| {
        let batch_insert = has_batch_insert(&ends);
        (run::throughput(ends, producers, batch, items), batch_insert)
    })?;
    let elapsed = seen.elapsed.as_secs_f64();
    Ok(named(
        system,
        &format!("queue {mode} p{producers} b{batch} c{capacity}"),
    )
    .float("ops_per_s", items as f64 / elapsed)
    .float("elapsed_s", elapsed)
    .float("cpu_s", seen.cpu.as_secs_f64())
    .raw("items", &items.to_string())
    .raw("batch_insert", &batch_insert.to_string())
    .raw("checksum_ok", &seen.checksum_ok.to_string())
    .end())
}

fn queue_paced(request: &Request<'_>) -> Result<String, String> {
    let system = request.text("system")?;
    let (rate, seconds): (f64, f64) = (request.number("rate")?, request.number("seconds")?);
    let capacity: usize = request.number_or("capacity", CAPACITY)?;
    let in_range =
        rate > 0.0 && rate <= 1e9 && seconds > 0.0 && seconds <= 600.0 && rate * seconds >= 1.0;
    if !in_range || !(2..=CAPACITY_MAX).contains(&capacity) {
        return Err("rate, seconds or capacity out of range".to_string());
    }
    let seen = with_peer!(system, capacity, |ends| run::paced(ends, rate, seconds))?;
    let us = |ns: f64| ns / 1e3;
    Ok(named(system, &format!("queue_paced r{rate} c{capacity}"))
        .float(
            "ops_per_s",
            seen.from_push.count() as f64 / seen.elapsed.as_secs_f64(),
        )
        .float("elapsed_s", seen.elapsed.as_secs_f64())
        .float("cpu_s", seen.cpu.as_secs_f64())
        .float("p50_us", us(seen.from_push.quantile(0.5)))
        .float("p99_us", us(seen.from_push.quantile(0.99)))
        .float("mean_us", us(seen.from_push.mean()))
        .float("max_us", us(seen.from_push.max() as f64))
        .float("due_p50_us", us(seen.from_due.quantile(0.5)))
        .float("due_p99_us", us(seen.from_due.quantile(0.99)))
        .float("due_mean_us", us(seen.from_due.mean()))
        .end())
}

fn named(system: &str, case: &str) -> Answer {
    let version = SYSTEMS
        .iter()
        .find(|(name, _)| *name == system)
        .map_or("", |(_, version)| version);
    Answer::default()
        .text("system", system)
        .text("version", version)
        .text("case", case)
}

/// The capacity of every rival's queue if the request names none: Storm's default.
const CAPACITY: usize = 32_768;

/// The greatest capacity of a queue that the program accepts, which is the limit of the Java peer.
const CAPACITY_MAX: usize = 1 << 24;

/// The greatest number of producers: enough for every request of the bench, and few enough that a typing
/// error does not start a million threads.
const PRODUCERS_MAX: u64 = 256;
