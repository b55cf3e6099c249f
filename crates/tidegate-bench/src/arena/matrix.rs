//! Computes the matrix of the arena: each contestant's figures as shares of the best setting's figures, by
//! group of cells, so that the reader sees where a contestant loses.

use serde::Serialize;
use tidegate::sim::arena::Kind;
use tidegate_cli::report::Table;

use super::contest::{Contestant, Played, Scores};

/// A figure by which the bench compares a contestant with the best fixed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Metric {
    /// Throughput, of which more is better.
    Throughput,
    /// Mean latency, of which less is better.
    Mean,
    /// The 99th percentile of latency, of which less is better.
    P99,
}

impl Metric {
    pub(super) const ALL: [Self; 3] = [Self::Throughput, Self::Mean, Self::P99];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Mean => "mean latency",
            Self::P99 => "p99 latency",
        }
    }

    pub(super) const fn of(self, scores: &Scores) -> Option<f64> {
        match self {
            Self::Throughput => scores.throughput,
            Self::Mean => scores.mean,
            Self::P99 => scores.p99,
        }
    }

    /// Returns whether the figure `a` of this metric is better than the figure `b`, to judge whether a goal
    /// is met.
    pub(super) fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Self::Throughput => a > b,
            Self::Mean | Self::P99 => a < b,
        }
    }

    /// Returns the goals for the shares of the best setting's figure: first the goal for the median of the
    /// cells, then the goal that 95 % of the cells must meet. For the 99th percentile in closed loops the two
    /// goals are equal.
    pub(super) fn goals(self, kind: Kind) -> (f64, f64) {
        match (self, kind) {
            (Self::Throughput, _) => (0.95, 0.90),
            (Self::P99, Kind::Closed) => (1.3, 1.3),
            (_, Kind::Open(95)) => (1.15, 2.0),
            _ => (1.15, 1.5),
        }
    }
}

/// The spread of one contestant's figures, as shares of the best setting's figures, over a group of cells:
/// one field of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) cells: usize,
    pub(super) median: f64,
    /// The share that 95 % of the cells meet: the 5th percentile of the shares of throughput, or the 95th
    /// percentile of the shares of a latency.
    pub(super) most: f64,
    pub(super) worst: f64,
    /// The seed of the cell in which the contestant has its worst share, so that the reader can play this
    /// cell alone.
    pub(super) seed: u32,
}

impl Spread {
    /// Returns the spread of one contestant's shares, each with the seed of its cell; `None` without cells.
    pub(super) fn of(metric: Metric, shares: impl Iterator<Item = (f64, u32)>) -> Option<Self> {
        let mut sorted: Vec<_> = shares.collect();
        sorted.sort_by(|a, b| match metric {
            Metric::Throughput => b.0.total_cmp(&a.0),
            Metric::Mean | Metric::P99 => a.0.total_cmp(&b.0),
        });
        let at = |part: f64| {
            let rank = (sorted.len() as f64 * part).ceil() as usize;
            sorted.get(rank.max(1) - 1).map(|share| share.0)
        };
        let &(worst, seed) = sorted.last()?;
        Some(Self {
            cells: sorted.len(),
            median: at(0.5)?,
            most: at(0.95)?,
            worst,
            seed,
        })
    }
}

/// One row of the matrix: the shares of one metric over a group of cells.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Group {
    pub(super) metric: Metric,
    /// The name of the group by which the report shows the row: a kind of load, or a family of cost curves.
    pub(super) name: String,
    /// True if the simulated server of the group's cells handles several batches at once.
    pub(super) several: bool,
    /// The spread of the shares of each contestant that plays in these cells.
    pub(super) spreads: Vec<(Contestant, Spread)>,
}

/// Groups the played cells by `key`, and names each group by `name`. `several` selects the cells: if it is
/// true those in which several batches run at once, otherwise those with one batch at a time.
pub(super) fn groups<'a, K: Ord>(
    cells: impl Iterator<Item = &'a Played> + Clone,
    several: bool,
    key: impl Fn(&Played) -> K,
    name: impl Fn(&Played) -> String,
) -> Vec<Group> {
    let cells = cells.filter(|cell| cell.several == several);
    let mut keys: Vec<_> = cells.clone().map(|cell| (key(cell), name(cell))).collect();
    keys.sort();
    keys.dedup();
    let mut groups = Vec::new();
    for metric in Metric::ALL {
        for (at, name) in &keys {
            let spread = |who| {
                let cells = cells.clone().filter(|cell| key(cell) == *at);
                let shares = cells.filter_map(|cell| Some((metric.of(cell.of(who)?)?, cell.seed)));
                Some((who, Spread::of(metric, shares)?))
            };
            let spreads: Vec<_> = Contestant::ALL.into_iter().filter_map(spread).collect();
            if !spreads.is_empty() {
                groups.push(Group {
                    metric,
                    name: name.clone(),
                    several,
                    spreads,
                });
            }
        }
    }
    groups
}

/// Formats the groups of cells as tables for the report, one table for each metric.
pub(super) fn tables(groups: &[Group]) -> String {
    let mut text = String::new();
    for metric in Metric::ALL {
        let rows: Vec<_> = groups.iter().filter(|g| g.metric == metric).collect();
        if rows.is_empty() {
            continue;
        }
        let plays = |who: &Contestant| rows.iter().any(|g| g.spreads.iter().any(|s| s.0 == *who));
        let contestants: Vec<_> = Contestant::ALL.into_iter().filter(plays).collect();
        let heads = [metric.name(), "cells"].into_iter();
        let mut table = Table::new(heads.chain(contestants.iter().map(|who| who.name())));
        for group in rows {
            let spread = |who| group.spreads.iter().find(|s| s.0 == who).map(|s| s.1);
            let cells = group.spreads.first().map_or(0, |s| s.1.cells);
            let shown = contestants.iter().map(|&who| match spread(who) {
                Some(s) => format!("{} {} {}", share(s.median), share(s.most), share(s.worst)),
                None => String::new(),
            });
            let first = [group.name.clone(), cells.to_string()].into_iter();
            table.row(first.chain(shown));
        }
        text.push_str(&table.print());
        text.push('\n');
    }
    text
}

/// Formats a share with two or three decimals, and a share from 9.95 on with fewer, because the rest is
/// noise.
pub(super) fn share(x: f64) -> String {
    match x {
        x if x >= 99.5 => format!("{x:.0}"),
        x if x >= 9.95 => format!("{x:.1}"),
        x if x >= 0.9 => format!("{x:.3}"),
        x => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_twentieth_is_the_low_end_of_throughput_and_the_high_end_of_latency() {
        let shares = (1..=100).map(|i| (f64::from(i), i));
        let of = |metric| Spread::of(metric, shares.clone()).unwrap();
        let throughput = of(Metric::Throughput);
        assert_eq!((throughput.median, throughput.most), (51.0, 6.0));
        assert_eq!((throughput.worst, throughput.seed), (1.0, 1));
        let mean = of(Metric::Mean);
        assert_eq!((mean.median, mean.most, mean.worst), (50.0, 95.0, 100.0));
        assert_eq!(Spread::of(Metric::Mean, std::iter::empty()), None);
        let two = Spread::of(Metric::Mean, [(3.0, 8), (1.0, 9)].into_iter()).unwrap();
        assert_eq!((two.median, two.most, two.seed), (1.0, 3.0, 8));
    }
}
