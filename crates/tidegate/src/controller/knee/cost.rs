//! The cost model of the controller: it fits the cost of a batch of n items, y = a + b·n, and detects changes
//! of the costs.
//!
//! This module makes the fit, the estimate of noise, and the detection of changed costs and of sizes that are
//! worse than smaller sizes. Other modules decide by these results. The fit uses buckets instead of recursive
//! least squares: there is no covariance to wind up when all batches have one size. docs/controllers.md has
//! every rule.
//!
//! Noise is the deviation from a size's own mean, never from the fit: residuals of the fit would
//! hide convexity.

use super::buckets::{Buckets, Line};
use crate::controller::Model;

/// The largest estimate of noise, as a share of the cost. With a larger one the model would take every cost
/// for noise, and would detect no change.
const NOISE_MAX: f64 = 1.5;
/// The number of batches that take another size on purpose after a change of the costs, where no other part
/// of the controller tries other sizes.
const EXCITE: u32 = 2;
/// The number of deviations at the start that the estimate of noise counts up to 100 %. Later deviations
/// count only up to the clipping bound.
const YOUNG: u32 = 12;
/// The largest error of the line, as a share of the cost, at which the line counts for a size without
/// measurements.
const SURE: f64 = 0.15;
/// The smallest estimate of noise, as a share of the cost. A smaller estimate affects no decision, and would
/// decay into denormal numbers.
const NOISE_MIN: f64 = 1e-4;

/// The cost model of a controller, and all data from which it is made. All costs are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) buckets: Buckets,
    pub(super) noise: f64,
    /// The number of deviations that the estimate of noise has taken in, counted up to 32. While it is small,
    /// each deviation counts for more in the estimate.
    judged: u32,
    /// The number of outliers in a row over all sizes, negative if their costs were too low. Three in a row
    /// show that the costs changed.
    streak: i8,
    /// The CUSUM statistics of the standardised deviations, upwards and downwards, which detect small lasting
    /// shifts of the costs.
    up: f64,
    down: f64,
    /// The number of batches still to run that take another size on purpose after a change of the costs.
    pub(super) excite: u32,
    pub(super) resets: u64,
    pub(super) clipped: u64,
    /// The line of cost over batch size that was fitted last. It stays in use after a reset of the costs,
    /// until the next fit.
    pub(super) fit: Option<Line>,
    /// True if the sizes measured so far span enough to tell the fixed cost a from the cost b of an item.
    /// Only then does the line set the limit.
    pub(super) identified: bool,
    /// True if the costs changed since the latest fit of the line, so that the line may be wrong.
    pub(super) stale: bool,
    /// The batch size of the best throughput measured, if batches of a larger size were measured to be worse;
    /// otherwise `None`.
    pub(super) convex: Option<f64>,
    /// The batch size that seems to be the best, and that the controller must measure again before this
    /// result goes into `convex`; `None` if no size waits for that.
    pub(super) verify: Option<u64>,
    /// The largest batch size measured, in items. The limit does not go far beyond it.
    pub(super) top: f64,
    /// An estimate of the fixed cost `a`, in nanoseconds, even from sizes too close together to set a limit.
    /// It is good enough to judge whether a saved flush is worth a wait. `None` if the sizes measured give no
    /// line.
    pub(super) rough_a: Option<f64>,
    /// The saving of a batch of the size observed last over two batches of half that size, in nanoseconds;
    /// `None` if batches of half the size were not measured.
    pub(super) saved: Option<f64>,
}

impl Line {
    /// Creates the line of costs that the user gave, which has no error, in place of a fitted line.
    pub(super) const fn known(a: f64, b: f64) -> Self {
        Self {
            a,
            b,
            a_var: 0.0,
            b_var: 0.0,
        }
    }

    /// Returns the limit that the line proposes: k·a/b, or more while `a` is uncertain by 35 % or more. This
    /// optimism prevents a wrong `a` near 0 from keeping batches tiny for ever.
    pub(super) fn knee(&self, k: f64) -> f64 {
        let sure = self.a_var < 0.35 * 0.35 * self.a * self.a;
        let optimism = if sure {
            1.0
        } else {
            1.0 + 1.5 * self.a_var.sqrt() / self.a
        };
        k * self.a * optimism / self.b
    }
}

impl Cost {
    pub(super) const fn new() -> Self {
        Self {
            buckets: Buckets::new(),
            noise: 0.05,
            judged: 4,
            streak: 0,
            up: 0.0,
            down: 0.0,
            excite: 0,
            resets: 0,
            clipped: 0,
            fit: None,
            identified: false,
            stale: false,
            convex: None,
            verify: None,
            top: 0.0,
            rough_a: None,
            saved: None,
        }
    }

    pub(super) fn model(&self) -> Option<Model> {
        let f = self.fit?;
        let (a_err_ns, b_err_ns) = (f.a_var.sqrt(), f.b_var.sqrt());
        Some(Model {
            a_ns: f.a,
            a_err_ns,
            b_ns: f.b,
            b_err_ns,
            noise: self.noise,
        })
    }

    /// Returns whether the latest cost that the detection of changed costs has examined was an outlier, so
    /// that no other part relies on it yet.
    pub(super) const fn is_suspect(&self) -> bool {
        self.streak != 0
    }

    /// Returns the cost of a batch of `n` items that runs alone, from batches of about that size or of both
    /// larger and smaller sizes, else from the line if the line is certain enough; `None` if neither is
    /// known.
    pub(super) fn alone(&self, n: f64) -> Option<f64> {
        self.buckets.cost_at(n).or_else(|| {
            let line = self.fit.filter(|_| self.identified)?;
            let cost = line.a + line.b * n;
            let var = n.mul_add(n * line.b_var, line.a_var);
            (var < SURE * SURE * cost * cost).then_some(cost)
        })
    }

    /// Returns the cost of a batch of `n` items, or else a guess; `None` before the first measurement. The
    /// guess is the cost by the line, but never above a bound from the nearest measured size: a batch smaller
    /// than all measured batches costs no more than the smallest of them, and any other batch costs no more
    /// an item than the nearest smaller size.
    pub(super) fn guess(&self, n: f64) -> Option<f64> {
        self.alone(n).or_else(|| {
            let most = self.buckets.bound(n)?;
            Some(self.fit.map_or(most, |f| most.min(f.a + f.b * n)))
        })
    }

    /// Returns whether batches of `n` items were measured to serve fewer items a second than batches of
    /// `than` items, by more than a standard error, so that the limit should not go there.
    pub(super) fn is_worse(&self, n: f64, than: f64) -> bool {
        let of = |n: f64| self.buckets.rate_of(n as u64);
        let (Some((rate, weight)), Some((other, known))) = (of(n), of(than)) else {
            return false;
        };
        let error = self.noise * (1.0 / weight.max(1.0) + 1.0 / known.max(1.0)).sqrt();
        rate * (1.0 + error) < other
    }

    /// Adds the cost `y` of a batch of `n` items. One hiccup delays all batches that run at once, so a batch
    /// can show that the costs changed only if `counts` is true.
    pub(super) fn observe(&mut self, n: u64, y: f64, counts: bool) {
        let y = self.judge(n, y, counts);
        self.buckets.add(n, y, self.noise);
        self.saved = self.buckets.saved(n);
        self.refit();
    }

    /// Compares a cost with the earlier costs of its size. Clips the cost if it is an outlier; forgets all
    /// costs if they have changed. Returns the cost that counts.
    fn judge(&mut self, n: u64, y: f64, counts: bool) -> f64 {
        let slope = self.fit.map_or(0.0, |f| f.b);
        let Some(b) = self.buckets.of(n).filter(|b| b.count >= 2) else {
            if counts {
                self.judge_unknown(n, y);
            }
            return y;
        };
        let expected = (b.y + slope * (n as f64 - b.n)).max(1e-3);
        let e = (y - expected) / expected;
        let most = (4.0 * self.noise).max(0.15);
        // An outlier counts up to the clipping bound in the estimate of noise. So the estimate grows where
        // costs scatter widely, and the model does not take the scatter for a change.
        self.judged = (self.judged + 1).min(32);
        let young = self.judged < YOUNG;
        let seen = if young {
            e.abs().min(1.0)
        } else {
            e.abs().min(most)
        };
        let gain = match self.judged {
            few @ ..32 => 1.0 / f64::from(few),
            _ => 1.0 / 32.0,
        };
        let noise = self.noise + (seen * 1.25 - self.noise) * gain;
        self.noise = noise.clamp(NOISE_MIN, NOISE_MAX);
        if e.abs() > most {
            let sign = if e > 0.0 { 1 } else { -1 };
            if counts {
                b.streak = lengthen(b.streak, sign);
                self.streak = lengthen(self.streak, sign);
            }
            if self.streak.abs() >= 3 || b.streak.abs() >= 3 {
                // After three outliers in a row, over all sizes or at this size, the model takes the costs
                // for changed.
                self.streak = 0;
                self.forget();
                return y;
            }
            self.clipped += 1;
            return expected * (1.0 + f64::from(sign) * most);
        }
        if counts {
            b.streak = 0;
            self.streak = 0;
        }
        let z = (e / self.noise.max(0.01)).clamp(-2.5, 2.5);
        self.up = (self.up + z - 0.5).max(0.0);
        self.down = (self.down - z - 0.5).max(0.0);
        if self.up.max(self.down) > 8.0 {
            // The deviations show that the costs have shifted a little and stay there, so the model forgets
            // all sizes and measures them again.
            self.forget();
        }
        y
    }

    /// Compares the cost of a size that has no samples yet with the fitted line, if the last cost was an
    /// outlier. Without this comparison a rise of all costs could go unnoticed: batches then grow beyond the
    /// sizes with samples.
    fn judge_unknown(&mut self, n: u64, y: f64) {
        let Some(fit) = self.fit.filter(|_| self.streak != 0) else {
            return;
        };
        let e = y / (fit.a + fit.b * n as f64) - 1.0;
        if e.abs() > (4.0 * self.noise).max(0.15) {
            self.streak = lengthen(self.streak, if e > 0.0 { 1 } else { -1 });
            if self.streak.abs() >= 3 {
                self.streak = 0;
                self.forget();
            }
        }
    }

    pub(super) const fn forget(&mut self) {
        self.buckets.clear();
        self.resets += 1;
        self.excite = EXCITE;
        self.stale = true;
        self.up = 0.0;
        self.down = 0.0;
    }

    fn refit(&mut self) {
        // Once a larger size is known to be worse, a smaller margin confirms it, so that one doubtful
        // measurement does not revoke this result.
        let was_sure = self.convex.is_some();
        let errors = if was_sure { 1.0 } else { 3.0 };
        let mut scan = self.buckets.scan(errors * self.noise);
        (self.convex, self.verify) = (None, None);
        self.top = scan.top;
        if let Some(worse) = scan.worse {
            // A slowdown of all sizes looks the same as a worse size. The result therefore counts only after
            // the smaller size was measured again, later than the first measurement of the larger size.
            if worse.confirmed && (self.streak == 0 || was_sure) {
                self.convex = Some(worse.best);
                self.buckets.up_to(worse.best, &mut scan);
            } else {
                self.verify = Some(worse.best as u64);
            }
        }
        self.identified = false;
        self.rough_a = None;
        if scan.hi < 1.4 * scan.lo {
            return;
        }
        let Some(line) = scan.sums.line(self.noise.max(0.02)) else {
            return;
        };
        self.rough_a = Some(line.a);
        if scan.hi >= 3.0 * scan.lo {
            self.identified = true;
            self.stale = false;
            self.fit = Some(line);
        }
    }
}

/// Returns the length of the run of deviations of one sign: longer by one, or 1 after a deviation of the
/// other sign. A long run is no chance.
const fn lengthen(streak: i8, sign: i8) -> i8 {
    if streak * sign >= 0 {
        streak.saturating_add(sign)
    } else {
        sign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_exactly_and_a_change_of_it_too() {
        let mut c = Cost::new();
        // The estimate of scatter must exist before the model can detect a change of costs.
        for _ in 0..4 {
            for n in [32, 128, 512, 2048] {
                c.observe(n, 3e6 + 11_718.75 * n as f64, true);
            }
        }
        let f = c.fit.unwrap();
        assert!(
            (f.a - 3e6).abs() < 1.0 && (f.b - 11_718.75).abs() < 1e-3,
            "{f:?}"
        );
        for _ in 0..3 {
            for n in [32, 128, 512, 2048] {
                c.observe(n, 12e6 + 5_000.0 * n as f64, true);
            }
        }
        let f = c.fit.unwrap();
        assert!(
            c.resets > 0 && (f.a - 12e6).abs() < 1e4 && (f.b - 5_000.0).abs() < 50.0,
            "{f:?}"
        );
    }
}
