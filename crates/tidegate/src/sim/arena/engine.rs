//! One queue, one server, one controller, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::world::{Demand, Server, World};
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason, When};
use crate::sim::Rng;

/// How long a run lasts.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Milliseconds at the beginning that are left out of the results, for learning.
    pub warm_ms: f64,
    /// Then it ends after so many batches,
    pub batches: u64,
    /// or so many items.
    pub items: u64,
}

/// The callers' view of a run, without the time for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Items a millisecond.
    pub throughput: f64,
    /// Mean latency, from the arrival to the end of the batch, in milliseconds.
    pub mean: f64,
    /// Its 99th percentile.
    pub p99: f64,
    /// Batches in the part that counts.
    pub batches: u64,
    /// Items in the largest batch of it.
    pub batch_max: u64,
    /// The largest backlog of the whole run.
    pub backlog_max: u64,
    /// Growth of the backlog over the part that counts, as a share of the arrivals in it.
    pub slope: f64,
    /// Mean number of batches that run while any does.
    pub in_flight: f64,
    /// Mean milliseconds from one batch to the next.
    pub batch_ms: f64,
    /// The end of the run, in milliseconds.
    pub end: f64,
}

enum What {
    Arrive(u32),
    Done(usize),
}

struct Running {
    id: BatchId,
    started: u64,
    members: Vec<(u64, u32)>,
}

struct Sim<'a> {
    world: &'a World,
    controller: &'a mut dyn Controller,
    rng: Rng,
    noise: Rng,
    now: u64,
    seq: u64,
    schedule: BinaryHeap<Reverse<(u64, u64, usize)>>,
    whats: Vec<Option<What>>,
    free: Vec<usize>,
    queue: VecDeque<(u64, u32)>,
    running: Vec<Option<Running>>,
    in_flight: u32,
    /// How many the last decision allowed.
    allowed: u32,
    slots: BinaryHeap<Reverse<u64>>,
    admitted: u64,
    rate: f64,
    next_id: u64,
    wake: Option<u64>,
    latencies: Vec<f64>,
    finished: u64,
    batches: u64,
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round().max(1.0) as u64
}

/// Lets `controller` serve `world`, with arrivals and noise of `seed`; `capacity` is what shares of the load
/// are relative to, in items a millisecond. O(items · log(running)) time, O(items) memory.
pub fn run(
    world: &World,
    seed: u32,
    capacity: f64,
    span: Span,
    controller: &mut dyn Controller,
) -> Outcome {
    let mut sim = Sim {
        world,
        controller,
        rng: Rng::new(seed),
        noise: Rng::new(seed ^ 0x5eed),
        now: 0,
        seq: 0,
        schedule: BinaryHeap::new(),
        whats: Vec::new(),
        free: Vec::new(),
        queue: VecDeque::new(),
        running: Vec::new(),
        in_flight: 0,
        allowed: 1,
        slots: BinaryHeap::new(),
        admitted: 0,
        rate: capacity,
        next_id: 0,
        wake: None,
        latencies: Vec::new(),
        finished: 0,
        batches: 0,
    };
    if let Server::Slots(n) = world.server {
        sim.slots.extend((0..n).map(|_| Reverse(0)));
    }
    sim.begin(span.items);
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
            sim.latencies.clear();
            (busy, held) = (0, 0);
            out.batch_max = 0;
        }
        if let Some(n) = sim.last_batch() {
            out.batch_max = out.batch_max.max(n);
        }
    }
    let (t0, n0, b0, q0) = mark.unwrap_or_default();
    let ms = (sim.now - t0).max(1) as f64 / 1e6;
    let done = (sim.finished - n0) as f64;
    out.throughput = done / ms;
    out.batches = sim.batches - b0;
    out.slope = (sim.queue.len() as f64 - q0 as f64) / done.max(1.0);
    out.in_flight = held as f64 / busy.max(1) as f64;
    out.batch_ms = ms / (sim.batches - b0).max(1) as f64;
    out.end = sim.now as f64 / 1e6;
    // Items in the queue have waited at least this long: a queue that grows would look better without them.
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

impl Sim<'_> {
    fn begin(&mut self, items: u64) {
        match self.world.demand {
            Demand::Closed { callers, think } => {
                for caller in 0..callers {
                    let t = ns(self.rng.exponential(1.0) * think.max(1e-3));
                    self.push(t, What::Arrive(caller));
                }
            }
            Demand::Backlog => self.queue.extend((0..items).map(|_| (0, 0))),
            Demand::Open(_) | Demand::OnOff(..) => {
                let t = self.gap();
                self.push(t, What::Arrive(0));
            }
        }
        if !self.queue.is_empty() {
            self.look();
        }
    }

    fn gap(&mut self) -> u64 {
        let share = match self.world.demand {
            Demand::Open(share) => share,
            Demand::OnOff(span, high, low) => {
                let turn = (self.now as f64 / 1e6 / span) as u64;
                if turn.is_multiple_of(2) { high } else { low }
            }
            _ => 1.0,
        };
        self.now + ns(self.rng.exponential(share * self.rate))
    }

    fn push(&mut self, at: u64, what: What) {
        let i = match self.free.pop() {
            Some(i) => {
                self.whats[i] = Some(what);
                i
            }
            None => {
                self.whats.push(Some(what));
                self.whats.len() - 1
            }
        };
        self.seq += 1;
        self.schedule.push(Reverse((at, self.seq, i)));
    }

    fn last_batch(&self) -> Option<u64> {
        self.running
            .iter()
            .flatten()
            .map(|r| r.members.len() as u64)
            .max()
    }

    fn on(&mut self, event: Event) -> crate::controller::Decision {
        self.controller.on(Time::from_nanos(self.now), event)
    }

    /// The next thing that happens; false at the end of the world.
    fn step(&mut self) -> bool {
        let next = self.schedule.peek().map(|r| r.0.0);
        if let Some(wake) = self.wake
            && next.is_none_or(|t| wake < t)
        {
            self.wake = None;
            self.now = wake;
            self.look();
            return true;
        }
        let Some(Reverse((at, _, i))) = self.schedule.pop() else {
            return false;
        };
        self.now = at;
        let what = self.whats[i].take();
        self.free.push(i);
        match what {
            Some(What::Arrive(caller)) => {
                self.queue.push_back((at, caller));
                self.on(Event::Arrived(Load::items(1)));
                if matches!(self.world.demand, Demand::Open(_) | Demand::OnOff(..)) {
                    let t = self.gap();
                    self.push(t, What::Arrive(0));
                }
            }
            Some(What::Done(slot)) => self.finish(slot),
            None => {}
        }
        self.look();
        true
    }

    fn finish(&mut self, slot: usize) {
        let Some(batch) = self.running[slot].take() else {
            return;
        };
        self.in_flight -= 1;
        self.batches += 1;
        let cost_ns = self.now - batch.started;
        let decision = self.on(Event::Done {
            id: batch.id,
            cost_ns,
            ok: true,
        });
        self.allowed = decision.in_flight;
        let calls = batch.members.len() as u64;
        if self.world.demand != Demand::Backlog {
            self.on(Event::Expected { items: calls });
        }
        self.finished += calls;
        for (arrived, caller) in batch.members {
            self.latencies.push((self.now - arrived) as f64 / 1e6);
            if let Demand::Closed { think, .. } = self.world.demand {
                let t = self.now + ns(self.rng.exponential(1.0) * think);
                self.push(t, What::Arrive(caller));
            }
        }
    }

    /// Starts what the controller lets start.
    fn look(&mut self) {
        self.wake = None;
        let most = self.world.in_flight_max;
        while !self.queue.is_empty() && self.in_flight < self.allowed.clamp(1, most) {
            let backlog = Load::items(self.queue.len() as u64);
            let oldest = Time::from_nanos(self.queue[0].0);
            let d = self.on(Event::Ready { backlog, oldest });
            self.allowed = d.in_flight;
            if self.in_flight >= d.in_flight.clamp(1, most) {
                return;
            }
            let until = match d.when {
                When::Now => None,
                When::After { items, .. } if backlog.items >= items => None,
                When::At(t) | When::After { until: t, .. } => Some(t.as_nanos()),
            };
            if let Some(until) = until.filter(|&t| t > self.now) {
                self.wake = Some(until);
                return;
            }
            let n = d
                .limit_items
                .clamp(1, self.world.items_max)
                .min(backlog.items);
            self.start(n, d.reason);
        }
    }

    fn start(&mut self, n: u64, reason: Reason) {
        let members: Vec<_> = self.queue.drain(..n as usize).collect();
        let left = Load::items(self.queue.len() as u64);
        let reason = if left.items == 0 {
            Reason::Drained
        } else {
            reason
        };
        self.next_id += 1;
        let id = BatchId::new(self.next_id);
        self.on(Event::Started {
            id,
            batch: Load::items(n),
            left,
            reason,
        });
        let t_ms = self.now as f64 / 1e6;
        let y =
            ns(self.world.mean(n, t_ms, self.in_flight) * self.world.noise.draw(&mut self.noise));
        let end = match self.world.server {
            Server::Slots(_) => {
                let Some(Reverse(free)) = self.slots.pop() else {
                    return;
                };
                let end = free.max(self.now) + y;
                self.slots.push(Reverse(end));
                end
            }
            Server::Admits(ms) => {
                let at = self.admitted.max(self.now);
                self.admitted = at + ns(ms);
                at + y
            }
            _ => self.now + y,
        };
        let running = Running {
            id,
            started: self.now,
            members,
        };
        let slot = match self.running.iter().position(Option::is_none) {
            Some(slot) => {
                self.running[slot] = Some(running);
                slot
            }
            None => {
                self.running.push(Some(running));
                self.running.len() - 1
            }
        };
        self.in_flight += 1;
        self.push(end, What::Done(slot));
    }
}
