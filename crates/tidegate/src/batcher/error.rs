//! What can go wrong with an actor: one type an operation.

use std::error::Error;
use std::fmt;

use super::handler::StopReason;
use super::reply::ReplyError;
use crate::WouldBlock;
use crate::controller::Load;

/// An item that was not accepted, given back.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// There is no room for it now.
    Full(T),
    /// The actor ended, or accepts nothing more.
    Closed(T),
    /// It is heavier than the actor takes.
    Oversized {
        /// The item.
        item: T,
        /// What it weighs.
        bytes: u64,
        /// The most an item may weigh.
        limit: u64,
    },
    /// The send, or the wait for the answer, would block a thread that must not wait.
    WouldBlock(T, WouldBlock),
    /// There was no room for it in time.
    TimedOut(T),
}

impl<T> SendError<T> {
    /// Returns the item.
    pub fn into_item(self) -> T {
        self.split().0
    }

    /// Returns whether trying again is useless: the actor accepts nothing more.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Returns the item, and the error without it.
    pub fn split(self) -> (T, SendError<()>) {
        match self {
            Self::Full(item) => (item, SendError::Full(())),
            Self::Closed(item) => (item, SendError::Closed(())),
            Self::WouldBlock(item, why) => (item, SendError::WouldBlock((), why)),
            Self::TimedOut(item) => (item, SendError::TimedOut(())),
            Self::Oversized { item, bytes, limit } => {
                let item_less = SendError::Oversized {
                    item: (),
                    bytes,
                    limit,
                };
                (item, item_less)
            }
        }
    }
}

impl SendError<()> {
    /// The same error for `item`.
    pub(super) fn with<T>(self, item: T) -> SendError<T> {
        match self {
            Self::Full(()) => SendError::Full(item),
            Self::Closed(()) => SendError::Closed(item),
            Self::WouldBlock((), why) => SendError::WouldBlock(item, why),
            Self::TimedOut(()) => SendError::TimedOut(item),
            Self::Oversized { bytes, limit, .. } => SendError::Oversized { item, bytes, limit },
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::Oversized { bytes, limit, .. } => {
                write!(f, "Oversized {{ bytes: {bytes}, limit: {limit}, .. }}")
            }
            Self::WouldBlock(_, why) => write!(f, "WouldBlock(.., {why:?})"),
            Self::TimedOut(_) => f.write_str("TimedOut(..)"),
        }
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("there is no room for the item"),
            Self::Closed(_) => f.write_str("the actor accepts nothing more"),
            Self::Oversized { bytes, limit, .. } => {
                write!(
                    f,
                    "the item weighs {bytes} bytes and at most {limit} are allowed"
                )
            }
            Self::WouldBlock(_, why) => write!(f, "the item was not sent: {why}"),
            Self::TimedOut(_) => f.write_str("there was no room for the item in time"),
        }
    }
}

impl<T> Error for SendError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WouldBlock(_, why) => Some(why),
            _ => None,
        }
    }
}

/// Some of many items were not accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct CastManyError<T> {
    /// How many were sent before.
    pub sent: usize,
    /// Those that were not, in order.
    pub rest: Vec<T>,
    /// Why the first of these was not accepted.
    pub error: SendError<()>,
}

impl<T> CastManyError<T> {
    /// `error` came after `sent` items, and `rest` after it.
    pub(super) fn new(sent: usize, error: SendError<T>, rest: impl Iterator<Item = T>) -> Self {
        let (first, error) = error.split();
        let rest = std::iter::once(first).chain(rest).collect();
        Self { sent, rest, error }
    }
}

impl<T> fmt::Debug for CastManyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastManyError")
            .field("sent", &self.sent)
            .field("rest", &self.rest.len())
            .field("error", &self.error)
            .finish()
    }
}

impl<T> fmt::Display for CastManyError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, rest) = (self.sent, self.rest.len());
        let error = &self.error;
        write!(f, "{sent} items were accepted, {rest} were not: {error}")
    }
}

impl<T> Error for CastManyError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

/// A call without a reply.
#[derive(Clone)]
#[non_exhaustive]
pub enum CallError<T> {
    /// The item was not accepted.
    Send(SendError<T>),
    /// Something other than a reply came back.
    Reply(ReplyError),
    /// Nothing came in time. If the handler has not seen the item yet, it will not.
    TimedOut,
}

impl<T> fmt::Debug for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => f.debug_tuple("Send").field(error).finish(),
            Self::Reply(error) => f.debug_tuple("Reply").field(error).finish(),
            Self::TimedOut => f.write_str("TimedOut"),
        }
    }
}

impl<T> fmt::Display for CallError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(error) => error.fmt(f),
            Self::Reply(error) => error.fmt(f),
            Self::TimedOut => f.write_str("no reply came in time"),
        }
    }
}

impl<T> Error for CallError<T> {
    /// The message is the inner error's own, so the source is that error's source.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // An item need not live for ever, so `SendError` itself cannot be a source.
            Self::Send(error) => error.source(),
            Self::Reply(error) => error.source(),
            Self::TimedOut => None,
        }
    }
}

/// A drain or stop that did not come to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopError {
    /// The actor has not ended in time: its handler has not returned, or there is more to drain.
    TimedOut {
        /// What still waits, besides the batch in the handler's hands.
        backlog: Load,
    },
    /// The actor ended for another reason than this drain, so that not everything may have been handled.
    Ended(StopReason),
    /// The actor was told, and the thread must not wait for its end.
    WouldBlock(WouldBlock),
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { backlog } => write!(
                f,
                "the actor has not ended in time: its handler has not returned, {} items wait",
                backlog.items
            ),
            Self::Ended(reason) => write!(f, "the actor ended without draining: {reason}"),
            Self::WouldBlock(why) => write!(f, "the actor has not ended yet: {why}"),
        }
    }
}

impl Error for StopError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Ended(StopReason::Asked(cause) | StopReason::Handler(cause)) => Some(&**cause),
            Self::WouldBlock(why) => Some(why),
            Self::TimedOut { .. } | Self::Ended(_) => None,
        }
    }
}

/// An actor that did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// An objective outside its range, or bounds no batch can satisfy.
    Knee(crate::controller::KneeError),
    /// Bounds no batch can satisfy.
    Bounds(crate::controller::BoundsError),
    /// A capacity no queue can have.
    Queue(crate::queue::QueueError),
    /// Room for no bytes.
    ZeroBytes,
    /// The operating system gave no thread.
    Thread(std::io::Error),
    /// The handler's `init` refused, for this cause.
    Refused(super::reply::Cause),
    /// The handler's factory or `init` panicked.
    Panicked,
    /// The runtime shut down before the handler's `init` returned.
    Abandoned,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Knee(error) => error.fmt(f),
            Self::Bounds(error) => error.fmt(f),
            Self::Queue(error) => error.fmt(f),
            Self::ZeroBytes => f.write_str("room for 0 bytes: at least 1 is needed"),
            Self::Thread(error) => write!(f, "no thread for the actor: {error}"),
            Self::Refused(cause) => write!(f, "the handler refused to start: {cause}"),
            Self::Panicked => f.write_str("the handler panicked while starting"),
            Self::Abandoned => f.write_str("the runtime shut down while the handler started"),
        }
    }
}

impl Error for SpawnError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Knee(error) => Some(error),
            Self::Bounds(error) => Some(error),
            Self::Queue(error) => Some(error),
            Self::Thread(error) => Some(error),
            Self::Refused(cause) => Some(&**cause),
            _ => None,
        }
    }
}

/// An inspection that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InspectError {
    /// The actor ended.
    Ended,
    /// The inspection itself panicked.
    Panicked,
    /// The handler is not of the type asked for.
    OtherType {
        /// The type asked for.
        asked: &'static str,
    },
    /// The thread must not wait until the handler is free.
    WouldBlock(WouldBlock),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the actor ended"),
            Self::Panicked => f.write_str("the inspection panicked"),
            Self::OtherType { asked } => write!(f, "the handler is not a {asked}"),
            Self::WouldBlock(why) => write!(f, "the handler is not free: {why}"),
        }
    }
}

impl Error for InspectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WouldBlock(why) => Some(why),
            _ => None,
        }
    }
}
