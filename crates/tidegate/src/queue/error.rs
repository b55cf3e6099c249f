//! The errors of the queue, one type an operation. A failed push gives its item back.

use std::error::Error;
use std::fmt;

use crate::WouldBlock;

/// A queue that cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// A capacity of 0.
    ZeroCapacity,
    /// A capacity above [`CAPACITY_MAX`](super::CAPACITY_MAX).
    CapacityTooLarge {
        /// The capacity given.
        capacity: usize,
    },
    /// A producer's buffer for 0 items.
    ZeroLimit,
    /// A producer's buffer larger than [`CAPACITY_MAX`](super::CAPACITY_MAX).
    LimitTooLarge {
        /// The limit given.
        limit: usize,
    },
    /// A linger of 0: the consumer would sweep the buffers without pause.
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

/// An item that the queue did not accept and gives back.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError<T> {
    /// The queue has no room for the item now.
    Full(T),
    /// The queue is closed, or its consumer is gone: no later push succeeds.
    Closed(T),
    /// The queue has no room now, and the thread must not wait for it.
    WouldBlock(T, WouldBlock),
}

impl<T> PushError<T> {
    /// Returns the item.
    pub fn into_item(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) | Self::WouldBlock(item, _) => item,
        }
    }

    /// Returns the item, and the error without it.
    pub(crate) fn split(self) -> (T, PushError<()>) {
        match self {
            Self::Full(item) => (item, PushError::Full(())),
            Self::Closed(item) => (item, PushError::Closed(())),
            Self::WouldBlock(item, why) => (item, PushError::WouldBlock((), why)),
        }
    }

    /// Returns whether trying again is useless.
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

/// The error of a flush: items stay in the producer's buffer, or in the vector of the caller, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The queue has no room for `left` of the items now.
    Full {
        /// The number of items that stay.
        left: usize,
    },
    /// The queue is closed, or its consumer is gone.
    Closed {
        /// The number of items that stay.
        left: usize,
    },
    /// The queue has no room for `left` of the items now, and the thread must not wait for it.
    WouldBlock {
        /// The number of items that stay.
        left: usize,
        /// The reason why the thread must not wait.
        why: WouldBlock,
    },
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { left } => write!(f, "the queue is full: {left} items stay"),
            Self::Closed { left } => write!(f, "the queue is closed: {left} items stay"),
            Self::WouldBlock { left, why } => {
                write!(f, "the queue is full, {left} items stay: {why}")
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

/// The queue is closed and the consumer has handed out every item it accepted: no
/// later drain hands out an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed and drained")
    }
}

impl Error for Closed {}

/// The error of a consumer that received no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The queue is closed and the consumer has handed out every item it accepted.
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
