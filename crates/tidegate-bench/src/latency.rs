//! Histograms of latencies in nanoseconds, and the quantiles of them that a bench reports.

use hdrhistogram::Histogram;

use super::rounds::Sample;

/// Returns an empty histogram of latencies with a precision of three digits, which suffices for reports.
pub(crate) fn histogram() -> Histogram<u64> {
    // Three digits are a valid precision, so the creation of the histogram does not fail.
    Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits"))
}

/// Puts the mean, the median and the 99th percentile of the latencies into `sample`, in microseconds.
pub(crate) fn put(sample: &mut Sample, latency: &Histogram<u64>) {
    if latency.is_empty() {
        return;
    }
    sample.mean_us = Some(latency.mean() / 1e3);
    sample.p50_us = Some(quantile_us(latency, 0.5));
    sample.p99_us = Some(quantile_us(latency, 0.99));
}

/// Returns the quantile `q` of the latencies in microseconds, for a report.
pub(crate) fn quantile_us(latency: &Histogram<u64>, q: f64) -> f64 {
    latency.value_at_quantile(q) as f64 / 1e3
}
