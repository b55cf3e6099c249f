//! The rule by which a producer's buffer sets its own size. The rule is cheap, because a queue may have
//! thousands of producers.
//!
//! A buffer that fills up doubles its size, so that a busy producer soon shares the cost of each claim
//! among enough items. An idle consumer fetches the items of a buffer at once, so a large buffer delays no
//! item. A buffer halves its size if for a second no flush took more than a quarter of it.

use crate::Time;

/// The first size of a producer's buffer, in items: small, because most producers push little.
pub(super) const LEAST: u64 = 8;
/// The largest size of a producer's buffer, in items. At this size even an expensive claim costs about a
/// nanosecond an item.
pub(super) const MOST: u64 = 256;
/// The nanoseconds (one second) for which a buffer keeps a size that it does not need.
const KEPT_NS: u64 = 1_000_000_000;

/// The state of the rule that sets the size of a producer's buffer: see the [module](self).
#[derive(Debug)]
pub(super) struct Growth {
    most: u64,
    /// The time since which no flush of the producer took more than a quarter of its buffer. `None` after a
    /// larger flush.
    small_since: Option<Time>,
}

impl Growth {
    /// Starts the rule for the buffer of a queue with `capacity` items in its ring.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            most: MOST.min(capacity),
            small_since: None,
        }
    }

    pub(super) fn least(&self) -> u64 {
        LEAST.min(self.most)
    }

    /// Counts a flush of `items` items. `full` is true if the producer flushed because the buffer was full.
    /// Returns the next size of the buffer.
    pub(super) fn flushed(
        &mut self,
        limit: u64,
        items: u64,
        full: bool,
        now: impl FnOnce() -> Time,
    ) -> u64 {
        if full {
            self.small_since = None;
            return (limit * 2).min(self.most);
        }
        if items * 4 > limit || limit <= self.least() {
            self.small_since = None;
            return limit;
        }
        let now = now();
        let since = *self.small_since.get_or_insert(now);
        if now.since(since) < KEPT_NS {
            return limit;
        }
        self.small_since = Some(now);
        (limit / 2).max(self.least())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_doubles_and_a_partly_filled_one_halves_after_a_second() {
        let mut growth = Growth::new(1 << 20);
        let mut limit = growth.least();
        for _ in 0..10 {
            limit = growth.flushed(limit, limit, true, || unreachable!("no time is needed"));
        }
        assert_eq!(limit, MOST);
        let at = |ms: u64| move || Time::from_nanos(ms * 1_000_000);
        assert_eq!(growth.flushed(limit, 1, false, at(0)), MOST);
        assert_eq!(growth.flushed(limit, 1, false, at(999)), MOST);
        assert_eq!(growth.flushed(limit, 1, false, at(1000)), MOST / 2);
        assert_eq!(growth.flushed(limit, 200, false, at(1900)), limit);
        assert_eq!(
            growth.flushed(limit, 1, false, at(2900)),
            limit,
            "it was large in between"
        );
        assert_eq!(Growth::new(3).least(), 3);
    }
}
