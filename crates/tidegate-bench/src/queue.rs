//! `tidegate-bench queue`: passes 8-byte items through the queue, by every kind of producer, beside the
//! rivals' queues.
//!
//! The bench measures throughput from the moment at which the first producer passes a barrier until the
//! consumer has received the last item. The consumer adds up the items, and the bench checks the sum. In a
//! batched cell the caller pushes item by item into a producer that batches, or, in `slice`, pushes whole
//! batches. Rivals with a batch insert get whole batches.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tidegate::Clock;
use tidegate::controller::{Bounds, Choice};
use tidegate::queue::{Builder, Consumer, Metrics, Producer, Queue};

use super::machine::{self, Meter};
use super::peers::{self, Peers, System};
use super::rounds::{Contestant, Failure, Sample, calibrated};
use super::session::Session;
use super::{OURS, latency};
use tidegate_cli::report::Row;

/// The capacity of every queue in items, which is Storm's default, so that the figures are comparable.
const CAPACITY: usize = 32_768;

/// The greatest limit of a controller in items. A buffer of this many items has 32 KiB, which fit the
/// processor's nearest cache.
const LIMIT_MAX: usize = 4096;

/// The way in which producers put items into the queue.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Single,
    Batch(usize),
    /// Producers push whole batches, as they do to rivals with a batch insert.
    Slice(usize),
    Controlled(Choice),
}

impl Mode {
    fn label(self) -> String {
        match self {
            Self::Single => "single".into(),
            Self::Batch(limit) => format!("batch {limit}"),
            Self::Slice(len) => format!("slice {len}"),
            Self::Controlled(choice) => choice.to_string(),
        }
    }

    fn producer(self, queue: &Queue<u64>) -> anyhow::Result<Producer<u64>> {
        Ok(match self {
            Self::Single | Self::Slice(_) => queue.producer(),
            Self::Batch(limit) => queue.fixed(limit)?,
            Self::Controlled(choice) => {
                let bounds = Bounds::items(1, LIMIT_MAX as u64);
                queue.controlled(LIMIT_MAX, choice.build(bounds)?)?
            }
        })
    }

    /// Returns the rival's setting for the comparison, and the setting's name: the rival's own dynamic rule
    /// if it has one, otherwise its best constant batch size.
    fn rival(self, system: &System) -> (String, String) {
        let dynamic = system.name.contains("jcqueue");
        let (mode, batch) = match self {
            Self::Single => return ("mode=single".into(), "single".into()),
            Self::Batch(limit) | Self::Slice(limit) => ("batch", limit as u64),
            Self::Controlled(Choice::StormAimd { ceiling }) if dynamic => ("dynamic", ceiling),
            Self::Controlled(Choice::StormAimd { ceiling }) => ("batch", ceiling),
            Self::Controlled(_) if dynamic => ("dynamic", 1000),
            Self::Controlled(_) => ("batch", 1000),
        };
        (
            format!("mode={mode} batch={batch}"),
            format!("{mode} {batch}"),
        )
    }
}

/// Runs all cells of the bench `queue`.
pub(crate) fn run(session: &mut Session) -> anyhow::Result<()> {
    let storm = |ceiling| Mode::Controlled(Choice::StormAimd { ceiling });
    let modes = [
        Mode::Single,
        Mode::Batch(8),
        Mode::Batch(10),
        Mode::Batch(100),
        Mode::Batch(1000),
        Mode::Controlled(Choice::KNEE),
        storm(100),
        storm(1000),
    ];
    for producers in [1, 2] {
        for mode in modes {
            throughput_cell(session, producers, mode)?;
        }
    }
    latency_cell(session)?;
    if session.args.full {
        memory_cell(session)?;
        idle_cell(session)?;
    }
    Ok(())
}

fn throughput_cell(session: &mut Session, producers: usize, mode: Mode) -> anyhow::Result<()> {
    let case = format!(
        "{} producer{}, {}",
        producers,
        if producers == 1 { "" } else { "s" },
        mode.label()
    );
    if !session.wants(&case) {
        return Ok(());
    }
    // The measurement lasts long, so that the ticks of the kernel's scheduler hardly change the result.
    let target = Duration::from_millis(if session.is_smoke() { 2 } else { 250 });
    let own = |mode: Mode| Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some(mode.label()),
        subject: true,
        run: Box::new(calibrated(target, move |_: &mut Peers, items| {
            throughput(mode, producers, items).map_err(|e| format!("{e:#}"))
        })),
    };
    let mut contestants = vec![own(mode)];
    if let Mode::Batch(limit) = mode {
        contestants.push(own(Mode::Slice(limit)));
    }
    for system in session.systems.clone() {
        let (request, label) = mode.rival(&system);
        let head = format!(
            "queue system={} producers={producers} capacity={CAPACITY} {request}",
            system.name
        );
        let peer = system.peer.clone();
        contestants.push(rival(
            &system,
            &label,
            calibrated(target, move |peers: &mut Peers, items| {
                let answer = peers.ask(&peer, &format!("{head} items={items}"), Duration::ZERO)?;
                peers::sample(&answer)
            }),
        ));
    }
    session.cell(&case, contestants).map(drop)
}

fn rival<'a>(
    system: &System,
    label: &str,
    run: impl FnMut(&mut Peers) -> Result<Sample, Failure> + 'a,
) -> Contestant<'a, Peers> {
    Contestant {
        system: system.name.clone(),
        version: Some(system.version.clone()),
        controller: Some(label.into()),
        subject: false,
        run: Box::new(run),
    }
}

/// Pushes the items `0..items` through a queue, and measures the throughput.
fn throughput(mode: Mode, producers: usize, items: u64) -> anyhow::Result<Sample> {
    let (queue, consumer) = Builder::new(CAPACITY).build()?;
    let barrier = Barrier::new(producers + 2);
    let shares = (0..producers as u64).map(|who| {
        let share = |who| items * who / producers as u64;
        share(who)..share(who + 1)
    });
    let makers = (0..producers)
        .map(|_| mode.producer(&queue))
        .collect::<Result<Vec<_>, _>>()?;
    let (first, last, spent, sum) = thread::scope(|scope| {
        let threads: Vec<_> = makers
            .into_iter()
            .zip(shares)
            .map(|(mut producer, share)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    push_all(mode, &mut producer, share);
                    start
                })
            })
            .collect();
        let meter = Meter::start();
        let barrier = &barrier;
        let consumer = scope.spawn(move || {
            barrier.wait();
            let start = Instant::now();
            let sum = add_up(consumer, items);
            (start, Instant::now(), sum)
        });
        barrier.wait();
        let (mut first, last, sum) = consumer.join().ok()?;
        let spent = meter.spent();
        for thread in threads {
            first = first.min(thread.join().ok()?);
        }
        Some((first, last, spent, sum))
    })
    .context("a thread of the measurement panicked")?;
    anyhow::ensure!(sum == sum_to(items), "it lost or changed items");
    let mut sample = Sample {
        ops_per_s: items as f64 / (last - first).as_secs_f64(),
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        rss_mb: machine::rss_mb(),
        ..Sample::default()
    };
    put_batches(&mut sample, &queue.metrics());
    Ok(sample)
}

fn push_all(mode: Mode, producer: &mut Producer<u64>, share: Range<u64>) {
    let Mode::Slice(len) = mode else {
        for item in share {
            producer.blocking_push(item).ok();
        }
        return;
    };
    let mut batch = Vec::with_capacity(len);
    let mut rest = share;
    while !rest.is_empty() {
        batch.clear();
        batch.extend(rest.by_ref().take(len));
        producer.blocking_push_slice(&batch).ok();
    }
}

fn add_up(mut consumer: Consumer<u64>, items: u64) -> u64 {
    let (mut sum, mut left) = (0u64, items);
    while left > 0 {
        match consumer.blocking_recv(usize::MAX, |item| sum = sum.wrapping_add(item)) {
            Ok(batch) => left = left.saturating_sub(batch.items as u64),
            Err(_) => break,
        }
    }
    sum
}

/// Returns the wrapping sum of `0..items`, to which the consumer's sum must be equal.
fn sum_to(items: u64) -> u64 {
    (u128::from(items) * u128::from(items.saturating_sub(1)) / 2) as u64
}

fn put_batches(sample: &mut Sample, metrics: &Metrics) {
    if metrics.flushes.batches() > 0 {
        sample.batches = Some(metrics.flushes.batches() as f64);
        sample.batch_mean = Some(metrics.flushes.mean());
        sample.batch_max = Some(metrics.flushes.items_max as f64);
    }
}

/// Measures the latency of 1,000 items a second, to show the cost of batching for a load that does not need
/// it.
fn latency_cell(session: &mut Session) -> anyhow::Result<()> {
    const RATE: f64 = 1000.0;
    let case = "1 producer, 1,000 items/s";
    if !session.wants(case) {
        return Ok(());
    }
    let seconds = if session.is_smoke() { 0.05 } else { 2.0 };
    let ours = |mode: Mode, subject| Contestant {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        controller: Some(mode.label()),
        subject,
        run: Box::new(move |_: &mut Peers| {
            paced(mode, RATE, seconds).map_err(|e| format!("{e:#}"))
        }),
    };
    let mut contestants = vec![
        ours(Mode::Controlled(Choice::KNEE), true),
        ours(Mode::Single, false),
        ours(Mode::Batch(100), false),
        ours(Mode::Controlled(Choice::StormAimd { ceiling: 1000 }), false),
    ];
    for system in session.systems.clone() {
        let request = format!(
            "queue_paced system={} rate={RATE} seconds={seconds} capacity={CAPACITY}",
            system.name
        );
        let peer = system.peer.clone();
        contestants.push(rival(&system, "single", move |peers: &mut Peers| {
            let answer = peers.ask(&peer, &request, Duration::from_secs_f64(seconds))?;
            peers::sample(&answer)
        }));
    }
    session.cell(case, contestants).map(drop)
}

/// Runs one producer that pushes by a schedule, even if it is late, while the consumer waits as usual.
/// Latencies count from the push of an item; the extra keys hold the latencies from its due time.
fn paced(mode: Mode, rate: f64, seconds: f64) -> anyhow::Result<Sample> {
    let (queue, mut consumer) = Builder::new(CAPACITY).build()?;
    let mut producer = mode.producer(&queue)?;
    let items = (rate * seconds) as u64;
    let clock = Clock::start();
    // The first item is due after 20 ms, when both threads are running.
    let due = move |item: u64| 20_000_000 + (item as f64 * 1e9 / rate) as u64;
    let meter = Meter::start();
    let seen = thread::scope(|scope| {
        let consumer = scope.spawn(move || {
            let (mut from_push, mut from_due) = (latency::histogram(), latency::histogram());
            let mut item = 0;
            while item < items {
                let batch = consumer.blocking_recv(usize::MAX, |pushed: u64| {
                    let now = clock.now().as_nanos();
                    // The histograms grow as needed, so `record` does not fail.
                    let _ = from_push.record(now.saturating_sub(pushed));
                    let _ = from_due.record(now.saturating_sub(due(item)));
                    item += 1;
                });
                if batch.is_err() {
                    break;
                }
            }
            (from_push, from_due)
        });
        for item in 0..items {
            wait_until(due(item), clock);
            if producer.blocking_push(clock.now().as_nanos()).is_err() {
                break;
            }
        }
        consumer.join().ok()
    });
    let (from_push, from_due) = seen.context("the consumer panicked")?;
    let elapsed = clock.now().as_nanos().saturating_sub(due(0));
    let spent = meter.spent();
    let mut sample = Sample {
        ops_per_s: from_push.len() as f64 * 1e9 / elapsed as f64,
        cpu_s: Some(spent.cpu.as_secs_f64()),
        allocs: Some(spent.allocs as f64),
        ..Sample::default()
    };
    latency::put(&mut sample, &from_push);
    sample
        .extra
        .insert("due_p50_us".into(), latency::quantile_us(&from_due, 0.5));
    sample
        .extra
        .insert("due_p99_us".into(), latency::quantile_us(&from_due, 0.99));
    put_batches(&mut sample, &queue.metrics());
    Ok(sample)
}

fn wait_until(due_ns: u64, clock: Clock) {
    // A sleep ends about 60 us too late, so the function spins for the last 200 us.
    const NEAR_NS: u64 = 200_000;
    loop {
        match due_ns.saturating_sub(clock.now().as_nanos()) {
            0 => return,
            left if left > 2 * NEAR_NS => thread::sleep(Duration::from_nanos(left - NEAR_NS)),
            _ => std::hint::spin_loop(),
        }
    }
}

/// Measures the resident memory of this process while two producers push 100 million items, after each tenth
/// of them.
fn memory_cell(session: &mut Session) -> anyhow::Result<()> {
    let case = "memory over 100 M items";
    if !session.wants(case) {
        return Ok(());
    }
    let items = if session.is_smoke() {
        100_000
    } else {
        100_000_000
    };
    let (queue, mut consumer) = Builder::new(CAPACITY).build()?;
    let mode = Mode::Controlled(Choice::KNEE);
    let mut producers = [mode.producer(&queue)?, mode.producer(&queue)?];
    let mut resident = Vec::new();
    let start = Instant::now();
    for _ in 0..10 {
        thread::scope(|scope| {
            for producer in &mut producers {
                scope.spawn(move || {
                    for item in 0..items / 20 {
                        producer.blocking_push(item).ok();
                    }
                });
            }
            let mut left = items / 10;
            while left > 0
                && let Ok(batch) = consumer.blocking_recv(usize::MAX, drop)
            {
                left -= batch.items as u64;
            }
        });
        resident.extend(machine::rss_mb());
    }
    let growth = resident
        .last()
        .zip(resident.first())
        .map(|(last, first)| last - first);
    let mut row = ours(case, mode);
    row.ops_per_s = Some(items as f64 / start.elapsed().as_secs_f64());
    row.rss_mb = resident.last().copied();
    row.extra.insert("rss_growth_mb".into(), json!(growth));
    row.extra.insert(
        "note".into(),
        json!(format!("grew by {:.2} MiB", growth.unwrap_or(f64::NAN))),
    );
    session.keep(case, vec![row])
}

/// Measures the cost of an idle queue: the wake-ups and the processor time of a waiting consumer and of an
/// idle producer with a buffer, in a minute.
fn idle_cell(session: &mut Session) -> anyhow::Result<()> {
    let case = "idle for 60 s";
    if !session.wants(case) {
        return Ok(());
    }
    let idle = Duration::from_millis(if session.is_smoke() { 200 } else { 60_000 });
    let (queue, mut consumer) = Builder::new(CAPACITY).build()?;
    let mode = Mode::Controlled(Choice::KNEE);
    let mut producer = mode.producer(&queue)?;
    producer.blocking_push(1u64).ok();
    let (before, after, spent) = thread::scope(|scope| {
        scope.spawn(move || while consumer.blocking_recv(usize::MAX, drop).is_ok() {});
        // The idle consumer looks at the queue once more after one linger. The measurement begins after that
        // look, so that the look does not count.
        thread::sleep(Duration::from_millis(100));
        let (before, meter) = (queue.metrics(), Meter::start());
        thread::sleep(idle);
        let seen = (before, queue.metrics(), meter.spent());
        queue.close();
        seen
    });
    let wakes =
        (after.consumer_wakes + after.linger_wakes) - (before.consumer_wakes + before.linger_wakes);
    let mut row = ours(case, mode);
    row.cpu_s = Some(spent.cpu.as_secs_f64());
    row.extra.insert(
        "wakes".into(),
        json!(wakes + after.consumer_waits - before.consumer_waits),
    );
    row.extra.insert(
        "note".into(),
        json!(format!("{wakes} wake-ups in {} s", idle.as_secs_f64())),
    );
    session.keep(case, vec![row])
}

fn ours(case: &str, mode: Mode) -> Row {
    Row {
        system: OURS.into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        case: case.into(),
        controller: Some(mode.label()),
        ..Row::default()
    }
}
