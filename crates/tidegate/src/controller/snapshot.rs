//! The state and the counts of a controller, as plain values.

use std::fmt;
use std::ops::AddAssign;

use super::Reason;

/// A controller's state at one moment, for people and dashboards. A field that means nothing to a controller
/// keeps its default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The limit that the controller asks for, in its own unit (items, unless the controller counts bytes).
    /// [`Bounded`](super::Bounded) and a boundary do not know the unit, so they lower it only to the larger
    /// of `items_max` and `bytes_max`. Without a bound on bytes it may exceed the limit in force: within
    /// the default bounds [`Greedy`](super::Greedy) shows `u64::MAX` and `Fixed::new(20_000)` shows 20,000,
    /// while batches take at most 8192 items.
    pub limit: u64,
    /// The reason for the limit in force; `None` if the controller reports no reason. For a rule this is
    /// always [`Reason::Limit`], even if the bounds are smaller than the rule's limit.
    pub binding: Option<Reason>,
    /// The fitted costs of batches; `None` until the controller has measured enough.
    pub model: Option<Model>,
    /// The rate of arrivals that the controller estimates, in items a second; 0 before the first arrivals.
    pub rate_per_s: f64,
    /// The counts of items, and of batches by reason.
    pub counts: Counts,
    /// The number of times that the controller noticed that the costs had changed, and measured its model
    /// again.
    pub resets: u64,
    /// The number of costs that the controller took for outliers and clipped, so that they count for less.
    pub clipped: u64,
    /// The time during which the objective could not be met at the rate and costs of
    /// that time, in nanoseconds.
    pub infeasible_ns: u64,
    /// True if the objective cannot be met at the present rate and costs.
    pub infeasible: bool,
    /// True if the controller is frozen and learns nothing.
    pub frozen: bool,
    /// The greatest number of batches that may run at once, by the latest decision: at least 1. Zero where no
    /// [`Boundary`](crate::boundary::Boundary) encloses the controller.
    pub in_flight: u32,
    /// The number of batches that run now; zero where no [`Boundary`](crate::boundary::Boundary) counts them.
    pub running: u32,
    /// True if the controller counts bytes: `limit`, `model` and `rate_per_s` are then in bytes, and
    /// otherwise in items.
    pub in_bytes: bool,
}

/// The measured cost of batches of about one size, as a mean over recent batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SizeCost {
    /// The mean size of these batches, in the controller's unit: items, or bytes as
    /// [`Snapshot::in_bytes`] says.
    pub size: f64,
    /// The mean cost of these batches, in nanoseconds.
    pub cost_ns: f64,
    /// The number of recent batches over which the means go. It stops growing where more batches would make
    /// the means no better, so it is not the number of all batches of this size.
    pub batches: u32,
}

/// The measured costs of a controller by size, from small to large, since the costs last changed: the points
/// through which the line of a [`Model`] goes. It takes 1.5 KiB and allocates nothing.
#[derive(Clone, Copy, PartialEq)]
pub struct SizeCosts {
    all: [SizeCost; Self::LEN_MAX],
    len: usize,
}

impl SizeCosts {
    /// The greatest number of sizes: half an octave apart, they reach any batch.
    pub const LEN_MAX: usize = 64;

    /// Returns the costs, from the smallest size to the largest.
    #[must_use]
    pub fn as_slice(&self) -> &[SizeCost] {
        &self.all[..self.len]
    }

    /// Adds the cost of a size above all earlier sizes. Ignores a size beyond [`SizeCosts::LEN_MAX`].
    pub(crate) fn push(&mut self, cost: SizeCost) {
        if let Some(place) = self.all.get_mut(self.len) {
            *place = cost;
            self.len += 1;
        }
    }
}

impl Default for SizeCosts {
    fn default() -> Self {
        Self {
            all: [SizeCost::default(); Self::LEN_MAX],
            len: 0,
        }
    }
}

impl fmt::Debug for SizeCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The fitted cost of a batch, from which limits follow: `a + b·n` nanoseconds for `n` items (or bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Model {
    /// The part of a batch's cost that does not depend on its size, in nanoseconds.
    pub a_ns: f64,
    /// The standard error of `a_ns`, in nanoseconds: how far the fit can be trusted.
    pub a_err_ns: f64,
    /// The part of a batch's cost that each of its items (or bytes) adds, in nanoseconds.
    pub b_ns: f64,
    /// The standard error of `b_ns`, in nanoseconds: how far the fit can be trusted.
    pub b_err_ns: f64,
    /// The relative noise of the cost of one batch, as a robust standard deviation: 0.05 is 5 % of the cost.
    pub noise: f64,
}

/// The counts of batches by the reason of their cut, and the cost of waiting, for people and dashboards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of batches for each reason.
    pub by_reason: ByReason,
    /// The number of items in all batches so far.
    pub items: u64,
    /// The number of bytes in all batches so far.
    pub bytes: u64,
    /// The number of items of the largest batch so far.
    pub items_max: u64,
    /// The number of batches so far that the controller held back although they could have started.
    pub waits: u64,
    /// The number of batches so far that the controller held back in vain: no item arrived meanwhile.
    pub waits_vain: u64,
    /// The price of waiting: the time that items waited although their batch could have started, summed over
    /// the items, in nanoseconds. A greedy controller has 0.
    pub regret_ns: u64,
}

impl Counts {
    /// Returns the number of batches that were cut for this reason.
    #[must_use]
    pub const fn batches_for(&self, reason: Reason) -> u64 {
        self.by_reason.get(reason)
    }

    /// Returns the number of all batches so far, cut for any reason.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.by_reason.total()
    }

    /// Returns the mean number of items in a batch; 0 before the first batch.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.batches() {
            0 => 0.0,
            n => self.items as f64 / n as f64,
        }
    }
}

/// A count for each [`Reason`] of a batch. Later versions may have more reasons.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct ByReason([u64; Reason::COUNT]);

impl ByReason {
    /// Returns the number of batches that were cut for this `reason`.
    #[must_use]
    pub const fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// Adds `n` batches to the count for `reason`.
    pub const fn add(&mut self, reason: Reason, n: u64) {
        self.0[reason as usize] += n;
    }

    /// Returns the sum of the counts over all reasons: the number of batches.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns every reason with its count, in the order of [`Reason::ALL`], zeros included.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.iter().map(|&reason| (reason, self.get(reason)))
    }
}

impl AddAssign for ByReason {
    fn add_assign(&mut self, other: Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl FromIterator<(Reason, u64)> for ByReason {
    fn from_iter<I: IntoIterator<Item = (Reason, u64)>>(counts: I) -> Self {
        let mut by_reason = Self::default();
        for (reason, count) in counts {
            by_reason.add(reason, count);
        }
        by_reason
    }
}

impl fmt::Debug for ByReason {
    /// Lists only the reasons with a count above 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = self.iter().filter(|(_, count)| *count > 0);
        f.debug_map()
            .entries(counted.map(|(reason, count)| (reason.as_str(), count)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_their_reasons() {
        let mut counts: ByReason = [(Reason::Limit, 2), (Reason::Oversized, 1)]
            .into_iter()
            .collect();
        counts += [(Reason::Limit, 3)].into_iter().collect();
        assert_eq!((counts.get(Reason::Limit), counts.total()), (5, 6));
        assert_eq!(counts.iter().count(), Reason::ALL.len());
        assert_eq!(format!("{counts:?}"), r#"{"limit": 5, "oversized": 1}"#);
        for (place, &reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }
}
