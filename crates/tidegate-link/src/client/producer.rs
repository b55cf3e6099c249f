//! A producer: the sending end of a client that sends through the engine's queue. Each producer has a buffer
//! of its own, and its messages reach the client's I/O task in batches.

use std::sync::Arc;

use tidegate::controller::{Bounds, Choice};
use tidegate::queue::{self, FlushError, PushError};

use super::shared::Shared;
use crate::error::SendError;

/// The longest payload, in bytes, that an item of the queue stores inside itself, without an allocation; a
/// longer payload is boxed.
const INLINE_MAX: usize = 22;
/// The greatest number of messages that a producer gathers in its buffer before it hands them to the queue.
/// The engine's controller chooses a number up to this one.
const BUFFER_MAX: usize = 1024;

/// A message on its way from a producer through the queue to the I/O task.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A payload of at most 22 bytes, stored inside the queue's item.
    Inline {
        /// The number of bytes at the start of `bytes` that are the payload; the rest is unused.
        len: u8,
        bytes: [u8; INLINE_MAX],
    },
    /// A payload of more than 22 bytes, stored on the heap, so that items of the queue stay small.
    Boxed(Box<[u8]>),
}

impl Item {
    #[inline]
    fn new(payload: &[u8]) -> Self {
        if payload.len() > INLINE_MAX {
            return Self::Boxed(payload.into());
        }
        let mut bytes = [0; INLINE_MAX];
        bytes[..payload.len()].copy_from_slice(payload);
        Self::Inline {
            len: payload.len() as u8,
            bytes,
        }
    }

    #[inline]
    pub(super) fn payload(&self) -> &[u8] {
        match self {
            // `len` is the length of a payload that fitted into `bytes`, so the range always exists.
            Self::Inline { len, bytes } => bytes.get(..*len as usize).unwrap_or(bytes),
            Self::Boxed(payload) => payload,
        }
    }
}

/// Sends messages from a thread or a task of its own, one at a time. A push only copies the message into the
/// producer's buffer.
///
/// Messages of one producer stay in order. They get their numbers when the client's I/O task takes them out
/// of the queue, so a push returns no number. [`Client::flush`](super::Client::flush) and
/// [`Client::close`](super::Client::close) cover only messages that the task has taken out of the queue: call
/// [`flush`](Self::flush) and drop the producers first. Once the client has ended, every call of its
/// producers fails.
#[derive(Debug)]
pub struct Producer {
    inner: queue::Producer<Item>,
    shared: Arc<Shared>,
}

impl Producer {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let inner = Choice::KNEE
            .build(Bounds::items(1, BUFFER_MAX as u64))
            .ok()
            .and_then(|controller| shared.queue.controlled(BUFFER_MAX, controller).ok())
            .unwrap_or_else(|| unreachable!("the bounds are valid"));
        shared.add_producer();
        Self {
            inner,
            shared: shared.clone(),
        }
    }

    /// Copies `payload` into the producer's buffer; waits without blocking the thread while the queue is
    /// full.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], or the reason why the client has ended.
    pub async fn push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.push(Item::new(payload)).await;
        pushed.map_err(|error| self.refused(&error))
    }

    /// Copies `payload` like [`push`](Self::push), but blocks the thread while the queue is full.
    ///
    /// # Errors
    /// Those of [`push`](Self::push), and [`SendError::WouldBlock`] on a thread that must not wait.
    #[inline]
    pub fn blocking_push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.blocking_push(Item::new(payload));
        pushed.map_err(|error| self.refused(&error))
    }

    /// Copies `payload` like [`push`](Self::push), but never waits for room in the queue.
    ///
    /// # Errors
    /// Those of [`push`](Self::push), and [`SendError::Full`].
    pub fn try_push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.try_push(Item::new(payload));
        pushed.map_err(|error| self.refused(&error))
    }

    /// Hands the messages in the producer's buffer on to the queue; waits without blocking the thread while
    /// the queue is full.
    ///
    /// # Errors
    /// The reason why the client has ended.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        let flushed = self.inner.flush().await;
        flushed.map_err(|error| self.not_flushed(error))
    }

    /// Hands messages on like [`flush`](Self::flush), but blocks the thread while the queue is full.
    ///
    /// # Errors
    /// Those of [`flush`](Self::flush), and [`SendError::WouldBlock`] on a thread that must not wait.
    pub fn blocking_flush(&mut self) -> Result<(), SendError> {
        let flushed = self.inner.blocking_flush();
        flushed.map_err(|error| self.not_flushed(error))
    }

    #[inline]
    fn check(&self, payload: &[u8]) -> Result<(), SendError> {
        let (len, max) = (payload.len(), self.shared.payload_max);
        if len <= max {
            return Ok(());
        }
        Err(SendError::TooLarge { len, max })
    }

    #[cold]
    fn refused(&self, error: &PushError<Item>) -> SendError {
        match error {
            PushError::Full(_) => SendError::Full,
            PushError::WouldBlock(_, why) => SendError::WouldBlock(*why),
            _ => SendError::Ended(self.shared.ended()),
        }
    }

    #[cold]
    fn not_flushed(&self, error: FlushError) -> SendError {
        match error {
            FlushError::WouldBlock { why, .. } => SendError::WouldBlock(why),
            _ => SendError::Ended(self.shared.ended()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_survive_either_way() {
        for len in [0, 1, INLINE_MAX, INLINE_MAX + 1, 500] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Item::new(&payload).payload(), payload);
        }
        assert_eq!(size_of::<Item>(), 24);
    }
}
