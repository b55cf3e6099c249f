//! `tidegate count`: counts the words of files with the count topology, to show the engine at work.

mod files;
mod report;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate::controller::Bounds;

use crate::args::CountArgs;
use crate::face;
use crate::interrupt;
use crate::output::Output;
use crate::topology::{self, Live, Pace, Plan};
use files::Files;
use report::Report;

/// The greatest number of lines queued for one splitter. A queued line keeps its block of input in memory, so
/// this number bounds the memory.
const LINES: usize = 2048;
/// The greatest number of words queued for one counter, at most 256 KiB of memory.
const WORDS: usize = 8192;
/// The command measures the latency of one line in this many, so that the clock costs little; with `--rate`,
/// of every line.
const SAMPLE_EVERY: u32 = 16;

/// Counts the words of all files and prints the result for the user. The exit code is 1 if the command could
/// not read a file, and 130 after Ctrl-C.
pub(crate) fn run(args: &CountArgs) -> anyhow::Result<ExitCode> {
    args.controller
        .build(Bounds::default())
        .map_err(crate::Usage::new)?;
    let plan = Plan {
        split: args.split.into(),
        controller: args.controller,
        lines: LINES,
        words: WORDS,
        sample_every: if args.rate.is_some() { 1 } else { SAMPLE_EVERY },
        pace: args.rate.map(|rate| Pace {
            per_s: rate as f64,
            exact: false,
        }),
    };
    let mut out = io::BufWriter::new(Output::open()?);
    let mut files = Files::new(args.files.clone(), progress(&args.files));
    let start = Instant::now();
    let outcome = topology::run(&plan, &mut files, &Live::new(plan.split))?;
    let elapsed = start.elapsed();
    let interrupted = interrupt::asked();
    let read = files.finish();
    let report = Report {
        outcome: &outcome,
        read: &read,
        elapsed,
        top: args.top.get(),
        interrupted,
    };
    // A reader of the output may close it after the first lines, so a broken pipe is no error.
    match report.print(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e.into()),
        _ => {}
    }
    Ok(match (interrupted, read.failed) {
        (true, _) => interrupt::exit_code(),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

/// Returns a progress bar over the bytes of all files, or a running count if standard input is among them,
/// because its length is unknown. Without a terminal, the bar is hidden.
fn progress(files: &[std::path::PathBuf]) -> ProgressBar {
    let sizes = files.iter().map(|file| {
        std::fs::metadata(file)
            .ok()
            .filter(std::fs::Metadata::is_file)
    });
    let known: Option<u64> = sizes.map(|size| Some(size?.len())).sum();
    let (bar, template) = match known {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        ),
        None => (
            ProgressBar::no_length(),
            "{spinner} {bytes}, {bytes_per_sec}",
        ),
    };
    // The template of the progress bar is a constant and valid, so the fallback never applies.
    face::bar(bar).with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
