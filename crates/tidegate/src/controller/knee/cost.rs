//! What a batch of n costs: y = a + b·n, fitted to half-octave buckets of batch size.
//!
//! Owns the samples, the fit, the estimate of noise, the detection of changed costs and of sizes that are worse than
//! smaller ones. Leaves to others what to do with it. Buckets instead of recursive least squares: there is no covariance
//! to wind up when all batches have one size. Source: control notes section 3.2, with the guard rails of section 5.
//!
//! Noise is the deviation from a size's own mean, never from the fit: residuals of the fit would hide convexity.

use crate::controller::Model;

/// Samples a bucket averages over.
const SAMPLES: u32 = 8;
/// A bucket nobody visits halves its weight every so many batches.
const AGE: u64 = 256;
/// Batches at deliberately different sizes after a change of costs.
const EXCITE: u32 = 6;
/// Past this every cost would pass for noise and no change be noticed.
const NOISE_MAX: f64 = 0.5;
/// Below this it decides nothing, and would decay into denormals.
const NOISE_MIN: f64 = 1e-4;
/// Half-octave buckets: sizes up to 2^32.
const BUCKETS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    count: u32,
    n: f64,
    y: f64,
    /// When it was last and first written, in batches.
    last: u64,
    first: u64,
    /// Outliers in a row at this size, negative when they were too cheap.
    streak: i8,
}

/// The cost model and everything it rests on. All costs are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    buckets: [Bucket; BUCKETS],
    /// Bit i: bucket i holds samples.
    live: u64,
    batches: u64,
    noise: f64,
    /// Outliers in a row, negative when they were too cheap.
    streak: i32,
    /// CUSUM of the standardised deviations, upwards and downwards.
    up: f64,
    down: f64,
    /// Exciting batches still to be run.
    pub(super) excite: u32,
    pub(super) resets: u64,
    pub(super) clipped: u64,
    /// The latest fit; survives a reset until the next one.
    pub(super) fit: Option<Fit>,
    /// Whether the samples at hand identify the fit now.
    pub(super) identified: bool,
    /// The best size measured, when a larger one was measured to be worse.
    pub(super) convex: Option<f64>,
    /// The size to be measured again before that is believed.
    pub(super) verify: Option<u64>,
    /// The largest size measured.
    pub(super) top: f64,
    /// `a` from sizes too close together to trust a fit for the limit: good enough to judge whether a flush saved is worth
    /// a wait.
    pub(super) rough_a: Option<f64>,
}

/// y = a + b·n.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) a: f64,
    pub(super) b: f64,
    a_err: f64,
    b_err: f64,
}

impl Fit {
    pub(super) const fn known(a: f64, b: f64) -> Self {
        Self {
            a,
            b,
            a_err: 0.0,
            b_err: 0.0,
        }
    }

    /// k·a/b, larger while `a` is uncertain: optimism, so that a wrong `a` near 0 cannot trap it at tiny batches.
    pub(super) fn knee(&self, k: f64) -> f64 {
        let rel = self.a_err / self.a;
        let optimism = if rel < 0.35 { 1.0 } else { 1.0 + 1.5 * rel };
        k * self.a * optimism / self.b
    }
}

impl Cost {
    pub(super) const fn new() -> Self {
        Self {
            buckets: [Bucket {
                count: 0,
                n: 0.0,
                y: 0.0,
                last: 0,
                first: 0,
                streak: 0,
            }; BUCKETS],
            live: 0,
            batches: 0,
            noise: 0.05,
            streak: 0,
            up: 0.0,
            down: 0.0,
            excite: 0,
            resets: 0,
            clipped: 0,
            fit: None,
            identified: false,
            convex: None,
            verify: None,
            top: 0.0,
            rough_a: None,
        }
    }

    pub(super) fn model(&self) -> Option<Model> {
        let f = self.fit?;
        Some(Model {
            a_ns: f.a,
            a_err_ns: f.a_err,
            b_ns: f.b,
            b_err_ns: f.b_err,
            noise: self.noise,
        })
    }

    /// A batch of `n` cost `y`. O(live buckets), one division each.
    pub(super) fn observe(&mut self, n: u64, y: f64) {
        self.batches += 1;
        let i = bucket_of(n);
        let y = self.judge(i, n as f64, y);
        let t = self.batches;
        let b = self.bucket(i, t);
        b.count = (b.count + 1).min(SAMPLES);
        let w = 1.0 / f64::from(b.count);
        b.n += (n as f64 - b.n) * w;
        b.y += (y - b.y) * w;
        b.last = t;
        self.refit();
    }

    /// Compares a cost with its size's own history: clips an outlier, forgets everything when the costs have changed.
    fn judge(&mut self, i: usize, n: f64, y: f64) -> f64 {
        if self.live & (1 << i) == 0 || self.buckets[i].count < 2 {
            return y;
        }
        let slope = self.fit.map_or(0.0, |f| f.b);
        let b = &mut self.buckets[i];
        let expected = (b.y + slope * (n - b.n)).max(1e-3);
        let e = (y - expected) / expected;
        let most = (4.0 * self.noise).max(0.15);
        if e.abs() > most {
            let sign = if e > 0.0 { 1 } else { -1 };
            b.streak = if b.streak * sign >= 0 {
                b.streak + sign
            } else {
                sign
            };
            let sign = i32::from(sign);
            self.streak = if self.streak * sign >= 0 {
                self.streak + sign
            } else {
                sign
            };
            if self.streak.abs() >= 3 || b.streak.abs() >= 3 {
                // Three batches in a row, or the last three of this size: the costs are not what they were.
                self.streak = 0;
                self.forget();
                return y;
            }
            self.clipped += 1;
            return expected * (1.0 + f64::from(sign) * most);
        }
        self.streak = 0;
        b.streak = 0;
        self.noise =
            (self.noise + (e.abs() * 1.25 - self.noise) / 32.0).clamp(NOISE_MIN, NOISE_MAX);
        let z = e / self.noise.max(0.01);
        self.up = (self.up + z - 0.5).max(0.0);
        self.down = (self.down - z - 0.5).max(0.0);
        if self.up.max(self.down) > 6.0 {
            // A small shift that stays: distrust the other sizes and measure them again.
            self.forget();
        }
        y
    }

    fn forget(&mut self) {
        self.live = 0;
        self.resets += 1;
        self.excite = EXCITE;
        self.up = 0.0;
        self.down = 0.0;
    }

    fn bucket(&mut self, i: usize, t: u64) -> &mut Bucket {
        if self.live & (1 << i) == 0 {
            self.live |= 1 << i;
            self.buckets[i] = Bucket {
                count: 0,
                n: 0.0,
                y: 0.0,
                last: t,
                first: t,
                streak: 0,
            };
        }
        &mut self.buckets[i]
    }

    /// Weighs the buckets, drops those that have faded, looks for a size that is worse than a smaller one, and fits.
    fn refit(&mut self) {
        self.age();
        self.find_convexity();
        let (mut s0, mut s1, mut s2, mut t0, mut t1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let (mut lo, mut hi) = (None, 0.0);
        self.top = 0.0;
        for i in bits(self.live) {
            let b = &self.buckets[i];
            self.top = self.top.max(b.n);
            if self.convex.is_some_and(|c| b.n > c * 1.01) {
                continue;
            }
            let u = self.weight(b) / (b.y * b.y).max(1e-6);
            s0 += u;
            s1 += u * b.n;
            s2 += u * b.n * b.n;
            t0 += u * b.y;
            t1 += u * b.n * b.y;
            lo = lo.or(Some(b.n));
            hi = b.n;
        }
        let d = s0 * s2 - s1 * s1;
        let spans = |ratio: f64| lo.is_some_and(|lo| hi >= ratio * lo) && d > 0.0;
        self.identified = spans(3.0);
        self.rough_a = None;
        if !spans(1.4) {
            return;
        }
        let b = ((s0 * t1 - s1 * t0) / d).max(1e-6);
        let a = ((t0 - b * s1) / s0).max(1.0);
        self.rough_a = Some(a);
        if !self.identified {
            return;
        }
        let sigma = self.noise.max(0.02);
        self.fit = Some(Fit {
            a,
            b,
            a_err: sigma * (s2 / d).sqrt(),
            b_err: sigma * (s0 / d).sqrt(),
        });
    }

    /// Samples a bucket counts for: halved for every [`AGE`] batches since its last.
    fn weight(&self, b: &Bucket) -> f64 {
        let halvings = ((self.batches - b.last) / AGE).min(20);
        f64::from(b.count) / (1u64 << halvings) as f64
    }

    fn age(&mut self) {
        for i in bits(self.live) {
            if self.weight(&self.buckets[i]) < 0.5 {
                self.live &= !(1 << i);
            }
        }
    }

    fn find_convexity(&mut self) {
        self.convex = None;
        self.verify = None;
        let (mut best, mut best_n, mut best_w, mut best_last) = (0.0, 0.0, 0.0, 0);
        for i in bits(self.live) {
            let b = &self.buckets[i];
            let (w, rate) = (self.weight(b), b.n / b.y.max(1e-3));
            if rate > best {
                (best, best_n, best_w, best_last) = (rate, b.n, w, b.last);
                continue;
            }
            let margin = (2.5 * self.noise * (1.0 / w + 1.0 / best_w).sqrt()).max(0.03);
            if w >= 2.0 && rate < best * (1.0 - margin) {
                // Worse at a larger size. A slowdown of everything looks the same: believe it only once the smaller size
                // was measured after the larger one first was.
                if best_last > b.first && self.streak == 0 {
                    self.convex = Some(best_n);
                } else {
                    self.verify = Some(best_n as u64);
                }
                return;
            }
        }
    }
}

/// The half-octave of n: [2^e, 1.5·2^e) and [1.5·2^e, 2^(e+1)).
fn bucket_of(n: u64) -> usize {
    let e = n.max(1).ilog2();
    let upper = n >= (3u64 << e) >> 1 && n > 1;
    ((2 * e + u32::from(upper)) as usize).min(BUCKETS - 1)
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let i = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_octaves() {
        let of: Vec<_> = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16].map(bucket_of).into();
        assert_eq!(of, [0, 2, 3, 4, 4, 5, 5, 6, 6, 7, 8]);
        assert_eq!(bucket_of(u64::MAX), 63);
    }

    #[test]
    fn a_line_is_found_exactly_and_a_change_of_it_too() {
        let mut c = Cost::new();
        for n in [32, 128, 512, 2048] {
            c.observe(n, 3e6 + 11_718.75 * n as f64);
        }
        let f = c.fit.unwrap();
        assert!(
            (f.a - 3e6).abs() < 1.0 && (f.b - 11_718.75).abs() < 1e-3,
            "{f:?}"
        );
        for _ in 0..3 {
            for n in [32, 128, 512, 2048] {
                c.observe(n, 12e6 + 5_000.0 * n as f64);
            }
        }
        let f = c.fit.unwrap();
        assert!(
            c.resets > 0 && (f.a - 12e6).abs() < 1e4 && (f.b - 5_000.0).abs() < 50.0,
            "{f:?}"
        );
    }
}
