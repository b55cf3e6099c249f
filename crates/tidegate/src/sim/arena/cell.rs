//! A cell of the arena: a generated world in which controllers are measured. A cell gives a controller time
//! to learn, then measures the controller beside the best fixed settings on the same arrivals.

use super::oracle::{Setting, oracle};
use super::premises::{Breach, Premises};
use super::run::{Outcome, Span, run};
use super::world::{Demand, World};
use crate::controller::Controller;

/// The length of the runs of a cell, which a caller sets by the time that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The greatest number of items in the part of a run that counts, which follows the time for learning;
    /// only a run of a full queue may have more. This part lasts about L batches of the best fixed setting,
    /// where L is the number of batches that learning may take.
    pub items_max: u64,
}

/// The seed of the runs that choose the best fixed settings of a cell. The runs that compare controllers use
/// [`SEEDS`] instead.
const CHOOSE: u32 = 7;

/// The seeds of the runs that compare controllers, in this order, so that comparisons can be repeated.
pub const SEEDS: [u32; 8] = [11, 12, 13, 14, 15, 16, 17, 18];

/// The least number of items in the part of a run that counts, at a load that leaves the share [`SLACK_EASY`]
/// of the capacity unused. A load that leaves less needs more items.
const ITEMS_MIN: f64 = 20_000.0;
/// The share of the capacity that a load leaves unused in a run of at least [`ITEMS_MIN`] items.
const SLACK_EASY: f64 = 0.3;

/// The kind of load of a cell, which determines the figures that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A load that keeps the queue full: comparisons of controllers count the throughput.
    Saturated,
    /// Callers that wait for their answers. Comparisons count throughput, and the 99th percentile of latency
    /// beside that of the setting with the highest throughput.
    Closed,
    /// Poisson arrivals at this percentage of the capacity: comparisons count the mean and the 99th
    /// percentile of latency.
    Open(u8),
    /// A load of arrivals in bursts: comparisons of controllers count the mean and the 99th percentile of
    /// latency.
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

/// A generated world that satisfies the premises of the arena, so that its results count.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The seed from which the cell's world was generated.
    pub seed: u32,
    /// The world in which the cell's controllers run: its costs, noise, server and load.
    pub world: World,
    /// The world's capacity, its slack, and the time that learning may take in it.
    pub premises: Premises,
}

/// The fixed settings of a cell that are best by one figure each: throughput, mean latency, and 99th
/// percentile of latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The setting with the highest throughput of all fixed settings, for loads that keep the queue full.
    pub throughput: Setting,
    /// The setting with the least mean latency of all fixed settings, for loads of arrivals.
    pub mean: Setting,
    /// The setting with the least 99th percentile of latency of all fixed settings, for loads of arrivals.
    pub p99: Setting,
}

/// The figures of the best fixed settings, from runs on one seed, with which a controller is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Marks {
    /// The highest throughput of any fixed setting, in items a millisecond, as the measure for a controller.
    pub throughput: f64,
    /// The 99th percentile of latency of the fixed setting with the highest throughput, in milliseconds, as
    /// the measure for closed loops.
    pub throughput_p99: f64,
    /// The least mean latency of any fixed setting, in milliseconds, as the measure for a controller.
    pub mean: f64,
    /// The least 99th percentile of latency of any fixed setting, in milliseconds, as the measure for a
    /// controller.
    pub p99: f64,
}

/// A controller's figures, each as a share of the figure of the best fixed setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// The controller's throughput as a share of the best setting's: 1 is as good as the best setting, less
    /// is worse. `None` except for full queues and closed loops.
    pub throughput: Option<f64>,
    /// The controller's mean latency as a share of the best setting's: 1 is as good as the best setting, more
    /// is worse. `None` except for open loops, bursts included.
    pub mean: Option<f64>,
    /// The controller's 99th percentile of latency as a share of the best setting's: 1 is as good as the best
    /// setting, more is worse. `None` for a full queue.
    pub p99: Option<f64>,
}

impl Cell {
    /// Returns the cell with the world that `seed` generates.
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

    /// Returns the kind of load of the cell, by which comparisons choose the figures that count.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.world.demand {
            Demand::Open(share) => Kind::Open((share * 100.0).round() as u8),
            Demand::OnOff(..) => Kind::Bursts,
            Demand::Closed { .. } => Kind::Closed,
            Demand::Backlog | Demand::Full(_) => Kind::Saturated,
        }
    }

    /// Returns the arrival rate of the cell's load, in items a millisecond; for callers and full queues, the
    /// highest possible rate.
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

    /// Returns the approximate number of items that a run handles while the controller learns, before the
    /// part that counts.
    #[must_use]
    pub fn learning_items(&self) -> f64 {
        self.rate() * self.premises.warm_ms(&self.world)
    }

    /// Lets `controller` serve the cell. The part of the run that counts begins after the controller has
    /// learned during the earlier modes and for L batches of the last mode.
    pub fn play(&self, seed: u32, effort: Effort, controller: &mut dyn Controller) -> Outcome {
        let span = self.span(self.premises.warm_ms(&self.world), self.items(effort));
        run(&self.world, seed, self.premises.capacity, span, controller)
    }

    /// Lets `controller` serve the cell from the start of the first mode until the time for learning in that
    /// mode is over, and counts all of it. The outcome shows the price of learning.
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

    /// Returns the number of items in the part of a run that counts: as many as arrive while the best setting
    /// runs L batches, or more if the load leaves little slack, because consecutive latencies are then alike.
    /// `effort` bounds the number, except for a full queue.
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

    /// Returns the least number of items that count in a run of a full queue: those of ten of the largest
    /// batches for each batch that may run at once. With fewer items the ends of all batches could coincide.
    fn full_items(&self) -> u64 {
        10 * self.world.items_max * u64::from(self.world.in_flight_max)
    }

    /// Returns the best fixed settings for the last mode of the cell, chosen on a seed that no comparison
    /// uses.
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

    /// Returns the figures of the best fixed settings on `seed`, in runs that begin in the last mode, so that
    /// earlier modes leave them no backlog. Figures that do not count for this kind of load are 0.
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

    /// Returns the figures of `outcome` as shares of `marks`. Both must come from runs with the same seed and
    /// the same effort, or they do not compare.
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
