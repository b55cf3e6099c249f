//! Keeps the times from the read of a publish to the write of its acknowledgement, for the monitor. Pure.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The shortest time that the histogram tells apart, and (`LONGEST`) the longest that it records, which bound
/// its memory: about 20 KiB. A longer time counts as the longest.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(100);

/// The bounds of the histogram that `/metrics` shows, in microseconds.
pub(crate) const ACK_BOUNDS_US: [u64; 14] = [
    50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
    10_000_000,
];

/// The times from publishes to their acknowledgements since the node's start.
#[derive(Clone, Debug)]
pub(crate) struct AckTimes {
    /// The times in nanoseconds, exact to one per cent.
    times: Histogram<u64>,
    /// The sum of the times in nanoseconds.
    total_ns: u64,
}

impl Default for AckTimes {
    fn default() -> Self {
        let (low, high) = (SHORTEST.as_nanos() as u64, LONGEST.as_nanos() as u64);
        let times = Histogram::new_with_bounds(low, high, 2);
        Self {
            times: times.unwrap_or_else(|e| unreachable!("the bounds of the histogram fit: {e}")),
            total_ns: 0,
        }
    }
}

impl AckTimes {
    /// Records that the server acknowledged `len` publishes `ns` nanoseconds after it had read them.
    pub(crate) fn record(&mut self, ns: u64, len: u64) {
        self.times.saturating_record_n(ns, len);
        self.total_ns = self.total_ns.saturating_add(ns.saturating_mul(len));
    }

    /// Returns the number of recorded publishes.
    pub(crate) fn len(&self) -> u64 {
        self.times.len()
    }

    /// Returns the sum of the recorded times in nanoseconds.
    pub(crate) const fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Returns the time in nanoseconds that this share of the recorded publishes did not exceed; `None`
    /// without publishes.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        (!self.times.is_empty()).then(|| self.times.value_at_quantile(q))
    }

    /// Returns the times that were recorded since `earlier`, an earlier copy of this value.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut times = self.times.clone();
        // The subtraction fails only for a value that is no earlier copy. The difference is then empty, so
        // that no wrong time appears.
        if times.subtract(&earlier.times).is_err() {
            times.reset();
        }
        Self {
            times,
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }

    /// Returns for each of [`ACK_BOUNDS_US`] the number of publishes up to this bound and above the bound
    /// before it; last, the number of publishes that took longer.
    pub(crate) fn within(&self) -> [u64; ACK_BOUNDS_US.len() + 1] {
        let mut within = [0; ACK_BOUNDS_US.len() + 1];
        for value in self.times.iter_recorded() {
            let us = value.value_iterated_to() / 1000;
            let at = ACK_BOUNDS_US.partition_point(|bound| *bound < us);
            within[at] += value.count_at_value();
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_bounds() {
        let mut times = AckTimes::default();
        assert_eq!((times.len(), times.quantile(0.5)), (0, None));
        times.record(200_000, 98);
        times.record(40_000_000, 2);
        let (p50, p99) = (times.quantile(0.5).unwrap(), times.quantile(0.99).unwrap());
        assert!((198_000..=202_000).contains(&p50), "{p50}");
        assert!((39_600_000..=40_400_000).contains(&p99), "{p99}");
        assert_eq!(times.total_ns(), 98 * 200_000 + 2 * 40_000_000);
        let within = times.within();
        assert_eq!((within[2], within[9]), (98, 2));
        assert_eq!(within.iter().sum::<u64>(), times.len());
        times.record(u64::MAX, 1);
        assert_eq!(
            times.within()[ACK_BOUNDS_US.len()],
            1,
            "longer than all bounds"
        );
    }

    #[test]
    fn a_difference_has_the_later_times_alone() {
        let mut times = AckTimes::default();
        times.record(1_000_000, 1000);
        let before = times.clone();
        assert_eq!(times.since(&before).quantile(0.99), None);
        times.record(9_000_000, 10);
        let later = times.since(&before);
        assert_eq!((later.len(), later.total_ns()), (10, 90_000_000));
        assert!(later.quantile(0.5).unwrap() > 8_000_000);
        assert_eq!(before.since(&times).len(), 0, "not an earlier copy");
    }
}
