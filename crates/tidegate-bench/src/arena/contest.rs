//! Plays one cell of the arena, a simulated workload, under every contestant, to compare their figures.

use serde::{Deserialize, Serialize};
use tidegate::controller::{Aimd, Bounded, Choice, Controller, Exponential, Fixed, Greedy};
use tidegate::sim::arena::{Cell, Effort, Kind, Marks, Outcome, Regret, SEEDS, Setting, World};

use super::cache::{Cache, key};
use crate::rounds::median;

/// A controller that plays the cells of the arena, the simulated workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contestant {
    /// The default controller, configured as a batcher configures it.
    Ours,
    /// A rule that takes the whole backlog as a batch, one batch at a time, as a rival of the default
    /// controller.
    Greedy,
    /// A rule that takes the whole backlog as a batch, with as many batches in flight as the simulated server
    /// allows.
    GreedyAll,
    /// The rule of gen_batch_server that doubles and halves the limit, from 32 to 8192 items.
    Exponential,
    /// The rule of gen_batch_server that adds 64 items to the limit at a time.
    Aimd,
}

impl Contestant {
    pub(super) const ALL: [Self; 5] = [
        Self::Ours,
        Self::Greedy,
        Self::GreedyAll,
        Self::Exponential,
        Self::Aimd,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "tidegate",
            Self::Greedy => "greedy",
            Self::GreedyAll => "greedy, all at once",
            Self::Exponential => "exponential",
            Self::Aimd => "aimd",
        }
    }

    /// Returns whether the contestant plays in this simulated world. [`Self::GreedyAll`] plays only if the
    /// world's server handles several batches at once, because otherwise it equals [`Self::Greedy`].
    pub(super) const fn plays(self, world: &World) -> bool {
        !matches!(self, Self::GreedyAll) || world.in_flight_max > 1
    }

    pub(super) fn controller(self, world: &World) -> anyhow::Result<Box<dyn Controller>> {
        let bounds = world.bounds();
        Ok(match self {
            Self::Ours => Choice::KNEE.build(bounds)?,
            Self::Greedy => Box::new(Bounded::new(Greedy.controller(), bounds)?),
            Self::GreedyAll => {
                let rule = Fixed::new(u64::MAX).with_in_flight(world.in_flight_max);
                Box::new(Bounded::new(rule.controller(), bounds)?)
            }
            Self::Exponential => Box::new(Bounded::new(Exponential::new().controller(), bounds)?),
            Self::Aimd => Box::new(Bounded::new(Aimd::new(64).controller(), bounds)?),
        })
    }
}

/// The figures of one contestant's run: throughput in items a millisecond, then the mean and the 99th
/// percentile of latency in milliseconds.
pub(super) type Figures = [f64; 3];

/// The figures of a cell that do not depend on the default controller, so that the cache can keep them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reference {
    /// The cell's key in the cache: a hash of the world, the effort, the number of rounds and the simulator.
    pub(super) key: String,
    pub(super) seed: u32,
    /// The best fixed settings in this cell: the best by throughput, by mean latency and by the 99th
    /// percentile of latency.
    pub(super) settings: [String; 3],
    /// The figures of the best fixed settings, one entry a round: the throughput and the 99th percentile of
    /// the setting with the best throughput, then the mean latency of the setting with the best mean latency,
    /// then the 99th percentile of the setting with the best 99th percentile.
    pub(super) marks: Vec<[f64; 4]>,
    /// The figures of the best fixed settings over the time that the default controller has for learning, one
    /// entry a round: throughput and mean latency.
    pub(super) learning: Vec<[f64; 2]>,
    /// The figures of each contestant but the default controller, one entry a round.
    pub(super) rivals: Vec<(Contestant, Vec<Figures>)>,
}

/// A cell that the arena has played, with the results of all contestants.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Played {
    pub(super) seed: u32,
    pub(super) family: &'static str,
    pub(super) kind: String,
    #[serde(skip)]
    pub(super) group: Kind,
    /// True if the simulated server handles several batches at once.
    pub(super) several: bool,
    pub(super) world: String,
    /// The best fixed settings in this cell: the best by throughput, by mean latency and by the 99th
    /// percentile of latency.
    pub(super) settings: [String; 3],
    pub(super) contestants: Vec<Scores>,
    /// The price of learning: the default controller's figure over the time that it has for learning, as a
    /// share of the best fixed setting's figure over the same time. The figure is throughput in saturated and
    /// closed loops, otherwise mean latency. `None` for a world that changes.
    pub(super) learning: Option<f64>,
}

/// A contestant's figures as shares of the best setting's figures, each the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Scores {
    pub(super) who: Contestant,
    pub(super) throughput: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) p99: Option<f64>,
    /// True if the 95 % interval of the contestant's share over the rounds is narrower than 5 % of the mean
    /// share. The share is that of throughput or, without this figure, of mean latency.
    pub(super) resolved: bool,
}

impl Played {
    pub(super) fn of(&self, who: Contestant) -> Option<&Scores> {
        self.contestants.iter().find(|scores| scores.who == who)
    }
}

/// Plays `cell` under the default controller. Takes the figures of the other contestants from the cache, or
/// measures them if the cache lacks them.
pub(super) fn play(
    cell: &Cell,
    effort: Effort,
    rounds: usize,
    cache: &Cache,
) -> anyhow::Result<Played> {
    let key = key(&cell.world, effort, rounds);
    let reference = match cache.get(&key) {
        Some(reference) => reference,
        None => {
            let reference = measure(cell, effort, rounds, key)?;
            cache.keep(reference.clone())?;
            reference
        }
    };
    let ours = figures(cell, Contestant::Ours, effort, rounds)?;
    let learning = learning(cell, &reference.learning)?;
    let all = std::iter::once((Contestant::Ours, ours)).chain(reference.rivals);
    let contestants = all.map(|(who, figures)| scores(cell, who, &figures, &reference.marks));
    Ok(Played {
        seed: cell.seed,
        family: cell.world.family().as_str(),
        kind: cell.kind().to_string(),
        group: cell.kind(),
        several: cell.world.in_flight_max > 1,
        world: described(&cell.world),
        settings: reference.settings,
        contestants: contestants.collect(),
        learning,
    })
}

/// Returns the default controller's price of learning in the cell: its figures while it learns, as a share of
/// the best fixed setting's. Returns `None` for a world that changes, because the arena knows the best
/// settings only for the last mode of such a world.
fn learning(cell: &Cell, best: &[[f64; 2]]) -> anyhow::Result<Option<f64>> {
    let mut shares = Vec::new();
    if cell.world.modes() > 1 {
        return Ok(None);
    }
    for (seed, [throughput, mean]) in SEEDS.iter().zip(best) {
        let mut controller = Contestant::Ours.controller(&cell.world)?;
        let outcome = cell.learning(*seed, &mut controller);
        shares.push(match cell.kind() {
            Kind::Saturated | Kind::Closed => outcome.throughput / throughput,
            _ => outcome.mean / mean,
        });
    }
    Ok(median(shares))
}

/// Describes the simulated server, its noise and, if the world changes, the number of its modes, for the
/// report.
pub(super) fn described(world: &World) -> String {
    let mut text = format!("{:.2?}, {:.2?}", world.server, world.noise);
    if world.modes() > 1 {
        text.push_str(&format!(", {} modes", world.modes()));
    }
    text
}

fn measure(cell: &Cell, effort: Effort, rounds: usize, key: String) -> anyhow::Result<Reference> {
    let best = cell.best(effort);
    let marks = SEEDS[..rounds].iter().map(|&seed| {
        let marks = cell.marks(&best, seed, effort);
        [
            marks.throughput,
            marks.throughput_p99,
            marks.mean,
            marks.p99,
        ]
    });
    let marks = marks.collect();
    let learning = SEEDS[..rounds].iter().map(|&seed| {
        let outcome = |setting: Setting| cell.learning(seed, &mut setting.controller(&cell.world));
        [outcome(best.throughput).throughput, outcome(best.mean).mean]
    });
    let learning = learning.collect();
    let mut rivals = Vec::new();
    for who in &Contestant::ALL[1..] {
        if who.plays(&cell.world) {
            rivals.push((*who, figures(cell, *who, effort, rounds)?));
        }
    }
    Ok(Reference {
        key,
        seed: cell.seed,
        settings: [best.throughput, best.mean, best.p99].map(|setting| setting.to_string()),
        marks,
        learning,
        rivals,
    })
}

fn figures(
    cell: &Cell,
    who: Contestant,
    effort: Effort,
    rounds: usize,
) -> anyhow::Result<Vec<Figures>> {
    let rounds = SEEDS[..rounds].iter().map(|&seed| {
        let mut controller = who.controller(&cell.world)?;
        let outcome = cell.play(seed, effort, &mut controller);
        Ok([outcome.throughput, outcome.mean, outcome.p99])
    });
    rounds.collect()
}

fn scores(cell: &Cell, who: Contestant, figures: &[Figures], marks: &[[f64; 4]]) -> Scores {
    let shares: Vec<Regret> = figures
        .iter()
        .zip(marks)
        .map(|(&[throughput, mean, p99], marks)| {
            let outcome = Outcome {
                throughput,
                mean,
                p99,
                ..Outcome::default()
            };
            let marks = Marks {
                throughput: marks[0],
                throughput_p99: marks[1],
                mean: marks[2],
                p99: marks[3],
            };
            cell.regret(&outcome, &marks)
        })
        .collect();
    let of = |share: fn(&Regret) -> Option<f64>| -> Vec<f64> {
        shares.iter().filter_map(share).collect()
    };
    let first = of(|share| share.throughput.or(share.mean));
    Scores {
        who,
        throughput: median(of(|share| share.throughput)),
        mean: median(of(|share| share.mean)),
        p99: median(of(|share| share.p99)),
        resolved: width(&first) <= 0.05,
    }
}

/// Returns the width of the 95 % interval of the mean of `values`, as a share of the mean, by Student's t, to
/// tell if the rounds suffice. The width is infinite for a single value.
fn width(values: &[f64]) -> f64 {
    /// Student's factors for the 95 % interval of 2 to 8 values.
    const T: [f64; 7] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365];
    let n = values.len() as f64;
    let Some(t) = values.len().checked_sub(2).and_then(|i| T.get(i)) else {
        return f64::INFINITY;
    };
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    2.0 * t * deviation / n.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_narrows_with_rounds_and_needs_two() {
        assert_eq!(width(&[1.0]), f64::INFINITY);
        assert_eq!(width(&[1.0, 1.0, 1.0]), 0.0);
        // The expected width is the result of a calculation by hand: standard deviation 0.01, t 4.303,
        // sqrt(3).
        let three = width(&[0.99, 1.0, 1.01]);
        assert!((three - 0.0497).abs() < 1e-4, "{three}");
        assert!(width(&[0.99, 1.0, 1.01, 0.99, 1.0, 1.01]) < three);
    }
}
