//! Measures how fast a stream moves from one group of nodes to another, and for how long its publishers wait
//! during the move.
//!
//! `make measure-move` moves a stream of a GiB; `MOVE_MIB` sets the number of MiB. Without it the stream is
//! small, and the test only checks that no message is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::faults::number;
use super::nodes::{Nodes, ask, other};
use super::raw::Raw;

const PAYLOAD: [u8; 1024] = [b'x'; 1024];
/// The number of messages that the paced publisher sends in a second.
const RATE: u64 = 20_000;
/// The greatest number of unacknowledged messages of the paced publisher.
const WINDOW: u64 = 2000;
/// The time after which a missing answer counts as a failed request, as in the Go client. The test counts
/// such requests separately.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A publisher that sends at a fixed rate. If the publisher sends a message late, the message's wait begins
/// at its due time, so that the measurement includes the delay.
struct Paced<'a> {
    url: &'a str,
    rate: u64,
    stop: AtomicBool,
    acked: AtomicU64,
    /// The longest wait of a message for its acknowledgement since the last reset, in microseconds.
    worst_us: AtomicU64,
    /// The number of requests without any answer.
    unanswered: AtomicU64,
}

impl Paced<'_> {
    fn run(&self) {
        let start = Instant::now();
        let mut raw = Raw::connect_within(self.url, ATTEMPT).unwrap();
        let mut sent = 0;
        while !self.stop.load(Ordering::Acquire) {
            let due = start.elapsed().as_micros() as u64 * self.rate / 1_000_000;
            let last = due.min(sent + WINDOW);
            if last == sent {
                // The publisher waits until the next message is due, or a little longer.
                std::thread::park_timeout(Duration::from_millis(1));
                continue;
            }
            let mut left: Vec<u64> = (sent..last).collect();
            while !left.is_empty() {
                left = publish(&mut raw, &left).unwrap_or_else(|_| {
                    self.unanswered.fetch_add(1, Ordering::AcqRel);
                    raw = Raw::connect_within(self.url, ATTEMPT).unwrap();
                    left
                });
                if !left.is_empty() {
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
            // The first message of these was due first, so it waited for the longest.
            let waited = start.elapsed().as_micros() as u64 - sent * 1_000_000 / self.rate;
            self.worst_us.fetch_max(waited, Ordering::AcqRel);
            self.acked.fetch_add(last - sent, Ordering::AcqRel);
            sent = last;
        }
    }
}

/// Publishes these messages and reads the answers. Returns the messages that the server refused.
fn publish(raw: &mut Raw, all: &[u64]) -> std::io::Result<Vec<u64>> {
    let mut out = Vec::new();
    for n in all {
        out.extend(format!("PUB V.x {}{n} {}\r\n", raw.inbox, PAYLOAD.len()).bytes());
        out.extend(PAYLOAD);
        out.extend(b"\r\n");
    }
    raw.send(&out)?;
    let mut refused = Vec::new();
    for _ in all {
        let answer = raw.message()?;
        let value: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
        if value["seq"].is_null() || !value["error"].is_null() {
            let n = answer.subject.rsplit_once('.').unwrap().1;
            refused.push(n.parse().unwrap());
        }
    }
    Ok(refused)
}

/// Changes the stream's number of replicas, so that the stream moves. Returns the time until the new nodes
/// serve it.
fn move_to(nodes: &Nodes, replicas: usize) -> Duration {
    let config = json!({"name": "V", "subjects": ["V.>"], "num_replicas": replicas});
    let start = Instant::now();
    nodes.until("the move to be taken", || {
        nodes.ask("STREAM.UPDATE.V", &config)
    });
    let deadline = start + Duration::from_secs(600);
    loop {
        let info = nodes.ask("STREAM.INFO.V", &json!({}));
        let by_all = info.map(|info| info["cluster"]["raft_group"] == "S-all");
        if by_all == Ok(replicas == nodes.len()) {
            return start.elapsed();
        }
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn measure_move() {
    if other().is_some() {
        return println!("how soon a stream moves is ours: not asked of another server");
    }
    let nodes = Nodes::start(3);
    let mib = number("MOVE_MIB").unwrap_or(16);
    let config = json!({"name": "V", "subjects": ["V.>"], "num_replicas": 1});
    nodes.until("a stream to be made", || {
        ask(&nodes.url(0), "STREAM.CREATE.V", &config)
    });
    let mut raw = Raw::connect(&nodes.url(0)).unwrap();
    let mut stored = 0;
    while stored < mib * 1024 {
        let mut left: Vec<u64> = (0..1024).collect();
        while !left.is_empty() {
            left = publish(&mut raw, &left).unwrap();
        }
        stored += 1024;
    }
    let size = |nodes: &Nodes| {
        let state = nodes.info("V")["state"].clone();
        let number = |what: &str| state[what].as_u64().unwrap();
        assert_eq!(number("messages"), number("last_seq"));
        (number("messages"), number("bytes"))
    };
    assert_eq!(size(&nodes).0, stored);
    for rate in [0, RATE] {
        let url = nodes.url(0);
        let paced = Paced {
            url: &url,
            rate,
            stop: AtomicBool::new(rate == 0),
            acked: AtomicU64::new(0),
            worst_us: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| paced.run());
            let stop = Stop(&paced.stop);
            for replicas in [3, 1] {
                if rate > 0 {
                    // The measurement begins only once the publisher has sent for a while.
                    let before = paced.acked.load(Ordering::Acquire);
                    nodes.until("publishing to go on", || {
                        match paced.acked.load(Ordering::Acquire) >= before + RATE {
                            true => Ok(()),
                            false => Err("not yet".into()),
                        }
                    });
                }
                let calm = paced.worst_us.swap(0, Ordering::AcqRel);
                let took = move_to(&nodes, replicas);
                let before = paced.acked.load(Ordering::Acquire);
                if rate > 0 {
                    // The measurement ends only once the messages that were waiting at the end of the move
                    // have their answers.
                    nodes.until("publishing to go on", || {
                        match paced.acked.load(Ordering::Acquire) > before + WINDOW {
                            true => Ok(()),
                            false => Err("not yet".into()),
                        }
                    });
                }
                let (_, bytes) = size(&nodes);
                let rate_mb = bytes as f64 / took.as_secs_f64() / 1e6;
                println!(
                    "to {replicas} replicas, {rate} messages/s published: {} MB in {:.1} s, {rate_mb:.0} MB/s; a publisher waited {} ms at most (before: {} ms), {} times in vain",
                    bytes / 1_000_000,
                    took.as_secs_f64(),
                    paced.worst_us.swap(0, Ordering::AcqRel) / 1000,
                    calm / 1000,
                    paced.unanswered.swap(0, Ordering::AcqRel),
                );
            }
            drop(stop);
        });
        stored += paced.acked.load(Ordering::Acquire);
        // The stream may have stored the last messages without an answer, and the publisher then sent them
        // again.
        assert!(size(&nodes).0 >= stored);
    }
}

/// A guard that stops the publisher when Rust drops it, even if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
