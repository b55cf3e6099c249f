//! The costs of batches by size, for the cost model: half-octave buckets, each with the recent mean of its
//! samples, and the line through these means.
//!
//! Each bucket keeps its part of the sums for the line, so that a scan adds and compares without dividing.

use crate::controller::{SizeCost, SizeCosts};

/// The least and the greatest number of samples over which a bucket averages the size and the cost of its
/// batches. Few samples follow a change sooner; many samples average noise out.
const SAMPLES: (f64, f64) = (8.0, 1024.0);
/// The relative error that the mean cost of a bucket should have. From this error and the noise follows the
/// number of samples over which the bucket averages.
const KNOWN: f64 = 0.02;
/// The number of batches after which a bucket without new samples halves its weight, so that old costs fade.
const AGE: u64 = 256;
/// The number of buckets of half an octave, enough for any batch: they cover sizes up to 2^32.
pub(super) const GRID: usize = 64;

/// The recent costs of batches of about one size, as means over samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) count: u32,
    /// The mean size of the bucket's batches, in items: the place of the bucket on the line.
    pub(super) n: f64,
    /// The mean cost of the bucket's batches, in nanoseconds, through which the line of costs goes.
    pub(super) y: f64,
    /// The number of outliers in a row among the bucket's batches, negative if their costs were too low.
    /// Several in a row show that the costs changed.
    pub(super) streak: i8,
    /// The sequence number of the batch that gave the bucket's last sample, from which the age of the bucket
    /// follows.
    last: u64,
    /// The sequence number of the batch that gave the bucket's first sample, to find out whether another size
    /// was measured again after it.
    first: u64,
    /// The number of samples for which the bucket counts in the fit: halved for every [`AGE`] batches since
    /// its last sample.
    weight: f64,
    /// The rate at which batches of this bucket handle items, in items a nanosecond, to compare sizes.
    rate: f64,
    sums: Sums,
}

const EMPTY: Bucket = Bucket {
    count: 0,
    n: 0.0,
    y: 0.0,
    streak: 0,
    last: 0,
    first: 0,
    weight: 0.0,
    rate: 0.0,
    sums: Sums {
        s0: 0.0,
        s1: 0.0,
        s2: 0.0,
        t0: 0.0,
        t1: 0.0,
    },
};

impl Bucket {
    /// Updates the bucket's part of the sums for the line. The noise is relative, so a sample of cost y
    /// weighs 1/y².
    fn weigh(&mut self, weight: f64) {
        let u = weight / (self.y * self.y).max(1e-6);
        self.weight = weight;
        self.sums = Sums {
            s0: u,
            s1: u * self.n,
            s2: u * self.n * self.n,
            t0: u * self.y,
            t1: u * self.n * self.y,
        };
    }
}

/// The weighted sums of 1, n, n², y and ny over batches of size n and cost y. They give the line through the
/// costs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    s0: f64,
    s1: f64,
    s2: f64,
    t0: f64,
    t1: f64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.s0 += other.s0;
        self.s1 += other.s1;
        self.s2 += other.s2;
        self.t0 += other.t0;
        self.t1 += other.t1;
    }

    /// Returns the line of cost over size through the samples; `sigma` is the relative noise of a sample.
    /// `None` if all samples have one size.
    pub(super) fn line(&self, sigma: f64) -> Option<Line> {
        let d = self.s0 * self.s2 - self.s1 * self.s1;
        if d <= 0.0 {
            return None;
        }
        let b = ((self.s0 * self.t1 - self.s1 * self.t0) / d).max(1e-6);
        let a = ((self.t0 - b * self.s1) / self.s0).max(1.0);
        let var = sigma * sigma / d;
        Some(Line {
            a,
            b,
            a_var: var * self.s2,
            b_var: var * self.s0,
        })
    }
}

/// The line y = a + b·n of the cost of a batch of n items, with the variances of a and b.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) a_var: f64,
    pub(super) b_var: f64,
}

/// The buckets of all batch sizes, with the costs that the controller has measured so far.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    all: [Bucket; GRID],
    /// The buckets with samples that count for the fit, as bits: bit i stands for bucket i. A scan visits
    /// only these.
    live: u64,
    /// The buckets with a sample since the costs last changed, however old, as bits: bit i stands for bucket
    /// i. Their costs serve as estimates even after their weight is gone.
    seen: u64,
    batches: u64,
    /// The sequence number of the next batch at which a bucket may lose weight by age.
    ages_at: u64,
}

/// The result of a scan of all buckets, from which the cost model makes its fit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scan {
    pub(super) sums: Sums,
    /// The smallest and the largest batch size, in items, among the buckets in the sums, which tell how far
    /// the line is supported.
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// The largest batch size, in items, with samples that count for the fit.
    pub(super) top: f64,
    /// The batch size of the best throughput, if batches of a larger size were measured to be worse.
    pub(super) worse: Option<Worse>,
}

/// The finding of a scan that throughput falls where batches grow beyond some size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worse {
    /// The batch size with the best throughput, in items, which the controller prefers to larger sizes.
    pub(super) best: f64,
    /// True if batches of the best size were measured again after the first batches of the larger, worse
    /// size, so that a general slowdown does not explain the difference.
    pub(super) confirmed: bool,
}

impl Buckets {
    pub(super) const fn new() -> Self {
        Self {
            all: [EMPTY; GRID],
            live: 0,
            seen: 0,
            batches: 0,
            ages_at: u64::MAX,
        }
    }

    /// Returns the bucket of batches of `n` items, if it holds samples that count for the fit.
    pub(super) fn of(&mut self, n: u64) -> Option<&mut Bucket> {
        let i = grid_index(n);
        (self.live & (1 << i) != 0).then(|| &mut self.all[i])
    }

    pub(super) const fn clear(&mut self) {
        self.live = 0;
        self.seen = 0;
    }

    /// Adds a batch of `n` items that cost `y` nanoseconds to the bucket of its size, where single costs
    /// scatter by `noise`.
    pub(super) fn add(&mut self, n: u64, y: f64, noise: f64) {
        self.batches += 1;
        let i = grid_index(n);
        let b = &mut self.all[i];
        self.seen |= 1 << i;
        if self.live & (1 << i) == 0 {
            self.live |= 1 << i;
            self.ages_at = self.ages_at.min(self.batches + AGE);
            *b = Bucket {
                first: self.batches,
                ..EMPTY
            };
        }
        b.count = grown(b.count, noise);
        let gain = 1.0 / f64::from(b.count);
        b.n += (n as f64 - b.n) * gain;
        b.y += (y - b.y) * gain;
        b.last = self.batches;
        b.rate = b.n / b.y.max(1e-3);
        b.weigh(f64::from(b.count));
    }

    /// Returns the rate of batches of about `n` items, in items a nanosecond, and the number of samples on
    /// which the rate rests; `None` if the costs of that size were not measured.
    pub(super) fn rate_of(&self, n: u64) -> Option<(f64, f64)> {
        let i = grid_index(n);
        let b = &self.all[i];
        (self.seen & (1 << i) != 0).then_some((b.rate, b.weight))
    }

    /// Returns the cost of a batch of `n` items, in nanoseconds, from the nearest sizes measured on both
    /// sides or from about the same size; `None` beyond the sizes measured.
    pub(super) fn cost_at(&self, n: f64) -> Option<f64> {
        let (below, above) = self.around(n);
        match (below, above) {
            (Some(below), Some(above)) => {
                let span = (above.n - below.n).max(1e-9);
                let part = ((n - below.n) / span).clamp(0.0, 1.0);
                Some(below.y + (above.y - below.y) * part)
            }
            (Some(one), None) | (None, Some(one)) => {
                let near = (n / one.n - 1.0).abs() <= 1.0 / 8.0;
                near.then_some(one.y)
            }
            (None, None) => None,
        }
    }

    /// Returns an upper bound on the cost of a batch of `n` items, from the nearest size measured; `None`
    /// before the first measurement. The bound assumes that the cost an item never rises with the size.
    pub(super) fn bound(&self, n: f64) -> Option<f64> {
        let (below, above) = self.around(n);
        let one = below.or(above)?;
        Some(one.y * (n / one.n).max(1.0))
    }

    /// Returns the nearest measured sizes around `n`, to estimate the cost between them: a size of at most
    /// `n` items, and a larger size.
    fn around(&self, n: f64) -> (Option<&Bucket>, Option<&Bucket>) {
        let i = grid_index(n as u64);
        let upto = u64::MAX >> (GRID - 1 - i);
        let of = |bits: u64, i: u32| (bits != 0).then(|| &self.all[i as usize]);
        let (low, high) = (self.seen & upto, self.seen & !upto);
        let mut below = of(low, low.checked_ilog2().unwrap_or(0));
        let mut above = of(high, high.trailing_zeros());
        // The bucket that holds `n` may have a mean size above `n`, and then counts as the larger neighbour.
        if let Some(own) = below.filter(|own| own.n > n) {
            above = Some(own);
            let less = low & !(1 << (GRID - 1).min(low.ilog2() as usize));
            below = of(less, less.checked_ilog2().unwrap_or(0));
        }
        (below, above)
    }

    /// Returns the nanoseconds that one batch of `n` items saves against two batches of half the size; `None`
    /// unless both sizes were measured.
    pub(super) fn saved(&self, n: u64) -> Option<f64> {
        let (whole, _) = self.rate_of(n)?;
        let (half, _) = self.rate_of(n / 2)?;
        let n = n as f64;
        Some((n / half - n / whole).max(0.0))
    }

    /// Calls `each` for every size measured, with the size's index, its rate, and the number of samples on
    /// which the rate rests, so that the search can choose the best size.
    pub(super) fn each(&self, mut each: impl FnMut(usize, f64, f64)) {
        let mut rest = self.seen;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            each(i, self.all[i].rate, self.all[i].weight);
        }
    }

    /// Returns the mean cost of every size measured, for people and dashboards.
    pub(super) fn size_costs(&self) -> SizeCosts {
        let mut costs = SizeCosts::default();
        let mut rest = self.seen;
        while rest != 0 {
            let bucket = &self.all[rest.trailing_zeros() as usize];
            rest &= rest - 1;
            costs.push(SizeCost {
                size: bucket.n,
                cost_ns: bucket.y,
                batches: bucket.count,
            });
        }
        costs
    }

    /// Returns the largest batch size measured, in items, which bounds the growth of the limit; 0 before the
    /// first measurement.
    pub(super) fn largest(&self) -> f64 {
        match self.seen {
            0 => 0.0,
            seen => self.all[seen.ilog2() as usize].n,
        }
    }

    /// Ages the buckets that are due, and scans all buckets from the smallest size up. `noise` is the
    /// relative noise of one sample. Takes O(live buckets) time, with some five additions for each bucket.
    pub(super) fn scan(&mut self, noise: f64) -> Scan {
        let mut scan = Scan::default();
        if self.batches >= self.ages_at {
            self.age();
        }
        let mut best = &EMPTY;
        let mut rest = self.live;
        while rest != 0 {
            let b = &self.all[rest.trailing_zeros() as usize];
            rest &= rest - 1;
            scan.sums.add(&b.sums);
            if scan.lo == 0.0 {
                scan.lo = b.n;
            }
            scan.hi = b.n;
            if b.rate > best.rate {
                best = b;
            } else if scan.worse.is_none() && b.weight >= 2.0 && b.rate < best.rate * 0.97 {
                let margin = noise * (1.0 / b.weight + 1.0 / best.weight).sqrt();
                if b.rate < best.rate * (1.0 - margin) {
                    scan.worse = Some(Worse {
                        best: best.n,
                        confirmed: best.last > b.first,
                    });
                    // From here on, no larger size counts as the best size, because its rate cannot exceed
                    // this infinite rate.
                    best = &Bucket {
                        rate: f64::INFINITY,
                        ..EMPTY
                    };
                }
            }
        }
        scan.top = scan.hi;
        scan
    }

    /// Halves the weight of each bucket with a last sample that is a multiple of [`AGE`] batches old, and
    /// drops the buckets that have no weight left.
    #[cold]
    fn age(&mut self) {
        self.ages_at = u64::MAX;
        let mut rest = self.live;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let idle = self.batches - self.all[i].last;
            if idle != 0 && idle.is_multiple_of(AGE) {
                let weight = self.all[i].weight / 2.0;
                if weight < 0.5 {
                    self.live &= !(1 << i);
                    continue;
                }
                self.all[i].weigh(weight);
            }
            self.ages_at = self.ages_at.min(self.batches + AGE - idle % AGE);
        }
    }

    /// Computes the sums of `scan` again, over sizes of at most `n` items only, because worse sizes beyond
    /// `n` do not belong on the line.
    pub(super) fn up_to(&self, n: f64, scan: &mut Scan) {
        scan.sums = Sums::default();
        (scan.lo, scan.hi) = (0.0, 0.0);
        let mut rest = self.live;
        while rest != 0 {
            let b = &self.all[rest.trailing_zeros() as usize];
            rest &= rest - 1;
            if b.n > n * 1.01 {
                break;
            }
            scan.sums.add(&b.sums);
            scan.lo = if scan.lo == 0.0 { b.n } else { scan.lo };
            scan.hi = b.n;
        }
    }
}

/// Returns the number of samples over which a bucket averages after `count` samples and one more sample,
/// where costs scatter by `noise`.
fn grown(count: u32, noise: f64) -> u32 {
    const LEAST: u32 = SAMPLES.0 as u32;
    if count < LEAST {
        return count + 1;
    }
    let window = noise / KNOWN;
    let window = window * window;
    // The branch lets the processor go on with the count, in the usual case of little noise, before it has
    // computed the noise.
    if window < SAMPLES.0 + 1.0 {
        return LEAST;
    }
    wide(count, window)
}

#[cold]
fn wide(count: u32, window: f64) -> u32 {
    (count + 1).min(window.clamp(SAMPLES.0, SAMPLES.1) as u32)
}

/// Returns the smallest size of the half-octave at `index`. The half-octave at index 1, between 1 and 2, is
/// empty.
pub(super) const fn grid_size(index: usize) -> u64 {
    match index {
        0 | 1 => 1,
        i if i.is_multiple_of(2) => 1 << (i / 2),
        i => 3 << (i / 2 - 1),
    }
}

/// Returns the index of the smallest grid size that is at least `n`: a batch counts for the limit that would
/// have taken all of it, and costs often change just above a power of two.
pub(super) fn grid_index(n: u64) -> usize {
    let n = n.max(1);
    let e = n.ilog2();
    let low = 1 << e;
    let steps = if n == low {
        0
    } else if n - low <= low / 2 {
        1
    } else {
        2
    };
    ((2 * e + steps) as usize).min(GRID - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_octaves() {
        let of: Vec<_> = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16].map(grid_index).into();
        assert_eq!(of, [0, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8]);
        assert_eq!(grid_index(u64::MAX), 63);
    }

    #[test]
    fn an_unvisited_bucket_fades() {
        let mut b = Buckets::new();
        for _ in 0..8 {
            b.add(1000, 5.0, 0.05);
        }
        let mut scans = 0;
        while b.scan(0.05).top > 1.0 {
            b.add(1, 1.0, 0.05);
            scans += 1;
        }
        assert_eq!(scans, 5 * AGE, "8 -> 4 -> 2 -> 1 -> 1/2 -> gone");
    }

    #[test]
    fn buckets_age_at_multiples_of_their_idle_time() {
        let mut b = Buckets::new();
        let mut halved = Vec::new();
        for batch in 1..=3 * AGE {
            let n = match batch {
                1..=8 => 1000,
                100..=107 => 100,
                _ => 1,
            };
            b.add(n, 5.0, 0.05);
            let before = [100, 1000].map(|n| b.all[grid_index(n)].weight);
            b.scan(0.05);
            let after = [100, 1000].map(|n| b.all[grid_index(n)].weight);
            halved.extend((before != after).then_some((batch, after)));
        }
        let last = [107, 8].map(|last| [last + AGE, last + 2 * AGE]);
        let expected = [
            (last[1][0], [8.0, 4.0]),
            (last[0][0], [4.0, 4.0]),
            (last[1][1], [4.0, 2.0]),
            (last[0][1], [2.0, 2.0]),
        ];
        assert_eq!(halved, expected);
    }

    #[test]
    fn a_bucket_grows_to_its_window_and_no_further() {
        for count in 0..1100 {
            for noise in (0..200).map(|n| f64::from(n) * 0.005) {
                let window = (noise / KNOWN) * (noise / KNOWN);
                let window = window.clamp(SAMPLES.0, SAMPLES.1) as u32;
                assert_eq!(grown(count, noise), (count + 1).min(window));
            }
        }
    }
}
