//! Searches for the concurrency (`number`), the number of batches that run at once. The search tries one
//! concurrency after the other and judges it by how much the batches slow each other down.
//!
//! The controller knows nothing of the server behind the handler. A batch that cost more than batches of its
//! size cost alone was slowed down by the others, so each concurrency c has a *slowdown* r(c), with r(1) = 1.
//! A server really works at c / r(c) batches at once. For a server with s workers that is c up to s, and s
//! from there on (Little's law); for a server behind one lock it is 1. Unlike throughput, the slowdown is the
//! same at any load, so scattered arrivals do not blur it.
//!
//! c batches at once share the items that are in the system now, so they are smaller, and that gives each
//! concurrency a throughput. The concurrency in force is the largest within 3 % of the best throughput, and
//! not past the point from which on the server does no more work.
//!
//! A trial of a concurrency takes a block of batches. The first of them do not count, because they meet
//! batches of the previous concurrency. At first the concurrency doubles as long as one turnover of batches
//! shows that this pays. Then the search measures the double, the values between and, ever more rarely, the
//! neighbours, until the slowdown is known to 2.5 % or clearly better or worse. After a change of the costs
//! every measurement is relative to the concurrency in force, and the search measures all others again.

mod closed;
mod slow;

use closed::Closed;
use slow::{KNOWN, LASTING, Slow};

use super::cost::Cost;
use crate::Time;

/// The least relative difference of two throughputs that counts as a gain or a loss.
const WORTH: f64 = 0.03;
/// The least and the greatest number of batches that a trial of a concurrency counts, by the scatter of
/// costs.
const BLOCK: (f64, f64) = (8.0, 128.0);
/// The relative error at which a slowdown is known well enough, so that the trial of its concurrency ends.
const ROUGH: f64 = 0.025;
/// The relative error in place of [`ROUGH`] during the climb to larger concurrencies, where trials are short.
const CLIMB_ROUGH: f64 = 0.1;
/// The largest slowdown of a concurrency, relative to the smaller concurrencies, at which the climb to larger
/// concurrencies continues.
const CLIMB_SLOWED: f64 = 1.21;
/// The largest relative error of a slowdown that the climb allows for: a less certain slowdown raises its
/// bound on the slowdown no further.
const CLIMB_DOUBT: f64 = 0.25;
/// A batch counts for the concurrency on trial if the mean number of batches that ran during it differs from
/// that concurrency by less than 1 - `NEAR`, a fifth.
const NEAR: f64 = 0.8;
/// The rest between two trials of neighbouring concurrencies, in blocks of batches: the first rest after a
/// change of the concurrency or of the costs, and the longest rest. Right after the climb the search does not
/// rest.
const REST: (u32, u32) = (4, 64);
/// The greatest number of batches in a trial during the climb, so that the climb is quick, unless more
/// batches than that may run at once.
const CLIMB_MAX: f64 = 12.0;
/// A trial without a result ends after this many times the number of batches planned for it, so that no trial
/// lasts for ever.
const PATIENCE: u32 = 4;
/// If more than this share of batches had to wait because as many ran as are allowed, more batches at once
/// may help.
const SHORT: f64 = 0.1;

/// A trial of a concurrency, to measure its slowdown: the concurrency, and the number of batches that ended
/// during the trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    number: u32,
    batches: u32,
}

/// The state of the search at the start of a batch, to compare with the state at the end of the batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    at: u64,
    area: f64,
    /// The number of changes of the concurrency before the batch started, to find out later whether another
    /// change followed.
    turn: u32,
    /// True if the concurrency was in force for so long that no batch of another concurrency ran any more.
    /// Only then does the cost count for that concurrency.
    is_steady: bool,
}

impl Start {
    pub(super) const fn is_after(self, now: Time) -> bool {
        self.at >= now.as_nanos()
    }

    pub(super) const fn is_before(self, other: Self) -> bool {
        self.at < other.at
    }
}

/// The circumstances in which a batch ran, by which the search reads its cost: how many others ran beside it,
/// and whether the concurrency changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// The mean number of batches that ran during the batch, this batch included: the concurrency of its
    /// cost.
    beside: f64,
    /// True if the same concurrency was in force from before the batch's start until its end.
    is_steady: bool,
}

/// The state of the search for the concurrency with the best throughput.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    most: u32,
    /// The concurrency in force while no trial runs.
    number: u32,
    /// The measured slowdown at each concurrency, where the concurrency is the index; empty where only one
    /// batch may run at a time.
    slow: Vec<Slow>,
    trial: Option<Trial>,
    /// True in the first part of the search, the climb, while no slowdown is known: the concurrency doubles
    /// as soon as a trial shows that this pays.
    climbs: bool,
    /// True if the search owes a trial of a smaller concurrency: the costs have changed, or the concurrency
    /// fell, since the last such trial.
    unsure: bool,
    /// The size of batches, in items, that the search must measure at the concurrency in force, because it
    /// knows no cost of that size. Then it tries the concurrency that leads to batches of that size. `None`
    /// if no size waits for that.
    size: Option<u64>,
    /// The number of batches before the next trial of another concurrency begins, because trials cost time.
    rest: u32,
    /// The number of blocks of batches that the search rests after the next trial without a gain, because
    /// trials cost time.
    rests: u32,
    /// The direction of the trials of neighbouring concurrencies, true for larger ones: of the next trial in
    /// a closed loop, of the previous trial otherwise.
    up: bool,
    /// The number of changes of the concurrency so far, trials included. A batch compares it to see a change
    /// while it ran.
    turn: u32,
    /// The number of batches that must end until all running batches belong to the present concurrency. Until
    /// then no cost counts for a slowdown.
    settling: u32,
    running: u32,
    /// The number of items in running batches, which are part of the items in the system.
    items: u64,
    /// The sum over time of the number of running batches: batches times nanoseconds. From it follows the
    /// mean number that ran beside a batch.
    area: f64,
    at: u64,
    /// Two moving averages: the number of items in the system at the start of a batch, and the share of
    /// batches that had to wait because as many ran as are allowed.
    present: f64,
    short: f64,
    closed: Closed,
}

impl Flight {
    pub(super) fn new(most: u32) -> Self {
        let slots = if most > 1 { most as usize + 1 } else { 0 };
        let mut slow = vec![Slow::default(); slots];
        if let Some(alone) = slow.get_mut(1) {
            *alone = Slow::reference(1);
        }
        Self {
            most,
            number: 1,
            slow,
            trial: None,
            climbs: true,
            unsure: false,
            size: None,
            rest: KNOWN as u32,
            rests: REST.0,
            up: true,
            turn: 0,
            settling: 0,
            running: 0,
            items: 0,
            area: 0.0,
            at: 0,
            present: 0.0,
            short: 0.0,
            closed: Closed::default(),
        }
    }

    pub(super) const fn is_single(&self) -> bool {
        self.most == 1
    }

    /// Returns how many batches may run at once, by the trial or the concurrency in force.
    pub(super) fn allowed(&self) -> u32 {
        self.trial.map_or(self.number, |trial| trial.number)
    }

    /// Puts a concurrency into force that another part of the controller (`strain`) has found while a backlog
    /// stayed.
    pub(super) fn put(&mut self, number: u32) {
        self.number = number;
        self.trial = None;
        self.size = None;
        self.forget_others();
        self.slow[number as usize] = Slow::reference(number);
        self.rest = 8 * BLOCK.0 as u32;
        self.turned();
    }

    /// Returns the greatest number of batches that the bounds allow to run at once at any time.
    pub(super) const fn most(&self) -> u32 {
        self.most
    }

    /// Returns the concurrency that is in force while no trial runs.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    /// Returns how many batches run, without the batches that count as stuck.
    pub(super) const fn running(&self) -> u32 {
        self.running
    }

    /// Returns the part of `backlog` for the next batch, where all batches that may run share the items in
    /// the system.
    pub(super) fn share(&self, backlog: u64) -> u64 {
        let all = backlog.saturating_add(self.items);
        all.div_ceil(u64::from(self.allowed())).min(backlog)
    }

    /// Returns the number of batches at which the server really works, at the concurrency in force.
    pub(super) fn works(&self) -> f64 {
        match self.slow.get(self.number as usize) {
            Some(slow) if slow.is_known() && self.number > 1 => slow.works().max(1.0),
            _ => 1.0,
        }
    }

    /// Returns the slowdown of batches that ran at a concurrency of `ran`; `None` if it was not measured.
    pub(super) fn slowdown(&self, ran: f64) -> Option<f64> {
        let at = ((ran + 0.5) as usize).max(1);
        let near = at / 8;
        let known = |i: &usize| self.slow.get(*i).is_some_and(Slow::is_known);
        (0..=near)
            .flat_map(|d| [at - d, at + d])
            .find(known)
            .map(|i| self.slow[i].by())
    }

    /// Returns the slowdown that turns the cost of a batch into its solo cost. `None` unless the batch ran at
    /// the concurrency in force or nearly alone, because no other slowdown is known well enough.
    pub(super) fn trusted(&self, ran: Ran) -> Option<f64> {
        let is_near = (ran.beside / f64::from(self.number) - 1.0).abs() <= 1.0 / 8.0;
        if self.trial.is_none() && is_near && ran.is_steady {
            return self.slowdown(f64::from(self.number));
        }
        (ran.beside < 1.25).then(|| self.slowdown(1.0)).flatten()
    }

    /// Returns how many times longer batches take at the concurrency now allowed than alone; 1 if that is not
    /// measured.
    pub(super) fn slowed(&self) -> f64 {
        let allowed = self.allowed() as usize;
        let known = self.slow.get(allowed).filter(|slow| slow.is_known());
        known.map_or(1.0, Slow::by).max(1.0)
    }

    /// Returns whether the search is still in its first part, the climb to larger concurrencies, in which
    /// batches are kept short.
    pub(super) const fn climbs(&self) -> bool {
        self.climbs && self.most > 1
    }

    /// Returns the size that the next batch must take even though the backlog is larger, so that the search
    /// learns the cost of that size; `None` if the search needs no such size.
    pub(super) const fn size(&self) -> Option<u64> {
        self.size
    }

    fn pass(&mut self, now: u64) {
        self.area += f64::from(self.running) * now.saturating_sub(self.at) as f64;
        self.at = self.at.max(now);
    }

    /// Records that a batch of `items` starts and leaves `left` items in the backlog; `waited` is true if the
    /// batch had to wait because as many ran as are allowed.
    pub(super) fn started(&mut self, now: u64, items: u64, left: u64, waited: bool) -> Start {
        self.pass(now);
        self.running += 1;
        self.items = self.items.saturating_add(items);
        let waited = if waited { 1.0 } else { 0.0 };
        self.short += (waited - self.short) / 8.0;
        let present = self.items.saturating_add(left) as f64;
        self.present += (present - self.present) / 8.0;
        Start {
            at: now,
            area: self.area,
            turn: self.turn,
            is_steady: self.settling == 0,
        }
    }

    /// Records that a batch of `items` ended; `ok` says whether the batch did its work. Returns the mean
    /// number of batches that ran during the batch.
    pub(super) fn done(&mut self, now: u64, items: u64, ok: bool, start: Start) -> Ran {
        self.gone(now, items);
        let took = now.saturating_sub(start.at) as f64;
        let beside = if took > 0.0 {
            (self.area - start.area) / took
        } else {
            f64::from(self.running + 1)
        };
        let is_steady = (start.is_steady || self.climbs) && start.turn == self.turn;
        if self.settling == 0 {
            // The items of a refused batch do not count as handled: a server that refuses batches quickly is
            // not fast.
            let worked = if ok { items } else { 0 };
            let on_trial = self.trial.is_some();
            self.closed.done(now, worked, self.number, on_trial);
        }
        self.settling = self.settling.saturating_sub(1);
        Ran { beside, is_steady }
    }

    /// Records that a batch of `items` no longer runs, because it ended or counts as stuck, so that another
    /// batch may start.
    pub(super) fn gone(&mut self, now: u64, items: u64) {
        self.pass(now);
        self.running = self.running.saturating_sub(1);
        self.items = self.items.saturating_sub(items);
    }

    fn turned(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.settling = self.running.max(self.allowed());
        self.closed.turned();
    }

    fn forget_others(&mut self) {
        for (number, slow) in (0..).zip(&mut self.slow) {
            if number != self.number {
                *slow = Slow::default();
            }
        }
    }

    /// Records that the costs changed: the search measures all other concurrencies again, relative to the
    /// concurrency in force.
    pub(super) fn forget(&mut self) {
        if self.closed.is_on() {
            // In a closed loop the search compares the items that end in a given time, so a change of the
            // costs does not concern it.
            return;
        }
        self.forget_others();
        // The next trial is of a larger concurrency, where possible: a smaller one would let a backlog grow.
        self.unsure = true;
        self.up = false;
        self.trial = None;
        self.size = None;
        self.rest = BLOCK.0 as u32;
        self.rests = REST.0;
    }

    /// Learns from a batch that ended. `ran` tells how many batches ran on average meanwhile, and whether the
    /// concurrency stayed the same. `costs` are the batch's cost and an estimate of its solo cost, in
    /// nanoseconds. `noise` is the relative noise of one cost, `limit` the greatest number of items of a
    /// batch. Costs O(concurrencies) when a trial ends, else O(1).
    pub(super) fn learn(
        &mut self,
        ran: Ran,
        costs: Option<(f64, f64)>,
        noise: f64,
        limit: u64,
        cost: &Cost,
    ) {
        let (rough, least, most) = match self.climbs {
            true => (CLIMB_ROUGH, KNOWN, CLIMB_MAX),
            false => (ROUGH, BLOCK.0, BLOCK.1),
        };
        let mut block = (noise / rough * (noise / rough)).clamp(least, most);
        if self.climbs {
            // The batches of a block that end first ran beside the fewest others, and show too small a
            // slowdown. So a block has at least as many batches as may run at once.
            block = block.max(f64::from(self.allowed()));
        }
        let number = self.allowed();
        let beside = ran.beside;
        let is_near = (beside / f64::from(number) - 1.0).abs() < 1.0 - NEAR;
        let at = if is_near {
            number as usize
        } else {
            (beside + 0.5) as usize
        };
        if let Some((took, alone)) = costs.filter(|_| ran.is_steady)
            && (number > 1 || self.trial.is_some())
            && let Some(slow) = self.slow.get_mut(at)
            && (slow.batches < BLOCK.1 || (number as usize == at && self.trial.is_none()))
        {
            if slow.batches >= block.max(LASTING) {
                slow.age(1.0 - 1.0 / LASTING);
            }
            slow.add(took, alone, beside);
        }
        if self.closed.is_on() {
            return self.learn_closed(noise);
        }
        let Some(trial) = &mut self.trial else {
            self.rest = self.rest.saturating_sub(1);
            if self.rest == 0 {
                self.try_another(limit, cost);
            }
            return;
        };
        trial.batches += 1;
        let trial = *trial;
        let slow = self.slow[trial.number as usize];
        let is_known = slow.batches >= (block * slow.by().max(1.0)).min(BLOCK.1).floor();
        let most = PATIENCE * (trial.number + block as u32);
        if !is_known && !self.is_clear(trial.number, noise) && trial.batches < most {
            return;
        }
        self.trial = None;
        let before = self.number;
        if self.climbs {
            self.climb(trial.number, noise);
            if self.trial.is_none() {
                self.turned();
                self.try_another(limit, cost);
            }
            return;
        }
        self.choose(limit, noise, cost);
        if self.number == before {
            self.rest = 1 + self.rests * (BLOCK.0 as u32).max(self.number);
            self.rests = (self.rests * 2).clamp(1, REST.1);
        } else {
            self.rests = REST.0;
            self.rest = 1;
            self.unsure = self.number < before;
        }
        self.turned();
        if let Some(next) = self.closer() {
            self.begin(next);
        } else if self.number > before {
            self.try_another(limit, cost);
        }
    }

    /// Returns whether the concurrency on trial is surely better or worse than the concurrency in force, so
    /// that the trial can end early.
    fn is_clear(&self, tried: u32, noise: f64) -> bool {
        let slow = self.slow[tried as usize];
        let other = self.slow[self.number as usize];
        let noise = noise.max(0.02);
        let sure = 3.0 * slow.error(noise).hypot(other.error(noise));
        let is_worse = slow.works() * (1.0 + sure) < other.works() * (1.0 - WORTH);
        let is_better = slow.works() * (1.0 - sure) > other.works() * (1.0 + WORTH);
        tried != self.number && slow.batches >= 2.0 * KNOWN && (is_worse || is_better)
    }

    /// Ends a trial of the climb: puts the concurrency on trial into force if that pays, otherwise ends the
    /// climb.
    fn climb(&mut self, tried: u32, noise: f64) {
        let slow = self.slow[tried as usize];
        // The climb compares the slowdown with that of all smaller concurrencies together, because a few
        // batches of one concurrency show little where costs scatter.
        let smaller = self.slow[2..=(self.number as usize).max(2)].iter();
        let usual = smaller
            .fold(Slow::default(), |sum, slow| sum.with(slow))
            .by();
        let most = usual * CLIMB_SLOWED * (1.0 + 2.0 * slow.error(noise).min(CLIMB_DOUBT));
        let pays = slow.is_known() && slow.by() < most;
        // The climb always takes its first step: at one batch at a time, the estimates of solo costs rest on
        // few batches, or on none of these sizes. At later steps they are equally doubtful for both
        // concurrencies.
        if self.number == 1 || pays {
            self.number = tried;
            if tried < self.most {
                return;
            }
        } else {
            let enough = self.enough(tried).max(self.enough(self.number));
            self.number = self.number.min(enough).max(2);
        }
        // The batches of the climb were short; later batches have other sizes, so the measurements no longer
        // count.
        self.climbs = false;
        self.slow.fill(Slow::default());
        self.rests = 0;
        self.unsure = true;
        self.begin(self.number);
    }

    /// Returns whether the concurrency in force is needed: a somewhat smaller concurrency was measured to be
    /// worse, or the server really works at all batches that run.
    fn is_needed(&self) -> bool {
        let number = self.number;
        let works = self.works_at(number);
        let less = number - (number / 4).max(1).min(number);
        let near = self.measured().filter(|&c| c >= less && c < number);
        works > 0.95 * f64::from(number)
            || near
                .last()
                .is_some_and(|c| self.works_at(c) < works * (1.0 - WORTH))
    }

    fn begin(&mut self, number: u32) {
        self.slow[number as usize] = Slow::default();
        self.closed.begin();
        self.size = None;
        self.trial = Some(Trial { number, batches: 0 });
        self.turned();
    }

    /// Returns the expected throughput with `number` batches at once, in items a nanosecond, if these batches
    /// share the items now in the system. Returns `None` if their slowdown or cost is not known.
    fn throughput(&self, number: u32, limit: u64, cost: &Cost) -> Option<f64> {
        let present = self.present.max(1.0);
        let size = (present / f64::from(number)).clamp(1.0, limit.max(1) as f64);
        let at_once = f64::from(number).min(present / size);
        let slow = self.slowdown(at_once)?;
        Some(at_once * size / (slow * cost.guess(size)?))
    }

    fn measured(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.most).filter(|&c| self.slow[c as usize].is_known())
    }

    fn works_at(&self, number: u32) -> f64 {
        self.slow[number as usize].works()
    }

    /// Returns the least concurrency at which the server does as much as at `number`, apart from 2 %. The
    /// estimates of solo costs rest on few batches, or on none of these sizes, so the least slowdown measured
    /// counts as no slowdown.
    fn enough(&self, number: u32) -> u32 {
        let Some(slow) = self.slow.get(number as usize) else {
            return 1;
        };
        let least = self.measured().filter(|&c| c <= number);
        let least = least
            .map(|c| {
                let slow = self.slow[c as usize];
                slow.by() * (1.0 + slow.error(0.0))
            })
            .fold(slow.by(), f64::min);
        let works = slow.works() * least;
        ((0.98 * works).ceil() as u32).clamp(1, number)
    }

    /// Puts the best measured concurrency into force after a trial. Takes O(concurrencies) time.
    fn choose(&mut self, limit: u64, noise: f64, cost: &Cost) {
        let of = |c: u32| self.throughput(c, limit, cost).unwrap_or(0.0);
        let works = |c: &u32| self.works_at(*c);
        let Some(top) = self.measured().max_by(|a, b| works(a).total_cmp(&works(b))) else {
            return;
        };
        let most = self.works_at(top);
        let best = self.measured().map(of).fold(0.0, f64::max);
        let error = |c: u32| self.slow[c as usize].error(noise);
        let least = |c: u32| 1.0 - WORTH - error(c).hypot(error(top)) / 2.0;
        let useful = self
            .measured()
            .find(|&c| self.works_at(c) >= most * least(c))
            .unwrap_or(1);
        let good = |c: &u32| of(*c) >= best * least(*c);
        let chosen = self
            .measured()
            .filter(|&c| c <= useful)
            .filter(good)
            .last()
            .or_else(|| self.measured().find(good));
        if let Some(chosen) = chosen {
            self.number = chosen;
            if chosen == 1 {
                // From now on batches run alone, so every batch shows its solo cost, and the slowdown is 1.
                self.slow[1] = Slow::reference(1);
            }
        }
    }

    /// Returns an unmeasured concurrency that may do as well as the concurrency in force, for the next trial:
    /// between that concurrency and the nearest smaller one measured; `None` if no such concurrency is known.
    fn closer(&self) -> Option<u32> {
        let number = self.number;
        let below = self.measured().filter(|&c| c < number).last()?;
        let enough = self.enough(number);
        (enough > below && enough < number).then_some(enough)
    }

    /// Begins a trial of another concurrency, or measures a size that such a trial needs first. Does neither
    /// if no other concurrency is worth a trial.
    fn try_another(&mut self, limit: u64, cost: &Cost) {
        let number = self.number;
        let is_short = self.short > SHORT || self.present >= 2.0 * f64::from(number);
        let above = self.measured().find(|&c| c > number);
        let most = self.most.min(self.present as u32).max(number);
        let double = number.saturating_mul(2).min(most);
        let next = match above {
            None if is_short && double > number => Some(double),
            Some(above)
                if is_short
                    && above > number + 1
                    && self.works_at(above) > self.works_at(number) * (1.0 + WORTH) =>
            {
                Some(number.midpoint(above))
            }
            _ => None,
        };
        let next = next.or_else(|| {
            // No larger concurrency is worth a trial, so the search measures a neighbouring concurrency
            // again.
            self.up = !self.up;
            let step = (number / 4).max(1);
            let is_idle = self.unsure || !self.is_needed();
            let neighbour = if self.up && is_short {
                number + step
            } else if is_idle {
                self.unsure = false;
                number - step.min(number - 1)
            } else {
                number
            };
            let neighbour = neighbour.clamp(1, most);
            (neighbour != number).then_some(neighbour)
        });
        let Some(next) = next else {
            self.rest = self.rests.max(1) * BLOCK.0 as u32;
            return;
        };
        let size = (self.present / f64::from(next)).clamp(1.0, limit.max(1) as f64);
        if self.climbs || cost.alone(size).is_some() {
            self.begin(next);
        } else if self.size.take().is_none() {
            // The search measures the size at the present concurrency first. Otherwise it would take the cost
            // of an expensive size for a slowdown of the server.
            self.size = Some(size.ceil() as u64);
            self.rest = BLOCK.0.max(f64::from(number)) as u32;
        } else {
            self.rest = self.rests.max(1) * BLOCK.0 as u32;
        }
    }
}
