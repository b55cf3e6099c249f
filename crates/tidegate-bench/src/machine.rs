//! Measures the processor time and the allocations of this process and the memory of processes, for all
//! benches, and finds the repository.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the nearest directory that contains `path`, from the current directory upwards, to find the
/// repository.
pub(crate) fn upwards(path: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors()
        .map(Path::to_path_buf)
        .find(|dir| dir.join(path).exists())
}

/// Measures the processor time and the allocations of this process since the meter's start, for the results.
#[derive(Debug)]
pub(crate) struct Meter {
    cpu: Duration,
    allocs: u64,
}

/// The cost to this process of the time between the start of a [`Meter`] and a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// The processor time that all threads of this process took.
    pub(crate) cpu: Duration,
    /// The number of memory allocations that this process made.
    pub(crate) allocs: u64,
}

impl Meter {
    /// Starts the meter from the present counts.
    pub(crate) fn start() -> Self {
        Self {
            cpu: cpu(),
            allocs: allocs(),
        }
    }

    /// Returns the cost of this process from the meter's start up to now.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            cpu: cpu().saturating_sub(self.cpu),
            allocs: allocs() - self.allocs,
        }
    }
}

/// Returns the user and system time of a process in seconds, parsed from the text of its `stat` file of
/// /proc. If `waited_for` is true, includes the time of the process's ended children. The system counts in
/// ticks of 10 ms.
pub(crate) fn cpu_ticks_s(stat: &str, waited_for: bool) -> Option<f64> {
    // The process's name may contain blanks and parentheses, so the fields start behind the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_ascii_whitespace().skip(11);
    let ticks = fields.map_while(|field| field.parse::<f64>().ok());
    let ticks: Vec<f64> = ticks.take(if waited_for { 4 } else { 2 }).collect();
    let per_s = rustix::param::clock_ticks_per_second() as f64;
    (ticks.len() >= 2).then(|| ticks.iter().sum::<f64>() / per_s)
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn allocs() -> u64 {
    let stats = crate::ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

/// Returns the bytes that this process has allocated and not freed: the memory in use, for the results.
pub(crate) fn heap_bytes() -> u64 {
    // Both counts of the allocator already include reallocations, so their difference is the memory in use.
    let stats = crate::ALLOCATOR.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated) as u64
}

/// Returns the resident memory of this process in MiB, for the results.
pub(crate) fn rss_mb() -> Option<f64> {
    rss_mb_of("self")
}

/// Returns the resident memory in MiB of a process, which `process` names by its number or as `self`.
pub(crate) fn rss_mb_of(process: &str) -> Option<f64> {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: f64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64 / 1_048_576.0)
}

/// The share of the machine's spare memory that a measured server may take before the bench ends its
/// measurement.
const RSS_SHARE: f64 = 0.7;

/// Returns the resident memory in MiB at which a bench ends the measurement of a server, to protect the
/// machine.
pub(crate) fn rss_max_mb() -> f64 {
    available_mb().unwrap_or(f64::MAX) * RSS_SHARE
}

/// Returns the memory that this machine has available, in MiB, to bound the memory of measured servers.
fn available_mb() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let kb = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kb = kb.trim().split(' ').next()?;
    Some(kb.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read() {
        let per_s = rustix::param::clock_ticks_per_second() as f64;
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194304 1 0 0 0 150 50 30 20 20 0 3 0 9 1 1";
        assert_eq!(cpu_ticks_s(stat, false), Some(200.0 / per_s));
        assert_eq!(cpu_ticks_s(stat, true), Some(250.0 / per_s));
        assert_eq!(cpu_ticks_s("7 (a) S 1", false), None);
    }

    #[test]
    fn an_allocation_is_seen() {
        // The other tests of this process allocate and free memory meanwhile, but never half a GiB. The test
        // never writes to the memory, so the kernel does not need to provide it.
        let (meter, before) = (Meter::start(), heap_bytes());
        let held = std::hint::black_box(Vec::<u8>::with_capacity(1 << 30));
        assert!(meter.spent().allocs >= 1);
        assert!(heap_bytes() >= before + (1 << 29), "{}", held.capacity());
        assert!(rss_mb().unwrap() > 0.1);
        assert!(available_mb().unwrap() > 1.0);
    }
}
