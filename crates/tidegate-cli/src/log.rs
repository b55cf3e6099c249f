//! `tidegate log`: inspects, verifies and repairs the files of a stopped server. Only `repair` changes them.
//!
//! Exit codes: 0 if the files are whole (for `repair`: if they are whole now and it gave nothing up), 1 if
//! files are damaged, missing or not readable, or if `repair` failed, 2 if the arguments are wrong or the
//! directory has no log, 3 if `repair` has repaired the files and gave something up.

mod report;
mod watched;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tidegate_log::{Disk, Storage as _};
use tidegate_raft::store::{REPAIRED_FILE, checkpoint, missing};

use crate::Usage;
use report::{Checkpoint, Looked, Mended};
use watched::Watched;

/// The subcommands of `tidegate log`.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the contents by the log's own indices. This is quick, and does not see damage inside full
    /// segments.
    Inspect(LogArgs),
    /// Read every byte and check it.
    Verify(LogArgs),
    /// Keep the readable part of a damaged log, so that the server starts again, and list the lost entries.
    Repair(RepairArgs),
}

/// The arguments of every subcommand of `tidegate log`.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Read this data directory, the DIR of `tidegate serve --data`.
    #[arg(value_name = "DATA_DIR")]
    data: PathBuf,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

/// The further arguments of `tidegate log repair`.
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Copy each damaged file to this directory before the repair changes the file. The directory must lie
    /// outside the data directory.
    #[arg(long, value_name = "DIR")]
    quarantine: PathBuf,
}

/// Runs the subcommand.
pub(crate) fn run(command: &LogCommand) -> anyhow::Result<ExitCode> {
    match command {
        LogCommand::Inspect(args) => look(args, true),
        LogCommand::Verify(args) => look(args, false),
        LogCommand::Repair(args) => repair(args),
    }
}

/// Returns the server's directory with the checkpoints, and the log's directory inside it.
fn directories(data: &Path) -> Result<(PathBuf, PathBuf), Usage> {
    let state = data.join("tidegate");
    let log = state.join("log");
    match log.is_dir() {
        true => Ok((state, log)),
        false => Err(Usage::new(format!(
            "{} holds no log: give the directory that `tidegate serve --data` was given",
            data.display()
        ))),
    }
}

fn look(args: &LogArgs, by_index: bool) -> anyhow::Result<ExitCode> {
    let (state, log) = directories(&args.data)?;
    let disk = Watched::new(Disk::existing(&log).with_context(|| log.display().to_string())?);
    let report = match by_index {
        true => tidegate_log::inspect(&disk),
        false => tidegate_log::verify(&disk),
    };
    // The drop removes the progress line before the report is printed.
    drop(disk);
    let looked = Looked {
        report: report.with_context(|| log.display().to_string())?,
        checkpoints: checkpoints(&state)?,
        every_byte: !by_index,
    };
    match args.json {
        true => print(&looked.json())?,
        false => write!(std::io::stdout().lock(), "{looked}")?,
    }
    Ok(match looked.is_sound() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn print(json: &serde_json::Value) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{json:#}")?)
}

/// Returns the checkpoints in the directory, oldest first.
fn checkpoints(state: &Path) -> anyhow::Result<Vec<Checkpoint>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(state).with_context(|| state.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("state-").map(str::parse::<u64>);
        let Some(Ok(_)) = number else {
            continue;
        };
        let bytes = fs::read(entry.path()).with_context(|| name.clone())?;
        let decoded = checkpoint::decode(&bytes);
        found.push(Checkpoint {
            name,
            bytes: bytes.len() as u64,
            covers: decoded.map(|(header, _)| (header.entry.index, header.next)),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn repair(args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let (state, log) = directories(&args.log.data)?;
    let name = || log.display().to_string();
    fs::create_dir_all(&args.quarantine).with_context(|| args.quarantine.display().to_string())?;
    if fs::canonicalize(&args.quarantine)?.starts_with(fs::canonicalize(&state)?) {
        return Err(Usage::new("the quarantine must lie outside the data directory").into());
    }
    let mended = {
        let disk = Watched::new(Disk::existing(&log).with_context(name)?);
        // The note comes before the repair: a start that misses records must find the reason.
        if tidegate_log::verify(&disk)
            .with_context(name)?
            .damage
            .is_some()
        {
            note(&state, "a repair was begun\n")?;
        }
        drop(disk);
        let disk = Watched::new(Disk::existing(&log)?);
        let quarantine = Disk::open(&args.quarantine)?;
        tidegate_log::repair(&disk, &quarantine).with_context(name)?
    };
    for lost in &mended.lost {
        note(&state, &format!("lost: {}..{}\n", lost.start, lost.end))?;
    }
    let mended = Mended {
        missing: match mended.damage.is_empty() {
            true => None,
            false => Some(missing(&args.log.data, &mended.lost)),
        },
        mended,
    };
    match args.log.json {
        true => print(&mended.json())?,
        false => write!(std::io::stdout().lock(), "{mended}")?,
    }
    Ok(match mended.gave_nothing_up() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Appends a line to the file that lists what repairs gave up.
fn note(state: &Path, line: &str) -> anyhow::Result<()> {
    let path = state.join(REPAIRED_FILE);
    let mut options = fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(&path)?;
    file.write_all(line.as_bytes())?;
    file.sync_all()?;
    Ok(Disk::existing(state)?.sync_names()?)
}
