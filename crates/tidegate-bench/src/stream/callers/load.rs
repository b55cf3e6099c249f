//! The one load generator of the bench `callers`: a thread for each caller, which sends its next request when
//! the answer to the last one has come.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Running;
use crate::rounds::Sample;

/// A connection that sends one request and waits for its answer.
pub(super) trait Caller {
    /// Sends the request and reads the answer, which says that the server keeps the request's payload.
    ///
    /// # Errors
    ///
    /// The server refuses the request, or the connection ends.
    fn call(&mut self) -> anyhow::Result<()>;
}

/// The load of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) callers: usize,
    /// The time for which the callers call before the measurement.
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
}

/// The parts of a measurement. The main thread tells the callers by a number which part it is.
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const OVER: u8 = 2;

impl Load {
    /// Lets the callers warm up, then measures them for the window.
    ///
    /// # Errors
    ///
    /// A caller failed.
    pub(super) fn run(&self, running: &(dyn Running + Sync)) -> anyhow::Result<Sample> {
        let (ready, part) = (Barrier::new(self.callers + 1), AtomicU8::new(WARMING));
        std::thread::scope(|scope| {
            let caller = |number| {
                let (ready, part) = (&ready, &part);
                scope.spawn(move || call(running, number, ready, part))
            };
            let threads: Vec<_> = (0..self.callers).map(caller).collect();
            ready.wait();
            std::thread::sleep(self.warm_up);
            let (before, start) = (running.cpu_s()?, Instant::now());
            part.store(MEASURING, Ordering::Relaxed);
            std::thread::sleep(self.window);
            part.store(OVER, Ordering::Relaxed);
            let (took, after) = (start.elapsed(), running.cpu_s()?);
            let all = threads.into_iter().map(ScopedJoinHandle::join);
            let mut latencies = Histogram::<u64>::new(3)?;
            for one in all {
                latencies.add(one.ok().context("a caller panicked")??)?;
            }
            Ok(sample(&latencies, took, before.zip(after)))
        })
    }
}

/// Calls until the measurement is over. Returns the latencies, in nanoseconds, of the calls that began and
/// ended within it.
fn call(
    running: &dyn Running,
    number: usize,
    ready: &Barrier,
    part: &AtomicU8,
) -> anyhow::Result<Histogram<u64>> {
    let caller = running.caller(number);
    ready.wait();
    let mut caller = caller?;
    let mut latencies = Histogram::<u64>::new(3)?;
    loop {
        let begun = part.load(Ordering::Relaxed);
        if begun == OVER {
            return Ok(latencies);
        }
        let start = Instant::now();
        caller.call()?;
        let took = start.elapsed();
        if begun == MEASURING && part.load(Ordering::Relaxed) == MEASURING {
            latencies.record(u64::try_from(took.as_nanos())?)?;
        }
    }
}

fn sample(latencies: &Histogram<u64>, took: Duration, cpu_s: Option<(f64, f64)>) -> Sample {
    let quantile = |q| (!latencies.is_empty()).then(|| latencies.value_at_quantile(q) as f64 / 1e3);
    let calls = latencies.len() as f64;
    let mut sample = Sample {
        ops_per_s: calls / took.as_secs_f64(),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        ..Sample::default()
    };
    if let Some((before, after)) = cpu_s.filter(|_| calls > 0.0) {
        let each = (after - before) * 1e6 / calls;
        sample.extra.insert("server_cpu_us".into(), each);
    }
    sample
}

/// The side of a measurement for which a thread chooses its processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Servers,
    Callers,
}

/// Binds this thread, and the threads and processes that it starts from now on, to the processors of a side:
/// the servers have the last processor, the callers all others.
///
/// # Errors
///
/// The process may use only one processor.
pub(super) fn place(side: Side) -> anyhow::Result<()> {
    static ALLOWED: std::sync::OnceLock<CpuSet> = std::sync::OnceLock::new();
    let allowed = match ALLOWED.get() {
        Some(allowed) => *allowed,
        None => {
            let found = sched_getaffinity(None)?;
            *ALLOWED.get_or_init(|| found)
        }
    };
    anyhow::ensure!(
        allowed.count() > 1,
        "expected two processors for --apart, and this process may use one"
    );
    let mut last = CpuSet::new();
    let found = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu));
    let mut others = allowed;
    if let Some(cpu) = found {
        last.set(cpu);
        others.unset(cpu);
    }
    let set = if side == Side::Servers { last } else { others };
    sched_setaffinity(None, &set)?;
    Ok(())
}
