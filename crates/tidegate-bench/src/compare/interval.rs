//! The median of ratios with its confidence interval, and the verdict that the interval allows about a bound.
//! Pure.
//!
//! The interval needs no assumption about the distribution of the values. The median of that distribution
//! lies between the k-th smallest and the k-th largest of n values with a probability that the binomial
//! distribution gives (David and Nagaraja, *Order Statistics*, 7.1).

/// The least number of pairs of runs in a comparison. With nine pairs or more the interval leaves out the
/// extreme values.
pub(crate) const PAIRS_MIN: usize = 7;
const CONFIDENCE: f64 = 0.95;

/// The median of some ratios and its 95 % interval, by which the bench judges a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Returns the median of `values` with its interval of at least 95 %. Returns `None` for fewer than six
    /// values, because no interval of so few values covers 95 %.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        // The interval leaves out `rank - 1` values at either end. The search takes the largest rank at which
        // the interval still covers 95 %.
        let rank = (1..=n / 2)
            .rev()
            .find(|rank| covers(n, *rank) >= CONFIDENCE)?;
        let middle = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Self {
            median: middle,
            low: sorted[rank - 1],
            high: sorted[n - rank],
        })
    }

    /// Returns the width of the ratios' interval, as a share of the ratios' median, to tell if the interval
    /// suffices.
    pub(crate) fn width(&self) -> f64 {
        (self.high - self.low) / self.median
    }
}

/// Returns the probability that the median of the distribution lies between the `rank`-th smallest and the
/// `rank`-th largest of `n` values.
fn covers(n: usize, rank: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut tail = 0.0;
    for i in 0..rank {
        tail += term;
        term *= (n - i) as f64 / (i + 1) as f64;
    }
    1.0 - 2.0 * tail
}

/// The verdict on NEW in one row of the comparison: it compares the 95 % interval of the ratio NEW / OLD with
/// the bound that the user sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The whole interval of the ratio NEW / OLD is within the bound, so NEW is not worse than OLD.
    NotWorse,
    /// The whole interval of the ratio NEW / OLD is beyond the bound, so NEW is worse than OLD.
    Worse,
    /// A part of the ratio's interval is within the bound and a part beyond it, so the row needs more pairs
    /// of runs for a verdict.
    NotResolved,
}

impl Verdict {
    /// Judges a ratio NEW / OLD. `within` is the share by which NEW may be worse. `more_is_better` is true
    /// for throughput, and false for costs.
    pub(crate) fn of(ratio: Interval, within: f64, more_is_better: bool) -> Self {
        let (worst, best) = match more_is_better {
            true => (1.0 - ratio.low, 1.0 - ratio.high),
            false => (ratio.high - 1.0, ratio.low - 1.0),
        };
        if worst <= within {
            Self::NotWorse
        } else if best > within {
            Self::Worse
        } else {
            Self::NotResolved
        }
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NotWorse => "not worse",
            Self::Worse => "worse",
            Self::NotResolved => "not resolved",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        assert!((covers(7, 1) - 0.984_375).abs() < 1e-9);
        assert!((covers(9, 2) - 0.960_937_5).abs() < 1e-9);
        assert!((covers(15, 4) - 0.964_843_75).abs() < 1e-9);
    }

    #[test]
    fn the_interval_leaves_out_as_many_extremes_as_it_may() {
        let seven = [3.0, 1.0, 2.0, 5.0, 4.0, 7.0, 6.0];
        let of = Interval::of(&seven).unwrap();
        assert_eq!((of.low, of.median, of.high), (1.0, 4.0, 7.0));
        let fifteen: Vec<f64> = (1..=15).map(f64::from).collect();
        let of = Interval::of(&fifteen).unwrap();
        assert_eq!((of.low, of.median, of.high), (4.0, 8.0, 12.0));
        assert_eq!(Interval::of(&seven[..5]), None);
    }

    /// Tests that the interval covers the known median of a distribution as often as the interval promises.
    #[test]
    fn the_interval_covers_the_median() {
        let mut state = 7_u64;
        let mut dice = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for n in [7, 9, 15, 31] {
            let covered = (0..2000).filter(|_| {
                // The test takes a skewed distribution with the median 0.25, which differs from the mean.
                let values: Vec<f64> = (0..n).map(|_| dice().powi(2)).collect();
                let of = Interval::of(&values).unwrap();
                of.low <= 0.25 && 0.25 <= of.high
            });
            let covered = covered.count();
            assert!(covered >= 1880, "{n}: {covered} of 2000");
        }
    }

    #[test]
    fn a_verdict_wants_the_whole_interval_on_one_side() {
        let ratio = |low, high| Interval {
            median: (low + high) / 2.0,
            low,
            high,
        };
        let more = |low, high| Verdict::of(ratio(low, high), 0.03, true);
        assert_eq!(more(0.98, 1.01), Verdict::NotWorse);
        assert_eq!(more(0.90, 0.96), Verdict::Worse);
        assert_eq!(more(0.90, 1.10), Verdict::NotResolved);
        let less = |low, high| Verdict::of(ratio(low, high), 0.03, false);
        assert_eq!(less(0.5, 1.02), Verdict::NotWorse);
        assert_eq!(less(1.04, 1.2), Verdict::Worse);
        assert_eq!(less(0.99, 1.2), Verdict::NotResolved);
    }
}
