//! Publishers that write large messages as fast as the nodes accept them, and measure the longest time for
//! which one of them waited.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::raw::{PATIENCE, Raw, Received};

const PUBLISHERS: usize = 4;
/// The number of unacknowledged messages that each publisher keeps in flight.
const WINDOW: usize = 16;
/// The length of a message in bytes.
pub(crate) const PAYLOAD: usize = 16 << 10;
/// The time without an acknowledgement after which a publisher connects again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Publishers of large messages. They run on threads of their own until the value is dropped or stopped.
pub(crate) struct Flood {
    urls: Vec<String>,
    stream: &'static str,
    stop: AtomicBool,
    acked_bytes: AtomicU64,
    /// The longest time since the last reset for which a publisher got no acknowledgement, in microseconds.
    gap_us: AtomicU64,
    /// The acknowledged messages: for each, its sequence in the stream, its publisher and the publisher's
    /// number of it.
    pub(crate) acked: Mutex<Vec<(u64, usize, u64)>>,
}

impl Flood {
    pub(crate) fn new(stream: &'static str, urls: Vec<String>) -> Self {
        Self {
            urls,
            stream,
            stop: AtomicBool::new(false),
            acked_bytes: AtomicU64::new(0),
            gap_us: AtomicU64::new(0),
            acked: Mutex::default(),
        }
    }

    /// Runs the publishers for as long as `meanwhile` runs, and returns its result.
    pub(crate) fn run<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            for who in 0..PUBLISHERS {
                scope.spawn(move || self.publish(who));
            }
            let stop = Stop(&self.stop);
            let done = meanwhile();
            drop(stop);
            done
        })
    }

    fn publish(&self, who: usize) {
        let (mut next, mut waiting) = (0, BTreeSet::new());
        let mut told = Instant::now();
        for url in self.urls.iter().cycle().skip(who) {
            let stopped = || self.stop.load(Ordering::Acquire);
            if stopped() {
                return;
            }
            assert!(told.elapsed() < 2 * PATIENCE, "{who} is not acknowledged");
            let Ok(mut raw) = Raw::connect_within(url, ATTEMPT) else {
                std::thread::park_timeout(Duration::from_millis(5));
                continue;
            };
            let again: Vec<u64> = waiting.iter().copied().collect();
            let mut good = again.iter().all(|n| self.send(&mut raw, who, *n).is_ok());
            while good {
                while good && !stopped() && waiting.len() < WINDOW {
                    waiting.insert(next);
                    good = self.send(&mut raw, who, next).is_ok();
                    next += 1;
                }
                if waiting.is_empty() {
                    return;
                }
                let Ok(answer) = raw.message() else { break };
                let (n, seq) = parse(&answer);
                let gap = std::mem::replace(&mut told, Instant::now()).elapsed();
                self.gap_us
                    .fetch_max(gap.as_micros() as u64, Ordering::AcqRel);
                match seq {
                    Some(seq) if waiting.remove(&n) => {
                        self.acked.lock().unwrap().push((seq, who, n));
                        self.acked_bytes.fetch_add(PAYLOAD as u64, Ordering::AcqRel);
                    }
                    Some(_) => {}
                    None => {
                        std::thread::park_timeout(Duration::from_millis(5));
                        good = self.send(&mut raw, who, n).is_ok();
                    }
                }
            }
        }
    }

    fn send(&self, raw: &mut Raw, who: usize, n: u64) -> std::io::Result<()> {
        let subject = format!("{}.{who}.{}", self.stream, n % 100);
        raw.publish(&subject, &n.to_string(), &payload(who, n))
    }

    pub(crate) fn acked_bytes(&self) -> u64 {
        self.acked_bytes.load(Ordering::Acquire)
    }

    /// Returns the longest time since the last call for which a publisher waited, in milliseconds, and resets
    /// it.
    pub(crate) fn take_gap(&self) -> u64 {
        self.gap_us.swap(0, Ordering::AcqRel) / 1000
    }
}

/// A guard that stops the publishers when it is dropped, even if `meanwhile` panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns the payload of message `n` of publisher `who`.
pub(crate) fn payload(who: usize, n: u64) -> Vec<u8> {
    let mut bytes = format!("{who}-{n}-").into_bytes();
    bytes.resize(PAYLOAD, b'a' + (n % 23) as u8);
    bytes
}

/// Parses an answer of the stream: the publisher's number of the message, and the message's sequence if the
/// stream has stored it.
pub(crate) fn parse(answer: &Received) -> (u64, Option<u64>) {
    let number = answer.subject.rsplit_once('.').unwrap().1.parse().unwrap();
    let value: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let good = value.get("error").is_none();
    (number, value["seq"].as_u64().filter(|_| good))
}
