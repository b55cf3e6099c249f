//! Reads the facts of the operating system that the overview shows: the CPU time of each thread, and the room
//! on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The most names of threads that the overview shows; the rest counts under one further name.
const NAMES_MAX: usize = 32;
/// The name under which the overview shows all threads beyond [`NAMES_MAX`].
const OTHERS: &str = "others";

/// Returns the CPU time of this process's threads by name, in nanoseconds; threads with one name count
/// together. Empty where the system does not count it.
pub(super) fn threads() -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return all;
    };
    for task in tasks.flatten() {
        let path = task.path();
        let text = |file| fs::read_to_string(path.join(file)).ok();
        // A thread that ends between the two reads has no figures.
        let (Some(stat), Some(name)) = (text("schedstat"), text("comm")) else {
            continue;
        };
        let Some(ns) = stat.split(' ').next().and_then(|n| n.parse::<u64>().ok()) else {
            continue;
        };
        let name = name.trim_end();
        let known = all.len() < NAMES_MAX || all.contains_key(name);
        let name = if known { name } else { OTHERS };
        *all.entry(name.to_owned()).or_default() += ns;
    }
    all
}

/// Returns the number of cores that this process may use.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The room of the file system that holds the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
}

/// Returns the room of the file system that holds `directory`; `None` if the system does not say it.
pub(super) fn disk(directory: &Path) -> Option<Disk> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(Disk {
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}
