//! The inputs of the simulator's scenarios: the arrivals of messages, and the cost of a batch.
//!
//! Times are in milliseconds, as in the executable model from which these inputs come; [`ns`] turns them into
//! nanoseconds. Unless a scenario says otherwise, a batch costs 3 ms plus 3 ms a MiB of 4 KiB messages, so
//! the fixed part of the cost equals the cost of 256 messages.

use super::Rng;

/// The part of a batch's cost that does not depend on its size, in milliseconds.
pub const A_MS: f64 = 3.0;
/// The time that one more message in a batch costs, in milliseconds.
pub const B_MS: f64 = 3.0 / 256.0;
/// The messages a millisecond that the server handles in batches of 8192; the load of a scenario is a
/// multiple of this capacity.
pub const CAPACITY: f64 = 8192.0 / (A_MS + B_MS * 8192.0);

/// Returns `ms` milliseconds in nanoseconds, rounded, as controllers count time.
#[must_use]
pub(super) fn ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// Returns the times, in milliseconds, of Poisson arrivals at `rate` a millisecond, for `span` milliseconds
/// from the time `from` on.
pub fn poisson(rate: f64, span: f64, rng: &mut Rng, from: f64) -> Vec<f64> {
    let mut out = Vec::new();
    let mut t = from;
    loop {
        t += rng.exponential(rate);
        if t > from + span {
            return out;
        }
        out.push(t);
    }
}

/// Returns the arrival times, in milliseconds, of 20 bursts: each has 150 ms of arrivals at twice the
/// capacity, then 350 ms at a tenth of it.
#[must_use]
pub fn bursts(seed: u32) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let mut out = Vec::new();
    let mut t = 0.0;
    for _ in 0..20 {
        out.extend(poisson(2.0 * CAPACITY, 150.0, &mut rng, t));
        out.extend(poisson(0.1 * CAPACITY, 350.0, &mut rng, t + 150.0));
        t += 500.0;
    }
    out
}

/// Returns the arrival times, in milliseconds, of 100 clumps, one every 100 ms: the 2000 messages of a clump
/// arrive at once.
#[must_use]
pub fn clumps() -> Vec<f64> {
    (0..100)
        .flat_map(|i| std::iter::repeat_n(f64::from(i) * 100.0, 2000))
        .collect()
}

/// The costs of the batches of a scenario, with their noise, as the simulated server charges them.
#[derive(Clone, Debug)]
pub struct Cost {
    a: f64,
    b: f64,
    shape: Shape,
    sigma: f64,
    spike: f64,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Linear,
    /// At the time `at_ms` the costs change to `a` milliseconds a batch plus `b` milliseconds a message.
    Step {
        at_ms: f64,
        a: f64,
        b: f64,
    },
    /// In a batch, each message past the first `beyond` messages costs three times as much.
    Convex {
        beyond: f64,
    },
}

impl Cost {
    /// Creates costs of 3 ms a batch plus 3 ms for each MiB of messages, with lognormal noise of `sigma`; 0
    /// is no noise.
    #[must_use]
    pub fn linear(sigma: f64, seed: u32) -> Self {
        Self {
            a: A_MS,
            b: B_MS,
            shape: Shape::Linear,
            sigma,
            spike: 0.0,
            rng: Rng::new(seed),
        }
    }

    /// Creates the costs of [`Cost::linear`] until the time `at_ms`; from then on a batch costs `a`
    /// milliseconds plus `b` milliseconds a message.
    #[must_use]
    pub fn step(at_ms: f64, a: f64, b: f64, sigma: f64, seed: u32) -> Self {
        Self {
            shape: Shape::Step { at_ms, a, b },
            ..Self::linear(sigma, seed)
        }
    }

    /// Creates the costs of [`Cost::linear`], but within a batch each message past the 2048th costs three
    /// times as much, as where a large batch no longer fits a cache.
    #[must_use]
    pub fn convex(sigma: f64, seed: u32) -> Self {
        Self {
            shape: Shape::Convex { beyond: 2048.0 },
            ..Self::linear(sigma, seed)
        }
    }

    /// Makes this share of the batches take ten times as long, to test how controllers treat outliers.
    #[must_use]
    pub fn with_spikes(self, share: f64) -> Self {
        Self {
            spike: share,
            ..self
        }
    }

    /// Draws the cost, in milliseconds, of a batch of `n` messages that starts at `t_ms`, with its noise.
    pub fn draw(&mut self, n: u64, t_ms: f64) -> f64 {
        let n = n as f64;
        let mut y = match self.shape {
            Shape::Step { at_ms, a, b } if t_ms >= at_ms => a + b * n,
            Shape::Convex { beyond } => self.a + self.b * n + (n - beyond).max(0.0) * 2.0 * self.b,
            _ => self.a + self.b * n,
        };
        if self.sigma > 0.0 {
            y *= self.rng.normal(self.sigma).exp();
        }
        if self.spike > 0.0 && self.rng.random() < self.spike {
            y *= 10.0;
        }
        y
    }
}
