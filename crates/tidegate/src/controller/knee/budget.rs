//! Measures the share of time that flushes cost, to compare it with the budget of [`Objective::CostBudget`].
//!
//! [`Objective::CostBudget`]: super::Objective::CostBudget

/// The weight of the latest flush in the moving averages of cost and time. It averages over some 64 flushes.
const GAIN: f64 = 1.0 / 64.0;
/// The least number of gaps between starts of flushes from which on the share of time is known well enough to
/// judge the budget.
const LEAST: u32 = 8;
/// The factor by which the measured share of time may exceed the budget before the budget counts as exceeded,
/// because costs scatter.
const MARGIN: f64 = 1.25;

/// The moving averages of the cost of a flush and of the time between the starts of two flushes. Their ratio
/// is the share of time that flushes cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    share: f64,
    cost_ns: f64,
    gap_ns: f64,
    gaps: u32,
}

impl Budget {
    pub(super) const fn new(share: f64) -> Self {
        Self {
            share,
            cost_ns: 0.0,
            gap_ns: 0.0,
            gaps: 0,
        }
    }

    /// Adds a flush that starts `gap_ns` nanoseconds after the previous flush to the average of the time.
    pub(super) fn started(&mut self, gap_ns: u64) {
        self.gaps = self.gaps.saturating_add(1);
        let gain = GAIN.max(1.0 / f64::from(self.gaps));
        self.gap_ns += (gap_ns as f64 - self.gap_ns) * gain;
    }

    /// Adds the cost of a flush, `cost_ns` nanoseconds, to the average of the cost.
    pub(super) fn done(&mut self, cost_ns: f64) {
        let gain = GAIN.max(1.0 / f64::from(self.gaps + 1));
        self.cost_ns += (cost_ns - self.cost_ns) * gain;
    }

    /// Returns whether flushes cost more than the budget allows, so that the controller reports the budget as
    /// infeasible.
    pub(super) fn is_exceeded(&self) -> bool {
        self.gaps >= LEAST && self.cost_ns > MARGIN * self.share * self.gap_ns
    }
}
