//! Simulates one server with one queue and one controller, such as an actor with its mailbox, in virtual
//! time.

use super::load::{Cost, ns};
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason, When};

/// The result of a simulated run of one server, to compare controllers. Latencies count from an item's
/// arrival to the end of its batch, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// The number of items that the server handled in a second, from the first arrival to the last
    /// completion.
    pub ops_per_s: f64,
    /// The mean latency of an item, in milliseconds.
    pub mean_ms: f64,
    /// The median latency of an item, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of the latency of an item, in milliseconds.
    pub p99_ms: f64,
    /// The 99.9th percentile of the latency of an item, in milliseconds.
    pub p999_ms: f64,
    /// The largest latency of an item, in milliseconds.
    pub max_ms: f64,
    /// The number of batches that the server ran in the whole run.
    pub batches: u64,
    /// The number of items of the largest batch in the run.
    pub batch_max: u64,
    /// The share of the time, from the first arrival to the last completion, during which the server ran a
    /// batch.
    pub busy: f64,
}

/// Serves items that arrive at `arrivals` (milliseconds, ascending) in batches cut by `controller`. Leaves
/// the first `skip` share of the latencies out of the result. O(items) memory.
pub fn serve(arrivals: &[f64], controller: &mut dyn Controller, cost: &mut Cost, skip: f64) -> Run {
    let at: Vec<u64> = arrivals.iter().map(|&ms| ns(ms)).collect();
    let mut latencies = Vec::with_capacity(at.len());
    let (mut i, mut t, mut busy) = (0, 0u64, 0u64);
    let mut run = Run::default();
    while i < at.len() {
        let (limit, reason, j) = ready(&at, i, &mut t, controller);
        let n = (limit as usize).clamp(1, j - i);
        let left = Load::items((j - i - n) as u64);
        let reason = if left.items == 0 {
            Reason::Drained
        } else {
            reason
        };
        controller.on(
            Time::from_nanos(t),
            Event::Started {
                id: BatchId::default(),
                batch: Load::items(n as u64),
                left,
                reason,
            },
        );
        let y = ns(cost.draw(n as u64, t as f64 / 1e6));
        t += y;
        busy += y;
        latencies.extend(at[i..i + n].iter().map(|&a| (t - a) as f64 / 1e6));
        i += n;
        run.batches += 1;
        run.batch_max = run.batch_max.max(n as u64);
        controller.on(
            Time::from_nanos(t),
            Event::Done {
                id: BatchId::default(),
                cost_ns: y,
                ok: true,
            },
        );
    }
    let elapsed = t.saturating_sub(at.first().copied().unwrap_or(0)) as f64;
    run.ops_per_s = at.len() as f64 / elapsed * 1e9;
    run.busy = busy as f64 / elapsed;
    summarise(&mut run, latencies, skip);
    run
}

/// Moves the time `t` to the start of the next batch. Returns the limit of the batch, the reason that the
/// controller gives, and the index after the last item that has arrived by then.
fn ready(
    at: &[u64],
    i: usize,
    t: &mut u64,
    controller: &mut dyn Controller,
) -> (u64, Reason, usize) {
    *t = (*t).max(at[i]);
    loop {
        let j = i + at[i..].partition_point(|&a| a <= *t);
        let backlog = Load::items((j - i) as u64);
        let oldest = Time::from_nanos(at[i]);
        let d = controller.on(Time::from_nanos(*t), Event::Ready { backlog, oldest });
        let until = match d.when {
            When::Now => return (d.limit_items, d.reason, j),
            When::At(u) => at
                .get(j)
                .map_or(u.as_nanos(), |&next| next.min(u.as_nanos())),
            When::After { items, until } => at
                .get(i + items.max(1) as usize - 1)
                .map_or(until.as_nanos(), |&a| a.min(until.as_nanos())),
        };
        if until <= *t {
            return (d.limit_items, d.reason, j);
        }
        *t = until;
    }
}

fn summarise(run: &mut Run, mut latencies: Vec<f64>, skip: f64) {
    let from = (latencies.len() as f64 * skip) as usize;
    let l = &mut latencies[from..];
    l.sort_unstable_by(f64::total_cmp);
    let q = |p: f64| l[((p * l.len() as f64) as usize).min(l.len() - 1)];
    if l.is_empty() {
        return;
    }
    run.mean_ms = l.iter().sum::<f64>() / l.len() as f64;
    (run.p50_ms, run.p99_ms, run.p999_ms, run.max_ms) = (q(0.5), q(0.99), q(0.999), l[l.len() - 1]);
}
