//! The errors of an actor: one error type for each operation.

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
    /// The actor has no room for the item now.
    Full(T),
    /// The actor has ended, or accepts no more items.
    Closed(T),
    /// The item is heavier than the actor allows, so that waiting is useless.
    Oversized {
        /// The item, which the actor refused because it is too heavy.
        item: T,
        /// The weight of the item, in the unit of [`Builder::weigh`](super::Builder::weigh).
        bytes: u64,
        /// The greatest weight that an item may have, in the unit of
        /// [`Builder::weigh`](super::Builder::weigh).
        limit: u64,
    },
    /// The send would have to wait for room, or a call for its answer, on a thread that must not block: the
    /// thread polls a task or runs the actor's own handler. The actor did not accept the item.
    WouldBlock(T, WouldBlock),
    /// The actor had no room for the item until the deadline.
    TimedOut(T),
}

impl<T> SendError<T> {
    /// Returns the item that the actor did not accept, so that the sender can use it again.
    pub fn into_item(self) -> T {
        self.split().0
    }

    /// Returns whether the actor accepts no more items, so that another try is useless.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }

    /// Returns the item that the actor did not accept, and the error without it.
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
    /// Returns this error of a send together with `item`, which the actor did not accept.
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
            Self::Full(_) => f.write_str("the actor has no room for the item"),
            Self::Closed(_) => f.write_str("the actor accepts nothing more"),
            Self::Oversized { bytes, limit, .. } => {
                write!(
                    f,
                    "the item weighs {bytes} bytes and at most {limit} are allowed"
                )
            }
            Self::WouldBlock(_, why) => write!(f, "the item was not sent: {why}"),
            Self::TimedOut(_) => f.write_str("the actor had no room for the item in time"),
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

/// The error of a send of many items: the actor did not accept all of them.
#[derive(Clone, PartialEq, Eq)]
pub struct CastManyError<T> {
    /// The number of items that the actor accepted before the error; it handles these.
    pub sent: usize,
    /// The items that the actor did not accept: the item that caused the error, then all later items, in
    /// order.
    pub rest: Vec<T>,
    /// The reason why the actor did not accept the first item of `rest`.
    pub error: SendError<()>,
}

impl<T> CastManyError<T> {
    /// Joins the item in `error`, which the actor refused after `sent` accepted items, and the later items
    /// in `rest`.
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

/// The error of a call: the caller got no reply from the actor.
#[derive(Clone)]
#[non_exhaustive]
pub enum CallError<T> {
    /// The actor did not accept the item of the call.
    Send(SendError<T>),
    /// The actor answered the call with an error.
    Reply(ReplyError),
    /// Before the deadline no reply came, or the actor had no room for the item. If the handler has not seen
    /// the item by the deadline, it never sees the item. The error does not hold the item.
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
    /// Returns the source of the `SendError` or `ReplyError` inside. The message of a `CallError` is already
    /// the message of that inner error, so the inner error is no source: a report of all sources would print
    /// this message twice.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // A source must be `'static`, and a `SendError` holds an item that need not be. So only the
            // source of the `SendError` can be returned.
            Self::Send(error) => error.source(),
            Self::Reply(error) => error.source(),
            Self::TimedOut => None,
        }
    }
}

/// The error of a drain or a stop of an actor that did not complete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopError {
    /// The actor has not ended before the deadline: its handler has not returned, or the actor has more
    /// items to drain.
    TimedOut {
        /// The items and bytes that waited for the actor at the deadline, without those of the batch that the
        /// handler has.
        backlog: Load,
    },
    /// The actor ended for another reason than a drain, so it may have left items unhandled.
    Ended(StopReason),
    /// The actor drains or stops as requested, but the calling thread must not wait for the actor's end.
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

/// The error of the start of an actor: the reason why the actor did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// The default controller rejects its objective or its bounds.
    Knee(crate::controller::KneeError),
    /// No batch can satisfy the bounds.
    Bounds(crate::controller::BoundsError),
    /// The capacity of the actor's queue is 0 or too large.
    Queue(crate::queue::QueueError),
    /// The bound on waiting bytes is 0: an actor needs room for at least 1 byte.
    ZeroBytes,
    /// The settings bound the waiting bytes, but items have no weight.
    NoWeights,
    /// The operating system started no thread for the actor.
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
            Self::Thread(error) => write!(
                f,
                "the operating system started no thread for the actor: {error}"
            ),
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

/// The error of an inspection: the reason why the inspection of a handler has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InspectError {
    /// The actor ended before the inspection.
    Ended,
    /// The closure that inspects the handler panicked.
    Panicked,
    /// The handler is of another type than the type that the inspection names, so the inspection cannot read
    /// it.
    OtherType {
        /// The name of the type that the inspection names.
        asked: &'static str,
    },
    /// The inspection must wait until the handler is free, but the calling thread must not wait: it polls a
    /// task or runs the actor's own handler.
    WouldBlock(WouldBlock),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the actor ended before the inspection"),
            Self::Panicked => f.write_str("the closure that inspects the handler panicked"),
            Self::OtherType { asked } => write!(f, "the handler is not a {asked}"),
            Self::WouldBlock(why) => write!(f, "the inspection would wait for the handler: {why}"),
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
