//! Decides whether the controller holds the next batch back, and until which time.

use super::{Knee, Unit};
use crate::Time;
use crate::controller::{Load, Objective, Reason};

impl Knee {
    /// Returns the time until which to hold the next batch back, and the reason; `None` if the batch starts
    /// at once.
    pub(super) fn wait(&mut self, now: Time, load: Load, oldest: Time) -> Option<(Time, Reason)> {
        if self.waiting_until.is_some_and(|t| now >= t) {
            return None;
        }
        if let Some(inflation) = &mut self.inflation {
            let linger = inflation.linger(load.items);
            let until = oldest.after(linger as u64);
            if linger < 1.0 || now >= until {
                return None;
            }
            inflation.held();
            return Some((until, Reason::Pace));
        }
        if let Objective::CostBudget(share) = self.objective {
            let flush = if self.known {
                self.cost.fit?.a
            } else {
                self.flush_ns
            };
            let until = self.last_started?.after((flush / share) as u64);
            return (now < until).then_some((until, Reason::Pace));
        }
        if let Objective::LatencyP99(_) = self.objective {
            return None;
        }
        let a = self.flush_cost()?;
        if load.items >= self.plan.limit && self.unit == Unit::Items {
            return None;
        }
        let profile = self.profile.as_ref()?;
        if self.callers.missing() == Some(0) {
            return None;
        }
        if let Some(until) = self.share_to_come(load.items) {
            return (until > now).then_some((until, Reason::Anticipate));
        }
        if self.gate.is_closed() {
            return None;
        }
        let wait = profile.wait(now.since(self.last_done) as f64, a, load.items);
        if wait < 1.0 {
            return None;
        }
        self.gate.held(now.as_nanos(), load.items);
        Some((now.after(wait as u64), Reason::Anticipate))
    }

    /// Returns the time until which a batch waits for an even share of the callers, while other batches run
    /// in a closed loop: zero if the share is already queued, and `None` without such a loop. A few callers
    /// in a batch of their own would cost a flush and a place among the batches in flight. The next batch
    /// that ends returns more callers, so the time of one batch is enough.
    pub(super) fn share_to_come(&self, queued: u64) -> Option<Time> {
        let allowed = u64::from(self.flight.allowed());
        if allowed == 1 || self.flight.running() == 0 || self.unit != Unit::Items {
            return None;
        }
        let callers = self.callers.same()?;
        let share = callers / allowed;
        if queued >= share.min(self.plan.full) {
            return Some(Time::ZERO);
        }
        let usual = self.usual(share)?;
        Some(self.last_done.after(usual as u64))
    }

    /// Returns the worth of a saved flush, in nanoseconds; `None` before the first measurement. While all
    /// batches have one size, no measurement tells the fixed cost a from b·n, the cost of n items. The whole
    /// cost then counts as saved; so the controller tries a merge, after which it knows two sizes.
    pub(super) fn flush_cost(&self) -> Option<f64> {
        let known = self.cost.fit.map(|f| f.a);
        let measured = (self.flush_ns > 0.0).then_some(self.flush_ns);
        let fitted = match self.known || self.cost.identified {
            true => known,
            false if self.cost.stale => self.cost.rough_a.or(measured),
            false => self.cost.rough_a.or(known).or(measured),
        };
        // If the costs do not follow a line, two measured sizes tell more about the worth of a flush than the
        // line's fixed cost.
        match (fitted, self.cost.saved) {
            (Some(a), Some(saved)) => Some(a.max(saved)),
            (a, _) => a,
        }
    }
}
