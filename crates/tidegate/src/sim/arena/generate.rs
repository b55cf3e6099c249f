//! Generates worlds from seeds. The documentation of the [module](super) has a table of the distributions
//! from which each part of a world is drawn.

use super::premises::Premises;
use super::world::{Curve, Demand, Noise, Server, World, grid_size};
use crate::sim::Rng;

/// The shape of the cost curve of a batch, from which the generator draws a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Costs of the form a + b·n for a batch of n items.
    Linear,
    /// Costs of the form n^p with p from 0.2 to 0.95, the square root (p = 0.5) in one case of three.
    Sublinear,
    /// Costs of batches that pay once for each distinct key, of 50 to 5000 keys.
    Duplicates,
    /// Costs of the form a + c·n^p with p from 1.05 to 1.6, or costs where each item beyond some size costs
    /// 1.5 to 8 times as much as the items before it.
    Superlinear,
    /// Costs with one step: just above a size from 16 to 3000, a batch costs 1.3 to 7 times as much as a
    /// batch of that size.
    Stepped,
    /// Costs of batches that are padded to a power of two, or to a multiple of 8, 32, 128 or 512.
    Padded,
    /// Costs with which the throughput rises and falls up to three times as batches grow.
    Humps,
    /// Costs that do not depend on the number of items in the batch.
    Constant,
    /// Costs where each item beyond some size costs a tenth to a half as much as the items before it.
    Cheaper,
}

impl Family {
    /// Every family of cost curves, from which the generator draws.
    pub const ALL: [Self; 9] = [
        Self::Linear,
        Self::Sublinear,
        Self::Duplicates,
        Self::Superlinear,
        Self::Stepped,
        Self::Padded,
        Self::Humps,
        Self::Constant,
        Self::Cheaper,
    ];

    /// Returns the name of the family of cost curves on command lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Sublinear => "sublinear",
            Self::Duplicates => "duplicates",
            Self::Superlinear => "superlinear",
            Self::Stepped => "stepped",
            Self::Padded => "padded",
            Self::Humps => "humps",
            Self::Constant => "constant",
            Self::Cheaper => "cheaper",
        }
    }

    /// Returns the family to which a cost curve belongs, so that tests can group worlds by it.
    #[must_use]
    pub fn of(curve: &Curve) -> Self {
        match curve {
            Curve::Linear { b, .. } if *b == 0.0 => Self::Constant,
            Curve::Linear { .. } => Self::Linear,
            Curve::Power { p, .. } if *p < 1.0 => Self::Sublinear,
            Curve::Distinct { .. } => Self::Duplicates,
            Curve::Bend { times, .. } if *times < 1.0 => Self::Cheaper,
            Curve::Power { .. } | Curve::Bend { .. } => Self::Superlinear,
            Curve::Step { .. } => Self::Stepped,
            Curve::Padded { .. } => Self::Padded,
            Curve::Table(_) => Self::Humps,
        }
    }

    /// Draws a curve of this family for a generated world; `a` is about the cost of a batch of one, in
    /// milliseconds.
    fn curve(self, draw: &mut Draw, a: f64) -> Curve {
        let b = a / draw.between(1.0, 2000.0);
        let at = draw.between(16.0, 3000.0) as u64;
        match self {
            Self::Linear => Curve::Linear { a, b },
            Self::Sublinear => Curve::Power {
                a: 0.0,
                c: a,
                p: match draw.below(3) {
                    0 => 0.5,
                    _ => draw.even(0.2, 0.95),
                },
            },
            Self::Duplicates => Curve::Distinct {
                a,
                b,
                keys: draw.between(50.0, 5000.0),
            },
            Self::Superlinear if draw.below(2) == 0 => Curve::Power {
                a,
                c: b / 4.0,
                p: draw.even(1.05, 1.6),
            },
            Self::Superlinear => Curve::Bend {
                a,
                b,
                at,
                times: draw.between(1.5, 8.0),
            },
            Self::Stepped => Curve::Step {
                a,
                b,
                at,
                more: (a + b * at as f64) * draw.between(0.3, 6.0),
            },
            Self::Padded => Curve::Padded {
                a,
                b,
                to: draw.of(&[0, 0, 8, 32, 128, 512]),
            },
            Self::Humps => Curve::Table(humps(draw, a)),
            Self::Constant => Curve::Linear { a, b: 0.0 },
            Self::Cheaper => Curve::Bend {
                a,
                b,
                at,
                times: draw.between(0.1, 0.5),
            },
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let found = Self::ALL.into_iter().find(|f| f.as_str() == text);
        found.ok_or_else(|| UnknownFamily(text.into()))
    }
}

/// The error of a text that should name a family of cost curves and names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFamily(String);

impl std::fmt::Display for UnknownFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Family::ALL.map(Family::as_str).join(", ");
        write!(f, "unknown family `{}`: give one of {names}", self.0)
    }
}

impl std::error::Error for UnknownFamily {}

impl World {
    /// Returns the family of the world's cost curve at the start.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(&self.curve)
    }

    /// Generates the world of `seed`: the [module](super) has a table of the distributions. Nearly all these
    /// worlds satisfy the [premises](Premises::of).
    #[must_use]
    pub fn random(seed: u32) -> Self {
        let mut draw = Draw(Rng::new(seed));
        let family = draw.of(&Family::ALL);
        let a = draw.between(0.05, 10.0);
        let curve = family.curve(&mut draw, a);
        let noise = noise(&mut draw);
        let changes = match draw.below(10) {
            0 | 1 => 1,
            2 => 2,
            _ => 0,
        };
        let mut then = Vec::new();
        for _ in 0..changes {
            let a = a * draw.between(0.25, 4.0);
            then.push((f64::INFINITY, family.curve(&mut draw, a)));
        }
        let server = server(&mut draw, a);
        let mut world = Self::new(
            &format!("seed {seed}"),
            curve.clone(),
            demand(&mut draw, &curve),
        )
        .noise(noise);
        if server.is_parallel() {
            world = world.on(server, 64);
        }
        world.then = then;
        let stretch = draw.even(4.02, 5.0);
        world.place_modes(stretch);
        world
    }

    /// Sets the length of each mode except the last to `stretch` times the time that learning may take in
    /// that mode, so that a controller can learn each mode.
    fn place_modes(&mut self, stretch: f64) {
        let mut from = 0.0;
        for i in 0..self.then.len() {
            from += stretch * Premises::learn_ms(self, i);
            self.then[i].0 = from;
        }
    }
}

fn noise(draw: &mut Draw) -> Noise {
    match draw.below(4) {
        0 => Noise::None,
        // A log-normal distribution with the coefficient of variation cv has the sigma sqrt(ln(1 + cv^2)), so
        // the world's noise gets this sigma.
        1 | 2 => {
            let cv: f64 = draw.of(&[0.05, 0.2, 0.5, 1.0]);
            Noise::LogNormal((1.0 + cv * cv).ln().sqrt().min(0.8325))
        }
        _ => Noise::Bimodal {
            share: draw.of(&[0.05, 0.1, 0.2, 0.3]),
            times: draw.even(2.0, 5.0),
        },
    }
}

fn server(draw: &mut Draw, a: f64) -> Server {
    match draw.below(10) {
        6 | 7 => Server::Slots(draw.of(&[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])),
        8 => Server::Contended(draw.between(0.02, 2.0)),
        9 => Server::Admits(a * draw.between(0.2, 5.0)),
        _ => Server::Serial,
    }
}

fn demand(draw: &mut Draw, curve: &Curve) -> Demand {
    let one = curve.at(1);
    match draw.below(20) {
        0..=9 => Demand::Open(draw.of(&[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])),
        10 | 11 => {
            let mean = draw.of(&[0.3, 0.5, 0.7]);
            Demand::OnOff(one * draw.between(5.0, 100.0), 1.8 * mean, 0.2 * mean)
        }
        12..=16 => Demand::Closed {
            callers: grid_size(draw.below(16)) as u32,
            think: one * draw.of(&[0.01, 0.1, 1.0]),
        },
        _ => Demand::Full(16_384),
    }
}

/// Draws the costs for a throughput by size with up to three humps: every two octaves the slope of
/// the cost changes.
fn humps(draw: &mut Draw, a: f64) -> Vec<f64> {
    let mut cost = a;
    let mut slope = 0.3;
    let mut costs = Vec::with_capacity(40);
    for i in 0..40 {
        costs.push(cost);
        if i % 4 == 3 {
            // The exponent of the cost over the next two octaves: below 1 the throughput rises,
            // above 1 it falls.
            slope = draw.of(&[0.1, 0.4, 0.8, 1.2, 1.8]);
        }
        cost *= (grid_size(i + 1) as f64 / grid_size(i) as f64).powf(slope);
    }
    costs
}

struct Draw(Rng);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        (self.0.random() * n as f64) as usize
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn even(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random()
    }

    /// Draws a value between `low` and `high`, evenly on a logarithmic scale, so that small values are as
    /// likely as large ones.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.0.random())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_world() {
        for seed in 0..50 {
            assert_eq!(World::random(seed), World::random(seed));
        }
    }

    #[test]
    fn every_family_noise_server_and_load_is_drawn() {
        let worlds: Vec<_> = (0..300).map(World::random).collect();
        for family in Family::ALL {
            assert!(worlds.iter().any(|w| w.family() == family), "{family}");
            assert_eq!(family.as_str().parse(), Ok(family));
        }
        let some = |is: fn(&World) -> bool| assert!(worlds.iter().any(is));
        some(|w| matches!(w.noise, Noise::LogNormal(_)));
        some(|w| matches!(w.noise, Noise::Bimodal { .. }));
        some(|w| w.modes() == 3);
        some(|w| matches!(w.server, Server::Slots(_)));
        some(|w| matches!(w.server, Server::Contended(_)));
        some(|w| matches!(w.server, Server::Admits(_)));
        some(|w| matches!(w.demand, Demand::OnOff(..)));
        some(|w| matches!(w.demand, Demand::Closed { .. }));
        some(|w| matches!(w.demand, Demand::Full(_)));
        let unknown = "round".parse::<Family>().unwrap_err().to_string();
        assert!(unknown.contains("linear, sublinear"), "{unknown}");
    }
}
