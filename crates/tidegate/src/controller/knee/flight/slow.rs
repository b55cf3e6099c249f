//! How much batches that run at once slow each other down.

/// Batches that a slowdown must rest on to count.
pub(super) const KNOWN: f64 = 3.0;
/// A slowdown that goes on being measured is the average of so many batches.
pub(super) const LASTING: f64 = 128.0;

/// The slowdown at one number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow {
    /// The costs of the batches, and the estimates of their costs alone.
    cost: f64,
    alone: f64,
    /// The squares of the former over the latter.
    squares: f64,
    /// The sum of the mean number that ran beside each, itself included.
    ran: f64,
    pub(super) batches: f64,
}

impl Slow {
    /// `number` batches at once that do not slow each other down.
    pub(super) fn reference(number: u32) -> Self {
        Self {
            cost: LASTING,
            alone: LASTING,
            squares: LASTING,
            ran: LASTING * f64::from(number),
            batches: LASTING,
        }
    }

    /// A batch took so long beside others, `ran` with itself.
    pub(super) fn add(&mut self, took: f64, alone: f64, ran: f64) {
        self.cost += took;
        self.alone += alone;
        self.squares += took * took / alone.max(1e-3);
        self.ran += ran;
        self.batches += 1.0;
    }

    /// The batches of both.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.cost += other.cost;
        self.alone += other.alone;
        self.squares += other.squares;
        self.ran += other.ran;
        self.batches += other.batches;
        self
    }

    /// The relative error of one slowdown compared with another at about the same sizes, where single costs
    /// scatter by `noise` at least.
    pub(super) fn error(&self, noise: f64) -> f64 {
        let alone = self.alone.max(1e-3);
        let by = self.by().max(1e-6);
        let var = (self.squares / alone / (by * by) - 1.0).max(noise * noise);
        // Batches wait for each other: a late one makes several late.
        (var * by.max(1.0) / self.batches.max(1.0)).sqrt()
    }

    /// Lets the past count for less.
    pub(super) const fn age(&mut self, by: f64) {
        self.cost *= by;
        self.alone *= by;
        self.squares *= by;
        self.ran *= by;
        self.batches *= by;
    }

    /// Returns whether it rests on enough batches to count.
    pub(super) fn is_known(&self) -> bool {
        self.batches >= KNOWN
    }

    /// How many times longer batches take.
    pub(super) fn by(&self) -> f64 {
        self.cost / self.alone.max(1e-3)
    }

    /// How many batches the server really works at.
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
