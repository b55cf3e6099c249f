//! Finds every figure in which a peer is better than our system. Pure.
//!
//! A peer is any system of a case but ours. Settings of our own take no part, because a user can choose them.

use tidegate_cli::report::{OURS, Row};

use super::rows::{Figure, cases};

/// The share by which figures may differ and still count as equal, because both would show as 1.00.
const EQUAL: f64 = 0.005;

/// A figure in which a peer is better.
#[derive(Clone, Debug)]
pub(super) struct Loss<'a> {
    pub(super) step: &'a str,
    pub(super) ours: &'a Row,
    pub(super) peer: &'a Row,
    pub(super) figure: Figure,
    /// Our figure divided by the peer's.
    pub(super) ratio: f64,
    /// True if the bench took the ratio within its rounds, false if it is the quotient of two medians.
    pub(super) within_rounds: bool,
    factor: f64,
}

/// The figures that the report compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses<'a> {
    /// The figures in which a peer is better, the largest factor first.
    pub(super) all: Vec<Loss<'a>>,
    /// The number of figures that the report compared.
    pub(super) compared: usize,
}

impl<'a> Losses<'a> {
    /// Compares our system with every peer in the rows of one step.
    pub(super) fn add(&mut self, step: &'a str, rows: &'a [Row]) {
        for (_, of_case) in cases(rows) {
            for ours in subjects(&of_case) {
                for peer in peers(&of_case, ours) {
                    self.compare(step, ours, peer);
                }
            }
        }
        self.all.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    }

    fn compare(&mut self, step: &'a str, ours: &'a Row, peer: &'a Row) {
        for figure in Figure::all() {
            let Some((ratio, within_rounds)) = figure.ratio(ours, peer) else {
                continue;
            };
            self.compared += 1;
            let factor = figure.loss(ratio);
            if factor >= 1.0 + EQUAL {
                self.all.push(Loss {
                    step,
                    ours,
                    peer,
                    figure,
                    ratio,
                    within_rounds,
                    factor,
                });
            }
        }
    }
}

/// Returns the rows of our system that the bench compares with the peers: those with ratios if there are any,
/// otherwise all.
pub(super) fn subjects<'a>(of_case: &[&'a Row]) -> Vec<&'a Row> {
    let ours: Vec<_> = of_case
        .iter()
        .copied()
        .filter(|row| row.system == OURS)
        .collect();
    let compared: Vec<_> = ours.iter().copied().filter(|row| has_ratios(row)).collect();
    if compared.is_empty() { ours } else { compared }
}

/// Returns the rows of peers with which a row of ours is compared. A row with ratios stands beside all peers
/// of its case; another row stands beside the rows with its own controller.
fn peers<'a>(of_case: &[&'a Row], ours: &Row) -> Vec<&'a Row> {
    let peers = of_case.iter().copied().filter(|row| row.system != OURS);
    let is_for = |row: &&Row| has_ratios(ours) || row.controller == ours.controller;
    peers.filter(is_for).collect()
}

fn has_ratios(row: &Row) -> bool {
    ["ratio", "mean_ratio", "p99_ratio"]
        .iter()
        .any(|key| row.extra.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(system: &str, controller: Option<&str>, ops_per_s: f64, p99_us: f64) -> Row {
        Row {
            system: system.into(),
            controller: controller.map(Into::into),
            case: "c".into(),
            ops_per_s: Some(ops_per_s),
            p99_us: Some(p99_us),
            ..Row::default()
        }
    }

    #[test]
    fn only_figures_in_which_a_peer_is_better_are_losses() {
        let mut knee = row(OURS, Some("knee"), 10.0, 9.0);
        knee.extra
            .insert("ratio".into(), json!({"peer": 0.5, "tidegate greedy": 0.1}));
        let rows = [
            knee,
            row(OURS, Some("greedy"), 100.0, 1.0),
            row("peer", None, 20.0, 9.01),
        ];
        let mut losses = Losses::default();
        losses.add("step", &rows);
        assert_eq!((losses.all.len(), losses.compared), (1, 2));
        let loss = &losses.all[0];
        assert_eq!(
            (loss.figure.head, loss.ratio, loss.within_rounds),
            ("ops/s", 0.5, true)
        );
        assert_eq!((loss.peer.system.as_str(), loss.step), ("peer", "step"));
    }

    #[test]
    fn rows_without_ratios_stand_beside_those_of_their_controller() {
        let rows = [
            row(OURS, Some("publisher"), 1.0, 4.0),
            row(OURS, Some("echo"), 1.0, 4.0),
            row("peer", Some("publisher"), 1.0, 2.0),
            row("peer", Some("echo"), 1.0, 3.0),
        ];
        let mut losses = Losses::default();
        losses.add("step", &rows);
        let found: Vec<_> = losses
            .all
            .iter()
            .map(|loss| (loss.ours.label(), loss.ratio))
            .collect();
        assert_eq!(
            found,
            [
                ("tidegate publisher".into(), 2.0),
                ("tidegate echo".into(), 4.0 / 3.0)
            ]
        );
    }
}
