//! Fits the costs of batches by their size to the batches of a stretch, and draws costs for the simulation.

use super::stretch::Ran;
use super::{SIZE_GAP, SIZE_REACH};
use crate::sim::Rng;

/// The deviation of the mean costs of sizes from one line, as a share, that the fit expects before it has
/// measured a size. The noisier the costs, the more batches of a size it takes to believe in a larger
/// deviation.
const BEND: f64 = 0.15;
/// The error of a mean cost, as a share, above which the fit is not sure of it.
const ERROR: f64 = 0.07;
/// The multiple of the mean cost of its size from which a batch is an outlier.
const OUTLIER: f64 = 4.0;
/// The least number of factors of a size class; a class with fewer batches borrows factors of its neighbours.
const FACTORS_MIN: usize = 50;
/// The most numbers of running batches with a factor of their own.
const RUNNING_MAX: usize = 1024;

/// The costs of batches by their size.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// The line y = a + b·n through all batches, in nanoseconds.
    pub(super) a_ns: f64,
    pub(super) b_ns: f64,
    /// The coefficient of variation of the costs around the means of their sizes.
    pub(super) noise: f64,
    /// The same with all costs cut to [`OUTLIER`] times their mean: outliers strike batches of any size, and
    /// do not blur the differences between sizes.
    scatter: f64,
    /// The smallest and the largest measured size.
    pub(super) sizes: (u64, u64),
    /// The mean cost of the last third of the batches over that of the first third, at equal sizes.
    pub(super) drift: f64,
    /// The cost that the controller learns, as a share of the time that the batch takes.
    told: f64,
    classes: Vec<Class>,
    /// The factor by which a batch costs more while several run, by their number; empty for one at a time.
    by_running: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// The number of batches, and their mean size and cost.
    batches: u64,
    size: f64,
    cost: f64,
    /// Measured costs over the mean cost of their size, in the order of the trace; their mean is 1.
    factors: Vec<f32>,
}

/// The places in the recorded noise of each size class from which the next draws take their factors. The
/// draws go through the noise in the order of the trace, so that slow times of the recorded system stay
/// together.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    places: Vec<usize>,
}

/// A drawn cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// The time that the batch takes, and the cost that the controller learns, in nanoseconds.
    pub(super) took_ns: u64,
    pub(super) cost_ns: u64,
    /// False if the size, or the number of running batches, is outside of the measured ones.
    pub(super) is_known: bool,
    /// False if the trace has too few batches of about this size to tell their mean cost exactly.
    pub(super) is_sure: bool,
}

impl Costs {
    /// Fits the costs of `ran`; `None` if no batch has a cost.
    pub(super) fn fit(ran: &[Ran]) -> Option<Self> {
        let costs = || ran.iter().filter(|r| r.took_ns > 0 && r.items > 0);
        let n = costs().count() as f64;
        if n == 0.0 {
            return None;
        }
        let mut by_class: Vec<Class> = vec![Class::default(); CLASSES];
        for r in costs() {
            let class = &mut by_class[index(u64::from(r.items))];
            class.batches += 1;
            class.size += f64::from(r.items);
            class.cost += r.took_ns as f64;
        }
        for class in by_class.iter_mut().filter(|c| c.batches > 0) {
            class.size /= class.batches as f64;
            class.cost /= class.batches as f64;
        }
        let (a_ns, b_ns) = line(&by_class);
        let mut squares = 0.0;
        for r in costs() {
            let class = &by_class[index(u64::from(r.items))];
            let mean = class.cost + b_ns * (f64::from(r.items) - class.size);
            squares += (r.took_ns as f64 / mean.max(1.0) - 1.0).powi(2);
        }
        let prior = squares / n / (BEND * BEND);
        let mut classes = by_class;
        classes.retain(|c| c.batches > 0);
        for class in &mut classes {
            let fitted = a_ns + b_ns * class.size;
            let weight = class.batches as f64;
            class.cost = (class.cost * weight + fitted * prior) / (weight + prior);
        }
        let told: f64 = costs().map(|r| r.cost_ns as f64).sum();
        let took: f64 = costs().map(|r| r.took_ns as f64).sum();
        let min = costs().map(|r| u64::from(r.items)).min()?;
        let max = costs().map(|r| u64::from(r.items)).max()?;
        let mut fitted = Self {
            a_ns,
            b_ns,
            noise: 0.0,
            scatter: 0.0,
            sizes: (min, max),
            drift: 1.0,
            told: told / took,
            classes,
            by_running: Vec::new(),
        };
        fitted.fit_running(ran);
        fitted.fit_noise(ran);
        Some(fitted)
    }

    /// Returns the mean cost of a batch of `n` items while no other batch runs, in nanoseconds.
    pub(super) fn mean(&self, n: u64) -> f64 {
        let x = n as f64;
        let above = self.classes.partition_point(|c| c.size < x);
        let (Some(lo), Some(hi)) = (
            above.checked_sub(1).and_then(|i| self.classes.get(i)),
            self.classes.get(above),
        ) else {
            // Outside of the measured sizes the slope is that of the line through all sizes.
            let end = match above {
                0 => self.classes.first(),
                _ => self.classes.last(),
            };
            return end.map_or(0.0, |c| {
                (c.cost + self.b_ns * (x - c.size)).max(c.cost / 8.0)
            });
        };
        lo.cost + (hi.cost - lo.cost) * (x - lo.size) / (hi.size - lo.size)
    }

    /// Returns whether the costs of batches of `n` items are known: a size near `n` was measured, or sizes on
    /// both sides that are not far apart.
    pub(super) fn knows(&self, n: u64) -> bool {
        let x = n as f64;
        let above = self.classes.partition_point(|c| c.size < x);
        let hi = self.classes.get(above).map(|c| c.size);
        let lo = above
            .checked_sub(1)
            .and_then(|i| self.classes.get(i))
            .map(|c| c.size);
        let is_near = |size: Option<f64>| size.is_some_and(|s| s.max(x) / s.min(x) <= SIZE_REACH);
        let is_between = lo.zip(hi).is_some_and(|(lo, hi)| hi / lo <= SIZE_GAP);
        let is_measured = (self.sizes.0..=self.sizes.1).contains(&n);
        is_near(lo) || is_near(hi) || is_between && is_measured
    }

    /// Returns whether the error of the mean cost of batches of about `n` items is below [`ERROR`].
    fn is_sure(&self, n: u64) -> bool {
        let x = n as f64;
        let from = self.classes.partition_point(|c| c.size * SIZE_REACH < x);
        let near = self.classes[from..]
            .iter()
            .take_while(|c| c.size <= x * SIZE_REACH);
        let batches: u64 = near.map(|c| c.batches).sum();
        batches as f64 >= (self.scatter / ERROR).powi(2)
    }

    /// Returns the largest number of running batches of which the costs are known.
    pub(super) fn running_max(&self) -> u32 {
        self.by_running.len().max(1) as u32
    }

    /// Draws the cost of a batch of `n` items that starts while `running` batches run, itself included.
    pub(super) fn draw(&self, n: u64, running: u32, noise: &mut Noise) -> Drawn {
        let class = self.class(n);
        let factors = &self.classes[class].factors;
        let place = &mut noise.places[class];
        let factor = factors.get(*place % factors.len().max(1));
        let factor = factor.map_or(1.0, |f| f64::from(*f));
        *place += 1;
        let took = (self.mean(n) * factor * self.beside(running)).max(1.0);
        Drawn {
            took_ns: took as u64,
            cost_ns: (took * self.told).max(1.0) as u64,
            is_known: self.knows(n) && running <= self.running_max(),
            is_sure: self.is_sure(n),
        }
    }

    /// Returns the places from which the draws take their noise: its start, or with `rng` any places.
    pub(super) fn noise_from(&self, rng: Option<&mut Rng>) -> Noise {
        let mut places = vec![0; self.classes.len()];
        if let Some(rng) = rng {
            for (place, class) in places.iter_mut().zip(&self.classes) {
                *place = (rng.random() * class.factors.len() as f64) as usize;
            }
        }
        Noise { places }
    }

    /// Returns the index of the class with the mean size nearest to `n`.
    fn class(&self, n: u64) -> usize {
        let x = n as f64;
        let above = self.classes.partition_point(|c| c.size < x);
        match above {
            0 => 0,
            at if at == self.classes.len() => at - 1,
            at if x / self.classes[at - 1].size < self.classes[at].size / x => at - 1,
            at => at,
        }
    }

    fn beside(&self, running: u32) -> f64 {
        let upto = (running as usize).min(self.by_running.len());
        let known = self.by_running[..upto].iter().rev().find_map(|f| *f);
        known.unwrap_or(1.0)
    }

    /// Fits the factor on the cost for each number of running batches. The means by size then hold for the
    /// mix of these numbers in the trace, so the factors are relative to this mix.
    fn fit_running(&mut self, ran: &[Ran]) {
        let most = ran.iter().map(|r| r.running as usize).max().unwrap_or(1);
        let most = most.min(RUNNING_MAX);
        if most < 2 {
            return;
        }
        let mut sums = vec![(0.0, 0.0); most];
        for r in ran.iter().filter(|r| r.took_ns > 0) {
            let sum = &mut sums[(r.running as usize).clamp(1, most) - 1];
            sum.0 += r.took_ns as f64;
            sum.1 += self.mean(u64::from(r.items));
        }
        let factor = |(took, mean): (f64, f64)| (mean > 0.0).then(|| took / mean);
        self.by_running = sums.into_iter().map(factor).collect();
    }

    fn fit_noise(&mut self, ran: &[Ran]) {
        let mut all: Vec<Vec<f32>> = vec![Vec::new(); self.classes.len()];
        let thirds = [ran.len() / 3, 2 * ran.len() / 3];
        let (mut squares, mut cut, mut count) = (0.0, 0.0, 0.0);
        let mut by_third = [(0.0, 0.0); 3];
        for (i, r) in ran.iter().enumerate().filter(|(_, r)| r.took_ns > 0) {
            let n = u64::from(r.items);
            let mean = self.mean(n) * self.beside(r.running);
            let factor = r.took_ns as f64 / mean.max(1.0);
            let third = &mut by_third[usize::from(i >= thirds[0]) + usize::from(i >= thirds[1])];
            *third = (third.0 + r.took_ns as f64, third.1 + mean);
            squares += (factor - 1.0).powi(2);
            cut += (factor.min(OUTLIER) - 1.0).powi(2);
            count += 1.0;
            all[self.class(n)].push(factor as f32);
        }
        self.noise = f64::sqrt(squares / f64::max(count, 1.0));
        self.scatter = f64::sqrt(cut / f64::max(count, 1.0));
        let share = |(took, mean): (f64, f64)| took / f64::max(mean, 1.0);
        self.drift = share(by_third[2]) / share(by_third[0]).max(1e-9);
        for i in 0..all.len() {
            // A class with few batches borrows the noise of its neighbours.
            let mut factors = Vec::new();
            for reach in 0..all.len() {
                for at in [i.checked_sub(reach), (reach > 0).then_some(i + reach)] {
                    factors.extend(at.and_then(|at| all.get(at)).into_iter().flatten());
                }
                if factors.len() >= FACTORS_MIN {
                    break;
                }
            }
            let mut factors: Vec<f32> = factors.into_iter().copied().collect();
            let mean = factors.iter().sum::<f32>() / factors.len().max(1) as f32;
            if mean > 0.0 {
                factors.iter_mut().for_each(|f| *f /= mean);
            }
            self.classes[i].factors = factors;
        }
    }
}

/// The sizes below this one have a class each.
const SINGLE: u64 = 16;
/// The number of size classes: four an octave above the single sizes.
const CLASSES: usize = 16 + 4 * 28;

/// Returns the class of a size.
fn index(n: u64) -> usize {
    if n < SINGLE {
        return n as usize;
    }
    let octave = n.ilog2().min(31);
    let quarter = (n >> (octave - 2)) & 3;
    (SINGLE + 4 * u64::from(octave - 4) + quarter) as usize
}

/// Returns a and b of the line through the classes, each weighted by its batches over the square of its cost,
/// so that large batches do not dominate. Neither is negative.
fn line(classes: &[Class]) -> (f64, f64) {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for c in classes.iter().filter(|c| c.batches > 0) {
        let weight = c.batches as f64 / (c.cost * c.cost).max(1.0);
        let (x, y) = (c.size, c.cost);
        (w, wx, wy) = (w + weight, wx + weight * x, wy + weight * y);
        (wxx, wxy) = (wxx + weight * x * x, wxy + weight * x * y);
    }
    let spread = w * wxx - wx * wx;
    let b = match spread > 1e-9 * w * wxx {
        true => ((w * wxy - wx * wy) / spread).max(0.0),
        false => 0.0,
    };
    let a = (wy - b * wx) / w;
    match a >= 0.0 {
        true => (a, b),
        false => (0.0, wy / wx),
    }
}
