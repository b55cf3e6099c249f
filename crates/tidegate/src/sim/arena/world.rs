//! The parts of a simulated world: the costs, the noise, the server and the load.

use crate::controller::Bounds;
use crate::sim::Rng;

/// The mean cost of a batch of n items, in milliseconds, as a function of n.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Curve {
    /// Costs of the form a + b·n for a batch of n items.
    Linear {
        /// The part of the cost that does not depend on the number of items, in milliseconds.
        a: f64,
        /// The cost of each item, in milliseconds.
        b: f64,
    },
    /// Costs of the form a + c·n^p for a batch of n items, with p from 0.2 (nearly constant) over 0.5 (square
    /// root) to 1.6.
    Power {
        /// The part of the cost that does not depend on the number of items, in milliseconds.
        a: f64,
        /// The factor of the power of the number of items, in milliseconds.
        c: f64,
        /// The exponent of the number of items.
        p: f64,
    },
    /// Costs of `a` for the batch, plus `b` for each distinct key among n draws from `keys` equally likely
    /// keys: such as upserts, where the batch applies only the last write to a key.
    Distinct {
        /// The part of the cost that does not depend on the keys, in milliseconds.
        a: f64,
        /// The cost of each distinct key in the batch, in milliseconds.
        b: f64,
        /// The number of keys that items can have.
        keys: f64,
    },
    /// Costs of a + b·n for a batch of n items, with n rounded up to a multiple of `to`, or to a power of two
    /// where `to` is 0.
    Padded {
        /// The part of the cost that does not depend on the number of items, in milliseconds.
        a: f64,
        /// The cost of each item of the padded batch, in milliseconds.
        b: f64,
        /// The server pads a batch to a multiple of this number of items; 0 pads it to a power of two.
        to: u64,
    },
    /// Costs of a + b·n for a batch of n items, plus `more` once for a batch of more than `at` items.
    Step {
        /// The part of the cost that does not depend on the number of items, in milliseconds.
        a: f64,
        /// The cost of each item, in milliseconds.
        b: f64,
        /// The greatest number of items of a batch that does not cost `more`.
        at: u64,
        /// The additional cost of a batch of more than `at` items, in milliseconds.
        more: f64,
    },
    /// Costs of a + b·n for a batch of n items, but each item after the first `at` items costs `times` · b
    /// instead of b.
    Bend {
        /// The part of the cost that does not depend on the number of items, in milliseconds.
        a: f64,
        /// The cost of each of the first `at` items, in milliseconds.
        b: f64,
        /// The number of items after which each further item has another cost.
        at: u64,
        /// The factor on the cost of an item beyond the size `at`: above 1 the curve is convex, below 1
        /// concave.
        times: f64,
    },
    /// Costs by a table: the cost at each size of the half-octave grid, with straight lines between.
    Table(Vec<f64>),
}

impl Curve {
    /// Returns the mean cost of a batch of `n` items by this curve, in milliseconds.
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

/// Returns the number of items at index `i` of the half-octave grid, the sizes of a table of costs: the
/// numbers 2^e and 1.5·2^e, that is 1, 2, 3, 4, 6, 8, ...
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

/// The scatter of the costs of single batches around the mean cost, as factors with mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Noise {
    /// No scatter: every batch has the mean cost of its size.
    None,
    /// Log-normal scatter, with this sigma of the logarithm of a cost.
    LogNormal(f64),
    /// Two kinds of batches: a share of the batches costs a multiple of the rest.
    Bimodal {
        /// The share of the expensive batches among all batches.
        share: f64,
        /// The cost of an expensive batch as a multiple of the cost of the other batches.
        times: f64,
    },
    /// Exponential scatter, which has a coefficient of variation of 1.
    Exponential,
}

impl Noise {
    /// Draws a factor by which the cost of one batch differs from the mean cost.
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

    /// Returns the coefficient of variation of the random factors by which the noise multiplies costs: the
    /// strength of the noise.
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

/// The way in which the server of a simulated world runs batches.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Server {
    /// A server that runs one batch at a time, as an actor with exclusive state does.
    Serial,
    /// A server that runs this many batches at once without slowing each other down. Further batches wait in
    /// line, and their cost includes the wait.
    Slots(u32),
    /// A server that runs any number of batches at once, but each other running batch makes a batch more
    /// expensive by this share.
    Contended(f64),
    /// A server that admits one batch each time this many milliseconds have passed, at any number of running
    /// batches. The cost of a batch includes its wait for admission.
    Admits(f64),
}

impl Server {
    /// Returns whether the server can run more than one batch at once, so that a number in flight matters.
    #[must_use]
    pub const fn is_parallel(self) -> bool {
        !matches!(self, Self::Serial)
    }
}

/// The load of a simulated world: the source of its items.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Demand {
    /// Poisson arrivals at this share of the server's capacity.
    Open(f64),
    /// Poisson arrivals that alternate between two rates. Each rate lasts for the first number, in
    /// milliseconds. The second and the third number are the rates, as shares of the server's capacity.
    OnOff(f64, f64, f64),
    /// Callers that think for an exponential time of this mean, in milliseconds, between two calls.
    Closed {
        /// The number of callers in the closed loop.
        callers: u32,
        /// The mean think time of a caller between two calls, in milliseconds.
        think: f64,
    },
    /// All items arrive at once at the start, and none later.
    Backlog,
    /// Blocked producers keep this many items in the queue at all times.
    Full(u64),
}

/// A simulated world, in which controllers are tried: costs, noise, server and load.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The name of the world; for a generated world it names the seed.
    pub name: String,
    /// The mean costs of batches at the start of the run.
    pub curve: Curve,
    /// The cost curves that later take the place of `curve`, each with the time in milliseconds from which it
    /// holds.
    pub then: Vec<(f64, Curve)>,
    /// The scatter of the costs of batches around the mean.
    pub noise: Noise,
    /// The share by which the costs swing up and down around the mean, and the period of the swing in
    /// milliseconds; `None` if the costs do not swing.
    pub swing: Option<(f64, f64)>,
    /// The way in which the server runs batches, alone or several at once.
    pub server: Server,
    /// The source of the items.
    pub demand: Demand,
    /// The greatest number of items that a controller may put into a batch.
    pub items_max: u64,
    /// The greatest number of batches that a controller may run at once.
    pub in_flight_max: u32,
}

impl World {
    /// Creates a world with a serial server, without noise or changes of the costs.
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

    /// Replaces the noise of the costs, and returns the world.
    #[must_use]
    pub fn noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }

    /// Replaces the server, and returns the world. A controller may then run at most `in_flight_max` batches
    /// at once.
    #[must_use]
    pub fn on(self, server: Server, in_flight_max: u32) -> Self {
        Self {
            server,
            in_flight_max,
            ..self
        }
    }

    /// Returns the mean cost, in milliseconds, of a batch of `n` items that starts at `t_ms` while `running`
    /// other batches run.
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

    /// Returns the bounds for a controller that serves this world.
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

    /// Returns the number of modes of the world: the time with the first costs, and one for each change of
    /// the costs.
    #[must_use]
    pub fn modes(&self) -> usize {
        1 + self.then.len()
    }

    /// Returns the time at which mode `i` starts, in milliseconds.
    #[must_use]
    pub fn mode_start(&self, i: usize) -> f64 {
        match i.checked_sub(1) {
            Some(i) => self.then.get(i).map_or(f64::INFINITY, |(from, _)| *from),
            None => 0.0,
        }
    }

    /// Returns this world with the costs of mode `i` throughout, to study one mode alone; past the last mode,
    /// with the costs of the last mode.
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
