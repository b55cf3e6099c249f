//! Runs many seeds on all cores, and records the progress in a file, so that a later run continues.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::bugs::Bug;
use crate::coverage::Coverage;
use crate::world::{Failure, Plan, Trace, World};

/// The number of seeds that a line stands for in the file of finished seeds.
const STRETCH: u64 = 1000;

/// Runs a seed on this thread; a panic counts as a failure.
fn run(plan: Plan) -> Result<Coverage, Failure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| World::run(plan)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(Failure {
            seed: plan.seed,
            at_us: 0,
            what: format!("it panics: {}", text.unwrap_or_default()),
        })
    })
}

/// Runs the seeds up to the first failure. Returns their coverage, and that failure. If several seeds fail at
/// the same moment, the lowest one counts.
fn run_all(
    seeds: RangeInclusive<u64>,
    bug: Option<Bug>,
    blind: bool,
) -> (Coverage, Option<Failure>) {
    let next = AtomicU64::new(*seeds.start());
    let stop = AtomicBool::new(false);
    let found = Mutex::new((Coverage::default(), None::<Failure>));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let outcome = run(Plan {
                        seed,
                        bug,
                        trace: Trace::Off,
                        blind,
                    });
                    let mut found = found.lock().unwrap();
                    match outcome {
                        Ok(seen) => found.0.merge(&seen),
                        Err(failure) => {
                            stop.store(true, Ordering::Relaxed);
                            if found.1.as_ref().is_none_or(|f| failure.seed < f.seed) {
                                found.1 = Some(failure);
                            }
                        }
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Runs the seeds with a planted bug, and returns the first failure, by which the tests find the bug.
pub(crate) fn first_failure(seeds: RangeInclusive<u64>, bug: Bug, blind: bool) -> Option<Failure> {
    run_all(seeds, Some(bug), blind).1
}

/// Runs these seeds, or the seeds in the environment, and prints their coverage.
pub(crate) fn report(seeds: RangeInclusive<u64>) {
    if let Some(seed) = variable("SEED").and_then(|s| s.parse().ok()) {
        let bug = variable("BUG").and_then(|b| Bug::named(&b));
        let trace = match variable("MESSAGES") {
            Some(_) => Trace::Messages,
            None => Trace::Events,
        };
        let plan = Plan {
            seed,
            bug,
            trace,
            blind: variable("BLIND").is_some(),
        };
        match run(plan) {
            Ok(seen) => println!("{seen}"),
            Err(failure) => panic!("{failure}"),
        }
        return;
    }
    let seeds = variable("SEEDS").map_or(seeds, |text| {
        let (from, to) = text.split_once("..=").unwrap_or(("1", &text));
        from.parse().unwrap()..=to.parse().unwrap()
    });
    let start = Instant::now();
    match variable("SEEDS_DONE") {
        None => stretch(seeds.clone()),
        Some(file) => {
            let done = fs::read_to_string(&file).unwrap_or_default();
            let done = done
                .lines()
                .filter_map(|l| l.split_once("..=")?.1.parse().ok());
            let mut from = done.max().unwrap_or(0).max(seeds.start() - 1) + 1;
            while from <= *seeds.end() {
                let to = (from + STRETCH - 1).min(*seeds.end());
                stretch(from..=to);
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(&file)
                    .unwrap();
                writeln!(file, "{from}..={to}").unwrap();
                from = to + 1;
            }
        }
    }
    println!(
        "seeds {seeds:?} hold, in {:.1} s",
        start.elapsed().as_secs_f64()
    );
}

fn stretch(seeds: RangeInclusive<u64>) {
    let (seen, failure) = run_all(seeds.clone(), None, false);
    println!("seeds {seeds:?}:\n{seen}");
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}
