//! The counters of a queue, read as a snapshot from any handle.
//!
//! The queue does not count items one by one: the ring's positions are the counts. The thread that handles a
//! batch counts it once a batch; the other counters change only on slow paths.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::Time;
use crate::controller::{Counts, Reason};

/// The counters of a queue at one moment. A snapshot reads them one after the other,
/// so they may be some items apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// The time of the snapshot, on the queue's own clock, which starts at the queue's creation.
    pub at: Time,
    /// The number of items for which the ring has room.
    pub capacity: usize,
    /// The number of items that wait: in the ring and in the overflow lane.
    pub population: usize,
    /// The number of items in producers' buffers.
    pub buffered: usize,
    /// The number of items that the consumer fetched out of producers' buffers and has not handed out yet.
    pub fetched: usize,
    /// The number of items that wait in the overflow lane.
    pub overflow: usize,
    /// Items that arrived, without those still buffered: the sum of the items drained, dropped as the
    /// oldest, `fetched`, and waiting.
    pub arrived: u64,
    /// Items handed to the consumer, without the items of drains that panicked.
    pub drained: u64,
    /// Batches drained, by reason: [`Reason::Drained`] if no item was left,
    /// [`Reason::Limit`] if the limit cut the batch.
    pub drains: Counts,
    /// Batches flushed by buffered producers, by reason. With [`Reason::Linger`] the consumer fetched the
    /// items itself.
    pub flushes: Counts,
    /// Pushes and flushes that found no room (and waited, were rejected, or dropped something).
    pub insert_failures: u64,
    /// Items given back for lack of room, by [`Full::Reject`](super::Full::Reject) or by a `try_` call.
    pub rejected: u64,
    /// Items dropped by [`Full::DropNewest`](super::Full::DropNewest).
    pub dropped_newest: u64,
    /// Items dropped by [`Full::DropOldest`](super::Full::DropOldest).
    pub dropped_oldest: u64,
    /// The number of items that the full overflow lane gave back.
    pub dropped_overflow: u64,
    /// Items that went through the overflow lane.
    pub overflowed: u64,
    /// The number of items that the consumer fetched out of producers' buffers.
    pub swept: u64,
    /// How often a producer went to wait for room.
    pub producer_waits: u64,
    /// How often the consumer went to sleep.
    pub consumer_waits: u64,
    /// How often a producer woke the consumer.
    pub consumer_wakes: u64,
    /// How often the consumer woke up by itself to serve the safety linger: once each time it goes idle.
    pub linger_wakes: u64,
    /// The number of producers' buffers, including those that dropped producers left with items in them.
    pub buffers: usize,
}

impl Metrics {
    /// Returns the items a second that arrived since the queue was built; 0 at its first moment.
    #[must_use]
    pub fn arrival_rate_per_s(&self) -> f64 {
        self.arrival_rate_since(&Self::default())
    }

    /// Returns the items a second that arrived since `earlier`; 0 if `earlier` is not earlier.
    #[must_use]
    pub fn arrival_rate_since(&self, earlier: &Self) -> f64 {
        match self.at.since(earlier.at) {
            0 => 0.0,
            ns => self.arrived.saturating_sub(earlier.arrived) as f64 * 1e9 / ns as f64,
        }
    }

    /// Returns how long an item waits on average, by Little's law from the arrivals since `earlier`:
    /// population / arrival rate.
    ///
    /// The result assumes that the queue is stable (as many items leave as arrive) and that the populations
    /// at the two moments are typical of the time between. It is `None` if no item arrived.
    #[must_use]
    pub fn sojourn_since(&self, earlier: &Self) -> Option<Duration> {
        let rate = self.arrival_rate_since(earlier);
        let population = (self.population + earlier.population) as f64 / 2.0;
        let seconds = population / rate;
        (rate > 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Returns how long an item waits on average since the queue was built, with the present population as
    /// the typical one.
    #[must_use]
    pub fn sojourn(&self) -> Option<Duration> {
        let start = Self {
            population: self.population,
            ..Self::default()
        };
        self.sojourn_since(&start)
    }
}

/// The counters of the slow paths, to which several threads add.
#[derive(Default)]
pub(super) struct Rare {
    pub(super) insert_failures: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) dropped_newest: AtomicU64,
    pub(super) dropped_oldest: AtomicU64,
    pub(super) dropped_overflow: AtomicU64,
    pub(super) producer_waits: AtomicU64,
    pub(super) consumer_wakes: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// The counters that only the consumer writes: plain stores that other threads may read.
#[derive(Default)]
pub(super) struct Drains {
    pub(super) drained: AtomicU64,
    by_drained: AtomicU64,
    by_limit: AtomicU64,
    items_max: AtomicU64,
    pub(super) swept: AtomicU64,
    /// The number of items in the consumer's hand.
    pub(super) held: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) linger_wakes: AtomicU64,
}

impl Drains {
    /// Counts a batch.
    #[inline]
    pub(super) fn batch(&self, items: u64, reason: Reason) {
        bump(&self.drained, items);
        bump(
            if reason == Reason::Drained {
                &self.by_drained
            } else {
                &self.by_limit
            },
            1,
        );
        if items > self.items_max.load(Relaxed) {
            self.items_max.store(items, Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            items: self.drained.load(Relaxed),
            items_max: self.items_max.load(Relaxed),
            ..Counts::default()
        };
        counts
            .by_reason
            .add(Reason::Drained, self.by_drained.load(Relaxed));
        counts
            .by_reason
            .add(Reason::Limit, self.by_limit.load(Relaxed));
        counts
    }
}

/// Adds to a counter that has one writer.
#[inline]
pub(super) fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

/// Counts a batch of `items` in `counts`.
#[inline]
pub(super) fn count(counts: &mut Counts, items: u64, reason: Reason) {
    counts.by_reason.add(reason, 1);
    counts.items += items;
    counts.items_max = counts.items_max.max(items);
}

/// Adds up the batches of several boundaries.
pub(super) fn sum(into: &mut Counts, from: &Counts) {
    into.by_reason += from.by_reason;
    into.items += from.items;
    into.items_max = into.items_max.max(from.items_max);
}
