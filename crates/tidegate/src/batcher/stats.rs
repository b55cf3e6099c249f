//! The statistics of an actor. The actor counts, and other threads copy the counts at any time.
//!
//! The actor is the only writer of nearly all counters. It writes them once a batch, with plain stores, and
//! never waits for a reader of these counters. The backlog comes from the queue, under the locks of the
//! senders' buffers. The actor takes the same locks to fetch buffered items, and may wait there for a
//! reader. Each number is exact; two numbers may be one batch apart.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::controller::{ByReason, Load, Reason};

/// The statistics of an actor since its start. See [`Handle::stats`](super::Handle::stats). `Display`
/// prints one line for each subject, with names and units.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The number of items, since the actor's start, that the handler has handled or has now. An item that
    /// the handler gave back counts again in each try.
    pub items: u64,
    /// The bytes of the items that `items` counts, by the weight function.
    pub bytes: u64,
    /// The number of batches that held the items that `items` counts. The batches in progress count, too.
    pub batches: u64,
    /// The number of items of the largest batch since the actor's start.
    pub items_max: u64,
    /// The number of batches since the actor's start, by the reason why each was cut.
    pub by_reason: ByReason,
    /// The number of batches that failed since the actor's start, including those in which the handler
    /// panicked.
    pub failed: u64,
    /// The number of panics of the handler since the actor's start.
    pub panics: u64,
    /// The number of calls, since the actor's start, that the actor skipped, because their callers had given
    /// up before the handler saw them.
    pub cancelled: u64,
    /// The number of items, since the actor's start, that the handler gave back for another try. An item
    /// counts each time.
    pub retried: u64,
    /// The number of sends, since the actor's start, that failed because the actor had no room, including
    /// sends with a deadline (`cast_timeout`, `send_request_timeout`, `info_timeout`) that found no room in
    /// time. A `call_timeout` that ends does not count.
    pub rejected: u64,
    /// The items and bytes that wait for the actor now.
    pub backlog: Load,
    /// The number of the actor's batches that run now.
    pub running: u32,
    /// The number of batches that may run at once, by the controller's latest decision. Every controller lets
    /// at least one batch run.
    pub in_flight: u32,
    /// The distribution of the sizes, in items, of all batches since the actor's start.
    pub sizes: Histogram,
    /// The distribution of the service times of all finished batches since the actor's start, in nanoseconds:
    /// the time from the take of a batch to its end.
    pub service_ns: Histogram,
    /// The distribution, over all batches since the actor's start, of the time that the oldest item of a
    /// batch waited, in nanoseconds. The error of each time is at most the duration of one batch.
    pub age_ns: Histogram,
}

impl Stats {
    /// Returns the number of batches, since the actor's start, that were cut for `reason`.
    #[must_use]
    pub const fn batches_for(&self, reason: Reason) -> u64 {
        self.by_reason.get(reason)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handled: {} items", self.items)?;
        if self.bytes > 0 {
            write!(f, " ({} bytes)", self.bytes)?;
        }
        writeln!(
            f,
            " in {} batches of at most {} items",
            self.batches, self.items_max
        )?;
        write!(f, "batches by reason:")?;
        let mut before = "";
        for (reason, batches) in self.by_reason.iter().filter(|(_, batches)| *batches > 0) {
            write!(f, "{before} {reason} {batches}")?;
            before = ",";
        }
        writeln!(f, "{}", if before.is_empty() { " none" } else { "" })?;
        writeln!(
            f,
            "failed: {} batches, {} panics; skipped: {} calls given up; refused: {} sends without room",
            self.failed, self.panics, self.cancelled, self.rejected
        )?;
        if self.retried > 0 {
            writeln!(f, "given back for another try: {} items", self.retried)?;
        }
        write!(f, "waiting now: {} items", self.backlog.items)?;
        if self.backlog.bytes > 0 {
            write!(f, " ({} bytes)", self.backlog.bytes)?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "running now: {} batches of at most {} at once",
            self.running, self.in_flight
        )?;
        let [p50, p99, max] = self.sizes.points();
        writeln!(f, "batch size: p50 {p50}, p99 {p99}, max {max} items")?;
        let [p50, p99, max] = self.service_ns.points().map(Duration::from_nanos);
        writeln!(f, "batch time: p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}")?;
        let [p50, p99, max] = self.age_ns.points().map(Duration::from_nanos);
        write!(
            f,
            "oldest item waited: p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}"
        )
    }
}

/// Counts of values in buckets. A bucket is a quarter of an octave wide, so a quantile is at most a quarter
/// too high.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// Returns the number of values that the histogram has counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the smallest value that the share `q` (0 to 1) of all values does not exceed, rounded up to
    /// the end of its bucket. Returns 0 for an empty histogram.
    #[must_use]
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return bucket_end(bucket);
            }
        }
        0
    }
}

impl Histogram {
    /// Returns the median, the 99th percentile and the maximum of the values, for the printed statistics.
    fn points(&self) -> [u64; 3] {
        [0.5, 0.99, 1.0].map(|q| self.quantile(q))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = self.points();
        write!(
            f,
            "{{ count {}, p50 {p50}, p99 {p99}, max {max} }}",
            self.count()
        )
    }
}

/// The number of buckets of a histogram, enough for times of hours. The last bucket ends at 2^44, nearly five
/// hours in nanoseconds, and also counts all larger values.
const BUCKETS: usize = 4 * 43;

fn bucket(value: u64) -> usize {
    if value < 4 {
        return value as usize;
    }
    let octave = value.ilog2() as usize;
    let quarter = (value >> (octave - 2)) as usize & 3;
    (4 * (octave - 1) + quarter).min(BUCKETS - 1)
}

/// Returns the largest value that a bucket counts, which stands for all values of the bucket.
fn bucket_end(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (octave, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    ((4 + quarter + 1) << (octave - 2)) - 1
}

/// The counters of an actor, as the actor writes them and handles read them.
pub(super) struct Counters {
    items: AtomicU64,
    bytes: AtomicU64,
    items_max: AtomicU64,
    by_reason: [AtomicU64; Reason::COUNT],
    failed: AtomicU64,
    panics: AtomicU64,
    cancelled: AtomicU64,
    retried: AtomicU64,
    sizes: [AtomicU64; BUCKETS],
    service_ns: [AtomicU64; BUCKETS],
    age_ns: [AtomicU64; BUCKETS],
    running: AtomicU32,
    in_flight: AtomicU32,
    /// The number of items, since the actor's start, that the actor refused because it had no room. The
    /// sender of a refused item counts it, so this counter has many writers.
    rejected: AtomicU64,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self {
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            items_max: AtomicU64::new(0),
            by_reason: [const { AtomicU64::new(0) }; Reason::COUNT],
            failed: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            sizes: [const { AtomicU64::new(0) }; BUCKETS],
            service_ns: [const { AtomicU64::new(0) }; BUCKETS],
            age_ns: [const { AtomicU64::new(0) }; BUCKETS],
            running: AtomicU32::new(0),
            in_flight: AtomicU32::new(1),
            rejected: AtomicU64::new(0),
        }
    }

    pub(super) fn started(&self, batch: Load, reason: Reason, age_ns: u64) {
        add(&self.items, batch.items);
        add(&self.bytes, batch.bytes);
        add(&self.by_reason[reason as usize], 1);
        add(&self.sizes[bucket(batch.items)], 1);
        add(&self.age_ns[bucket(age_ns)], 1);
        if batch.items > self.items_max.load(Relaxed) {
            self.items_max.store(batch.items, Relaxed);
        }
    }

    pub(super) fn done(&self, took_ns: u64, ok: bool) {
        add(&self.service_ns[bucket(took_ns)], 1);
        if !ok {
            add(&self.failed, 1);
        }
    }

    /// Records how many batches run and how many may run at once, for the statistics, after a batch started
    /// or ended.
    pub(super) fn flight(&self, running: u32, in_flight: u32) {
        self.running.store(running, Relaxed);
        self.in_flight.store(in_flight, Relaxed);
    }

    pub(super) fn panicked(&self) {
        add(&self.panics, 1);
    }

    pub(super) fn cancelled(&self, calls: u64) {
        add(&self.cancelled, calls);
    }

    pub(super) fn retried(&self, items: u64) {
        add(&self.retried, items);
    }

    /// Counts refused items, by an atomic addition, because this is the one counter with many writers.
    pub(super) fn rejected(&self, items: u64) {
        self.rejected.fetch_add(items, Relaxed);
    }

    pub(super) fn read(&self, backlog: Load) -> Stats {
        let all =
            |of: &[AtomicU64; BUCKETS]| Histogram(std::array::from_fn(|i| of[i].load(Relaxed)));
        let count = |&reason: &Reason| (reason, self.by_reason[reason as usize].load(Relaxed));
        let by_reason: ByReason = Reason::ALL.iter().map(count).collect();
        Stats {
            items: self.items.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            batches: by_reason.total(),
            items_max: self.items_max.load(Relaxed),
            by_reason,
            failed: self.failed.load(Relaxed),
            panics: self.panics.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            retried: self.retried.load(Relaxed),
            rejected: self.rejected.load(Relaxed),
            backlog,
            running: self.running.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            sizes: all(&self.sizes),
            service_ns: all(&self.service_ns),
            age_ns: all(&self.age_ns),
        }
    }
}

/// Adds `n` to a counter with one writer, for which a load and a store suffice and cost less than an atomic
/// addition.
fn add(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_most_a_quarter_above_its_values() {
        for value in (0..5000).chain((12..44).flat_map(|e| [(1 << e) - 1, 1 << e, (1 << e) + 1])) {
            let end = bucket_end(bucket(value));
            assert!(end >= value && end <= value + value / 4, "{value}: {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_count_from_below() {
        let counters = Counters::new();
        for n in 1..=100 {
            counters.started(Load::items(n), Reason::Limit, 0);
        }
        let stats = counters.read(Load::default());
        assert_eq!(
            (stats.batches, stats.items_max, stats.items),
            (100, 100, 5050)
        );
        let [p1, p50, p100] = [0.01, 0.5, 1.0].map(|q| stats.sizes.quantile(q));
        assert_eq!((p1, p50), (1, 55));
        assert!((100..=125).contains(&p100));
        assert_eq!(stats.service_ns.quantile(0.5), 0);
    }

    #[test]
    fn a_printed_line_names_its_numbers_and_their_units() {
        let counters = Counters::new();
        assert!(
            counters
                .read(Load::default())
                .to_string()
                .contains("batches by reason: none")
        );
        counters.started(Load::new(3, 300), Reason::Limit, 2_000_000);
        counters.done(1_500, true);
        counters.rejected(2);
        counters.flight(2, 5);
        let printed = counters.read(Load::items(7)).to_string();
        let lines: Vec<_> = printed.lines().collect();
        let expected = [
            "handled: 3 items (300 bytes) in 1 batches of at most 3 items",
            "batches by reason: limit 1",
            "failed: 0 batches, 0 panics; skipped: 0 calls given up; refused: 2 sends without room",
            "waiting now: 7 items",
            "running now: 2 batches of at most 5 at once",
            "batch size: p50 3, p99 3, max 3 items",
            "batch time: p50 1.5\u{b5}s, p99 1.5\u{b5}s, max 1.5\u{b5}s",
            "oldest item waited: p50 2.1ms, p99 2.1ms, max 2.1ms",
        ];
        assert_eq!(lines, expected);
        counters.retried(4);
        let printed = counters.read(Load::default()).to_string();
        assert!(printed.contains("\ngiven back for another try: 4 items\n"));
    }
}
