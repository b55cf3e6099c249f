//! Finds the source of a boundary's items: callers that return after their answers, or arrivals that do not
//! depend on the answers.
//!
//! The likelihood of the recorded arrivals decides. If C callers return, each after a fixed delay and a
//! further exponential time, the rate of arrivals at a moment is the number of callers past their delay over
//! the mean of that time. If no callers return, the arrivals depend on the time since the last arrival at
//! most: they have a least distance and a further exponential time. The fit compares the best of both. Items
//! that arrive together count as one arrival. An open load with a rate that changes gains nothing from
//! callers: its queue is longest when most items arrive, and then the fewest callers would be free.

use std::collections::VecDeque;

use super::stretch::Piece;

/// The most events of a stretch that the fit looks at.
const EVENTS_MAX: usize = 40_000;
/// The share of callers that return before their delay, for the fit: so that one early caller rules out no
/// delay.
const EARLY: f64 = 0.02;
/// The most callers that the fit assumes.
const CALLERS_MAX: u64 = 1 << 20;
/// The gain in log-likelihood, in all and for each arrival, above which callers explain the arrivals.
const GAIN: (f64, f64) = (20.0, 0.004);
/// The source of the items of a boundary, as a model found it in the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// Callers in a closed loop: each sends its next item some time after the answer to its last one.
    Callers {
        /// The number of callers.
        callers: u32,
        /// The least time from an answer to the next item of this caller, in nanoseconds.
        delay_ns: f64,
        /// The mean of the exponential time that follows the delay, in nanoseconds.
        think_ns: f64,
    },
    /// The recorded arrivals, which the model takes as given.
    Arrivals,
    /// Arrivals that the driver does not report. The model spreads them over the times between two reports of
    /// the backlog, and takes them as given.
    Estimated,
}

/// The quantiles of the measured times that the fit tries as delays.
const QUANTILES: [f64; 7] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75];

/// The share of the arrivals that bring the items in the system to one number, and the factor by which the
/// numbers beside it are rarer, so that this number is the number of callers.
const SPIKE: (f64, f64) = (0.05, 3.0);
/// The share of the arrivals that may bring more items than there are callers: where the driver reports the
/// end of a batch late, its callers have returned before.
const ABOVE: f64 = 0.15;

/// The mean number of items of an arrival above which callers return in groups.
const GROUPED: f64 = 1.25;
/// The quantiles of the times between two arrivals that may be the time in which a group gathers.
const WINDOWS: [f64; 6] = [0.05, 0.15, 0.3, 0.5, 0.7, 0.85];
/// The most sizes of groups to draw from.
const GROUPS_MAX: u64 = 10_000;

/// Items that arrived or ended together.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: u64,
    arrived: bool,
    items: u32,
}

/// The groups in which callers return.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The size of the group of each item, for draws: larger groups stand there more often.
    pub(super) sizes: Vec<u32>,
    /// Measured times from the answers to the return, in nanoseconds; empty if callers return one by one, and
    /// the fitted times are better.
    pub(super) times: Vec<u64>,
    /// The time for which the stage before the boundary gathers callers into one group, in nanoseconds.
    pub(super) window_ns: u64,
    /// The times to try for `window_ns`: quantiles of the times between two arrivals.
    pub(super) windows: Vec<u64>,
}

/// Fits callers to the pieces of a stretch from the one at `from` on; `None` if the arrivals do not depend on
/// the completions.
pub(super) fn fit(pieces: &[Piece], from: usize) -> Option<(Source, Groups)> {
    let start = pieces.get(from)?.at;
    let mut moments = Vec::with_capacity(2 * pieces.len().min(EVENTS_MAX));
    // Items that wait or run at the start count as arrivals at this moment, so that their callers are not
    // idle.
    let earlier = pieces[..from].iter().rev().take(EVENTS_MAX);
    let earlier = earlier.filter(|piece| piece.done.is_some_and(|done| done > start));
    for piece in earlier.chain(pieces[from..].iter().take(EVENTS_MAX)) {
        let items = piece.items;
        moments.push(Moment {
            at: piece.at.max(start),
            arrived: true,
            items,
        });
        moments.extend(piece.done.map(|at| Moment {
            at,
            arrived: false,
            items,
        }));
    }
    moments.sort_by_key(|m| (m.at, m.arrived));
    moments.dedup_by(|next, last| {
        let is_same = (next.at, next.arrived) == (last.at, last.arrived);
        if is_same {
            last.items = last.items.saturating_add(next.items);
        }
        is_same
    });
    moments.truncate(EVENTS_MAX);
    let (mut n, mut peak) = (0u64, 0u64);
    for m in &moments {
        n = match m.arrived {
            true => n + u64::from(m.items),
            false => n.saturating_sub(u64::from(m.items)),
        };
        peak = peak.max(n);
    }
    let arrivals = moments.iter().filter(|m| m.arrived).count();
    if peak == 0 || peak > CALLERS_MAX || arrivals < 2 {
        return None;
    }
    let open = apart(&moments);
    let waiting = spike(&moments, peak);
    let mut best: Option<(f64, u64, f64, f64)> = None;
    let mut consider = |callers: u64, delay: f64| {
        let (likelihood, think) = closed(&moments, callers, delay);
        if best.is_none_or(|(b, ..)| likelihood > b) {
            best = Some((likelihood, callers, delay, think));
            return true;
        }
        false
    };
    let mut numbers: Vec<u64> = (peak..peak + 3).collect();
    for factor in [1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0] {
        numbers.push((peak as f64 * factor).ceil() as u64);
    }
    if let Some(callers) = waiting {
        numbers = vec![callers];
    }
    numbers.retain(|callers| *callers <= CALLERS_MAX);
    numbers.sort_unstable();
    numbers.dedup();
    for callers in numbers {
        let returns = returns(&moments, callers);
        let mut near = (0.0, 0.0);
        let mut was = 0.0;
        for (i, &delay) in returns.iter().enumerate() {
            if consider(callers, delay) {
                near = (was, returns.get(i + 1).copied().unwrap_or(delay));
            }
            was = delay;
        }
        for i in 1..5 {
            consider(callers, near.0 + (near.1 - near.0) * f64::from(i) / 5.0);
        }
    }
    let (likelihood, callers, delay_ns, think_ns) = best?;
    let gain = likelihood - open;
    let is_likely = gain > GAIN.0 && gain > GAIN.1 * arrivals as f64;
    let source = Source::Callers {
        callers: u32::try_from(callers).unwrap_or(u32::MAX),
        delay_ns,
        think_ns,
    };
    (is_likely || waiting.is_some()).then(|| (source, groups(&moments, callers)))
}

/// Returns the groups of the arrivals.
fn groups(moments: &[Moment], callers: u64) -> Groups {
    let arrived = || moments.iter().filter(|m| m.arrived);
    let items: u64 = arrived().map(|m| u64::from(m.items)).sum();
    let count = arrived().count() as f64;
    if items as f64 <= GROUPED * count {
        return Groups::default();
    }
    let step = items.div_ceil(GROUPS_MAX).max(1);
    let (mut sizes, mut passed) = (Vec::new(), 0);
    for m in arrived() {
        passed += u64::from(m.items);
        while passed >= step {
            sizes.push(m.items);
            passed -= step;
        }
    }
    let times = matched(moments, callers).into_iter();
    let times = times.map(|ns| ns.max(1.0) as u64).collect();
    let mut gaps: Vec<u64> = arrived().map(|m| m.at).collect();
    gaps = gaps.windows(2).map(|w| w[1] - w[0]).collect();
    gaps.sort_unstable();
    let windows: Vec<u64> = WINDOWS
        .iter()
        .filter_map(|q| gaps.get((gaps.len() as f64 * q) as usize).copied())
        .collect();
    Groups {
        sizes,
        times,
        window_ns: windows.first().copied().unwrap_or(0),
        windows,
    }
}

/// Returns the number of callers if all of them wait often: then many arrivals bring the items in the system
/// to this number, and hardly any to a larger one. `None` if no number stands out.
fn spike(moments: &[Moment], peak: u64) -> Option<u64> {
    let mut counts = vec![0u64; usize::try_from(peak).ok()? + 2];
    let (mut n, mut all) = (0u64, 0u64);
    for m in moments {
        let items = u64::from(m.items);
        n = match m.arrived {
            true => n + items,
            false => n.saturating_sub(items),
        };
        // Items that all arrive together tell nothing of callers.
        if m.arrived && items < n {
            counts[n as usize] += 1;
        }
        all += u64::from(m.arrived);
    }
    let all = all as f64;
    let stands_out = |&n: &usize| {
        let (count, beside) = (counts[n] as f64, counts[n - 1].max(counts[n + 1]) as f64);
        let above: u64 = counts[n + 1..].iter().sum();
        count > SPIKE.0 * all && count > SPIKE.1 * beside && (above as f64) < ABOVE * all
    };
    let found = (2..=peak as usize).find(stands_out);
    found.map(|n| n as u64)
}

/// Returns delays to try: quantiles of the times from answers to arrivals.
fn returns(moments: &[Moment], callers: u64) -> Vec<f64> {
    delays(matched(moments, callers))
}

/// Returns the times from answers to arrivals, matched in order, in nanoseconds. An arrival before its
/// answer, because the driver reported the answer late, has the time 0.
fn matched(moments: &[Moment], callers: u64) -> Vec<f64> {
    let mut ends: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut ahead, mut owed) = (callers, 0);
    let mut times = Vec::new();
    for m in moments {
        let mut items = u64::from(m.items);
        if !m.arrived {
            let paid = items.min(owed);
            owed -= paid;
            ends.push_back((m.at, items - paid));
            continue;
        }
        let fresh = ahead.min(items);
        (ahead, items) = (ahead - fresh, items - fresh);
        while items > 0 {
            let Some((at, n)) = ends.front_mut() else {
                owed += items;
                times.push(0.0);
                break;
            };
            let part = items.min(*n);
            if part > 0 {
                times.push((m.at - *at) as f64);
            }
            (items, *n) = (items - part, *n - part);
            if *n == 0 {
                ends.pop_front();
            }
        }
    }
    times
}

/// Returns 0 and some quantiles of the times.
fn delays(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_unstable_by(f64::total_cmp);
    let mut delays = vec![0.0];
    if !times.is_empty() {
        let at = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
        delays.extend(QUANTILES.map(at));
    }
    delays.dedup();
    delays
}

/// Returns the log-likelihood of the arrivals if they do not depend on the completions: with the best least
/// distance between two arrivals, and an exponential time that follows it.
fn apart(moments: &[Moment]) -> f64 {
    let times: Vec<u64> = moments.iter().filter(|m| m.arrived).map(|m| m.at).collect();
    let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let likelihood = |least: f64| {
        let after: f64 = gaps.iter().map(|gap| (gap - least).max(0.0)).sum();
        let after = (after / count).max(1.0);
        let rate = |gap: &f64| match *gap >= least {
            true => (1.0 - EARLY) / after + EARLY / mean,
            false => EARLY / mean,
        };
        gaps.iter().map(|gap| rate(gap).ln()).sum::<f64>() - count
    };
    let all = delays(gaps.clone()).into_iter().map(likelihood);
    all.fold(f64::NEG_INFINITY, f64::max)
}

/// Returns the log-likelihood of the arrivals if `callers` callers return after `delay` nanoseconds and a
/// further exponential time, and the best mean of this time.
fn closed(moments: &[Moment], callers: u64, delay: f64) -> (f64, f64) {
    let (mut free_time, mut idle_time, mut arrivals, mut items) = (0.0, 0.0, 0.0, 0.0);
    walk(moments, callers, delay, |step| match step {
        Free::Time(free, idle) => {
            (free_time, idle_time) = (free_time + free, idle_time + idle);
        }
        Free::Arrival(_, _, n) => (arrivals, items) = (arrivals + 1.0, items + n),
    });
    let think = (idle_time / f64::max(items, 1.0) - delay).max(1.0);
    // The time of a free caller between two arrivals, each of several items.
    let apart = (free_time / f64::max(arrivals, 1.0)).max(1.0);
    let cycle = apart + delay;
    let mut likelihood = -arrivals;
    walk(moments, callers, delay, |step| {
        if let Free::Arrival(free, idle, _) = step {
            let rate = (1.0 - EARLY) * free / apart + EARLY * idle.max(0.5) / cycle;
            likelihood += rate.ln();
        }
    });
    (likelihood, think)
}

/// A step of a walk through the moments.
enum Free {
    /// The time that callers were free, times their number, and the same for idle callers.
    Time(f64, f64),
    /// An arrival, with the free callers and the idle callers before it, and its items.
    Arrival(f64, f64, f64),
}

/// Walks through the moments with `callers` callers, which are free `delay` nanoseconds after their answers.
fn walk(moments: &[Moment], callers: u64, delay: f64, mut step: impl FnMut(Free)) {
    let Some(first) = moments.first() else {
        return;
    };
    let delay = delay as u64;
    let mut now = first.at;
    let (mut free, mut idle) = (callers as f64, callers as f64);
    let mut coming: VecDeque<(u64, f64)> = VecDeque::new();
    for m in moments {
        while let Some(&(at, items)) = coming.front()
            && at <= m.at
        {
            let span = (at - now) as f64;
            step(Free::Time(free.max(0.0) * span, idle * span));
            (now, free) = (at, free + items);
            coming.pop_front();
        }
        let span = (m.at - now) as f64;
        step(Free::Time(free.max(0.0) * span, idle * span));
        now = m.at;
        let items = f64::from(m.items);
        if m.arrived {
            step(Free::Arrival(free.max(0.0), idle, items));
            (free, idle) = (free - items, idle - items);
        } else {
            idle += items;
            coming.push_back((m.at.saturating_add(delay), items));
        }
    }
}
