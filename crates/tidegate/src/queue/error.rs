//! The errors of the queue: one error type for each operation. A failed push gives its item back.

use std::error::Error;
use std::fmt;

use crate::WouldBlock;

/// The error of a queue that cannot be built with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The capacity of the queue is 0.
    ZeroCapacity,
    /// The capacity of the queue is above [`CAPACITY_MAX`](super::CAPACITY_MAX).
    CapacityTooLarge {
        /// The capacity, in items, that the caller gave for the queue.
        capacity: usize,
    },
    /// The limit that the caller gave for a producer's buffer is 0 items.
    ZeroLimit,
    /// The limit that the caller gave for a producer's buffer is above [`CAPACITY_MAX`](super::CAPACITY_MAX).
    LimitTooLarge {
        /// The limit, in items, that the caller gave for a producer's buffer.
        limit: usize,
    },
    /// The safety linger is 0, with which the consumer would fetch items out of the buffers without pause.
    ZeroLinger,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = super::CAPACITY_MAX;
        match self {
            Self::ZeroCapacity => {
                f.write_str("a queue with room for 0 items: at least 1 is needed")
            }
            Self::CapacityTooLarge { capacity } => {
                write!(f, "a queue of {capacity} items: at most {max} are allowed")
            }
            Self::ZeroLimit => f.write_str("a producer's buffer of 0 items: at least 1 is needed"),
            Self::LimitTooLarge { limit } => {
                write!(
                    f,
                    "a producer's buffer of {limit} items: at most {max} are allowed"
                )
            }
            Self::ZeroLinger => f.write_str("a safety linger of 0: more than 0 is needed"),
        }
    }
}

impl Error for QueueError {}

/// The error of a push: the queue did not accept the item, and the error gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError<T> {
    /// The queue has no room for the item now.
    Full(T),
    /// The queue is closed, or its consumer is gone, so no later push succeeds.
    Closed(T),
    /// The queue has no room for the item now, and the thread must not wait for room.
    WouldBlock(T, WouldBlock),
}

impl<T> PushError<T> {
    /// Returns the item that the queue did not accept, so that the producer can use it again.
    pub fn into_item(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) | Self::WouldBlock(item, _) => item,
        }
    }

    /// Returns the item that the queue did not accept, and the error without it.
    pub(crate) fn split(self) -> (T, PushError<()>) {
        match self {
            Self::Full(item) => (item, PushError::Full(())),
            Self::Closed(item) => (item, PushError::Closed(())),
            Self::WouldBlock(item, why) => (item, PushError::WouldBlock((), why)),
        }
    }

    /// Returns whether the queue is closed, so that another try is useless.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::WouldBlock(_, why) => write!(f, "WouldBlock(.., {why:?})"),
        }
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the queue is full"),
            Self::Closed(_) => f.write_str("the queue is closed"),
            Self::WouldBlock(_, why) => write!(f, "the queue is full: {why}"),
        }
    }
}

impl<T> Error for PushError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WouldBlock(_, why) => Some(why),
            _ => None,
        }
    }
}

/// The error of a flush, or of a push of many items: the queue did not take some of the items. These items
/// stay in the producer's buffer, or in the vector of the caller, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The queue is full: it has no room now for the last `left` items of the flush or push.
    Full {
        /// The number of items that stay in the producer's buffer or, after a push of many items, with the
        /// caller.
        left: usize,
    },
    /// The queue is closed, or its consumer is gone, so the queue accepts no more items.
    Closed {
        /// The number of items that stay in the producer's buffer or, after a push of many items, with the
        /// caller.
        left: usize,
    },
    /// The queue has no room now for the last `left` items of the flush or push, and the thread must not wait
    /// for room.
    WouldBlock {
        /// The number of items that stay in the producer's buffer or, after a push of many items, with the
        /// caller.
        left: usize,
        /// The reason why the thread must not wait for room.
        why: WouldBlock,
    },
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { left } => write!(
                f,
                "the queue is full: {left} items stay in the producer's buffer or with the caller"
            ),
            Self::Closed { left } => write!(
                f,
                "the queue is closed: {left} items stay in the producer's buffer or with the caller"
            ),
            Self::WouldBlock { left, why } => {
                write!(
                    f,
                    "the queue is full, {left} items stay in the producer's buffer or with the caller: {why}"
                )
            }
        }
    }
}

impl Error for FlushError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WouldBlock { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// The end of a queue: the queue is closed, and the consumer has handed out every item that the queue
/// accepted. No later drain hands out an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed and drained")
    }
}

impl Error for Closed {}

/// The error of a consumer that waited for an item and received none, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The queue is closed, and the consumer has handed out every item that the queue accepted.
    Closed,
    /// The queue holds no item now, and the thread must not wait for one.
    WouldBlock(WouldBlock),
}

impl From<Closed> for RecvError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<WouldBlock> for RecvError {
    fn from(why: WouldBlock) -> Self {
        Self::WouldBlock(why)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => Closed.fmt(f),
            Self::WouldBlock(why) => write!(f, "the queue is empty: {why}"),
        }
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Closed => None,
            Self::WouldBlock(why) => Some(why),
        }
    }
}
