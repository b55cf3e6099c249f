//! Casts a second through one actor with a handler that does nothing, and PR 29's workload.
//!
//! `cargo run --release --example batcher_speed`. Each row: median, least and most of several rounds, million casts a second.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::batcher::{Batch, Builder, Flow, Handle, Handler};

const ROUNDS: usize = 7;
const CASTS: u64 = 4_000_000;

/// Counts what it is given and does nothing with it.
#[derive(Default)]
struct Noop {
    items: u64,
    batches: u64,
}

impl Handler for Noop {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Flow {
        self.items += batch.len() as u64;
        self.batches += 1;
        for op in batch.drain() {
            if let tidegate::batcher::Op::Call(_, reply) = op {
                reply.send(self.items);
            }
        }
        Flow::Continue
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for producers in [1, 2, 4, 8] {
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
        backlog()?;
    }
    round_trip()
}

/// Million casts a second, until the last is handled; and the batches they made.
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
                        handle.cast(i).expect("open");
                    }
                } else {
                    let mut caster = handle.buffered_by(buffer);
                    for i in 0..each {
                        caster.cast(i).expect("open");
                    }
                    caster.flush().expect("open");
                }
            });
        }
    });
    // A barrier: answered after every cast before it.
    let handled = actor.call(0)?;
    let rate = handled as f64 / start.elapsed().as_secs_f64() / 1e6;
    assert_eq!(handled, each * producers + 1);
    Ok((rate, actor.stats().batches))
}

/// 100,000 references to one 4 KiB payload, 3 ms + 3 ms/MiB a batch.
fn backlog() -> Result<(), Box<dyn Error>> {
    let payload: Arc<[u8]> = vec![0; 4096].into();
    let actor = Builder::new()
        .capacity(100_001)
        .spawn(tidegate::batcher::each_batch(
            |items: &mut Vec<Arc<[u8]>>| {
                let bytes: usize = items.iter().map(|item| item.len()).sum();
                let cost = Duration::from_millis(3).mul_f64(1.0 + bytes as f64 / 1_048_576.0);
                let start = Instant::now();
                while start.elapsed() < cost {
                    std::hint::spin_loop();
                }
            },
        ))?;
    let start = Instant::now();
    for _ in 0..100_000 {
        actor.cast(Arc::clone(&payload))?;
    }
    actor.call(payload)?;
    let took = start.elapsed();
    let stats = actor.stats();
    let work = 3.0 * stats.batches as f64 + 3.0 * 100_001.0 * 4096.0 / 1_048_576.0;
    let took_ms = took.as_secs_f64() * 1e3;
    println!(
        "100k x 4 KiB: {took_ms:.1} ms in {} batches (largest {}); the handler's own time {work:.1} ms: {:.2} % on top",
        stats.batches,
        stats.items_max,
        100.0 * (took_ms / work - 1.0)
    );
    Ok(())
}

/// Calls one after the other.
fn round_trip() -> Result<(), Box<dyn Error>> {
    let actor = Builder::new().spawn(Noop::default())?;
    let mut took: Vec<u128> = (0..50_000)
        .map(|i| {
            let start = Instant::now();
            let _ = actor.call(i);
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
