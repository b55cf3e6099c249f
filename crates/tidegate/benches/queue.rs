//! Measures the queue: millions of 8-byte items a second, and nanoseconds an item, for one and two producers.
//!
//! `cargo bench -p tidegate --bench queue -- [FILTER] [--rounds N] [--items M]` prints the median of the
//! rounds, with the lowest and the highest. The consumer adds the items up; it and every producer have a
//! thread of their own. The filter `paced` instead measures latencies at a thousand items a second, unbatched
//! and with a buffer for 100. The filter `serve` reads cases from stdin (`PRODUCERS HOW LIMIT MILLIONS`, say
//! `1 fixed 8 20`) and answers each at once with its millions of items a second, so that a script can
//! interleave them with the cases of a rival.

use std::io::BufRead;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use tidegate::controller::{Bounds, Controller, Knee, Objective, Observed, Rule, Ruled};
use tidegate::queue::{Builder, Consumer, Producer, Queue};

const CAPACITY: usize = 32_768;

/// The way in which a producer of the bench pushes its items.
#[derive(Clone, Copy, Debug)]
enum How {
    /// The producer pushes items one by one, with one claim for each item.
    Direct,
    /// The producer pushes vectors of this many items, with one claim for each vector.
    Many(usize),
    /// The producer pushes slices of this many items, with one claim for each slice.
    Slice(usize),
    /// The producer has a buffer for this many items, and pushes slices of as many items.
    FixedSlice(usize),
    /// The producer has a buffer for this many items, and pushes items one by one.
    Fixed(usize),
    /// The producer has a buffer with a rule that raises the limit up to this many items.
    Controlled(usize),
    /// The producer has a buffer with the default controller, for up to this many items.
    Knee(usize),
}

fn main() {
    let mut filter = String::new();
    let (mut rounds, mut items) = (5, 20u64);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|n| n.parse().ok());
        match arg.as_str() {
            "--rounds" => rounds = number().unwrap_or(5) as usize,
            "--items" => items = number().unwrap_or(20),
            "--bench" => {}
            other => filter = other.to_owned(),
        }
    }
    if filter == "serve" {
        serve();
        return;
    }
    if filter == "paced" {
        for how in [
            How::Direct,
            How::Fixed(100),
            How::Controlled(100),
            How::Direct,
        ] {
            paced(how);
        }
        return;
    }
    println!(
        "{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "case", "M/s", "low", "high", "ns/item", "batch"
    );
    for producers in [1, 2] {
        for (name, how) in cases() {
            let name = format!("{producers}p {name}");
            if name.contains(&filter) {
                let mut runs: Vec<_> = (0..rounds)
                    .map(|_| run(producers, how, items * 1_000_000))
                    .collect();
                runs.sort_by(|a, b| a.0.total_cmp(&b.0));
                let (rate, batch) = runs[runs.len() / 2];
                let (low, high) = (runs[0].0, runs[runs.len() - 1].0);
                println!(
                    "{name:<24}{rate:>10.1}{low:>10.1}{high:>10.1}{:>10.2}{batch:>10.0}",
                    1e3 / rate
                );
            }
        }
    }
}

fn cases() -> Vec<(String, How)> {
    let mut all = vec![("direct".to_owned(), How::Direct)];
    for n in [8, 100, 1000] {
        all.push((format!("many {n}"), How::Many(n)));
        all.push((format!("slice {n}"), How::Slice(n)));
        all.push((format!("fixed, slice {n}"), How::FixedSlice(n)));
    }
    for n in [1, 8, 100, 1000] {
        all.push((format!("fixed {n}"), How::Fixed(n)));
    }
    for n in [100, 1000] {
        all.push((format!("controlled {n}"), How::Controlled(n)));
        all.push((format!("knee {n}"), How::Knee(n)));
    }
    all
}

/// Reads cases from stdin, runs each of them, and prints its result line by line, for a script that compares
/// rivals.
fn serve() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[producers, how, n, items] = words.as_slice() else {
            println!("want: PRODUCERS HOW LIMIT MILLIONS");
            continue;
        };
        let number = |word: &str| word.parse::<f64>().unwrap_or(1.0);
        let n = number(n) as usize;
        let how = match how {
            "many" => How::Many(n),
            "slice" => How::Slice(n),
            "fixedslice" => How::FixedSlice(n),
            "fixed" => How::Fixed(n),
            "controlled" => How::Controlled(n),
            "knee" => How::Knee(n),
            _ => How::Direct,
        };
        let (rate, batch) = run(number(producers) as u64, how, (number(items) * 1e6) as u64);
        println!("{rate:.1} {batch:.0}");
    }
}

/// Measures the time from an item's push until the consumer hands it out, at 1000 items a second for two
/// seconds.
fn paced(how: How) {
    let (queue, mut consumer) = Builder::new(CAPACITY)
        .build::<Instant>()
        .expect("a capacity");
    let mut end = match how {
        How::Fixed(n) => queue.fixed(n).expect("a limit"),
        How::Controlled(n) => {
            let rule = Growing {
                limit: 1,
                max: n as u64,
            };
            queue
                .controlled(n, Box::new(Ruled::new(rule)))
                .expect("a limit")
        }
        _ => queue.producer(),
    };
    drop(queue);
    let producer = thread::spawn(move || {
        let start = Instant::now();
        for i in 0..2000 {
            let due = start + std::time::Duration::from_millis(i);
            while let Some(left) = due.checked_duration_since(Instant::now()) {
                if left.as_micros() > 100 {
                    thread::sleep(left - std::time::Duration::from_micros(100));
                }
            }
            end.blocking_push(Instant::now()).expect("open");
        }
    });
    let mut waits = Vec::new();
    while consumer
        .blocking_recv(usize::MAX, |at: Instant| waits.push(at.elapsed()))
        .is_ok()
    {}
    producer.join().expect("producer");
    waits.sort();
    let at = |q: f64| waits[(waits.len() as f64 * q) as usize].as_nanos() as f64 / 1e3;
    let m = consumer.metrics();
    println!(
        "{how:?}: p50 {:.1} us, p99 {:.1} us, {} waits, {} linger wakes",
        at(0.5),
        at(0.99),
        m.consumer_waits,
        m.linger_wakes
    );
}

/// Runs producers and a consumer. Returns the rate in millions of items a second, and the mean number of
/// items that the consumer drained at once.
fn run(producers: u64, how: How, items: u64) -> (f64, f64) {
    let (queue, consumer) = Builder::new(CAPACITY).build::<u64>().expect("a capacity");
    let each = items / producers;
    let barrier = &Barrier::new(producers as usize + 1);
    thread::scope(|scope| {
        let starts: Vec<_> = (0..producers)
            .map(|_| {
                let end = End::new(&queue, how);
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    end.push_all(each);
                    start
                })
            })
            .collect();
        let reader = scope.spawn(move || {
            barrier.wait();
            read(consumer, each * producers)
        });
        let (end, batch) = reader.join().expect("consumer");
        let start = starts
            .into_iter()
            .map(|t| t.join().expect("producer"))
            .min();
        let elapsed = end - start.expect("a producer");
        (
            (each * producers) as f64 / elapsed.as_secs_f64() / 1e6,
            batch,
        )
    })
}

fn read(mut consumer: Consumer<u64>, items: u64) -> (Instant, f64) {
    let (mut sum, mut left) = (0u64, items);
    while left > 0 {
        match consumer.blocking_recv(usize::MAX, |i| sum = sum.wrapping_add(i)) {
            Ok(batch) => left -= batch.items as u64,
            Err(_) => break,
        }
    }
    let end = Instant::now();
    assert!(left == 0 && sum > 0);
    let m = consumer.metrics();
    (end, m.drains.mean())
}

enum End {
    Queue(Queue<u64>, usize),
    /// A producer that pushes slices of this many items.
    Slices(Producer<u64>, usize),
    Producer(Producer<u64>),
}

impl End {
    fn new(queue: &Queue<u64>, how: How) -> Self {
        let controlled = |n, controller: Box<dyn Controller>| {
            Self::Producer(queue.controlled(n, controller).expect("a limit"))
        };
        match how {
            How::Direct => Self::Queue(queue.clone(), 1),
            How::Many(n) => Self::Queue(queue.clone(), n),
            How::Slice(n) => Self::Slices(queue.producer(), n),
            How::FixedSlice(n) => Self::Slices(queue.fixed(n).expect("a limit"), n),
            How::Fixed(n) => Self::Producer(queue.fixed(n).expect("a limit")),
            How::Controlled(n) => {
                let max = n as u64;
                controlled(n, Box::new(Ruled::new(Growing { limit: 1, max })))
            }
            How::Knee(n) => {
                let bounds = Bounds::items(1, n as u64);
                let knee = Knee::new(Objective::Lean, bounds).expect("bounds");
                controlled(n, Box::new(knee))
            }
        }
    }

    fn push_all(self, items: u64) {
        match self {
            Self::Queue(queue, 1) => {
                for i in 0..items {
                    queue.blocking_push(i).expect("open");
                }
            }
            Self::Slices(mut producer, n) => {
                let mut batch = Vec::with_capacity(n);
                let mut next = 0;
                while next < items {
                    let until = items.min(next + n as u64);
                    batch.clear();
                    batch.extend(next..until);
                    producer.blocking_push_slice(&batch).expect("open");
                    next = until;
                }
            }
            Self::Queue(queue, n) => {
                let mut batch = Vec::with_capacity(n);
                let mut next = 0;
                while next < items {
                    let until = items.min(next + n as u64);
                    batch.extend(next + 1..until + 1);
                    queue.blocking_push_many(&mut batch).expect("open");
                    next = until;
                }
            }
            Self::Producer(mut producer) => {
                for i in 0..items {
                    producer.blocking_push(i).expect("open");
                }
            }
        }
    }
}

/// Storm's rule for the bench: adds one to the limit after a full batch, and halves the limit after any other
/// batch.
struct Growing {
    limit: u64,
    max: u64,
}

impl Rule for Growing {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, batch: Observed) {
        self.limit = if batch.full {
            (self.limit + 1).min(self.max)
        } else {
            (self.limit / 2).max(1)
        };
    }
}
