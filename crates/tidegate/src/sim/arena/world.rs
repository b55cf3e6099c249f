//! The parts of a world.

use crate::controller::Bounds;
use crate::sim::Rng;

/// The mean cost of a batch of n items, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Curve {
    /// Costs of the form a + b·n.
    Linear {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
    },
    /// Costs of the form a + c·n^p, from 0.2 (nearly constant) over 0.5 (square root) to 1.6.
    Power {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds of one item.
        c: f64,
        /// The exponent.
        p: f64,
    },
    /// Costs of a + b for each distinct key among n draws from `keys` equally likely ones: last-write-wins
    /// upserts.
    Distinct {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds a distinct key.
        b: f64,
        /// The number of keys.
        keys: f64,
    },
    /// Costs of a + b·n with n rounded up to a multiple of `to`, or to a power of two where `to` is 0.
    Padded {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// The multiple.
        to: u64,
    },
    /// Costs of a + b·n, plus `more` beyond `at` items.
    Step {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// The largest size without the step.
        at: u64,
        /// The additional milliseconds of a larger batch.
        more: f64,
    },
    /// Costs of a + b·n; items beyond `at` cost `times` b.
    Bend {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// The size at which the slope changes.
        at: u64,
        /// The factor of the slope: above 1 is convex, below 1 concave.
        times: f64,
    },
    /// The cost at each size of the half-octave grid, with straight lines between.
    Table(Vec<f64>),
}

impl Curve {
    /// Returns the cost of a batch of `n` items, in milliseconds.
    #[must_use]
    pub fn at(&self, n: u64) -> f64 {
        let x = n as f64;
        match self {
            Self::Linear { a, b } => a + b * x,
            Self::Power { a, c, p } => a + c * x.powf(*p),
            Self::Distinct { a, b, keys } => a + b * keys * (1.0 - (-x / keys).exp()),
            Self::Padded { a, b, to } => {
                let n = match to {
                    0 => n.next_power_of_two(),
                    to => n.div_ceil(*to) * to,
                };
                a + b * n as f64
            }
            Self::Step { a, b, at, more } => a + b * x + if n > *at { *more } else { 0.0 },
            Self::Bend { a, b, at, times } => {
                let beyond = n.saturating_sub(*at) as f64;
                a + b * (x - beyond) + b * times * beyond
            }
            Self::Table(costs) => interpolate(costs, x),
        }
    }
}

/// Returns the grid size with the index `i`, of the sizes {2^e, 1.5·2^e}: 1, 2, 3, 4, 6, 8, ...
#[must_use]
pub(super) fn grid_size(i: usize) -> u64 {
    match i {
        0 => 1,
        i if i % 2 == 1 => 2 << (i / 2),
        i => 3 << (i / 2 - 1),
    }
}

fn interpolate(costs: &[f64], x: f64) -> f64 {
    let mut i = 0;
    while i + 2 < costs.len() && grid_size(i + 1) as f64 <= x {
        i += 1;
    }
    let (lo, hi) = (grid_size(i) as f64, grid_size(i + 1) as f64);
    let t = ((x - lo) / (hi - lo)).max(0.0);
    costs[i] + (costs[i + 1] - costs[i]) * t
}

/// The scatter of single costs around the mean, as factors with mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Noise {
    /// No scatter.
    None,
    /// Log-normal scatter with this sigma.
    LogNormal(f64),
    /// Two kinds of batches: a share of them costs a multiple of the others.
    Bimodal {
        /// The share of the expensive batches.
        share: f64,
        /// The factor of their costs.
        times: f64,
    },
    /// Exponential scatter: a coefficient of variation of 1.
    Exponential,
}

impl Noise {
    /// Draws a factor for a mean cost.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::None => 1.0,
            Self::LogNormal(s) => (rng.normal(s) - s * s / 2.0).exp(),
            Self::Bimodal { share, times } => {
                let mean = 1.0 + share * (times - 1.0);
                if rng.random() < share {
                    times / mean
                } else {
                    1.0 / mean
                }
            }
            Self::Exponential => rng.exponential(1.0).max(1e-6),
        }
    }

    /// Returns the coefficient of variation of the scatter.
    #[must_use]
    pub fn cv(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::LogNormal(s) => ((s * s).exp() - 1.0).sqrt(),
            Self::Bimodal { share, times } => {
                let mean = 1.0 + share * (times - 1.0);
                (share * (1.0 - share)).sqrt() * (times - 1.0) / mean
            }
            Self::Exponential => 1.0,
        }
    }
}

/// The server of a world.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Server {
    /// A server that runs one batch at a time.
    Serial,
    /// A server that runs this many batches at once without slowing each other down. Further batches wait in
    /// line, and their cost includes the wait.
    Slots(u32),
    /// A server that runs any number of batches at once, but each other running batch makes a batch more
    /// expensive by this share.
    Contended(f64),
    /// A server that admits a batch each time this many milliseconds have passed, at any number that run. The
    /// cost includes the wait.
    Admits(f64),
}

impl Server {
    /// Returns whether more than one batch may run at once.
    #[must_use]
    pub const fn is_parallel(self) -> bool {
        !matches!(self, Self::Serial)
    }
}

/// The source of the items.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Demand {
    /// Poisson arrivals at this share of the capacity.
    Open(f64),
    /// Alternating spans of this many milliseconds, at the first and at the second share of the capacity.
    OnOff(f64, f64, f64),
    /// Callers that think for an exponential time of this mean, in milliseconds, between two calls.
    Closed {
        /// The number of callers.
        callers: u32,
        /// The mean think time in milliseconds.
        think: f64,
    },
    /// All items at once, and none later.
    Backlog,
    /// Saturated: blocked producers keep this many items in the queue at all times.
    Full(u64),
}

/// A world.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The name of the world, or the seed that made it.
    pub name: String,
    /// The costs.
    pub curve: Curve,
    /// The later cost curves, each with the time in milliseconds from which it holds.
    pub then: Vec<(f64, Curve)>,
    /// The scatter of the costs.
    pub noise: Noise,
    /// Costs swing by this share, with this period in milliseconds.
    pub swing: Option<(f64, f64)>,
    /// The server.
    pub server: Server,
    /// The load.
    pub demand: Demand,
    /// The most items in a batch.
    pub items_max: u64,
    /// The most batches at once.
    pub in_flight_max: u32,
}

impl World {
    /// Creates a serial world without noise or change.
    #[must_use]
    pub fn new(name: &str, curve: Curve, demand: Demand) -> Self {
        Self {
            name: name.to_owned(),
            curve,
            then: Vec::new(),
            noise: Noise::None,
            swing: None,
            server: Server::Serial,
            demand,
            items_max: 8192,
            in_flight_max: 1,
        }
    }

    /// Replaces the noise.
    #[must_use]
    pub fn noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }

    /// Replaces the server, with up to `in_flight_max` batches at once.
    #[must_use]
    pub fn on(self, server: Server, in_flight_max: u32) -> Self {
        Self {
            server,
            in_flight_max,
            ..self
        }
    }

    /// Returns the mean cost of a batch of `n` started at `t_ms` while `running` others run, in milliseconds.
    #[must_use]
    pub fn mean(&self, n: u64, t_ms: f64, running: u32) -> f64 {
        let mut curve = &self.curve;
        for (from, then) in &self.then {
            if t_ms >= *from {
                curve = then;
            }
        }
        let mut y = curve.at(n);
        if let Some((share, period)) = self.swing {
            y *= 1.0 + share * (t_ms / period * std::f64::consts::TAU).sin();
        }
        if let Server::Contended(share) = self.server {
            y *= 1.0 + share * f64::from(running);
        }
        y
    }

    /// Returns the bounds of a controller that serves the world.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        Bounds {
            in_flight_max: Some(if self.in_flight_max == 0 {
                1
            } else {
                self.in_flight_max
            }),
            ..Bounds::items(
                1,
                if self.items_max == 0 {
                    1
                } else {
                    self.items_max
                },
            )
        }
    }

    /// Returns the number of modes of the world: the costs at the start, and each change.
    #[must_use]
    pub fn modes(&self) -> usize {
        1 + self.then.len()
    }

    /// Returns the start of mode `i`, in milliseconds.
    #[must_use]
    pub fn mode_start(&self, i: usize) -> f64 {
        match i.checked_sub(1) {
            Some(i) => self.then.get(i).map_or(f64::INFINITY, |(from, _)| *from),
            None => 0.0,
        }
    }

    /// Returns the same world with the costs of mode `i` throughout; past the last mode, those of the last.
    #[must_use]
    pub fn mode(&self, i: usize) -> Self {
        let curve = match i.min(self.then.len()).checked_sub(1) {
            Some(i) => &self.then[i].1,
            None => &self.curve,
        };
        Self {
            curve: curve.clone(),
            then: Vec::new(),
            ..self.clone()
        }
    }
}
