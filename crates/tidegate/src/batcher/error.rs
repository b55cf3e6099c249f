//! The errors of an actor: one type an operation.

use std::error::Error;
use std::fmt;

use super::handler::StopReason;
use super::reply::ReplyError;
use crate::WouldBlock;
use crate::controller::Load;

/// The error of a send: the actor did not accept the item, and the error gives it back.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<T> {
    /// There is no room for the item now.
    Full(T),
    /// The actor ended, or accepts nothing more.
    Closed(T),
    /// The item is heavier than the actor allows.
    Oversized {
        /// The item.
        item: T,
        /// The weight of the item.
        bytes: u64,
        /// The most an item may weigh.
        limit: u64,
    },
    /// The send, or the wait for the answer, would block a thread that must not wait.
    WouldBlock(T, WouldBlock),
    /// There was no room for the item in time.
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
    /// Returns the same error, which then holds `item`.
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

/// The error of sending many items: the actor did not accept some of them.
#[derive(Clone, PartialEq, Eq)]
pub struct CastManyError<T> {
    /// The number of items sent before the error.
    pub sent: usize,
    /// The items that were not sent, in order.
    pub rest: Vec<T>,
    /// The reason why the actor did not accept the first of these items.
    pub error: SendError<()>,
}

impl<T> CastManyError<T> {
    /// Joins the item of `error`, which came after `sent` items, and the later items in `rest`.
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

/// The error of a call that got no reply.
#[derive(Clone)]
#[non_exhaustive]
pub enum CallError<T> {
    /// The actor did not accept the item.
    Send(SendError<T>),
    /// An error came back instead of a reply.
    Reply(ReplyError),
    /// No reply came in time, or no room for the item. If the handler has not seen the item yet, it never
    /// will. The error does not hold the item.
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
            // An item need not be `'static`, so `SendError` itself cannot be a source.
            Self::Send(error) => error.source(),
            Self::Reply(error) => error.source(),
            Self::TimedOut => None,
        }
    }
}

/// The error of a drain or a stop that did not complete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopError {
    /// The actor has not ended in time: its handler has not returned, or the actor has more items to drain.
    TimedOut {
        /// The waiting load, without the batch in the handler's hands.
        backlog: Load,
    },
    /// The actor ended for another reason than this drain, so it may have left items unhandled.
    Ended(StopReason),
    /// The actor got the request, but the thread must not wait for the actor's end.
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

/// The reason why an actor did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// An objective outside its range, or bounds that no batch can satisfy.
    Knee(crate::controller::KneeError),
    /// Bounds that no batch can satisfy.
    Bounds(crate::controller::BoundsError),
    /// A capacity that no queue can have.
    Queue(crate::queue::QueueError),
    /// A capacity of 0 bytes.
    ZeroBytes,
    /// A capacity in bytes for items without weights.
    NoWeights,
    /// The operating system started no thread.
    Thread(std::io::Error),
    /// The handler's `init` refused to start, for this cause.
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
            Self::NoWeights => {
                f.write_str("a capacity in bytes, but items have no weight: give `weigh`, too")
            }
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

/// The reason why an inspection has no result.
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
