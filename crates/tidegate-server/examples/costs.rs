//! Measures the pure parts of the server on this machine: finding subscribers, and a message's whole way
//! through the node.
//!
//! `cargo run --release -p tidegate-server --example costs`

use std::time::{Duration, Instant};

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::connect::Info;
use tidegate_nats::sublist::Sublist;
use tidegate_server::Node;
use tidegate_server::config::Settings;

/// Returns the median of some rounds, in nanoseconds an operation.
fn measure(operations: u32, mut f: impl FnMut()) -> f64 {
    let mut rounds: Vec<Duration> = (0..9)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed()
        })
        .collect();
    rounds.sort();
    rounds[4].as_nanos() as f64 / f64::from(operations)
}

fn main() {
    for len in [100, 10_000, 1_000_000] {
        let mut list = Sublist::new();
        for key in 0..len {
            // One pattern in a hundred has a wildcard, as in ordinary use.
            let pattern = if key % 100 == 0 {
                format!("a.{key}.*.c")
            } else {
                format!("a.{key}.b.c")
            };
            list.insert(pattern.as_bytes(), None, key);
        }
        let subject = |i: u32| format!("a.{}.b.c", i % len);
        let known: Vec<String> = (0..64).map(subject).collect();
        let all: Vec<String> = (0..100_000).map(|i| subject(i * 7919)).collect();
        let hit = measure(100_000, || {
            for i in 0..100_000 {
                std::hint::black_box(list.matches(known[i % 64].as_bytes()).is_empty());
            }
        });
        let any = measure(100_000, || {
            for subject in &all {
                std::hint::black_box(list.matches(subject.as_bytes()).is_empty());
            }
        });
        println!(
            "{len} subscriptions: {hit:.0} ns a subject of 64, {any:.0} ns a subject of {}",
            len.min(100_000)
        );
    }
    for (receivers, size) in [(0, 16), (1, 16), (1, 1024), (4, 16), (4, 1024)] {
        let any = Load::new(u64::MAX, u64::MAX);
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let connect = |node: &mut Node, text: &str| {
            let key = node.handle_accepted(Time::ZERO, ([127, 0, 0, 1], 1).into(), false, false);
            let text = format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\n{text}");
            node.handle_received(Time::ZERO, key, text.as_bytes(), any);
            key
        };
        for _ in 0..receivers {
            connect(&mut node, "SUB bench 1\r\n");
        }
        let publisher = connect(&mut node, "");
        let text = format!("PUB bench {size}\r\n{}\r\n", "x".repeat(size)).repeat(50);
        let cost = measure(50_000, || {
            for _ in 0..1000 {
                node.handle_received(Time::ZERO, publisher, text.as_bytes(), any);
                while let Some(key) = node.poll_dirty() {
                    let len = node.outbox(key).len();
                    node.handle_written(Time::ZERO, key, len);
                }
            }
        });
        println!("a message of {size} bytes for {receivers}: {cost:.0} ns from buffer to outboxes");
    }
}
