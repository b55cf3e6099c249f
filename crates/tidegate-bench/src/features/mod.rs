//! `tidegate-bench features`: measures work queues, mirrors, sources and republished messages on our server,
//! and with `--peers` on nats-server in the same rounds.
//!
//! Each turn has a fresh server and sends the same load with the same client. The server and the client share
//! all cores. [`cell`] is pure, [`turn`] runs one cell on one server.

mod cell;
mod turn;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, value_parser};
use serde_json::json;
use tidegate_cli::report::{Document, OURS, Row, Table, count, number};
use tidegate_cli::{Usage, interrupt};

use crate::handlers::Host;
use crate::options::{factor, seconds};
use crate::rounds::{Contestant, play};
use crate::stream::Directory;
use crate::systems::{System, nats_server};
use cell::{Cell, cells};
use turn::Plan;

/// The arguments with which the user runs `tidegate-bench features`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FeaturesArgs {
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
    /// Multiply the number of messages of each cell by this factor, for a longer or shorter run; 0.001 proves
    /// only that the bench works.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// Publish with this many messages in flight; a greater number loads the server more.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u64).range(1..=10_000))]
    in_flight: u64,
    /// Run this many rounds of each cell, to reduce the noise; in a round the bench runs every server once.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Allow a server at most this many seconds for each part of a cell, so that a slow server does not hold
    /// up the bench.
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0, value_parser = seconds)]
    cell_max: f64,
}

/// Runs the cells of the bench `features`. The exit code is 1 if our server failed in one of them.
pub(crate) fn run(args: &FeaturesArgs) -> anyhow::Result<ExitCode> {
    let all = cells(args.scale);
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = all.iter().filter(|cell| cell.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all.iter().map(|cell| cell.name).collect();
        let names = names.join(", ");
        return Err(Usage::new(format!("no cell has `{only}` in its name: {names}")).into());
    }
    let directory = Directory::make()?;
    let plan = Plan {
        directory: directory.path().to_owned(),
        nats_server: if args.peers { nats_server() } else { None },
        in_flight: args.in_flight,
        patience: Duration::from_secs_f64(args.cell_max),
    };
    let mut document = Document::new("features");
    let (machine, commit) = (document.machine.clone(), document.commit.clone());
    let host = Host::measure(machine.clone(), commit, directory.path())?;
    say(&format!("{machine}; {host}"));
    let mut failed = false;
    for cell in chosen {
        if interrupt::asked() {
            break;
        }
        let rows = play_cell(args, &plan, cell);
        failed |= rows
            .iter()
            .any(|row| row.system == OURS && row.note().is_some());
        if !args.json {
            writeln!(std::io::stdout(), "{}", table(cell, &rows))?;
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

/// Runs all rounds of a cell, and returns a row for each server.
fn play_cell(args: &FeaturesArgs, plan: &Plan, cell: &Cell) -> Vec<Row> {
    let systems = [Some(System::Ours), args.peers.then_some(System::Nats)];
    let contestant = |system: System| Contestant {
        system: system.name().into(),
        version: system.version(plan.nats_server.as_deref()),
        controller: None,
        subject: system == System::Ours,
        run: Box::new(move |(): &mut ()| {
            say(&format!("{}: {}", cell.name, system.name()));
            plan.turn(cell, system).map_err(|e| format!("{e:#}"))
        }),
    };
    let mut contestants: Vec<_> = systems.into_iter().flatten().map(contestant).collect();
    let rounds = args.rounds as usize;
    let mut rows = play(
        cell.name,
        &mut contestants,
        &mut (),
        rounds,
        interrupt::asked,
    );
    for row in &mut rows {
        row.extra.insert("scale".into(), json!(args.scale));
        row.extra.insert("in_flight".into(), json!(args.in_flight));
    }
    rows
}

/// Formats the rows of one cell for the user.
fn table(cell: &Cell, rows: &[Row]) -> String {
    let heads = [
        "",
        "messages/s",
        "CPU us each",
        "RSS MiB",
        "published/s",
        "ours / row",
    ];
    let mut table = Table::new(heads);
    let ours = rows.iter().find(|row| row.system == OURS);
    for row in rows {
        let ratio = ours.and_then(|ours| ours.extra.get("ratio")?.get(row.label())?.as_f64());
        let cells = [
            row.ops_per_s.map(count),
            row.extra("server_cpu_us").map(number),
            row.rss_mb.map(number),
            row.extra("published_per_s").map(count),
            ratio.map(number),
        ];
        let cells = cells.map(Option::unwrap_or_default);
        table.row(std::iter::once(row.label()).chain(cells));
    }
    let notes = rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}\n", row.system, row.note()?)));
    format!(
        "{}: {}\n{}{}",
        cell.name,
        cell.text(),
        table.print(),
        notes.collect::<String>()
    )
}

fn say(text: &str) {
    eprintln!("tidegate-bench: {text}");
}
