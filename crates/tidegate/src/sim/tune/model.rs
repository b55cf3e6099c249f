//! The model of a recorded boundary: its costs, the source of its items, its driver; and the predictions that
//! it gives.

use std::time::Duration;

use super::callers::{self, Groups, Source};
use super::costs::Costs;
use super::error::{FitError, PredictError};
use super::reader::Recorded;
use super::replay::{Length, Played, World, play};
use super::stretch::{Piece, Stretch, Tally};
use super::{GROUPS_CUT, OUTSIDE_ALL, OUTSIDE_TAIL, UNSURE, WARM};
use crate::boundary::Boundary;
use crate::controller::{
    self, Bounded, Bounds, Choice, ChoiceError, Controller, Entry, Knee, Objective, replay,
};

/// The least number of batches of a stretch for a model.
const BATCHES_MIN: u64 = 50;
/// The share of items with an estimated arrival, above which the model says so.
const ESTIMATED_MAX: f64 = 0.1;
/// The most measured delays of the driver that the model draws from.
const DELAYS_MAX: usize = 1000;
/// The least and the most items of a round with callers.
const CLOSED_ITEMS: (u64, u64) = (20_000, 200_000);
/// The share of the given arrivals that a controller must serve in their time, or it does not keep up: its
/// latencies then depend on the length of the trace.
const KEEPS_UP: f64 = 0.95;
/// The share of the batches that may start beside others.
const SEVERAL_MAX: f64 = 0.02;
/// The number of rounds of a replay that count, each with other noise.
const ROUNDS: u64 = 3;
/// The least number of first entries by which the controller of a trace can be found.
const ENTRIES_MIN: usize = 40;

/// The figures of a boundary under one controller. A figure that is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The number of items that ended in a second.
    pub items_per_s: Option<f64>,
    /// The mean latency of an item, from its arrival to the end of its batch, in nanoseconds.
    pub mean_ns: Option<f64>,
    /// The 99th percentile of the latency of an item, in nanoseconds.
    pub p99_ns: Option<f64>,
    /// The number of batches that ended in a second.
    pub batches_per_s: Option<f64>,
    /// The mean number of items in a batch.
    pub batch_mean: Option<f64>,
}

/// The predicted figures of one controller.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// The controller.
    pub choice: Choice,
    /// Its figures, as far as the trace tells them.
    pub figures: Figures,
    /// The share of the items in batches of a cost that the trace does not tell.
    pub outside: f64,
    /// True if the controller does not keep up, so that items wait without end.
    pub overflows: bool,
}

/// The model of a recorded boundary.
#[derive(Debug)]
pub struct Model {
    bounds: Bounds,
    has_bounds: bool,
    in_bytes: bool,
    costs: Costs,
    source: Source,
    groups: Groups,
    arrivals: Vec<Piece>,
    items: u64,
    item_bytes: u64,
    whole: bool,
    turns: Vec<u32>,
    wakes: Vec<u32>,
    tally: Tally,
    recorded: Figures,
    recorded_by: Option<Choice>,
    span_ns: u64,
    batches: u64,
}

impl Model {
    /// Fits a model to the longest stretch of a recorded boundary.
    ///
    /// # Errors
    /// The trace does not tell enough about the boundary. The error says which part is missing.
    pub fn fit(recorded: &Recorded) -> Result<Self, FitError> {
        let stretch = &recorded.best;
        let tally = stretch.tally;
        let batches = stretch.ran.len() as u64;
        if batches < BATCHES_MIN {
            return Err(FitError::Few {
                batches,
                needed: BATCHES_MIN,
            });
        }
        match (tally.asked, tally.arrived) {
            (0, 0) => return Err(FitError::NoArrivals),
            (asked, _) if asked * 2 < tally.started => return Err(FitError::Unasked),
            _ if tally.overruled * 5 > tally.started => return Err(FitError::Unasked),
            _ => {}
        }
        let several = stretch.ran.iter().filter(|ran| ran.running > 1).count();
        if several as f64 > SEVERAL_MAX * batches as f64 {
            return Err(FitError::Several);
        }
        let costs = Costs::fit(&stretch.ran).ok_or(FitError::NoCosts)?;
        let mut arrivals = stretch.pieces.clone();
        arrivals.sort_by_key(|piece| piece.at);
        let items: u64 = arrivals.iter().map(|piece| u64::from(piece.items)).sum();
        if items == 0 {
            return Err(FitError::NoArrivals);
        }
        let bytes: u64 = arrivals.iter().map(|piece| u64::from(piece.bytes)).sum();
        let learned = (arrivals.len() as f64 * WARM) as usize;
        let (source, groups) = match tally.estimated as f64 > items as f64 * ESTIMATED_MAX {
            true => (Source::Estimated, Groups::default()),
            false => callers::fit(&arrivals, learned)
                .unwrap_or_else(|| (Source::Arrivals, Groups::default())),
        };
        let knows_starts = tally.instant * 2 < batches;
        let delays = |of: fn(&super::stretch::Ran) -> Option<u32>| {
            let all: Vec<u32> = stretch.ran.iter().filter_map(of).collect();
            let step = all.len().div_ceil(DELAYS_MAX).max(1);
            let some = all.into_iter().step_by(step);
            some.filter(|_| knows_starts).collect::<Vec<_>>()
        };
        let bounds = match recorded.has_bounds {
            true => stretch.bounds,
            false => derived(stretch),
        };
        let in_bytes = stretch.limits_bytes && stretch.bounds.bytes_max < u64::MAX;
        let mut model = Self {
            bounds,
            has_bounds: recorded.has_bounds,
            in_bytes,
            costs,
            source,
            groups,
            items,
            item_bytes: bytes / items,
            whole: tally.splits * 100 < batches,
            turns: delays(|ran| ran.turn_ns),
            wakes: delays(|ran| ran.wake_ns),
            tally,
            recorded: figures_of(stretch, &arrivals),
            recorded_by: None,
            span_ns: stretch.end - stretch.start.unwrap_or(stretch.end),
            batches,
            arrivals,
        };
        if recorded.has_bounds {
            model.recorded_by = model.find(&recorded.first, recorded.first_bounds);
            model.gather();
        }
        Ok(model)
    }

    /// Returns the recorded figures, without the first tenth of the stretch.
    #[must_use]
    pub const fn recorded(&self) -> Figures {
        self.recorded
    }

    /// Returns the controller that decides as recorded; `None` if none of [`Model::candidates`] does.
    #[must_use]
    pub const fn recorded_by(&self) -> Option<Choice> {
        self.recorded_by
    }

    /// Returns the source of the items.
    #[must_use]
    pub const fn source(&self) -> Source {
        self.source
    }

    /// Returns the bounds of every prediction, and whether the trace has them. The log of one controller has
    /// none: there the largest limit and number in flight that the controller decided count as bounds.
    #[must_use]
    pub const fn bounds(&self) -> (Bounds, bool) {
        (self.bounds, self.has_bounds)
    }

    /// Returns a and b of the line a + b·n through the costs of batches of n items, in nanoseconds, and the
    /// coefficient of variation of the costs around the means by size.
    #[must_use]
    pub const fn cost(&self) -> (f64, f64, f64) {
        (self.costs.a_ns, self.costs.b_ns, self.costs.noise)
    }

    /// Returns the smallest and the largest measured batch, in items.
    #[must_use]
    pub const fn sizes(&self) -> (u64, u64) {
        self.costs.sizes
    }

    /// Returns the mean cost of the last third of the batches over that of the first third, at equal sizes.
    /// The model takes the costs as constant, so a value far from 1 makes its predictions doubtful.
    #[must_use]
    pub const fn drift(&self) -> f64 {
        self.costs.drift
    }

    /// Returns the number of batches and items, and the nanoseconds, of the stretch that the model uses.
    #[must_use]
    pub const fn used(&self) -> (u64, u64, u64) {
        (self.batches, self.items, self.span_ns)
    }

    /// Returns true if the boundary reports replies, which come after the end of a batch. Latencies then end
    /// with the batch, not with the reply.
    #[must_use]
    pub const fn has_replies(&self) -> bool {
        self.tally.replied > 0
    }

    /// Returns the controllers that are worth a prediction at this boundary: the default with each objective,
    /// and the rules, with limits around the recorded batch.
    #[must_use]
    pub fn candidates(&self) -> Vec<Choice> {
        let mut all = vec![
            Choice::KNEE,
            Choice::Knee(Objective::Throughput),
            Choice::Knee(Objective::Within(0.05)),
        ];
        if let Some(p99) = self.recorded.p99_ns.filter(|ns| *ns >= 2000.0) {
            all.push(Choice::Knee(Objective::LatencyP99(rounded(p99 / 2.0))));
        }
        all.push(Choice::Knee(Objective::CostBudget(0.01)));
        if self.has_replies() {
            all.push(Choice::Knee(Objective::Inflation(0.03)));
        }
        all.push(Choice::GREEDY);
        let in_flight = self.bounds.in_flight();
        if in_flight > 1 {
            all.push(Choice::Greedy { in_flight });
        }
        let mean = self.recorded.batch_mean.unwrap_or(1.0).max(1.0) as u64;
        let most = self.bounds.items_max;
        let mut limits = [1, mean / 2, mean, mean * 2, mean * 4]
            .map(u64::next_power_of_two)
            .to_vec();
        limits.dedup();
        for limit in limits.into_iter().filter(|limit| *limit <= most) {
            all.push(Choice::Fixed {
                limit,
                linger: Duration::ZERO,
            });
        }
        let linger = rounded(self.costs.mean(mean) / 2.0);
        all.push(Choice::Fixed {
            limit: (mean * 4).next_power_of_two().min(most),
            linger,
        });
        all.extend([
            Choice::Exponential,
            Choice::Aimd { step: 64 },
            Choice::StormAimd { ceiling: 1000 },
            Choice::RueidisStats {
                max_delay: Duration::from_micros(100),
            },
        ]);
        all
    }

    /// Predicts the figures of a controller at this boundary: lets it serve the model in virtual time, first
    /// to learn and then to count. The same seed gives the same figures. Calls `goes_on` now and then with a
    /// number of batches done, and stops once it answers false.
    ///
    /// # Errors
    /// The controller cannot be built within the bounds, or `goes_on` answered false.
    pub fn predict(
        &self,
        choice: Choice,
        seed: u32,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Prediction, PredictError> {
        let controller = self
            .build(choice, self.bounds)
            .map_err(PredictError::Choice)?;
        let boundary = Boundary::new(controller, self.bounds)
            .map_err(|e| PredictError::Choice(ChoiceError::Bounds(e)))?;
        let world = World {
            costs: &self.costs,
            source: self.source,
            groups: &self.groups,
            arrivals: &self.arrivals,
            whole: self.whole,
            item_bytes: self.item_bytes,
            turns: &self.turns,
            wakes: &self.wakes,
            tells_arrivals: self.tally.arrived > 0,
            tells_expected: self.tally.expected > 0,
        };
        let played = play(&world, boundary, self.length(), seed, goes_on);
        let played = played.ok_or(PredictError::Stopped)?;
        let cut = played.cut as f64 / played.items.max(1) as f64;
        let mut prediction = prediction(choice, played, self.offered());
        if !self.groups.sizes.is_empty() && cut > GROUPS_CUT {
            prediction.figures = Figures::default();
        }
        Ok(prediction)
    }

    /// Returns the error of the model: the larger of the differences in throughput and 99th percentile, as
    /// shares, between the prediction for the controller that the trace was recorded under and the recorded
    /// figures. `None` if this controller, or one of its figures, is not known.
    #[must_use]
    pub fn error(&self, predictions: &[Prediction]) -> Option<f64> {
        let by = self.recorded_by?;
        let same = predictions.iter().find(|p| p.choice == by)?.figures;
        let off = |predicted: Option<f64>, recorded: Option<f64>| {
            let ratio = predicted? / recorded?;
            Some(ratio.max(1.0 / ratio) - 1.0)
        };
        let rate = off(same.items_per_s, self.recorded.items_per_s)?;
        let p99 = off(same.p99_ns, self.recorded.p99_ns)?;
        Some(rate.max(p99))
    }

    /// Returns the rate of the given arrivals, in items a second; 0 for callers, which wait for their
    /// answers.
    fn offered(&self) -> f64 {
        if let Source::Callers { .. } = self.source {
            return 0.0;
        }
        let counted = &self.arrivals[(self.arrivals.len() as f64 * WARM) as usize..];
        let items: u64 = counted.iter().map(|piece| u64::from(piece.items)).sum();
        let span = counted.last().map_or(0, |last| last.at - counted[0].at);
        items as f64 / (span.max(1) as f64 / 1e9)
    }

    fn length(&self) -> Length {
        let items = match self.source {
            Source::Callers { .. } => self.items.clamp(CLOSED_ITEMS.0, CLOSED_ITEMS.1),
            _ => self.items,
        };
        Length {
            items,
            warm: (items as f64 * WARM) as u64,
            rounds: ROUNDS,
        }
    }

    fn build(&self, choice: Choice, bounds: Bounds) -> Result<Box<dyn Controller>, ChoiceError> {
        match choice {
            Choice::Knee(objective) if self.in_bytes => {
                let knee = Knee::new(objective, bounds).and_then(Knee::in_bytes)?;
                Ok(Box::new(Bounded::new(knee.anticipating(), bounds)?))
            }
            _ => choice.build(bounds),
        }
    }

    /// Chooses the time in which callers gather into groups: with it, the recorded controller makes batches
    /// of about the recorded mean size.
    fn gather(&mut self) {
        let (Some(by), Some(recorded)) = (self.recorded_by, self.recorded.batch_mean) else {
            return;
        };
        let mut best = (f64::INFINITY, self.groups.window_ns);
        for window in self.groups.windows.clone() {
            self.groups.window_ns = window;
            let Ok(predicted) = self.predict(by, 0, &mut |_| true) else {
                continue;
            };
            let mean = predicted.figures.batch_mean;
            let off = mean.map_or(f64::INFINITY, |mean| (mean / recorded).ln().abs());
            if off < best.0 {
                best = (off, window);
            }
        }
        self.groups.window_ns = best.1;
    }

    /// Finds the controller that decides the first entries as recorded.
    fn find(&self, entries: &[Entry], bounds: Bounds) -> Option<Choice> {
        if entries.len() < ENTRIES_MIN {
            return None;
        }
        let decides_so = |choice: &Choice| {
            let controller = self.build(*choice, bounds).ok();
            controller.is_some_and(|mut c| replay(&mut c, entries).is_ok())
        };
        self.candidates().into_iter().find(decides_so)
    }
}

/// Returns bounds for the log of one controller, which has none.
fn derived(stretch: &Stretch) -> Bounds {
    Bounds {
        in_flight_max: Some(stretch.allowed.clamp(1, controller::IN_FLIGHT_MAX)),
        ..Bounds::items(1, stretch.limit_items.max(1))
    }
}

/// Returns the recorded figures without the first tenth of the arrivals, and so without an idle start.
fn figures_of(stretch: &Stretch, arrivals: &[Piece]) -> Figures {
    let first = arrivals.get((arrivals.len() as f64 * WARM) as usize);
    let from = first.map_or(0, |piece| piece.at);
    let end = arrivals.iter().filter_map(|piece| piece.done).max();
    let seconds = end.unwrap_or(from).saturating_sub(from) as f64 / 1e9;
    let counted = stretch.pieces.iter().filter(|piece| piece.at >= from);
    let ended = counted.filter_map(|piece| Some((piece.done? - piece.at, piece.items)));
    let latencies: Vec<_> = ended.collect();
    let ended = stretch.ran.iter().filter(|ran| ran.started >= from);
    let (mut items, mut batches) = (0u64, 0u64);
    for ran in ended {
        (items, batches) = (items + u64::from(ran.items), batches + 1);
    }
    figures(latencies, items, batches, seconds)
}

fn prediction(choice: Choice, mut played: Played, offered: f64) -> Prediction {
    let rate = played.items as f64 / (played.span_ns as f64 / 1e9);
    played.overflowed |= rate < KEEPS_UP * offered;
    let outside = played.outside as f64 / played.items.max(1) as f64;
    let mut figures = figures(
        played.latencies,
        played.items,
        played.batches,
        played.span_ns as f64 / 1e9,
    );
    if outside > OUTSIDE_TAIL || played.overflowed {
        figures.p99_ns = None;
    }
    if played.overflowed {
        figures.mean_ns = None;
    }
    if outside > OUTSIDE_ALL || played.unsure as f64 > UNSURE * played.items as f64 {
        figures = Figures::default();
    }
    Prediction {
        choice,
        figures,
        outside,
        overflows: played.overflowed,
    }
}

fn figures(mut latencies: Vec<(u64, u32)>, items: u64, batches: u64, seconds: f64) -> Figures {
    latencies.sort_unstable();
    let count: u64 = latencies.iter().map(|(_, n)| u64::from(*n)).sum();
    let sum: f64 = latencies
        .iter()
        .map(|(ns, n)| *ns as f64 * f64::from(*n))
        .sum();
    let rank = (count as f64 * 0.99) as u64;
    let mut below = 0;
    let p99 = latencies.iter().find(|(_, n)| {
        below += u64::from(*n);
        below > rank
    });
    let rate = |n: u64| (seconds > 0.0 && n > 0).then(|| n as f64 / seconds);
    Figures {
        items_per_s: rate(items),
        mean_ns: (count > 0).then(|| sum / count as f64),
        p99_ns: p99.map(|(ns, _)| *ns as f64),
        batches_per_s: rate(batches),
        batch_mean: (batches > 0).then(|| items as f64 / batches as f64),
    }
}

/// Rounds a time in nanoseconds to one digit, for the option of a controller.
fn rounded(ns: f64) -> Duration {
    let digit = 10f64.powf(ns.max(1.0).log10().floor());
    Duration::from_nanos(((ns / digit).round().max(1.0) * digit) as u64)
}
