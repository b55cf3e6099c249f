//! The slowdown of batches that run at once: their cost relative to their solo cost.

/// The least number of batches on which a measured slowdown must rest to count, because single costs scatter.
pub(super) const KNOWN: f64 = 3.0;
/// The number of batches over which the slowdown at the concurrency in force averages. Older batches fade,
/// because costs change slowly.
pub(super) const LASTING: f64 = 128.0;

/// The measured slowdown at one concurrency, as sums over its batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    /// The sum of the costs of the batches, and the sum of the estimates of their solo costs. Their ratio is
    /// the slowdown.
    cost: f64,
    alone: f64,
    /// The sum, over the batches, of the square of the cost divided by the estimate of the solo cost, from
    /// which the error of the slowdown follows.
    squares: f64,
    /// The sum, over the batches, of the mean number of batches that ran during each, from which their mean
    /// concurrency follows.
    ran: f64,
    pub(super) batches: f64,
}

impl Slow {
    /// Returns the slowdown of `number` batches at once that do not slow each other down, as a reference for
    /// the others.
    pub(super) fn reference(number: u32) -> Self {
        Self {
            cost: LASTING,
            alone: LASTING,
            squares: LASTING,
            ran: LASTING * f64::from(number),
            batches: LASTING,
        }
    }

    /// Adds a batch that took `took` nanoseconds, and would have taken `alone` nanoseconds without others.
    /// `ran` batches ran on average, that batch included.
    pub(super) fn add(&mut self, took: f64, alone: f64, ran: f64) {
        self.cost += took;
        self.alone += alone;
        self.squares += took * took / alone.max(1e-3);
        self.ran += ran;
        self.batches += 1.0;
    }

    /// Returns the slowdown over the batches of this measurement and of `other` together.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.cost += other.cost;
        self.alone += other.alone;
        self.squares += other.squares;
        self.ran += other.ran;
        self.batches += other.batches;
        self
    }

    /// Returns the relative error of one slowdown in a comparison with another at about the same sizes, where
    /// single costs scatter by at least `noise`.
    pub(super) fn error(&self, noise: f64) -> f64 {
        let alone = self.alone.max(1e-3);
        let by = self.by().max(1e-6);
        let var = (self.squares / alone / (by * by) - 1.0).max(noise * noise);
        // Batches that run at once wait for each other, so one late batch makes several late, and the error
        // is larger.
        (var * by.max(1.0) / self.batches.max(1.0)).sqrt()
    }

    /// Lowers the weight of the past batches to the share `by`, so that newer batches count more.
    pub(super) const fn age(&mut self, by: f64) {
        self.cost *= by;
        self.alone *= by;
        self.squares *= by;
        self.ran *= by;
        self.batches *= by;
    }

    /// Returns whether the slowdown rests on enough batches to count in a comparison.
    pub(super) fn is_known(&self) -> bool {
        self.batches >= KNOWN
    }

    /// Returns how many times longer batches take at this concurrency than alone: the slowdown.
    pub(super) fn by(&self) -> f64 {
        self.cost / self.alone.max(1e-3)
    }

    /// Returns the number of batches at which the server really works at this concurrency.
    pub(super) fn works(&self) -> f64 {
        self.ran / self.batches.max(1.0) / self.by().max(1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_works_at_as_many_batches_as_it_has_slots() {
        let mut slow = Slow::default();
        assert!(!slow.is_known());
        for _ in 0..8 {
            slow.add(20.0, 10.0, 8.0);
        }
        assert!(slow.is_known());
        assert_eq!((slow.by(), slow.works()), (2.0, 4.0));
        let error = slow.error(0.1);
        assert!((error - 0.1 / 4f64.sqrt()).abs() < 1e-9, "{error}");
        slow.age(0.5);
        assert_eq!((slow.by(), slow.works(), slow.batches), (2.0, 4.0, 4.0));
    }
}
