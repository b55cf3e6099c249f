//! A generated world as a cell of the arena: it gives a controller time to learn, then measures it beside the
//! best fixed settings on the same arrivals.

use super::oracle::{Setting, oracle};
use super::premises::{Breach, Premises};
use super::run::{Outcome, Span, run};
use super::world::{Demand, World};
use crate::controller::Controller;

/// The length of a cell's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The most items in the part that counts, which lasts about L batches of the best fixed setting.
    pub items_max: u64,
}

/// The seed of the runs that choose the best settings. Comparisons use [`SEEDS`].
const CHOOSE: u32 = 7;

/// The seeds of the runs that compare controllers, in this order.
pub const SEEDS: [u32; 8] = [11, 12, 13, 14, 15, 16, 17, 18];

/// The least items of a part that counts, where the load leaves [`SLACK_EASY`] of the capacity.
const ITEMS_MIN: f64 = 20_000.0;
/// The slack to which [`ITEMS_MIN`] refers.
const SLACK_EASY: f64 = 0.3;

/// The kind of load of a cell, which determines the figures that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A full queue: throughput counts.
    Saturated,
    /// Callers that wait for their answers. Throughput counts, and the 99th percentile in comparison with
    /// that of the setting with the highest throughput.
    Closed,
    /// Poisson arrivals at this percentage of the capacity: mean and 99th percentile count.
    Open(u8),
    /// Bursts: mean and 99th percentile count.
    Bursts,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Saturated => f.write_str("saturated"),
            Self::Closed => f.write_str("closed"),
            Self::Open(percent) => write!(f, "open {percent} %"),
            Self::Bursts => f.write_str("bursts"),
        }
    }
}

/// A world that satisfies the premises.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The seed that made the world.
    pub seed: u32,
    /// The world.
    pub world: World,
    /// The figures of the world under the premises.
    pub premises: Premises,
}

/// The best fixed settings of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The setting with the highest throughput.
    pub throughput: Setting,
    /// The setting with the least mean latency.
    pub mean: Setting,
    /// The setting with the least 99th percentile of latency.
    pub p99: Setting,
}

/// The figures of the best fixed settings on one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// Items a millisecond of the setting with the highest throughput.
    pub throughput: f64,
    /// The 99th percentile of latency of that setting, in milliseconds.
    pub throughput_p99: f64,
    /// The least mean latency, in milliseconds.
    pub mean: f64,
    /// The least 99th percentile of latency, in milliseconds.
    pub p99: f64,
}

/// A controller's figures as shares of the best fixed setting's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// The share in throughput, for full queues and closed loops: 1 is as good, below is worse.
    pub throughput: Option<f64>,
    /// The share in mean latency, for open loops: 1 is as good, above is worse.
    pub mean: Option<f64>,
    /// The share in the 99th percentile of latency, unless the queue is full: 1 is as good, above is worse.
    pub p99: Option<f64>,
}

impl Cell {
    /// Returns the cell of `seed`.
    ///
    /// # Errors
    /// The premise that the world of this seed does not satisfy.
    pub fn of(seed: u32) -> Result<Self, Breach> {
        let world = World::random(seed);
        let premises = Premises::of(&world)?;
        Ok(Self {
            seed,
            world,
            premises,
        })
    }

    /// Returns the kind of load of the cell.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.world.demand {
            Demand::Open(share) => Kind::Open((share * 100.0).round() as u8),
            Demand::OnOff(..) => Kind::Bursts,
            Demand::Closed { .. } => Kind::Closed,
            Demand::Backlog | Demand::Full(_) => Kind::Saturated,
        }
    }

    /// Returns the arrival rate, in items a millisecond; for callers and full queues, the highest possible
    /// one.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let capacity = self.premises.capacity;
        match self.world.demand {
            Demand::Open(share) => share * capacity,
            Demand::OnOff(_, high, low) => (high + low) / 2.0 * capacity,
            Demand::Closed { callers, think } => {
                capacity.min(f64::from(callers) / (think + self.world.curve.at(1)))
            }
            Demand::Backlog | Demand::Full(_) => capacity,
        }
    }

    /// Returns about how many items a run handles before the part that counts.
    #[must_use]
    pub fn learning_items(&self) -> f64 {
        self.rate() * self.premises.warm_ms(&self.world)
    }

    /// Lets `controller` serve the cell. The controller learns during the earlier modes and L batches in the
    /// last one; then the part that counts begins.
    pub fn play(&self, seed: u32, effort: Effort, controller: &mut dyn Controller) -> Outcome {
        let span = self.span(self.premises.warm_ms(&self.world), self.items(effort));
        run(&self.world, seed, self.premises.capacity, span, controller)
    }

    /// Lets `controller` serve the cell from cold until learning may end in the first mode, which measures
    /// the price of learning.
    pub fn learning(&self, seed: u32, controller: &mut dyn Controller) -> Outcome {
        let items = (self.rate() * self.premises.learn_ms[0]).max(1.0) as u64;
        let span = self.span(0.0, items);
        run(&self.world, seed, self.premises.capacity, span, controller)
    }

    fn span(&self, warm_ms: f64, items: u64) -> Span {
        Span {
            warm_ms,
            batches: u64::MAX,
            items,
        }
    }

    /// Returns the number of items of the part that counts: as many as arrive while the best setting runs L
    /// batches, and more where little slack makes consecutive latencies alike.
    #[must_use]
    pub fn items(&self, effort: Effort) -> u64 {
        let slack = SLACK_EASY / self.premises.slack;
        let least = ITEMS_MIN * slack * slack;
        let last = self.world.modes() - 1;
        let items = (self.rate() * self.premises.learn_ms[last]).max(least);
        let items = (items as u64).min(effort.items_max);
        match self.kind() {
            Kind::Saturated => items.max(self.full_items()),
            _ => items,
        }
    }

    /// Returns the items of ten of the largest batches for each batch that may run at once, because their
    /// ends must not all coincide.
    fn full_items(&self) -> u64 {
        10 * self.world.items_max * u64::from(self.world.in_flight_max)
    }

    /// Returns the best fixed settings of the last mode, chosen on another seed than those of the
    /// comparisons.
    #[must_use]
    pub fn best(&self, effort: Effort) -> Best {
        let last = self.world.modes() - 1;
        let items = (self.items(effort) / 4).max(ITEMS_MIN as u64);
        let span = self.span(self.premises.learn_ms[last] / 10.0, items);
        let mode = self.world.mode(last);
        let [throughput, mean, p99] = oracle(&mode, CHOOSE, self.premises.capacity, span);
        Best {
            throughput,
            mean,
            p99,
        }
    }

    /// Returns the figures of the best settings in the last mode on `seed`: those that count for this kind of
    /// load, and 0 for others. Earlier modes leave no backlog to these runs.
    #[must_use]
    pub fn marks(&self, best: &Best, seed: u32, effort: Effort) -> Marks {
        let last = self.world.modes() - 1;
        let mode = self.world.mode(last);
        let span = self.span(self.premises.learn_ms[last], self.items(effort));
        let play = |setting: Setting| setting.run(&mode, seed, self.premises.capacity, span);
        match self.kind() {
            Kind::Saturated | Kind::Closed => {
                let outcome = play(best.throughput);
                Marks {
                    throughput: outcome.throughput,
                    throughput_p99: outcome.p99,
                    ..Marks::default()
                }
            }
            Kind::Open(_) | Kind::Bursts => {
                let mean = play(best.mean);
                let p99 = match best.p99 == best.mean {
                    true => mean.p99,
                    false => play(best.p99).p99,
                };
                Marks {
                    mean: mean.mean,
                    p99,
                    ..Marks::default()
                }
            }
        }
    }

    /// Returns the outcome as shares of `marks`, which have the same seed and effort.
    #[must_use]
    pub fn regret(&self, outcome: &Outcome, marks: &Marks) -> Regret {
        match self.kind() {
            Kind::Saturated => Regret {
                throughput: Some(outcome.throughput / marks.throughput),
                mean: None,
                p99: None,
            },
            Kind::Closed => Regret {
                throughput: Some(outcome.throughput / marks.throughput),
                mean: None,
                p99: Some(outcome.p99 / marks.throughput_p99),
            },
            Kind::Open(_) | Kind::Bursts => Regret {
                throughput: None,
                mean: Some(outcome.mean / marks.mean),
                p99: Some(outcome.p99 / marks.p99),
            },
        }
    }
}
