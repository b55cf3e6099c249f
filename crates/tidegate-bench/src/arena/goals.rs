//! Judges whether the default controller meets its goals in the arena, and formats the price of its learning.

use std::fmt::Write as _;

use serde::Serialize;
use tidegate::sim::arena::Kind;
use tidegate_cli::report::Table;

use super::contest::{Contestant, Played};
use super::matrix::{Metric, Spread, share};

/// One goal of the default controller, and whether the controller meets it.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    name: &'static str,
    several: bool,
    cells: usize,
    median: f64,
    most: f64,
    goal_median: f64,
    goal_most: f64,
    met: bool,
}

/// Compares the default controller's results in the played cells with each goal, for the verdict of the
/// arena.
pub(super) fn judge(played: &[Played], several: bool) -> Vec<Verdict> {
    type Is = fn(Kind) -> bool;
    let is_near_full: Is = |kind| kind == Kind::Open(95);
    let is_open: Is = |kind| matches!(kind, Kind::Open(_) | Kind::Bursts) && kind != Kind::Open(95);
    let rows: [(&str, Metric, Kind, Is); 6] = [
        (
            "throughput, saturated and closed",
            Metric::Throughput,
            Kind::Saturated,
            |_| true,
        ),
        ("p99, closed", Metric::P99, Kind::Closed, |kind| {
            kind == Kind::Closed
        }),
        ("mean, open to 90 %", Metric::Mean, Kind::Bursts, is_open),
        ("p99, open to 90 %", Metric::P99, Kind::Bursts, is_open),
        (
            "mean, open at 95 %",
            Metric::Mean,
            Kind::Open(95),
            is_near_full,
        ),
        (
            "p99, open at 95 %",
            Metric::P99,
            Kind::Open(95),
            is_near_full,
        ),
    ];
    let judged = rows.into_iter().filter_map(|(name, metric, kind, is)| {
        let cells = played
            .iter()
            .filter(|c| c.several == several && is(c.group));
        let shares = cells.filter_map(|c| Some((metric.of(c.of(Contestant::Ours)?)?, c.seed)));
        let spread = Spread::of(metric, shares)?;
        let (goal_median, goal_most) = metric.goals(kind);
        let met = !metric.is_better(goal_median, spread.median)
            && !metric.is_better(goal_most, spread.most);
        Some(Verdict {
            name,
            several,
            cells: spread.cells,
            median: spread.median,
            most: spread.most,
            goal_median,
            goal_most,
            met,
        })
    });
    judged.collect()
}

/// Formats the goals and the verdicts as a table for the report.
pub(super) fn verdicts(played: &[Played], several: bool) -> String {
    let mut table = Table::new(["goal", "cells", "median", "wanted", "95 %", "wanted", ""]);
    for verdict in judge(played, several) {
        table.row([
            verdict.name.into(),
            verdict.cells.to_string(),
            share(verdict.median),
            share(verdict.goal_median),
            share(verdict.most),
            share(verdict.goal_most),
            if verdict.met { "met" } else { "not met" }.into(),
        ]);
    }
    table.print() + "\n"
}

/// Formats the price of learning: the default controller's figures from its start until it must have learnt,
/// as shares of the best settings' figures, in worlds that do not change.
pub(super) fn learning(played: &[Played], several: bool) -> String {
    let mut text = String::new();
    for (metric, is_throughput) in [(Metric::Throughput, true), (Metric::Mean, false)] {
        let counts = |kind| matches!(kind, Kind::Saturated | Kind::Closed) == is_throughput;
        let cells = played
            .iter()
            .filter(|c| c.several == several && counts(c.group));
        let shares = cells.filter_map(|c| Some((c.learning?, c.seed)));
        if let Some(spread) = Spread::of(metric, shares) {
            let _ = writeln!(
                text,
                "while it learns, {}: {} in the median of {} cells, {} in 95 %, worst {} (seed {})",
                metric.name(),
                share(spread.median),
                spread.cells,
                share(spread.most),
                share(spread.worst),
                spread.seed,
            );
        }
    }
    text + "\n"
}
