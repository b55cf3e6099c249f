//! Measures how long a log of many small records takes to open, and how much memory it uses for that.
//!
//! `cargo run --release -p tidegate-log --example restart [DIR [MILLIONS]]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tidegate_log::{Append, Disk, GroupIndex, Log, Lsn, Options, Record};

const BATCH: u64 = 100;
const LEN: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/restart".to_owned()));
    let millions: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(10);
    let _ = std::fs::remove_dir_all(&dir);
    let start = Instant::now();
    write(&dir, millions * 1_000_000)?;
    println!(
        "{millions} M records of {LEN} B written in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let before = resident_kib()?;
    for round in 1..=3 {
        let start = Instant::now();
        let mut index = GroupIndex::new();
        let opened = Log::open(Arc::new(Disk::open(&dir)?), Options::default(), |e| {
            index.push_record(&e);
        })?;
        let took = start.elapsed().as_secs_f64();
        let recovery = &opened.recovery;
        println!(
            "round {round}: opened in {took:.2} s, {} records in {} segments, {} of them read whole; {} MiB more resident, with an index of {} MiB",
            recovery.records,
            recovery.segments,
            recovery.scanned,
            resident_kib()?.saturating_sub(before) >> 10,
            (recovery.records * 8) >> 20,
        );
        let (reader, mut at, mut bytes, start) =
            (opened.log.reader(), Lsn::ZERO, 0, Instant::now());
        loop {
            let chunk = reader.scan(at, 1 << 20)?;
            if chunk.next == at {
                break;
            }
            at = chunk.next;
            bytes += chunk
                .records
                .iter()
                .map(|(_, r)| r.payload.len() as u64)
                .sum::<u64>();
        }
        let took = start.elapsed().as_secs_f64();
        println!(
            "         read from the beginning: {:.0} MB/s of payload",
            bytes as f64 / took / 1e6
        );
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn write(dir: &Path, records: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut opened = Log::open(Arc::new(Disk::open(dir)?), Options::default(), |_| ())?;
    for first in (0..records).step_by(BATCH as usize) {
        let record = |index| Record {
            index,
            payload: vec![index as u8; LEN].into(),
            ..Record::default()
        };
        let mut batch = Append::new((first..first + BATCH).map(record).collect());
        while let Err((back, _)) = opened.appender.append(batch) {
            let _ = opened.appender.wait_for_room(&back, None);
            batch = back;
        }
    }
    Ok(opened.appender.close()?)
}

fn resident_kib() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS in /proc/self/status")?.parse()?)
}
