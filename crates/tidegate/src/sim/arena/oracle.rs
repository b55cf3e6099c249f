//! The best fixed setting of a world.

use std::time::Duration;

use super::run::{Outcome, Span, run};
use super::world::{Server, World, grid_size};
use crate::controller::{Bounded, Bounds, Fixed};

/// A fixed setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The most items a batch.
    pub limit: u64,
    /// How long a smaller batch waits from its oldest item, in milliseconds.
    pub linger: f64,
    /// The most batches at once.
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
    /// The largest batches, one at a time, at once.
    #[must_use]
    pub const fn greedy(world: &World) -> Self {
        Self {
            limit: world.items_max,
            linger: 0.0,
            in_flight: 1,
        }
    }

    /// Its throughput when saturated, in items a millisecond, from the mean costs at the start.
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

    /// The setting at work.
    pub fn run(self, world: &World, seed: u32, capacity: f64, span: Span) -> Outcome {
        let rule = Fixed::new(self.limit)
            .with_linger(Duration::from_nanos((self.linger * 1e6) as u64))
            .with_in_flight(self.in_flight)
            .controller();
        let bounds = Bounds {
            in_flight_max: world.in_flight_max,
            ..Bounds::items(1, world.items_max)
        };
        match Bounded::new(rule, bounds) {
            Ok(mut controller) => run(world, seed, capacity, span, &mut controller),
            Err(_) => Outcome::default(),
        }
    }
}

/// Every setting of the grid: sizes by half octaves, lingers around the cost of a batch of one, numbers in
/// flight by octaves where the server runs several.
#[must_use]
pub fn grid(world: &World) -> Vec<Setting> {
    let mut out = Vec::new();
    let one = world.curve.at(1);
    let flights: Vec<u32> = if world.server.is_parallel() {
        (0..7)
            .map(|e| 1 << e)
            .chain([3, 5, 6, 12, 24, 48])
            .filter(|&c| c <= world.in_flight_max)
            .collect()
    } else {
        vec![1]
    };
    for &in_flight in &flights {
        for i in 0.. {
            let limit = grid_size(i).min(world.items_max);
            for linger in [0.0, 0.1, 0.5, 2.0] {
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

/// The best saturated throughput of the grid, in items a millisecond, from the mean costs: that of the slowest
/// mode, which every mode can do.
#[must_use]
pub fn capacity(world: &World) -> f64 {
    let modes = (0..world.modes()).map(|i| best_saturated(&world.mode(i)).1);
    modes.fold(f64::INFINITY, f64::min)
}

/// The setting without linger that does most when saturated, and its items a millisecond, from the mean costs
/// at the start.
#[must_use]
pub fn best_saturated(world: &World) -> (Setting, f64) {
    let mut best = (Setting::greedy(world), 0.0);
    for setting in grid(world).into_iter().filter(|s| s.linger == 0.0) {
        let rate = setting.saturated(world);
        // Less than a ten-thousandth more is no gain: of two such settings, the smaller one is the best.
        if rate > best.1 * 1.0001 {
            best = (setting, rate);
        }
    }
    best
}

/// The settings with the highest throughput, the least mean latency and the least 99th percentile on `seed`.
#[must_use]
pub fn oracle(world: &World, seed: u32, capacity: f64, span: Span) -> [Setting; 3] {
    let mut best = [(f64::INFINITY, None); 3];
    for setting in grid(world) {
        let o = setting.run(world, seed, capacity, span);
        for (best, score) in best.iter_mut().zip([-o.throughput, o.mean, o.p99]) {
            if score < best.0 {
                *best = (score, Some(setting));
            }
        }
    }
    let none = Setting {
        limit: world.items_max,
        linger: 0.0,
        in_flight: 1,
    };
    best.map(|(_, setting)| setting.unwrap_or(none))
}
