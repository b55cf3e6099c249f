//! The load generator of the bench `handlers`. It starts a contestant and calls it: in a closed loop each
//! caller waits for its answer before it calls again, in an open loop items arrive at a rate. It accepts the
//! contestant's figures only if the contestant handled each item exactly once.
//!
//! In an open loop latency counts from the due time of an item, so that a late answer also counts for the
//! items behind it.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidegate_cli::interrupt;
use tokio::runtime::Runtime;

use super::arrivals::{Poisson, Zipf};
use super::contestant::Contestant;
use super::outcome::Outcome;
use super::setting::Setting;
use super::work::{Checked, Item, Tally, Work};
use crate::latency::{histogram, quantile_us};
use crate::machine::{Meter, Spent};
use crate::rounds::Failure;

/// The longest time that a contestant may take to finish its accepted items, and again to end, before the
/// bench reports a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// The least bound on unanswered calls of an open loop, above which the bench ends the loop early. The bound
/// applies to low rates, at which a few unanswered calls are no sign of an overload.
const OVERRUN_MIN: f64 = 500.0;
/// The greatest bound on unanswered calls of an open loop, above which the bench ends the loop early, because
/// each call takes a task.
const OVERRUN_MAX: f64 = 100_000.0;

/// The greatest number of times that the bench runs a contestant until the measured window of a run contains
/// an answer.
const RUNS_MAX: u32 = 5;

/// The plan of one run of one contestant: its arrivals and its times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) arrivals: Arrivals,
    /// The duration of the warm-up, in which the contestant learns. The bench keeps the figures of the
    /// warm-up apart.
    pub(super) warm: Duration,
    pub(super) window: Duration,
    pub(super) seed: u64,
    /// The bound of an open loop, as a time: the bench ends the loop early if more calls are unanswered than
    /// items arrive in this time. The loop then has more items than the contestant can handle.
    pub(super) overrun: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Arrivals {
    /// Items arrive in a closed loop: this many callers, each of which calls again after its answer.
    Closed(u32),
    /// Items arrive in an open loop, at this mean rate a second, whether or not earlier items are answered.
    Open(f64),
}

/// Runs a contestant once. Runs the contestant again, and for longer, if a busy machine kept every call
/// unanswered during the measured window.
///
/// # Errors
///
/// The contestant failed, lost, repeated or confused items, or did not end.
pub(super) fn measure(
    runtime: &Runtime,
    work: &Work,
    keys: &Arc<Zipf>,
    setting: Setting,
    plan: &Plan,
) -> Result<Outcome, Failure> {
    let mut plan = *plan;
    for _ in 0..RUNS_MAX {
        if let Some(outcome) = run_once(runtime, work, keys, setting, &plan)? {
            return Ok(outcome);
        }
        plan.window *= 4;
    }
    Err("no call was answered".into())
}

fn run_once(
    runtime: &Runtime,
    work: &Work,
    keys: &Arc<Zipf>,
    setting: Setting,
    plan: &Plan,
) -> Result<Option<Outcome>, Failure> {
    runtime.block_on(work.empty())?;
    let checked = Arc::new(Checked::new(work.clone()));
    let contestant = runtime.block_on(Contestant::start(setting, Arc::clone(&checked)))?;
    let starts = Instant::now();
    let run = Arc::new(Run {
        contestant,
        keys: Arc::clone(keys),
        opens: starts + plan.warm,
        closes: starts + plan.warm + plan.window,
        stop: AtomicBool::new(false),
        issued: AtomicU64::new(0),
        waiting: AtomicU64::new(0),
        seen: Mutex::new(Seen::new()),
        failed: OnceLock::new(),
    });
    let (spent, overrun) = match plan.arrivals {
        Arrivals::Closed(callers) => (closed(runtime, &run, callers), false),
        Arrivals::Open(per_s) => open(runtime, &run, per_s, starts, plan),
    };
    let ends = Instant::now();
    if overrun {
        checked.cancel();
    }
    let drained = wait(PATIENCE, || run.waiting.load(Relaxed) == 0);
    if !drained {
        checked.cancel();
        let calls = run.waiting.load(Relaxed);
        wait(PATIENCE, || run.waiting.load(Relaxed) == 0);
        return Err(format!("hung: {calls} calls unanswered after {PATIENCE:?}"));
    }
    let failure = checked.failure().or_else(|| run.failed.get().cloned());
    let outcome = outcome(
        &run,
        &checked,
        plan,
        spent,
        overrun.then_some(ends - starts),
    );
    let issued = run.issued.load(Relaxed);
    let answered = run.seen().tally;
    drop(run);
    if !wait(PATIENCE, || Arc::strong_count(&checked) == 1) {
        return Err(format!("it did not end within {PATIENCE:?}"));
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let stored = match overrun {
        true => None,
        false => Some(runtime.block_on(work.stored())?),
    };
    once(issued, answered, checked.tally(), stored)?;
    if interrupt::asked() {
        return Err("interrupted".into());
    }
    Ok(outcome)
}

/// Checks that the contestant handled each item exactly once: the counts of the callers, the handler and the
/// store must agree.
fn once(issued: u64, answered: Tally, handled: Tally, stored: Option<u64>) -> Result<(), Failure> {
    if answered.items != issued {
        return Err(format!(
            "{} of {issued} items were answered",
            answered.items
        ));
    }
    if handled.items != issued {
        return Err(format!("{} of {issued} items were handled", handled.items));
    }
    if handled.sum != answered.sum {
        return Err("items were handled twice and others not at all".into());
    }
    match stored {
        Some(stored) if stored != issued => Err(format!("{stored} of {issued} items were stored")),
        _ => Ok(()),
    }
}

/// The state that the load generator and the callers of a run share, across their tasks.
struct Run {
    contestant: Contestant,
    keys: Arc<Zipf>,
    opens: Instant,
    closes: Instant,
    stop: AtomicBool,
    /// The number of items that the load generator has issued, which is also the id of the next item.
    issued: AtomicU64,
    /// The number of running callers in a closed loop, or of unanswered calls in an open loop.
    waiting: AtomicU64,
    seen: Mutex<Seen>,
    failed: OnceLock<Failure>,
}

struct Seen {
    tally: Tally,
    /// The latencies in nanoseconds of calls that were due in the measured window, and (`cold`) those of
    /// calls in the warm-up.
    latency: Histogram<u64>,
    cold: Histogram<u64>,
    /// The number of answers within the measured window, and (`done_cold`) the number of answers in the
    /// warm-up.
    done: u64,
    done_cold: u64,
}

impl Seen {
    fn new() -> Self {
        Self {
            tally: Tally::default(),
            latency: histogram(),
            cold: histogram(),
            done: 0,
            done_cold: 0,
        }
    }
}

impl Run {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the contestant with the next item. The latency counts from `due`. Returns whether the call
    /// succeeded.
    async fn call(&self, due: Instant) -> bool {
        let id = self.issued.fetch_add(1, Relaxed);
        let item = Item {
            id,
            key: self.keys.key(id),
        };
        match self.contestant.call(item).await {
            Ok(answer) if answer == item.answer() => {
                self.answered(due, answer);
                true
            }
            Ok(_) => {
                let _ = self
                    .failed
                    .set("a caller got the answer of another item".into());
                false
            }
            Err(failure) => {
                let _ = self.failed.set(failure);
                false
            }
        }
    }

    fn answered(&self, due: Instant, answer: u64) {
        let now = Instant::now();
        let took = u64::try_from((now - due).as_nanos()).unwrap_or(u64::MAX);
        let mut seen = self.seen();
        let seen = &mut *seen;
        seen.tally.items += 1;
        seen.tally.sum = seen.tally.sum.wrapping_add(answer);
        record(
            match due >= self.opens {
                true => &mut seen.latency,
                false => &mut seen.cold,
            },
            took,
        );
        if now < self.opens {
            seen.done_cold += 1;
        } else if now < self.closes {
            seen.done += 1;
        }
    }
}

/// Adds a latency in nanoseconds to the histogram of a run, which grows to hold it.
fn record(latency: &mut Histogram<u64>, took_ns: u64) {
    // A histogram of three digits can hold every number, so `record` does not fail.
    let _ = latency.record(took_ns);
}

/// Runs a closed loop of `callers` callers, each of which calls again after its answer, until the measured
/// window closes. Returns the processor time and the allocations of the process in the window.
fn closed(runtime: &Runtime, run: &Arc<Run>, callers: u32) -> Spent {
    run.waiting.store(callers.into(), Relaxed);
    for _ in 0..callers {
        let run = Arc::clone(run);
        runtime.spawn(async move {
            while !run.stop.load(Relaxed) {
                if !run.call(Instant::now()).await {
                    break;
                }
            }
            run.waiting.fetch_sub(1, Relaxed);
        });
    }
    sleep_until(run.opens);
    let meter = Meter::start();
    sleep_until(run.closes);
    let spent = meter.spent();
    run.stop.store(true, Relaxed);
    spent
}

/// Runs an open loop with Poisson arrivals until the measured window closes. Returns the processor time and
/// the allocations of the process in the window, and whether the loop ended early because unanswered calls
/// piled up.
fn open(
    runtime: &Runtime,
    run: &Arc<Run>,
    per_s: f64,
    starts: Instant,
    plan: &Plan,
) -> (Spent, bool) {
    // The generator needs exact sleeps, so it turns off the slack of 50 us by which the kernel may delay the
    // end of a sleep.
    let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
    let most = (per_s * plan.overrun.as_secs_f64()).clamp(OVERRUN_MIN, OVERRUN_MAX) as u64;
    let mut meter = Meter::start();
    let mut warm = true;
    for at in Poisson::new(per_s, plan.seed) {
        let due = starts + at;
        if due >= run.closes || interrupt::asked() || run.failed.get().is_some() {
            break;
        }
        if warm && due >= run.opens {
            warm = false;
            meter = Meter::start();
        }
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        if run.waiting.fetch_add(1, Relaxed) >= most {
            run.waiting.fetch_sub(1, Relaxed);
            return (meter.spent(), true);
        }
        let run = Arc::clone(run);
        runtime.spawn(async move {
            run.call(due).await;
            run.waiting.fetch_sub(1, Relaxed);
        });
    }
    sleep_until(run.closes);
    (meter.spent(), false)
}

/// Sleeps until `at` in steps of 50 ms, so that Ctrl-C ends the sleep soon.
fn sleep_until(at: Instant) {
    while let Some(left) = at.checked_duration_since(Instant::now())
        && !left.is_zero()
        && !interrupt::asked()
    {
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Waits until the condition `done` comes true, at most for `patience`. Returns whether it came true.
fn wait(patience: Duration, done: impl Fn() -> bool) -> bool {
    let until = Instant::now() + patience;
    while !done() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    true
}

/// Returns the figures of a run. If the load generator ended the run early, there is no full window, so the
/// figures cover the whole run.
fn outcome(
    run: &Run,
    checked: &Checked,
    plan: &Plan,
    spent: Spent,
    overrun: Option<Duration>,
) -> Option<Outcome> {
    let mut seen = run.seen();
    let seen = &mut *seen;
    let cold = (!seen.cold.is_empty()).then(|| seen.cold.mean() / 1e3);
    let cold_per_s = seen.done_cold as f64 / plan.warm.as_secs_f64();
    let (done, elapsed) = match overrun {
        None => (seen.done, plan.window),
        Some(elapsed) => {
            seen.latency.add(&seen.cold).ok()?;
            (seen.done + seen.done_cold, elapsed)
        }
    };
    if seen.latency.is_empty() {
        return None;
    }
    let batches = checked.batches().max(1) as f64;
    Some(Outcome {
        ops_per_s: done as f64 / elapsed.as_secs_f64(),
        mean_us: seen.latency.mean() / 1e3,
        p50_us: quantile_us(&seen.latency, 0.5),
        p99_us: quantile_us(&seen.latency, 0.99),
        batch_mean: checked.tally().items as f64 / batches,
        cpu_us: spent.cpu.as_secs_f64() * 1e6 / done.max(1) as f64,
        cold_ops_per_s: cold_per_s,
        cold_mean_us: cold,
        overrun: overrun.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::cell::Kind;
    use super::super::setting::Fixed;
    use super::*;

    #[test]
    fn latencies_of_every_length_are_kept() {
        let mut latency = histogram();
        for took_ns in [1_000, 5_000_000, 40_000_000_000] {
            record(&mut latency, took_ns);
        }
        assert_eq!(latency.len(), 3);
        let p50 = latency.value_at_quantile(0.5) as f64;
        let max = latency.max() as f64;
        assert!((p50 / 5e6 - 1.0).abs() < 0.01 && (max / 4e10 - 1.0).abs() < 0.01);
    }

    /// Tests that the bench ends an open loop early, because a handler with a sync for each item cannot keep
    /// up with the arrivals.
    #[test]
    fn an_open_loop_that_piles_up_ends_early_with_every_item_answered() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let work = Work::start(Kind::Append, &runtime, directory.path()).unwrap();
        let plan = Plan {
            arrivals: Arrivals::Open(300_000.0),
            warm: Duration::from_secs(5),
            window: Duration::from_secs(5),
            seed: 1,
            overrun: Duration::ZERO,
        };
        let setting = Setting::Fixed(Fixed {
            limit: 1,
            linger_us: 0,
            in_flight: 1,
        });
        let keys = Arc::new(Zipf::new(10));
        let outcome = measure(&runtime, &work, &keys, setting, &plan).unwrap();
        assert!(outcome.overrun && outcome.mean_us > 0.0, "{outcome:?}");
    }

    #[test]
    fn items_that_are_lost_repeated_or_not_stored_are_found() {
        let tally = |items, sum| Tally { items, sum };
        assert_eq!(once(3, tally(3, 9), tally(3, 9), Some(3)), Ok(()));
        assert_eq!(once(3, tally(3, 9), tally(3, 9), None), Ok(()));
        for (answered, handled, stored, text) in [
            (
                tally(2, 9),
                tally(3, 9),
                Some(3),
                "2 of 3 items were answered",
            ),
            (
                tally(3, 9),
                tally(4, 9),
                Some(3),
                "4 of 3 items were handled",
            ),
            (tally(3, 9), tally(3, 8), Some(3), "handled twice"),
            (
                tally(3, 9),
                tally(3, 9),
                Some(2),
                "2 of 3 items were stored",
            ),
        ] {
            let failure = once(3, answered, handled, stored).unwrap_err();
            assert!(failure.contains(text), "{failure}");
        }
    }
}
