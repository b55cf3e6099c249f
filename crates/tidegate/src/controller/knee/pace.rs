//! Measures the rate at which items end, at one concurrency and size of batches, so that a search can compare
//! two such points.

/// The least number of ended batches on which a rate of items may rest, because single costs scatter.
const KNOWN: f64 = 3.0;
/// Once more batches than this have ended, the pace halves the weight of the past, so that it follows
/// changes. If four turnovers (as many batches as run at once) have more batches, it waits for these.
const LASTING: f64 = 256.0;
/// The least scatter of single costs, as a share, because no machine is ever quiet.
const NOISE: f64 = 0.05;

/// The rate at which items end, as two sums: the number of items of ended batches, and the time between the
/// ends of these batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    items: f64,
    ns: f64,
    pub(super) batches: f64,
    last: Option<u64>,
}

impl Pace {
    /// Records that a batch of `items` ended. The first batch only starts the time, because its own start is
    /// unknown.
    pub(super) fn done(&mut self, now_ns: u64, items: u64) {
        if let Some(last) = self.last {
            self.items += items as f64;
            self.ns += now_ns.saturating_sub(last) as f64;
            self.batches += 1.0;
        }
        self.last = Some(now_ns);
    }

    /// Halves the weight of the past once four turnovers of `number` batches at once and [`LASTING`] batches
    /// have ended, so that the rate follows changes.
    pub(super) fn fade(&mut self, number: u32) {
        if self.batches > LASTING.max(4.0 * f64::from(number)) {
            self.items /= 2.0;
            self.ns /= 2.0;
            self.batches /= 2.0;
        }
    }

    /// Makes the pace leave out the time until the next batch ends, which belongs to another concurrency.
    pub(super) const fn pause(&mut self) {
        self.last = None;
    }

    /// Returns the rate at which items end, in items a nanosecond; `None` before [`KNOWN`] batches have
    /// ended.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.batches >= KNOWN && self.ns > 0.0).then(|| self.items / self.ns)
    }

    /// Returns how many times as fast items end as at the `usual` pace, and the relative error of that ratio,
    /// where single costs scatter by `noise`. `None` if either pace rests on too few batches.
    pub(super) fn against(&self, usual: &Self, noise: f64) -> Option<(f64, f64)> {
        let gain = self.rate()? / usual.rate()?;
        Some((gain, self.error(noise).hypot(usual.error(noise))))
    }

    /// Returns the relative error of the rate, where single costs scatter by `noise`, to tell a gain from
    /// chance.
    fn error(&self, noise: f64) -> f64 {
        noise.max(NOISE) / self.batches.max(1.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_ends_counts_but_not_a_pause() {
        let mut pace = Pace::default();
        for at in [0, 10, 20, 30] {
            pace.done(at, 5);
        }
        assert_eq!(pace.rate(), Some(0.5));
        pace.pause();
        pace.done(1_000_000, 5);
        pace.done(1_000_010, 5);
        assert_eq!(pace.rate(), Some(0.5), "the pause does not count");
        assert!((pace.error(0.2) - 0.1).abs() < 1e-9, "four batches");
    }

    #[test]
    fn the_past_fades() {
        let mut pace = Pace::default();
        for at in 0..1000 {
            pace.done(at * 10, 5);
            pace.fade(8);
        }
        for at in 1000..2000 {
            pace.done(10_000 + (at - 1000) * 20, 5);
            pace.fade(8);
        }
        let rate = pace.rate().unwrap_or(0.0);
        assert!((rate - 0.25).abs() < 0.005, "{rate}");
    }

    #[test]
    fn whole_turns_of_many_batches_fit() {
        let mut pace = Pace::default();
        for at in 0..1_025 {
            pace.done(at, 1);
            pace.fade(1_024);
        }
        assert!(pace.batches >= 1_024.0, "{pace:?}");
    }
}
