//! Measures the additional cost of consensus and the store beside the log: the group alone in memory, and the
//! store beside bare appends to a log of its own, in turns, on one disk; then the speed at which the store
//! reads entries that are in no cache of its own.
//!
//! `cargo run --release -p tidegate-server --example store [DIR [ROUNDS]]`

use std::alloc::System;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate_cluster::groups::ALL;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Append, Disk, Log, Lsn, Record, batch_bytes};
use tidegate_raft::replica::{Group, GroupOptions, Restored};
use tidegate_raft::store::{Due, Fetch, Opening, Options, Store, Waker};
use tidegate_stream::stream::Place;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RUN: Duration = Duration::from_millis(1000);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/store".to_owned()));
    let rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    group_alone();
    println!("| entry | in flight | store/s | log/s | store / log |");
    println!("| --- | --- | --- | --- | --- |");
    for (len, in_flight) in [(200, 1), (200, 8), (16 << 10, 8), (256 << 10, 8)] {
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            pairs.push((
                through_store(&dir, len, in_flight)?,
                through_log(&dir, len, in_flight)?,
            ));
        }
        let of = |f: fn(&(f64, f64)) -> f64| median(pairs.iter().map(f).collect());
        let (store, log, ratio) = (of(|p| p.0), of(|p| p.1), of(|p| p.0 / p.1));
        println!("| {len} | {in_flight} | {store:.0} | {log:.0} | {ratio:.2} |");
    }
    reading(&dir)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures the time from proposal to commit, before a log that takes no time.
fn group_alone() {
    let options = GroupOptions {
        group: ALL,
        id: 1,
        voters: vec![1],
        uncommitted_bytes_max: 16 << 20,
        tail_bytes_max: 1 << 20,
        batch_bytes_max: 1 << 20,
        rejoined: None,
        lab: tidegate_raft::lab::Lab::NONE,
    };
    let mut group = Group::open(options, Restored::default());
    let data = Bytes::from(vec![7; 200]);
    let mut end = 0;
    let mut turn = |group: &mut Group| {
        while let Some(batch) = group.poll_append() {
            let mut at = end + 48;
            let mut positions = Vec::with_capacity(batch.records.len());
            for record in &batch.records {
                positions.push(Lsn::new(at));
                at += record.stored_bytes();
            }
            end += batch_bytes(&batch.records);
            group.handle_appended(&positions, Lsn::new(end));
        }
        group.handle_durable(Lsn::new(end));
        while group.poll_committed().is_some() {}
    };
    turn(&mut group);
    const ENTRIES: u32 = 200_000;
    let (region, start) = (Region::new(ALLOCATOR), Instant::now());
    for _ in 0..ENTRIES {
        group.propose(data.clone(), 1).expect("there is room");
        turn(&mut group);
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(ENTRIES);
    let allocations = region.change().allocations as f64 / f64::from(ENTRIES);
    println!("the group alone: {ns:.0} ns and {allocations:.1} allocations an entry\n");
}

/// Makes a waker that unparks this thread, so that it can wait for the store.
fn waker() -> Waker {
    let thread = std::thread::current();
    Arc::new(move || thread.unpark())
}

fn open(dir: &Path) -> Outcome<Store> {
    let opening = Opening::begin(dir, Options::default(), waker())?;
    Ok(opening.replay(|_, _, _| ())?)
}

/// Measures the entries a second that the store commits, with this number in flight.
fn through_store(dir: &Path, len: usize, in_flight: u64) -> Outcome<f64> {
    let dir = dir.join("store");
    let _ = std::fs::remove_dir_all(&dir);
    let mut store = open(&dir)?;
    let data = Bytes::from(vec![7; len]);
    let (start, mut proposed, mut applied) = (Instant::now(), 0, 0);
    while start.elapsed() < RUN {
        while proposed < applied + in_flight
            && store.propose(GroupSlot::DIRECTORY, data.clone(), 1).is_ok()
        {
            proposed += 1;
        }
        std::thread::park();
        store.poll()?;
        while store.poll_due().is_some() {
            applied += 1;
        }
    }
    let rate = applied as f64 / start.elapsed().as_secs_f64();
    store.close()?;
    Ok(rate)
}

/// Measures appends of equal bytes to a log, without consensus.
fn through_log(dir: &Path, len: usize, in_flight: u64) -> Outcome<f64> {
    let dir = dir.join("log");
    let _ = std::fs::remove_dir_all(&dir);
    let waker = waker();
    let options = tidegate_log::Options::default().waker(move || waker());
    let mut opened = Log::open(Arc::new(Disk::open(&dir)?), options, |_| ())?;
    let data = Bytes::from(vec![7; len]);
    let (start, mut done) = (Instant::now(), 0);
    let mut ends = std::collections::VecDeque::new();
    while start.elapsed() < RUN {
        while (ends.len() as u64) < in_flight {
            let record = Record {
                payload: data.clone(),
                ..Record::default()
            };
            match opened.appender.append(Append::new(vec![record])) {
                Ok(appended) => ends.push_back(appended.end),
                Err(_) => break,
            }
        }
        std::thread::park();
        let durable = opened.log.durable();
        while ends.front().is_some_and(|&end| end <= durable) {
            ends.pop_front();
            done += 1;
        }
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    opened.appender.close()?;
    Ok(rate)
}

/// Writes entries of some KiB each, and measures how fast the store reads them again from the first on, after
/// a restart.
fn reading(dir: &Path) -> Outcome<()> {
    const ENTRIES: usize = 40_000;
    let dir = dir.join("store");
    let _ = std::fs::remove_dir_all(&dir);
    let mut store = open(&dir)?;
    let data = Bytes::from(vec![7; 8 << 10]);
    let (mut proposed, mut places) = (0, Vec::new());
    while places.len() < ENTRIES {
        while proposed < ENTRIES && store.propose(GroupSlot::DIRECTORY, data.clone(), 1).is_ok() {
            proposed += 1;
        }
        std::thread::park();
        store.poll()?;
        while let Some((_, due)) = store.poll_due() {
            if let Due::Entry(entry) = due {
                places.push(entry.lsn.get());
            }
        }
    }
    store.close()?;
    let mut store = open(&dir)?;
    let (start, mut waits) = (Instant::now(), 0);
    for &lsn in &places {
        loop {
            match store.read(GroupSlot::DIRECTORY, Place { lsn, offset: 0 }) {
                Fetch::Ready(entry) => {
                    assert_eq!(entry.len(), data.len());
                    break;
                }
                Fetch::Pending => {
                    waits += 1;
                    std::thread::park();
                    store.poll()?;
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let mb = (ENTRIES * data.len()) as f64 / 1e6;
    println!(
        "\nread in order: {:.0} MB/s, {waits} waits for {ENTRIES} entries",
        mb / seconds
    );
    let start = Instant::now();
    let (mut at, mut waits) = (1, 0);
    for _ in 0..5000 {
        at = (at * 48_271) % 2_147_483_647;
        let lsn = places[at % ENTRIES];
        while store.read(GroupSlot::DIRECTORY, Place { lsn, offset: 0 }) == Fetch::Pending {
            waits += 1;
            std::thread::park();
            store.poll()?;
        }
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / 5000.0;
    println!("read here and there: {us:.1} us an entry, {waits} waits for 5000");
    store.close()?;
    Ok(())
}
