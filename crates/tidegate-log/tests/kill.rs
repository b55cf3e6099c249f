//! Tests that kill a process while it writes a log to real files, at any moment. Every record that the
//! process reported as durable must survive, once, in order and unchanged.
//!
//! The process is this test binary, started again for [`child`] alone.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use common::{payload, record};
use tidegate_log::{Append, AppendError, Disk, Log, Lsn, Options, RecordInfo, Verdict, verify};

const DIR: &str = "TIDEGATE_LOG_KILL_DIR";
const FROM: &str = "TIDEGATE_LOG_KILL_FROM";
const ROUNDS: u64 = 20;
const SEED: u64 = 5;

fn options() -> Options {
    Options::default()
        .segment_bytes(256 << 10)
        .first_bytes(16 << 10)
        .pending_batches_max(64)
}

fn len(index: u64) -> usize {
    (index.wrapping_mul(2_654_435_761) % 3000) as usize
}

/// The process that the tests kill: appends records until its end, and reports the durable index on standard
/// output. As an ordinary test, returns at once.
#[test]
fn child() {
    let (Ok(dir), Ok(from)) = (std::env::var(DIR), std::env::var(FROM)) else {
        return;
    };
    let disk = Disk::open(dir).unwrap();
    let mut opened = Log::open(Arc::new(disk), options(), |_| ()).unwrap();
    let mut index: u64 = from.parse().unwrap();
    let (send, receive) = sync_channel::<u64>(1 << 20);
    std::thread::spawn(move || {
        for durable in receive {
            writeln!(std::io::stdout(), "\ndurable {durable}").unwrap();
        }
    });
    loop {
        let records: Vec<_> = (index..index + 1 + index % 4)
            .map(|i| record((i % 3) as u32, i, len(i)))
            .collect();
        let last = index + records.len() as u64 - 1;
        let told = send.clone();
        let mut batch = Append::new(records).then(move |outcome| {
            outcome.unwrap();
            told.send(last).unwrap();
        });
        loop {
            match opened.appender.append(batch) {
                Ok(_) => break,
                Err((back, AppendError::Full { .. } | AppendError::NotReady)) => {
                    assert!(opened.appender.wait_for_room(&back, None));
                    batch = back;
                }
                Err((_, error)) => panic!("{error}"),
            }
        }
        index = last + 1;
        // Releases old segments, so that the log uses their files again.
        let keep = Lsn::new(opened.log.durable().get().saturating_sub(1 << 20));
        opened.log.release_before(keep);
    }
}

#[test]
fn records_reported_durable_survive_kills() {
    println!("seed {SEED}");
    let dir = tempfile::tempdir().unwrap();
    let (mut next, mut state) = (0, SEED);
    for round in 0..ROUNDS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let acked = run_and_kill(dir.path(), next, 20 + (state >> 33) % 400);
        let (entries, verdict, log) = reopen(dir.path());
        let last = entries.last().map_or(0, |e| e.index);
        assert!(
            last >= acked,
            "round {round}: {acked} was durable, {last} is there: {verdict}"
        );
        for pair in entries.windows(2) {
            assert_eq!(pair[0].index + 1, pair[1].index, "round {round}");
        }
        // The kill of a process loses no written byte; at most it cuts one write in two.
        for entry in &entries {
            let read = log.reader().read(entry.lsn, Some(entry.len)).unwrap();
            assert_eq!(
                read.payload,
                payload(entry.group, entry.index, len(entry.index))
            );
            assert_eq!(read.index, entry.index);
        }
        next = last + 1;
    }
    assert_eq!(
        verify(&Disk::existing(dir.path()).unwrap()).unwrap().damage,
        None
    );
}

/// Starts a child that appends records from index `from` on, and kills it after `reports` reports. Returns
/// the last index that the child reported as durable.
fn run_and_kill(dir: &Path, from: u64, reports: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIR, dir)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut acked, mut seen) = (from.saturating_sub(1), 0);
    for line in lines.map_while(Result::ok) {
        let Some(durable) = line.strip_prefix("durable ") else {
            continue;
        };
        // The kill may cut off the child's last line. Its number is then shorter, and smaller.
        acked = acked.max(durable.parse().unwrap_or(0));
        seen += 1;
        if seen == reports {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        seen >= reports,
        "the child ended by itself after {seen} reports"
    );
    acked
}

fn reopen(dir: &Path) -> (Vec<RecordInfo>, Verdict, Log) {
    let disk = Disk::open(dir).unwrap();
    let mut entries = Vec::new();
    let opened = Log::open(Arc::new(disk), options(), |e| entries.push(e)).unwrap();
    let (verdict, log) = (opened.recovery.verdict.clone(), opened.log.clone());
    opened.appender.close().unwrap();
    (entries, verdict, log)
}
