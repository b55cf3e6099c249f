//! Plans the next batch: computes its limit from the limit in force, with probes, parts of a backlog, and
//! shares of batches that run at once.

use super::buckets::Line;
use super::rate::drain_chunk;
use super::strain::Point;
use super::{Knee, Plan};
use crate::controller::{Objective, Reason};
use crate::nanos;

/// The interval of probes: one in this many saturated batches has another size, so that the controller can
/// tell the fixed cost a from the cost b of an item.
const PROBE_EVERY: u64 = 16;
/// During the climb of the concurrency batches are kept short: the items of a batch together cost at most
/// this many times its fixed cost a.
const BRIEF: f64 = 4.0;
/// The least ratio of the cost of the whole backlog in one batch to the cost of one batch's share. Below that
/// ratio a batch takes the whole backlog, because shares would save nothing.
const SPLIT: f64 = 1.1;

impl Knee {
    /// Returns the plan for the size of a buffer, where the driver sends no `Ready`: with probes, but without
    /// cutting a backlog.
    pub(super) fn unasked(&self) -> Plan {
        // The limit as an integer may differ from the exact limit by rounding, because an `f64` rounds limits
        // beyond 2^53.
        debug_assert!(self.standing.abs_diff(self.bounded(self.limit)) <= self.standing >> 52);
        let full = self.standing;
        let (limit, reason) = self.probe(full, u64::MAX).unwrap_or((full, self.binding));
        Plan {
            limit,
            full,
            reason,
            divisible: false,
        }
    }

    /// Returns the plan for the next batch. Changes nothing but the part size kept for the backlog in
    /// progress, so repeated calls are harmless.
    pub(super) fn plan(&mut self, backlog: u64) -> Plan {
        if let Some(Point { limit, .. }) = self.strain.point() {
            return Plan {
                limit,
                full: limit,
                reason: if limit >= backlog {
                    Reason::Drained
                } else {
                    Reason::Backlog
                },
                divisible: false,
            };
        }
        let mut limit = self.limit;
        let mut binding = self.binding;
        let mut part = backlog;
        let mut could = false;
        if let Some(Line { a, b, .. }) = self.cost.fit.filter(|_| self.targeted()) {
            if let Some(cap) = self.latency_limit(a, b, backlog)
                && cap < limit
            {
                (limit, binding) = (cap, Reason::Latency);
            }
            if let Some(rate) = self.rate.per_ns().filter(|_| self.drains_backlogs()) {
                let n = drain_chunk(a, b, rate, backlog as f64);
                self.chunk = if self.left > 0 { self.chunk.max(n) } else { n };
                let parts = (backlog as f64 / self.chunk + 0.5) as u64;
                if parts > 1 && self.flight.allowed() == 1 {
                    could = true;
                    if self.drain.may_cut() {
                        part = backlog.div_ceil(parts);
                    }
                }
            }
        }
        if self.flight.climbs()
            && let Some(Line { a, b, .. }) = self.cost.fit
        {
            // Batches are kept short during the climb, because short batches show sooner how many of them may
            // run at once.
            limit = limit.min((BRIEF * a / b).max(1.0));
        }
        let full = if limit == self.limit {
            self.standing
        } else {
            self.bounded(limit)
        };
        if let Some((limit, reason)) = self.probe(full, backlog) {
            return Plan {
                limit,
                full,
                reason,
                divisible: false,
            };
        }
        let share = self.share(backlog);
        let limit = full.min(part).min(share).max(1);
        let reason = if limit >= backlog {
            Reason::Drained
        } else if share < part && share < full {
            Reason::Shared
        } else if part < full {
            Reason::DrainChunk
        } else {
            binding
        };
        // A part or a share becomes the limit only if it is the reason why the batch ends. Otherwise the plan
        // keeps the full limit, which does not change with the backlog.
        let limit = match reason {
            Reason::DrainChunk | Reason::Shared => limit,
            _ => full,
        };
        Plan {
            limit,
            full,
            reason,
            divisible: could,
        }
    }

    /// Returns the part of the backlog for one of several batches at once, if smaller batches are cheaper;
    /// otherwise the whole backlog.
    pub(super) fn share(&self, backlog: u64) -> u64 {
        if self.flight.allowed() == 1 {
            return backlog;
        }
        let share = self.flight.share(backlog).max(self.floor);
        let of = |n: u64| self.cost.alone(n as f64);
        let (all, part) = (of(backlog), of(share));
        match (all, part) {
            (Some(all), Some(part)) if all < part * SPLIT => backlog,
            _ => share,
        }
    }

    /// Returns the batch size that leaves half the latency budget for the batch itself. Returns `None` if the
    /// backlog alone exceeds the budget, because such a limit would only make the queue unstable.
    pub(super) fn latency_limit(&self, a: f64, b: f64, backlog: u64) -> Option<f64> {
        let Objective::LatencyP99(x) = self.objective else {
            return None;
        };
        let x = nanos(x) as f64;
        let n = ((x / 2.0 - a) / b).max(1.0);
        (backlog as f64 * (b + a / n) < x * self.flight.works()).then_some(n)
    }

    /// Returns whether the search may try larger sizes. It may do so only under [`Objective::Lean`], because
    /// every other objective calls for a limit of its own. The search begins once a line fits the costs, or
    /// once a size was measured to be worse than a smaller size and no line has fitted for some time, because
    /// the worse sizes do not count for the line.
    pub(super) const fn looks_up(&self) -> bool {
        self.asked
            && !self.flight.climbs()
            && (self.reached || !self.targeted() || self.search.found().is_some())
            && matches!(self.objective, Objective::Lean)
            && (self.cost.fit.is_some()
                || self.cost.convex.is_some() && self.saturated >= PROBE_EVERY)
    }

    /// Returns a batch size other than the limit, if the next batch should measure the cost of another size;
    /// otherwise `None`.
    pub(super) fn probe(&self, full: u64, backlog: u64) -> Option<(u64, Reason)> {
        if backlog != u64::MAX
            && self.looks_up()
            && let Some(n) = self.search.on_trial()
            && backlog.saturating_add(self.coming()) >= n
        {
            return Some((n, Reason::Probe));
        }
        if let Some(n) = self.flight.size().filter(|&n| backlog > n && full > n) {
            return Some((n, Reason::Probe));
        }
        if let Some(n) = self.cost.verify.filter(|&n| backlog >= n) {
            return Some((full.min(n).max(1), Reason::Probe));
        }
        if self.known || backlog < full {
            return None;
        }
        let turn = self.saturated + 1;
        let small = || {
            let milder = if backlog / 4 >= full {
                0
            } else {
                full.min(backlog / 2)
            };
            (full / 4).max(self.floor).max(milder).max(1)
        };
        if self.cost.excite > 0 && (self.reached || !self.asked) {
            return self
                .cost
                .excite
                .is_multiple_of(2)
                .then(|| (small(), Reason::Probe));
        }
        if !self.targeted() || self.looks_up() || !turn.is_multiple_of(PROBE_EVERY) {
            return None;
        }
        if self.cost.convex.is_some() && turn.is_multiple_of(4 * PROBE_EVERY) {
            return Some((
                full.saturating_add(full / 2).min(self.ceiling),
                Reason::Probe,
            ));
        }
        Some((small(), Reason::Probe))
    }
}
