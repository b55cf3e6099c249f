//! Generates the Poisson arrivals of items for the bench `handlers`, and items' keys by Zipf's law. Pure:
//! equal seeds give equal arrivals, so that all contestants get the same load.

use std::time::Duration;

use crate::text::SplitMix;

/// The times at which items arrive in an open loop, counted from the start of a run, with exponential gaps.
pub(super) struct Poisson {
    random: SplitMix,
    gap_ns: f64,
    at_ns: f64,
}

impl Poisson {
    /// Creates arrivals of items at a mean rate of `per_s` a second; the same `seed` gives the same arrivals.
    pub(super) fn new(per_s: f64, seed: u64) -> Self {
        Self {
            random: SplitMix::new(seed),
            gap_ns: 1e9 / per_s,
            at_ns: 0.0,
        }
    }
}

impl Iterator for Poisson {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // A random share is below 1, so `1.0 - share` is above 0 and its logarithm is finite.
        self.at_ns -= (1.0 - self.random.share()).ln() * self.gap_ns;
        Some(Duration::from_nanos(self.at_ns as u64))
    }
}

/// Keys of items from 0 on, by Zipf's law, so that batches have duplicates: the key r is 1/(r + 1) as
/// frequent as the key 0.
pub(super) struct Zipf {
    /// For each key, the share of all items that have this key or a lower key.
    below: Vec<f64>,
}

impl Zipf {
    /// Creates a distribution over `keys` keys, or over one key if `keys` is 0.
    pub(super) fn new(keys: u32) -> Self {
        let mut sum = 0.0;
        let mut below: Vec<f64> = (1..=keys.max(1))
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        for share in &mut below {
            *share /= sum;
        }
        Self { below }
    }

    /// Returns the key of the item `id`, which is the same for every contestant.
    pub(super) fn key(&self, id: u64) -> u32 {
        let share = SplitMix::new(id).share();
        let rank = self.below.partition_point(|&below| below <= share);
        rank.min(self.below.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential() {
        let mut last = Duration::ZERO;
        let gaps: Vec<f64> = Poisson::new(1000.0, 7)
            .take(100_000)
            .map(|at| {
                let gap = at - last;
                last = at;
                gap.as_secs_f64() * 1e3
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let squares = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let deviation = (squares / gaps.len() as f64).sqrt();
        // An exponential distribution has a deviation equal to its mean, and a median of ln 2 times its mean.
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((deviation - 1.0).abs() < 0.03, "{deviation}");
        let below = gaps.iter().filter(|&&gap| gap < std::f64::consts::LN_2);
        let below = below.count() as f64 / gaps.len() as f64;
        assert!((below - 0.5).abs() < 0.01, "{below}");
    }

    #[test]
    fn a_seed_gives_the_same_arrivals_and_another_seed_others() {
        let first = |seed| Poisson::new(500.0, seed).take(50).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert!(first(1).is_sorted());
    }

    #[test]
    fn a_few_keys_are_most_items() {
        let zipf = Zipf::new(10_000);
        let mut counts = vec![0_u32; 10_000];
        for id in 0..100_000 {
            counts[zipf.key(id) as usize] += 1;
        }
        // The harmonic number of the 10,000 keys is 9.79, so the most frequent key has about a tenth of the
        // items.
        assert!((9_700..=10_800).contains(&counts[0]), "{}", counts[0]);
        assert!((4_700..=5_600).contains(&counts[1]), "{}", counts[1]);
        assert!(counts[5_000..].iter().sum::<u32>() > 5_000);
        assert_eq!(Zipf::new(1).key(9), 0);
    }
}
