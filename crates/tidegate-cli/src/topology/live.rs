//! The figures and the switches of a running count topology, by which a bench watches, pauses and stops it.
//! No item waits for a reader of the figures.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;

/// A histogram of latencies in nanoseconds, precise to two digits, which suffice for a report.
pub type Latency = Histogram<u64>;

/// Returns an empty histogram of latencies, which grows up to hours as needed.
pub(crate) fn latency() -> Latency {
    // Two digits are a valid precision, so the creation of the histogram does not fail.
    Histogram::new(2).unwrap_or_else(|_| unreachable!("two digits"))
}

/// The switches and the figures of one running topology.
pub struct Live {
    stop: AtomicBool,
    pause: AtomicBool,
    lines: AtomicU64,
    counters: Box<[Counter]>,
    limits: Box<[LimitRange]>,
}

struct Counter {
    words: AtomicU64,
    latency: Mutex<Latency>,
}

/// The smallest and the largest limit, in items a batch, of one splitter's producers since the last
/// [`Live::take_limits`], for the bench to show.
struct LimitRange {
    min: AtomicU64,
    max: AtomicU64,
}

impl Live {
    /// Creates the switches and figures of a topology with `split` splitters and as many counters.
    pub fn new(split: usize) -> Self {
        let counter = |_| Counter {
            words: AtomicU64::new(0),
            latency: Mutex::new(latency()),
        };
        let limits = |_| LimitRange {
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
        };
        Self {
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            lines: AtomicU64::new(0),
            counters: (0..split).map(counter).collect(),
            limits: (0..split).map(limits).collect(),
        }
    }

    /// Makes the reader stop. The other stages still count the lines that the reader has read.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Makes the reader pause if `pause` is true, so that another topology has the machine, or continue
    /// otherwise.
    pub fn pause(&self, pause: bool) {
        self.pause.store(pause, Relaxed);
    }

    /// Returns whether [`stop`](Self::stop) or Ctrl-C asks the topology to stop.
    #[inline]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Relaxed) || crate::interrupt::asked()
    }

    #[inline]
    pub(super) fn paused(&self) -> bool {
        self.pause.load(Relaxed)
    }

    /// Returns the number of lines that the reader has read so far, for the figures of a running topology.
    pub fn lines(&self) -> u64 {
        self.lines.load(Relaxed)
    }

    pub(super) fn set_lines(&self, lines: u64) {
        self.lines.store(lines, Relaxed);
    }

    /// Returns the number of words that all counters have counted so far, for the figures of a running
    /// topology.
    pub fn words(&self) -> u64 {
        self.counters
            .iter()
            .map(|counter| counter.words.load(Relaxed))
            .sum()
    }

    pub(super) fn set_words(&self, counter: usize, words: u64) {
        self.counters[counter].words.store(words, Relaxed);
    }

    pub(super) fn record(&self, counter: usize, latency_ns: u64) {
        let mut latency = self.counters[counter]
            .latency
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // The histogram grows as needed, so `record` does not fail.
        let _ = latency.record(latency_ns);
    }

    /// Returns the histogram of latencies since the last call, and resets it, so that the next call has only
    /// new ones.
    pub fn take_latency(&self) -> Latency {
        let mut all = latency();
        for counter in &self.counters {
            let mut latency = counter
                .latency
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // The histogram resizes itself, so it can add any other histogram and `add` does not fail.
            let _ = all.add(&*latency);
            latency.reset();
        }
        all
    }

    pub(super) fn saw_limit(&self, splitter: usize, limit: u64) {
        let range = &self.limits[splitter];
        range.min.fetch_min(limit, Relaxed);
        range.max.fetch_max(limit, Relaxed);
    }

    /// Returns the smallest and the largest limit, in items a batch, of the splitters' producers since the
    /// last call, and resets them.
    pub fn take_limits(&self) -> Option<(u64, u64)> {
        let ranges = self.limits.iter().map(|range| {
            (
                range.min.swap(u64::MAX, Relaxed),
                range.max.swap(0, Relaxed),
            )
        });
        ranges
            .filter(|(min, max)| min <= max)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}
