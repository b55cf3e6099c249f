//! The settings of a queue, and the [`Builder`] that makes a queue from them.

use std::time::Duration;

use super::shared::Shared;
use super::{Consumer, Queue, QueueError};
use crate::nanos;

/// The largest capacity and the largest buffer, in items.
pub const CAPACITY_MAX: usize = 1 << 30;

/// The way in which a thread waits: the consumer waits for items, a producer waits for room. A task always
/// waits by its waker. The builder of an actor takes this type, too
/// ([`batcher::Builder::wait`](crate::batcher::Builder::wait)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// The thread looks again at once, without end, and yields now and then. This gives the lowest latency
    /// and keeps a core busy for each waiting thread, so it suits dedicated cores.
    Spin,
    /// The thread yields the core between looks, without end.
    Yield,
    /// The thread sleeps at once. An idle thread does the least work, and each item that finds the thread
    /// asleep waits for a wake-up.
    Park,
    /// The thread looks a few times, yields a few times, then sleeps.
    #[default]
    Progressive,
}

/// The response of [`blocking_push`](Queue::blocking_push), [`push`](Queue::push) and their forms for many
/// items to a lack of room. A `try_` form ignores this setting. [`Metrics`](super::Metrics) counts every
/// case. An actor has a smaller setting of its own, [`batcher::Full`](crate::batcher::Full).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// The push waits for room.
    #[default]
    Wait,
    /// The push gives the item back with [`PushError::Full`](super::PushError::Full).
    Reject,
    /// The queue drops the item; the push returns `Ok`.
    DropNewest,
    /// The queue drops the oldest items in the ring to make room. The consumer of such a queue takes items
    /// out under a lock.
    DropOldest,
}

/// Builds a queue. [`bounded`] builds one with the defaults.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    pub(super) capacity: usize,
    pub(super) wait: Wait,
    pub(super) full: Full,
    pub(super) overflow: usize,
    pub(super) linger_ns: u64,
}

/// Makes a queue for `capacity` items with the defaults of [`Builder`].
///
/// # Errors
/// A capacity of 0 or above [`CAPACITY_MAX`].
pub fn bounded<T: Send>(capacity: usize) -> Result<(Queue<T>, Consumer<T>), QueueError> {
    Builder::new(capacity).build()
}

impl Builder {
    /// Starts a queue for exactly `capacity` items in the ring (the ring's memory is rounded up to a power of
    /// two). Producers' buffers and the overflow lane come on top, each within its own bound.
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

    /// Sets how threads wait. The default is [`Wait::Progressive`].
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how `blocking_push` and `push` act without room. The default is [`Full::Wait`].
    #[must_use]
    pub const fn full(mut self, full: Full) -> Self {
        self.full = full;
        self
    }

    /// Sets the most items in the overflow lane, for producers that must not wait. The default is 0: no lane.
    #[must_use]
    pub const fn overflow(mut self, limit: usize) -> Self {
        self.overflow = limit;
        self
    }

    /// Sets the safety linger: how long items may stay in the buffer of a producer that has stopped pushing
    /// before a busy consumer fetches these items itself. The default is 1 ms.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger_ns = nanos(linger);
        self
    }

    /// Makes the queue's two ends. The [`Queue`] is also the handle that makes producers.
    ///
    /// # Errors
    /// Names the impossible setting and the values the queue allows.
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
