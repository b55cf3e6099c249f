//! Simulates a world in virtual time: one queue, one server and one controller.
//!
//! [`Sim`] moves one step at a time; `run` and `stability` measure it. Arrivals and noise come from two
//! generators, so every controller meets the same arrivals on the same seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::world::{Demand, Server, World};
use crate::Time;
use crate::controller::{BatchId, Controller, Event, Load, Reason, When};
use crate::sim::Rng;

/// The largest backlog of a run, in items; a larger backlog ends the run. A controller that never catches up
/// must not fill the memory.
pub(super) const BACKLOG_MAX: usize = 1 << 21;

enum What {
    Arrive(u32),
    Done(usize),
}

struct Running {
    id: BatchId,
    started: u64,
    members: Vec<(u64, u32)>,
}

/// The simulation of one world under one controller, which moves from one event to the next.
pub(super) struct Sim<'a> {
    world: &'a World,
    controller: &'a mut dyn Controller,
    rng: Rng,
    noise: Rng,
    /// The virtual time since the start of the simulation, in nanoseconds.
    pub(super) now: u64,
    seq: u64,
    /// The time of the next arrival in an open loop, in nanoseconds; `None` if no arrival is left.
    arrival: Option<u64>,
    /// The events that the simulation has scheduled: ends of batches, and calls of callers in a closed loop.
    schedule: BinaryHeap<Reverse<(u64, u64, usize)>>,
    whats: Vec<Option<What>>,
    free: Vec<usize>,
    /// The arrival time, in nanoseconds, and the caller of each item that waits, for its latency and its
    /// answer.
    pub(super) queue: VecDeque<(u64, u32)>,
    running: Vec<Option<Running>>,
    pub(super) in_flight: u32,
    /// The number of batches that the controller's last decision allowed to run at once.
    allowed: u32,
    slots: BinaryHeap<Reverse<u64>>,
    admitted: u64,
    rate: f64,
    next_id: u64,
    wake: Option<u64>,
    /// True if the simulation records latencies, which it does once learning is over.
    pub(super) records: bool,
    /// The latencies of items recorded so far, in milliseconds.
    pub(super) latencies: Vec<f64>,
    /// The number of items in the batches that have ended so far, for the throughput.
    pub(super) finished: u64,
    /// The number of batches that have ended so far, for the figures of the run.
    pub(super) batches: u64,
    /// The number of items of the largest batch so far, for the figures of the run.
    pub(super) largest: u64,
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round().max(1.0) as u64
}

impl<'a> Sim<'a> {
    /// Creates the simulation of `world` at time 0. `items` is the number of items of a [`Demand::Backlog`].
    pub(super) fn new(
        world: &'a World,
        seed: u32,
        capacity: f64,
        items: u64,
        controller: &'a mut dyn Controller,
    ) -> Self {
        let mut sim = Self {
            world,
            controller,
            rng: Rng::new(seed),
            noise: Rng::new(seed ^ 0x5eed),
            now: 0,
            seq: 0,
            arrival: None,
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
            records: false,
            latencies: Vec::new(),
            finished: 0,
            batches: 0,
            largest: 0,
        };
        if let Server::Slots(n) = world.server {
            sim.slots.extend((0..n).map(|_| Reverse(0)));
        }
        sim.begin(items);
        sim
    }

    fn begin(&mut self, items: u64) {
        match self.world.demand {
            Demand::Closed { callers, think } => {
                for caller in 0..callers {
                    let t = ns(self.rng.exponential(1.0) * think.max(1e-3));
                    self.push(t, What::Arrive(caller));
                }
            }
            Demand::Backlog => self.queue.extend((0..items).map(|_| (0, 0))),
            Demand::Full(items) => self.queue.extend((0..items).map(|_| (0, 0))),
            Demand::Open(_) | Demand::OnOff(..) => self.arrival = Some(self.gap()),
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

    fn on(&mut self, event: Event) -> crate::controller::Decision {
        self.controller.on(Time::from_nanos(self.now), event)
    }

    /// Moves the simulation to its next event. Returns false if no event is left, or if the backlog exceeds
    /// [`BACKLOG_MAX`].
    pub(super) fn step(&mut self) -> bool {
        let scheduled = self.schedule.peek().map_or(u64::MAX, |r| r.0.0);
        let arrival = self.arrival.unwrap_or(u64::MAX);
        let next = scheduled.min(arrival);
        if let Some(wake) = self.wake.filter(|&t| t < next) {
            self.wake = None;
            self.now = wake;
        } else if next == u64::MAX || self.queue.len() > BACKLOG_MAX {
            return false;
        } else if arrival <= scheduled {
            self.now = arrival;
            self.arrive(0);
            self.arrival = Some(self.gap());
        } else if let Some(Reverse((at, _, i))) = self.schedule.pop() {
            self.now = at;
            let what = self.whats[i].take();
            self.free.push(i);
            match what {
                Some(What::Arrive(caller)) => self.arrive(caller),
                Some(What::Done(slot)) => self.finish(slot),
                None => {}
            }
        }
        self.look();
        true
    }

    fn arrive(&mut self, caller: u32) {
        self.queue.push_back((self.now, caller));
        self.on(Event::Arrived(Load::items(1)));
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
        if !matches!(self.world.demand, Demand::Backlog | Demand::Full(_)) {
            self.on(Event::Expected { items: calls });
        }
        self.finished += calls;
        for (arrived, caller) in batch.members {
            if self.records {
                self.latencies.push((self.now - arrived) as f64 / 1e6);
            }
            if let Demand::Closed { think, .. } = self.world.demand {
                let t = self.now + ns(self.rng.exponential(1.0) * think);
                self.push(t, What::Arrive(caller));
            }
        }
    }

    /// Starts the batches that the controller allows now, or sets the time at which the simulation asks the
    /// controller again.
    fn look(&mut self) {
        self.wake = None;
        let most = self.world.in_flight_max;
        while !self.queue.is_empty() && self.in_flight < most {
            let stuck_at = self.controller.stuck_at().as_nanos();
            if self.in_flight >= self.allowed.clamp(1, most) && self.now < stuck_at {
                self.wake = (stuck_at < Time::NEVER.as_nanos()).then_some(stuck_at);
                return;
            }
            let backlog = Load::items(self.queue.len() as u64);
            let oldest = Time::from_nanos(self.queue[0].0);
            let d = self.on(Event::Ready { backlog, oldest });
            self.allowed = d.in_flight;
            if self.in_flight >= d.in_flight.clamp(1, most) {
                let stuck_at = self.controller.stuck_at().as_nanos();
                let is_ahead = stuck_at > self.now && stuck_at < Time::NEVER.as_nanos();
                self.wake = is_ahead.then_some(stuck_at);
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
        self.largest = self.largest.max(n);
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
        if matches!(self.world.demand, Demand::Full(_)) {
            let now = self.now;
            self.queue.extend((0..n).map(|_| (now, 0)));
            self.on(Event::Arrived(Load::items(n)));
        }
    }
}
