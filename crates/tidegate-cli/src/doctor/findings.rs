//! The meaning of a machine's figures for a server. Pure: [`Facts`] go in, findings come out.

use std::time::Duration;

/// The figures of a machine.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The directory that was measured.
    pub(super) directory: String,
    /// The times of a write of 4 KiB and the sync behind it, or the reason why there are none.
    pub(super) syncs: Result<Vec<Duration>, String>,
    /// The name of the file system, if this program knows it.
    pub(super) file_system: Option<&'static str>,
    pub(super) free_bytes: u64,
    /// The limit on the open files of a process: the present one, and the highest that it may set.
    pub(super) files: (u64, u64),
    /// The cores that a process may use, and the share of them that a quota allows.
    pub(super) cores: usize,
    pub(super) quota: Option<f64>,
    pub(super) available_bytes: Option<u64>,
    /// The clock's source in the kernel, and the time of a reading.
    pub(super) clock_source: Option<String>,
    pub(super) clock_read: Duration,
    /// The time of the system's clock, in seconds since the Unix epoch.
    pub(super) now_s: u64,
    pub(super) kernel: String,
}

/// A figure with its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) found: String,
    pub(super) meaning: String,
}

/// How a finding bears on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    /// The server works, and less well than it could.
    Warning,
    /// The server cannot start, or cannot keep its promises.
    Problem,
}

impl Level {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The file systems that keep files in memory: a sync there protects no data.
const VOLATILE: [&str; 2] = ["tmpfs", "ramfs"];
/// The space that an empty server allocates, and the space below which it soon refuses messages.
const NEEDED_BYTES: u64 = 256 << 20;
const SCARCE_BYTES: u64 = 2 << 30;
/// The median sync above which a lone publisher notices the disk.
const SLOW: Duration = Duration::from_millis(5);
/// The median sync below which no disk can be behind it.
const TOO_FAST: Duration = Duration::from_micros(5);
/// The open files that a server with 4,000 clients needs.
const FILES: u64 = 4096;
/// 2025-01-01. A clock before this date is wrong, because this program is younger.
const YOUNG_S: u64 = 1_735_689_600;

/// Says what the facts mean, in the order in which an operator should read them.
pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    vec![
        sync(facts),
        file_system(facts),
        space(facts),
        files(facts),
        cores(facts),
        memory(facts),
        clock(facts),
        kernel(facts),
    ]
}

fn finding(check: &'static str, level: Level, found: String, meaning: &str) -> Finding {
    Finding {
        check,
        level,
        found,
        meaning: meaning.to_owned(),
    }
}

fn sync(facts: &Facts) -> Finding {
    let check = "sync";
    let mut times = match &facts.syncs {
        Ok(times) if !times.is_empty() => times.clone(),
        Ok(_) => {
            return finding(
                check,
                Level::Problem,
                "none ended in 5 s".into(),
                "the disk hangs",
            );
        }
        Err(why) => {
            let meaning = format!(
                "a server cannot keep data in {}: give it a directory that it may write",
                facts.directory
            );
            return finding(check, Level::Problem, why.clone(), &meaning);
        }
    };
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let (median, late) = (at(50), at(99));
    let found = format!(
        "4 KiB written and synced in {median:.1?} at the median, {late:.1?} at the 99th percentile"
    );
    if median < TOO_FAST {
        let meaning = "no disk is that fast: the system seems to leave out the sync, so a power cut loses acknowledged messages";
        return finding(check, Level::Warning, found, meaning);
    }
    let a_second = 1.0 / median.as_secs_f64().max(1e-9);
    let meaning = format!(
        "a lone publisher gets at most {a_second:.0} acknowledgements a second; many publishers share each sync"
    );
    let level = match median > SLOW {
        true => Level::Warning,
        false => Level::Good,
    };
    finding(check, level, found, &meaning)
}

fn file_system(facts: &Facts) -> Finding {
    let check = "file system";
    let found = facts.file_system.unwrap_or("of another kind").to_owned();
    match facts.file_system {
        Some(name) if VOLATILE.contains(&name) => {
            let meaning =
                "the files are in memory: a restart of the machine loses all acknowledged messages";
            finding(check, Level::Problem, found, meaning)
        }
        Some("nfs" | "overlay" | "fuse") => {
            let meaning = "a sync promises what the system below it promises: prefer a local disk or a volume";
            finding(check, Level::Warning, found, meaning)
        }
        _ => finding(check, Level::Good, found, "a sync writes to the disk"),
    }
}

fn space(facts: &Facts) -> Finding {
    let free = facts.free_bytes;
    let found = format!("{} free", size(free));
    let (level, meaning) = match free {
        0..NEEDED_BYTES => (Level::Problem, "an empty server takes up to 256 MiB"),
        NEEDED_BYTES..SCARCE_BYTES => (
            Level::Warning,
            "a full disk refuses messages until a purge, a limit or an acknowledgement frees space",
        ),
        _ => (
            Level::Good,
            "a full disk refuses messages and keeps a reserve for purges",
        ),
    };
    finding("space", level, found, meaning)
}

fn files(facts: &Facts) -> Finding {
    let (soft, hard) = facts.files;
    let found = format!("{soft} open files, and {hard} at most");
    // The server keeps a quarter of its descriptors for the log, and some for itself.
    let clients = (hard - hard / 4).saturating_sub(64);
    let meaning = format!("a server raises the limit itself, and takes at most {clients} clients");
    let level = match hard < FILES {
        true => Level::Warning,
        false => Level::Good,
    };
    finding("open files", level, found, &meaning)
}

fn cores(facts: &Facts) -> Finding {
    let cores = facts.cores;
    let found = match facts.quota {
        Some(quota) => format!("{cores} cores, of which a quota allows {quota:.1}"),
        None => format!("{cores} cores"),
    };
    let share = facts.quota.unwrap_or(cores as f64).min(cores as f64);
    match share < 2.0 {
        true => finding(
            "cores",
            Level::Warning,
            found,
            "the event loop and the log share a core, so an acknowledgement takes longer",
        ),
        false => finding(
            "cores",
            Level::Good,
            found,
            "the event loop and the log have a core each",
        ),
    }
}

fn memory(facts: &Facts) -> Finding {
    let meaning =
        "a server keeps the index of its messages in memory, and the messages of streams in memory";
    match facts.available_bytes {
        Some(bytes) if bytes < 512 << 20 => finding(
            "memory",
            Level::Warning,
            format!("{} available", size(bytes)),
            meaning,
        ),
        Some(bytes) => finding(
            "memory",
            Level::Good,
            format!("{} available", size(bytes)),
            meaning,
        ),
        None => finding("memory", Level::Good, "unknown".into(), meaning),
    }
}

fn clock(facts: &Facts) -> Finding {
    let source = facts.clock_source.as_deref().unwrap_or("unknown");
    let found = format!("source {source}, read in {:.0?}", facts.clock_read);
    if facts.now_s < YOUNG_S {
        let meaning =
            "the date is wrong: messages get times of the past, and limits by age remove them late";
        return finding("clock", Level::Warning, found, meaning);
    }
    match facts.clock_read > Duration::from_nanos(500) {
        true => finding(
            "clock",
            Level::Warning,
            found,
            "each reading enters the kernel, which costs a busy server some per cent: prefer the source tsc",
        ),
        false => finding(
            "clock",
            Level::Good,
            found,
            "a clock that jumps changes only the times of messages: no election and no lease depends on it",
        ),
    }
}

fn kernel(facts: &Facts) -> Finding {
    let meaning = "a server needs no feature younger than Linux 4.18";
    let version = |text: &str| {
        let mut parts = text.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let old = version(&facts.kernel).is_some_and(|v: (u32, u32)| v < (4, 18));
    let level = match old {
        true => Level::Warning,
        false => Level::Good,
    };
    finding("kernel", level, facts.kernel.clone(), meaning)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Facts {
        Facts {
            directory: "/data".into(),
            syncs: Ok(vec![Duration::from_micros(100); 100]),
            file_system: Some("ext4"),
            free_bytes: 100 << 30,
            files: (1024, 524_288),
            cores: 4,
            quota: None,
            available_bytes: Some(8 << 30),
            clock_source: Some("tsc".into()),
            clock_read: Duration::from_nanos(25),
            now_s: 1_800_000_000,
            kernel: "6.1.0-13-amd64".into(),
        }
    }

    fn levels(change: impl FnOnce(&mut Facts)) -> Vec<(&'static str, Level)> {
        let mut facts = sound();
        change(&mut facts);
        let found = findings(&facts).into_iter();
        let bad = found.filter(|f| f.level != Level::Good);
        bad.map(|f| (f.check, f.level)).collect()
    }

    #[test]
    fn a_sound_machine_has_no_findings() {
        assert_eq!(levels(|_| {}), []);
        let found = findings(&sound());
        assert!(
            found[0].meaning.contains("10000 acknowledgements"),
            "{}",
            found[0].meaning
        );
    }

    #[test]
    fn each_fault_is_found() {
        use Level::{Problem, Warning};
        type Change = fn(&mut Facts);
        let cases: [(Change, &str, Level); 13] = [
            (
                |f| f.syncs = Err("permission denied".into()),
                "sync",
                Problem,
            ),
            (|f| f.syncs = Ok(Vec::new()), "sync", Problem),
            (
                |f| f.syncs = Ok(vec![Duration::from_millis(9)]),
                "sync",
                Warning,
            ),
            (
                |f| f.syncs = Ok(vec![Duration::from_nanos(900)]),
                "sync",
                Warning,
            ),
            (|f| f.file_system = Some("tmpfs"), "file system", Problem),
            (|f| f.file_system = Some("nfs"), "file system", Warning),
            (|f| f.free_bytes = 1 << 20, "space", Problem),
            (|f| f.free_bytes = 1 << 30, "space", Warning),
            (|f| f.files = (256, 256), "open files", Warning),
            (|f| f.quota = Some(0.5), "cores", Warning),
            (|f| f.available_bytes = Some(1 << 20), "memory", Warning),
            (|f| f.now_s = 0, "clock", Warning),
            (|f| f.kernel = "4.4.0".into(), "kernel", Warning),
        ];
        for (change, check, level) in cases {
            assert_eq!(levels(change), [(check, level)], "{check}");
        }
    }
}
