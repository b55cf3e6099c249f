//! `tidegate-bench compare OLD NEW`: compares two release binaries of `tidegate` as stream servers, in
//! interleaved pairs of runs.
//!
//! Each pair runs both binaries once, in alternating order. The bench takes a ratio within each pair, and the
//! row shows the median of the ratios with its 95 % interval ([`interval`]). If the interval of throughput is
//! wider than the bound, the bench judges the row by processor time and system calls a message, and the row
//! says so. A comparison of a binary with itself shows the noise of the machine.

mod interval;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, value_parser};
use serde_json::json;
use tidegate_cli::report::{Table, count, number};
use tidegate_cli::{Usage, interrupt};

use crate::stream::{Measured, Pair, Traffic};
pub(crate) use interval::Interval;
use interval::{PAIRS_MIN, Verdict};

/// The arguments with which the user runs `tidegate-bench compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CompareArgs {
    /// Measure this release binary of `tidegate` as the state before the change.
    old: PathBuf,
    /// Measure this release binary of `tidegate` as the state after the change.
    new: PathBuf,
    /// Run this many pairs for each row of the table, at least 7; more pairs narrow the interval of the
    /// result. A pair is one run of OLD and one run of NEW.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = value_parser!(u32).range(PAIRS_MIN as i64..=1000))]
    pairs: u32,
    /// In each row of the table, accept NEW if its throughput is worse than OLD's by at most this many per
    /// cent, the tolerated noise. If the throughput varies too much for a verdict, judge the processor time
    /// and the system calls per message in the same way.
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    within: f64,
    /// Measure only the rows of the table with this text in their name, to save time.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Measure for this many milliseconds in each run; a longer run has less noise.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = value_parser!(u64).range(10..=60_000))]
    window_ms: u64,
    /// Print one JSON document, for other programs, instead of a table.
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p| (0.1..=50.0).contains(p));
    percent.ok_or_else(|| "give per cent from 0.1 to 50".into())
}

/// One row of the comparison's table: first the throughput, then the costs, by which the bench judges the row
/// if the interval of throughput is too wide for a verdict.
struct Line {
    name: String,
    old_per_s: f64,
    throughput: Interval,
    cpu: Interval,
    /// The ratio NEW / OLD of the system calls per message; `None` if neither perf nor strace is installed.
    syscalls: Option<f64>,
    verdict: Verdict,
    by: &'static str,
}

/// Runs all rows of the comparison. The exit code is 1 if NEW is worse in a row.
pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    for path in [&args.old, &args.new] {
        if !path.is_file() {
            let text =
                "expected a release binary of tidegate: cargo build --release -p tidegate-cli";
            return Err(Usage::new(format!("{}: {text}", path.display())).into());
        }
    }
    let mut pair = Pair::start(&args.old, &args.new)?;
    let mut lines = Vec::new();
    for traffic in Traffic::ALL {
        let name = traffic.name();
        if args
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        if let Some(line) = line(args, &mut pair, traffic)? {
            eprintln!("tidegate-bench: {name}: {}", line.verdict.text());
            lines.push(line);
        }
    }
    ensure!(!lines.is_empty(), "no row was measured");
    if args.json {
        println!("{}", document(args, &lines));
    } else {
        print!("{}", table(&lines));
    }
    Ok(
        match lines.iter().any(|line| line.verdict == Verdict::Worse) {
            _ if interrupt::asked() => ExitCode::from(interrupt::EXIT_CODE),
            true => ExitCode::from(1),
            false => ExitCode::SUCCESS,
        },
    )
}

/// Measures one row of the comparison; `None` after Ctrl-C.
fn line(args: &CompareArgs, pair: &mut Pair, traffic: Traffic) -> anyhow::Result<Option<Line>> {
    let messages = pair.calibrate(traffic, args.window_ms)?;
    let mut measured: Vec<[Measured; 2]> = Vec::new();
    for n in 0..args.pairs {
        if interrupt::asked() {
            return Ok(None);
        }
        // The order of OLD and NEW alternates, so that neither binary always runs after the other.
        let order = if n % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut both = [Measured::default(); 2];
        for side in order {
            both[side] = pair.measure(side, traffic, messages)?;
        }
        measured.push(both);
    }
    let ratios = |of: fn(&Measured) -> f64| {
        let all: Vec<f64> = measured
            .iter()
            .map(|[old, new]| of(new) / of(old))
            .collect();
        Interval::of(&all).ok_or_else(|| anyhow::anyhow!("too few pairs"))
    };
    let (throughput, cpu) = (ratios(|m| m.per_s)?, ratios(|m| m.cpu_ns)?);
    let calls = [pair.syscalls(0, traffic)?, pair.syscalls(1, traffic)?];
    let syscalls = match calls {
        [Some(old), Some(new)] => Some(new / old),
        _ => None,
    };
    let within = args.within / 100.0;
    let (verdict, by) = judge(throughput, cpu, syscalls, within);
    let olds: Vec<f64> = measured.iter().map(|[old, _]| old.per_s).collect();
    Ok(Some(Line {
        name: traffic.name(),
        old_per_s: crate::rounds::median(olds).unwrap_or_default(),
        throughput,
        cpu,
        syscalls,
        verdict,
        by,
    }))
}

/// Judges a row by throughput if the interval of throughput is narrow enough, and otherwise by processor time
/// and system calls per message, which vary less.
fn judge(
    throughput: Interval,
    cpu: Interval,
    syscalls: Option<f64>,
    within: f64,
) -> (Verdict, &'static str) {
    if throughput.width() <= within {
        return (Verdict::of(throughput, within, true), "throughput");
    }
    let cpu = Verdict::of(cpu, within, false);
    let more_calls = syscalls.is_some_and(|ratio| ratio > 1.0 + within);
    match cpu {
        Verdict::NotWorse if more_calls => (Verdict::Worse, "system calls"),
        verdict => (verdict, "processor time, system calls"),
    }
}

fn cell(of: Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", of.median, of.low, of.high)
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::new([
        "1 KiB, R1, NEW / OLD",
        "OLD msgs/s",
        "throughput",
        "server cpu/msg",
        "syscalls/msg",
        "verdict",
        "by",
    ]);
    for line in lines {
        let calls = line.syscalls.map(number).unwrap_or_default();
        table.row([
            line.name.clone(),
            count(line.old_per_s),
            cell(line.throughput),
            cell(line.cpu),
            calls,
            line.verdict.text().to_owned(),
            line.by.to_owned(),
        ]);
    }
    table.print()
}

fn document(args: &CompareArgs, lines: &[Line]) -> serde_json::Value {
    let shown = |path: &Path| path.display().to_string();
    let numbers = |of: Interval| json!({ "median": of.median, "low": of.low, "high": of.high });
    let rows = lines.iter().map(|line| {
        json!({
            "case": line.name,
            "old_per_s": line.old_per_s,
            "throughput": numbers(line.throughput),
            "cpu": numbers(line.cpu),
            "syscalls": line.syscalls,
            "verdict": line.verdict.text(),
            "by": line.by,
        })
    });
    json!({
        "bench": "compare",
        "old": shown(&args.old),
        "new": shown(&args.new),
        "pairs": args.pairs,
        "within_percent": args.within,
        "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_interval_hands_the_verdict_to_the_costs() {
        let of = |low, median, high| Interval { median, low, high };
        let narrow = of(0.99, 1.0, 1.01);
        let wide = of(0.8, 1.0, 1.2);
        assert_eq!(judge(narrow, wide, Some(2.0), 0.03).0, Verdict::NotWorse);
        assert_eq!(judge(wide, narrow, Some(1.0), 0.03).0, Verdict::NotWorse);
        assert_eq!(
            judge(wide, narrow, Some(1.2), 0.03),
            (Verdict::Worse, "system calls")
        );
        assert_eq!(judge(wide, of(1.1, 1.2, 1.3), None, 0.03).0, Verdict::Worse);
        assert_eq!(judge(wide, wide, None, 0.03).0, Verdict::NotResolved);
    }
}
