//! Computes the limit that follows from the user's objective, at the costs that the controller measured or
//! the user gave.

use super::Knee;
use super::buckets::Line;
use super::grid::{nearest, nearest_kept};
use crate::controller::{Objective, Reason};
use crate::nanos;

impl Knee {
    pub(super) fn retarget_known(&mut self) {
        if self.known {
            self.retarget();
        }
    }

    /// Sets the limit in force to the limit of the objective, such as
    /// [`Objective::LatencyP99`](super::Objective::LatencyP99), by the costs that the controller measured or
    /// the user gave.
    pub(super) fn retarget(&mut self) {
        let ceiling = self.ceiling as f64;
        let (mut target, mut binding) = match self.cost.fit.filter(|_| self.cost.identified) {
            Some(fit) => self.wanted(fit),
            None => (ceiling, Reason::Memory),
        };
        if let Some(convex) = self.cost.convex
            && convex < target
        {
            (target, binding) = (convex, Reason::Convexity);
        }
        if let Some(found) = self.search.found() {
            self.set_limit(self.ample(found as f64).min(ceiling));
            self.binding = if self.search.is_loose() {
                Reason::Backlog
            } else {
                Reason::Efficiency
            };
            return;
        }
        self.reached = self.known || self.cost.top * self.growth() as f64 >= target;
        // Costs that the user gave need no grid to keep the limit steady, and no caution beyond the sizes
        // measured.
        let c = match (self.known, self.on_grid) {
            (true, _) => target,
            (false, true) => nearest_kept(self.within_reach(target), self.limit),
            (false, false) => nearest(self.within_reach(target)),
        };
        self.on_grid = true;
        let c = self.ample(c);
        if c >= ceiling {
            binding = Reason::Memory;
        }
        self.set_limit(c.min(ceiling));
        self.binding = binding;
    }

    /// Returns `limit`, or one and a half times the usual size of batches that took the whole backlog lately,
    /// so that chance does not cut such batches. Returns `limit` if batches of the usual size were measured
    /// to be worse.
    pub(super) fn ample(&self, limit: f64) -> f64 {
        let may = self.asked
            && matches!(self.objective, Objective::Lean)
            && self.cost.convex.is_none()
            && !self.search.is_capped();
        let ample = 1.5 * self.natural;
        if !may || ample <= limit {
            return limit;
        }
        // The comparison counts only where batches run alone: solo costs of batches that ran beside others
        // are too rough for it.
        if self.flight.is_single() && self.cost.is_worse(self.natural, limit) {
            return limit;
        }
        limit.max(nearest(ample))
    }

    /// Bounds `target` to `GROW` times the largest size measured (`GROW_BYTES` times for limits in bytes), or
    /// to the limit in force if that is larger, because costs far beyond the measured sizes are unknown.
    pub(super) fn within_reach(&self, target: f64) -> f64 {
        target.min((self.cost.top * self.growth() as f64).max(self.limit))
    }

    pub(super) fn wanted(&self, fit: Line) -> (f64, Reason) {
        let ceiling = self.ceiling as f64;
        match self.objective {
            Objective::Throughput | Objective::Inflation(_) => (ceiling, Reason::Memory),
            Objective::Within(share) => {
                let unit = fit.a / fit.b;
                let q = (1.0 - share) * ceiling / (ceiling + unit);
                (unit * q / (1.0 - q), Reason::Efficiency)
            }
            _ => (fit.knee(self.k), Reason::Efficiency),
        }
    }

    /// Updates whether a latency budget X is feasible: rate <= w (1 - 2.2 a/X) / b, where the server works at
    /// w batches at once. During the climb of the concurrency, w is unknown.
    pub(super) fn check_feasible(&mut self) {
        let (Objective::LatencyP99(x), Some(Line { a, b, .. })) = (self.objective, self.cost.fit)
        else {
            return;
        };
        if self.flight.climbs() {
            return;
        }
        let most = self.flight.works() * (1.0 - 2.2 * a / nanos(x) as f64) / b;
        self.infeasible = most <= 0.0 || self.rate.per_ns().is_some_and(|r| r > most);
    }

    /// Updates whether a cost budget is feasible. It is infeasible while flushes cost more, because the
    /// bounds force them sooner than the budget allows.
    pub(super) fn check_budget(&mut self, cost_ns: f64) {
        let Some(budget) = &mut self.budget else {
            return;
        };
        let charged = self.cost.fit.filter(|_| self.known);
        budget.done(charged.map_or(cost_ns, |fit| fit.a));
        self.infeasible = budget.is_exceeded();
    }
}
