//! `tidegate-bench mailbox`: measures the library's batch actor beside gen_batch_server.
//!
//! The first workload is the workload of gen_batch_server's PR 29: one thread casts the same 4 KiB 100,000
//! times and then waits for the answer to a call; the handler is busy for 3 ms a batch and 3 ms a MiB. The
//! bench prints the whole table of the PR. **Heap** means here: the bytes that the process has allocated
//! while the handler has a batch, less the bytes before the start of the actor. So it covers the actor's
//! queue, the batch and its bookkeeping, and not the shared payload, as in the original. In a second workload
//! threads cast 5 bytes to a handler that does nothing. In a third, callers wait for each answer before they
//! call again.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate::batcher::{Batch, Builder, Flow, Handled, Handler, Op, each_batch};
use tidegate::controller::{Bounds, Choice, Objective};

use super::OURS;
use super::latency;
use super::machine::{self, Meter};
use super::peers::{self, Peers};
use super::rounds::{Contestant, Failure, Sample, calibrated, quantile};
use super::session::Session;
use tidegate_cli::report::{Column, Row, Table, count, number};

/// The bounds on the number of items in a batch, equal to the bounds of gen_batch_server.
const BOUNDS: Bounds = Bounds::items(32, 8192);
const PAYLOAD: usize = 4096;

/// Runs all cells of the bench `mailbox`.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    let items = if session.is_smoke() { 2_000 } else { 100_000 };
    let case = format!("PR 29: {items} casts of {PAYLOAD} bytes, 3 ms + 3 ms/MiB");
    if session.wants(&case) {
        let rows = pr29_cell(session, &case, items)?;
        session.print(&pr29_table(&rows))?;
    }
    let producers = if session.args.full {
        &[1, 2, 8][..]
    } else {
        &[1, 2]
    };
    for &producers in producers {
        noop_cell(session, producers)?;
    }
    for work in [Work::Busy(500), Work::Asleep(5000)] {
        for callers in [1, 2, 8, 64] {
            calls_cell(session, work, callers)?;
        }
    }
    Ok(())
}

fn ours<'a>(
    controller: String,
    subject: bool,
    run: impl FnMut(&mut Peers) -> Result<Sample, Failure> + 'a,
) -> Contestant<'a, Peers> {
    let version = Some(env!("CARGO_PKG_VERSION").into());
    Contestant {
        system: OURS.into(),
        version,
        controller: Some(controller),
        subject,
        run: Box::new(run),
    }
}

// The workload of gen_batch_server's PR 29: casts of 4 KiB to a busy handler.

fn pr29_cell(session: &mut Session, case: &str, items: u64) -> anyhow::Result<Vec<Row>> {
    let choices = [
        Choice::KNEE,
        Choice::Exponential,
        Choice::Aimd { step: 32 },
        Choice::Aimd { step: 64 },
        Choice::Aimd { step: 128 },
        Choice::Fixed {
            limit: 8192,
            linger: Duration::ZERO,
        },
        Choice::GREEDY,
    ];
    let own = |choice: Choice| {
        let run = move |_: &mut Peers| pr29(choice, items).map_err(|e| format!("{e:#}"));
        ours(choice.to_string(), choice == Choice::KNEE, run)
    };
    let mut contestants: Vec<_> = choices.into_iter().map(own).collect();
    for system in session.systems.clone() {
        let (peer, name) = (system.peer, system.name);
        let request = format!(
            "mailbox system={name} case=pr29 growth=exponential items={items} payload={PAYLOAD} queue_data=off_heap"
        );
        contestants.push(Contestant {
            system: name,
            version: Some(system.version),
            controller: Some("exponential".into()),
            subject: false,
            run: Box::new(move |peers: &mut Peers| {
                let mut sample =
                    peers::sample(&peers.ask(&peer, &request, Duration::from_secs(10))?)?;
                for of in ["mean", "p50", "max"] {
                    if let Some(words) = sample.extra.get(&format!("heap_words_{of}")) {
                        sample
                            .extra
                            .insert(format!("heap_kb_{of}"), words * 8.0 / 1024.0);
                    }
                }
                if let Some(elapsed) = sample.extra.get("elapsed_s") {
                    sample.extra.insert("elapsed_ms".into(), elapsed * 1e3);
                }
                Ok(sample)
            }),
        });
    }
    session.cell(case, contestants)
}

/// A handler that is busy for 3 ms a batch and 3 ms a MiB. The handler records the size of each batch and the
/// heap during the batch, and replies with both.
struct Busy {
    before: u64,
    seen: Seen,
}

#[derive(Clone, Default)]
struct Seen {
    sizes: Vec<f64>,
    heaps: Vec<f64>,
}

impl Handler for Busy {
    type Item = Arc<[u8; PAYLOAD]>;
    type Reply = Seen;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<Self::Item, Seen>) -> Handled {
        let start = Instant::now();
        let heap = machine::heap_bytes().saturating_sub(self.before);
        let casts = batch
            .ops()
            .iter()
            .filter(|op| matches!(op, Op::Cast(_)))
            .count();
        let cost = Duration::from_millis(3).mul_f64(1.0 + (casts * PAYLOAD) as f64 / 1_048_576.0);
        while start.elapsed() < cost {
            std::hint::spin_loop();
        }
        if casts > 0 {
            self.seen.sizes.push(casts as f64);
            self.seen.heaps.push(heap as f64 / 1024.0);
        }
        for op in batch.drain() {
            if let Op::Call(_, reply) = op {
                reply.send(self.seen.clone());
            }
        }
        Ok(Flow::Continue)
    }
}

fn pr29(choice: Choice, items: u64) -> anyhow::Result<Sample> {
    let payload = Arc::new([0; PAYLOAD]);
    let before = settled_heap();
    let seen = Seen {
        sizes: Vec::with_capacity(4096),
        heaps: Vec::with_capacity(4096),
    };
    let handler = Busy { before, seen };
    let actor = Builder::new()
        .bounds(BOUNDS)
        .controller(choice.build(BOUNDS)?)
        .spawn(handler)?;
    let (start, meter) = (Instant::now(), Meter::start());
    for _ in 0..items {
        actor
            .blocking_cast(Arc::clone(&payload))
            .ok()
            .context("the actor ended")?;
    }
    let seen = actor
        .blocking_call(payload)
        .ok()
        .context("the barrier was not answered")?;
    let (elapsed, spent) = (start.elapsed(), meter.spent());
    actor.blocking_drain(Duration::from_secs(10))?;
    let handled: f64 = seen.sizes.iter().sum();
    anyhow::ensure!(handled == items as f64, "it lost items");
    let share = |values: &[f64], q| quantile(values.to_vec(), q).unwrap_or(0.0);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mut sample = Sample {
        ops_per_s: items as f64 / elapsed.as_secs_f64(),
        batches: Some(seen.sizes.len() as f64),
        batch_mean: Some(mean(&seen.sizes)),
        batch_max: Some(share(&seen.sizes, 1.0)),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        rss_mb: machine::rss_mb(),
        ..Sample::default()
    };
    for (key, value) in [
        ("elapsed_ms", elapsed.as_secs_f64() * 1e3),
        ("batch_p50", share(&seen.sizes, 0.5)),
        ("batch_p95", share(&seen.sizes, 0.95)),
        ("heap_kb_mean", mean(&seen.heaps)),
        ("heap_kb_p50", share(&seen.heaps, 0.5)),
        ("heap_kb_max", share(&seen.heaps, 1.0)),
        ("heap_peak_kb", share(&seen.heaps, 1.0)),
    ] {
        sample.extra.insert(key.into(), value);
    }
    Ok(sample)
}

/// Returns the allocated bytes of this process, once the thread of the previous actor has freed its memory.
fn settled_heap() -> u64 {
    let mut bytes = machine::heap_bytes();
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(2));
        let now = machine::heap_bytes();
        if now == bytes {
            break;
        }
        bytes = now;
    }
    bytes
}

/// Formats the table of gen_batch_server's PR 29, with one column for each controller.
fn pr29_table(rows: &[Row]) -> String {
    let lines: [Column; 11] = [
        ("elapsed ms", |row| {
            row.extra("elapsed_ms").map(|ms| format!("{ms:.1}"))
        }),
        ("msg/s", |row| row.ops_per_s.map(count)),
        ("batches", |row| row.batches.map(number)),
        ("batch mean", |row| {
            row.batch_mean.map(|mean| format!("{mean:.0}"))
        }),
        ("batch p50", |row| row.extra("batch_p50").map(number)),
        ("batch p95", |row| row.extra("batch_p95").map(number)),
        ("batch max", |row| row.batch_max.map(number)),
        ("heap a batch, mean KB", |row| {
            row.extra("heap_kb_mean").map(number)
        }),
        ("heap a batch, p50 KB", |row| {
            row.extra("heap_kb_p50").map(number)
        }),
        ("heap a batch, max KB", |row| {
            row.extra("heap_kb_max").map(number)
        }),
        ("heap peak KB", |row| row.extra("heap_peak_kb").map(number)),
    ];
    let name = |row: &Row| match row.system == OURS {
        true => row.controller.clone().unwrap_or_default(),
        false => row.label(),
    };
    let mut table = Table::new(["".to_owned()].into_iter().chain(rows.iter().map(name)));
    for (head, cell) in lines {
        table.row(
            [head.to_owned()]
                .into_iter()
                .chain(rows.iter().map(|row| cell(row).unwrap_or_default())),
        );
    }
    table.print()
}

// The workload with a handler that does nothing, so that only the actor costs time.

fn noop_cell(session: &mut Session, producers: usize) -> anyhow::Result<()> {
    let case = format!(
        "no-op handler, 5-byte casts, {producers} producer{}",
        if producers == 1 { "" } else { "s" }
    );
    if !session.wants(&case) {
        return Ok(());
    }
    let target = Duration::from_millis(if session.is_smoke() { 2 } else { 400 });
    let own = |choice: Choice, buffered: bool, subject| {
        let run = move |_: &mut Peers, items| {
            noop(choice, buffered, producers, items).map_err(|e| format!("{e:#}"))
        };
        let controller = if buffered {
            format!("{choice}, buffered")
        } else {
            choice.to_string()
        };
        ours(controller, subject, calibrated(target, run))
    };
    let mut contestants = vec![
        own(Choice::KNEE, true, true),
        own(Choice::KNEE, false, true),
        own(Choice::Exponential, true, false),
        own(Choice::GREEDY, true, false),
    ];
    for system in session.systems.clone() {
        let (peer, name) = (system.peer, system.name);
        let head = format!("mailbox system={name} case=noop producers={producers}");
        contestants.push(Contestant {
            system: name,
            version: Some(system.version),
            controller: Some("exponential".into()),
            subject: false,
            run: Box::new(calibrated(target, move |peers: &mut Peers, items| {
                peers::sample(&peers.ask(&peer, &format!("{head} items={items}"), target)?)
            })),
        });
    }
    session.cell(&case, contestants).map(drop)
}

// The workload with callers in a closed loop: each caller calls again as soon as it has its answer.

/// The way in which the handler spends its time on a batch.
#[derive(Clone, Copy)]
enum Work {
    /// The handler computes for this many microseconds.
    Busy(u64),
    /// The handler sleeps for this many microseconds, like a handler that waits for a disk.
    Asleep(u64),
}

fn calls_cell(session: &mut Session, work: Work, callers: usize) -> anyhow::Result<()> {
    let what = match work {
        Work::Busy(us) => format!("busy {us} us a batch"),
        Work::Asleep(us) => format!("asleep {us} us a batch"),
    };
    let plural = if callers == 1 { "" } else { "s" };
    let case = format!("closed loop, handler {what}, {callers} caller{plural}");
    if !session.wants(&case) {
        return Ok(());
    }
    let time = Duration::from_millis(if session.is_smoke() { 5 } else { 600 });
    let own = |name: &str, objective: Option<Objective>| {
        let run = move |_: &mut Peers| {
            calls(objective, work, callers, time).map_err(|e| format!("{e:#}"))
        };
        ours(name.into(), objective.is_some(), run)
    };
    let contestants = vec![own("knee", Some(Objective::Lean)), own("greedy", None)];
    session.cell(&case, contestants).map(drop)
}

/// Measures callers that wait for each answer before they call again. Without an objective, the actor takes
/// the whole backlog into each batch.
fn calls(
    objective: Option<Objective>,
    work: Work,
    callers: usize,
    time: Duration,
) -> anyhow::Result<Sample> {
    let builder = Builder::new();
    let builder = match objective {
        Some(objective) => builder.objective(objective),
        None => builder.controller(Choice::GREEDY.build(Bounds::default())?),
    };
    let handle = move |_: &mut Vec<()>| match work {
        Work::Asleep(us) => thread::sleep(Duration::from_micros(us)),
        Work::Busy(us) => {
            let start = Instant::now();
            while start.elapsed() < Duration::from_micros(us) {
                std::hint::spin_loop();
            }
        }
    };
    let actor = builder.spawn(each_batch(handle))?;
    let (start, meter) = (Instant::now(), Meter::start());
    let mut latency = latency::histogram();
    thread::scope(|scope| -> anyhow::Result<()> {
        let caller = || -> anyhow::Result<_> {
            let mut latency = latency::histogram();
            while start.elapsed() < time {
                let called = Instant::now();
                actor.blocking_call(()).ok().context("the actor ended")?;
                latency.record(called.elapsed().as_nanos() as u64)?;
            }
            Ok(latency)
        };
        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
        for caller in callers {
            let own = caller
                .join()
                .map_err(|_| anyhow::anyhow!("a caller panicked"))??;
            latency.add(own)?;
        }
        Ok(())
    })?;
    let (elapsed, spent, stats) = (start.elapsed(), meter.spent(), actor.stats());
    actor.blocking_drain(Duration::from_secs(10))?;
    let mut sample = Sample {
        ops_per_s: latency.len() as f64 / elapsed.as_secs_f64(),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        batches: Some(stats.batches as f64),
        batch_mean: Some(latency.len() as f64 / stats.batches.max(1) as f64),
        ..Sample::default()
    };
    latency::put(&mut sample, &latency);
    Ok(sample)
}

/// A handler that only counts casts. It replies with the numbers of casts and of batches so far.
#[derive(Default)]
struct Counting {
    casts: u64,
    batches: u64,
}

impl Handler for Counting {
    type Item = [u8; 5];
    type Reply = (u64, u64);
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<[u8; 5], (u64, u64)>) -> Handled {
        self.batches += 1;
        for op in batch.drain() {
            match op {
                Op::Call(_, reply) => reply.send((self.casts, self.batches)),
                _ => self.casts += 1,
            }
        }
        Ok(Flow::Continue)
    }
}

fn noop(choice: Choice, buffered: bool, producers: usize, items: u64) -> anyhow::Result<Sample> {
    let controller = choice.build(BOUNDS)?;
    let actor = Builder::new()
        .bounds(BOUNDS)
        .controller(controller)
        .spawn(Counting::default())?;
    let share = |who: usize| items * who as u64 / producers as u64;
    let (start, meter) = (Instant::now(), Meter::start());
    thread::scope(|scope| {
        for who in 0..producers {
            let (handle, casts) = (actor.clone(), share(who + 1) - share(who));
            scope.spawn(move || {
                // The producer ignores a failed cast, because the count at the end shows whether the actor
                // ended early.
                if buffered {
                    let mut caster = handle.buffered();
                    let cast = (0..casts).try_for_each(|_| caster.blocking_cast(*b"hello").ok());
                    // The call that follows comes through another handle, so the producer flushes its buffer
                    // first. Casts left in the buffer by a full queue would otherwise come after that call.
                    cast.and_then(|()| caster.blocking_flush().ok())
                } else {
                    (0..casts).try_for_each(|_| handle.blocking_cast(*b"hello").ok())
                }
            });
        }
    });
    let (handled, batches) = actor
        .blocking_call(*b"count")
        .ok()
        .context("the barrier was not answered")?;
    let (elapsed, spent) = (start.elapsed(), meter.spent());
    anyhow::ensure!(handled == items, "it lost items: {handled} of {items}");
    Ok(Sample {
        ops_per_s: items as f64 / elapsed.as_secs_f64(),
        batches: Some(batches as f64),
        batch_mean: Some(items as f64 / batches as f64),
        batch_max: Some(actor.stats().items_max as f64),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        rss_mb: machine::rss_mb(),
        ..Sample::default()
    })
}
