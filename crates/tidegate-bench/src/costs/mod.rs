//! `tidegate-bench costs`: measures what each work of the server's event loop takes on this machine, and
//! prints the table that the simulation of the loop reads (`crates/tidegate-server/tests/busy/costs.txt`).
//!
//! A row is the median of many rounds, and a round does the work many times. [`sessions`] measures the node
//! without sockets, [`sockets`] the calls of the system, [`groups`] the streams and the Raft groups,
//! [`consumers`] the deliveries of consumers, and [`keys`] the works of the pool's threads.

mod consumers;
mod groups;
mod keys;
mod sessions;
mod sockets;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, value_parser};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tidegate_cli::report::{Document, OURS, Row};

/// The arguments with which the user runs `tidegate-bench costs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CostsArgs {
    /// Measure each work in this many rounds, and report the median of the rounds; more rounds reduce the
    /// noise.
    #[arg(long, value_name = "N", default_value_t = 51, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print one JSON document, for other programs, instead of the table for the simulation.
    #[arg(long)]
    json: bool,
}

/// The measured works for the simulation, each with its cost in picoseconds.
type Table = Vec<(&'static str, u64)>;

/// All works of the event loop, in the order of the table.
const WORKS: [&str; 36] = [
    "Turn",
    "Event",
    "Accept",
    "Close",
    "Read",
    "ReadByte",
    "Write",
    "WriteByte",
    "Operation",
    "Publish",
    "Copy",
    "CopyByte",
    "Subscribe",
    "Unsubscribe",
    "Frame",
    "RaftMessage",
    "Propose",
    "Entry",
    "EntryByte",
    "Remove",
    "Reclaim",
    "Free",
    "Foresee",
    "Subject",
    "Search",
    "LookUp",
    "TakeUp",
    "Deliver",
    "Describe",
    "List",
    "Look",
    "Tick",
    "TlsHello",
    "TlsFinish",
    "Password",
    "Page",
];

/// Returns the measured works in the order of the table, so that a new table differs from the last one only
/// in its numbers.
///
/// # Errors
///
/// A work is missing, or the simulation does not know a work.
fn in_order(measured: &Table) -> anyhow::Result<Table> {
    let cost = |work: &'static str| {
        let found = measured.iter().find(|(name, _)| *name == work);
        let found = found.with_context(|| format!("the bench does not measure {work}"))?;
        Ok((work, found.1))
    };
    let table: Table = WORKS.into_iter().map(cost).collect::<anyhow::Result<_>>()?;
    let unknown = measured.iter().find(|(name, _)| !WORKS.contains(name));
    ensure!(unknown.is_none(), "no work of the simulation: {unknown:?}");
    Ok(table)
}

/// Measures all works of the event loop, and prints the table for the simulation.
pub(crate) fn run(args: &CostsArgs) -> anyhow::Result<ExitCode> {
    let rounds = args.rounds as usize;
    let mut table = sockets::measure(rounds)?;
    table.extend(sessions::measure(rounds));
    table.extend(groups::measure(rounds)?);
    table.extend(consumers::measure(rounds));
    table.extend(keys::measure(rounds)?);
    let table = in_order(&table)?;
    let mut out = std::io::stdout().lock();
    let mut document = Document::new("costs");
    if args.json {
        document.rows = table
            .iter()
            .map(|(work, ps)| row(work, *ps, args.rounds))
            .collect();
        writeln!(out, "{}", document.json()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let machine = document.machine;
    writeln!(
        out,
        "# The cost of each work of the event loop, in picoseconds: medians of {rounds} rounds,"
    )?;
    writeln!(out, "# measured by `tidegate-bench costs` on {machine}.")?;
    for (work, ps) in table {
        writeln!(out, "{work} {ps}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the row of one work, with its cost in picoseconds.
fn row(work: &str, ps: u64, rounds: u32) -> Row {
    Row {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        case: "works of the event loop".into(),
        controller: Some(work.into()),
        rounds: Some(rounds.into()),
        extra: [("ps".to_owned(), json!(ps))].into(),
        ..Row::default()
    }
}

/// Returns the median time of one work over `rounds` rounds, in picoseconds. `round` does `n` works and
/// returns the time that they took.
fn median(rounds: usize, n: usize, mut round: impl FnMut() -> Duration) -> u64 {
    let mut times: Vec<u64> = (0..rounds).map(|_| round().as_nanos() as u64).collect();
    times.sort_unstable();
    times[rounds / 2] * 1000 / n as u64
}

/// Returns the processor time of this thread that `work` takes. The bench measures this time because other
/// programs on the machine change it little.
fn timed(work: impl FnOnce()) -> Duration {
    let start = cpu_time();
    work();
    cpu_time().saturating_sub(start)
}

/// Returns the processor time that this thread has used so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The works in the table that the simulation reads are those that the bench prints.
    #[test]
    fn the_bench_measures_every_work_of_the_simulation() {
        let table = include_str!("../../../tidegate-server/tests/busy/costs.txt");
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let mut read: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
        let mut works = WORKS.to_vec();
        read.sort_unstable();
        works.sort_unstable();
        assert_eq!(read, works);
    }

    #[test]
    fn a_table_is_complete_and_in_order() {
        let mut table: Table = WORKS.into_iter().rev().map(|work| (work, 7)).collect();
        let ordered = in_order(&table).unwrap();
        assert!(ordered.iter().map(|(work, _)| *work).eq(WORKS));
        table.push(("Sleep", 1));
        assert!(in_order(&table).is_err());
        table.truncate(WORKS.len() - 1);
        assert!(in_order(&table).is_err());
    }
}
