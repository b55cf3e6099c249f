//! The premises under which the default controller promises a stable backlog: the documentation of the
//! [module](super) lists them.

use super::oracle::{best_saturated, capacity};
use super::run::Span;
use super::world::{Demand, World, grid_size};

/// The figures of a world that satisfies the premises: capacity, slack, and the time that learning may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Premises {
    /// The best throughput of the slowest mode while a backlog fills every batch, in items a millisecond.
    pub capacity: f64,
    /// The coefficient of variation of the costs of batches of one size: the noise against which a controller
    /// learns.
    pub cv: f64,
    /// The share of the capacity that the load leaves unused: the less, the longer learning takes.
    pub slack: f64,
    /// L: the number of batches of the best fixed setting that learning may take.
    pub learn_batches: f64,
    /// The time that learning may take in each mode, in milliseconds: the time of L batches of the best fixed
    /// setting, and at least the time of 30 such batches one after the other.
    pub learn_ms: Vec<f64>,
    /// The end of each mode, in milliseconds; the last mode lasts 4 L batches.
    pub ends_ms: Vec<f64>,
}

/// The first premise that a world does not satisfy, as the error of the check.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Breach {
    /// The world is infeasible: the best setting completes only this multiple of the arrivals, and at least
    /// 1.05 is needed.
    Infeasible(f64),
    /// The costs of batches of these sizes, neighbours on the grid, differ more than 8-fold.
    Steep(u64, u64),
    /// The costs of batches of one size scatter too much: their coefficient of variation has this value, and
    /// at most 1 is allowed.
    Noise(f64),
    /// The costs swing up and down with time, so that no fixed setting is best.
    Swing,
    /// This mode, counted from 0, is shorter than 4 L batches, where learning may take L batches.
    ShortMode(usize),
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Infeasible(share) => {
                write!(
                    f,
                    "infeasible: the best setting completes {share:.2} times the arrivals, 1.05 are needed"
                )
            }
            Self::Steep(low, high) => {
                write!(
                    f,
                    "steep: batches of {low} and {high} differ more than 8-fold"
                )
            }
            Self::Noise(cv) => {
                write!(
                    f,
                    "noise: costs of one size have a coefficient of variation of {cv:.2}, above 1"
                )
            }
            Self::Swing => f.write_str("swing: costs change all the time"),
            Self::ShortMode(mode) => write!(f, "short: mode {mode} ends before 4 L batches"),
        }
    }
}

impl std::error::Error for Breach {}

/// The number of batches of the run that measures the best setting's time from one batch to the next.
const BATCHES: u64 = 200;

/// The least time that learning may take, as a number of batches that run one after the other. The controller
/// judges a number in flight by completed batches, and 64 in flight are six doublings away from one.
const ROUNDS: f64 = 30.0;

/// The share of the capacity that the premises assume to be free under a load without an arrival rate:
/// callers that wait, or a full queue.
const SLACK_CLOSED: f64 = 0.3;

impl Premises {
    /// Returns the figures of `world`, if the world satisfies the premises.
    ///
    /// # Errors
    /// The first premise that the world does not satisfy.
    pub fn of(world: &World) -> Result<Self, Breach> {
        if world.swing.is_some() {
            return Err(Breach::Swing);
        }
        let cv = world.noise.cv();
        if cv > 1.0 {
            return Err(Breach::Noise(cv));
        }
        let capacity = capacity(world);
        let slack = slack(world);
        if slack < 1.0 - 1.0 / 1.05 {
            return Err(Breach::Infeasible(1.0 / (1.0 - slack)));
        }
        for i in 0..world.modes() {
            steepest(&world.mode(i))?;
        }
        let learn_ms: Vec<f64> = (0..world.modes())
            .map(|i| Self::learn_ms(world, i))
            .collect();
        let mut ends_ms: Vec<f64> = world.then.iter().map(|(from, _)| *from).collect();
        for (i, end) in ends_ms.iter().enumerate() {
            if end - world.mode_start(i) < 4.0 * learn_ms[i] {
                return Err(Breach::ShortMode(i));
            }
        }
        let last = learn_ms.len() - 1;
        ends_ms.push(world.mode_start(last) + 4.0 * learn_ms[last]);
        Ok(Self {
            capacity,
            cv,
            slack,
            learn_batches: learn_batches(cv, slack),
            learn_ms,
            ends_ms,
        })
    }

    /// Returns the time of L batches of the best fixed setting in mode `i`, in milliseconds, during which a
    /// controller may learn.
    pub(super) fn learn_ms(world: &World, i: usize) -> f64 {
        let capacity = capacity(world);
        let mode = world.mode(i);
        let span = Span {
            warm_ms: 0.0,
            batches: BATCHES,
            items: u64::MAX,
        };
        let run = best_saturated(&mode).0.run(&mode, SEED, capacity, span);
        let batches = learn_batches(world.noise.cv(), slack(world));
        batches.max(ROUNDS * run.in_flight) * run.batch_ms
    }

    /// Returns the time at which learning in the last mode ends, in milliseconds, from which results count.
    #[must_use]
    pub fn warm_ms(&self, world: &World) -> f64 {
        let last = world.modes() - 1;
        world.mode_start(last) + self.learn_ms[last]
    }
}

const SEED: u32 = 3;

fn learn_batches(cv: f64, slack: f64) -> f64 {
    300.0 + 30.0 * (cv / slack) * (cv / slack)
}

fn slack(world: &World) -> f64 {
    match world.demand {
        Demand::Open(share) => 1.0 - share,
        Demand::OnOff(_, high, low) => 1.0 - (high + low) / 2.0,
        Demand::Closed { .. } | Demand::Backlog | Demand::Full(_) => SLACK_CLOSED,
    }
}

fn steepest(world: &World) -> Result<(), Breach> {
    for i in 0.. {
        let (low, high) = (grid_size(i), grid_size(i + 1));
        if high > world.items_max {
            break;
        }
        let (a, b) = (world.curve.at(low), world.curve.at(high));
        // The condition is negated, so that a NaN counts as a breach.
        if !(a > 0.0 && b <= 8.0 * a && a <= 8.0 * b) {
            return Err(Breach::Steep(low, high));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::world::{Curve, Noise};
    use super::*;

    const LINE: Curve = Curve::Linear { a: 1.0, b: 0.01 };

    fn open(share: f64) -> World {
        World::new("", LINE, Demand::Open(share))
    }

    #[test]
    fn generated_worlds_satisfy_the_premises_or_say_which_not() {
        let met = (0..200).filter(|&seed| match Premises::of(&World::random(seed)) {
            Ok(premises) => {
                assert!(premises.cv <= 1.0 && premises.slack >= 0.0476);
                assert!(premises.learn_batches >= 300.0);
                true
            }
            Err(breach) => {
                assert!(
                    matches!(breach, Breach::Infeasible(_) | Breach::Steep(..)),
                    "seed {seed}: {breach}"
                );
                false
            }
        });
        let met = met.count();
        assert!(met >= 190, "{met} of 200");
    }

    #[test]
    fn each_breach_is_named() {
        assert!(matches!(Premises::of(&open(0.96)), Err(Breach::Infeasible(x)) if x < 1.05));
        let noisy = open(0.5).noise(Noise::LogNormal(1.0));
        assert!(matches!(Premises::of(&noisy), Err(Breach::Noise(cv)) if cv > 1.3));
        let step = Curve::Step {
            a: 0.1,
            b: 0.001,
            at: 48,
            more: 3.0,
        };
        let steep = World::new("", step, Demand::Open(0.5));
        assert_eq!(Premises::of(&steep), Err(Breach::Steep(48, 64)));
        let mut swings = open(0.5);
        swings.swing = Some((0.1, 100.0));
        assert_eq!(Premises::of(&swings), Err(Breach::Swing));
        let mut short = open(0.5);
        short.then.push((10.0, LINE));
        assert_eq!(Premises::of(&short), Err(Breach::ShortMode(0)));
    }

    #[test]
    fn learning_takes_longer_where_costs_scatter_and_slack_is_small() {
        let quiet = Premises::of(&open(0.9)).unwrap();
        assert_eq!(quiet.learn_batches, 300.0);
        let noisy = Premises::of(&open(0.9).noise(Noise::Exponential)).unwrap();
        assert!((noisy.learn_batches - 3300.0).abs() < 1.0, "{noisy:?}");
    }
}
