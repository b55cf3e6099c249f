//! Tests the predictions for other controllers: records simulated worlds under the default, predicts other
//! controllers from the traces, and compares the predictions with runs of the same worlds under these
//! controllers.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::DECISIONS_HEADER;
use tidegate::controller::{
    Bounded, Choice, Controller, Decision, Event, Knee, Objective, Recorder, Snapshot, When,
};
use tidegate::sim::arena::{Demand, Outcome, Span, World, capacity, run};
use tidegate::sim::tune::{Model, Source, TraceReader};

/// The seed of the recordings and of the runs with which the predictions are compared.
const SEED: u32 = 3;
/// The number of items of a run.
const ITEMS: u64 = 60_000;
/// The difference to the run that a prediction may have, as a share.
const WITHIN: f64 = 0.1;

/// The first seeds of worlds that have Poisson arrivals of at most 80 % of the capacity, one batch at a time,
/// costs that do not change and scatter by at most 60 %, and at least 1000 batches in [`ITEMS`] items.
const OPEN: [u32; 12] = [47, 69, 96, 106, 162, 163, 183, 189, 220, 254, 261, 263];
/// The same for worlds with at least two callers.
const CLOSED: [u32; 12] = [6, 8, 41, 70, 77, 89, 95, 121, 125, 128, 132, 146];

fn span(items: u64) -> Span {
    Span {
        warm_ms: 0.0,
        batches: u64::MAX,
        items,
    }
}

/// Returns the trace of the world under the default controller.
fn record(world: &World, capacity: f64, items: u64) -> String {
    let bounds = world.bounds();
    let knee = Knee::new(Objective::Lean, bounds).unwrap().anticipating();
    let mut recorder = Recorder::new(Bounded::new(knee, bounds).unwrap(), usize::MAX);
    run(world, SEED, capacity, span(items), &mut recorder);
    let in_flight = bounds.in_flight();
    let mut text = format!(
        "{DECISIONS_HEADER}\nworld begins {} {} {} {} {in_flight}\n",
        bounds.items_min,
        bounds.items_max,
        bounds.bytes_max,
        u64::MAX
    );
    for entry in recorder.log() {
        text += &format!("world {entry}\n");
    }
    text
}

fn fit(text: &str) -> Model {
    let mut reader = TraceReader::new();
    reader.handle_bytes(text.as_bytes()).unwrap();
    let trace = reader.finish().unwrap();
    Model::fit(&trace.boundaries[0]).unwrap()
}

/// Moves the time of a controller, so that it can serve a world for a second time.
struct Later {
    inner: Box<dyn Controller>,
    by: u64,
}

impl Later {
    fn to(&self, at: Time) -> Time {
        Time::from_nanos(at.as_nanos().saturating_add(self.by))
    }

    fn back(&self, at: Time) -> Time {
        match at {
            Time::NEVER => at,
            at => Time::from_nanos(at.as_nanos().saturating_sub(self.by)),
        }
    }
}

impl Controller for Later {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        let event = match event {
            Event::Ready { backlog, oldest } => Event::Ready {
                backlog,
                oldest: self.to(oldest),
            },
            other => other,
        };
        let mut decision = self.inner.on(self.to(now), event);
        decision.when = match decision.when {
            When::Now => When::Now,
            When::At(t) => When::At(self.back(t)),
            When::After { items, until } => When::After {
                items,
                until: self.back(until),
            },
        };
        decision
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    fn stuck_at(&self) -> Time {
        self.back(self.inner.stuck_at())
    }
}

/// Returns the outcome of a second run of the world under a controller that learned in a first one.
fn learned(world: &World, capacity: f64, choice: Choice) -> Outcome {
    let mut inner = choice.build(world.bounds()).unwrap();
    let first = run(world, SEED, capacity, span(ITEMS), &mut inner);
    let by = (first.end * 1e6) as u64 + 1;
    let span = Span {
        warm_ms: first.end * 0.1,
        batches: u64::MAX,
        items: ITEMS / 10 * 9,
    };
    run(world, SEED, capacity, span, &mut Later { inner, by })
}

#[test]
fn predictions_hold_in_simulated_worlds() {
    let (mut compared, mut unknown, mut wrong) = (0, 0, Vec::new());
    for seed in OPEN.into_iter().chain(CLOSED) {
        let world = World::random(seed);
        let capacity = capacity(&world);
        let model = fit(&record(&world, capacity, ITEMS));
        println!("world {seed}: {:?}, {:?}", world.demand, model.source());
        match (world.demand, model.source()) {
            (Demand::Open(_), Source::Arrivals) => {}
            (
                Demand::Closed { callers, think },
                Source::Callers {
                    callers: found,
                    think_ns,
                    ..
                },
            ) => {
                assert_eq!(found, callers, "world {seed}");
                assert!(
                    (think_ns / 1e6 / think - 1.0).abs() < 0.05,
                    "world {seed}: {think_ns}"
                );
            }
            (demand, source) => panic!("world {seed}: {source:?} for {demand:?}"),
        }
        assert_eq!(model.recorded_by(), Some(Choice::KNEE), "world {seed}");
        let limit = 2 * model.recorded().batch_mean.unwrap().max(1.0) as u64;
        let fixed = Choice::Fixed {
            limit,
            linger: Duration::ZERO,
        };
        for choice in [Choice::KNEE, Choice::GREEDY, fixed, Choice::Exponential] {
            let predicted = model.predict(choice, 5, &mut |_| true).unwrap();
            let figures = predicted.figures;
            let (Some(rate), Some(p99)) = (figures.items_per_s, figures.p99_ns) else {
                unknown += 1;
                println!("  {choice}: not known, {:.3} outside", predicted.outside);
                continue;
            };
            compared += 1;
            let real = learned(&world, capacity, choice);
            let rate = rate / 1e3 / real.throughput;
            let p99 = p99 / 1e6 / real.p99;
            println!("  {choice}: throughput {rate:.3} and p99 {p99:.3} of the run's");
            let is_off = (rate - 1.0).abs() > WITHIN || (p99 - 1.0).abs() > WITHIN;
            // The default may learn another size in the model than in the world; the model must then say so.
            let is_said = || {
                let error = model.error(std::slice::from_ref(&predicted));
                choice == Choice::KNEE && error.is_some_and(|error| error > WITHIN)
            };
            if is_off && !is_said() {
                wrong.push((seed, choice.to_string(), rate, p99));
            }
        }
    }
    println!("{compared} predictions compared, {unknown} not known");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(compared >= 70, "{compared}");
}
