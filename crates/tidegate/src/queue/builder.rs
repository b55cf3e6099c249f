//! The settings of a queue, and the [`Builder`] that makes a queue from them.

use std::time::Duration;

use super::shared::Shared;
use super::{Consumer, Queue, QueueError};
use crate::nanos;

/// The largest capacity of a queue, and the largest buffer of a producer, in items. The builder refuses more.
pub const CAPACITY_MAX: usize = 1 << 30;

/// The way in which a thread waits for the other end of a queue: the consumer waits for items, a producer
/// waits for room. A task always waits by its waker. The builder of an actor takes this type, too
/// ([`batcher::Builder::wait`](crate::batcher::Builder::wait)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// The thread looks at the queue again at once, without end, and yields the core now and then. This
    /// gives the lowest latency and keeps one core busy for each waiting thread, so it suits dedicated
    /// cores.
    Spin,
    /// The thread yields the core between two looks at the queue, and never sleeps.
    Yield,
    /// The thread sleeps at once, without further looks at the queue. An idle thread does the least work,
    /// but an item that finds the thread asleep waits for a wake-up.
    Park,
    /// The thread looks at the queue a few times, yields the core a few times, and then sleeps.
    #[default]
    Progressive,
}

/// The response of [`blocking_push`](Queue::blocking_push), [`push`](Queue::push) and their forms for many
/// items to a full queue. A `try_` form ignores this setting. [`Metrics`](super::Metrics) counts each of
/// these responses. The batching actor has a setting of its own with fewer cases,
/// [`batcher::Full`](crate::batcher::Full).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Full {
    /// The push to a full queue waits until the queue has room.
    #[default]
    Wait,
    /// The push to a full queue gives the item back with [`PushError::Full`](super::PushError::Full).
    Reject,
    /// The full queue drops the new item, and the push returns `Ok`.
    DropNewest,
    /// The full queue drops the oldest items in its ring to make room for the new item. The consumer of a
    /// queue with this setting takes items out under a lock.
    DropOldest,
}

/// Builds a queue with settings of the program's choice. [`bounded`] builds a queue with the default
/// settings.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    pub(super) capacity: usize,
    pub(super) wait: Wait,
    pub(super) full: Full,
    pub(super) overflow: usize,
    pub(super) linger_ns: u64,
}

/// Makes a queue for `capacity` items with the default settings of [`Builder`].
///
/// # Errors
/// The capacity is 0 or above [`CAPACITY_MAX`].
pub fn bounded<T: Send>(capacity: usize) -> Result<(Queue<T>, Consumer<T>), QueueError> {
    Builder::new(capacity).build()
}

impl Builder {
    /// Creates the settings of a queue for exactly `capacity` items in the ring. The memory of the ring has
    /// room for the next power of two. Items in producers' buffers and in the overflow lane do not count;
    /// each of these has its own bound.
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

    /// Sets how the threads of both ends wait for each other. The default is [`Wait::Progressive`].
    #[must_use]
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how `blocking_push` and `push` act if the queue is full. The default is [`Full::Wait`].
    #[must_use]
    pub const fn full(mut self, full: Full) -> Self {
        self.full = full;
        self
    }

    /// Sets the greatest number of items in the overflow lane, which serves producers that must not wait. The
    /// default is 0: the queue has no lane.
    #[must_use]
    pub const fn overflow(mut self, limit: usize) -> Self {
        self.overflow = limit;
        self
    }

    /// Sets the safety linger: the time that items may stay in the buffer of a producer that has stopped
    /// pushing, before a busy consumer fetches these items itself. The default is 1 ms.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger_ns = nanos(linger);
        self
    }

    /// Makes the two ends of the queue: the [`Queue`], which pushes items and makes producers, and the
    /// [`Consumer`].
    ///
    /// # Errors
    /// A setting is impossible. The error names the setting and the values that the queue allows.
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
