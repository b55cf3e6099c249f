//! What a controller knows and did, as plain values.

use super::Reason;

/// A controller's state at one moment. Fields a controller has no notion of keep their default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The limit in force, in the controller's own unit (items unless it was built to count bytes).
    pub limit: u64,
    /// The term that sets the limit.
    pub binding: Option<Reason>,
    /// The cost model, once there is one.
    pub model: Option<Model>,
    /// Arrivals a second; 0 before anything was seen.
    pub rate_per_s: f64,
    /// Items and batches counted, by reason.
    pub counts: Counts,
    /// How often a change of the costs was noticed and the model started over, or was re-measured.
    pub resets: u64,
    /// Cost samples taken for outliers and clipped.
    pub clipped: u64,
    /// The objective cannot be met at the present rate and costs: how long that was so, in nanoseconds.
    pub infeasible_ns: u64,
    /// Whether it is infeasible now.
    pub infeasible: bool,
    /// Whether learning is stopped.
    pub frozen: bool,
}

/// The cost of a batch, fitted: `a + b·n` nanoseconds for `n` items (or bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Model {
    /// Nanoseconds a batch costs whatever its size.
    pub a_ns: f64,
    /// Standard error of `a_ns`.
    pub a_err_ns: f64,
    /// Nanoseconds one more item (or byte) costs.
    pub b_ns: f64,
    /// Standard error of `b_ns`.
    pub b_err_ns: f64,
    /// Relative noise of one measurement (a robust standard deviation).
    pub noise: f64,
}

/// Batches counted by why they were cut, and what waiting cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches by reason: index with `reason as usize`, or ask [`Counts::batches_for`].
    pub by_reason: [u64; Reason::COUNT],
    /// Items in those batches.
    pub items: u64,
    /// Bytes in those batches.
    pub bytes: u64,
    /// The largest batch, in items.
    pub items_max: u64,
    /// Batches that were held back although they could have started.
    pub waits: u64,
    /// Waits during which nobody came.
    pub waits_vain: u64,
    /// The regret against greedy: the time items spent waiting although their batch could have started,
    /// summed over the items, in nanoseconds.
    pub regret_ns: u64,
}

impl Counts {
    /// Batches cut for this reason.
    #[must_use]
    pub fn batches_for(&self, reason: Reason) -> u64 {
        self.by_reason[reason as usize]
    }

    /// Batches in all.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.by_reason.iter().sum()
    }

    /// Mean items a batch; 0 before the first.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.batches() {
            0 => 0.0,
            n => self.items as f64 / n as f64,
        }
    }
}
