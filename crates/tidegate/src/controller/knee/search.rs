//! Searches for a better limit while the limit in force cuts batches and the backlog stays.
//!
//! The search assumes no shape of the cost curve. While the limit cuts batches and the backlog will stay for
//! some time, it tries other sizes of the half-octave grid, each at most once until the costs change. It goes
//! upwards first, by doublings as long as that pays, at most to twice the largest size measured. Then it
//! tries sizes around the best, then the rest. A trial is a block of consecutive batches. It ends with the
//! first batch after which the size is worse by three standard errors, or else when the size is known well
//! enough. The search keeps a larger size if it raises throughput by more than 3 % a doubling. While the
//! backlog grows, the search takes any size of higher throughput for as long as the backlog lasts.
//!
//! Trials cost time. Worse sizes may cost at most 1/32 of the time during which the limit cut batches,
//! counted apart for smaller and larger sizes. The share is 1/8 to 1/2 while the backlog grows because more
//! items arrive than the limit can take. Smaller sizes then go first, because they cost little.

use super::buckets::{Buckets, GRID, grid_index, grid_size};

/// The gain in throughput, for each doubling of the batch size, for which the search keeps a larger size.
const WORTH: f64 = 0.03;
/// The number of batches in a stretch. The search compares the least backlog of a stretch with the least
/// backlog of earlier stretches, to see whether the backlog grows.
const WINDOW: u32 = 8;
/// The number of earlier stretches of [`WINDOW`] batches with which the search compares the backlog of a
/// stretch.
const WINDOWS: usize = 8;
/// The number of batches over which the search extrapolates the trend of the backlog. If the backlog will be
/// gone by then, it needs no better limit.
const SOON: f64 = 32.0;
/// The time that trials of near sizes may lose without a budget, in batches of the limit in force, so that a
/// search can begin at once.
const FREE: f64 = 4.0;
/// The number of batches at the limit in force before a trial, which show the trend of the backlog.
const STEADY: u32 = 2;
/// The greatest number of grid steps between two sizes that count as near. Trials of near sizes may begin
/// without a budget.
const NEAR: usize = 2;
/// The bound on the loss of a trial, as a multiple of the expected loss. A larger loss counts as this much
/// against the budget.
const DEAREST: f64 = 64.0;
/// The greatest cost of an item in a batch of the largest size, as a multiple of the cost at the limit, that
/// the search expects where no more than one recent batch tells the cost. That batch may have hung.
const DOUBTED: f64 = 8.0;
/// The number of batches after which the search may try a size again that cost more than [`DEAREST`] allows.
const REHEAR: u32 = 1024;
/// The greatest number of batches of other sizes during a trial, taken because the backlog did not reach the
/// size on trial. After more of them the trial ends without a result.
const MISSED: u32 = 8;
/// The least and the greatest number of batches in a trial of a size, by the scatter of costs.
const BLOCK: (f64, f64) = (3.0, 64.0);
/// The relative error of the mean cost of a size at which a trial ends, because the cost is known well
/// enough.
const ROUGH: f64 = 0.15;

/// A finished batch that did not take the whole backlog, because the limit cut it: the input of the search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The number of items to which the limit cut the batch.
    pub(super) n: u64,
    pub(super) cost_ns: f64,
    /// The backlog when the driver took the batch, in items, which shows the trend.
    pub(super) backlog: u64,
    /// The items that the batch left in the backlog, which need a better limit.
    pub(super) left: u64,
    /// The arrival rate, in items a nanosecond, with which the search compares the throughput of sizes.
    pub(super) arriving: f64,
    /// True if the cost of the batch was an outlier, or the batch is the first since the costs changed. The
    /// search then learns nothing from it.
    pub(super) suspect: bool,
}

/// A trial of another batch size, with the sums over the batches that had this size so far, to measure the
/// size.
#[derive(Clone, Copy, Debug)]
struct Trial {
    index: usize,
    items: f64,
    ns: f64,
    batches: f64,
    /// The number of batches of other sizes during the trial, because the backlog did not reach the size on
    /// trial.
    missed: u32,
    /// The time, in nanoseconds, that a batch of the size on trial is expected to lose against as many items
    /// in batches of the limit.
    expected: f64,
    /// The longest time, in nanoseconds, that all batches of the trial together may lose against the limit.
    afford: f64,
}

/// The state of the search for a better limit.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The sizes of the grid that were on trial, or are known from batches of their own, since the costs last
    /// changed: bit i stands for grid size i.
    tried: u64,
    trial: Option<Trial>,
    /// The batch size that trials found to be better than the size that the fitted line proposes, kept until
    /// the costs change.
    kept: Option<u64>,
    /// A batch size of higher throughput, which takes the place of `kept` only while the present backlog
    /// lasts.
    loose: Option<u64>,
    /// True if the last trial of a size above the limit found that size to be worse. The search then tries
    /// smaller sizes first.
    capped: bool,
    /// The number of batches since a trial last found a better batch size.
    settled: u32,
    /// True if the previous trial tried a smaller batch size, so that the next trial tries a larger one
    /// first.
    went_down: bool,
    backlog: Backlog,
    /// The largest size, in items, that a batch has had since the costs last changed, and the highest cost of
    /// a batch of that size, in nanoseconds.
    largest: (f64, f64),
    /// The sum of the costs of the batches that the limit cut, in nanoseconds, from which the budget of the
    /// trials follows.
    bound_ns: f64,
    /// The time that trials of worse sizes lost, in nanoseconds, as a part of `bound_ns`: first for sizes
    /// below the limit, then for sizes above it. The search compares it with the budget.
    spent_ns: [f64; 2],
}

/// Follows the backlog from batch to batch while the limit cuts batches, to find out whether it grows.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    batches: u32,
    least: u64,
    earlier: [u64; WINDOWS],
    windows: usize,
    grows: bool,
    /// The backlog, in items, when the previous batch was taken, to compute the change; `None` after a trial.
    last: Option<u64>,
    /// The change of the backlog from one batch to the next, as a moving average in items, which predicts the
    /// backlog.
    trend: f64,
    /// The last change of the backlog from one batch to the next, in items, which shows whether the backlog
    /// still grows.
    change: f64,
    /// The number of changes of the backlog that the search observed since the last trial; a trial needs
    /// [`STEADY`].
    steady: u32,
}

impl Backlog {
    fn look(&mut self, backlog: u64, limit: u64, on_trial: bool) {
        // The trend leaves out the backlog after a trial, which does not depend on the limit in force alone.
        let last = std::mem::replace(&mut self.last, (!on_trial).then_some(backlog));
        match last {
            Some(last) if !on_trial => {
                self.change = backlog as f64 - last as f64;
                self.trend += (self.change - self.trend) / 4.0;
                self.steady += 1;
            }
            _ => self.steady = 0,
        }
        self.least = if self.batches == 0 {
            backlog
        } else {
            self.least.min(backlog)
        };
        self.batches += 1;
        if self.batches < WINDOW {
            return;
        }
        let known = self.windows.min(WINDOWS);
        let lowest = self.earlier[..known].iter().copied().min();
        let last = (self.windows > 0).then(|| self.earlier[(self.windows - 1) % WINDOWS]);
        self.grows = match (lowest, last) {
            (Some(lowest), Some(last)) => {
                self.least > last && (self.grows || self.least > lowest.saturating_add(limit / 2))
            }
            _ => false,
        };
        self.earlier[self.windows % WINDOWS] = self.least;
        self.windows += 1;
        self.batches = 0;
    }

    /// Returns whether the trend leaves a backlog after [`SOON`] more batches, so that a better limit is of
    /// use.
    fn stays(&self, backlog: u64) -> bool {
        backlog as f64 + self.trend.min(self.change) * SOON > 0.0
    }
}

impl Search {
    pub(super) const fn new() -> Self {
        Self {
            tried: 0,
            trial: None,
            kept: None,
            loose: None,
            capped: false,
            settled: 0,
            went_down: false,
            backlog: Backlog {
                batches: 0,
                least: 0,
                earlier: [0; WINDOWS],
                windows: 0,
                grows: false,
                last: None,
                trend: 0.0,
                change: 0.0,
                steady: 0,
            },
            largest: (0.0, 0.0),
            bound_ns: 0.0,
            spent_ns: [0.0; 2],
        }
    }

    /// Returns the size on trial, which the next batch must take; `None` if no trial runs.
    pub(super) fn on_trial(&self) -> Option<u64> {
        self.trial.map(|t| grid_size(t.index))
    }

    /// Returns the batch size that the search found: the size for as long as the present backlog lasts, or
    /// else the size kept for good; `None` if the search found neither.
    pub(super) const fn found(&self) -> Option<u64> {
        match self.loose {
            Some(n) => Some(n),
            None => self.kept,
        }
    }

    /// Keeps a batch size that another part of the controller found to be the best, in place of a trial of
    /// its own.
    pub(super) const fn adopt(&mut self, size: u64) {
        self.kept = Some(size);
        self.loose = None;
        self.trial = None;
    }

    /// Returns whether the limit in force is a size that holds only for the present backlog, because the
    /// backlog grew.
    pub(super) const fn is_loose(&self) -> bool {
        self.loose.is_some()
    }

    /// Returns whether the last trial of a larger size found that size to be worse than the limit in force,
    /// so that no other rule raises the limit.
    pub(super) const fn is_capped(&self) -> bool {
        self.capped
    }

    /// Forgets the results of trials after a change of the costs, so that the search may try every size
    /// again.
    pub(super) const fn forget(&mut self) {
        self.kept = None;
        self.loose = None;
        self.tried = 0;
        self.trial = None;
        self.capped = false;
        self.largest = (0.0, 0.0);
        self.bound_ns = 0.0;
        self.spent_ns = [0.0; 2];
    }

    /// Records a batch that took the whole backlog. Trials end with it, and so do sizes that held only for
    /// the backlog.
    pub(super) fn relieved(&mut self) {
        self.trial = None;
        self.loose = None;
        if self.backlog.windows > 0 || self.backlog.batches > 0 {
            self.backlog = Backlog::default();
        }
    }

    /// Records a batch that did not take the whole backlog: `limit`, the limit in force, or a trial cut it.
    /// Costs O(sizes) when a trial begins or ends, else O(1).
    pub(super) fn cut(
        &mut self,
        cut: Cut,
        limit: u64,
        bounds: (u64, u64),
        sizes: &Buckets,
        noise: f64,
    ) {
        let on_trial = self.trial.is_some();
        self.backlog.look(cut.backlog, limit, on_trial);
        self.bound_ns += cut.cost_ns;
        self.reached(cut.n as f64, cut.cost_ns);
        self.settled = self.settled.saturating_add(1);
        let noise = noise.max(0.01);
        let Some(trial) = &mut self.trial else {
            if cut.suspect {
                return;
            }
            if self.settled.is_multiple_of(REHEAR) {
                self.rehear(limit, sizes);
            }
            let stays = self.backlog.stays(cut.left) && self.backlog.steady >= STEADY;
            if self.backlog.grows || stays {
                self.choose(limit, bounds, sizes, noise);
            }
            let changed = self.found().is_some_and(|found| found != limit);
            if stays && !changed {
                self.begin(limit, bounds, sizes, noise, cut);
            }
            return;
        };
        if grid_index(cut.n) != trial.index {
            trial.missed += 1;
            if trial.missed > MISSED {
                self.tried &= !(1 << trial.index);
                self.trial = None;
            }
            return;
        }
        trial.items += cut.n as f64;
        trial.ns += cut.cost_ns;
        trial.batches += 1.0;
        let trial = *trial;
        let Some((rate, weight)) = sizes.rate_of(limit) else {
            self.trial = None;
            return;
        };
        let ratio = trial.items / trial.ns.max(1.0) / rate;
        let error = noise * (1.0 / trial.batches + 1.0 / weight.max(1.0)).sqrt();
        let enough = (noise / ROUGH) * (noise / ROUGH);
        let is_worse = ratio * (1.0 + 3.0 * error) < 1.0;
        let is_too_dear = trial.ns * (1.0 - ratio) > trial.afford;
        if !is_worse && !is_too_dear && trial.batches < enough.clamp(BLOCK.0, BLOCK.1) {
            return;
        }
        self.trial = None;
        let size = grid_size(trial.index);
        if ratio < 1.0 {
            // The loss counts against the budget up to a bound only, because the cost of a batch that hung
            // does not predict the cost of the next trial.
            let most = DEAREST * trial.batches * trial.expected.max(limit as f64 / rate);
            self.spent_ns[usize::from(grid_size(trial.index) > limit)] +=
                (trial.ns * (1.0 - ratio)).min(most);
        }
        self.went_down = size < limit;
        let before = self.found().unwrap_or(limit);
        self.choose(before, bounds, sizes, noise);
        let now = self.found().unwrap_or(limit);
        if now != before {
            self.capped = false;
            self.settled = 0;
            if self.backlog.stays(cut.left) {
                self.begin(now, bounds, sizes, noise, cut);
            }
        } else if size > limit {
            self.capped = true;
        }
    }

    /// Records the largest size taken and the highest cost of a batch of that size. A batch that hung counts
    /// with less than it cost, because its cost does not predict other costs.
    fn reached(&mut self, n: f64, ns: f64) {
        let (top, dearest) = self.largest;
        if n < top {
            return;
        }
        let beyond = n / top.max(1.0);
        let most = if dearest > 0.0 {
            DEAREST * dearest * beyond * beyond
        } else {
            f64::INFINITY
        };
        let before = if n > top { 0.0 } else { dearest };
        self.largest = (n, ns.min(most).max(before));
    }

    /// Allows the search to try sizes again that a single batch ruled out because it hung.
    fn rehear(&mut self, limit: u64, sizes: &Buckets) {
        let Some((rate, _)) = sizes.rate_of(limit) else {
            return;
        };
        let own = limit as f64 / rate;
        let (tried, mut hung) = (&mut self.tried, false);
        let mut smaller = f64::INFINITY;
        sizes.each(|i, of, _| {
            // Only the rate of a batch that hung is that far below the rates of neighbouring sizes.
            if of * DEAREST < rate.min(smaller) {
                *tried &= !(1 << i);
                hung = true;
            } else {
                smaller = of;
            }
        });
        if hung {
            self.largest = (limit as f64, own);
            for spent in &mut self.spent_ns {
                *spent = spent.min(DEAREST * own);
            }
        }
    }

    /// Puts the best of the sizes measured into force. While the backlog grows, that is the highest
    /// throughput, where a size that is not well known counts with the highest throughput it may have.
    /// Otherwise a larger size must gain enough.
    fn choose(&mut self, limit: u64, bounds: (u64, u64), sizes: &Buckets, noise: f64) {
        let (floor, ceiling) = bounds;
        let at = grid_index(limit);
        let Some((rate, weight)) = sizes.rate_of(limit) else {
            return;
        };
        let grows = self.backlog.grows;
        let own = if grows {
            rate * (1.0 + noise / weight.max(1.0).sqrt())
        } else {
            rate
        };
        let mut best = (own, at);
        sizes.each(|i, rate, w| {
            let size = grid_size(i);
            if i == at || size < floor || size > ceiling {
                return;
            }
            let score = if grows {
                rate * (1.0 + noise / w.max(1.0).sqrt())
            } else {
                let error = noise * (1.0 / w.max(1.0) + 1.0 / weight.max(1.0)).sqrt();
                rate / lean(i, at) / (1.0 + error)
            };
            if score > best.0 {
                best = (score, i);
            }
        });
        if best.1 == at {
            return;
        }
        let size = grid_size(best.1).clamp(floor, ceiling);
        let found = sizes.rate_of(size).map_or(0.0, |(rate, _)| rate);
        if found > rate * lean(best.1, at) {
            self.kept = Some(size);
            self.loose = None;
        } else {
            self.loose = Some(size);
        }
    }

    /// Chooses the next batch size to try, if an untried size is left and the expected loss of its trial fits
    /// the budget.
    fn begin(&mut self, limit: u64, bounds: (u64, u64), sizes: &Buckets, noise: f64, cut: Cut) {
        let (backlog, arriving) = (cut.backlog, cut.arriving);
        let (floor, ceiling) = bounds;
        let at = grid_index(limit);
        let Some((rate, _)) = sizes.rate_of(limit) else {
            return;
        };
        let known = |i: usize| self.tried & (1 << i) != 0;
        let most = ceiling
            .min(backlog)
            .min((2.0 * self.largest.0.max(sizes.largest())) as u64);
        let fits = |i: usize| i < GRID && grid_size(i) <= most && grid_size(i) > limit;
        let doubled = Some(at + 2).filter(|&i| !self.capped && fits(i) && !known(i));
        let up = doubled.or_else(|| (at + 1..GRID).find(|&i| fits(i) && !known(i)));
        let may = |i: &usize| *i != 1 && grid_size(*i) >= floor && !known(*i);
        // More items arrive than this size can take, so the search tries half the size first, and smaller
        // halves: smaller sizes cost little.
        let strained = arriving > rate;
        let halved = (0..at)
            .rev()
            .skip(1)
            .step_by(2)
            .filter(|_| strained)
            .find(may);
        let down = halved.or_else(|| (0..at).rev().find(may));
        let order = if (self.capped || strained) && !self.went_down {
            [down, up]
        } else {
            [up, down]
        };
        let share = if strained && self.backlog.grows {
            // Where far more items arrive than this size can take, trials of other sizes lose little, so they
            // get a larger share of the time.
            ((1.0 - rate / arriving.max(1e-12)) / 2.0).max(1.0 / 8.0)
        } else {
            1.0 / 32.0
        };
        let own = limit as f64 / rate;
        // The number of batches that a trial needs to show that a size is far worse, by the scatter of costs.
        let many = (9.0 * noise * noise).max(1.0);
        let (top, dearest) = self.largest;
        let dearer = sizes.rate_of(top as u64).map_or(0.0, |(of, weight)| {
            let error = noise / weight.max(1.0).sqrt();
            let item = 1.0 / (of * (1.0 + error));
            // The weight of a size halves while no batch has that size, so old batches count as few.
            let most = if weight > 1.0 { item } else { DOUBTED / rate };
            item.min(most) - 1.0 / rate
        });
        let room = self.spent_ns.map(|spent| share * self.bound_ns - spent);
        for index in order.into_iter().flatten() {
            let part = grid_size(index) as f64 / limit as f64;
            let room = room[usize::from(index > at)];
            let loss = match index > at {
                // A larger size was worse, so the search expects costs that grow as fast as the square of the
                // size.
                true if self.capped => {
                    let beyond = (grid_size(index) as f64 / top).max(1.0);
                    (dearest * beyond * beyond).max(part * own) * many
                }
                // A larger size is expected to lose, on each of its items, as much as the largest size
                // measured loses against the limit, or nothing.
                true => (grid_size(index) as f64 * dearer).max(0.0) * many,
                false => (1.0 - part) * own,
            };
            let is_near = self.loose.is_none() && index.abs_diff(at) <= NEAR;
            if index < at && !is_near && !strained && (self.settled as f64) < SOON {
                continue;
            }
            let free = if is_near { FREE * own } else { 0.0 };
            // In the time that the trial loses, no more items may arrive than wait already, unless the limit
            // cannot keep up anyway.
            let is_lost = arriving > 2.0 * rate;
            let is_bearable = is_near || is_lost || loss * arriving <= backlog as f64;
            if loss <= room + free && is_bearable {
                self.tried |= 1 << index;
                self.trial = Some(Trial {
                    index,
                    items: 0.0,
                    ns: 0.0,
                    batches: 0.0,
                    missed: 0,
                    expected: loss / many,
                    afford: room + free,
                });
                return;
            }
        }
    }
}

/// Returns the ratio of throughputs from which grid size `i` replaces size `at`: 3 % a doubling, downwards as
/// well as upwards.
fn lean(i: usize, at: usize) -> f64 {
    let mut worth = 1.0;
    for _ in 0..i.abs_diff(at) {
        worth *= 1.0 + WORTH / 2.0;
    }
    if i < at { 1.0 / worth } else { worth }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the search on a backlog that stays constant, where a batch of `n` items costs `ns(n)`
    /// nanoseconds. Returns the sizes of the batches.
    fn sizes(search: Search, start: u64, batches: usize, ns: impl Fn(u64) -> f64) -> Vec<u64> {
        sizes_after(search, Buckets::new(), start, batches, ns)
    }

    /// Runs the search as [`sizes`] does, but after the batches in `buckets`.
    fn sizes_after(
        mut search: Search,
        mut buckets: Buckets,
        start: u64,
        batches: usize,
        ns: impl Fn(u64) -> f64,
    ) -> Vec<u64> {
        let (mut limit, mut taken) = (start, Vec::new());
        for _ in 0..batches {
            let n = search.on_trial().unwrap_or(limit);
            buckets.add(n, ns(n), 0.01);
            buckets.scan(0.01);
            search.cut(cut(n, ns(n)), limit, (1, 8192), &buckets, 0.01);
            limit = search.found().unwrap_or(limit);
            taken.push(n);
        }
        taken
    }

    /// Returns a batch of `n` items of a backlog that stays constant, for which the batch cost `cost_ns`
    /// nanoseconds.
    const fn cut(n: u64, cost_ns: f64) -> Cut {
        Cut {
            n,
            cost_ns,
            backlog: 1 << 20,
            left: (1 << 20) - n,
            arriving: 0.0,
            suspect: false,
        }
    }

    #[test]
    fn it_climbs_while_throughput_rises_and_never_more_than_doubles() {
        let taken = sizes(Search::new(), 64, 60, |n| (n as f64).sqrt());
        let mut largest = 64;
        for n in &taken {
            assert!(*n <= 2 * largest, "{n} after {largest}");
            largest = largest.max(*n);
        }
        assert_eq!(taken.last(), Some(&8192));
    }

    #[test]
    fn a_worse_size_is_left_after_one_batch_and_not_tried_again() {
        let taken = sizes(Search::new(), 64, 2000, |n| (n * n) as f64);
        for size in [96, 128] {
            let tries = taken.iter().filter(|&&n| n == size).count();
            assert!(tries <= 1, "{size} was tried {tries} times");
        }
    }

    #[test]
    fn one_larger_batch_that_hung_does_not_delay_the_next_trial() {
        let ns = |n: u64| 100.0 + n as f64;
        let first_trial = |batches: usize| {
            let (mut search, mut buckets) = (Search::new(), Buckets::new());
            let hung = 40.0 * ns(512);
            for _ in 0..batches {
                buckets.add(512, hung, 0.01);
                search.reached(512.0, hung);
            }
            let taken = sizes_after(search, buckets, 64, 6000, ns);
            taken.iter().position(|&n| n == 128).unwrap()
        };
        let (one, several) = (first_trial(1), first_trial(8));
        assert!(one < 400 && several > 2 * one, "{one} {several}");
    }

    #[test]
    fn a_dip_does_not_hide_a_better_size_behind_it() {
        // An item costs 1 ns in a batch of up to 64 items, and 2 ns in a batch of up to 512 items. Each
        // larger batch costs the same.
        let cost = |n: u64| match n {
            0..=64 => 10.0 + n as f64,
            65..=512 => 10.0 + 2.0 * n as f64,
            _ => 1024.0,
        };
        let taken = sizes(Search::new(), 64, 4000, cost);
        assert_eq!(taken.last(), Some(&8192));
    }

    #[test]
    fn a_larger_size_that_brings_nothing_is_not_kept() {
        let taken = sizes(Search::new(), 64, 2000, |n| 100.0 + 100.0 * n as f64);
        let last = taken.last().copied().unwrap();
        assert!(last <= 64, "{last}");
    }
}
