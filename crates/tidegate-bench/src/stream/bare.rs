//! Measures the limit of the disk itself: a loop of one write and one `fdatasync`, over a file that already
//! has all its blocks, so that a sync need not write metadata.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::fdatasync;

use super::super::rounds::Sample;

const FILE_BYTES: u64 = 16 << 20;

/// Writes `bytes` bytes and syncs them, again and again for the time `window`.
///
/// # Errors
///
/// The disk reports an error.
pub(super) fn run(directory: &Path, bytes: usize, window: Duration) -> anyhow::Result<Sample> {
    std::fs::create_dir_all(directory)?;
    let path = directory.join("bare");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)?;
    if file.metadata()?.len() < FILE_BYTES {
        let block = vec![1; 1 << 20];
        for at in 0..FILE_BYTES >> 20 {
            file.write_all_at(&block, at << 20)?;
        }
        file.sync_all()?;
    }
    let block = vec![2; bytes];
    let mut latencies = Histogram::<u64>::new(3)?;
    let (start, mut at, mut syncs) = (Instant::now(), 0, 0_u64);
    while start.elapsed() < window {
        let before = Instant::now();
        file.write_all_at(&block, at)?;
        fdatasync(&file)?;
        latencies.record(u64::try_from(before.elapsed().as_nanos())?)?;
        at = (at + bytes as u64) % (FILE_BYTES - bytes as u64);
        syncs += 1;
    }
    Ok(Sample {
        ops_per_s: syncs as f64 / start.elapsed().as_secs_f64(),
        p50_us: Some(latencies.value_at_quantile(0.5) as f64 / 1e3),
        p99_us: Some(latencies.value_at_quantile(0.99) as f64 / 1e3),
        ..Sample::default()
    })
}
