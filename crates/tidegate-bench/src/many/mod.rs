//! `tidegate-bench many`: measures whether streams, consumers and subjects are cheap, on our server and with
//! `--peers` on nats-server.
//!
//! Each cell makes very many things of one kind (streams, consumers or subjects) on a fresh server, over one
//! connection with many requests in flight. It then measures the memory of each thing, the processor time of
//! the idle server, the wait of a lone publisher beside that on a server with one stream, and the time of a
//! start after `kill -9` and after `SIGTERM`. The bench and the server share all cores.
//!
//! With `--churn` it makes and deletes streams in a loop instead, and shows if memory or files grow.
//!
//! [`cell`], [`figures`] and [`report`] decide and are pure. [`turn`] runs one cell on one server, [`churn`]
//! the loop, [`system`] starts and ends the server, [`requests`] sends the load.

mod cell;
mod churn;
mod figures;
mod report;
pub(crate) mod requests;
pub(crate) mod system;
mod turn;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, value_parser};
use serde_json::json;
use tidegate_cli::report::{Document, Row};
use tidegate_cli::{Usage, interrupt};

use crate::handlers::Host;
use crate::machine;
use crate::options::{factor, seconds};
use crate::rounds::{Contestant, Failure, Sample, play};
use crate::stream::Directory;
use crate::systems::{System, nats_server};
use cell::{Cell, More, cells};
use turn::{Outcome, Plan};

/// The arguments with which the user runs `tidegate-bench many`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManyArgs {
    /// Measure the nats-server in bench/peers/go-nats, too, to compare it with ours. It has its default
    /// settings, so it acknowledges a message before it syncs the message.
    #[arg(long)]
    peers: bool,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    json: bool,
    /// Run only the cells with this text in their name, to save time.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print the names of the cells instead of running them, to choose some for --only.
    #[arg(long)]
    list: bool,
    /// Multiply the number of streams, consumers or subjects of each cell by this factor, for a larger or
    /// shorter run; 0.01 proves only that the bench works.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// Keep at most this many requests in flight while the bench makes the streams, consumers or subjects of
    /// a cell; a greater number loads the server more.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u64).range(1..=10_000))]
    in_flight: u64,
    /// Add a cell of one stream with this many subjects, to measure more subjects than the other cells have.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=100_000_000))]
    subjects: Option<u64>,
    /// Add a cell of 20,000 streams of three replicas on a cluster of three nodes of this machine, to measure
    /// how fast a cluster makes them and when it serves them after a start. Only our server takes part.
    #[arg(long)]
    cluster: bool,
    /// Make and delete streams with messages and consumers in a loop for this many seconds, instead of the
    /// cells, and print the server's memory and the space of its files at each tenth of the time, to find
    /// growth. The exit code is 1 if one of them grows in the second half.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["peers", "only", "list", "subjects", "cluster"])]
    churn: Option<f64>,
    /// Run this many rounds of each cell, to reduce the noise; in a round the bench runs every server once,
    /// one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Allow a server at most this many seconds to make the streams, consumers or subjects of a cell, and as
    /// many for each start and each stop, so that a slow server does not hold up the bench.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    cell_max: f64,
    /// Measure the processor time of the idle server for this many seconds; a longer time has less noise.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    idle: f64,
    /// Wait at most this many seconds until the memory and the processor time of a server are steady, then
    /// measure in any case, so that a restless server does not hold up the bench.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    rest_max: f64,
}

/// The remarks about a cell's servers, which the table shows below the figures.
#[derive(Debug, Default)]
struct Remarks {
    notes: Vec<(&'static str, String)>,
    /// True if our server failed in the cell.
    failed: bool,
}

/// Runs the cells of the bench `many`. The exit code is 1 if our server failed in one of them.
pub(crate) fn run(args: &ManyArgs) -> anyhow::Result<ExitCode> {
    if let Some(seconds) = args.churn {
        return run_churn(args, Duration::from_secs_f64(seconds));
    }
    let more = More {
        subjects: args.subjects,
        cluster: args.cluster,
    };
    let all = cells(args.scale, more);
    let wanted = |cell: &&Cell| {
        let only = args.only.as_ref();
        only.is_none_or(|only| cell.name.contains(only.as_str()))
    };
    let chosen: Vec<_> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all.iter().map(|cell| cell.name.as_str()).collect();
        let (only, names) = (args.only.as_deref().unwrap_or_default(), names.join(", "));
        return Err(Usage::new(format!("no cell has `{only}` in its name: {names}")).into());
    }
    if args.list {
        for cell in chosen {
            writeln!(std::io::stdout(), "{}: {}", cell.name, cell.text())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let directory = Directory::make()?;
    let plan = plan(args, &directory);
    let mut document = Document::new("many");
    announce(&document, &directory)?;
    let mut failed = false;
    for cell in chosen {
        if interrupt::asked() {
            break;
        }
        let (rows, cell_failed) = play_cell(args, &plan, cell);
        failed |= cell_failed;
        if !args.json {
            writeln!(std::io::stdout(), "{}", report::table(cell, &rows))?;
        }
        document.rows.extend(rows);
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", document.json()?)?;
    }
    Ok(match failed {
        _ if interrupt::asked() => ExitCode::from(interrupt::EXIT_CODE),
        false => ExitCode::SUCCESS,
        true => ExitCode::from(1),
    })
}

/// Makes and deletes streams in a loop. The exit code is 1 if the server's memory or files grow.
fn run_churn(args: &ManyArgs, time: Duration) -> anyhow::Result<ExitCode> {
    let directory = Directory::make()?;
    let plan = plan(args, &directory);
    let mut document = Document::new("many");
    announce(&document, &directory)?;
    let tenths = churn::run(&plan, time)?;
    let growth = churn::growth(&tenths);
    let mut out = std::io::stdout().lock();
    if args.json {
        document.rows = churn::rows(&tenths, &growth);
        writeln!(out, "{}", document.json()?)?;
    } else {
        write!(out, "{}", churn::table(&tenths))?;
        for text in &growth {
            writeln!(out, "{text}")?;
        }
    }
    Ok(match growth.is_empty() {
        _ if interrupt::asked() => ExitCode::from(interrupt::EXIT_CODE),
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

fn plan(args: &ManyArgs, directory: &Directory) -> Plan {
    Plan {
        directory: directory.path().to_owned(),
        nats_server: if args.peers { nats_server() } else { None },
        in_flight: args.in_flight,
        idle: Duration::from_secs_f64(args.idle),
        rest_max: Duration::from_secs_f64(args.rest_max),
        cell_max: Duration::from_secs_f64(args.cell_max),
        rss_max_mb: machine::rss_max_mb(),
    }
}

/// Runs all rounds of a cell. Returns the cell's rows, and whether our server failed, for the exit code.
fn play_cell(args: &ManyArgs, plan: &Plan, cell: &Cell) -> (Vec<Row>, bool) {
    let peers = args.peers && cell.nodes == 1;
    let systems = [Some(System::Ours), peers.then_some(System::Nats)];
    let contestant = |system: System| Contestant {
        system: system.name().into(),
        version: system.version(plan.nats_server.as_deref()),
        controller: None,
        subject: system == System::Ours,
        run: Box::new(move |remarks: &mut Remarks| {
            say(&format!("{}: {}", cell.name, system.name()));
            measure(plan, cell, system, remarks)
        }),
    };
    let mut contestants: Vec<_> = systems.into_iter().flatten().map(contestant).collect();
    let mut remarks = Remarks::default();
    let rounds = args.rounds as usize;
    let mut rows = play(
        &cell.name,
        &mut contestants,
        &mut remarks,
        rounds,
        interrupt::asked,
    );
    for row in &mut rows {
        let of_it = remarks
            .notes
            .iter()
            .filter(|(system, _)| *system == row.system);
        let mut notes: Vec<_> = row.note().into_iter().map(str::to_owned).collect();
        notes.extend(of_it.map(|(_, note)| note.clone()));
        notes.dedup();
        if !notes.is_empty() {
            row.extra.insert("note".into(), json!(notes.join("; ")));
        }
        row.extra.insert("scale".into(), json!(args.scale));
        row.extra.insert("in_flight".into(), json!(args.in_flight));
    }
    (rows, remarks.failed)
}

fn measure(
    plan: &Plan,
    cell: &Cell,
    system: System,
    remarks: &mut Remarks,
) -> Result<Sample, Failure> {
    let ours = system == System::Ours;
    match plan.turn(cell, system) {
        Ok(Outcome {
            sample,
            notes,
            error,
        }) => {
            remarks.failed |= ours && error.is_some();
            let all = error.into_iter().chain(notes);
            remarks.notes.extend(all.map(|note| (system.name(), note)));
            Ok(sample)
        }
        Err(e) => {
            remarks.failed |= ours;
            Err(format!("{e:#}"))
        }
    }
}

/// Prints the facts about the machine and the disk on which the figures depend.
fn announce(document: &Document, directory: &Directory) -> anyhow::Result<()> {
    let (machine, commit) = (document.machine.clone(), document.commit.clone());
    let host = Host::measure(machine.clone(), commit, directory.path())?;
    say(&format!("{machine}; {host}"));
    say(&format!("data in {}", directory.path().display()));
    if directory.is_in_memory() {
        say("that is memory and no disk: syncs cost nothing there; set TIDEGATE_BENCH_DIR");
    }
    Ok(())
}

fn say(text: &str) {
    eprintln!("tidegate-bench: {text}");
}
