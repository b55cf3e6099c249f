//! The JSON of the boundaries, as `GET /boundaries` of the server gives it. docs/dashboard.md explains each
//! member to users.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate::Time;
use tidegate::controller::{Reason, Snapshot};

use crate::model::{Demand, Outcomes};
use crate::sampler::{EVERY, Kept};

/// All boundaries of a program at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Boundaries {
    /// The wall-clock time, as RFC 3339 text.
    pub now: String,
    /// The time since the program's start, in milliseconds.
    pub uptime_ms: u64,
    /// The time between two samples, in milliseconds.
    pub sample_ms: u64,
    /// The boundaries, in the order in which the program named them.
    pub boundaries: Vec<Boundary>,
}

/// One boundary: the controller's state, its counts, and the cost of other limits.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Boundary {
    /// The name of the boundary.
    pub name: String,
    /// The name of one item in the plural.
    pub unit: String,
    /// The unit of `limit`, of the sizes and of the model: that of an item, or `bytes`.
    pub size_unit: String,
    /// The most that one batch may take, in `size_unit`.
    pub limit: u64,
    /// The greatest number of batches that may run at once.
    pub in_flight: u32,
    /// The number of batches that run now.
    pub running: u32,
    /// The reason for the limit; `None` if the controller gives none.
    pub reason: Option<&'static str>,
    /// The rate of items over the newest seconds, in items a second; before the second sample, the
    /// controller's own estimate; `None` if neither is known.
    pub rate_per_s: Option<f64>,
    /// The fitted cost of a batch; `None` until the controller has measured enough.
    pub model: Option<Fit>,
    /// The number of batches so far.
    pub batches: u64,
    /// The number of items in all batches so far.
    pub items: u64,
    /// The number of bytes in all batches so far; 0 where the boundary does not weigh its items.
    pub bytes: u64,
    /// The number of items of the largest batch so far.
    pub items_max: u64,
    /// The number of batches that the controller held back.
    pub waits: u64,
    /// The number of batches that the controller held back in vain.
    pub waits_vain: u64,
    /// The time that items waited although their batch could have started, in nanoseconds, summed over items.
    pub regret_ns: u64,
    /// The number of times that the costs changed, so that the controller measured them again.
    pub resets: u64,
    /// The number of costs that the controller clipped as outliers.
    pub clipped: u64,
    /// The time during which the objective could not be met, in nanoseconds.
    pub infeasible_ns: u64,
    /// True if the objective cannot be met now.
    pub infeasible: bool,
    /// True if the controller is frozen.
    pub frozen: bool,
    /// The number of batches by the reason of their cut, without reasons that have none.
    pub by_reason: BTreeMap<&'static str, u64>,
    /// The measured costs by size, from small to large; empty where the controller measures none.
    pub sizes: Vec<Size>,
    /// The batches that other limits would give at the present rate, by the model; `None` without a model or
    /// a rate.
    pub counterfactual: Option<Outcomes>,
    /// The samples, if the reader asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
}

/// The fitted cost of a batch: `a_ns + b_ns * size` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fit {
    /// The fixed part of a batch's cost, in nanoseconds.
    pub a_ns: f64,
    /// The standard error of `a_ns`.
    pub a_err_ns: f64,
    /// The part that each item (or byte) adds, in nanoseconds.
    pub b_ns: f64,
    /// The standard error of `b_ns`.
    pub b_err_ns: f64,
    /// The relative noise of a batch's cost: 0.05 is 5 %.
    pub noise: f64,
}

/// The measured cost of batches of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Size {
    /// The mean size of these batches, in the boundary's `size_unit`.
    pub items: f64,
    /// Their mean cost, in nanoseconds.
    pub cost_ns: f64,
    /// The number of recent batches over which the means go.
    pub batches: u32,
}

/// The samples of a boundary as arrays of equal length, oldest first. Each entry stands for the time since
/// the sample before it.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct History {
    /// The times of the samples, in milliseconds since the program's start.
    pub uptime_ms: Vec<u64>,
    /// The time that each entry covers, in milliseconds. It exceeds `sample_ms` where no reader looked.
    pub span_ms: Vec<u64>,
    /// The limits, in `size_unit`.
    pub limit: Vec<u64>,
    /// The greatest numbers of batches that may run at once.
    pub in_flight: Vec<u32>,
    /// The numbers of batches that ran at the moment of the sample.
    pub running: Vec<u32>,
    /// The numbers of items since the sample before.
    pub items: Vec<u64>,
    /// The numbers of bytes since the sample before.
    pub bytes: Vec<u64>,
    /// The numbers of batches since the sample before.
    pub batches: Vec<u64>,
    /// The time that items waited since the sample before, in nanoseconds.
    pub regret_ns: Vec<u64>,
    /// The numbers of batches since the sample before, by the reason of their cut.
    pub by_reason: BTreeMap<&'static str, Vec<u64>>,
}

impl Boundaries {
    pub(crate) fn new(now: Time, wall: &str, kept: &[Kept], since: Option<Time>) -> Self {
        Self {
            now: wall.into(),
            uptime_ms: now.as_nanos() / 1_000_000,
            sample_ms: tidegate::nanos(EVERY) / 1_000_000,
            boundaries: kept.iter().map(|k| Boundary::new(k, since)).collect(),
        }
    }
}

impl Boundary {
    fn new(kept: &Kept, since: Option<Time>) -> Self {
        let latest = &kept.latest;
        let s = &latest.snapshot;
        let counted = s.counts.by_reason.iter().filter(|(_, n)| *n > 0);
        let sizes = latest.size_costs.as_slice().iter();
        let estimate = Some(s.rate_per_s).filter(|r| *r > 0.0 && !s.in_bytes);
        let rate_per_s = kept.rate_per_s().or(estimate);
        Self {
            name: latest.name.as_ref().into(),
            unit: latest.unit.as_ref().into(),
            size_unit: match s.in_bytes {
                true => "bytes".into(),
                false => latest.unit.as_ref().into(),
            },
            limit: s.limit,
            in_flight: s.in_flight,
            running: s.running,
            reason: s.binding.map(Reason::as_str),
            rate_per_s,
            model: s.model.map(|m| Fit {
                a_ns: m.a_ns,
                a_err_ns: m.a_err_ns,
                b_ns: m.b_ns,
                b_err_ns: m.b_err_ns,
                noise: m.noise,
            }),
            batches: s.counts.batches(),
            items: s.counts.items,
            bytes: s.counts.bytes,
            items_max: s.counts.items_max,
            waits: s.counts.waits,
            waits_vain: s.counts.waits_vain,
            regret_ns: s.counts.regret_ns,
            resets: s.resets,
            clipped: s.clipped,
            infeasible_ns: s.infeasible_ns,
            infeasible: s.infeasible,
            frozen: s.frozen,
            by_reason: counted.map(|(r, n)| (r.as_str(), n)).collect(),
            sizes: sizes
                .map(|c| Size {
                    items: c.size,
                    cost_ns: c.cost_ns,
                    batches: c.batches,
                })
                .collect(),
            counterfactual: counterfactual(s, rate_per_s),
            history: since.map(|since| History::new(kept, since)),
        }
    }
}

fn counterfactual(s: &Snapshot, rate_per_s: Option<f64>) -> Option<Outcomes> {
    let (bytes, items) = (s.counts.bytes as f64, s.counts.items.max(1) as f64);
    let demand = Demand {
        model: s.model?,
        item: match s.in_bytes {
            true => (bytes / items).max(1.0),
            false => 1.0,
        },
        items_per_s: rate_per_s?,
        in_flight: s.in_flight,
    };
    Some(demand.outcomes(s.limit as f64))
}

impl History {
    fn new(kept: &Kept, since: Time) -> Self {
        let mut all = Self::default();
        for (before, sample) in kept.steps(since) {
            all.uptime_ms.push(sample.at.as_nanos() / 1_000_000);
            let span = sample.at.since(before.at);
            all.span_ms.push(span / 1_000_000);
            all.limit.push(sample.limit);
            all.in_flight.push(sample.in_flight);
            all.running.push(sample.running);
            all.items.push(sample.items - before.items);
            all.bytes.push(sample.bytes.saturating_sub(before.bytes));
            all.batches.push(sample.batches - before.batches);
            let regret_ns = sample.regret_ns.saturating_sub(before.regret_ns);
            all.regret_ns.push(regret_ns);
        }
        for &reason in Reason::ALL {
            let of = |(a, b): (&crate::sampler::Sample, &crate::sampler::Sample)| {
                let (a, b) = (a.by_reason.get(reason), b.by_reason.get(reason));
                b.saturating_sub(a)
            };
            let counts: Vec<u64> = kept.steps(since).map(of).collect();
            if counts.iter().any(|n| *n > 0) {
                all.by_reason.insert(reason.as_str(), counts);
            }
        }
        all
    }
}
