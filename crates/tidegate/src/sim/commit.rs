//! A model of group commit, to try controllers of a log's batches: callers send items to a log, and one flush
//! of the log serves all items of a batch. In a closed loop a caller sends its next item some time after its
//! last item was done.
//!
//! The unit of time is the cost `a` of a flush, simulated as a millisecond; one more item costs a/256.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Rng;
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason, When};

/// The number of nanoseconds of simulated time that stand for the unit of time, which is the cost of a flush.
const UNIT: f64 = 1e6;

/// The source of the items that the simulated log commits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Callers {
    /// Callers that each think for an exponential time of this mean between two calls.
    Closed {
        /// The number of callers in the closed loop.
        callers: u32,
        /// The mean time that a caller thinks between two calls, in units of a flush's cost.
        think: f64,
    },
    /// Poisson arrivals at this rate, which do not depend on the answers.
    Open {
        /// The mean number of arrivals in a unit of time.
        rate: f64,
    },
}

/// The result of a run of group commit, to compare controllers. The unit of its times is the cost of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommitRun {
    /// The mean number of items done in a unit of time.
    pub throughput: f64,
    /// The mean latency of an item, in units of a flush's cost.
    pub mean: f64,
    /// The 99th percentile of the latency of an item, in units of a flush's cost.
    pub p99: f64,
    /// The number of flushes divided by the number of items: the price of an item in flushes.
    pub flushes: f64,
    /// The number of items of the largest batch.
    pub batch_max: u64,
}

struct Loop {
    callers: Callers,
    rng: Rng,
    /// The arrivals to come, each as the bits of its time and its caller. Times are positive, so their bits
    /// have the same order as the times.
    coming: BinaryHeap<Reverse<(u64, u32)>>,
    next_open: f64,
}

impl Loop {
    fn new(callers: Callers, seed: u32) -> Self {
        let mut l = Self {
            callers,
            rng: Rng::new(seed),
            coming: BinaryHeap::new(),
            next_open: 0.0,
        };
        if let Callers::Closed { callers, .. } = callers {
            for i in 0..callers {
                let t = l.think() + l.rng.random() * 0.1;
                l.push(t, i);
            }
        }
        l
    }

    fn think(&mut self) -> f64 {
        match self.callers {
            Callers::Closed { think, .. } => self.rng.exponential(1.0 / think),
            Callers::Open { .. } => 0.0,
        }
    }

    fn push(&mut self, t: f64, caller: u32) {
        self.coming.push(Reverse((t.to_bits(), caller)));
    }

    fn peek(&mut self) -> f64 {
        if let (Callers::Open { rate }, true) = (self.callers, self.coming.is_empty()) {
            self.next_open += self.rng.exponential(rate);
            let t = self.next_open;
            self.push(t, 0);
        }
        self.coming
            .peek()
            .map_or(f64::INFINITY, |Reverse((t, _))| f64::from_bits(*t))
    }

    /// Moves the arrivals up to the time `upto` into the batch, and reports each arrival to the controller.
    fn take(&mut self, upto: f64, batch: &mut Vec<(f64, u32)>, c: &mut dyn Controller) {
        while self.peek() <= upto {
            let Some(Reverse((t, caller))) = self.coming.pop() else {
                return;
            };
            let t = f64::from_bits(t);
            batch.push((t, caller));
            c.on(at(t), Event::Arrived(Load::items(1)));
        }
    }
}

fn at(t: f64) -> Time {
    Time::from_nanos((t * UNIT).round() as u64)
}

/// Simulates the commits of `items` items. A batch has no limit on items, and `c` decides when each batch
/// starts. `sigma` is the lognormal noise of a flush's cost.
pub fn commit(
    callers: Callers,
    c: &mut dyn Controller,
    items: usize,
    sigma: f64,
    seed: u32,
) -> CommitRun {
    let mut l = Loop::new(callers, seed);
    let (mut free, mut flushes, mut done) = (0.0, 0u64, 0usize);
    let mut latencies = Vec::with_capacity(items);
    let mut running = None;
    let mut batch_max = 0;
    while done < items {
        let mut batch = Vec::new();
        l.take(free, &mut batch, c);
        if let Some(cost_ns) = running {
            c.on(
                at(free),
                Event::Done {
                    id: BatchId::default(),
                    cost_ns,
                    ok: true,
                },
            );
        }
        let mut start = if batch.is_empty() { l.peek() } else { free };
        l.take(start, &mut batch, c);
        start = hold(start, &mut batch, &mut l, c);
        let n = batch.len() as u64;
        c.on(
            at(start),
            Event::Started {
                id: BatchId::default(),
                batch: Load::items(n),
                left: Load::default(),
                reason: Reason::Drained,
            },
        );
        let noise = if sigma > 0.0 {
            l.rng.normal(sigma).exp()
        } else {
            1.0
        };
        let y = (1.0 + n as f64 / 256.0) * noise;
        let end = start + y;
        flushes += 1;
        batch_max = batch_max.max(n);
        for (t, caller) in batch {
            latencies.push(end - t);
            if let Callers::Closed { .. } = l.callers {
                let next = end + l.think();
                l.push(next, caller);
            }
        }
        done += n as usize;
        free = end;
        running = Some((y * UNIT).round() as u64);
    }
    let mut l = latencies.split_off(latencies.len() / 10);
    l.sort_unstable_by(f64::total_cmp);
    CommitRun {
        throughput: done as f64 / free,
        mean: l.iter().sum::<f64>() / l.len() as f64,
        p99: l[(0.99 * (l.len() - 1) as f64) as usize],
        flushes: flushes as f64 / done as f64,
        batch_max,
    }
}

/// Holds the batch back as long as the controller decides, and adds the arrivals of that time to the batch.
fn hold(mut start: f64, batch: &mut Vec<(f64, u32)>, l: &mut Loop, c: &mut dyn Controller) -> f64 {
    loop {
        let backlog = Load::items(batch.len() as u64);
        let oldest = at(batch[0].0);
        let until = match c.on(at(start), Event::Ready { backlog, oldest }).when {
            When::Now => return start,
            When::At(t) | When::After { until: t, .. } => t.as_nanos() as f64 / UNIT,
        };
        let next = l.peek();
        if next > until {
            return until.max(start);
        }
        start = next;
        l.take(start, batch, c);
    }
}
