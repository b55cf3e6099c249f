//! The parts of a world.

use crate::controller::Bounds;
use crate::sim::Rng;

/// The mean cost of a batch of n items, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Curve {
    /// a + b·n.
    Linear {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
    },
    /// a + c·n^p, from 0.2 (nearly constant) over 0.5 (square root) to 1.6.
    Power {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds of one item.
        c: f64,
        /// The exponent.
        p: f64,
    },
    /// a + b for each distinct key among n draws out of `keys` equally likely ones: last-write-wins upserts.
    Distinct {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds a distinct key.
        b: f64,
        /// How many keys there are.
        keys: f64,
    },
    /// a + b·n with n rounded up to a multiple of `to`, or to a power of two where `to` is 0.
    Padded {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// The multiple.
        to: u64,
    },
    /// a + b·n, and `more` on top beyond `at` items.
    Step {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// The largest size without the step.
        at: u64,
        /// Milliseconds more beyond it.
        more: f64,
    },
    /// a + b·n; items beyond `at` cost `times` b.
    Bend {
        /// Milliseconds a batch.
        a: f64,
        /// Milliseconds an item.
        b: f64,
        /// Where the slope changes.
        at: u64,
        /// By how much: above 1 is convex, below 1 concave.
        times: f64,
    },
    /// The cost at each size of the half-octave grid, straight lines between.
    Table(Vec<f64>),
}

impl Curve {
    /// Milliseconds for a batch of `n`.
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

/// The sizes {2^e, 1.5·2^e}: 1, 2, 3, 4, 6, 8, ...
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

/// How single costs scatter around the mean: each has mean 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Noise {
    /// Not at all.
    None,
    /// Log-normal of this sigma.
    LogNormal(f64),
    /// This share of the batches costs so many times the rest.
    Bimodal {
        /// The share.
        share: f64,
        /// The factor.
        times: f64,
    },
    /// Exponential: a coefficient of variation of 1.
    Exponential,
}

impl Noise {
    /// A factor to multiply a mean cost by.
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

    /// The coefficient of variation.
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
    /// One batch at a time.
    Serial,
    /// So many at once without harm to each other; further ones wait in line, and the wait is in their cost.
    Slots(u32),
    /// As many as come, but each other that runs makes a batch dearer by this share.
    Contended(f64),
    /// Admits a batch each so many milliseconds, however many run; the wait is in the cost.
    Admits(f64),
}

impl Server {
    /// Returns whether more than one batch may run at once.
    #[must_use]
    pub const fn is_parallel(self) -> bool {
        !matches!(self, Self::Serial)
    }
}

/// Where items come from.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Demand {
    /// Poisson arrivals at this share of the capacity.
    Open(f64),
    /// Alternating spans of so many milliseconds at the first and at the second share of the capacity.
    OnOff(f64, f64, f64),
    /// Callers that think for an exponential time of this mean, in milliseconds, between two calls.
    Closed {
        /// How many.
        callers: u32,
        /// The mean think time.
        think: f64,
    },
    /// All at once, and nothing after.
    Backlog,
    /// Saturated: blocked producers keep so many items in the queue at all times.
    Full(u64),
}

/// A world.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// Its name, or the seed it was made of.
    pub name: String,
    /// The costs.
    pub curve: Curve,
    /// From a moment on, in milliseconds, other costs.
    pub then: Vec<(f64, Curve)>,
    /// Their scatter.
    pub noise: Noise,
    /// Costs swing by this share, once in so many milliseconds.
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
    /// A serial world without noise or change.
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

    /// The same with this noise.
    #[must_use]
    pub fn noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }

    /// The same on this server, with up to `in_flight_max` batches at once.
    #[must_use]
    pub fn on(self, server: Server, in_flight_max: u32) -> Self {
        Self {
            server,
            in_flight_max,
            ..self
        }
    }

    /// The mean cost of a batch of `n` started at `t_ms` while `running` others run, in milliseconds.
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

    /// The bounds of a controller that serves it.
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

    /// How many modes it has: the costs at the start, and each change.
    #[must_use]
    pub fn modes(&self) -> usize {
        1 + self.then.len()
    }

    /// The start of mode `i`, in milliseconds.
    #[must_use]
    pub fn mode_start(&self, i: usize) -> f64 {
        match i.checked_sub(1) {
            Some(i) => self.then.get(i).map_or(f64::INFINITY, |(from, _)| *from),
            None => 0.0,
        }
    }

    /// The same world with the costs of mode `i` throughout; past the last mode, those of the last.
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
