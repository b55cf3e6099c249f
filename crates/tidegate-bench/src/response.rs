//! `tidegate-bench response`: simulates how controllers respond to a step of the costs, in virtual time.
//!
//! Messages arrive at 60 % of the capacity of a simulated server. Half-way a batch begins to cost four times
//! as much, and a message half as much. The bench shows the mean latency and the mean size of batches over
//! time. No figure depends on this machine: the same span gives the same figures.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, value_parser};
use serde_json::json;
use tidegate::Time;
use tidegate::controller::{
    Aimd, Bounded, Bounds, Controller, Decision, Event, Exponential, Greedy, Knee, Objective,
    Snapshot,
};
use tidegate::sim::{A_MS, B_MS, CAPACITY, Cost, Rng, poisson, serve};
use tidegate_cli::report::{Document, OURS, Row, Table, number};

/// The arguments with which the user runs `tidegate-bench response`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResponseArgs {
    /// Simulate this many milliseconds; the costs change half-way. A longer span shows more of the time in
    /// which a controller settles.
    #[arg(long, value_name = "MS", default_value_t = 8000, value_parser = value_parser!(u32).range(100..=600_000))]
    span: u32,
    /// Print one JSON document, for other programs, instead of a table.
    #[arg(long)]
    json: bool,
}

/// The share of the capacity at which messages arrive.
const LOAD: f64 = 0.6;
/// The factors by which the cost of a batch and of a message change.
const STEP: (f64, f64) = (4.0, 0.5);
/// The deviation of the costs' noise.
const NOISE: f64 = 0.05;
/// The number of parts of the span, each with one point of a response.
const PARTS: u32 = 80;

/// Runs the simulation with each controller and prints the responses.
pub(crate) fn run(args: &ResponseArgs) -> anyhow::Result<ExitCode> {
    let span = f64::from(args.span);
    let mut document = Document::new("response");
    let bounds = Bounds::items(32, 8192);
    let bounded = |controller: Box<dyn Controller>| Bounded::new(controller, bounds);
    let contestants: [(&str, Box<dyn Controller>); 4] = [
        ("knee", Box::new(Knee::new(Objective::Lean, bounds)?)),
        ("exponential", Box::new(Exponential::new().controller())),
        ("aimd 64", Box::new(Aimd::new(64).controller())),
        ("greedy", Box::new(bounded(Box::new(Greedy.controller()))?)),
    ];
    for (name, controller) in contestants {
        document.rows.push(respond(name, controller, span));
    }
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", document.json()?)?,
        false => write!(out, "{}", table(&document.rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn respond(name: &str, controller: Box<dyn Controller>, span: f64) -> Row {
    let arrivals = poisson(LOAD * CAPACITY, span, &mut Rng::new(12), 0.0);
    let mut cost = Cost::step(span / 2.0, A_MS * STEP.0, B_MS * STEP.1, NOISE, 5);
    let mut watched = Watched {
        inside: controller,
        batch: 0,
        ends: Vec::new(),
    };
    let run = serve(&arrivals, &mut watched, &mut cost, 0.0);
    let series = series(&arrivals, &watched.ends, span);
    Row {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        case: format!(
            "{:.0} % load, at {} ms a batch costs {} times as much",
            LOAD * 100.0,
            span / 2.0,
            STEP.0
        ),
        controller: Some(name.into()),
        ops_per_s: Some(run.ops_per_s),
        mean_us: Some(run.mean_ms * 1e3),
        p50_us: Some(run.p50_ms * 1e3),
        p99_us: Some(run.p99_ms * 1e3),
        batches: Some(run.batches as f64),
        batch_max: Some(run.batch_max as f64),
        extra: [("series".to_owned(), json!(series))].into(),
        ..Row::default()
    }
}

/// A controller in a run that the bench watches.
struct Watched {
    inside: Box<dyn Controller>,
    /// The number of items of the running batch.
    batch: u64,
    /// The end of each batch in milliseconds, and its number of items.
    ends: Vec<(f64, u64)>,
}

impl Controller for Watched {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        match event {
            Event::Started { batch, .. } => self.batch = batch.items,
            Event::Done { .. } => self.ends.push((now.as_nanos() as f64 / 1e6, self.batch)),
            _ => {}
        }
        self.inside.on(now, event)
    }

    fn snapshot(&self) -> Snapshot {
        self.inside.snapshot()
    }

    fn wants_arrivals(&self) -> bool {
        self.inside.wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        self.inside.stuck_at()
    }
}

/// Returns a point for each part of the span in which a batch ended: the middle of the part in milliseconds,
/// the mean latency of the items in milliseconds, and the mean number of items in a batch. Items leave in the
/// order of their arrivals.
fn series(arrivals: &[f64], ends: &[(f64, u64)], span: f64) -> Vec<[f64; 3]> {
    let part = span / f64::from(PARTS);
    let mut sums = vec![(0.0, 0_u64, 0_u64); PARTS as usize];
    let mut next = 0;
    for &(end, items) in ends {
        let batch =
            &arrivals[next.min(arrivals.len())..(next + items as usize).min(arrivals.len())];
        next += batch.len();
        // Batches that end after the span belong to its last part no more.
        if let Some((latency, count, batches)) = sums.get_mut((end / part) as usize) {
            *latency += batch.iter().map(|at| end - at).sum::<f64>();
            *count += batch.len() as u64;
            *batches += 1;
        }
    }
    let points = sums
        .iter()
        .enumerate()
        .filter(|(_, (_, count, _))| *count > 0);
    let point = |(at, &(latency, count, batches)): (usize, &(f64, u64, u64))| {
        let count = count as f64;
        [
            (at as f64 + 0.5) * part,
            latency / count,
            count / batches as f64,
        ]
    };
    points.map(point).collect()
}

fn table(rows: &[Row]) -> String {
    let of = |row: &Row| -> Vec<[f64; 3]> {
        let series = row.extra.get("series").cloned().unwrap_or_default();
        serde_json::from_value(series).unwrap_or_default()
    };
    let all: Vec<_> = rows.iter().map(of).collect();
    let heads = rows
        .iter()
        .map(|row| row.controller.clone().unwrap_or_default());
    let heads = std::iter::once("time ms: mean latency ms (mean batch)".to_owned()).chain(heads);
    let mut table = Table::new(heads);
    let longest = all.iter().max_by_key(|series| series.len());
    for [time, ..] in longest.into_iter().flatten() {
        let cell = |series: &Vec<[f64; 3]>| {
            let point = series.iter().find(|point| point[0] == *time);
            point
                .map(|[_, latency, batch]| format!("{} ({batch:.0})", number(*latency)))
                .unwrap_or_default()
        };
        table.row(std::iter::once(number(*time)).chain(all.iter().map(cell)));
    }
    table.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_means_of_its_batches() {
        let arrivals = [0.0, 1.0, 2.0, 90.0];
        let points = series(
            &arrivals,
            &[(3.0, 2), (4.0, 1), (95.0, 1), (130.0, 0)],
            100.0,
        );
        // A part takes 1.25 ms: three items leave in two batches of the parts at 2.5 and 3.75 ms.
        assert_eq!(
            points,
            [[3.125, 2.5, 2.0], [4.375, 2.0, 1.0], [95.625, 5.0, 1.0]]
        );
    }

    #[test]
    fn the_default_controller_settles_after_the_step() {
        let row = respond("knee", Box::new(Knee::default()), 2000.0);
        let points = row.extra["series"].as_array().unwrap();
        assert!(points.len() > 20, "{points:?}");
        assert!(row.batches.unwrap() > 10.0);
        assert_eq!(row, respond("knee", Box::new(Knee::default()), 2000.0));
    }
}
