//! Reads the rows of a step's document, the same for every bench, and names the figures in them. Pure.

use serde_json::{Value, json};
use tidegate_cli::report::{OURS, Row, count, number};

use super::kept::Kept;

/// The figures that a report compares: the key in a row, the head of its column, and whether more is better.
const COMPARED: [(&str, &str, bool); 22] = [
    ("ops_per_s", "ops/s", true),
    ("mean_us", "mean us", false),
    ("p50_us", "p50 us", false),
    ("p99_us", "p99 us", false),
    ("p999_us", "p99.9 us", false),
    ("worst_us", "worst us", false),
    ("after_p999_us", "p99.9 us afterwards", false),
    ("client_cpu_us", "client CPU us/op", false),
    ("server_cpu_us", "server CPU us/op", false),
    ("cpu_us", "CPU us/op", false),
    ("rss_mb", "memory MiB", false),
    ("bytes_each", "bytes each", false),
    ("idle_cpu_percent", "idle CPU %", false),
    ("start_after_kill_ms", "start after kill ms", false),
    ("start_after_stop_ms", "start after stop ms", false),
    ("stop_ms", "stop ms", false),
    ("consumer_ms", "consumer ms", false),
    ("filtered_consumer_ms", "filtered consumer ms", false),
    ("info_ms", "info ms", false),
    ("throughput_share", "share of the best throughput", true),
    ("mean_share", "times the best mean", false),
    ("p99_share", "times the best p99", false),
];

/// The keys of the ratios that a bench took within its rounds, with the figure of each.
const RATIOS: [(&str, &str); 5] = [
    ("ratio", "ops_per_s"),
    ("mean_ratio", "mean_us"),
    ("p99_ratio", "p99_us"),
    ("cpu_ratio", "client_cpu_us"),
    ("server_cpu_ratio", "server_cpu_us"),
];

/// A figure that a report compares between our system and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Figure {
    key: &'static str,
    pub(super) head: &'static str,
    is_more_better: bool,
}

impl Figure {
    /// Returns all figures that a report compares.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        COMPARED
            .into_iter()
            .map(|(key, head, is_more_better)| Self {
                key,
                head,
                is_more_better,
            })
    }

    pub(super) fn of(self, row: &Row) -> Option<f64> {
        figure(row, self.key)
    }

    /// Formats a value of this figure.
    pub(super) fn shown(self, value: f64) -> String {
        shown(self.key, value)
    }

    /// Returns the ratio of our figure in the row `ours` to the figure of the row `peer`, and whether the
    /// bench took it within its rounds. Otherwise it is the quotient of both rows' figures.
    pub(super) fn ratio(self, ours: &Row, peer: &Row) -> Option<(f64, bool)> {
        let key = RATIOS.iter().find(|(_, of)| *of == self.key);
        let within = key.and_then(|(key, _)| ours.extra.get(*key)?.get(peer.label())?.as_f64());
        if let Some(ratio) = within {
            return Some((ratio, true));
        }
        let (ours, theirs) = (self.of(ours)?, self.of(peer)?);
        (theirs > 0.0 && ours > 0.0).then(|| (ours / theirs, false))
    }

    /// Returns the factor by which the peer is better; below 1 we are better.
    pub(super) fn loss(self, ratio: f64) -> f64 {
        match self.is_more_better {
            true => 1.0 / ratio,
            false => ratio,
        }
    }
}

/// Returns the figure `key` of a row, whichever part of the row has it.
pub(super) fn figure(row: &Row, key: &str) -> Option<f64> {
    match key {
        "ops_per_s" => row.ops_per_s,
        "q1" => row.q1,
        "q3" => row.q3,
        "rounds" => row.rounds.map(|n| n as f64),
        "p50_us" => row.p50_us,
        "p99_us" => row.p99_us,
        "mean_us" => row.mean_us,
        "batches" => row.batches,
        "batch_mean" => row.batch_mean,
        "batch_max" => row.batch_max,
        "cpu_s" => row.cpu_s,
        "allocs" => row.allocs,
        "rss_mb" => row.rss_mb,
        _ => row.extra(key),
    }
}

/// Formats a figure as all tables of the benches do.
pub(super) fn shown(key: &str, value: f64) -> String {
    match key {
        "ops_per_s" | "q1" | "q3" | "batches" | "allocs" => count(value),
        _ => number(value),
    }
}

/// Formats a ratio.
pub(super) fn shown_ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// Returns the name of a row's system with its version, for the reader.
pub(super) fn name(row: &Row) -> String {
    match &row.version {
        Some(version) if row.system != OURS => format!("{} ({version})", row.label()),
        _ => row.label(),
    }
}

/// Returns the rows of a step's document. A row that this version cannot read is left out, and the second
/// value counts these.
pub(super) fn rows(kept: &Kept) -> (Vec<Row>, usize) {
    if let Some(matrix) = kept.output.get("matrix").and_then(Value::as_array) {
        return (matrix.iter().flat_map(of_group).collect(), 0);
    }
    let all = kept.output.get("rows").and_then(Value::as_array);
    let all = all.map_or(&[][..], Vec::as_slice);
    let rows: Vec<Row> = all
        .iter()
        .filter_map(|row| serde_json::from_value(row.clone()).ok())
        .collect();
    let lost = all.len() - rows.len();
    (rows, lost)
}

/// Returns the rows of a group of the arena's matrix: one for each controller, with its share of the best
/// fixed setting's figure.
fn of_group(group: &Value) -> Vec<Row> {
    let text = |key: &str| group.get(key).and_then(Value::as_str).unwrap_or_default();
    let several = group.get("several").and_then(Value::as_bool) == Some(true);
    let at_once = if several {
        "several batches"
    } else {
        "one batch"
    };
    let case = format!("{}, {at_once}: {}", text("metric"), text("name"));
    let share = format!("{}_share", text("metric"));
    let spreads = group.get("spreads").and_then(Value::as_array);
    let row = |spread: &Value| {
        let (who, figures) = (spread.get(0)?.as_str()?, spread.get(1)?);
        let mut row = Row {
            system: if who == "ours" { OURS } else { who }.into(),
            case: case.clone(),
            ..Row::default()
        };
        let keys = [
            (&share[..], "median"),
            ("in_95_percent", "most"),
            ("worst", "worst"),
        ];
        for (key, from) in keys
            .into_iter()
            .chain([("worst_seed", "seed"), ("cells", "cells")])
        {
            row.extra
                .insert(key.into(), json!(figures.get(from)?.as_f64()?));
        }
        Some(row)
    };
    spreads.into_iter().flatten().filter_map(row).collect()
}

/// Returns the cases of rows in their order, each with its rows.
pub(super) fn cases(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut cases: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match cases.iter_mut().find(|(case, _)| *case == row.case) {
            Some((_, of_it)) => of_it.push(row),
            None => cases.push((&row.case, vec![row])),
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_the_rounds_comes_before_a_quotient() {
        let mut ours = Row {
            system: OURS.into(),
            ops_per_s: Some(10.0),
            p50_us: Some(6.0),
            ..Row::default()
        };
        ours.extra.insert("ratio".into(), json!({"slow x": 1.5}));
        let slow = Row {
            system: "slow".into(),
            controller: Some("x".into()),
            ops_per_s: Some(5.0),
            p50_us: Some(4.0),
            ..Row::default()
        };
        let named = |head: &str| Figure::all().find(|figure| figure.head == head).unwrap();
        let (ops, p50) = (named("ops/s"), named("p50 us"));
        assert_eq!(ops.ratio(&ours, &slow), Some((1.5, true)));
        assert_eq!(p50.ratio(&ours, &slow), Some((1.5, false)));
        assert_eq!((ops.loss(1.5), p50.loss(1.5)), (1.0 / 1.5, 1.5));
        assert_eq!(named("mean us").ratio(&ours, &slow), None);
    }

    #[test]
    fn the_matrix_of_the_arena_becomes_rows() {
        let mut kept = Kept::new("arena", &[], &[], super::super::kept::Machine::default());
        kept.output = json!({"matrix": [{
            "metric": "p99", "name": "open 50 %", "several": true,
            "spreads": [["ours", {"cells": 3, "median": 1.25, "most": 2.0, "worst": 4.0, "seed": 9}],
                        ["greedy", {"cells": 3, "median": 1.0, "most": 2.0, "worst": 4.0, "seed": 8}]],
        }]});
        let (rows, lost) = rows(&kept);
        assert_eq!((rows.len(), lost), (2, 0));
        assert_eq!(rows[0].system, OURS);
        assert_eq!(rows[0].case, "p99, several batches: open 50 %");
        assert_eq!(
            (rows[0].extra("p99_share"), rows[1].extra("worst_seed")),
            (Some(1.25), Some(8.0))
        );
    }

    #[test]
    fn rows_of_an_unknown_form_are_counted() {
        let mut kept = Kept::new("x", &[], &[], super::super::kept::Machine::default());
        kept.output = json!({"rows": [{"system": "a", "case": "c"}, {"case": 7}]});
        assert_eq!(rows(&kept).1, 1);
    }
}
