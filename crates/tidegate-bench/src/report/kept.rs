//! The results of a report's steps on disk: one JSON file a step, with the bench's own document and the
//! circumstances in which the report measured it.
//!
//! A file that is cut short, or that another version of this program wrote in another format, is refused with
//! its name. The report never guesses what such a file meant.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_cli::Usage;

use crate::handlers::Host;
use crate::stream::{Directory, product};

/// The format of the files. A change of [`Kept`] raises this number.
const FORMAT: u64 = 1;
/// The directory of the steps' files below the directory of the report.
const STEPS: &str = "steps";
/// The directory of the benches' own files of finished cells, from which an interrupted step goes on.
const CELLS: &str = "cells";

/// The result of one step, as its file keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    format: u64,
    pub(super) step: String,
    /// The step's arguments in the plan. The report measures the step again if they have changed.
    pub(super) args: Vec<String>,
    pub(super) programs: Vec<Program>,
    pub(super) commit: Option<String>,
    /// The time at which the step began, in UTC.
    pub(super) began: String,
    pub(super) seconds: f64,
    pub(super) machine: Machine,
    /// True if the bench ran to its end. A step that was interrupted or that failed is measured again.
    pub(super) complete: bool,
    /// The reason why there are no results, or why they are not whole.
    pub(super) failure: Option<String>,
    /// The document that the bench printed; null if the bench printed none.
    pub(super) output: Value,
}

/// The identity of a program that took part in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) version: String,
    bytes: u64,
    crc32c: u32,
}

/// The facts about the machine on which the figures of a step depend, measured right before the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The model of the processor and the number of cores.
    pub(super) model: String,
    pub(super) kernel: String,
    /// The median time of a bare write with its `fdatasync` on the disk of the benches' files, in
    /// microseconds.
    pub(super) sync_us: f64,
    /// The median round trip of a cache line between two threads, in nanoseconds.
    pub(super) round_trip_ns: f64,
}

impl Kept {
    /// Creates the result of a step that has not run yet.
    pub(super) fn new(step: &str, args: &[String], programs: &[Program], machine: Machine) -> Self {
        Self {
            format: FORMAT,
            step: step.into(),
            args: args.into(),
            programs: programs.into(),
            commit: None,
            began: String::new(),
            seconds: 0.0,
            machine,
            complete: false,
            failure: None,
            output: Value::Null,
        }
    }

    /// Returns whether a run with these arguments and programs need not measure the step again.
    pub(super) fn serves(&self, args: &[String], programs: &[Program]) -> bool {
        self.complete && self.args == args && self.programs == programs
    }
}

/// Returns the identities of this program and of the server that it starts.
///
/// # Errors
///
/// This program's own file cannot be read.
pub(super) fn programs() -> anyhow::Result<Vec<Program>> {
    let own = std::env::current_exe()?;
    let mut programs = vec![program("tidegate-bench", &own)?];
    // Benches that need the server report its absence themselves.
    if let Ok(server) = product() {
        programs.push(program("tidegate", &server)?);
    }
    Ok(programs)
}

fn program(name: &str, path: &Path) -> anyhow::Result<Program> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(Program {
        name: name.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        bytes: bytes.len() as u64,
        crc32c: crc32c::crc32c(&bytes),
    })
}

/// Measures the facts about this machine, for some 20 ms.
///
/// # Errors
///
/// The directory of the benches' files cannot be written.
pub(super) fn machine(model: &str) -> anyhow::Result<Machine> {
    let directory = Directory::make()?;
    let host = Host::measure(model.into(), None, directory.path())?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(Machine {
        model: host.machine,
        kernel: format!("Linux {}", kernel.trim()),
        sync_us: host.sync_us,
        round_trip_ns: host.round_trip_ns,
    })
}

/// The directory of a report.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates the directory with its parts.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        for part in [STEPS, CELLS] {
            let part = path.join(part);
            std::fs::create_dir_all(&part).with_context(|| part.display().to_string())?;
        }
        Ok(Self(path.into()))
    }

    /// Returns the path of a file of the report itself.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the path at which a bench keeps the finished cells of a step. Another program gets another
    /// file, so that no cell of an old program counts for a new one.
    pub(super) fn cells(&self, step: &str, programs: &[Program]) -> PathBuf {
        let crc = programs.iter().fold(0, |crc, p| {
            crc32c::crc32c_append(crc, &p.crc32c.to_le_bytes())
        });
        self.0.join(CELLS).join(format!("{step}-{crc:08x}.jsonl"))
    }

    /// Reads the result of a step; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is cut short, or has another format.
    pub(super) fn read(&self, step: &str) -> anyhow::Result<Option<Kept>> {
        let path = self.path(step);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let kept = parse(&text).map_err(|e| Usage::new(format!("{}: {e}", path.display())))?;
        Ok(Some(kept))
    }

    /// Writes the result of a step. The file is whole at every moment.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn write(&self, kept: &Kept) -> anyhow::Result<()> {
        write_whole(&self.path(&kept.step), &serde_json::to_string_pretty(kept)?)
    }

    fn path(&self, step: &str) -> PathBuf {
        self.0.join(STEPS).join(format!("{step}.json"))
    }
}

/// Writes a file beside its place and moves it there, so that no reader finds a part of it.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| path.display().to_string())
}

/// Parses the text of a step's file.
///
/// # Errors
///
/// The text is cut short or has another format. The error says what to do.
pub(super) fn parse(text: &str) -> Result<Kept, String> {
    const AGAIN: &str = "remove the file, and the report measures the step again";
    let value: Value =
        serde_json::from_str(text).map_err(|e| format!("cut short or no JSON ({e}): {AGAIN}"))?;
    match value.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(format!(
                "has format {other}, and this version reads format {FORMAT}: give another --out, or {AGAIN}"
            ));
        }
        None => return Err(format!("no result of a step, it has no `format`: {AGAIN}")),
    }
    serde_json::from_value(value).map_err(|e| format!("no whole result of a step ({e}): {AGAIN}"))
}

/// Formats a time since the Unix epoch as a date and a time of day in UTC.
pub(super) fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // The count of days starts at 1 March of the year 0, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        Kept {
            complete: true,
            ..Kept::new("queue", &["queue".into()], &[], Machine::default())
        }
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(&directory.path().join("deep/report")).unwrap();
        assert_eq!(folder.read("queue").unwrap(), None);
        folder.write(&kept()).unwrap();
        let read = folder.read("queue").unwrap().unwrap();
        assert_eq!(read, kept());
        assert!(read.serves(&["queue".into()], &[]));
        assert!(!read.serves(&["queue".into(), "--full".into()], &[]));
        let other = program("x", &std::env::current_exe().unwrap()).unwrap();
        assert!(!read.serves(&["queue".into()], &[other]));
    }

    #[test]
    fn a_cut_file_and_another_format_are_refused_in_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::open(directory.path()).unwrap();
        folder.write(&kept()).unwrap();
        let path = folder.path("queue");
        let whole = std::fs::read_to_string(&path).unwrap();
        let cut = &whole[..whole.len() - 9];
        let foreign = whole.replace("\"format\": 1", "\"format\": 7");
        for (text, said) in [
            (cut, "cut short or no JSON"),
            (
                &foreign[..],
                "has format 7, and this version reads format 1",
            ),
            ("{}", "it has no `format`"),
            ("{\"format\": 1}", "no whole result of a step"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = folder.read("queue").unwrap_err();
            assert!(error.is::<Usage>(), "{error:#}");
            let error = format!("{error:#}");
            assert!(
                error.contains("steps/queue.json: ") && error.contains(said),
                "{error}"
            );
            assert!(
                error.contains("remove the file") && !error.contains('\n'),
                "{error}"
            );
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_781_906), "2026-11-27 12:18:26 UTC");
    }
}
