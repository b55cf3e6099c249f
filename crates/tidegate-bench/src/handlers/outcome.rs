//! The outcome of a cell of the bench `handlers`: the rounds of its contestants, the choice among settings
//! that short runs have screened, and the ratios of this library's figures to the other contestants'. Pure.
//!
//! A ratio compares two contestants within a round. The figures of the other rounds choose the best setting
//! for a round, so that luck in a round does not count.

use serde::{Deserialize, Serialize};

use super::setting::System;
use crate::rounds::median;

/// The figures of one run of one contestant, from which the bench computes ratios.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Outcome {
    pub(super) ops_per_s: f64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) batch_mean: f64,
    /// The processor time that the bench's process takes for one operation, in microseconds, the callers'
    /// part included.
    pub(super) cpu_us: f64,
    /// The number of operations a second in the warm-up, which shows how well the contestant did while it
    /// learned.
    pub(super) cold_ops_per_s: f64,
    pub(super) cold_mean_us: Option<f64>,
    /// True if the load generator ended the run early because unanswered calls piled up: in a longer run the
    /// latency would be higher still.
    pub(super) overrun: bool,
}

/// A contestant of a cell with one setting, and the figures of its rounds, as the file of results keeps them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Row {
    pub(super) system: String,
    pub(super) setting: String,
    pub(super) version: Option<String>,
    pub(super) rounds: Vec<Outcome>,
    /// The failure that ended the contestant's part in the cell; `None` if the contestant did not fail.
    pub(super) note: Option<String>,
}

/// A setting with the outcome of the short run by which the bench screened it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Screened {
    pub(super) system: String,
    pub(super) setting: String,
    pub(super) outcome: Result<Outcome, String>,
}

/// A finished cell with the rows of all its contestants, as the file of results keeps it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Played {
    pub(super) cell: String,
    /// The arrivals a second of an open loop; `None` for a closed loop.
    pub(super) offered_per_s: Option<f64>,
    pub(super) rows: Vec<Row>,
    pub(super) screened: Vec<Screened>,
    pub(super) wall_s: f64,
}

/// A function that computes a figure of an outcome by which the bench compares contestants. A higher figure
/// is better.
pub(super) type Score = fn(&Outcome) -> f64;

const THROUGHPUT: Score = |outcome| outcome.ops_per_s;
const MEAN: Score = |outcome| 1e6 / outcome.mean_us;
const P99: Score = |outcome| 1e6 / outcome.p99_us;

/// Chooses the best `count` of the screened settings, the best first: by mean latency in an open loop, by
/// throughput in a closed loop. In an open loop the setting with the best 99th percentile comes second,
/// unless it is the first already. Settings that failed, or that could not keep up with the arrivals, come
/// last.
pub(super) fn choose<T: Copy>(
    screened: &[(T, Result<Outcome, String>)],
    is_open: bool,
    count: usize,
) -> Vec<T> {
    let score = if is_open { MEAN } else { THROUGHPUT };
    let by = |score: Score| {
        let of = |at: usize| match &screened[at].1 {
            Ok(outcome) if !outcome.overrun => (2, score(outcome)),
            // If two settings could not keep up with the arrivals, the setting with more operations a second
            // is the better one.
            Ok(outcome) => (1, outcome.ops_per_s),
            Err(_) => (0, 0.0),
        };
        let mut order: Vec<usize> = (0..screened.len()).collect();
        order.sort_by(|&a, &b| {
            let ((kind_a, a), (kind_b, b)) = (of(a), of(b));
            kind_b.cmp(&kind_a).then(b.total_cmp(&a))
        });
        order
    };
    let mut order = by(score);
    if is_open && count > 1 {
        let p99 = by(P99)[0];
        if let Some(at) = order
            .iter()
            .position(|&index| index == p99)
            .filter(|at| *at > 1)
        {
            order.remove(at);
            order.insert(1, p99);
        }
    }
    order.truncate(count);
    order.into_iter().map(|at| screened[at].0).collect()
}

impl Played {
    pub(super) fn is_open(&self) -> bool {
        self.offered_per_s.is_some()
    }

    /// Returns the figure that judges this cell: mean latency in an open loop, throughput in a closed loop.
    pub(super) fn score(&self) -> Score {
        if self.is_open() { MEAN } else { THROUGHPUT }
    }

    /// Returns the row of a system that has one setting; `None` if the system failed.
    pub(super) fn row(&self, system: System) -> Option<&Row> {
        self.rows_of(system).next()
    }

    fn rows_of(&self, system: System) -> impl Iterator<Item = &Row> {
        let of_it = move |row: &&Row| row.system == system.name() && row.note.is_none();
        self.rows.iter().filter(of_it)
    }

    /// Returns this library's figure divided by that of the system `other`, for each round: above 1, the
    /// library is better.
    pub(super) fn against(&self, other: System) -> Vec<f64> {
        let score = self.score();
        match (self.row(System::Ours), self.row(other)) {
            (Some(ours), Some(other)) => {
                let rounds = ours.rounds.iter().zip(&other.rounds);
                rounds
                    .map(|(ours, other)| score(ours) / score(other))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns this library's figure divided by that of the best fixed setting, for each round: above 1, the
    /// library is better.
    pub(super) fn against_best(&self) -> Vec<f64> {
        let score = self.score();
        self.with_best(score, |ours, best| score(ours) / score(best))
    }

    /// Returns this library's 99th percentile of latency divided by that of the best fixed setting, for each
    /// round: below 1, the library is better. In a closed loop the best setting is the best by throughput, in
    /// an open loop the best by this percentile.
    pub(super) fn p99_times_best(&self) -> Vec<f64> {
        let choice = if self.is_open() { P99 } else { THROUGHPUT };
        self.with_best(choice, |ours, best| ours.p99_us / best.p99_us)
    }

    fn with_best(&self, choice: Score, ratio: impl Fn(&Outcome, &Outcome) -> f64) -> Vec<f64> {
        let Some(ours) = self.row(System::Ours) else {
            return Vec::new();
        };
        let fixed: Vec<&[Outcome]> = self
            .rows_of(System::Fixed)
            .map(|row| &row.rounds[..])
            .collect();
        let rounds = fixed.iter().map(|rounds| rounds.len()).min().unwrap_or(0);
        let rounds = rounds.min(ours.rounds.len());
        (0..rounds)
            .filter_map(|round| {
                let best = fixed.iter().max_by(|a, b| {
                    let of = |rounds: &[Outcome]| by_other_rounds(rounds, round, choice);
                    of(a).total_cmp(&of(b))
                })?;
                Some(ratio(&ours.rounds[round], &best[round]))
            })
            .collect()
    }
}

/// Returns the median score of a contestant's rounds other than `left_out`. If there is no other round,
/// returns the score of that round.
fn by_other_rounds(rounds: &[Outcome], left_out: usize, score: Score) -> f64 {
    let others = rounds.iter().enumerate().filter(|(at, _)| *at != left_out);
    let others = others.map(|(_, outcome)| score(outcome)).collect();
    median(others).unwrap_or_else(|| score(&rounds[left_out]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a row with one round for each throughput in `ops`. The mean latency of a round is one second
    /// divided by its throughput.
    pub(crate) fn row(system: System, setting: &str, ops: &[f64]) -> Row {
        let rounds = ops.iter().map(|&ops_per_s| Outcome {
            ops_per_s,
            mean_us: 1e6 / ops_per_s,
            p99_us: 4e6 / ops_per_s,
            ..Outcome::default()
        });
        Row {
            system: system.name().into(),
            setting: setting.into(),
            rounds: rounds.collect(),
            ..Row::default()
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut played = Played {
            rows: vec![
                row(System::Ours, "", &[20.0, 2.0]),
                row(System::Amate, "", &[10.0, 1.0]),
            ],
            ..Played::default()
        };
        assert_eq!(played.against(System::Amate), [2.0, 2.0]);
        assert!(played.against(System::UltraBatch).is_empty());
        // In an open loop the mean latency judges the cell: a contestant with half the latency is twice as
        // good.
        played.offered_per_s = Some(5.0);
        played.rows[0].rounds[0].mean_us = 50.0;
        played.rows[1].rounds[0].mean_us = 100.0;
        assert_eq!(played.against(System::Amate)[0], 2.0);
        // The rival's row now has a failure, so the rival takes no part in the comparison.
        played.rows[1].note = Some("lost items".into());
        assert!(played.against(System::Amate).is_empty());
    }

    #[test]
    fn the_best_setting_of_a_round_is_chosen_by_the_other_rounds() {
        let played = Played {
            rows: vec![
                row(System::Ours, "", &[10.0, 10.0, 10.0]),
                // The fixed setting `a` was lucky in round 0, so it must not be the best setting of that
                // round.
                row(System::Fixed, "a", &[40.0, 5.0, 5.0]),
                row(System::Fixed, "b", &[8.0, 8.0, 20.0]),
            ],
            ..Played::default()
        };
        // Each round gets its best setting by the medians of the other rounds. In round 0 setting a has 5, b
        // has 14; in round 1 a has 22.5, b has 14; in round 2 a has 22.5, b has 8.
        assert_eq!(played.against_best(), [10.0 / 8.0, 2.0, 2.0]);
        assert_eq!(played.p99_times_best(), [8.0 / 10.0, 0.5, 0.5]);
        let single = Played {
            rows: vec![
                row(System::Ours, "", &[9.0]),
                row(System::Fixed, "a", &[3.0]),
                row(System::Fixed, "b", &[18.0]),
            ],
            ..Played::default()
        };
        assert_eq!(single.against_best(), [0.5]);
    }

    #[test]
    fn screening_chooses_by_mean_and_by_percentile() {
        let of = |mean_us, p99_us, overrun| {
            Ok(Outcome {
                ops_per_s: 100.0,
                mean_us,
                p99_us,
                overrun,
                ..Outcome::default()
            })
        };
        let screened = [
            ("overran", of(1.0, 1.0, true)),
            ("failed", Err("lost items".to_owned())),
            ("third", of(12.0, 90.0, false)),
            ("steady", of(30.0, 40.0, false)),
            ("first", of(10.0, 80.0, false)),
            ("second", of(11.0, 70.0, false)),
        ];
        assert_eq!(choose(&screened, true, 3), ["first", "steady", "second"]);
        assert_eq!(choose(&screened, true, 1), ["first"]);
        let all = choose(&screened, true, 9);
        assert_eq!(all[4..], ["overran", "failed"]);
    }

    #[test]
    fn screening_of_a_closed_loop_chooses_by_throughput() {
        let rows = [3.0, 9.0, 6.0].map(|ops| row(System::Fixed, "", &[ops]).rounds[0].clone());
        let screened: Vec<_> = rows.into_iter().map(Ok).enumerate().collect();
        assert_eq!(choose(&screened, false, 2), [1, 2]);
    }
}
