//! `tidegate sim`: runs the engine's simulator and prints its figures as tables.

use std::io::{BufWriter, Write as _};

use clap::Args;
use serde_json::json;
use tidegate::sim::{Row as Simulated, Scenario};

use crate::output::Output;
use crate::report::{Document, OURS, Row, case_table};

/// The arguments with which the user runs `tidegate sim`.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// Run this scenario, a workload for the controllers. `backlog` is the workload of gen_batch_server's
    /// pull request 29 without noise; `all` runs every scenario.
    #[arg(value_parser = scenarios)]
    pub(crate) scenario: Scenarios,
    /// Print one JSON document, for other programs, instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The scenario of the simulator that the user chose, or all scenarios.
#[derive(Clone, Debug)]
pub(crate) struct Scenarios(Vec<Scenario>);

fn scenarios(name: &str) -> Result<Scenarios, String> {
    if name == "all" {
        return Ok(Scenarios(Scenario::ALL.into()));
    }
    name.parse()
        .map(|s| Scenarios(vec![s]))
        .map_err(|e: tidegate::sim::UnknownScenario| format!("{e}, or all"))
}

/// Runs the scenarios in virtual time and prints the figures of each controller.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    let mut document = Document::new("sim");
    let mut out = BufWriter::new(Output::open()?);
    for scenario in &args.scenario.0 {
        for table in scenario.run() {
            let rows: Vec<_> = table
                .rows
                .into_iter()
                .map(|row| to_row(&table.case, row))
                .collect();
            if !args.json {
                writeln!(
                    out,
                    "{}\n{}",
                    table.case,
                    case_table(&rows.iter().collect::<Vec<_>>())
                )?;
                out.flush()?;
            }
            document.rows.extend(rows);
        }
    }
    if args.json {
        writeln!(out, "{}", document.json()?)?;
    }
    Ok(out.flush()?)
}

fn to_row(case: &str, row: Simulated) -> Row {
    Row {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        case: case.into(),
        controller: Some(row.controller),
        ops_per_s: Some(row.ops_per_s),
        rounds: Some(1),
        p50_us: row.p50_us,
        p99_us: row.p99_us,
        mean_us: row.mean_us,
        batches: row.batches.map(|n| n as f64),
        batch_mean: row.batch_mean,
        batch_max: row.batch_max.map(|n| n as f64),
        extra: row
            .extra
            .into_iter()
            .map(|(key, value)| (key.into(), json!(value)))
            .collect(),
        ..Row::default()
    }
}
