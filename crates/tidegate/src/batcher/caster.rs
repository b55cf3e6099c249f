//! Buffered casts: a sender has a buffer of its own in front of the actor's queue. One claim of queue
//! places serves all items of the buffer, so a cast costs less.

use std::fmt;

use super::error::SendError;
use super::gate::Credit;
use super::handle::Handle;
use super::shared::{Entry, Shared, Weights};
use crate::blocking;
use crate::queue::{FlushError, Producer};

/// Casts items to an actor through a buffer of its own. If one thread or task sends many items, a caster is
/// several times faster than a [`Handle`]. [`Handle::buffered`] makes one.
///
/// The actor has accepted each item in the buffer: it handles the item, in order with the other items of
/// this caster, or [`Handle::blocking_stop`] gives the item back. The caster flushes its buffer when the
/// buffer is full, on request, and at once if the actor has nothing to do. A busy actor itself fetches the
/// items of a caster that stopped casting or was dropped, within about a millisecond, or after two batches
/// if its batches take longer. The items of a caster and those of other handles of the same thread have no
/// common order, except that flushed items come before items sent afterwards.
pub struct Caster<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    // The producer drops before the handle, so that the drop of the producer flushes the buffer while the
    // actor still runs.
    producer: Producer<Entry<T, R, M>>,
    handle: Handle<T, R, M>,
}

/// An item that the actor may take, the weight of the item, and the credit for that weight: the share of the
/// room for bytes that the item occupies.
type Admitted<'a, T> = (T, u32, Option<Credit<'a>>);

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// Returns a caster with a buffer that finds its own size: see
    /// [`Queue::buffered`](crate::queue::Queue::buffered). A caster takes about 800 bytes of memory before
    /// its first item.
    #[must_use]
    pub fn buffered(&self) -> Caster<T, R, M> {
        Caster {
            producer: self.shared.queue.buffered(),
            handle: self.clone(),
        }
    }

    /// Returns a caster with a buffer for `limit` items. A limit below 1 counts as 1, and one above the
    /// actor's capacity as that capacity.
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
    /// Sends an item without an answer. If the actor has no room, the caster waits or refuses the item, as
    /// [`Builder::full`](super::Builder::full) says. A drop of the future drops the item.
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

    /// Casts an item like [`cast`](Self::cast), but blocks the thread while the actor has no room.
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
        // Items with and without a weight share this push, so that the compiler builds the entry in its
        // place in the buffer.
        let sent = self.producer.blocking_push(Entry::Cast(weight, item));
        shared.sent(sent, credit)
    }

    /// Casts an item like [`cast`](Self::cast), but never waits: returns an error if the actor has no room.
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

    /// Weighs an item and takes credit for its bytes. Blocks the thread until credit is available, if the
    /// actor's sends wait for room.
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
        // The items in the caster's own buffer may occupy the room for which this send waits, so the caster
        // flushes them first.
        if producer.blocking_flush().is_err() {
            return Err(SendError::Closed(item));
        }
        let (item, weight) = weights.weigh(item)?;
        match weights.gate.credit(weight.into()) {
            Ok(credit) => Ok((item, weight, Some(credit))),
            Err(_) => Err(SendError::Closed(item)),
        }
    }

    /// Weighs an item and takes credit for its bytes like [`admit`](Self::admit), but waits for credit as a
    /// task.
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

    /// Weighs an item and takes credit for its bytes, without waiting. Returns [`SendError::Full`] if no
    /// credit is available.
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

    /// Hands the buffered items to the actor. Waits for room in the queue, even with
    /// [`Full::Reject`](super::Full::Reject). After a drop of the future, the items not handed over stay in
    /// the buffer.
    ///
    /// # Errors
    /// The error says how many items stay in the buffer. The actor has accepted these items, too, and
    /// fetches them later.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        self.producer.flush().await
    }

    /// Hands the buffered items to the actor like [`flush`](Self::flush), but blocks the thread while the
    /// queue has no room. With [`Full::Reject`](super::Full::Reject), it returns [`FlushError::Full`]
    /// instead of waiting.
    ///
    /// # Errors
    /// The error says how many items stay in the buffer. The actor has accepted these items, too, and
    /// fetches them later.
    pub fn blocking_flush(&mut self) -> Result<(), FlushError> {
        self.producer.blocking_flush()
    }

    /// Returns the number of items in the caster's buffer, which the caster has not handed to the actor yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.producer.buffered()
    }

    /// Returns a handle to the actor of this caster, for sends without the buffer.
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
