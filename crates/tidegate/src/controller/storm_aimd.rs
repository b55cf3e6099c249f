//! Apache Storm's rule for a producer's buffer: the limit grows by one after a full flush and halves after a
//! partial flush.
//!
//! Source: apache/storm, pull 8796 (`JCQueue`, dynamic batch inserter). Here the limit is a threshold: items
//! wait in the buffer until their number reaches the threshold or the flush tick comes. With a tick every T
//! and r items a second the rule settles between sqrt(2rT/3) and twice that, at any ceiling.

use super::{Observed, Rule, Ruled};

/// The rule of a limit that starts at 1, grows by 1 after a full batch, and halves after any other batch,
/// never above `ceiling`. The tick is a linger: a batch below the limit waits for the tick. A batch that the
/// handler finished early, or that the bound on bytes cut, is not full: it halves the limit although items
/// were left ([`Observed::full`]).
///
/// ```
/// use tidegate::controller::{Load, Observed, Reason, Rule, StormAimd};
///
/// let mut rule = StormAimd::new(3);
/// let mut observe = |full| {
///     let (batch, limit) = (Load::items(rule.limit()), rule.limit());
///     let (left, reason) = (Load::default(), Reason::Limit);
///     rule.observe(Observed { batch, left, limit, full, reason, cost_ns: None });
///     rule.limit()
/// };
/// assert_eq!([true, true, true, false].map(&mut observe), [2, 3, 3, 1]);
/// assert_eq!(rule.linger_ns(), 1_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormAimd {
    limit: u64,
    ceiling: u64,
    tick_ns: u64,
}

impl StormAimd {
    /// The interval of Storm's flush tick, the default of its setting `topology.batch.flush.interval.millis`.
    pub const TICK: std::time::Duration = std::time::Duration::from_millis(1);

    /// Creates the rule for up to `ceiling` items (0 counts as 1), with Storm's tick of 1 ms.
    #[must_use]
    pub fn new(ceiling: u64) -> Self {
        Self {
            limit: 1,
            ceiling: ceiling.max(1),
            tick_ns: crate::nanos(Self::TICK),
        }
    }

    /// Replaces the flush tick of 1 ms, after which a batch below the limit starts.
    #[must_use]
    pub fn with_tick(self, tick: std::time::Duration) -> Self {
        Self {
            tick_ns: crate::nanos(tick),
            ..self
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

impl Rule for StormAimd {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, batch: Observed) {
        self.limit = if batch.full {
            self.limit.saturating_add(1).min(self.ceiling)
        } else {
            (self.limit / 2).max(1)
        };
    }

    fn linger_ns(&self) -> u64 {
        self.tick_ns
    }
}
