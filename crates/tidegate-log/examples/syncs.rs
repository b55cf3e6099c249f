//! Compares the log with a bare loop of one write and one `fdatasync` over a recycled file on the same disk.
//!
//! `cargo run --release -p tidegate-log --example syncs [DIR [ROUNDS]]`
//!
//! *Pipelined*: one producer keeps the log full with records of one size. The bare loop then writes as
//! many bytes per sync as the log wrote in that round. *Closed loop*: all callers run in one thread, as
//! in an event loop. Each appends one record, and the next as soon as it is durable. The example runs
//! this with the controller's anticipation and without, and also on a disk with 5 ms added to every sync.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::fdatasync;
use tidegate::controller::{Bounds, Knee, Objective};
use tidegate_log::{
    Append, AppendError, Disk, Log, Lsn, Opened, Options, Record, Stats, Storage, StorageFile,
};

const RUN: Duration = Duration::from_millis(1500);
const SEGMENT: u64 = 64 << 20;

/// The measurements of one run of the log or of the bare loop, for a row of the table.
#[derive(Clone, Copy, Default)]
struct Outcome {
    records_per_s: f64,
    mb_per_s: f64,
    syncs_per_s: f64,
    bytes_a_sync: f64,
    p50_us: f64,
    p99_us: f64,
    /// The CPU time of the whole process, in microseconds: for each record or, in the bare loop, for each
    /// sync.
    cpu_us: f64,
}

/// Returns the CPU time that the process has used so far, in microseconds: all cores, user and system.
fn cpu_us() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/syncs".to_owned()));
    let rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);

    println!(
        "| pipelined | records/s | MB/s | syncs/s | bytes a sync | bare MB/s | log / bare | CPU us/MB, log / bare |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for len in [16, 128, 1024, 16 << 10, 64 << 10] {
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            let log = pipelined(&dir, len)?;
            pairs.push((log, bare(&dir, log.bytes_a_sync as usize)?));
        }
        let of = |f: &dyn Fn(&(Outcome, Outcome)) -> f64| median(pairs.iter().map(f).collect());
        println!(
            "| {len} B | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} | {:.0} / {:.0} |",
            of(&|p| p.0.records_per_s),
            of(&|p| p.0.mb_per_s),
            of(&|p| p.0.syncs_per_s),
            of(&|p| p.0.bytes_a_sync),
            of(&|p| p.1.mb_per_s),
            of(&|p| p.0.mb_per_s / p.1.mb_per_s),
            of(&|p| p.0.cpu_us * p.0.records_per_s / p.0.mb_per_s),
            of(&|p| p.1.cpu_us * p.1.syncs_per_s / p.1.mb_per_s),
        );
    }

    println!();
    println!(
        "| closed loop, 1 KiB | sync | records/s, waiting / not | ratio | syncs/s | p50 us | p99 us | CPU us a record |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (slow, name) in [
        (Duration::ZERO, "the disk's"),
        (Duration::from_millis(5), "+ 5 ms"),
    ] {
        for callers in [1, 2, 10, 100] {
            let mut pairs = Vec::new();
            for _ in 0..rounds {
                pairs.push((
                    closed_loop(&dir, slow, callers, true)?,
                    closed_loop(&dir, slow, callers, false)?,
                ));
            }
            let of = |f: &dyn Fn(&(Outcome, Outcome)) -> f64| median(pairs.iter().map(f).collect());
            println!(
                "| {callers} callers | {name} | {:.0} / {:.0} | {:.2} | {:.0} / {:.0} | {:.0} / {:.0} | {:.0} / {:.0} | {:.1} / {:.1} |",
                of(&|p| p.0.records_per_s),
                of(&|p| p.1.records_per_s),
                of(&|p| p.0.records_per_s / p.1.records_per_s),
                of(&|p| p.0.syncs_per_s),
                of(&|p| p.1.syncs_per_s),
                of(&|p| p.0.p50_us),
                of(&|p| p.1.p50_us),
                of(&|p| p.0.p99_us),
                of(&|p| p.1.p99_us),
                of(&|p| p.0.cpu_us),
                of(&|p| p.1.cpu_us),
            );
        }
    }
    let bare = median(
        (0..rounds)
            .map(|_| bare(&dir, 1104).map(|b| b.p50_us))
            .collect::<io::Result<_>>()?,
    );
    println!("\nA bare write and fdatasync of the same 1104 bytes: p50 {bare:.0} us.");
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Opens a log in an empty directory, and fills it until every new segment gets the file of a released one,
/// as in a log that has run for long.
fn seasoned(storage: Arc<dyn Storage>, waits: bool) -> Result<Opened, Box<dyn std::error::Error>> {
    let mut options = Options::default()
        .segment_bytes(SEGMENT)
        .recycled_max(8)
        .spares(2);
    if !waits {
        let bounds = Bounds {
            bytes_max: 8 << 20,
            items_max: u64::MAX,
            ..Bounds::default()
        };
        options = options.controller(Box::new(Knee::new(Objective::Lean, bounds)?.in_bytes()?));
    }
    let waker = std::thread::current();
    options = options.waker(move || waker.unpark());
    let mut opened = Log::open(storage, options, |_| ())?;
    let record = Record {
        payload: vec![0x5A; 1 << 20].into(),
        ..Record::default()
    };
    while opened.log.stats().recycled < 4 {
        append(&mut opened, Append::new(vec![record.clone()]))?;
        opened.log.release_before(opened.log.durable());
    }
    let end = append(&mut opened, Append::new(vec![record]))?;
    opened.log.wait_durable(end, None)?;
    Ok(opened)
}

fn append(opened: &mut Opened, mut batch: Append) -> Result<Lsn, AppendError> {
    loop {
        match opened.appender.append(batch) {
            Ok(appended) => return Ok(appended.end),
            Err((back, AppendError::Full { .. } | AppendError::NotReady)) => {
                let _ = opened.appender.wait_for_room(&back, None);
                batch = back;
            }
            Err((_, error)) => return Err(error),
        }
    }
}

fn pipelined(dir: &Path, len: usize) -> Result<Outcome, Box<dyn std::error::Error>> {
    let _ = std::fs::remove_dir_all(dir);
    let mut opened = seasoned(Arc::new(Disk::open(dir)?), true)?;
    let record = Record {
        payload: vec![0x5A; len].into(),
        ..Record::default()
    };
    // Each append holds as many records as one turn of an event loop would append together.
    let batch = vec![record; (16 << 10) / (len + 32) + 1];
    let (before, start, cpu) = (opened.log.stats(), Instant::now(), cpu_us());
    let mut last = Lsn::ZERO;
    while start.elapsed() < RUN {
        last = append(&mut opened, Append::new(batch.clone()))?;
        opened.log.release_before(opened.log.durable());
    }
    opened.log.wait_durable(last, None)?;
    Ok(outcome(
        (start, cpu),
        &before,
        &opened.log.stats(),
        Vec::new(),
    ))
}

fn outcome(
    (start, cpu): (Instant, f64),
    before: &Stats,
    after: &Stats,
    mut took: Vec<f64>,
) -> Outcome {
    let cpu = cpu_us() - cpu;
    let s = start.elapsed().as_secs_f64();
    let (syncs, bytes) = (after.syncs - before.syncs, after.bytes - before.bytes);
    took.sort_by(f64::total_cmp);
    Outcome {
        records_per_s: (after.records - before.records) as f64 / s,
        mb_per_s: bytes as f64 / s / 1e6,
        syncs_per_s: syncs as f64 / s,
        bytes_a_sync: bytes as f64 / syncs.max(1) as f64,
        p50_us: took.get(took.len() / 2).copied().unwrap_or_default(),
        p99_us: took.get(took.len() * 99 / 100).copied().unwrap_or_default(),
        cpu_us: cpu / (after.records - before.records).max(1) as f64,
    }
}

/// Runs callers that each append the next record once their last one is durable. All callers run in one
/// thread, which the log wakes.
fn closed_loop(
    dir: &Path,
    slow: Duration,
    callers: usize,
    waits: bool,
) -> Result<Outcome, Box<dyn std::error::Error>> {
    let _ = std::fs::remove_dir_all(dir);
    let disk = Arc::new(Disk::open(dir)?);
    let storage: Arc<dyn Storage> = match slow.is_zero() {
        true => disk,
        false => Arc::new(Slow { disk, slow }),
    };
    let mut opened = seasoned(storage, waits)?;
    let record = Record {
        payload: vec![0x5A; 1024].into(),
        ..Record::default()
    };
    let (before, start, cpu) = (opened.log.stats(), Instant::now(), cpu_us());
    let (mut took, mut pending) = (Vec::new(), std::collections::VecDeque::new());
    for _ in 0..callers {
        let at = Instant::now();
        pending.push_back((append(&mut opened, Append::new(vec![record.clone()]))?, at));
    }
    while let Some(&(end, at)) = pending.front() {
        if opened.log.durable() < end {
            std::thread::park();
            continue;
        }
        pending.pop_front();
        took.push(at.elapsed().as_secs_f64() * 1e6);
        if start.elapsed() < RUN {
            let at = Instant::now();
            pending.push_back((append(&mut opened, Append::new(vec![record.clone()]))?, at));
        }
    }
    Ok(outcome((start, cpu), &before, &opened.log.stats(), took))
}

fn bare(dir: &Path, bytes: usize) -> io::Result<Outcome> {
    let path = dir.join("bare");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    let block = vec![0xA5; 1 << 20];
    (0..SEGMENT >> 20).try_for_each(|n| file.write_all_at(&block, n << 20))?;
    file.sync_all()?;
    let data = vec![0x5A; bytes];
    let (start, cpu, mut at, mut took) = (Instant::now(), cpu_us(), 0, Vec::new());
    while start.elapsed() < RUN {
        if at + bytes as u64 > SEGMENT {
            at = 0;
        }
        let before = Instant::now();
        file.write_all_at(&data, at)?;
        fdatasync(&file)?;
        took.push(before.elapsed().as_secs_f64() * 1e6);
        at += bytes as u64;
    }
    let s = start.elapsed().as_secs_f64();
    let syncs = took.len() as f64;
    took.sort_by(f64::total_cmp);
    Ok(Outcome {
        mb_per_s: syncs * bytes as f64 / s / 1e6,
        syncs_per_s: syncs / s,
        p50_us: took[took.len() / 2],
        cpu_us: (cpu_us() - cpu) / syncs,
        ..Outcome::default()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A real disk on which each sync takes longer by `slow`, to imitate a slower disk.
struct Slow {
    disk: Arc<Disk>,
    slow: Duration,
}

struct SlowFile {
    file: Arc<dyn StorageFile>,
    slow: Duration,
}

impl Slow {
    fn slowed(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(SlowFile {
            file,
            slow: self.slow,
        })
    }
}

impl Storage for Slow {
    fn lock(&self) -> io::Result<bool> {
        self.disk.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.slowed(self.disk.as_ref().open(name)?))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.slowed(self.disk.create(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

impl StorageFile for SlowFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.file.write_at(parts, at)
    }
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(into, at)
    }
    fn sync(&self) -> io::Result<()> {
        std::thread::sleep(self.slow);
        self.file.sync()
    }
    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }
    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        self.file.reserve_front(bytes, front)
    }
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
}
