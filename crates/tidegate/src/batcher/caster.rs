//! Buffered casts: a sender has a buffer of its own in front of the queue, and claims places once a buffer.

use std::fmt;

use super::error::SendError;
use super::gate::Credit;
use super::handle::Handle;
use super::shared::{Entry, Shared, Weights};
use crate::blocking;
use crate::queue::{FlushError, Producer};

/// Casts items through a buffer of its own. Where one thread or task sends many items, a caster is several
/// times faster than a [`Handle`]. [`Handle::buffered`] makes one.
///
/// An item in the buffer is accepted like any other: the actor handles it, in order with the other items of
/// this caster, or [`Handle::blocking_stop`] gives it back. The caster flushes its buffer when the buffer is
/// full, on request, and at once if the actor has nothing to do. A busy actor fetches the items of a quiet
/// or dropped caster itself, within about a millisecond, or after two batches where its batches take longer.
/// The items of a caster and those of other handles of the same thread have no common order, except that
/// flushed items come before items sent afterwards.
pub struct Caster<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    // The producer drops before the handle, so that its drop flushes the buffer first.
    producer: Producer<Entry<T, R, M>>,
    handle: Handle<T, R, M>,
}

/// An item, the item's weight, and the credit for that weight.
type Admitted<'a, T> = (T, u32, Option<Credit<'a>>);

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// Returns a caster with a buffer that finds its own size: see
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
    /// Sends an item without an answer. Without room the caster waits or refuses the item, as
    /// [`Builder::full`](super::Builder::full) says. Dropping the future drops the item.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
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

    /// Casts an item like [`cast`](Self::cast); blocks the thread while there is no room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    #[inline]
    pub fn blocking_cast(&mut self, item: T) -> Result<(), SendError<T>> {
        let shared = &*self.handle.shared;
        shared.stamp.touch(&shared.clock);
        let (item, weight, credit) = match &shared.weights {
            None => (item, 0, None),
            Some(weights) => Self::admit(&mut self.producer, weights, shared, item)?,
        };
        // All cases push the entry here, so that the compiler builds it in place.
        let sent = self.producer.blocking_push(Entry::Cast(weight, item));
        shared.sent(sent, credit)
    }

    /// Casts an item like [`cast`](Self::cast), but never waits for room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
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

    /// Weighs an item and takes credit for it. Waits for credit if the actor's sends wait for room.
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
        // The items in the caster's own buffer may occupy the room for which this send waits.
        if producer.blocking_flush().is_err() {
            return Err(SendError::Closed(item));
        }
        let (item, weight) = weights.weigh(item)?;
        match weights.gate.credit(weight.into()) {
            Ok(credit) => Ok((item, weight, Some(credit))),
            Err(_) => Err(SendError::Closed(item)),
        }
    }

    /// Weighs an item and takes credit for it like [`admit`](Self::admit), for a task.
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

    /// Weighs an item and takes credit for it, if credit is available.
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

    /// Hands the buffered items to the actor. Waits for room, also
    /// with [`Full::Reject`](super::Full::Reject). After a drop of
    /// the future, the items not handed over stay in the buffer.
    ///
    /// # Errors
    /// The error says how many items stay in the buffer. The actor has accepted these items all the same, and
    /// fetches them.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        self.producer.flush().await
    }

    /// Hands the buffered items to the actor like [`flush`](Self::flush); blocks the thread while there is no
    /// room. With [`Full::Reject`](super::Full::Reject) it returns [`FlushError::Full`] instead.
    ///
    /// # Errors
    /// As for `flush`.
    pub fn blocking_flush(&mut self) -> Result<(), FlushError> {
        self.producer.blocking_flush()
    }

    /// Returns the number of items in the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.producer.buffered()
    }

    /// Returns a handle to the same actor.
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
