//! Chooses the points of a report's plots from the rows of the steps. Pure. [`super::plot`] draws them.
//!
//! A point is a pair of figures of one row, never an interpolation.

use serde_json::Value;
use tidegate_cli::report::{OURS, Row};

use super::cells::{loaded, numbered};
use super::losses::subjects;
use super::rows::{cases, figure};

/// One plot of the report.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) mark: Mark,
    pub(super) series: Vec<Series>,
    /// The names of the whole numbers on the x axis, from 1 on; empty if the axis shows a figure.
    pub(super) names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) is_log: bool,
}

/// The form in which a plot shows its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Line,
    Dots,
    Bars,
}

/// The points of one system in a plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// The figures that a plot over growing load or numbers shows, with the labels of their axes.
const GROWN: [(&str, &str); 6] = [
    ("ops_per_s", "operations/s"),
    ("p99_us", "p99, us"),
    ("client_cpu_us", "client CPU an operation, us"),
    ("server_cpu_us", "server CPU an operation, us"),
    ("cpu_us", "CPU an operation, us"),
    ("bytes_each", "memory of each, bytes"),
];

/// Returns the plots of one step.
pub(super) fn plots(step: &str, rows: &[Row]) -> Vec<Plot> {
    let mut plots = match step {
        "arena" => shares(rows),
        "response" => responses(rows),
        "raft" => ablation(rows),
        _ => Vec::new(),
    };
    for (word, label) in [
        ("caller", "callers"),
        ("client", "clients"),
        ("made", "number made"),
    ] {
        plots.extend(grown(
            step,
            rows,
            |case| numbered(case, word),
            (label, true),
        ));
    }
    plots.extend(grown(
        step,
        rows,
        loaded,
        ("load, % of the capacity", false),
    ));
    plots.extend(costs_of_latency(step, rows));
    plots
}

/// Returns the name of a row in a legend. The best setting of a system differs from cell to cell of the bench
/// `handlers`, so its name there is that of the system.
fn series_name(step: &str, row: &Row) -> String {
    match step.starts_with("handlers") {
        true => row.system.clone(),
        false => row.label(),
    }
}

/// Returns the rows of a case that a plot shows: the peers and the rows of ours that are compared with them;
/// all rows if there is no peer.
fn drawn<'a>(of_case: &[&'a Row]) -> Vec<&'a Row> {
    let peers: Vec<_> = of_case
        .iter()
        .copied()
        .filter(|row| row.system != OURS)
        .collect();
    match peers.is_empty() {
        true => of_case.to_vec(),
        false => subjects(of_case).into_iter().chain(peers).collect(),
    }
}

/// The rows of a case, with the place of the case on the x axis.
type Place<'a> = (f64, Vec<&'a Row>);

/// Returns a plot of each figure over the number that `at` finds in the names of the cases, for each group of
/// cases that differ only in this number.
fn grown(
    step: &str,
    rows: &[Row],
    at: impl Fn(&str) -> Option<(String, f64)>,
    x: (&str, bool),
) -> Vec<Plot> {
    let mut groups: Vec<(String, Vec<Place<'_>>)> = Vec::new();
    for (case, of_case) in cases(rows) {
        // A sweep compares many settings of our own, and its table shows them better.
        let Some((group, x)) = at(case).filter(|_| !case.ends_with("sweep")) else {
            continue;
        };
        let member = (x, drawn(&of_case));
        match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, members)) => members.push(member),
            None => groups.push((group, vec![member])),
        }
    }
    let mut plots = Vec::new();
    for (group, members) in &groups {
        for (key, y) in GROWN {
            let mut series = Vec::new();
            for (x, rows) in members {
                for row in rows {
                    if let Some(y) = figure(row, key) {
                        add(&mut series, series_name(step, row), (*x, y));
                    }
                }
            }
            plots.extend(plot(
                format!("{group}: {y}"),
                x,
                (y, true),
                Mark::Line,
                series,
            ));
        }
    }
    plots
}

/// Returns a plot of p99 over processor time, for each group of cases of an open loop.
fn costs_of_latency(step: &str, rows: &[Row]) -> Vec<Plot> {
    let mut groups: Vec<(String, Vec<Series>)> = Vec::new();
    for (case, of_case) in cases(rows) {
        let group = match loaded(case) {
            Some((group, _)) => group,
            None if case.ends_with("/s") => case.to_owned(),
            None => continue,
        };
        if !groups.iter().any(|(name, _)| *name == group) {
            groups.push((group.clone(), Vec::new()));
        }
        let Some((_, series)) = groups.iter_mut().find(|(name, _)| *name == group) else {
            continue;
        };
        for row in drawn(&of_case) {
            let cpu = figure(row, "cpu_us").or_else(|| figure(row, "client_cpu_us"));
            if let (Some(cpu), Some(p99)) = (cpu, row.p99_us) {
                add(series, series_name(step, row), (cpu, p99));
            }
        }
    }
    let plots = groups.into_iter().filter_map(|(group, series)| {
        let title = format!("{group}: p99 against CPU");
        plot(
            title,
            ("CPU an operation, us", true),
            ("p99, us", true),
            Mark::Dots,
            series,
        )
    });
    plots.collect()
}

/// Returns the plots of the arena: the medians of the shares over the groups of worlds, for each figure.
fn shares(rows: &[Row]) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Vec::new();
    for (case, of_case) in cases(rows) {
        let Some((title, group)) = case.split_once(": ") else {
            continue;
        };
        for row in of_case {
            let keys = ["throughput_share", "mean_share", "p99_share"];
            let Some(share) = keys.iter().find_map(|key| row.extra(key)) else {
                continue;
            };
            let at = plots
                .iter()
                .position(|plot| plot.title == title)
                .unwrap_or(plots.len());
            if at == plots.len() {
                plots.push(Plot {
                    title: title.into(),
                    x: axis("group of worlds", false),
                    y: axis("median of the shares of the best fixed setting", true),
                    mark: Mark::Line,
                    series: Vec::new(),
                    names: Vec::new(),
                });
            }
            let Some(plot) = plots.get_mut(at) else {
                continue;
            };
            if plot.names.last().is_none_or(|last| last != group) {
                plot.names.push(group.into());
            }
            let x = plot.names.len() as f64;
            add(&mut plot.series, row.system.clone(), (x, share));
        }
    }
    plots
}

/// Returns the plots of the bench `response`: mean latency and batch size over time.
fn responses(rows: &[Row]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (case, of_case) in cases(rows) {
        for (at, y) in [(1, "mean latency, ms"), (2, "mean batch, items")] {
            let mut series = Vec::new();
            for row in &of_case {
                let points = row.extra.get("series").and_then(Value::as_array);
                for point in points.into_iter().flatten() {
                    let number = |at: usize| point.get(at).and_then(Value::as_f64);
                    if let (Some(x), Some(y)) = (number(0), number(at)) {
                        add(
                            &mut series,
                            row.controller.clone().unwrap_or_default(),
                            (x, y),
                        );
                    }
                }
            }
            plots.extend(plot(
                format!("{case}: {y}"),
                ("time, ms", false),
                (y, true),
                Mark::Line,
                series,
            ));
        }
    }
    plots
}

/// Returns the plots of the bench `raft`: throughput with each step of the replication relative to the first.
fn ablation(rows: &[Row]) -> Vec<Plot> {
    let of_case = |(case, of_case): (&str, Vec<&Row>)| {
        let factors = of_case
            .iter()
            .filter_map(|row| Some((row.label(), row.extra("factor")?)));
        let series = factors.enumerate().map(|(at, (name, factor))| Series {
            name,
            points: vec![(at as f64 + 1.0, factor)],
        });
        let series: Vec<_> = series.collect();
        let names = series.iter().map(|series| series.name.clone()).collect();
        (!series.is_empty()).then(|| Plot {
            title: format!("{case}: throughput relative to the first step"),
            x: axis("step", false),
            y: axis("factor", true),
            mark: Mark::Bars,
            series,
            names,
        })
    };
    cases(rows).into_iter().filter_map(of_case).collect()
}

fn axis(label: &str, is_log: bool) -> Axis {
    Axis {
        label: label.into(),
        is_log,
    }
}

fn add(series: &mut Vec<Series>, name: String, point: (f64, f64)) {
    match series.iter_mut().find(|series| series.name == name) {
        Some(series) => series.points.push(point),
        None => series.push(Series {
            name,
            points: vec![point],
        }),
    }
}

/// Returns a plot with the points that its axes can show; `None` if these are fewer than two different ones.
fn plot(
    title: String,
    (x, x_log): (&str, bool),
    (y, y_log): (&str, bool),
    mark: Mark,
    mut series: Vec<Series>,
) -> Option<Plot> {
    let fits = |value: f64, is_log: bool| value.is_finite() && (!is_log || value > 0.0);
    for series in &mut series {
        series
            .points
            .retain(|&(x, y)| fits(x, x_log) && fits(y, y_log));
        if mark == Mark::Line {
            series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
    }
    series.retain(|series| !series.points.is_empty());
    let first = series.first()?.points[0];
    let differs = |point: &(f64, f64)| match mark {
        // A line needs a second place on its x axis.
        Mark::Line => point.0 != first.0,
        Mark::Dots | Mark::Bars => *point != first,
    };
    let any = series.iter().flat_map(|series| &series.points).any(differs);
    any.then(|| Plot {
        title,
        x: axis(x, x_log),
        y: axis(y, y_log),
        mark,
        series,
        names: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(system: &str, case: &str, ops_per_s: f64, p99_us: f64) -> Row {
        Row {
            system: system.into(),
            case: case.into(),
            ops_per_s: Some(ops_per_s),
            p99_us: Some(p99_us),
            ..Row::default()
        }
    }

    #[test]
    fn cells_of_growing_load_make_a_line_for_each_system() {
        let rows = [
            row(OURS, "http/poisson-90", 90.0, 9.0),
            row("rival", "http/poisson-90", 80.0, 18.0),
            row(OURS, "http/poisson-10", 10.0, 1.0),
            row("rival", "http/poisson-10", 10.0, 0.0),
        ];
        let plots = plots("handlers-http", &rows);
        let titles: Vec<_> = plots.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(titles, ["http: operations/s", "http: p99, us"]);
        assert_eq!(plots[0].series[0].points, [(10.0, 10.0), (90.0, 90.0)]);
        // A logarithmic axis has no place for zero.
        assert_eq!(plots[1].series[1].points, [(90.0, 18.0)]);
        assert!(!plots[0].x.is_log && plots[0].y.is_log);
    }

    #[test]
    fn steps_of_the_replication_are_bars_and_a_response_is_a_line() {
        let mut first = row(OURS, "R3", 4.0, 1.0);
        first.extra.insert("factor".into(), json!(1.0));
        let mut second = first.clone();
        second.extra.insert("factor".into(), json!(5.0));
        let bars = plots("raft", &[first, second]);
        assert_eq!((bars.len(), bars[0].mark), (1, Mark::Bars));
        assert_eq!(bars[0].series[1].points, [(2.0, 5.0)]);
        let mut knee = row(OURS, "step", 1.0, 1.0);
        knee.extra.insert(
            "series".into(),
            json!([[0.0, 1.0, 32.0], [50.0, 2.0, 64.0]]),
        );
        let lines = plots("response", &[knee]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].series[0].points, [(0.0, 32.0), (50.0, 64.0)]);
    }
}
