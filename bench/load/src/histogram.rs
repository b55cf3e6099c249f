//! A histogram of latencies that all callers write to. Its buckets grow with the value: exact below 128, then
//! 128 buckets an octave, which is an error of at most 0.8 %.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const BITS: u32 = 7;
const PER_OCTAVE: usize = 1 << BITS;

/// A histogram that all callers of a load write to at once, without a lock; the module's header gives its
/// precision.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Vec<AtomicU64>,
    count: AtomicU64,
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = PER_OCTAVE * (65 - BITS as usize);
        Self {
            counts: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub(crate) fn record(&self, value: u64) {
        self.counts[bucket(value)].fetch_add(1, Relaxed);
        self.count.fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    pub(crate) fn clear(&self) {
        for count in self.counts.iter().chain([&self.count, &self.sum]) {
            count.store(0, Relaxed);
        }
    }

    /// Returns the mean of the recorded values; `None` if the histogram is empty.
    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.count.load(Relaxed);
        (count > 0).then(|| self.sum.load(Relaxed) as f64 / count as f64)
    }

    /// Returns the middle of the bucket with the `q`-quantile; `None` if the histogram is empty.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (self.count.load(Relaxed) as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0;
        let mut counts = self.counts.iter().enumerate();
        let (at, _) = counts.find(|(_, count)| {
            seen += count.load(Relaxed);
            seen >= rank
        })?;
        Some(middle(at))
    }
}

fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (shift as usize + 1) * PER_OCTAVE + ((value >> shift) as usize - PER_OCTAVE)
}

fn middle(bucket: usize) -> f64 {
    if bucket < PER_OCTAVE {
        return bucket as f64;
    }
    let shift = bucket / PER_OCTAVE - 1;
    ((bucket % PER_OCTAVE + PER_OCTAVE) as f64 + 0.5) * 2f64.powi(shift as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let histogram = Histogram::default();
        assert_eq!((histogram.mean(), histogram.quantile(0.5)), (None, None));
        for value in 1..=100_000 {
            histogram.record(value);
        }
        for q in [0.001, 0.5, 0.99, 1.0] {
            let (got, exact) = (histogram.quantile(q).unwrap(), 100_000.0 * q);
            assert!(
                (got - exact).abs() <= exact * 0.008 + 1.0,
                "{q}: {got} for {exact}"
            );
        }
        assert_eq!(histogram.mean(), Some(50_000.5));
        assert_eq!(bucket(u64::MAX), histogram.counts.len() - 1);
        histogram.clear();
        assert_eq!(histogram.mean(), None);
    }
}
