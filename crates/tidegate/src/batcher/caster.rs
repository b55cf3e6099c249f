//! Casting in bulk: a buffer of the caller's own in front of the queue, one claim a buffer.

use std::fmt;

use super::error::SendError;
use super::gate::Credit;
use super::handle::Handle;
use super::shared::{Entry, Shared, Weights};
use crate::blocking;
use crate::queue::{FlushError, Producer};

/// Casts through a buffer of its own: several times faster than through a [`Handle`] where one thread or task
/// sends much. Made by [`Handle::buffered`].
///
/// An item in the buffer is accepted like any other: it is handled, in order with the others of this caster,
/// or given back by [`Handle::blocking_stop`]. The buffer is flushed when it is full, when asked, and at
/// once if the actor has nothing to do; a busy actor fetches the items of a quiet or dropped caster itself
/// within about a millisecond, or after two batches where its batches take longer. Between a caster and other
/// handles of the same thread there is no order, except that what was flushed comes before what is sent
/// afterwards.
pub struct Caster<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    // Dropped, and so flushed, before the handle.
    producer: Producer<Entry<T, R, M>>,
    handle: Handle<T, R, M>,
}

/// An item, its weight and the credit for that.
type Admitted<'a, T> = (T, u32, Option<Credit<'a>>);

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// Returns a caster whose buffer finds its own size: see
    /// [`Queue::buffered`](crate::queue::Queue::buffered). A caster without items takes about 800 bytes.
    #[must_use]
    pub fn buffered(&self) -> Caster<T, R, M> {
        Caster {
            producer: self.shared.queue.buffered(),
            handle: self.clone(),
        }
    }

    /// Returns a caster with a buffer for `limit` items, at least 1 and at most the actor's capacity.
    #[must_use]
    pub fn buffered_by(&self, limit: usize) -> Caster<T, R, M> {
        let queue = &self.shared.queue;
        let limit = limit.clamp(1, queue.capacity());
        Caster {
            producer: queue.fixed(limit).unwrap_or_else(|_| queue.producer()),
            handle: self.clone(),
        }
    }
}

impl<T: Send, R: Send, M: Send> Caster<T, R, M> {
    /// Accepts an item without an answer. If there is no room, waits for it or refuses, as the actor was
    /// built. Dropping the future drops the item.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub async fn cast(&mut self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.handle.shared;
        shared.stamp.touch(&shared.clock);
        let (item, weight, credit) = match &shared.weights {
            None => (item, 0, None),
            Some(weights) => Self::admit_async(&mut self.producer, weights, shared, item).await?,
        };
        let sent = self.producer.push(Entry::Cast(weight, item)).await;
        shared.sent(sent, credit)
    }

    /// As [`cast`](Self::cast), and blocks the thread while there is no room.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    #[inline]
    pub fn blocking_cast(&mut self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.handle.shared;
        shared.stamp.touch(&shared.clock);
        let (item, weight, credit) = match &shared.weights {
            None => (item, 0, None),
            Some(weights) => Self::admit(&mut self.producer, weights, shared, item)?,
        };
        // The one place where an entry is pushed, so that it is built where it goes.
        let sent = self.producer.blocking_push(Entry::Cast(weight, item));
        shared.sent(sent, credit)
    }

    /// As [`cast`](Self::cast), if there is room.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub fn try_cast(&mut self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.handle.shared;
        shared.stamp.touch(&shared.clock);
        let (item, weight, credit) = match &shared.weights {
            None => (item, 0, None),
            Some(weights) => Self::try_admit(weights, shared, item)
                .inspect_err(|error| shared.count_full(error))?,
        };
        let sent = self.producer.try_push(Entry::Cast(weight, item));
        shared.sent(sent, credit)
    }

    /// Weighs an item and takes credit for it; waits for credit if the actor was built so.
    #[cold]
    fn admit<'a>(
        producer: &mut Producer<Entry<T, R, M>>,
        weights: &'a Weights<T>,
        shared: &'a Shared<T, R, M>,
        item: T,
    ) -> Result<Admitted<'a, T>, SendError<T>> {
        let item = match Self::try_admit(weights, shared, item) {
            Err(SendError::Full(item)) if shared.waits => item,
            done => return done.inspect_err(|error| shared.count_full(error)),
        };
        if let Err(why) = blocking::check(shared.queue.id()) {
            return Err(SendError::WouldBlock(item, why));
        }
        // Its own buffer may hold the room that this waits for.
        if producer.blocking_flush().is_err() {
            return Err(SendError::Closed(item));
        }
        let (item, weight) = weights.weigh(item)?;
        match weights.gate.credit(weight.into()) {
            Ok(credit) => Ok((item, weight, Some(credit))),
            Err(_) => Err(SendError::Closed(item)),
        }
    }

    /// As [`admit`](Self::admit), as a task.
    async fn admit_async<'a>(
        producer: &mut Producer<Entry<T, R, M>>,
        weights: &'a Weights<T>,
        shared: &'a Shared<T, R, M>,
        item: T,
    ) -> Result<Admitted<'a, T>, SendError<T>> {
        let item = match Self::try_admit(weights, shared, item) {
            Err(SendError::Full(item)) if shared.waits => item,
            done => return done.inspect_err(|error| shared.count_full(error)),
        };
        if let Err(why) = blocking::check_handler(shared.queue.id()) {
            return Err(SendError::WouldBlock(item, why));
        }
        if producer.flush().await.is_err() {
            return Err(SendError::Closed(item));
        }
        let (item, weight) = weights.weigh(item)?;
        match weights.gate.credit_async(weight.into()).await {
            Ok(credit) => Ok((item, weight, Some(credit))),
            Err(_) => Err(SendError::Closed(item)),
        }
    }

    /// Weighs an item and takes credit for it, if there is some.
    fn try_admit<'a>(
        weights: &'a Weights<T>,
        shared: &'a Shared<T, R, M>,
        item: T,
    ) -> Result<Admitted<'a, T>, SendError<T>> {
        let (item, weight) = weights.weigh(item)?;
        if let Some(credit) = shared.try_credit(weights, weight) {
            return Ok((item, weight, Some(credit)));
        }
        Err(SendError::Full(item))
    }

    /// Hands what is buffered to the actor; waits for room if the actor was built so. Dropping the future
    /// leaves in the buffer what was not handed on.
    ///
    /// # Errors
    /// Says how many items stay in the buffer. They are accepted all the same: the actor fetches them.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        self.producer.flush().await
    }

    /// As [`flush`](Self::flush), and blocks the thread while there is no room.
    ///
    /// # Errors
    /// As for `flush`.
    pub fn blocking_flush(&mut self) -> Result<(), FlushError> {
        self.producer.blocking_flush()
    }

    /// Items in the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.producer.buffered()
    }

    /// A handle to the same actor.
    #[must_use]
    pub fn handle(&self) -> Handle<T, R, M> {
        self.handle.clone()
    }
}

impl<T: Send, R: Send, M: Send> fmt::Debug for Caster<T, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caster")
            .field("buffered", &self.buffered())
            .field("handle", &self.handle)
            .finish()
    }
}
