//! Measures the machine for `tidegate doctor`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use rustix::fs::{fdatasync, statfs, statvfs};
use rustix::process::{Resource, getrlimit};

use super::findings::Facts;
use crate::interrupt;

/// The number of syncs, and the longest time that all of them may take.
const SYNCS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(5);
/// The bytes of one write.
const BLOCK_BYTES: usize = 4096;
/// The number of readings of the clock, of which the mean counts.
const READINGS: u32 = 10_000;

/// The numbers by which Linux names file systems (`statfs`).
const FILE_SYSTEMS: [(i64, &str); 10] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlay"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
];

/// Measures the disk of `data`, or of the nearest directory above it, and the rest of the machine.
pub(super) fn facts(data: &Path) -> anyhow::Result<Facts> {
    let directory = existing(data)?;
    let name = || directory.display().to_string();
    let limits = getrlimit(Resource::Nofile);
    let space = statvfs(&directory).with_context(name)?;
    let kind = statfs(&directory).with_context(name)?.f_type;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
    let syncs = syncs(&directory).map_err(|e| e.to_string());
    interrupt::check()?;
    Ok(Facts {
        directory: name(),
        syncs,
        file_system: FILE_SYSTEMS
            .iter()
            .find(|(number, _)| *number == kind as i64)
            .map(|(_, name)| *name),
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        files: (
            limits.current.unwrap_or(u64::MAX),
            limits.maximum.unwrap_or(u64::MAX),
        ),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        quota: fs::read_to_string("/sys/fs/cgroup/cpu.max")
            .ok()
            .and_then(|text| quota(&text)),
        available_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| available(&text)),
        clock_source: fs::read_to_string(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
        .ok()
        .map(|text| text.trim().to_owned()),
        clock_read: clock_read(),
        now_s: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        kernel: kernel.map_or_else(|_| "unknown".into(), |text| text.trim().to_owned()),
    })
}

/// Returns the nearest directory from `path` upwards that exists.
fn existing(path: &Path) -> anyhow::Result<PathBuf> {
    let whole = std::path::absolute(path).with_context(|| path.display().to_string())?;
    let found = whole.ancestors().find(|above| above.exists());
    match found {
        Some(found) if found.is_dir() => Ok(found.into()),
        Some(found) => bail!("{}: not a directory", found.display()),
        None => bail!("{}: no directory above it exists", path.display()),
    }
}

/// Writes and syncs blocks of a new file, as the log does, and removes the file.
fn syncs(directory: &Path) -> std::io::Result<Vec<Duration>> {
    let path = directory.join(format!(".tidegate-doctor-{}", std::process::id()));
    let file = File::create_new(&path)?;
    let measured = sync_blocks(&file);
    let removed = fs::remove_file(&path);
    let times = measured?;
    removed.map(|()| times)
}

fn sync_blocks(file: &File) -> std::io::Result<Vec<Duration>> {
    let block = [0x5a; BLOCK_BYTES];
    // The log writes into allocated segments, so that a sync need not write the file's length.
    file.write_all_at(&vec![0; BLOCK_BYTES * SYNCS as usize], 0)?;
    file.sync_all()?;
    let begun = Instant::now();
    let mut times = Vec::new();
    for at in 0..SYNCS {
        interrupt::check().map_err(std::io::Error::other)?;
        let start = Instant::now();
        if start - begun > PATIENCE {
            break;
        }
        file.write_all_at(&block, at * BLOCK_BYTES as u64)?;
        fdatasync(file)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn clock_read() -> Duration {
    let begun = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    begun.elapsed() / READINGS
}

/// Reads the quota of a control group: `MICROSECONDS PERIOD`, or `max PERIOD` without one.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Reads the available memory from /proc/meminfo, in bytes.
fn available(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota(""), None);
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:   1024 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_missing_directory_counts_as_the_one_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let facts = facts(&dir.path().join("a/b")).unwrap();
        assert_eq!(Path::new(&facts.directory), dir.path());
        assert!(!facts.syncs.unwrap().is_empty());
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "a file is left"
        );
    }
}
