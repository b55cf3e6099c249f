//! What a queue is to be, before it is one.

use std::time::Duration;

use super::shared::Shared;
use super::{Consumer, Queue, QueueError};
use crate::nanos;

/// The largest capacity and the largest buffer, in items.
pub const CAPACITY_MAX: usize = 1 << 30;

/// How a thread waits: the consumer for items, a producer for room. Tasks always wait by their waker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// Looks again at once, for ever, yielding now and then: lowest latency, a core each. For dedicated
    /// cores.
    Spin,
    /// Yields the core between looks, for ever.
    Yield,
    /// Sleeps at once: least work while idle, a wake-up's latency each time.
    Park,
    /// Looks a few times, yields a few times, then sleeps.
    #[default]
    Progressive,
}

/// What [`blocking_push`](Queue::blocking_push) does when there is no room. Every case is counted in
/// [`Metrics`](super::Metrics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// Waits for room.
    #[default]
    Wait,
    /// Gives the item back.
    Reject,
    /// Drops the item.
    DropNewest,
    /// Drops the oldest items in the ring to make room. The consumer then takes items out under a lock.
    DropOldest,
}

/// Builds a queue. [`bounded`] is enough where the defaults are.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    pub(super) capacity: usize,
    pub(super) wait: Wait,
    pub(super) full: Full,
    pub(super) overflow: usize,
    pub(super) linger_ns: u64,
}

/// A queue for `capacity` items with the defaults of [`Builder`].
///
/// # Errors
/// A capacity of 0 or above [`CAPACITY_MAX`].
pub fn bounded<T: Send>(capacity: usize) -> Result<(Queue<T>, Consumer<T>), QueueError> {
    Builder::new(capacity).build()
}

impl Builder {
    /// For exactly `capacity` items in the ring (its memory is rounded up to a power of two). Producers'
    /// buffers and the overflow lane come on top, each within its own bound.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            wait: Wait::Progressive,
            full: Full::Wait,
            overflow: 0,
            linger_ns: 1_000_000,
        }
    }

    /// How threads wait. [`Wait::Progressive`] if not set.
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// What `blocking_push` does without room. [`Full::Wait`] if not set.
    #[must_use]
    pub const fn full(mut self, full: Full) -> Self {
        self.full = full;
        self
    }

    /// The most items in the overflow lane, for producers that must not wait. 0, no lane, if not set.
    #[must_use]
    pub const fn overflow(mut self, limit: usize) -> Self {
        self.overflow = limit;
        self
    }

    /// The safety linger: while the consumer is busy, how long items may lie in the buffer of a producer gone
    /// quiet before the consumer fetches them itself. 1 ms if not set.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger_ns = nanos(linger);
        self
    }

    /// The queue's two ends. The [`Queue`] is also the handle that makes producers.
    ///
    /// # Errors
    /// Says which setting is impossible and what is allowed.
    pub fn build<T: Send>(self) -> Result<(Queue<T>, Consumer<T>), QueueError> {
        if self.capacity == 0 {
            return Err(QueueError::ZeroCapacity);
        }
        if self.capacity > CAPACITY_MAX {
            return Err(QueueError::CapacityTooLarge {
                capacity: self.capacity,
            });
        }
        if self.linger_ns == 0 {
            return Err(QueueError::ZeroLinger);
        }
        let (shared, reader) = Shared::new(&self);
        Ok((Queue::new(shared.clone()), Consumer::new(shared, reader)))
    }
}
