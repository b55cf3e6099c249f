//! gen_batch_server's rule: the limit doubles after a full batch and halves after any other batch.
//!
//! Source: rabbitmq/gen-batch-server, `src/gen_batch_server.erl`. The rule reacts to fullness, which is
//! unrelated to cost: it has halved the limit exactly when the next burst needs a large one.

use super::{Observed, Rule, Ruled};

/// The rule of a limit that doubles after a full batch and halves after any other batch, within `min..=max`,
/// starting at `min`. A batch that the handler finished early, or that the bound on bytes cut, is not full:
/// it halves the limit although items were left ([`Observed::full`]).
///
/// ```
/// use tidegate::controller::{Exponential, Load, Observed, Reason, Rule};
///
/// let mut rule = Exponential::new();
/// let mut observe = |full| {
///     let (batch, limit) = (Load::items(rule.limit()), rule.limit());
///     let (left, reason) = (Load::default(), Reason::Limit);
///     rule.observe(Observed { batch, left, limit, full, reason, cost_ns: None });
///     rule.limit()
/// };
/// assert_eq!([true, true, false].map(&mut observe), [64, 128, 64]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    limit: u64,
    min: u64,
    max: u64,
}

impl Exponential {
    /// The smallest limit of gen_batch_server's defaults, in items, where the rule starts.
    pub const MIN: u64 = 32;
    /// The largest limit of gen_batch_server's defaults, in items, where doubling ends.
    pub const MAX: u64 = 8192;

    /// Creates the rule with limits of 32 to 8192 items, the defaults of gen_batch_server.
    #[must_use]
    pub const fn new() -> Self {
        Self::between(Self::MIN, Self::MAX)
    }

    /// Creates the rule with limits of `min` to `max` items. A `max` below `min` counts as `min`.
    #[must_use]
    pub const fn between(min: u64, max: u64) -> Self {
        let min = if min == 0 { 1 } else { min };
        let max = if max < min { min } else { max };
        Self {
            limit: min,
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

impl Default for Exponential {
    fn default() -> Self {
        Self::new()
    }
}

impl Rule for Exponential {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, batch: Observed) {
        self.limit = if batch.full {
            self.limit.saturating_mul(2).min(self.max)
        } else {
            (self.limit / 2).max(self.min)
        };
    }
}
