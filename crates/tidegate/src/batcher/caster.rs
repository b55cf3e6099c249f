//! Casting in bulk: a buffer of the caller's own in front of the queue, one claim a buffer.

use std::fmt;

use super::error::SendError;
use super::gate::Credit;
use super::handle::Handle;
use super::shared::{Entry, Shared, Weights};
use crate::queue::{FlushError, Producer};

/// Casts through a buffer of its own: several times faster than through a [`Handle`] where one thread or task
/// sends much. Made by [`Handle::buffered`].
///
/// An item in the buffer is accepted like any other: it is handled, in order with the others of this caster,
/// or given back by [`Handle::blocking_stop`]. The buffer is flushed when it is full, when asked, and at once if the
/// actor has nothing to do; a busy actor fetches the items of a quiet or dropped caster itself within about a
/// millisecond. Between a caster and other handles of the same thread there is no order, except that what was
/// flushed comes before what is sent afterwards.
pub struct Caster<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    // Dropped, and so flushed, before the handle.
    producer: Producer<Entry<T, R, M>>,
    handle: Handle<T, R, M>,
}

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    /// A caster with a buffer for 256 items.
    #[must_use]
    pub fn buffered(&self) -> Caster<T, R, M> {
        self.buffered_by(256)
    }

    /// A caster with a buffer for `limit` items, at least 1 and at most the actor's capacity.
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
    /// Accepts an item nobody waits for. If there is no room, waits for it or refuses, as the actor was
    /// built.
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
        if let Err(error) = sent {
            return Err(shared.refused(error));
        }
        if let Some(credit) = credit {
            credit.keep();
        }
        Ok(())
    }

    #[cold]
    fn admit<'a>(
        producer: &mut Producer<Entry<T, R, M>>,
        weights: &'a Weights<T>,
        shared: &Shared<T, R, M>,
        item: T,
    ) -> Result<(T, u32, Option<Credit<'a>>), SendError<T>> {
        let (item, weight) = weights.weigh(item)?;
        let credit = match shared.try_credit(weights, weight) {
            Some(credit) => credit,
            None if !shared.waits => {
                shared.counters.rejected(1);
                return Err(SendError::Full(item));
            }
            None => {
                // The room this waits for may be taken by its own buffer.
                if producer.blocking_flush().is_err() {
                    return Err(SendError::Closed(item));
                }
                match weights.gate.credit(weight.into()) {
                    Ok(credit) => credit,
                    Err(_) => return Err(SendError::Closed(item)),
                }
            }
        };
        Ok((item, weight, Some(credit)))
    }

    /// Hands what is buffered to the actor; waits for room if the actor was built so.
    ///
    /// # Errors
    /// Says how many items stay in the buffer. They are accepted all the same: the actor fetches them.
    pub fn blocking_flush(&mut self) -> Result<(), FlushError> {
        self.producer.blocking_flush()
    }

    /// Like [`Caster::blocking_flush`], waiting for room without blocking the thread.
    ///
    /// # Errors
    /// Says how many items stay in the buffer.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        self.producer.flush().await
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
