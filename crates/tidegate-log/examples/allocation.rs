//! Measures which kind of file is the fastest for an append-only log: growing, allocated ahead, zeroed
//! ahead, or recycled.
//!
//! Each cell is a loop of one write and one `fdatasync`, in one or three threads with a file
//! each. The modes take turns within a round, and each row shows medians over the rounds. The
//! ratio divides the growing file's 10th percentile by the row's, within a round: the 10th
//! percentile is the cost of a write and a sync while no neighbour on the machine interferes.
//!
//! `cargo run --release -p tidegate-log --example allocation [DIR [ROUNDS]]`

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fdatasync};

const FILE_BYTES: u64 = 64 << 20;
const CELL: Duration = Duration::from_millis(400);
const BATCHES: [usize; 4] = [1_100, 16_500, 66_000, 1_048_000];
const WRITERS: [usize; 2] = [1, 3];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Growing,
    Allocated,
    Zeroed,
    Recycled,
    /// The file is recycled, and is no longer in the page cache; batches end inside a page.
    RecycledCold,
    /// Like `RecycledCold`, with each write padded by zeros to the end of its last page.
    RecycledColdPadded,
}

const MODES: [(Mode, &str); 6] = [
    (Mode::Growing, "growing"),
    (Mode::Allocated, "fallocate"),
    (Mode::Zeroed, "pre-zeroed"),
    (Mode::Recycled, "recycled"),
    (Mode::RecycledCold, "recycled, not cached"),
    (Mode::RecycledColdPadded, "the same, padded to pages"),
];

/// The measurements of one cell: one kind of file, one batch length and one number of threads.
#[derive(Clone, Copy)]
struct Cell {
    syncs_per_s: f64,
    p10_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(
        args.next()
            .unwrap_or_else(|| "target/allocation".to_owned()),
    );
    let rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    std::fs::create_dir_all(&dir)?;
    println!(
        "| writers | batch bytes | file | syncs/s | MB/s | p10 us | p50 us | p99 us | growing / it, p10 |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for writers in WRITERS {
        for batch in BATCHES {
            let mut cells = vec![Vec::new(); MODES.len()];
            for _ in 0..rounds {
                for (at, (mode, _)) in MODES.iter().enumerate() {
                    cells[at].push(cell(&dir, *mode, writers, batch)?);
                }
            }
            report(writers, batch, &cells);
        }
    }
    std::fs::remove_dir_all(&dir)
}

fn report(writers: usize, batch: usize, cells: &[Vec<Cell>]) {
    for ((_, name), rounds) in MODES.iter().zip(cells) {
        let of = |f: fn(&Cell) -> f64| median(rounds.iter().map(f).collect());
        let ratios = rounds.iter().zip(&cells[0]);
        let ratio = median(ratios.map(|(c, g)| g.p10_us / c.p10_us).collect());
        let syncs = of(|c| c.syncs_per_s);
        println!(
            "| {writers} | {batch} | {name} | {syncs:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {ratio:.2} |",
            syncs * batch as f64 / 1e6,
            of(|c| c.p10_us),
            of(|c| c.p50_us),
            of(|c| c.p99_us),
        );
    }
}

fn cell(dir: &Path, mode: Mode, writers: usize, batch: usize) -> io::Result<Cell> {
    let files = (0..writers)
        .map(|n| prepare(&dir.join(n.to_string()), mode))
        .collect::<io::Result<Vec<_>>>()?;
    let start = Instant::now();
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(move || write(file, mode, batch)))
            .collect();
        for thread in threads {
            took.extend(thread.join().expect("a writer does not panic")?);
        }
        io::Result::Ok(())
    })?;
    let syncs_per_s = took.len() as f64 / start.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    Ok(Cell {
        syncs_per_s,
        p10_us: took[took.len() / 10],
        p50_us: took[took.len() / 2],
        p99_us: took[took.len() * 99 / 100],
    })
}

fn prepare(path: &Path, mode: Mode) -> io::Result<File> {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)?;
    match mode {
        Mode::Growing => {}
        Mode::Allocated => fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?,
        Mode::Zeroed => fill(&file, 0)?,
        Mode::Recycled | Mode::RecycledCold | Mode::RecycledColdPadded => fill(&file, 0xA5)?,
    }
    file.sync_all()?;
    if matches!(mode, Mode::RecycledCold | Mode::RecycledColdPadded) {
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(file)
}

fn fill(file: &File, byte: u8) -> io::Result<()> {
    let block = vec![byte; 1 << 20];
    (0..FILE_BYTES >> 20).try_for_each(|n| file.write_all_at(&block, n << 20))
}

/// Writes batches to the file, each with a sync, until the time is over or the file is full. Returns the
/// duration of each pair of a write and a sync, in microseconds.
fn write(file: &File, mode: Mode, batch: usize) -> io::Result<Vec<f64>> {
    let (start, mut at, mut took) = (Instant::now(), 0, Vec::new());
    let mut bytes = vec![0x5A; batch + 8192];
    while start.elapsed() < CELL && at + bytes.len() as u64 <= FILE_BYTES {
        let end = at + batch as u64;
        let written = match mode {
            Mode::RecycledColdPadded => (end.next_multiple_of(4096) - at) as usize,
            _ => batch,
        };
        bytes[batch..].fill(0);
        let before = Instant::now();
        file.write_all_at(&bytes[..written], at)?;
        fdatasync(file)?;
        took.push(before.elapsed().as_secs_f64() * 1e6);
        at = end;
    }
    Ok(took)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
