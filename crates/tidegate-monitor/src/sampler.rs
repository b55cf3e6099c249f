//! Keeps the newest samples of each boundary for all readers. Pure: the driver passes the time in.
//!
//! The driver asks the boundaries for their state while [`Sampler::is_watched`], once every [`EVERY`], and
//! passes it to [`Sampler::record`]. A request of a reader calls [`Sampler::ask`], and records a sample first
//! if [`Sampler::is_due`]. So a hundred readers cost as much as one, and no reader costs nothing.
//!
//! A boundary is known by its name. The sampler forgets a boundary that a later record lacks, and the samples
//! of a boundary that counts less than before, because another boundary has its name now.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate::boundary;
use tidegate::controller::{ByReason, Controller, SizeCosts, Snapshot};

use crate::view::Boundaries;

/// The time between two samples.
pub const EVERY: Duration = Duration::from_secs(1);
/// The time after the latest request for which the driver goes on with samples.
pub const WATCHED_FOR: Duration = Duration::from_secs(10);
/// The most samples that the sampler keeps of a boundary: ten minutes while a reader looks.
pub const SAMPLES_MAX: usize = 600;
/// The most boundaries that the sampler keeps; it ignores further ones.
pub const BOUNDARIES_MAX: usize = 64;
/// The age up to which samples count for the present rate. A mean over an older gap, in which no reader
/// looked, would not be the present rate.
const PRESENT: Duration = Duration::from_secs(5);

/// The state of one boundary at one moment, as its owner hands it to the sampler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// The name of the boundary, by which readers know it.
    pub name: Arc<str>,
    /// The name of one item in the plural, such as `rows`.
    pub unit: Arc<str>,
    /// The controller's state.
    pub snapshot: Snapshot,
    /// The controller's measured costs by size.
    pub size_costs: SizeCosts,
}

impl Observed {
    /// Creates the state of the boundary `name`, with items called `unit`.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        unit: impl Into<Arc<str>>,
        snapshot: Snapshot,
        size_costs: SizeCosts,
    ) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            snapshot,
            size_costs,
        }
    }

    /// Reads the state of `boundary`, with this `name` and items called `unit`.
    #[must_use]
    pub fn of<C: Controller>(
        name: impl Into<Arc<str>>,
        unit: impl Into<Arc<str>>,
        boundary: &boundary::Boundary<C>,
    ) -> Self {
        Self::new(name, unit, boundary.snapshot(), boundary.size_costs())
    }
}

/// Keeps the newest samples of each boundary.
#[derive(Clone, Debug, Default)]
pub struct Sampler {
    kept: Vec<Kept>,
    /// The time of the latest record, and (`asked`) of the latest request; `None` before the first.
    recorded: Option<Time>,
    asked: Option<Time>,
}

/// A boundary with its latest state and its samples, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) latest: Observed,
    samples: VecDeque<Sample>,
}

/// The part of a boundary's state at one moment that the history shows. Counts are totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at: Time,
    pub(crate) limit: u64,
    pub(crate) in_flight: u32,
    pub(crate) running: u32,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) batches: u64,
    pub(crate) regret_ns: u64,
    pub(crate) by_reason: ByReason,
}

impl Sample {
    fn new(at: Time, s: &Snapshot) -> Self {
        Self {
            at,
            limit: s.limit,
            in_flight: s.in_flight,
            running: s.running,
            items: s.counts.items,
            bytes: s.counts.bytes,
            batches: s.counts.batches(),
            regret_ns: s.counts.regret_ns,
            by_reason: s.counts.by_reason,
        }
    }

    fn counts_less_than(&self, before: &Self) -> bool {
        self.items < before.items || self.batches < before.batches
    }
}

impl Sampler {
    /// Creates a sampler without samples.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kept: Vec::new(),
            recorded: None,
            asked: None,
        }
    }

    /// Notes that a reader asks at `now`, so that the driver goes on with samples for [`WATCHED_FOR`].
    pub fn ask(&mut self, now: Time) {
        self.asked = self.asked.max(Some(now));
    }

    /// Returns whether a reader has asked within [`WATCHED_FOR`] before `now`.
    #[must_use]
    pub fn is_watched(&self, now: Time) -> bool {
        self.asked
            .is_some_and(|asked| now.since(asked) < tidegate::nanos(WATCHED_FOR))
    }

    /// Returns the time of the next sample: [`EVERY`] after the latest one.
    #[must_use]
    pub fn due_at(&self) -> Time {
        let every = tidegate::nanos(EVERY);
        self.recorded.map_or(Time::ZERO, |at| at.after(every))
    }

    /// Returns whether a sample is due at `now`.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.due_at()
    }

    /// Adds a sample of each boundary at `now`. A `now` before the latest one counts as the latest.
    pub fn record(&mut self, now: Time, observed: impl IntoIterator<Item = Observed>) {
        let now = self.recorded.map_or(now, |at| at.max(now));
        self.recorded = Some(now);
        let mut before = std::mem::take(&mut self.kept);
        for latest in observed.into_iter().take(BOUNDARIES_MAX) {
            let known = before.iter().position(|k| k.latest.name == latest.name);
            let mut samples = known.map_or_else(VecDeque::new, |at| before.swap_remove(at).samples);
            let sample = Sample::new(now, &latest.snapshot);
            if samples.back().is_some_and(|b| sample.counts_less_than(b)) {
                samples.clear();
            }
            if samples.len() == SAMPLES_MAX {
                samples.pop_front();
            }
            samples.push_back(sample);
            self.kept.push(Kept { latest, samples });
        }
    }

    /// Returns the boundaries by the latest samples at `now`. `wall` is the wall-clock time as RFC 3339 text.
    /// The boundaries have the history of the newest `history_s` seconds, if given.
    #[must_use]
    pub fn boundaries(&self, now: Time, wall: &str, history_s: Option<u64>) -> Boundaries {
        let since = history_s.map(|s| {
            let span = tidegate::nanos(Duration::from_secs(s));
            Time::from_nanos(now.as_nanos().saturating_sub(span))
        });
        Boundaries::new(now, wall, &self.kept, since)
    }

    /// Records the boundaries at `now` if a sample is due, and returns them as JSON with the history of all
    /// samples: the one call for a program that shows its own boundaries.
    pub fn observe(
        &mut self,
        now: Time,
        wall: &str,
        observed: impl IntoIterator<Item = Observed>,
    ) -> String {
        self.ask(now);
        if self.is_due(now) {
            self.record(now, observed);
        }
        let all = self.boundaries(now, wall, Some(SAMPLES_MAX as u64));
        serde_json::to_string(&all).unwrap_or_default()
    }

    /// Asserts the invariants of the sampler; for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        assert!(self.kept.len() <= BOUNDARIES_MAX);
        for kept in &self.kept {
            assert!((1..=SAMPLES_MAX).contains(&kept.samples.len()));
            assert_eq!(kept.samples.back().map(|s| s.at), self.recorded);
            for (a, b) in kept.samples.iter().zip(kept.samples.iter().skip(1)) {
                assert!(a.at <= b.at && !b.counts_less_than(a));
            }
        }
    }
}

impl Kept {
    /// Returns the measured rate of items, in items a second, over the newest samples; `None` if there are
    /// not two of them.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        let last = self.samples.back()?;
        let recent = |s: &&Sample| last.at.since(s.at) <= tidegate::nanos(PRESENT);
        let first = self.samples.iter().find(recent)?;
        let ns = last.at.since(first.at);
        (ns > 0).then(|| (last.items - first.items) as f64 * 1e9 / ns as f64)
    }

    /// Returns the samples at or after `since`, each with the sample before it, oldest first.
    pub(crate) fn steps(&self, since: Time) -> impl Iterator<Item = (&Sample, &Sample)> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs.filter(move |(_, sample)| sample.at >= since)
    }
}

#[cfg(test)]
mod tests;
