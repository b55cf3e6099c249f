//! Checks the promise of a stable backlog. A controller must keep the promise from a cold start and after
//! every change of mode, in every world that satisfies the [`Premises`](super::Premises).
//!
//! Over the second half of a mode the backlog grows by at most 1 % of the arrivals. The backlog never passes
//! the arrivals in L batches of the best fixed setting, plus three times that setting's own peak. L is the
//! number of batches that learning may take. The growth is the slope of the straight line that fits the
//! backlog best, with equal weight for each moment.

use super::cell::Cell;
use super::engine::Sim;
use super::oracle::best_saturated;
use super::world::World;
use crate::controller::Controller;

/// The largest growth of the backlog, as a share of the arrivals, with which a controller keeps the promise
/// of a stable backlog.
pub const SLOPE_MAX: f64 = 0.01;

/// The backlog of a controller in one mode of a world, as the promise of a stable backlog judges it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// The growth of the backlog over the second half of the mode, as a share of the arrivals.
    pub slope: f64,
    /// The largest backlog in the mode, in items, which the promise bounds.
    pub peak: u64,
    /// The mean number of items in a batch, over the second half of the mode, to explain the backlog.
    pub batch: f64,
    /// The mean number of running batches while at least one runs, over the second half of the mode.
    pub in_flight: f64,
    /// True if the run reached the end of the mode before the backlog passed the simulator's bound.
    pub ended: bool,
}

/// The backlog of a controller in one mode, beside the backlog of the best fixed setting, by which the
/// promise is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stability {
    /// The backlog of the controller under test in this mode.
    pub ours: Backlog,
    /// The backlog of the best fixed setting, in a run of this mode alone, as the measure.
    pub best: Backlog,
    /// The largest peak of the backlog that the promise allows, in items.
    pub peak_max: f64,
}

impl Stability {
    /// Returns whether the controller keeps the promise: the growth and the peak of its backlog are within
    /// the bounds.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.ours.ended && self.ours.slope <= SLOPE_MAX && self.ours.peak as f64 <= self.peak_max
    }

    /// Returns whether a breach of the promise says nothing about the controller, because in this mode even
    /// the best fixed setting breaks the promise.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        !self.best.ended || self.best.slope > SLOPE_MAX
    }
}

impl Cell {
    /// Measures the backlog of `controller` by mode, with arrivals and noise of `seed`. The result is
    /// meaningful only for open loops.
    pub fn stability(&self, seed: u32, controller: &mut dyn Controller) -> Vec<Stability> {
        let premises = &self.premises;
        let ends = &premises.ends_ms;
        let loads = (premises.capacity, self.rate());
        let ours = backlogs(&self.world, seed, loads, ends, controller);
        let judged = ours.into_iter().enumerate().map(|(i, ours)| {
            let mode = self.world.mode(i);
            let mut setting = best_saturated(&mode).0.controller(&mode);
            let ends = [ends[i] - self.world.mode_start(i)];
            let best = backlogs(&mode, seed, loads, &ends, &mut setting)[0];
            Stability {
                ours,
                best,
                peak_max: self.rate() * premises.learn_ms[i] + 3.0 * best.peak as f64,
            }
        });
        judged.collect()
    }
}

/// Measures the backlog of each part of a run at this capacity and rate of arrivals, in items a millisecond;
/// `ends_ms` are the ends of the parts, which are the modes of the world.
fn backlogs(
    world: &World,
    seed: u32,
    (capacity, rate): (f64, f64),
    ends_ms: &[f64],
    controller: &mut dyn Controller,
) -> Vec<Backlog> {
    let mut sim = Sim::new(world, seed, capacity, 0, controller);
    let mut out = Vec::with_capacity(ends_ms.len());
    let mut runs = true;
    let mut from = 0.0;
    for &end in ends_ms {
        let mut line = Line::new((from + end) / 2.0, end);
        let mut backlog = Backlog::default();
        // Two counts at the middle of the part: the items and the batches done by then. And two times since
        // the middle: the time with a running batch, and the running times of all batches together. From
        // their differences follow the means over the second half.
        let mut half = (0, 0, 0.0, 0.0);
        while runs && (sim.now as f64) < end * 1e6 {
            let (before, waiting) = (sim.now as f64 / 1e6, sim.queue.len());
            let running = f64::from(sim.in_flight);
            if before < line.from {
                half = (sim.finished, sim.batches, 0.0, 0.0);
            }
            runs = sim.step();
            let now = sim.now as f64 / 1e6;
            line.add(before, now, waiting as f64);
            if running > 0.0 {
                half.2 += now - before;
                half.3 += running * (now - before);
            }
            backlog.peak = backlog.peak.max(sim.queue.len() as u64);
        }
        backlog.slope = line.slope() / rate;
        backlog.batch = (sim.finished - half.0) as f64 / (sim.batches - half.1).max(1) as f64;
        backlog.in_flight = half.3 / f64::max(half.2, f64::MIN_POSITIVE);
        backlog.ended = runs;
        out.push(backlog);
        from = end;
    }
    out
}

/// The straight line that fits the backlog over time, a step function, best. The line is computed from
/// integrals.
struct Line {
    from: f64,
    until: f64,
    /// The integral of (t - middle) · y over the time t, where y is the step function and `middle` is
    /// half-way between `from` and `until`.
    moment: f64,
}

impl Line {
    const fn new(from: f64, until: f64) -> Self {
        Self {
            from,
            until,
            moment: 0.0,
        }
    }

    fn add(&mut self, from: f64, until: f64, y: f64) {
        let (from, until) = (from.max(self.from), until.min(self.until));
        if until > from {
            let middle = (self.from + self.until) / 2.0;
            self.moment += y * (until - from) * ((from + until) / 2.0 - middle);
        }
    }

    fn slope(&self) -> f64 {
        let span = self.until - self.from;
        12.0 * self.moment / (span * span * span)
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracle::Setting;
    use super::super::premises::Premises;
    use super::super::world::{Curve, Demand};
    use super::*;

    #[test]
    fn the_slope_is_that_of_the_line() {
        let mut line = Line::new(10.0, 20.0);
        for i in 0..3000 {
            let t = f64::from(i) / 100.0;
            line.add(t, t + 0.01, 5.0 + 2.0 * (t + 0.005));
        }
        assert!((line.slope() - 2.0).abs() < 1e-3, "{}", line.slope());
    }

    #[test]
    fn a_limit_that_is_too_small_breaks_the_promise_and_a_large_one_keeps_it() {
        let line = Curve::Linear { a: 1.0, b: 0.01 };
        let mut world = World::new("", line.clone(), Demand::Open(0.8));
        // In the first mode the server is about twice as fast; in the second mode batches of 64 items are too
        // small.
        world.curve = Curve::Linear { a: 0.1, b: 0.005 };
        let learn = Premises::learn_ms(&world, 0);
        world.then.push((5.0 * learn, line));
        let premises = Premises::of(&world).unwrap();
        let cell = Cell {
            seed: 0,
            world,
            premises,
        };
        let with = |limit| {
            let setting = Setting {
                limit,
                linger: 0.0,
                in_flight: 1,
            };
            cell.stability(11, &mut setting.controller(&cell.world))
        };
        let small = with(64);
        assert!(small[0].is_kept() && !small[1].is_kept(), "{small:?}");
        assert!(small[1].ours.slope > 0.4, "{small:?}");
        assert!(!small[1].is_unresolved());
        assert!(with(8192).iter().all(Stability::is_kept));
    }
}
