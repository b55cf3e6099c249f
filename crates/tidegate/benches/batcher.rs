//! Measures the cost of an actor itself: casts a second with a handler that does nothing; the workload of
//! gen_batch_server's pull request 29, beside the same batches without an actor; and a call with its reply.
//!
//! `cargo bench -p tidegate --bench batcher`. The bench is a program of its own and does not use criterion,
//! because it runs several threads. It reports the median, the smallest and the largest result of its rounds.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, Op, each_batch};
use tidegate::controller::Exponential;

const ROUNDS: usize = 7;
const CASTS: u64 = 4_000_000;

/// A handler that counts items and batches and does nothing else, so that the bench measures the actor alone.
#[derive(Default)]
struct Noop {
    items: u64,
    batches: u64,
}

impl Handler for Noop {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
        self.items += batch.len() as u64;
        self.batches += 1;
        for op in batch.drain() {
            if let Op::Call(_, reply) = op {
                reply.send(self.items);
            }
        }
        Ok(Flow::Continue)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test --benches` passes this flag, as to a bench of criterion. The program then measures nothing.
    if std::env::args().any(|arg| arg == "--test") {
        return Ok(());
    }
    for producers in [1, 2, 8] {
        for (name, buffer) in [("direct", 0), ("buffered", 256)] {
            let mut rates = Vec::new();
            let mut batches = 0;
            for _ in 0..ROUNDS {
                let (rate, n) = round(producers, buffer)?;
                rates.push(rate);
                batches = n;
            }
            rates.sort_by(f64::total_cmp);
            let [least, median, most] = [rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]];
            println!(
                "no-op handler, {producers} producer(s), {name:8}: {median:6.1} M/s ({least:.1}..{most:.1}), mean batch {:.0}",
                CASTS as f64 / batches as f64
            );
        }
    }
    for _ in 0..3 {
        backlog(
            "exponential",
            Builder::new().controller(Exponential::new().controller()),
        )?;
        backlog("knee", Builder::new())?;
    }
    round_trip()
}

/// Runs one round of casts. Returns the millions of casts a second until the actor has handled the last one,
/// and the number of batches.
fn round(producers: u64, buffer: usize) -> Result<(f64, u64), Box<dyn Error>> {
    let actor = Builder::new().spawn(Noop::default())?;
    let each = CASTS / producers;
    let start = Instant::now();
    std::thread::scope(|s| {
        for _ in 0..producers {
            let handle: Handle<u64, u64> = actor.clone();
            s.spawn(move || {
                if buffer == 0 {
                    for i in 0..each {
                        handle.blocking_cast(i).expect("open");
                    }
                } else {
                    let mut caster = handle.buffered_by(buffer);
                    for i in 0..each {
                        caster.blocking_cast(i).expect("open");
                    }
                    caster.blocking_flush().expect("open");
                }
            });
        }
    });
    // The call is a barrier: the actor answers it only after it has handled every earlier cast.
    let handled = actor.blocking_call(0)?;
    let rate = handled as f64 / start.elapsed().as_secs_f64() / 1e6;
    assert_eq!(handled, each * producers + 1);
    Ok((rate, actor.stats().batches))
}

type Payload = Arc<[u8]>;

/// Keeps the thread busy for 3 ms, plus 3 ms for each MiB of `items`, in place of an expensive call.
fn work(items: &mut Vec<Payload>) {
    let start = Instant::now();
    let bytes: usize = items.iter().map(|item| item.len()).sum();
    let cost = Duration::from_millis(3).mul_f64(1.0 + bytes as f64 / 1_048_576.0);
    while start.elapsed() < cost {
        std::hint::spin_loop();
    }
    items.clear();
}

/// Casts 100,000 references to one 4 KiB payload, then runs the same batches without an actor.
fn backlog(name: &str, builder: Builder<Payload>) -> Result<(), Box<dyn Error>> {
    let payload: Payload = vec![0; 4096].into();
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let of = Arc::clone(&sizes);
    let actor = builder.capacity(100_001).spawn(each_batch(move |items| {
        of.lock().expect("no panic").push(items.len());
        work(items);
    }))?;
    let start = Instant::now();
    for _ in 0..100_000 {
        actor.blocking_cast(Arc::clone(&payload))?;
    }
    actor.blocking_call(Arc::clone(&payload))?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let sizes = sizes.lock().expect("no panic").clone();
    let all = vec![payload; 100_001];
    let start = Instant::now();
    let mut rest = all.into_iter();
    let mut items = Vec::new();
    for &size in &sizes {
        items.extend(rest.by_ref().take(size));
        work(&mut items);
    }
    let bare = start.elapsed().as_secs_f64() * 1e3;
    println!(
        "100k x 4 KiB, {name:11}: {took:.1} ms, {:.1} k/s, {} batches (largest {}); without an actor {bare:.1} ms: {:+.2} %",
        100_001.0 / took,
        sizes.len(),
        sizes.iter().max().expect("batches"),
        100.0 * (took / bare - 1.0)
    );
    Ok(())
}

/// Measures the time of a call and its reply, for a caller that makes one call after the other.
fn round_trip() -> Result<(), Box<dyn Error>> {
    let actor = Builder::new().spawn(Noop::default())?;
    let mut took: Vec<u128> = (0..50_000)
        .map(|i| {
            let start = Instant::now();
            let _ = actor.blocking_call(i);
            start.elapsed().as_nanos()
        })
        .collect();
    took.sort_unstable();
    println!(
        "call and reply, one caller: p50 {} ns, p99 {} ns",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
    Ok(())
}
