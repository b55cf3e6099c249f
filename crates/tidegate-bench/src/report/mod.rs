//! `tidegate-bench report`: runs every bench with its peers, and writes one page and one Markdown file about
//! all results.
//!
//! [`plan`] lists the steps, [`steps`] runs a step as a process, [`kept`] keeps its result in a file of its
//! own. A step with a whole result of the same program is not measured again, so an interrupted report goes
//! on. Then [`page`] composes the report from the files alone: [`losses`] finds where a peer is better,
//! [`curves`] chooses the points of plots and [`plot`] draws them, [`html`] and [`markdown`] show the same
//! blocks. All of these are pure but [`steps`], [`kept`] and [`progress`].

mod cells;
mod curves;
mod grid;
mod html;
mod kept;
mod losses;
mod markdown;
mod page;
mod plan;
mod plot;
mod progress;
mod rows;
mod steps;
#[cfg(test)]
mod tests;
mod time;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use tidegate_cli::report::Document;
use tidegate_cli::{Usage, interrupt};

use crate::machine;
use kept::{Folder, Kept, Program, write_whole};
use plan::{Length, Step, select};
use progress::Progress;
use time::{Time, span};

/// The arguments with which the user runs `tidegate-bench report`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportArgs {
    /// Keep the results and write report.html and report.md in this directory. A later run with the same
    /// directory measures only the steps without a whole result of the same programs. Default:
    /// bench/results/report, or bench/results/report-quick with --quick.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Measure only the steps with one of these texts in their names, separated by commas, to save time. A
    /// text that is the whole name of a step selects only this one. The report still shows all results in the
    /// directory.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the steps with their expected durations instead of running them, to choose some for --only.
    #[arg(long)]
    list: bool,
    /// Measure briefly, to prove only that the report works.
    #[arg(long)]
    quick: bool,
    /// Measure nothing, and write the report from the results in the directory.
    #[arg(long, conflicts_with = "list")]
    render: bool,
    /// Write the Markdown to this file, too, such as docs/report.md.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Measures the steps that have no result yet, and writes the report. The exit code is 1 if a wanted step has
/// no whole result.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let length = if args.quick {
        Length::Quick
    } else {
        Length::Usual
    };
    let all = plan::steps(length);
    let wanted = select(all.clone(), args.only.as_deref()).map_err(Usage::new)?;
    let folder = Folder::open(&args.out.clone().unwrap_or_else(|| place(length)))?;
    // The files of all steps are read before any measurement, so that a broken file costs no time.
    for step in &all {
        folder.read(step.name)?;
    }
    if args.list {
        return list(&wanted, &folder);
    }
    let mut is_whole = true;
    if !args.render {
        is_whole = measure(&wanted, &folder)?;
    }
    write(args, &all, &folder)?;
    Ok(match is_whole {
        _ if interrupt::asked() => ExitCode::from(interrupt::EXIT_CODE),
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

/// Returns the default directory of the report: beside the peers if there are any, otherwise below the
/// current directory.
fn place(length: Length) -> PathBuf {
    let name = match length {
        Length::Usual => "report",
        Length::Quick => "report-quick",
    };
    machine::upwards("bench/peers")
        .unwrap_or_default()
        .join("bench/results")
        .join(name)
}

fn list(steps: &[Step], folder: &Folder) -> anyhow::Result<ExitCode> {
    let mut total = 0.0;
    for step in steps {
        let (time, is_measured) = match expected(step, folder)? {
            Time::Earlier(seconds) => (seconds, "measured before"),
            Time::Guessed(seconds)
            | Time::Done {
                expected_s: seconds,
                ..
            } => (seconds, "a guess"),
        };
        total += time;
        let (name, about) = (step.name, step.about);
        writeln!(
            std::io::stdout(),
            "{name:<18} {:>12} ({is_measured}): {about}",
            span(time)
        )?;
    }
    writeln!(
        std::io::stdout(),
        "{} steps, about {}",
        steps.len(),
        span(total)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the duration of a step in an earlier run, or the guess of the plan.
fn expected(step: &Step, folder: &Folder) -> anyhow::Result<Time> {
    let earlier = folder.read(step.name)?;
    let earlier = earlier.filter(|kept| kept.complete && kept.args == step.args);
    Ok(earlier.map_or(Time::Guessed(step.guess_s), |kept| {
        Time::Earlier(kept.seconds)
    }))
}

/// Measures the steps that have no whole result of these programs yet. Returns whether all have one at the
/// end.
fn measure(wanted: &[Step], folder: &Folder) -> anyhow::Result<bool> {
    let programs = kept::programs()?;
    let mut left = Vec::new();
    for step in wanted {
        let kept = folder.read(step.name)?;
        if !kept.is_some_and(|kept| kept.serves(&step.args, &programs)) {
            left.push((step, expected(step, folder)?));
        }
    }
    let noun = if left.len() == 1 { "step" } else { "steps" };
    say(&format!(
        "{} {noun} to measure, {} kept",
        left.len(),
        wanted.len() - left.len()
    ));
    if left.is_empty() {
        return Ok(true);
    }
    let mut progress =
        Progress::start(left.iter().map(|(step, time)| (step.name, *time)).collect());
    let mut is_whole = true;
    for (at, (step, _)) in left.iter().enumerate() {
        if interrupt::asked() {
            return Ok(false);
        }
        progress.begin(at);
        let kept = measure_step(step, folder, &programs, &mut progress)?;
        is_whole &= kept.complete;
        progress.end(kept.seconds, kept.failure.as_deref());
    }
    Ok(is_whole)
}

fn measure_step(
    step: &Step,
    folder: &Folder,
    programs: &[Program],
    progress: &mut Progress,
) -> anyhow::Result<Kept> {
    let document = Document::new("report");
    let mut kept = Kept::new(
        step.name,
        &step.args,
        programs,
        kept::machine(&document.machine)?,
    );
    kept.commit = document.commit;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    kept.began = kept::date(now.map(|time| time.as_secs()).unwrap_or_default());
    let mut args = step.args.clone();
    if let Some(flag) = step.keeps {
        let cells = folder.cells(step.name, programs);
        args.extend([flag.to_owned(), cells.display().to_string()]);
    }
    let program = match step.program {
        plan::Program::Own => std::env::current_exe()?,
        plan::Program::Cargo => {
            std::env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
        }
    };
    let ran = steps::run(&program, &args, |said| progress.show(said))?;
    kept.seconds = ran.seconds;
    kept.complete = ran.is_complete();
    kept.failure = ran.failure();
    kept.output = ran.output;
    // An interrupted step does not take the place of a whole result of an earlier program.
    let has_earlier =
        || Ok::<_, anyhow::Error>(folder.read(step.name)?.is_some_and(|kept| kept.complete));
    if kept.complete || !interrupt::asked() || !has_earlier()? {
        folder.write(&kept)?;
    }
    Ok(kept)
}

/// Writes the report from the results of all steps in the directory.
fn write(args: &ReportArgs, all: &[Step], folder: &Folder) -> anyhow::Result<()> {
    let (mut results, mut missing) = (Vec::new(), Vec::new());
    for step in all {
        match folder.read(step.name)? {
            Some(kept) => results.push((step.clone(), kept)),
            None => missing.push(step.clone()),
        }
    }
    let page = page::page(&results, &missing, args.quick);
    let markdown = markdown::markdown(&page);
    let html = folder.file("report.html");
    write_whole(&html, &html::html(&page)?)?;
    write_whole(&folder.file("report.md"), &markdown)?;
    if let Some(path) = &args.markdown {
        write_whole(path, &markdown)?;
    }
    writeln!(std::io::stdout(), "{}", html.display())?;
    Ok(())
}

fn say(text: &str) {
    eprintln!("tidegate-bench: {text}");
}
