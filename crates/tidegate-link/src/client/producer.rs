//! Sending through the engine's queue: each producer has a buffer of its own, and its
//! messages reach the I/O task in batches.

use std::sync::Arc;

use tidegate::controller::{Bounds, Choice};
use tidegate::queue::{self, FlushError, PushError};

use super::shared::Shared;
use crate::error::SendError;

/// The longest payload stored inside its item; a longer payload is boxed.
const INLINE_MAX: usize = 22;
/// The most messages that a producer's buffer holds; the engine adapts the number that it fills.
const BUFFER_MAX: usize = 1024;

/// A message on its way through the queue.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A short payload.
    Inline {
        /// The number of bytes of `bytes` that the payload takes.
        len: u8,
        bytes: [u8; INLINE_MAX],
    },
    /// A longer payload.
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
            // The length is that of a slice that fitted into `bytes`.
            Self::Inline { len, bytes } => bytes.get(..*len as usize).unwrap_or(bytes),
            Self::Boxed(payload) => payload,
        }
    }
}

/// Sends from a thread or a task of its own, one message at a time, at the cost of one store each.
///
/// Messages of one producer stay in order. They get their numbers when the I/O task takes
/// them out of the queue, so a push returns none. [`Client::flush`](super::Client::flush)
/// and [`Client::close`](super::Client::close) cover only messages taken out: call
/// [`flush`](Self::flush) and drop producers first. A producer ends with its client.
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

    /// Copies `payload`; waits as a task while the queue is full.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], or that the client has ended.
    pub async fn push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.push(Item::new(payload)).await;
        pushed.map_err(|error| self.refused(&error))
    }

    /// Copies `payload` like [`push`](Self::push); blocks the thread while the queue is full.
    ///
    /// # Errors
    /// As for [`push`](Self::push); [`SendError::WouldBlock`] where the thread must not wait.
    #[inline]
    pub fn blocking_push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.blocking_push(Item::new(payload));
        pushed.map_err(|error| self.refused(&error))
    }

    /// Copies `payload` like [`push`](Self::push), but never waits.
    ///
    /// # Errors
    /// Those of [`push`](Self::push), and [`SendError::Full`].
    pub fn try_push(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.check(payload)?;
        let pushed = self.inner.try_push(Item::new(payload));
        pushed.map_err(|error| self.refused(&error))
    }

    /// Hands the buffered messages on to the queue; waits as a task while the queue is full.
    ///
    /// # Errors
    /// The client has ended.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        let flushed = self.inner.flush().await;
        flushed.map_err(|error| self.not_flushed(error))
    }

    /// Hands on messages like [`flush`](Self::flush); blocks the thread while the queue is full.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush); [`SendError::WouldBlock`] where the thread must not wait.
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
