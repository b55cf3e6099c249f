//! The default controller: it measures the costs of batches and puts the limit where larger batches gain
//! next to nothing.
//!
//! A line through the measured costs, a + b·n, proposes a limit, k·a/b on the grid {2^e, 1.5·2^e}. If that
//! limit cuts batches and a backlog stays, `search` tries other sizes and keeps the best; the reason is
//! [`Reason::Backlog`] while the queue would grow under the usual limit. The controller leaves a size that
//! was measured to be worse than a smaller one ([`Reason::Convexity`]). It cuts a backlog after a stall into
//! parts that make its mean latency least ([`Reason::DrainChunk`]). If callers return after a completion, it
//! waits for them if that pays ([`Reason::Anticipate`]). A producer's buffer, and every objective but
//! [`Objective::Lean`], goes without the search and keeps to the line. Every 16th full batch is then a
//! quarter as large, so that a and b stay known ([`Reason::Probe`]). After a change of the costs the
//! controller learns again.
//!
//! `cost` owns the fit (`buckets` holds its samples), `rate` the arrivals and the parts of a backlog,
//! `search` the trials of other sizes, `flight` the concurrency, `strain` size and concurrency together while
//! a backlog stays, `pace` the rate at which items end, `late` the detection of stuck batches, `profile`
//! anticipation, `callers` the count of callers that return, `inflation` the waiting of flushes that block no
//! sender, `budget` the cost of flushes against their budget, `grid` the sizes of limits. This file takes in
//! the events; `plan`, `wait` and `target` join all parts into decisions. The controller allocates nothing
//! after its creation.

mod buckets;
mod budget;
mod callers;
mod cost;
mod error;
mod flight;
mod grid;
mod inflation;
mod late;
mod pace;
mod plan;
mod profile;
mod rate;
mod search;
mod strain;
mod target;
mod wait;

pub use error::KneeError;

use buckets::Line;
use budget::Budget;
use callers::Callers;
use cost::Cost;
use flight::{Flight, Start};
use inflation::Inflation;
use late::Late;
use profile::{Gate, Profile};
use rate::{Drain, Rate};
use search::{Cut, Search};
use strain::{Point, Strain};

use super::{
    BatchId, Bounds, Controller, Decision, Event, Load, Objective, Reason, SizeCosts, Snapshot,
    When,
};
use crate::Time;

/// The initial limit of a controller that counts items, in items, before any cost is known; the bounds may
/// change it.
const START_ITEMS: u64 = 32;
/// The initial limit of a controller that counts bytes, in bytes, before any cost is known; the bounds may
/// lower it.
const START_BYTES: u64 = 64 << 10;
/// The factor by which the limit grows after a saturated batch until the sizes span enough to tell the fixed
/// cost a from the cost b of an item. The limit also never exceeds the largest size measured by more than
/// this factor.
const GROW: u64 = 2;
/// The factor in place of [`GROW`] for a limit in bytes. Such a limit starts close to its bound, so it may
/// grow faster.
const GROW_BYTES: u64 = 4;
/// The factors by which the controller reduces the usual batch size, so that it follows smaller batches:
/// after a batch that took the whole backlog (unless that batch was larger), and after a batch that the limit
/// cut.
const NATURAL: (f64, f64) = (0.97, 0.8);
/// The default constant k of the limit k·a/b: overhead is at most 1/(k+1) of the cost of a full batch.
const LEAN: f64 = 16.0;
/// The constant k with a latency objective. It is larger, because the latency budget is meant to set the
/// limit.
const AMPLE: f64 = 32.0;
/// The greatest number of batches that this controller runs at once, even if the bounds allow more. It bounds
/// the memory of the controller.
const IN_FLIGHT_MAX: u32 = 1024;
/// The upper bound on a cost that the user gives, in nanoseconds: eleven days. It keeps the arithmetic
/// finite.
const COST_MAX: f64 = 1e15;

/// The default controller: it measures the costs of batches and limits batches where larger ones would gain
/// next to nothing.
///
/// docs/controllers.md has the rule, each of its parts and a run. The state takes some 7 KiB, and some 200
/// bytes for each batch that may run at once; the controller allocates nothing after its creation.
///
/// ```
/// use tidegate::Time;
/// use tidegate::boundary::{Boundary, Step};
/// use tidegate::controller::{Bounds, Knee, Load, Objective};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A batch costs 1 ms and 10 us an item: beyond 1,600 items a larger batch gains next to nothing.
/// let knee = Knee::new(Objective::Lean, Bounds::default())?.with_known_cost(1e6, 1e4);
/// let mut boundary = Boundary::new(knee, Bounds::default())?;
/// let Step::Take(limit) = boundary.poll(Time::ZERO, Load::items(8000), Time::ZERO)? else {
///     return Err("a backlog does not wait".into());
/// };
/// assert_eq!(boundary.snapshot().limit, 1600);
/// assert!(limit.items <= 1600);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Knee {
    objective: Objective,
    k: f64,
    floor: u64,
    ceiling: u64,
    other: u64,
    unit: Unit,
    drains: bool,
    /// True if the user gave the costs, so that the controller learns none.
    known: bool,

    cost: Cost,
    rate: Rate,
    drain: Drain,
    search: Search,
    flight: Flight,
    strain: Strain,
    profile: Option<Profile>,
    inflation: Option<Inflation>,
    budget: Option<Budget>,

    now: Time,
    limit: f64,
    /// The limit in force within the bounds, as a whole number of items or bytes.
    standing: u64,
    /// True if the limit is on the grid of sizes. The controller then keeps it while the target is near.
    on_grid: bool,
    binding: Reason,
    saturated: u64,
    /// The size of the parts, in items or bytes, into which the backlog in progress is cut. It is kept until
    /// the backlog is gone.
    chunk: f64,
    /// The part of the backlog that the batch started last left behind, in items or bytes, to see whether the
    /// backlog stays.
    left: u64,
    /// The usual size of batches that took the whole backlog: the largest such batch of late. The limit stays
    /// above it, so that chance does not cut such batches.
    natural: f64,
    /// The time at which the oldest item of the backlog arrived, as the driver reported it last.
    oldest: Time,
    /// The time at which the last batch ended. If the oldest item arrived before it, the next batch had to
    /// wait for a running batch.
    freed: Time,
    /// True if the limit has reached the target that the costs give: the sizes measured so far do not hold it
    /// back.
    reached: bool,
    /// True if the driver sends [`Event::Ready`] before a batch starts, so that the controller knows the
    /// backlog, and not only that a buffer is full.
    asked: bool,
    /// True if the driver has not yet reported the backlog since the last batch, so that the next report is
    /// the first look at the arrivals since.
    fresh: bool,
    /// The plan behind the controller's last answer to [`Event::Ready`], with which the batch that follows is
    /// compared.
    plan: Plan,
    /// The running batches, to match each end with its start, and the number of them that count as stuck.
    open: Vec<Open>,
    stuck: u32,
    /// The mean cost of a batch of any size, as a moving average in nanoseconds, for use where no line fits
    /// the costs.
    flush_ns: f64,
    last_done: Time,
    /// The end of the last batch that the detection of changed costs has examined. A batch that started
    /// before it does not count again.
    judged: Time,
    last_started: Option<Time>,
    waiting_until: Option<Time>,
    gate: Gate,
    callers: Callers,
    infeasible: bool,
    infeasible_ns: u64,
}

/// The unit in which the controller fits costs and limits batches: items, or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Items,
    Bytes,
}

/// The limit for the next batch, and the reason for that limit.
#[derive(Clone, Copy, Debug)]
struct Plan {
    limit: u64,
    /// The limit of the next batch without a probe, and without cutting a backlog into parts.
    full: u64,
    reason: Reason,
    /// True if the controller could have cut the backlog into parts, whether or not it did, so that it can
    /// judge the cutting.
    divisible: bool,
}

/// A running batch, as the controller follows it from its start to its end.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: BatchId,
    n: u64,
    items: u64,
    plan: Plan,
    start: Start,
    late: Late,
    /// The backlog before the batch, with the items that known callers were then about to add.
    backlog: u64,
}

impl Knee {
    /// Creates a controller with this objective within these bounds. At first the controller knows no costs.
    ///
    /// The controller runs at most [`Bounds::in_flight`] batches at once, and never more than 1024. **Where
    /// [`Bounds::in_flight_max`] is `None`, as in [`Bounds::default`], that is one batch**, also where the
    /// handler of an actor allows several:
    /// [`Builder::in_flight_max`](crate::batcher::Builder::in_flight_max) and the bounds of the actor only
    /// lower it. The default controller of such an actor has `in_flight_max: Some(64)` and is
    /// [`anticipating`](Self::anticipating).
    ///
    /// # Errors
    /// Bounds that no batch can satisfy, or an objective outside its range.
    pub fn new(objective: Objective, bounds: Bounds) -> Result<Self, KneeError> {
        bounds.check()?;
        objective.check()?;
        let k = match objective {
            Objective::LatencyP99(_) => AMPLE,
            _ => LEAN,
        };
        let (floor, ceiling) = (bounds.items_min, bounds.items_max);
        let inflation = match objective {
            Objective::Inflation(share) => Some(Inflation::new(share)),
            _ => None,
        };
        let budget = match objective {
            Objective::CostBudget(share) => Some(Budget::new(share)),
            _ => None,
        };
        let limit = START_ITEMS.clamp(floor, ceiling);
        Ok(Self {
            objective,
            k,
            floor,
            ceiling,
            other: bounds.bytes_max,
            unit: Unit::Items,
            drains: true,
            known: false,
            cost: Cost::new(),
            rate: Rate::default(),
            drain: Drain::default(),
            search: Search::new(),
            flight: Flight::new(bounds.in_flight().min(IN_FLIGHT_MAX)),
            strain: Strain::new(),
            profile: None,
            inflation,
            budget,
            now: Time::ZERO,
            limit: limit as f64,
            standing: limit,
            on_grid: false,
            binding: Reason::Probe,
            saturated: 0,
            chunk: 0.0,
            left: 0,
            asked: false,
            reached: false,
            natural: 0.0,
            oldest: Time::ZERO,
            freed: Time::ZERO,
            fresh: true,
            plan: Plan {
                limit,
                full: limit,
                reason: Reason::Probe,
                divisible: false,
            },
            open: Vec::with_capacity(bounds.in_flight().min(IN_FLIGHT_MAX) as usize),
            stuck: 0,
            flush_ns: 0.0,
            last_done: Time::ZERO,
            judged: Time::ZERO,
            last_started: None,
            waiting_until: None,
            gate: Gate::new(),
            callers: Callers::default(),
            infeasible: false,
            infeasible_ns: 0,
        })
    }

    /// Makes the controller wait for callers that return after a completion, where that pays. This suits
    /// boundaries that have calls as items: the caller waits for the answer and then sends the next call. It
    /// works with one batch at a time and with several in flight, where a batch waits for its share of the
    /// callers while others run. The default controller of an actor has this setting; a `Knee` given to an
    /// actor needs the call. The setting needs [`Event::Arrived`]. With [`Objective::LatencyP99`],
    /// [`Objective::CostBudget`] and [`Objective::Inflation`] no batch waits for callers.
    #[must_use]
    pub fn anticipating(self) -> Self {
        Self {
            profile: Some(Profile::default()),
            ..self
        }
    }

    /// Makes the controller fit and limit bytes instead of items.
    ///
    /// # Errors
    /// If the bounds leave bytes unbounded.
    pub fn in_bytes(self) -> Result<Self, KneeError> {
        let ceiling = self.other;
        if ceiling == u64::MAX {
            return Err(KneeError::BytesUnbounded);
        }
        let limit = START_BYTES.min(ceiling);
        let plan = Plan {
            limit,
            full: limit,
            reason: Reason::Probe,
            divisible: false,
        };
        Ok(Self {
            unit: Unit::Bytes,
            floor: 1,
            ceiling,
            other: self.ceiling,
            limit: limit as f64,
            standing: limit,
            plan,
            ..self
        })
    }

    /// Sets the cost of a batch of n to `a_ns + b_ns * n` for good, so that the controller learns no costs.
    /// This suits a cost that another component pays and the driver cannot measure. `a_ns` counts as at least
    /// 1e-3 and `b_ns` as at least 1e-6 nanoseconds, and so does a NaN; both count as at most 1e15, eleven
    /// days.
    #[must_use]
    pub fn with_known_cost(mut self, a_ns: f64, b_ns: f64) -> Self {
        self.known = true;
        // A NaN as a cost counts as the least value, because every comparison with it is false.
        let within = |ns: f64, least| if ns > least { ns.min(COST_MAX) } else { least };
        self.cost.fit = Some(Line::known(within(a_ns, 1e-3), within(b_ns, 1e-6)));
        self.cost.identified = true;
        self.retarget_known();
        self
    }

    /// Replaces the constant k of the limit k·a/b, which bounds the overhead to 1/(k+1) of the cost of a full
    /// batch. The default is 16, and 32 with a latency objective. Values that are not above 0 are ignored.
    #[must_use]
    pub fn with_k(mut self, k: f64) -> Self {
        if k > 0.0 && k.is_finite() {
            self.k = k;
            self.retarget_known();
        }
        self
    }

    /// Makes the controller take a backlog in one go up to the limit, instead of cutting it for least mean
    /// latency.
    #[must_use]
    pub fn without_drain_chunks(self) -> Self {
        Self {
            drains: false,
            ..self
        }
    }

    /// Returns the objective that the controller pursues, as its user set it.
    #[must_use]
    pub const fn objective(&self) -> Objective {
        self.objective
    }

    fn amount(&self, load: Load) -> u64 {
        match self.unit {
            Unit::Items => load.items,
            Unit::Bytes => load.bytes.max(1),
        }
    }

    // ---- the controller's decisions about the next batch

    fn ready(&mut self, now: Time, load: Load, oldest: Time) -> Decision {
        if !self.flight.is_single() {
            let (flight, stuck, strain) = (&mut self.flight, &mut self.stuck, &mut self.strain);
            late::mark(&mut self.open, now, |items| {
                strain.gone();
                flight.gone(now.as_nanos(), items);
                *stuck += 1;
            });
        }
        let backlog = self.amount(load);
        self.asked = true;
        self.oldest = oldest;
        let first = std::mem::take(&mut self.fresh);
        self.rate.look(now.as_nanos(), backlog, first);
        self.plan = self.plan(backlog);
        let wait = self.wait(now, load, oldest);
        self.waiting_until = wait.map(|(until, _)| until);
        match wait {
            Some((until, reason)) => self.decision(self.plan.limit, When::At(until), reason),
            None => self.decision(self.plan.limit, When::Now, self.plan.reason),
        }
    }

    fn decision(&self, limit: u64, when: When, reason: Reason) -> Decision {
        let (limit_items, limit_bytes) = match self.unit {
            Unit::Items => (limit, self.other),
            Unit::Bytes => (self.other, limit),
        };
        Decision {
            limit_items,
            limit_bytes,
            in_flight: self.allowed().saturating_add(self.stuck),
            when,
            reason,
        }
    }

    /// Returns how many batches the controller now allows to run at once.
    fn allowed(&self) -> u32 {
        self.strain
            .point()
            .map_or_else(|| self.flight.allowed(), |point| point.number)
    }

    /// Puts a limit on the size of batches into force, within the bounds.
    fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
        self.standing = self.bounded(limit);
    }

    fn bounded(&self, limit: f64) -> u64 {
        (limit as u64).max(self.floor).min(self.ceiling)
    }

    const fn growth(&self) -> u64 {
        match self.unit {
            Unit::Items => GROW,
            Unit::Bytes => GROW_BYTES,
        }
    }

    /// Returns whether measured costs set the limit. Until enough costs are known, the limit only grows.
    const fn targeted(&self) -> bool {
        self.cost.identified || self.cost.convex.is_some()
    }

    const fn drains_backlogs(&self) -> bool {
        self.drains
            && !matches!(
                self.objective,
                Objective::Throughput | Objective::Inflation(_)
            )
    }

    /// Returns the number of items that known callers are about to add to the backlog, for the size of the
    /// next batch.
    fn coming(&self) -> u64 {
        match (self.unit, &self.profile) {
            (Unit::Items, Some(_)) => self.callers.missing().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns whether a search for size and concurrency (`strain`) may begin once a backlog stays.
    fn may_strain(&self) -> bool {
        self.asked
            && !self.known
            && self.unit == Unit::Items
            && matches!(self.objective, Objective::Lean)
            && !self.flight.climbs()
            && self.callers.same().is_none()
    }

    // ---- events from which the controller learns

    fn arrived(&mut self, now: Time, load: Load) {
        self.rate.arrived(self.amount(load));
        self.callers.arrived(load.items);
        if let (Some(a), Some(p)) = (self.flush_cost(), &mut self.profile) {
            p.arrived(now.since(self.last_done) as f64, a, load.items);
        }
    }

    fn started(&mut self, now: Time, id: BatchId, batch: Load, left: Load) {
        let n = self.amount(batch);
        let left = if left.items == 0 {
            0
        } else {
            self.amount(left)
        };
        let backlog = n.saturating_add(left);
        let saturated = if self.fresh {
            // The driver sent no `Ready`: the limit in force is the size of a buffer, which was full or not.
            self.rate.look(now.as_nanos(), backlog, true);
            self.plan = self.unasked();
            n >= self.plan.limit && self.cost.verify.is_none()
        } else {
            backlog >= self.plan.full && self.cost.verify.is_none_or(|v| backlog < v)
        };
        if saturated {
            self.saturated += 1;
            self.cost.excite = self.cost.excite.saturating_sub(1);
        }
        if let Some(i) = &mut self.inflation {
            i.flushed(batch.items);
        }
        let is_part = self.plan.reason == Reason::DrainChunk && n >= self.plan.limit;
        self.drain.started(n, backlog, is_part, self.plan.divisible);
        let saved = self.flush_cost().unwrap_or(0.0);
        self.gate.started(now.as_nanos(), batch.items, saved);
        self.callers.started();
        let coming = self.coming();
        // A batch with this id runs already, or more batches run than the controller allowed. Either way the
        // driver will hardly report the end of the earlier batch, so the controller forgets that batch.
        let again = self.open.iter().position(|open| open.id == id);
        let full = (self.open.len() == IN_FLIGHT_MAX as usize).then_some(0);
        if let Some(at) = again.or(full) {
            let lost = self.open.remove(at);
            if lost.late.is_stuck() {
                self.stuck -= 1;
            } else {
                self.flight.gone(now.as_nanos(), lost.items);
                self.strain.gone();
            }
        }
        let start = if self.flight.is_single() {
            // With a single batch at a time there is no concurrency to find, so the search takes no note of
            // the batch.
            Start::default()
        } else {
            let waited = self.oldest < self.freed;
            self.flight.callers(self.callers.same());
            let point = Point {
                number: self.flight.number(),
                limit: self.plan.full,
            };
            let may = self.may_strain();
            if let Some(found) = self.strain.started(n, left, point, may) {
                // From now on batches run at another concurrency, which changes their costs.
                self.cost.forget();
                self.search.forget();
                self.flight.put(found.number);
                self.search.adopt(found.limit);
                self.retarget();
            }
            self.flight
                .started(now.as_nanos(), batch.items, left, waited)
        };
        let open = Open {
            id,
            n,
            items: batch.items,
            plan: self.plan,
            start,
            late: Late::new(now, self.usual(n)),
            backlog: backlog.saturating_add(coming),
        };
        self.open.push(open);
        self.left = left;
        self.rate.left(left);
        if let (Some(budget), Some(last)) = (&mut self.budget, self.last_started) {
            budget.started(now.since(last));
        }
        self.last_started = Some(now);
        self.fresh = true;
        self.waiting_until = None;
    }

    fn done(&mut self, now: Time, id: BatchId, cost_ns: u64, ok: bool) {
        self.last_done = now;
        if let Some(p) = &mut self.profile {
            p.completed();
        }
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let open = self.open.swap_remove(at);
        let Open {
            n,
            plan,
            start,
            backlog,
            ..
        } = open;
        self.freed = now;
        let alone = match self.flight.is_single() {
            true => Some(cost_ns as f64),
            false => self.alone(now, &open, cost_ns as f64, ok),
        };
        let Some(cost_ns) = alone.filter(|_| ok) else {
            return;
        };
        self.check_budget(cost_ns);
        if self.known {
            return;
        }
        let gain = if self.flush_ns > 0.0 { 1.0 / 16.0 } else { 1.0 };
        self.flush_ns += (cost_ns - self.flush_ns) * gain;
        let resets = self.cost.resets;
        let counts = self.flight.is_single() || start.is_after(self.judged);
        if counts {
            self.judged = now;
        }
        self.cost.observe(n, cost_ns, counts);
        if self.cost.resets != resets {
            self.search.forget();
            self.flight.forget();
        }
        if backlog <= n || n < plan.limit {
            self.natural = (self.natural * NATURAL.0).max(n as f64);
            self.search.relieved();
        } else if !matches!(plan.reason, Reason::DrainChunk | Reason::Shared) && self.looks_up() {
            self.natural *= NATURAL.1;
            let cut = Cut {
                n,
                cost_ns,
                backlog,
                left: backlog - n,
                arriving: self.rate.per_ns().unwrap_or(0.0) / self.flight.works(),
                suspect: self.cost.is_suspect(),
            };
            let bounds = (self.floor, self.ceiling);
            self.search
                .cut(cut, plan.full, bounds, &self.cost.buckets, self.cost.noise);
        }
        if self.targeted() || self.search.found().is_some() {
            self.retarget();
        } else if self.cost.fit.is_none() && n >= plan.limit && n >= plan.full {
            self.set_limit(n.saturating_mul(self.growth()).min(self.ceiling) as f64);
            self.binding = Reason::Probe;
        }
        self.check_feasible();
    }

    /// Returns the cost that the batch would have had alone, if it can be estimated. Also learns how much
    /// other running batches slowed the batch down. O(running batches).
    fn alone(&mut self, now: Time, done: &Open, cost_ns: f64, ok: bool) -> Option<f64> {
        for open in &mut self.open {
            if open.start.is_before(done.start) {
                open.late.passed();
            }
        }
        if done.late.is_stuck() {
            self.stuck -= 1;
            return Some(cost_ns / self.flight.slowed());
        }
        let ran = self.flight.done(now.as_nanos(), done.items, ok, done.start);
        if ok {
            let most = Point {
                number: self.flight.most(),
                limit: self.ceiling,
            };
            let (noise, least) = (self.cost.noise, self.floor);
            self.strain
                .done(now.as_nanos(), done.items, cost_ns, noise, least, most);
        } else {
            self.strain.gone();
        }
        if !ok || self.strain.point().is_some() {
            return None;
        }
        let usual = self.cost.alone(done.n as f64);
        let slowdown = self.flight.trusted(ran);
        let limit = self.standing;
        self.flight.learn(
            ran,
            usual.map(|usual| (cost_ns, usual)),
            self.cost.noise,
            limit,
            &self.cost,
        );
        slowdown.map(|slowdown| cost_ns / slowdown)
    }

    /// Returns the nanoseconds that a batch of `n` items usually takes at the concurrency in force; `None`
    /// before the first measurement, or if only one batch may run at a time.
    fn usual(&self, n: u64) -> Option<f64> {
        if self.flight.is_single() {
            return None;
        }
        let measured = (self.flush_ns > 0.0).then_some(self.flush_ns);
        let usual = self.cost.guess(n as f64).or(measured)?;
        Some(usual * self.flight.slowed())
    }

    fn tick(&mut self, now: Time) -> Time {
        let now = now.max(self.now);
        if self.infeasible {
            self.infeasible_ns = self.infeasible_ns.saturating_add(now.since(self.now));
        }
        self.now = now;
        now
    }
}

impl Default for Knee {
    /// Returns a controller with the objective [`Objective::Lean`], for 1 to 8192 items, one batch at a time,
    /// not [anticipating](Self::anticipating).
    fn default() -> Self {
        Self::new(Objective::Lean, Bounds::default())
            .unwrap_or_else(|_| unreachable!("the defaults are valid"))
    }
}

impl Controller for Knee {
    fn stuck_at(&self) -> Time {
        if self.flight.is_single() {
            return Time::NEVER;
        }
        late::stuck_at(&self.open)
    }

    fn on(&mut self, now: Time, event: Event) -> Decision {
        let now = self.tick(now);
        match event {
            Event::Ready { backlog, oldest } => return self.ready(now, backlog, oldest),
            Event::Arrived(load) => self.arrived(now, load),
            Event::Started {
                id, batch, left, ..
            } => self.started(now, id, batch, left),
            Event::Done { id, cost_ns, ok } => self.done(now, id, cost_ns, ok),
            Event::Replied {
                items,
                batch,
                took_ns,
            } => {
                if let Some(i) = &mut self.inflation {
                    i.replied(items, batch, took_ns as f64);
                }
            }
            Event::Expected { items } => self.callers.answered(items),
            Event::Blocking => {}
        }
        let plan = self.unasked();
        self.decision(plan.limit, When::Now, plan.reason)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            limit: self.standing,
            binding: Some(self.binding),
            model: self.cost.model(),
            rate_per_s: self.rate.per_ns().unwrap_or(0.0) * 1e9,
            resets: self.cost.resets,
            clipped: self.cost.clipped,
            infeasible_ns: self.infeasible_ns,
            infeasible: self.infeasible,
            in_bytes: self.unit == Unit::Bytes,
            ..Snapshot::default()
        }
    }

    fn size_costs(&self) -> SizeCosts {
        self.cost.buckets.size_costs()
    }
}
