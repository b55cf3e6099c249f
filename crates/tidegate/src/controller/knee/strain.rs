//! Searches for the size of batches and the concurrency (`number`) while a backlog stays that fills all
//! batches.
//!
//! The search compares the items that end in a given time, for any cost curve and any server. It alternates
//! between more batches at once, smaller batches, larger batches and fewer batches at once. Each trial lasts
//! whole turnovers: in a turnover, as many batches end as may run at once. The search repeats a step that
//! pays. At first steps double or halve; once none of the four ways pays, steps are shorter and ever more
//! rare. Now and then the search tries a size that is far away, since throughput may have several peaks. A
//! trial of a far larger size begins with a single batch; if that batch is expensive for its items, the trial
//! ends. Once the backlog is gone, the size and the concurrency found stay in force.

use super::pace::Pace;

/// The share of starts, as a moving average over [`OFTEN`] batches, at which the backlog must have been large
/// enough to fill all batches. Then it counts as a backlog that stays.
const STAYS: f64 = 0.8;
const OFTEN: f64 = 16.0;
/// The least relative difference of two rates of items that counts as a gain or a loss.
const WORTH: f64 = 0.03;
/// The least and the greatest number of batches in a trial of a point, by the scatter of costs. A point is a
/// concurrency and a size of batches.
const BLOCK: (f64, f64) = (8.0, 128.0);
/// The relative error of the rate of items at which a trial ends: the first while steps double, the second
/// later.
const ROUGH: (f64, f64) = (0.1, 0.05);
/// The least number of batches after which a trial may end early with a clear result, because few batches may
/// mislead.
const CLEAR: u32 = 16;
/// A trial without a result ends after this many times the number of batches planned for it, so that no trial
/// lasts for ever.
const PATIENCE: u32 = 4;
/// The factors of the steps in batch size, one for each round in which the search tries all four ways to
/// step; later rounds use `NEAR`. The concurrency steps by the first factor in the first round, and by `NEAR`
/// later.
const FAR: [f64; 7] = [2.0, 1.5, 1.5, 1.5, 4.0, 1.5, 8.0];
const NEAR: f64 = 1.5;
/// The largest factor by which a trial may raise the batch size without a single batch of that size first,
/// because batches of a far larger size may be very expensive.
const CAREFUL: u64 = 2;
/// The least scatter of single costs, as a share of the cost, that the search assumes, because no machine is
/// quiet.
const NOISE: f64 = 0.05;
/// The largest factor on the rest of the search after a round in which no step paid. The factor doubles from
/// round to round.
const REST: u32 = 64;

/// A concurrency, and a size of batches at that concurrency: the pair that the search tries and puts into
/// force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) number: u32,
    pub(super) limit: u64,
}

/// A way in which the search steps to another point: more batches at once, smaller batches, larger batches,
/// or fewer batches at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    More,
    Smaller,
    Larger,
    Fewer,
}

impl Way {
    const fn next(self) -> Self {
        match self {
            Self::More => Self::Smaller,
            Self::Smaller => Self::Larger,
            Self::Larger => Self::Fewer,
            Self::Fewer => Self::More,
        }
    }

    /// Returns the threshold above which a step of this way pays: the rate of items after the step, divided
    /// by the rate before.
    const fn least(self) -> f64 {
        match self {
            Self::More | Self::Larger => 1.0 + WORTH,
            Self::Smaller => 1.0,
            Self::Fewer => 1.0 - WORTH,
        }
    }
}

/// The state of the single batch that goes first in a trial of a far larger size, to find out whether that
/// size is far too expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// The trial needs no single batch first, or the single batch did well, so the trial goes on.
    Passed,
    ToStart,
    Runs,
}

/// The state of the search for size and concurrency while a backlog stays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strain {
    on: bool,
    /// The share of starts of batches at which the backlog was large enough to fill all batches, as a moving
    /// average.
    filled: f64,
    at: Point,
    trial: Option<Point>,
    first: First,
    /// The number of batches that must end until only batches of the point in force run. Until then the pace
    /// of items does not count.
    settling: u32,
    running: u32,
    /// The rate at which items end at the point in force, and at the point on trial: the search compares the
    /// two.
    pace: Pace,
    tried: Pace,
    /// The cost of an item at the point in force, in nanoseconds, as a moving average, with which a first
    /// batch is compared.
    each: f64,
    /// The number of batches that have ended while a trial waits for the result of its first batch. Too many
    /// end the trial.
    waited: u32,
    way: Way,
    /// The number of ways to step that failed in a row, without a step that paid. Four of them end a round.
    vain: u32,
    /// The number of rounds in which all four ways to step failed. The search rests longer after each.
    rounds: u32,
    rest: u32,
}

impl Strain {
    pub(super) fn new() -> Self {
        Self {
            on: false,
            filled: 0.0,
            at: Point {
                number: 1,
                limit: 1,
            },
            trial: None,
            first: First::Passed,
            settling: 0,
            running: 0,
            pace: Pace::default(),
            tried: Pace::default(),
            each: 0.0,
            waited: 0,
            way: Way::More,
            vain: 0,
            rounds: 0,
            rest: 0,
        }
    }

    /// Returns the concurrency and the size for the next batch; `None` while no backlog stays.
    pub(super) fn point(&self) -> Option<Point> {
        let trial = self.trial.filter(|_| self.first != First::Runs);
        self.on.then(|| trial.unwrap_or(self.at))
    }

    /// Records that a batch of `items` starts and leaves `left` in the backlog. `point` is in force if no
    /// backlog stayed before; the search begins only if `may` is true. If this batch ends the backlog,
    /// returns the point that the search found; otherwise `None`.
    pub(super) fn started(
        &mut self,
        items: u64,
        left: u64,
        point: Point,
        may: bool,
    ) -> Option<Point> {
        self.running += 1;
        if self.first == First::ToStart && self.trial.is_some_and(|trial| trial.limit == items) {
            self.first = First::Runs;
        }
        let fills = left >= point.limit.saturating_mul(u64::from(point.number));
        self.filled += (if fills { 1.0 } else { 0.0 } - self.filled) / OFTEN;
        if self.on && left == 0 {
            let found = self.at;
            *self = Self {
                running: self.running,
                ..Self::new()
            };
            return Some(found);
        }
        if !self.on && may && self.filled > STAYS {
            *self = Self {
                on: true,
                filled: self.filled,
                at: point,
                running: self.running,
                ..Self::new()
            };
            self.turned();
        }
        None
    }

    fn turned(&mut self) {
        let number = self.point().map_or(1, |point| point.number);
        self.settling = self.running.max(number);
        self.pace.pause();
    }

    /// Records that a batch no longer runs: it ended, failed or counts as stuck.
    pub(super) const fn gone(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Records that a batch of `items` took `cost_ns`, where single costs scatter by `noise`. The search
    /// tries no point beyond `most`, and no size below `least`.
    pub(super) fn done(
        &mut self,
        now_ns: u64,
        items: u64,
        cost_ns: f64,
        noise: f64,
        least: u64,
        most: Point,
    ) {
        self.gone();
        if !self.on {
            return;
        }
        let each = cost_ns / items.max(1) as f64;
        if self.first != First::Passed {
            self.look_at_first(items, each, noise);
            return;
        }
        self.settling = self.settling.saturating_sub(1);
        if self.settling > 0 {
            return;
        }
        let rough = if self.rounds == 0 { ROUGH.0 } else { ROUGH.1 };
        let block = (noise / rough * (noise / rough)).clamp(BLOCK.0, BLOCK.1);
        let Some(trial) = self.trial else {
            self.pace.done(now_ns, items);
            self.pace.fade(self.at.number);
            let gain = if self.each > 0.0 { 1.0 / OFTEN } else { 1.0 };
            self.each += (each - self.each) * gain;
            self.rest = self.rest.saturating_sub(1);
            let enough = block.max(f64::from(self.at.number));
            if self.rest == 0 && self.pace.batches >= enough && self.pace.rate().is_some() {
                self.step(least, most);
            }
            return;
        };
        self.tried.done(now_ns, items);
        let Some((gain, error)) = self.tried.against(&self.pace, noise) else {
            return;
        };
        let batches = self.tried.batches as u32;
        let is_clear =
            batches >= CLEAR.max(trial.number) && (gain - 1.0).abs() > 3.0 * error + WORTH;
        // All batches of a point may end at once, so a trial ends only after whole turnovers.
        let is_whole = batches.is_multiple_of(trial.number);
        let is_over = is_whole && (batches >= block as u32 || is_clear);
        if !is_over && batches < PATIENCE * (trial.number + block as u32) {
            return;
        }
        self.trial = None;
        if gain > self.way.least() {
            self.at = trial;
            self.pace = self.tried;
            self.each = 0.0;
            self.vain = 0;
            self.turned();
            self.step(least, most);
        } else {
            self.failed();
        }
    }

    /// Decides from the first batch of a trial whether the trial goes on. The trial ends if that batch does
    /// not end, or if other bounds keep batches smaller than the size on trial.
    fn look_at_first(&mut self, items: u64, each: f64, noise: f64) {
        let is_first = self.trial.is_some_and(|trial| trial.limit == items);
        if self.first != First::Runs || !is_first {
            self.waited += 1;
            if self.waited > PATIENCE * (self.at.number + CLEAR) {
                self.first = First::Passed;
                self.trial = None;
                self.failed();
            }
            return;
        }
        self.first = First::Passed;
        if self.each > 0.0 && each > self.each * (1.0 + 3.0 * noise.max(NOISE)) {
            self.trial = None;
            self.failed();
        } else {
            self.turned();
        }
    }

    fn failed(&mut self) {
        self.turned();
        self.way = self.way.next();
        self.vain += 1;
        self.rest = 1;
        if self.vain >= 4 {
            self.vain = 0;
            let rests = 1 << self.rounds.min(REST.ilog2());
            self.rest = rests * (self.at.number + BLOCK.0 as u32);
            self.rounds += 1;
        }
    }

    /// Begins a trial of the next point, another concurrency or another size, to find out whether it ends
    /// items faster.
    fn step(&mut self, least: u64, most: Point) {
        let by = if self.rounds == 0 { FAR[0] } else { NEAR };
        let far = FAR.get(self.rounds as usize).copied().unwrap_or(NEAR);
        for _ in 0..4 {
            let at = self.at;
            let (number, limit) = (f64::from(at.number), at.limit as f64);
            let to = match self.way {
                Way::More => Point {
                    number: ((number * by).ceil() as u32).min(most.number),
                    ..at
                },
                Way::Smaller => Point {
                    limit: ((limit / far) as u64).max(least),
                    ..at
                },
                Way::Larger => Point {
                    limit: ((limit * far).ceil() as u64).min(most.limit),
                    ..at
                },
                Way::Fewer => Point {
                    number: ((number / by) as u32).max(1),
                    ..at
                },
            };
            if to != at {
                self.trial = Some(to);
                self.tried = Pace::default();
                self.turned();
                if to.limit > CAREFUL * at.limit {
                    self.first = First::ToStart;
                    self.waited = 0;
                }
                return;
            }
            self.way = self.way.next();
            self.vain += 1;
        }
        self.vain = 0;
        self.rest = BLOCK.1 as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Point = Point {
        number: 64,
        limit: 8192,
    };

    /// Returns the point in force after `batches` batches that end one after the other, and the largest size
    /// taken. `rate` gives the items that end in a nanosecond.
    fn found(rate: impl Fn(Point) -> f64, from: Point, batches: u32) -> (Point, u64) {
        let mut strain = Strain::new();
        let (mut running, mut now, mut largest) = (Vec::new(), 0.0, 0);
        for _ in 0..batches {
            let point = strain.point().unwrap_or(from);
            while running.len() < point.number as usize {
                running.push(strain.point().unwrap_or(from));
                let limit = running[running.len() - 1].limit;
                largest = largest.max(limit);
                assert_eq!(strain.started(limit, u64::MAX, from, true), None);
            }
            let batch = running.remove(0);
            now += batch.limit as f64 / rate(batch);
            let cost = batch.limit as f64 * f64::from(batch.number) / rate(batch);
            strain.done(now as u64, batch.limit, cost, 0.05, 1, MOST);
        }
        let found = strain.started(1, 0, from, true);
        assert_eq!(strain.point(), None, "no backlog stays");
        (found.unwrap_or(from), largest)
    }

    const FROM: Point = Point {
        number: 2,
        limit: 32,
    };

    #[test]
    fn it_finds_as_many_slots_as_there_are() {
        for slots in [1, 4, 16, 64] {
            let rate = |at: Point| 1e-6 * f64::from(at.number.min(slots));
            let (found, _) = found(rate, FROM, 2_000);
            assert!(
                4 * found.number >= 3 * slots && found.number <= slots + slots / 2,
                "{slots} slots: {found:?}"
            );
        }
    }

    #[test]
    fn it_finds_a_size_that_is_best() {
        for best in [8.0, 200.0, 4_000.0] {
            // Throughput has its peak at batches of `best` items, which the search must find.
            let rate = |at: Point| 1e-6 / (at.limit as f64 / best + best / at.limit as f64);
            let (found, _) = found(rate, FROM, 3_000);
            let of_best = rate(found) / (1e-6 / 2.0);
            assert!(of_best > 0.9, "{best}: {found:?}");
        }
    }

    #[test]
    fn one_batch_tells_that_a_far_size_is_dear() {
        // In a batch of more than 100 items, each item costs a hundred times as much, so the search must stay
        // below.
        let rate = |at: Point| if at.limit > 100 { 1e-8 } else { 1e-6 };
        let ((found, largest), before) = (found(rate, FROM, 20_000), rate(FROM));
        assert!(
            rate(found) >= before && largest > 200,
            "{found:?} {largest}"
        );
    }

    #[test]
    fn a_first_batch_that_never_ends_or_is_cut_smaller_ends_its_trial() {
        // The first batch of a far larger size either hangs, or a bound cuts it smaller. The trial must end
        // in both cases.
        for ends in [false, true] {
            let mut strain = Strain::new();
            let (mut now, mut firsts, mut settled) = (0, 0, 0);
            for _ in 0..20_000 {
                let limit = strain.point().map_or(FROM.limit, |point| point.limit);
                let is_far = limit > CAREFUL * strain.at.limit;
                // A bound in bytes cuts the large batch in half, or the batch hangs and another one starts.
                let items = if is_far && ends { limit / 2 } else { limit };
                strain.started(items, u64::MAX, FROM, true);
                if is_far && !ends {
                    firsts += 1;
                    let limit = strain.point().map_or(FROM.limit, |point| point.limit);
                    strain.started(limit, u64::MAX, FROM, true);
                }
                firsts += u32::from(is_far && ends);
                // The cost of a batch grows with the square of its size, so no larger size pays.
                now += 1_000 * items * items;
                strain.done(now, items, (1_000 * items * items) as f64, 0.05, 1, MOST);
                settled = match strain.first {
                    First::Passed => 0,
                    _ => settled + 1,
                };
                let patience = PATIENCE * (strain.at.number + CLEAR) + 1;
                assert!(settled <= patience, "waits for a batch that never comes");
            }
            assert!(firsts > 0, "no far size was tried");
        }
    }

    #[test]
    fn without_a_backlog_that_stays_it_does_nothing() {
        let mut strain = Strain::new();
        for i in 0..1_000 {
            assert_eq!(strain.started(10, i % 40, FROM, true), None);
            strain.done(i * 100, 10, 100.0, 0.1, 1, MOST);
            assert_eq!(strain.point(), None);
        }
    }
}
