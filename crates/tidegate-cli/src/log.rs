//! `tidegate log`: inspects, verifies and repairs the files of a stopped server, for the operator. Only
//! `repair` changes the files.
//!
//! Exit codes: 0 if the files are whole (for `repair`: if they are whole now and the repair gave nothing up),
//! 1 if files are damaged, missing or not readable, or if `repair` failed, 2 if the arguments are wrong or
//! the directory has no log, 3 if `repair` has repaired the files and gave something up, 130 if Ctrl-C ended
//! the command.

mod repair;
mod report;
mod watched;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use tidegate_log::{Disk, Report, Storage as _};
use tidegate_raft::store::{Check, OpenError, REPAIRED_FILE};

use crate::interrupt::{self, Interrupted};
use crate::{Usage, face, output};
use repair::Repair;
use report::Looked;
use watched::{Changes, Watched};

/// The file in the quarantine in which a repair lists its losses for the operator.
const LOST_FILE: &str = "lost.txt";
/// The exit code of a repair that gave up entries or files, because they were damaged.
const GAVE_UP: u8 = 3;
/// The exit codes at the end of the help of `tidegate log inspect` and `tidegate log verify`, for scripts.
const LOOK_CODES: &str = "Exit codes: 0 whole, 1 damaged or not readable, 2 wrong arguments";
/// The exit codes at the end of the help of `tidegate log repair`, for scripts.
const REPAIR_CODES: &str = "Exit codes: 0 whole, nothing is lost, 1 not repaired, 2 wrong arguments, 3 repaired, entries are lost, 130 ended by Ctrl-C before the first change, or by a second Ctrl-C";

/// The subcommands of `tidegate log`, by which the operator examines or repairs a data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the contents of the log by its own indices, for a quick look that does not see damage inside full
    /// segments.
    #[command(after_help = LOOK_CODES)]
    Inspect(LogArgs),
    /// Read every byte of the log and check it, to find all damage.
    #[command(after_help = LOOK_CODES)]
    Verify(LogArgs),
    /// Keep the readable part of a damaged log, so that the server starts again, and list the lost entries.
    #[command(after_help = REPAIR_CODES)]
    Repair(RepairArgs),
}

/// The arguments that all subcommands of `tidegate log` share.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// Read this data directory, the DIR of `tidegate serve --data`.
    #[arg(value_name = "DATA_DIR")]
    data: PathBuf,
    /// Print one JSON document, for other programs, instead of text.
    #[arg(long)]
    json: bool,
}

/// The arguments that only `tidegate log repair` has.
#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    log: LogArgs,
    /// Copy each damaged file to this directory before the repair changes the file, so that nothing is lost
    /// for good. The directory must lie outside the data directory.
    #[arg(long, value_name = "DIR")]
    quarantine: PathBuf,
}

/// Runs the subcommand that the operator gave, and returns its exit code.
pub(crate) fn run(command: &LogCommand) -> anyhow::Result<ExitCode> {
    match command {
        LogCommand::Inspect(args) => look(args, true),
        LogCommand::Verify(args) => look(args, false),
        LogCommand::Repair(args) => repair(args),
    }
}

/// Returns the server's directory, which holds the checkpoints, and the log's directory inside it.
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
    let disk = Disk::existing(&log).with_context(|| log.display().to_string())?;
    let disk = Watched::new(disk, Changes::default());
    let (report, check) = examined(&disk, &state, &log, by_index, &[])?;
    // The drop removes the progress line before the command prints the report.
    drop(disk);
    let looked = Looked {
        checkpoints: check.checkpoints().to_vec(),
        refusals: check.finish(&report),
        report,
        every_byte: !by_index,
    };
    match args.json {
        true => print(&looked.json())?,
        false => output::print(&looked)?,
    }
    Ok(match looked.is_sound() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Examines the log and the files beside it. Ignores the checkpoints named in `without`, to find out if the
/// server could start without them.
fn examined(
    disk: &Watched,
    state: &Path,
    log: &Path,
    by_index: bool,
    without: &[String],
) -> anyhow::Result<(Report, Check)> {
    let name = || state.display().to_string();
    let storage = Disk::existing(state).with_context(name)?;
    if !storage.lock().with_context(name)? {
        return Err(OpenError::InUse).with_context(name);
    }
    let mut check = Check::begin(&storage, without).with_context(name)?;
    let note = |record: &_| check.note(record);
    let report = match by_index {
        true => tidegate_log::inspect_records(disk, note),
        false => tidegate_log::verify_records(disk, note),
    };
    Ok((report.with_context(|| log.display().to_string())?, check))
}

fn print(json: &serde_json::Value) -> anyhow::Result<()> {
    output::print(format_args!("{json:#}\n"))
}

fn repair(args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let (state, log) = directories(&args.log.data)?;
    set_up_quarantine(&args.quarantine, &args.log.data)?;
    let repair = Repair {
        data: &args.log.data,
        state: &state,
        log: &log,
        quarantine: &args.quarantine,
        changes: Changes::default(),
    };
    let mended = repair
        .run()
        .map_err(|error| match interrupt::caused(&error) {
            // After its first change the repair ignores Ctrl-C.
            true => anyhow::Error::new(Interrupted).context("no file is changed"),
            false => error,
        })?;
    let gave_up = !mended.gave_nothing_up();
    if gave_up {
        // A second repair would find nothing to list, so the list must survive an output that fails.
        let list = args.quarantine.join(LOST_FILE);
        append(&list, &mended.to_string()).with_context(|| list.display().to_string())?;
    }
    let printed = match args.log.json {
        true => print(&mended.json()),
        false => output::print(&mended),
    };
    match printed {
        Err(error) if gave_up => face::complain(format_args!(
            "tidegate: {error:#}: the list is in {}",
            args.quarantine.join(LOST_FILE).display()
        )),
        printed => printed?,
    }
    Ok(match (mended.refusals.is_empty(), gave_up) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(GAVE_UP),
    })
}

/// Creates the quarantine for damaged files. Refuses a directory inside the data directory, where a server
/// would find the damaged files.
fn set_up_quarantine(quarantine: &Path, data: &Path) -> anyhow::Result<()> {
    let data = fs::canonicalize(data).with_context(|| data.display().to_string())?;
    let absolute = std::path::absolute(quarantine)?;
    let existing = absolute.ancestors().find_map(|p| fs::canonicalize(p).ok());
    // The second check follows links and dots in the part of the path that did not exist at the first check.
    let check = |directory: &Path| match directory.starts_with(&data) {
        true => Err(Usage::new(format!(
            "--quarantine {}: give a directory outside of the data directory",
            quarantine.display()
        ))),
        false => Ok(()),
    };
    existing.as_deref().map_or(Ok(()), check)?;
    let name = || quarantine.display().to_string();
    fs::create_dir_all(quarantine).with_context(name)?;
    Ok(check(&fs::canonicalize(quarantine).with_context(name)?)?)
}

/// Appends a line to the file in which repairs list the lost entries, so that a later start finds the
/// reason.
fn note(state: &Path, line: &str) -> anyhow::Result<()> {
    append(&state.join(REPAIRED_FILE), line)?;
    Ok(Disk::existing(state)?.sync_names()?)
}

/// Appends text to a file, which it creates if the file does not exist, and syncs the file.
fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
