//! Runs a simulated world, and measures the latency and throughput that its callers observe.

use super::engine::Sim;
use super::world::World;
use crate::controller::Controller;

/// The length of a simulated run: it ends after a number of batches or of items.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The time at the start of the run in which the controller learns, in milliseconds. The results leave
    /// this time out.
    pub warm_ms: f64,
    /// The number of batches after which the run ends, counted after the time for learning, unless the run
    /// reaches `items` first.
    pub batches: u64,
    /// The number of items after which the run ends, counted after the time for learning, unless the run
    /// reaches `batches` first.
    pub items: u64,
}

/// The figures that the callers observe in a run, without the time for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The throughput in the part of the run that counts, after the time for learning, in items a
    /// millisecond.
    pub throughput: f64,
    /// The mean latency of an item, from its arrival to the end of its batch, in milliseconds.
    pub mean: f64,
    /// The 99th percentile of the latency of an item, in milliseconds.
    pub p99: f64,
    /// The number of batches that ended in the part of the run that counts, after the time for learning.
    pub batches: u64,
    /// The number of items in the largest batch of the part that counts.
    pub batch_max: u64,
    /// The largest backlog of the whole run, in items, to see whether the controller kept up.
    pub backlog_max: u64,
    /// The growth of the backlog over the part that counts, as a share of the items that were handled in that
    /// part.
    pub slope: f64,
    /// The mean number of running batches in the part that counts, over the time in which at least one runs.
    pub in_flight: f64,
    /// The mean time from the end of one batch to the end of the next in the part that counts, in
    /// milliseconds.
    pub batch_ms: f64,
    /// The virtual time at the end of the run, in milliseconds, which says how long the run was.
    pub end: f64,
}

/// Lets `controller` serve `world`, with arrivals and noise of `seed`. The load of the world is a share of
/// `capacity`, in items a millisecond. Takes O(items · log(running)) time and O(items) memory.
pub fn run(
    world: &World,
    seed: u32,
    capacity: f64,
    span: Span,
    controller: &mut dyn Controller,
) -> Outcome {
    let mut sim = Sim::new(world, seed, capacity, span.items, controller);
    let warm = (span.warm_ms * 1e6) as u64;
    let mut out = Outcome::default();
    let mut mark = None;
    let (mut busy, mut held) = (0u64, 0u64);
    loop {
        let (_, n, b, _) = mark.unwrap_or((0, sim.finished, sim.batches, 0));
        if sim.finished - n >= span.items || sim.batches - b >= span.batches {
            break;
        }
        let before = sim.now;
        let running = u64::from(sim.in_flight);
        if !sim.step() {
            break;
        }
        out.backlog_max = out.backlog_max.max(sim.queue.len() as u64);
        if running > 0 {
            busy += sim.now - before;
            held += running * (sim.now - before);
        }
        if mark.is_none() && sim.now >= warm {
            mark = Some((sim.now, sim.finished, sim.batches, sim.queue.len()));
            sim.records = true;
            sim.largest = 0;
            (busy, held) = (0, 0);
        }
    }
    out.batch_max = sim.largest;
    let (t0, n0, b0, q0) = mark.unwrap_or_default();
    let ms = (sim.now - t0).max(1) as f64 / 1e6;
    let done = (sim.finished - n0) as f64;
    out.throughput = done / ms;
    out.batches = sim.batches - b0;
    out.slope = (sim.queue.len() as f64 - q0 as f64) / done.max(1.0);
    out.in_flight = held as f64 / busy.max(1) as f64;
    out.batch_ms = ms / (sim.batches - b0).max(1) as f64;
    out.end = sim.now as f64 / 1e6;
    // The items in the queue count with the time that they have waited so far. Without these items a growing
    // queue would look better.
    let now = sim.now;
    let mut l = std::mem::take(&mut sim.latencies);
    l.extend(sim.queue.iter().map(|(t, _)| (now - t) as f64 / 1e6));
    if !l.is_empty() {
        let at = ((l.len() - 1) as f64 * 0.99) as usize;
        out.mean = l.iter().sum::<f64>() / l.len() as f64;
        out.p99 = *l.select_nth_unstable_by(at, f64::total_cmp).1;
    }
    out
}
