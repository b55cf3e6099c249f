//! The tables of a report: all figures of a case, and the points of a plot. Pure.

use tidegate_cli::report::{OURS, Row, number};

use super::curves::{Mark, Plot, Series};
use super::losses::subjects;
use super::rows::{Figure, figure, name, shown, shown_ratio};

/// A table of the report; the first column names the row.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self {
            heads: heads.map(String::from).into(),
            rows: Vec::new(),
        }
    }

    /// Returns the table without the columns in which no row has a text.
    pub(super) fn without_empty_columns(self) -> Self {
        let is_used = |at: usize| {
            self.rows
                .iter()
                .any(|row| row.get(at).is_some_and(|cell| !cell.is_empty()))
        };
        let used: Vec<usize> = (0..self.heads.len()).filter(|at| is_used(*at)).collect();
        let pick = |row: &[String]| -> Vec<String> {
            used.iter().filter_map(|at| row.get(*at).cloned()).collect()
        };
        Self {
            heads: pick(&self.heads),
            rows: self.rows.iter().map(|row| pick(row)).collect(),
        }
    }
}

/// Formats all figures of a case, and our ratios to each row.
pub(super) fn case_table(of_case: &[&Row]) -> Grid {
    const FIRST: [&str; 13] = [
        "ops_per_s",
        "q1",
        "q3",
        "rounds",
        "mean_us",
        "p50_us",
        "p99_us",
        "batches",
        "batch_mean",
        "batch_max",
        "cpu_s",
        "allocs",
        "rss_mb",
    ];
    let mut keys: Vec<&str> = FIRST.into();
    for row in of_case {
        for (key, value) in &row.extra {
            if value.is_number() && !keys.contains(&key.as_str()) {
                keys.push(key);
            }
        }
    }
    let subjects = subjects(of_case);
    let mut table = Grid::new(["system"]);
    table
        .heads
        .extend(keys.iter().map(|key| key.replace('_', " ")));
    let ratios: Vec<(&Row, Figure)> = subjects
        .iter()
        .flat_map(|ours| Figure::all().map(move |figure| (*ours, figure)))
        .filter(|(ours, figure)| {
            let within = |row: &&Row| figure.ratio(ours, row).is_some_and(|(_, within)| within);
            of_case.iter().any(within)
        })
        .collect();
    for (ours, figure) in &ratios {
        let who = ours.controller.as_deref().unwrap_or(OURS);
        table.heads.push(format!("{who} / it: {}", figure.head));
    }
    table.heads.push("note".into());
    for row in of_case {
        let mut cells = vec![name(row)];
        cells.extend(keys.iter().map(|key| {
            let value = figure(row, key);
            value.map(|value| shown(key, value)).unwrap_or_default()
        }));
        cells.extend(ratios.iter().map(|(ours, figure)| {
            let ratio = figure.ratio(ours, row).filter(|(_, within)| *within);
            ratio
                .map(|(ratio, _)| shown_ratio(ratio))
                .unwrap_or_default()
        }));
        cells.push(row.note().unwrap_or_default().to_owned());
        table.rows.push(cells);
    }
    table.without_empty_columns()
}

/// Returns the points of a plot as a table: a column for each system over a common axis, otherwise a row for
/// each point.
pub(super) fn points(plot: &Plot) -> Grid {
    let x_of = |x: f64| match plot.names.get((x - 1.0).max(0.0) as usize) {
        Some(name) => name.clone(),
        None => number(x),
    };
    if plot.mark != Mark::Line {
        let mut table = Grid::new(["system", &plot.x.label, &plot.y.label]);
        for series in &plot.series {
            let row = |&(x, y): &(f64, f64)| vec![series.name.clone(), x_of(x), number(y)];
            table.rows.extend(series.points.iter().map(row));
        }
        return table;
    }
    let mut all: Vec<f64> = plot
        .series
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| point.0)
        .collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    let mut table = Grid::new([&plot.x.label]);
    table
        .heads
        .extend(plot.series.iter().map(|series| series.name.clone()));
    for x in all {
        let y_of = |series: &Series| {
            let at_x = series.points.iter().filter(|point| point.0 == x);
            at_x.map(|point| number(point.1))
                .collect::<Vec<_>>()
                .join(", ")
        };
        table.rows.push(
            std::iter::once(x_of(x))
                .chain(plot.series.iter().map(y_of))
                .collect(),
        );
    }
    table
}
