//! Additive increase, multiplicative decrease: gen_batch_server's second growth rule.
//!
//! Source: rabbitmq/gen-batch-server, pull 29. A limit that grows by steps takes less memory than a doubling
//! limit, but reaches an economical size later.

use super::{Exponential, Observed, Rule, Ruled};

/// The rule of a limit that grows by `step` after a full batch and halves after any other batch, within
/// `min..=max`, starting at `min`. A batch that the handler finished early, or that the bound on bytes cut,
/// is not full: it halves the limit although items were left ([`Observed::full`]).
///
/// ```
/// use tidegate::controller::{Aimd, Load, Observed, Reason, Rule};
///
/// let mut rule = Aimd::new(10);
/// let mut observe = |full| {
///     let (batch, limit) = (Load::items(rule.limit()), rule.limit());
///     let (left, reason) = (Load::default(), Reason::Limit);
///     rule.observe(Observed { batch, left, limit, full, reason, cost_ns: None });
///     rule.limit()
/// };
/// assert_eq!([true, true, true, false].map(&mut observe), [42, 52, 62, 32]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aimd {
    limit: u64,
    step: u64,
    min: u64,
    max: u64,
}

impl Aimd {
    /// Creates the rule with steps of `step` items and limits of 32 to 8192 items, the defaults of
    /// gen_batch_server.
    #[must_use]
    pub const fn new(step: u64) -> Self {
        Self::between(step, Exponential::MIN, Exponential::MAX)
    }

    /// Creates the rule with limits of `min` to `max` items. A `max` below `min` counts as `min`, a step of 0
    /// as 1.
    #[must_use]
    pub const fn between(step: u64, min: u64, max: u64) -> Self {
        let step = if step == 0 { 1 } else { step };
        let min = if min == 0 { 1 } else { min };
        let max = if max < min { min } else { max };
        Self {
            limit: min,
            step,
            min,
            max,
        }
    }

    /// Turns the rule into a [`Controller`](super::Controller) that runs up to `batches` batches at once,
    /// where the boundary allows that.
    #[must_use]
    pub fn with_in_flight(self, batches: u32) -> Ruled<Self> {
        self.controller().with_in_flight(batches)
    }

    /// Turns the rule into a [`Controller`](super::Controller), as boundaries and actors use it.
    #[must_use]
    pub const fn controller(self) -> Ruled<Self> {
        Ruled::new(self)
    }
}

impl Rule for Aimd {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, batch: Observed) {
        self.limit = if batch.full {
            self.limit.saturating_add(self.step).min(self.max)
        } else {
            (self.limit / 2).max(self.min)
        };
    }
}
