//! Serves a model in virtual time: one boundary with any controller, the recorded arrivals or callers, and
//! drawn costs. It is a driver as others are: it holds a [`Boundary`] and obeys its steps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::callers::{Groups, Source};
use super::costs::{Costs, Noise};
use super::stretch::Piece;
use crate::Time;
use crate::boundary::{Boundary, Cut, Step};
use crate::controller::{BatchId, Load};
use crate::sim::Rng;

/// The most items that may wait. A controller that never catches up must not fill the memory.
const BACKLOG_MAX: usize = 1 << 21;

/// The number of steps between two reports to the caller of a replay.
const STEPS: u32 = 1 << 14;

/// The parts of a model that a replay needs.
pub(super) struct World<'a> {
    pub(super) costs: &'a Costs,
    pub(super) source: Source,
    pub(super) groups: &'a Groups,
    /// The recorded arrivals, in the order of their times.
    pub(super) arrivals: &'a [Piece],
    /// True if a batch takes all items of an arrival or none of them.
    pub(super) whole: bool,
    /// The bytes of an item of a caller.
    pub(super) item_bytes: u64,
    /// Measured delays of the driver, in nanoseconds; empty if it has none.
    pub(super) turns: &'a [u32],
    pub(super) wakes: &'a [u32],
    /// True if the driver reports arrivals, or that answered callers will call again.
    pub(super) tells_arrivals: bool,
    pub(super) tells_expected: bool,
}

/// The end and the results of a replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Played {
    /// The latencies of items in nanoseconds, each with the number of items that have it.
    pub(super) latencies: Vec<(u64, u32)>,
    pub(super) items: u64,
    pub(super) batches: u64,
    /// The items in batches of unknown cost, and of a cost that the trace tells only roughly.
    pub(super) outside: u64,
    pub(super) unsure: u64,
    /// The items in batches that the controller's limit cut, or would have cut inside of an arrival.
    pub(super) cut: u64,
    /// The time from the start to the end of the part that counts, in nanoseconds.
    pub(super) span_ns: u64,
    /// True if the backlog outgrew its bound.
    pub(super) overflowed: bool,
}

/// The length of a replay. The controller learns in the first round; the further rounds count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// The number of items in each round, and the number at its start that do not count.
    pub(super) items: u64,
    pub(super) warm: u64,
    /// The number of rounds that count.
    pub(super) rounds: u64,
}

struct Waiting {
    at: u64,
    items: u32,
    bytes: u32,
}

struct Running {
    id: BatchId,
    cost_ns: u64,
    members: Vec<(u64, u32)>,
}

struct Sim<'a> {
    world: &'a World<'a>,
    boundary: Boundary,
    rng: Rng,
    noise: Noise,
    now: u64,
    queue: VecDeque<Waiting>,
    backlog: Load,
    /// The returns of callers, each with their number, and the ends of batches, each with the index of its
    /// batch.
    returns: BinaryHeap<Reverse<(u64, u32)>>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    running: Vec<Option<Running>>,
    length: Length,
    round: u64,
    /// The next recorded arrival, the time by which the present round shifts all of them, and the items that
    /// have arrived in this round.
    next: usize,
    shift: u64,
    arrived: u64,
    /// The steps since the last report to the caller, and the items reported.
    steps: u32,
    reported: u64,
    /// The time before which the driver cannot start a batch.
    ready_at: u64,
    /// The time at which the driver polls again, and the backlog up to which it does not poll at an arrival.
    wake: u64,
    hold: u64,
    is_idle: bool,
    /// The time from which the present round counts; `None` before it.
    counts_from: Option<u64>,
    played: Played,
}

/// Serves `world` with `boundary`. Calls `goes_on` now and then with the number of items done since the last
/// call; returns `None` once it answers false.
pub(super) fn play(
    world: &World<'_>,
    boundary: Boundary,
    length: Length,
    seed: u32,
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> Option<Played> {
    let mut sim = Sim {
        world,
        boundary,
        noise: world.costs.noise_from(None),
        rng: Rng::new(seed),
        length,
        round: 0,
        now: 0,
        queue: VecDeque::new(),
        backlog: Load::default(),
        returns: BinaryHeap::new(),
        ends: BinaryHeap::new(),
        running: Vec::new(),
        next: 0,
        shift: 0,
        arrived: 0,
        steps: 0,
        reported: 0,
        ready_at: 0,
        wake: u64::MAX,
        hold: 0,
        is_idle: true,
        counts_from: None,
        played: Played::default(),
    };
    if let Source::Callers { callers, .. } = world.source {
        sim.answer(callers.into());
    }
    while sim.step() {
        if sim.steps >= STEPS {
            let all = sim.arrived + sim.round * length.items;
            let items = all.saturating_sub(sim.reported);
            sim.reported += items;
            sim.steps = 0;
            if !goes_on(items) {
                return None;
            }
        }
    }
    sim.end_count();
    Some(sim.played)
}

impl Sim<'_> {
    /// Moves to the next event; returns false once the replay is over.
    fn step(&mut self) -> bool {
        self.steps += 1;
        let is_closed = matches!(self.world.source, Source::Callers { .. });
        if self.arrived >= self.length.items && (is_closed || self.is_empty()) && !self.next_round()
        {
            return false;
        }
        if self.round > 0 && self.counts_from.is_none() && self.arrived >= self.length.warm {
            self.counts_from = Some(self.now);
        }
        let arrival = match is_closed {
            true => self.returns.peek().map_or(u64::MAX, |r| r.0.0),
            false => {
                let next = self.world.arrivals.get(self.next);
                next.map_or(u64::MAX, |piece| piece.at.saturating_add(self.shift))
            }
        };
        let end = self.ends.peek().map_or(u64::MAX, |r| r.0.0);
        let wake = match self.backlog.items {
            0 => u64::MAX,
            _ => self.wake,
        };
        let next = arrival.min(end).min(wake);
        if next == u64::MAX || self.queue.len() > BACKLOG_MAX {
            self.played.overflowed = true;
            return false;
        }
        self.now = self.now.max(next);
        if arrival == next {
            self.arrive(is_closed);
        } else if end == next {
            self.finish();
        } else {
            self.look();
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.backlog.items == 0 && self.ends.is_empty()
    }

    /// Begins the next round; returns false after the last one. The recorded arrivals and their noise begin
    /// again: in the first round that counts as in the trace, in later rounds with other noise.
    fn next_round(&mut self) -> bool {
        self.end_count();
        self.round += 1;
        (self.arrived, self.next) = (0, 0);
        let first = self.world.arrivals.first().map_or(0, |piece| piece.at);
        self.shift = self.now.saturating_sub(first).saturating_add(1);
        let rng = (self.round > 1).then_some(&mut self.rng);
        self.noise = self.world.costs.noise_from(rng);
        self.round <= self.length.rounds
    }

    fn end_count(&mut self) {
        if let Some(from) = self.counts_from.take() {
            self.played.span_ns += self.now - from;
        }
    }

    fn think(&mut self) -> u64 {
        let times = &self.world.groups.times;
        if let Some(last) = times.len().checked_sub(1) {
            return times[((self.rng.random() * times.len() as f64) as usize).min(last)];
        }
        match self.world.source {
            Source::Callers {
                delay_ns, think_ns, ..
            } => ((delay_ns + self.rng.exponential(1.0) * think_ns) as u64).max(1),
            _ => 1,
        }
    }

    /// Lets `calls` answered callers think, one by one or in groups.
    fn answer(&mut self, mut calls: u64) {
        while calls > 0 {
            let sizes = &self.world.groups.sizes;
            let at = (self.rng.random() * sizes.len() as f64) as usize;
            let size = u64::from(sizes.get(at).copied().unwrap_or(1)).clamp(1, calls);
            calls -= size;
            let t = self.now.saturating_add(self.think());
            self.returns.push(Reverse((t, size as u32)));
        }
    }

    fn arrive(&mut self, is_closed: bool) {
        let (items, bytes) = match is_closed {
            true => {
                let group = self.returns.pop().map_or(1, |r| r.0.1);
                let bytes = self.world.item_bytes.saturating_mul(group.into());
                (group, bytes.min(u32::MAX.into()) as u32)
            }
            false => {
                let piece = self.world.arrivals[self.next];
                self.next += 1;
                (piece.items, piece.bytes)
            }
        };
        self.arrived += u64::from(items);
        let load = Load::new(items.into(), bytes.into());
        self.backlog.items += load.items;
        self.backlog.bytes += load.bytes;
        if self.world.tells_arrivals {
            self.told(|b, now| b.arrived(now, load));
        }
        let at = self.now;
        let window = self.world.groups.window_ns;
        match self.queue.back_mut() {
            Some(last) if window > 0 && at - last.at < window => {
                last.items = last.items.saturating_add(items);
                last.bytes = last.bytes.saturating_add(bytes);
            }
            _ => self.queue.push_back(Waiting { at, items, bytes }),
        }
        if self.is_idle {
            self.is_idle = false;
            let delay = self.draw(self.world.wakes);
            self.ready_at = self.ready_at.max(self.now.saturating_add(delay));
            (self.wake, self.hold) = (self.ready_at, u64::MAX);
        }
        if self.backlog.items > self.hold {
            self.look();
        }
    }

    fn draw(&mut self, delays: &[u32]) -> u64 {
        let at = (self.rng.random() * delays.len() as f64) as usize;
        delays.get(at).map_or(0, |&ns| ns.into())
    }

    fn finish(&mut self) {
        let Some(Reverse((_, slot))) = self.ends.pop() else {
            return;
        };
        let Some(batch) = self.running[slot].take() else {
            return;
        };
        let (id, cost_ns) = (batch.id, batch.cost_ns);
        self.told(|b, now| b.done_with(now, id, cost_ns, true));
        let calls = batch.members.iter().map(|m| u64::from(m.1)).sum();
        if self.world.tells_expected {
            self.told(|b, now| b.expect(now, calls));
        }
        for (at, items) in batch.members {
            if self.counts_from.is_some_and(|from| at >= from) {
                self.played.latencies.push((self.now - at, items));
            }
        }
        if let Source::Callers { .. } = self.world.source {
            self.answer(calls);
        }
        if self.counts_from.is_some() {
            self.played.items += calls;
            self.played.batches += 1;
        }
        if self.boundary.running() == 0 {
            let turn = self.draw(self.world.turns);
            self.ready_at = self.now.saturating_add(turn);
        }
        match self.backlog.items > 0 {
            true => (self.wake, self.hold) = (self.ready_at.max(self.now), u64::MAX),
            false => self.is_idle = self.boundary.running() == 0,
        }
    }

    /// Starts the batches that the controller allows now, or sets the time at which the driver polls again.
    fn look(&mut self) {
        (self.wake, self.hold) = (u64::MAX, u64::MAX);
        while let Some(first) = self.queue.front() {
            if self.now < self.ready_at {
                self.wake = self.ready_at;
                return;
            }
            let (now, oldest) = (Time::from_nanos(self.now), Time::from_nanos(first.at));
            match self.boundary.poll(now, self.backlog, oldest) {
                Ok(Step::Take(limit)) => self.start(limit),
                Ok(Step::Hold { items, until }) => {
                    (self.wake, self.hold) = (until.as_nanos(), items);
                    return;
                }
                Ok(Step::Busy { until }) => {
                    self.wake = until.as_nanos().max(self.now.saturating_add(1));
                    return;
                }
                Ok(Step::Rest) | Err(_) => return,
            }
        }
        self.hold = 0;
    }

    fn start(&mut self, limit: Load) {
        let (mut taken, mut members, mut cut) = (Load::default(), Vec::new(), Cut::Drained);
        while let Some(first) = self.queue.front_mut() {
            let all = Load::new(first.items.into(), first.bytes.into());
            let each = (all.bytes / all.items.max(1)).max(1);
            let by_items = limit.items.saturating_sub(taken.items);
            let by_bytes = limit.bytes.saturating_sub(taken.bytes) / each;
            let mut n = all.items.min(by_items);
            if all.bytes > 0 {
                n = n.min(by_bytes);
            }
            if self.world.whole && n < all.items {
                n = 0;
            }
            if taken.items == 0 && n == 0 {
                n = if self.world.whole { all.items } else { 1 };
            }
            if n == 0 {
                cut = Cut::Items;
                break;
            }
            let n32 = n as u32;
            let bytes = match n == all.items {
                true => all.bytes,
                false => each.min(all.bytes / n.max(1)) * n,
            };
            members.push((first.at, n32));
            taken = Load::new(taken.items + n, taken.bytes + bytes);
            first.items -= n32;
            first.bytes -= bytes as u32;
            if first.items == 0 {
                self.queue.pop_front();
            } else {
                cut = Cut::Items;
                break;
            }
        }
        self.backlog.items -= taken.items;
        self.backlog.bytes -= taken.bytes;
        let now = Time::from_nanos(self.now);
        let Ok(id) = self.boundary.started(now, taken, self.backlog, cut) else {
            return;
        };
        let running = self.boundary.running();
        let drawn = self.world.costs.draw(taken.items, running, &mut self.noise);
        if self.counts_from.is_some() {
            self.played.outside += if drawn.is_known { 0 } else { taken.items };
            self.played.unsure += if drawn.is_sure { 0 } else { taken.items };
            let is_cut = cut == Cut::Items || taken.items > limit.items;
            self.played.cut += if is_cut { taken.items } else { 0 };
        }
        let batch = Running {
            id,
            cost_ns: drawn.cost_ns,
            members,
        };
        let slot = match self.running.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.running.push(None);
                self.running.len() - 1
            }
        };
        self.running[slot] = Some(batch);
        let end = self.now.saturating_add(drawn.took_ns);
        self.ends.push(Reverse((end, slot)));
    }

    /// Reports an event to the boundary. The simulation keeps to the order of calls, so that no report fails.
    fn told<E>(&mut self, report: impl FnOnce(&mut Boundary, Time) -> Result<(), E>) {
        let told = report(&mut self.boundary, Time::from_nanos(self.now));
        debug_assert!(told.is_ok());
    }
}
