//! The counters of a queue, which every handle can read as a snapshot.
//!
//! The queue does not count items one by one: the positions in the ring are the counts. The thread that
//! handles a batch counts it once a batch; the other counters change only on slow paths.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::Time;
use crate::controller::{Counts, Reason};

/// The counters of a queue at one moment. A snapshot reads the counters one after the other, so two of them
/// may be some items apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// The time of the snapshot, on the queue's own clock, which starts at the queue's creation.
    pub at: Time,
    /// The number of items for which the queue's ring has room.
    pub capacity: usize,
    /// The number of items that wait in the ring and in the overflow lane.
    pub population: usize,
    /// The number of items that wait in producers' buffers and have not entered the ring.
    pub buffered: usize,
    /// The number of items that the consumer fetched out of producers' buffers and has not handed out yet.
    pub fetched: usize,
    /// The number of items that wait in the overflow lane, because the ring was full.
    pub overflow: usize,
    /// The number of items that arrived since the queue's creation, without those still in producers'
    /// buffers: the sum of the items that the consumer has drained or holds in its hand, that the queue
    /// dropped as the oldest, and that wait.
    pub arrived: u64,
    /// The number of items, since the queue's creation, that the consumer handed to its user, without the
    /// items of drains that panicked.
    pub drained: u64,
    /// The batches that the consumer drained since the queue's creation, by reason: [`Reason::Drained`] if no
    /// item was left, [`Reason::Limit`] if the limit cut the batch.
    pub drains: Counts,
    /// The batches that left producers' buffers since the queue's creation, by reason. [`Reason::Linger`]
    /// counts the batches that the consumer fetched itself.
    pub flushes: Counts,
    /// The number of pushes and flushes, since the queue's creation, that found the queue full. Each of them
    /// waited, was rejected, or dropped items.
    pub insert_failures: u64,
    /// The number of items, since the queue's creation, that the full queue gave back, by
    /// [`Full::Reject`](super::Full::Reject) or to a `try_` call.
    pub rejected: u64,
    /// The number of new items that the full queue dropped since its creation, by
    /// [`Full::DropNewest`](super::Full::DropNewest).
    pub dropped_newest: u64,
    /// The number of old items that the full queue dropped since its creation, by
    /// [`Full::DropOldest`](super::Full::DropOldest).
    pub dropped_oldest: u64,
    /// The number of items, since the queue's creation, that the full overflow lane gave back to their
    /// producers.
    pub dropped_overflow: u64,
    /// The number of items, since the queue's creation, that went through the overflow lane.
    pub overflowed: u64,
    /// The number of items, since the queue's creation, that the consumer fetched out of producers' buffers.
    pub swept: u64,
    /// The number of times, since the queue's creation, that a producer began to wait for room.
    pub producer_waits: u64,
    /// The number of times, since the queue's creation, that the consumer went to sleep.
    pub consumer_waits: u64,
    /// The number of times, since the queue's creation, that a producer woke the sleeping consumer.
    pub consumer_wakes: u64,
    /// The number of times, since the queue's creation, that the consumer's sleeping thread woke up by a
    /// timeout: to look once more into producers' buffers, or to check on producers that it called and that
    /// pushed no item.
    pub linger_wakes: u64,
    /// The number of producers' buffers that exist now, including those that dropped producers left with
    /// items in them.
    pub buffers: usize,
}

impl Metrics {
    /// Returns the number of items a second that arrived since the queue was built; 0 if no time has
    /// passed.
    #[must_use]
    pub fn arrival_rate_per_s(&self) -> f64 {
        self.arrival_rate_since(&Self::default())
    }

    /// Returns the number of items a second that arrived between the snapshots `earlier` and `self`; 0 if
    /// `earlier` is not earlier.
    #[must_use]
    pub fn arrival_rate_since(&self, earlier: &Self) -> f64 {
        match self.at.since(earlier.at) {
            0 => 0.0,
            ns => self.arrived.saturating_sub(earlier.arrived) as f64 * 1e9 / ns as f64,
        }
    }

    /// Returns how long an item waits in the queue on average, by Little's law from the arrivals since the
    /// snapshot `earlier`: population / arrival rate.
    ///
    /// The result assumes that the queue is stable (as many items leave as arrive) and that the populations
    /// at the two snapshots are typical of the time between. The result is `None` if no item arrived.
    #[must_use]
    pub fn sojourn_since(&self, earlier: &Self) -> Option<Duration> {
        let rate = self.arrival_rate_since(earlier);
        let population = (self.population + earlier.population) as f64 / 2.0;
        let seconds = population / rate;
        (rate > 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Returns how long an item waits in the queue on average since the queue was built. Takes the present
    /// population as the typical one. The result is `None` if no item arrived.
    #[must_use]
    pub fn sojourn(&self) -> Option<Duration> {
        let start = Self {
            population: self.population,
            ..Self::default()
        };
        self.sojourn_since(&start)
    }
}

/// The counters of the queue's slow paths since its creation, for the metrics. Several threads add to each of
/// them.
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

/// The counters that only the consumer writes, by plain stores, which cost less than atomic additions. Other
/// threads may read them.
#[derive(Default)]
pub(super) struct Drains {
    pub(super) drained: AtomicU64,
    by_drained: AtomicU64,
    by_limit: AtomicU64,
    items_max: AtomicU64,
    pub(super) swept: AtomicU64,
    /// The number of items in the consumer's hand: taken out of buffers, the lane or, under a lock, the ring,
    /// and not handed out yet.
    pub(super) held: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) linger_wakes: AtomicU64,
}

impl Drains {
    /// Counts a batch that the consumer drained, with the reason why it ended, for the metrics.
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

/// Adds `n` to a counter that only one thread writes. A load and a store suffice, and cost less than an
/// atomic addition.
#[inline]
pub(super) fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

/// Adds a batch of `items` items to the counts of a producer's buffer, for the metrics of the queue.
#[inline]
pub(super) fn count(counts: &mut Counts, items: u64, reason: Reason) {
    counts.by_reason.add(reason, 1);
    counts.items += items;
    counts.items_max = counts.items_max.max(items);
}

/// Adds the counts `from` of one producer's buffer to the counts `into` of several, for the metrics of the
/// queue.
pub(super) fn sum(into: &mut Counts, from: &Counts) {
    into.by_reason += from.by_reason;
    into.items += from.items;
    into.items_max = into.items_max.max(from.items_max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_from_two_snapshots() {
        let at = |s: u64, arrived, population| Metrics {
            at: Time::from_nanos(s * 1_000_000_000),
            arrived,
            population,
            ..Metrics::default()
        };
        let (start, later) = (at(2, 100, 10), at(4, 140, 30));
        assert_eq!(start.arrival_rate_per_s(), 50.0);
        assert_eq!(start.sojourn(), Some(Duration::from_millis(200)));
        assert_eq!(later.arrival_rate_since(&start), 20.0);
        assert_eq!(later.sojourn_since(&start), Some(Duration::from_secs(1)));
        assert_eq!(start.sojourn_since(&later), None);
        assert_eq!(Metrics::default().sojourn(), None);
    }
}
