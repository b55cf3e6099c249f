//! A histogram of latencies with buckets that grow with the value: exact below 128, then 128 buckets an
//! octave, which is an error of at most 0.8 %.

const BITS: u32 = 7;
const PER_OCTAVE: usize = 1 << BITS;

pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub fn new() -> Self {
        Self {
            counts: vec![0; PER_OCTAVE * (65 - BITS as usize)],
            count: 0,
            sum: 0,
            max: 0,
        }
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[index(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Returns the middle of the bucket with the `q`-quantile; 0 if the histogram is empty.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at).min(self.max as f64);
            }
        }
        0.0
    }

    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum as f64 / self.count as f64
        }
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn count(&self) -> u64 {
        self.count
    }
}

fn index(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (shift as usize + 1) * PER_OCTAVE + ((value >> shift) as usize - PER_OCTAVE)
}

fn middle(index: usize) -> f64 {
    if index < PER_OCTAVE {
        return index as f64;
    }
    let shift = index / PER_OCTAVE - 1;
    ((index % PER_OCTAVE + PER_OCTAVE) as f64 + 0.5) * 2f64.powi(shift as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000 {
            histogram.record(value);
        }
        for q in [0.001, 0.5, 0.99, 1.0] {
            let (got, exact) = (histogram.quantile(q), 100_000.0 * q);
            assert!(
                (got - exact).abs() <= exact * 0.008 + 1.0,
                "{q}: {got} for {exact}"
            );
        }
        assert_eq!(histogram.mean(), 50_000.5);
        histogram.record(u64::MAX);
        assert_eq!(histogram.max(), u64::MAX);
    }
}
