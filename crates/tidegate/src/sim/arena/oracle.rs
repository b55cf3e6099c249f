//! Searches for the best fixed setting of a controller in a simulated world, as the measure for controllers
//! that adapt.

use std::time::Duration;

use super::run::{Outcome, Span, run};
use super::world::{Demand, Server, World, grid_size};
use crate::controller::{Bounded, Controller, Fixed};

/// A fixed setting of a controller, which the search tries: limit, linger and number in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The greatest number of items that a batch may take under this setting.
    pub limit: u64,
    /// The time that a batch below the limit waits, counted from the arrival of its oldest item, in
    /// milliseconds.
    pub linger: f64,
    /// The greatest number of batches that may run at once.
    pub in_flight: u32,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.limit)?;
        if self.linger > 0.0 {
            write!(f, "+{:.3}ms", self.linger)?;
        }
        if self.in_flight > 1 {
            write!(f, "x{}", self.in_flight)?;
        }
        Ok(())
    }
}

impl Setting {
    /// Returns the setting with the largest batches of `world`, one at a time, without a linger, which serves
    /// loads well where large batches cost little.
    #[must_use]
    pub const fn greedy(world: &World) -> Self {
        Self {
            limit: world.items_max,
            linger: 0.0,
            in_flight: 1,
        }
    }

    /// Returns whether the search runs this setting in its first round: every setting on a serial server. On
    /// a parallel server, the limit (unless it is the largest) and the number in flight must be powers of
    /// two, and the linger 0 or half the cost of a batch of one.
    fn is_coarse(self, world: &World) -> bool {
        !world.server.is_parallel()
            || (self.in_flight.is_power_of_two()
                && (self.limit.is_power_of_two() || self.limit == world.items_max)
                && (self.linger == 0.0 || self.linger == LINGERS[2] * world.curve.at(1)))
    }

    /// Returns whether the limit and the number in flight of `other` each differ by at most half an octave
    /// from those of this setting, so that the second round of the search tries `other`.
    fn is_near(self, other: Self) -> bool {
        let near = |a: f64, b: f64| (0.6..1.7).contains(&(a / b));
        near(self.limit as f64, other.limit as f64)
            && near(f64::from(self.in_flight), f64::from(other.in_flight))
    }

    /// Returns the throughput of the setting while a backlog fills every batch, in items a millisecond, from
    /// the mean costs at the start of the world.
    #[must_use]
    pub fn saturated(self, world: &World) -> f64 {
        let flights = f64::from(self.in_flight);
        let cost = world.mean(self.limit, 0.0, self.in_flight - 1);
        let batches = match world.server {
            Server::Serial => 1.0 / cost,
            Server::Slots(slots) => flights.min(f64::from(slots)) / cost,
            Server::Contended(_) => flights / cost,
            Server::Admits(ms) => (flights / cost).min(1.0 / ms),
        };
        self.limit as f64 * batches
    }

    /// Returns a controller with this setting, for a run of `world`.
    #[must_use]
    pub fn controller(self, world: &World) -> impl Controller + use<> {
        let rule = Fixed::new(self.limit)
            .with_linger(Duration::from_nanos((self.linger * 1e6) as u64))
            .with_in_flight(self.in_flight)
            .controller();
        Bounded::new(rule, world.bounds())
            .unwrap_or_else(|_| unreachable!("a world's bounds are valid"))
    }

    /// Runs a controller with this setting in `world`, and returns the figures of the run.
    #[must_use]
    pub fn run(self, world: &World, seed: u32, capacity: f64, span: Span) -> Outcome {
        run(world, seed, capacity, span, &mut self.controller(world))
    }
}

/// The lingers that the search tries, as multiples of the cost of a batch of one.
const LINGERS: [f64; 4] = [0.0, 0.1, 0.5, 2.0];

/// Returns every setting of the grid of the search: limits by half octaves, lingers around the cost of a
/// batch of one, and numbers in flight by octaves where the server runs several batches.
#[must_use]
pub fn grid(world: &World) -> Vec<Setting> {
    let mut out = Vec::new();
    let one = world.curve.at(1);
    let mut flights: Vec<u32> = if world.server.is_parallel() {
        (0..7)
            .map(|e| 1 << e)
            .chain([3, 5, 6, 12, 24, 48])
            .filter(|&c| c <= world.in_flight_max)
            .collect()
    } else {
        vec![1]
    };
    flights.sort_unstable();
    for &in_flight in &flights {
        for i in 0.. {
            let limit = grid_size(i).min(world.items_max);
            for linger in LINGERS {
                out.push(Setting {
                    limit,
                    linger: linger * one,
                    in_flight,
                });
            }
            if limit >= world.items_max {
                break;
            }
        }
    }
    out
}

/// Returns the capacity of `world`: the best throughput that any setting of the grid has while a backlog
/// fills every batch, in items a millisecond, from the mean costs. With several modes it is the throughput of
/// the slowest mode, which every mode reaches.
#[must_use]
pub fn capacity(world: &World) -> f64 {
    let modes = (0..world.modes()).map(|i| best_saturated(&world.mode(i)).1);
    modes.fold(f64::INFINITY, f64::min)
}

/// Returns the setting without linger that has the highest throughput while a backlog fills every batch, and
/// that throughput in items a millisecond, from the mean costs at the start of the world.
#[must_use]
pub fn best_saturated(world: &World) -> (Setting, f64) {
    let mut best = (Setting::greedy(world), 0.0);
    for setting in grid(world).into_iter().filter(|s| s.linger == 0.0) {
        let rate = setting.saturated(world);
        // A setting replaces the best so far only if it gains a ten-thousandth or more, so the smaller of two
        // equal settings stays.
        if rate > best.1 * 1.0001 {
            best = (setting, rate);
        }
    }
    best
}

/// Returns the fixed settings of `world` with the highest throughput, the least mean latency and the least
/// 99th percentile of latency on `seed`.
///
/// Short runs try the settings of the grid. On a parallel server they try every second size and number first,
/// then the neighbours of the best of these. The best settings of the short runs then run for all of `span`.
#[must_use]
pub fn oracle(world: &World, seed: u32, capacity: f64, span: Span) -> [Setting; 3] {
    let mut search = Search {
        world,
        seed,
        capacity,
        span: Span {
            batches: span.batches / 4,
            items: span.items / 6,
            ..span
        },
        tried: Vec::new(),
    };
    let all = grid(world);
    search.screen(all.iter().filter(|s| s.is_coarse(world)));
    let near = search.best(5);
    search.screen(all.iter().filter(|s| near.iter().any(|n| n.is_near(**s))));
    let finalists = search.best(5);
    search.span = span;
    search.tried.clear();
    search.screen(finalists.iter());
    let none = Setting::greedy(world);
    [0, 1, 2].map(|metric| search.ranked(metric).first().copied().unwrap_or(none))
}

/// The search for the best fixed settings of a world: the settings tried so far and their scores.
struct Search<'a> {
    world: &'a World,
    seed: u32,
    capacity: f64,
    span: Span,
    /// The settings tried, each with the three scores to minimise: negative throughput, mean latency and 99th
    /// percentile of latency.
    tried: Vec<(Setting, [f64; 3])>,
}

impl Search<'_> {
    /// Runs settings and records their scores. For each number in flight, the settings must come with rising
    /// limits.
    fn screen<'s>(&mut self, settings: impl Iterator<Item = &'s Setting>) {
        // If a limit cut no batch, a larger limit gives the same run, so the search leaves it out.
        let mut enough: Vec<Setting> = Vec::new();
        for &setting in settings {
            let same = |s: &Setting| s.linger == setting.linger && s.in_flight == setting.in_flight;
            let is_idle = enough.iter().any(|s| same(s) && s.limit <= setting.limit);
            if is_idle || !self.keeps_up(setting) || self.tried.iter().any(|t| t.0 == setting) {
                continue;
            }
            let o = setting.run(self.world, self.seed, self.capacity, self.span);
            if o.batch_max < setting.limit {
                enough.push(setting);
            }
            self.tried.push((setting, [-o.throughput, o.mean, o.p99]));
        }
    }

    /// Returns whether batches of this setting can keep up with the load of the world. The search skips other
    /// settings.
    fn keeps_up(&self, setting: Setting) -> bool {
        let rate = setting.saturated(self.world);
        match self.world.demand {
            Demand::Open(share) => rate >= share * self.capacity,
            Demand::OnOff(_, high, low) => rate >= (high + low) / 2.0 * self.capacity,
            Demand::Full(_) | Demand::Backlog => {
                setting.linger == 0.0 && rate >= 0.9 * best_saturated(self.world).1
            }
            Demand::Closed { .. } => true,
        }
    }

    fn ranked(&self, metric: usize) -> Vec<Setting> {
        let mut order: Vec<_> = self.tried.iter().collect();
        order.sort_by(|a, b| a.1[metric].total_cmp(&b.1[metric]));
        order.into_iter().map(|t| t.0).collect()
    }

    /// Returns the `n` best settings for each of the three scores, in the order of the grid, for longer runs.
    fn best(&self, n: usize) -> Vec<Setting> {
        let mut best: Vec<Setting> = Vec::new();
        for metric in 0..3 {
            for setting in self.ranked(metric).into_iter().take(n) {
                if !best.contains(&setting) {
                    best.push(setting);
                }
            }
        }
        best.sort_by_key(|s| (s.in_flight, s.limit));
        best
    }
}
