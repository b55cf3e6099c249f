//! The loop of the bench `many` that makes and deletes streams on a server, to find what grows with their
//! number: the memory, the files of the log, or the checkpoints.
//!
//! A round makes streams with messages, consumers and pulls that wait there, and deletes the streams. Some
//! names come again and again, others once. The simulation of the loop (`tests/busy/churn.rs` of the server)
//! looks at the lists of the server; this bench looks at the process and its files from outside.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tidegate_cli::interrupt;
use tidegate_cli::report::{OURS, Row, Table, count, number};

use super::cell::{Request, create_consumer, create_stream};
use super::system::{Home, Running};
use super::turn::Plan;
use crate::systems::System;

/// The streams of a round, and the messages and consumers of each.
const STREAMS: u64 = 50;
const MESSAGES: u64 = 8;
/// The length of a message, in bytes, which fills the log in a short time.
const MESSAGE_BYTES: usize = 2048;
/// The number of parts of the time, after each of which the bench looks at the server.
const PARTS: u32 = 10;
/// The first part that counts for the growth: before it the server fills its caches and its first segments.
const FIRST: usize = 2;
/// The share by which a figure may be greater in the second half than in the first, and the amount, in MiB,
/// that it may be greater in any case: a segment of the log, a checkpoint beside the last one, or a buffer.
const SHARE: f64 = 0.1;
const LEAST_MB: f64 = 80.0;

/// The figures of the server after a part of the time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tenth {
    pub(super) at_s: f64,
    /// The number of streams that the bench has made and deleted so far.
    pub(super) streams: u64,
    pub(super) rss_mb: f64,
    /// The space of the log's segments and of the checkpoints on the disk, in MiB, and (`files`) the number
    /// of all files.
    pub(super) log_mb: f64,
    pub(super) checkpoints_mb: f64,
    pub(super) files: u64,
}

/// A figure that may grow, with its name for the user.
type Figure = (&'static str, fn(&Tenth) -> f64);

const FIGURES: [Figure; 3] = [
    ("memory", |tenth| tenth.rss_mb),
    ("log", |tenth| tenth.log_mb),
    ("checkpoints", |tenth| tenth.checkpoints_mb),
];

/// Runs the loop on a fresh server for this time.
///
/// # Errors
///
/// The server does not start, refuses a request, or ends.
pub(super) fn run(plan: &Plan, time: Duration) -> anyhow::Result<Vec<Tenth>> {
    let home = Home {
        system: System::Ours,
        directory: plan.directory.join("server"),
        nats_server: None,
        patience: plan.cell_max,
        members: Vec::new(),
    };
    let tenths = churn(plan, &home, time);
    // The bench removes the data also after an error, because they may be large.
    let _ = std::fs::remove_dir_all(&home.directory);
    tenths
}

fn churn(plan: &Plan, home: &Home, time: Duration) -> anyhow::Result<Vec<Tenth>> {
    let mut running = home.start(|wire, until| wire.settle(until))?;
    let (start, mut tenths, mut rounds) = (Instant::now(), Vec::new(), 0);
    for part in 1..=PARTS {
        let end = start + time * part / PARTS;
        while Instant::now() < end {
            ensure!(!interrupt::asked(), "interrupted");
            round(plan, &mut running, rounds)?;
            rounds += 1;
        }
        let (log_mb, checkpoints_mb, files) = space(&home.directory.join("data"))?;
        tenths.push(Tenth {
            at_s: start.elapsed().as_secs_f64(),
            streams: rounds * STREAMS,
            rss_mb: running.rss_mb().context("the server is gone")?,
            log_mb,
            checkpoints_mb,
            files,
        });
    }
    let account = running
        .wire
        .api("INFO", &serde_json::json!({}), start + time + plan.cell_max)?;
    let left = account["streams"].as_u64();
    ensure!(
        left == Some(0),
        "expected no streams at the end, the server has {left:?}"
    );
    Ok(tenths)
}

/// Makes, uses and deletes the streams of a round. Each step ends before the next one begins.
fn round(plan: &Plan, running: &mut Running, round: u64) -> anyhow::Result<()> {
    let name = |n: u64| match round % 3 {
        0 => format!("ONCE-{round}-{n}"),
        _ => format!("AGAIN-{n}"),
    };
    let payload = "x".repeat(MESSAGE_BYTES);
    let publish = |n: u64| {
        let stream = name(n / MESSAGES);
        (format!("{stream}.{}", n % MESSAGES), payload.clone())
    };
    let delete = |n: u64| (format!("$JS.API.STREAM.DELETE.{}", name(n)), String::new());
    step(plan, running, STREAMS, |n| {
        let stream = name(n);
        create_stream(&stream, &format!("{stream}.>"), 1)
    })?;
    step(plan, running, STREAMS * MESSAGES, publish)?;
    step(plan, running, STREAMS, |n| {
        create_consumer(&name(n), "C", None)
    })?;
    let mut pulls = String::new();
    for n in 0..STREAMS {
        let body = r#"{"batch":100,"expires":30000000000}"#;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.C", name(n));
        pulls += &format!("PUB {subject} _INBOX.none {}\r\n{body}\r\n", body.len());
    }
    running.wire.write(pulls.as_bytes())?;
    step(plan, running, STREAMS, delete)
}

/// Sends these requests, and waits for the answers to all of them.
fn step(
    plan: &Plan,
    running: &mut Running,
    count: u64,
    request: impl Fn(u64) -> Request,
) -> anyhow::Result<()> {
    let made = plan.make(running, count, request);
    match made.error {
        Some(error) => bail!(error),
        None if made.count < count => {
            bail!("the server answers {} of {count} requests", made.count)
        }
        None => Ok(()),
    }
}

/// Returns the space of the log's segments and of the checkpoints in the server's data directory, in MiB, and
/// the number of its files.
fn space(data: &Path) -> anyhow::Result<(f64, f64, u64)> {
    let (mut log, mut checkpoints, mut files) = (0, 0, 0);
    let mut directories = vec![data.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            // The server may have removed the file meanwhile.
            let Ok(about) = entry.metadata() else {
                continue;
            };
            if about.is_dir() {
                directories.push(entry.path());
                continue;
            }
            files += 1;
            let (name, bytes) = (entry.file_name(), about.len());
            let name = name.to_string_lossy();
            if name.ends_with(".seg") {
                log += bytes;
            } else if name.starts_with("state-") {
                checkpoints += bytes;
            }
        }
    }
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    Ok((mib(log), mib(checkpoints), files))
}

/// Returns a sentence for each figure that is greater in the second half of the parts than in the first. The
/// first parts do not count.
pub(super) fn growth(tenths: &[Tenth]) -> Vec<String> {
    let (first, second) = tenths.split_at(tenths.len() / 2);
    let first = first.get(FIRST..).unwrap_or_default();
    let grows = |(name, of): &Figure| {
        let most = |part: &[Tenth]| part.iter().map(of).fold(0.0, f64::max);
        let (before, after) = (most(first), most(second));
        let is_greater = after > before * (1.0 + SHARE) && after > before + LEAST_MB;
        let text = || {
            format!(
                "the {name} grows: at most {before:.1} MiB in the first half, then {after:.1} MiB"
            )
        };
        is_greater.then(text)
    };
    FIGURES.iter().filter_map(grows).collect()
}

/// Formats the figures for the user.
pub(super) fn table(tenths: &[Tenth]) -> String {
    let mut table = Table::new([
        "seconds",
        "streams",
        "RSS MiB",
        "log MiB",
        "checkpoints MiB",
        "files",
    ]);
    for tenth in tenths {
        table.row([
            number(tenth.at_s),
            count(tenth.streams as f64),
            number(tenth.rss_mb),
            number(tenth.log_mb),
            number(tenth.checkpoints_mb),
            count(tenth.files as f64),
        ]);
    }
    table.print()
}

/// Returns the figures as rows of a document, the growth as the last row's note.
pub(super) fn rows(tenths: &[Tenth], growth: &[String]) -> Vec<Row> {
    let row = |tenth: &Tenth| {
        let extra = [
            ("at_s", tenth.at_s),
            ("streams", tenth.streams as f64),
            ("log_mb", tenth.log_mb),
            ("checkpoints_mb", tenth.checkpoints_mb),
            ("files", tenth.files as f64),
        ];
        Row {
            system: OURS.into(),
            version: Some(env!("CARGO_PKG_VERSION").into()),
            case: "churn".into(),
            ops_per_s: Some(tenth.streams as f64 / tenth.at_s.max(1e-9)),
            rss_mb: Some(tenth.rss_mb),
            extra: extra
                .map(|(key, value)| (key.to_owned(), value.into()))
                .into(),
            ..Row::default()
        }
    };
    let mut rows: Vec<Row> = tenths.iter().map(row).collect();
    if let Some(last) = rows.last_mut()
        && !growth.is_empty()
    {
        last.extra.insert("note".into(), growth.join("; ").into());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenths(rss_mb: impl Fn(f64) -> f64) -> Vec<Tenth> {
        let tenth = |n: u32| Tenth {
            at_s: f64::from(n),
            streams: u64::from(n) * 100,
            rss_mb: rss_mb(f64::from(n)),
            log_mb: 300.0,
            ..Tenth::default()
        };
        (1..=PARTS).map(tenth).collect()
    }

    #[test]
    fn a_figure_that_rises_to_the_end_is_growth() {
        assert_eq!(growth(&tenths(|n| 300.0 * n)).len(), 1);
        // The first parts do not count, nor does a rise by a segment or by a small share.
        assert!(growth(&tenths(|n| if n < 3.0 { 10.0 } else { 900.0 })).is_empty());
        assert!(growth(&tenths(|n| 100.0 + n)).is_empty());
        assert!(growth(&tenths(|n| 4000.0 + 30.0 * n)).is_empty());
        assert!(growth(&[]).is_empty());
    }

    #[test]
    fn the_rows_have_the_growth_as_a_note() {
        let all = tenths(|n| 300.0 * n);
        let rows = rows(&all, &growth(&all));
        assert_eq!(rows.len(), 10);
        assert!(rows[9].note().is_some_and(|note| note.contains("memory")));
        assert!(rows[0].note().is_none() && rows[3].extra("log_mb") == Some(300.0));
        assert_eq!(table(&all).lines().count(), 11);
    }
}
