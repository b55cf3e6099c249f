//! Plays one cell under every contestant.

use serde::{Deserialize, Serialize};
use tidegate::controller::{Aimd, Bounded, Choice, Controller, Exponential, Fixed, Greedy};
use tidegate::sim::arena::{Cell, Effort, Kind, Marks, Outcome, Regret, SEEDS, Setting, World};

use super::cache::{Cache, key};
use crate::rounds::median;

/// A controller that plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contestant {
    /// The default controller, in the configuration of a batcher.
    Ours,
    /// Batches of the whole backlog, one at a time.
    Greedy,
    /// Batches of the whole backlog, as many at once as the bound allows.
    GreedyAll,
    /// gen_batch_server's doubling, from 32 to 8192.
    Exponential,
    /// gen_batch_server's additive growth, in steps of 64.
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

    /// Returns whether the contestant behaves differently from the other contestants in this world.
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

/// Throughput in items a millisecond, mean and 99th percentile of latency in milliseconds.
pub(super) type Figures = [f64; 3];

/// The figures of a cell that do not depend on the default controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reference {
    /// A hash of the world, the effort and the simulator.
    pub(super) key: String,
    pub(super) seed: u32,
    /// The best settings by throughput, mean and 99th percentile.
    pub(super) settings: [String; 3],
    /// Throughput, 99th percentile of the best setting by throughput, mean and 99th percentile of latency, by
    /// round.
    pub(super) marks: Vec<[f64; 4]>,
    /// Throughput and mean of the best settings from cold until learning may end, by round.
    pub(super) learning: Vec<[f64; 2]>,
    /// The rivals' figures by round.
    pub(super) rivals: Vec<(Contestant, Vec<Figures>)>,
}

/// A cell after its contest.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Played {
    pub(super) seed: u32,
    pub(super) family: &'static str,
    pub(super) kind: String,
    #[serde(skip)]
    pub(super) group: Kind,
    /// True if several batches may run at once.
    pub(super) several: bool,
    pub(super) world: String,
    /// The best settings by throughput, mean and 99th percentile.
    pub(super) settings: [String; 3],
    pub(super) contestants: Vec<Scores>,
    /// The figures of the default controller from cold until learning may end, as a share of the best
    /// setting's figures over the same time: of throughput if that counts, else of the mean.
    pub(super) learning: Option<f64>,
}

/// A contestant's shares of the best setting's figures: the median of the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Scores {
    pub(super) who: Contestant,
    pub(super) throughput: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) p99: Option<f64>,
    /// True if the 95 % interval over the rounds is narrower than 5 %, for throughput or mean.
    pub(super) resolved: bool,
}

impl Played {
    pub(super) fn of(&self, who: Contestant) -> Option<&Scores> {
        self.contestants.iter().find(|scores| scores.who == who)
    }
}

/// Plays `cell` under the default controller; takes the figures of the other contestants from the cache if it
/// has them.
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

/// Returns the price of learning. Returns `None` in a world that changes, because its best settings are those
/// of the last mode.
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

/// Describes the world's server, its noise and, if there are several, the number of its modes.
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

/// Returns the width of the 95 % interval of the mean, as a share of the mean, by Student's t; infinite for
/// one value.
fn width(values: &[f64]) -> f64 {
    /// Student's factors for 2 to 8 values.
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
        // Computed by hand: sd 0.01, t 4.303, sqrt(3).
        let three = width(&[0.99, 1.0, 1.01]);
        assert!((three - 0.0497).abs() < 1e-4, "{three}");
        assert!(width(&[0.99, 1.0, 1.01, 0.99, 1.0, 1.01]) < three);
    }
}
