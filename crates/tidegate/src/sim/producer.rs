//! A model of a producer that inserts into a shared queue, to try controllers of its buffer: each insertion
//! costs a claim plus a little for each item. Times are in microseconds.

use super::Rng;
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason};

/// The time that the simulated producer works before each item, in microseconds.
const WORK: f64 = 0.10;
/// The time that an insertion into the queue costs at any number of items, in microseconds.
const CLAIM: f64 = 0.25;
/// The time that each item of an insertion adds to its cost, in microseconds.
const ITEM: f64 = 0.01;
/// The interval of the tick on which the producer flushes its buffer, in microseconds, so that no item waits
/// longer.
const TICK: f64 = 1000.0;

/// The result of a simulated run of a producer, to compare controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProducerRun {
    /// The throughput of the producer, in million items a second.
    pub mops: f64,
    /// The median time from an item's arrival to its insertion into the queue, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile of the time from an item's arrival to its insertion, in microseconds.
    pub p99_us: f64,
    /// The mean number of items in an insertion into the queue, which share its cost.
    pub batch_mean: f64,
    /// The number of insertions into the queue in the run.
    pub batches: u64,
}

/// The cost of an insertion at any number of items, and of each item, in nanoseconds, for controllers that
/// know the cost from the start and need not learn it.
pub const COST_NS: (f64, f64) = (CLAIM * 1e3, ITEM * 1e3);

struct Producer<'a> {
    c: &'a mut dyn Controller,
    now: f64,
    buffer: Vec<f64>,
    latencies: Vec<f64>,
    insertions: u64,
    limit: u64,
}

impl Producer<'_> {
    fn at(&self) -> Time {
        Time::from_nanos((self.now * 1e3).round() as u64)
    }

    /// Inserts items. If the buffer is at its threshold, the controller decides how many, and may choose
    /// fewer items on purpose. A flush for any other reason inserts the whole buffer.
    fn flush(&mut self, reason: Reason) {
        let n = self.buffer.len() as u64;
        if n == 0 {
            return;
        }
        let oldest = Time::from_nanos((self.buffer[0] * 1e3).round() as u64);
        let d = self.c.on(
            self.at(),
            Event::Ready {
                backlog: Load::items(n),
                oldest,
            },
        );
        let take = if reason == Reason::Limit {
            d.limit_items.min(n)
        } else {
            n
        };
        let (batch, left) = (Load::items(take), Load::items(n - take));
        self.c.on(
            self.at(),
            Event::Started {
                id: BatchId::default(),
                batch,
                left,
                reason,
            },
        );
        let cost = CLAIM + ITEM * take as f64;
        self.now += cost;
        self.insertions += 1;
        for t in self.buffer.drain(..take as usize) {
            self.latencies.push(self.now - t);
        }
        let done = Event::Done {
            id: BatchId::default(),
            cost_ns: (cost * 1e3).round() as u64,
            ok: true,
        };
        self.limit = self.c.on(self.at(), done).limit_items;
    }
}

/// Simulates a Poisson process of `rate` arrivals a microsecond, `items` arrivals in all, through a buffer
/// with a threshold that `c` decides. The producer flushes the buffer at the threshold, on a tick of 1 ms,
/// and, if `flushes_idle` is true, before it blocks because it has no item.
pub fn produce(
    rate: f64,
    c: &mut dyn Controller,
    items: usize,
    flushes_idle: bool,
    seed: u32,
) -> ProducerRun {
    let mut rng = Rng::new(seed);
    let mut t = 0.0;
    let limit = c.on(Time::ZERO, Event::Blocking).limit_items;
    let latencies = Vec::with_capacity(items);
    let mut p = Producer {
        c,
        now: 0.0,
        buffer: Vec::new(),
        latencies,
        insertions: 0,
        limit,
    };
    let mut tick = TICK;
    for _ in 0..items {
        t += rng.exponential(rate);
        if t > p.now {
            if flushes_idle {
                p.flush(Reason::Blocking);
            }
            while tick < t {
                p.now = p.now.max(tick);
                p.flush(Reason::Linger);
                tick += TICK;
            }
            p.now = p.now.max(t);
        }
        while tick < p.now {
            p.flush(Reason::Linger);
            tick += TICK;
        }
        p.now += WORK;
        p.buffer.push(t);
        if p.buffer.len() as u64 >= p.limit {
            p.flush(Reason::Limit);
        }
    }
    p.flush(Reason::Closing);
    let l = &mut p.latencies;
    l.sort_unstable_by(f64::total_cmp);
    let q = |q: f64| l[(q * (l.len() - 1) as f64) as usize];
    ProducerRun {
        mops: items as f64 / p.now,
        p50_us: q(0.5),
        p99_us: q(0.99),
        batch_mean: items as f64 / p.insertions as f64,
        batches: p.insertions,
    }
}
