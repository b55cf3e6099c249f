//! Publishers that write large messages as fast as the nodes take them, and the longest time that each of
//! them waited.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::raw::{PATIENCE, Raw, Received};

const PUBLISHERS: usize = 4;
/// The unacknowledged messages of each publisher.
const WINDOW: usize = 16;
/// The bytes of a message.
pub(crate) const PAYLOAD: usize = 16 << 10;
/// A publisher without an acknowledgement for this long reconnects.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Publishers of large messages; they run in the background until the value is dropped or stopped.
pub(crate) struct Flood {
    urls: Vec<String>,
    stream: &'static str,
    stop: AtomicBool,
    acked_bytes: AtomicU64,
    /// The longest time that a publisher went without an acknowledgement since the last reset, in
    /// microseconds.
    gap_us: AtomicU64,
    /// The sequence, the publisher and the publisher's number of each acknowledged message.
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

    /// Runs the publishers while `meanwhile` runs.
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

    /// Returns the longest wait of a publisher since the last call, in milliseconds, and resets it.
    pub(crate) fn take_gap(&self) -> u64 {
        self.gap_us.swap(0, Ordering::AcqRel) / 1000
    }
}

/// Stops the publishers, even if `meanwhile` panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns message `n` of publisher `who`.
pub(crate) fn payload(who: usize, n: u64) -> Vec<u8> {
    let mut bytes = format!("{who}-{n}-").into_bytes();
    bytes.resize(PAYLOAD, b'a' + (n % 23) as u8);
    bytes
}

/// Returns the number of the answered message, and its sequence if it has one.
pub(crate) fn parse(answer: &Received) -> (u64, Option<u64>) {
    let number = answer.subject.rsplit_once('.').unwrap().1.parse().unwrap();
    let value: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let good = value.get("error").is_none();
    (number, value["seq"].as_u64().filter(|_| good))
}
