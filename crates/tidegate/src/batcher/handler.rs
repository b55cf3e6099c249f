//! What a user writes: a [`Handler`], given one batch at a time and exclusive use of its own state.
//!
//! Only `handle_batch` must be written. The order of the calls an actor makes is fixed: `init`,
//! `handle_continue` if that was asked for, then for each batch `append` for every item and `handle_batch`
//! once; `idle` when nothing is left, once until the next batch; `recover` after a panic; `terminate` last.
//! Nothing here knows about threads, queues or controllers.
//!
//! # What the trait leaves room for
//!
//! `handle_batch` gets the batch and returns a `Result`. The batch carries all else, so that these need no
//! change of the trait:
//!
//! - Results of single items are here: [`Batch::answer_each`], or [`map_results`](super::map_results).
//! - Weights in bytes are here: [`Builder::weigh`](super::Builder::weigh).
//! - A call with a deadline ([`Handle::call_timeout`](super::Handle::call_timeout)) whose time is over is
//!   dropped by its caller, and the actor skips its item. A deadline that the actor itself looks at is not
//!   here yet.
//! - Keys belong to the builder: a batch of a keyed actor is a batch like any other.
//! - Items given back for another try are here: [`Batch::retry`], [`Drain::retry`](super::Drain::retry). The
//!   batch knows how often it had each of them ([`Batch::attempt`]).

use super::batch::Batch;
use super::reply::{Cause, Reply, failing};

/// User code given batches, with the state it keeps between them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    note = "wrap a closure: `each_batch(|items: &mut Vec<_>| ..)`, or `map_batch` for one reply an item",
    note = "an async closure: `each_batch_async(async |items: Vec<_>| ..)`, for `spawn_task`"
)]
pub trait Handler: 'static {
    /// What producers hand in.
    type Item: Send + 'static;
    /// What callers get back; `()` if nothing but the fact that the batch was handled.
    type Reply: Send + 'static;
    /// Messages of another kind, in order with the items; [`Infallible`](std::convert::Infallible) if there
    /// are none.
    type Info: Send + 'static;

    /// Called once before anything else, and again after the handler was rebuilt. Whoever starts the actor
    /// waits for it.
    fn init(&mut self) -> Init {
        Init::Ready
    }

    /// Called when [`Init::Continue`] or [`Flow::HandleContinue`] asked for it, before any further batch: the
    /// place for long work nobody should wait for at the start.
    fn handle_continue(&mut self) -> Flow {
        Flow::Continue
    }

    /// Takes one operation into the batch that is being gathered, and may finish that batch early: by its
    /// bytes in the user's own encoding, by memory, by a key. The operation given last is always in. The
    /// default puts it into `batch`.
    ///
    /// An early finish does not count as a full batch, so it never moves a controller's limit.
    #[inline]
    fn append(
        &mut self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append {
        batch.push(op);
        Append::Continue
    }

    /// Handles one batch, never empty, its items in the order in which each producer sent them. The actor
    /// drops what is left in `batch` afterwards; callers without an answer get
    /// [`ReplyError::NoReply`](super::ReplyError::NoReply).
    ///
    /// # Errors
    /// The batch failed: each caller without an answer gets
    /// [`ReplyError::Failed`](super::ReplyError::Failed) with the cause, those included whose [`Reply`] the
    /// handler drops on its way out with `?`. A reply that the handler keeps stays unanswered. The batch
    /// counts as failed, its cost teaches the controller nothing, and **the actor goes on** with the next
    /// batch; `Ok(Flow::stop(cause))` ends it.
    fn handle_batch(&mut self, batch: &mut Batch<Self::Item, Self::Reply, Self::Info>) -> Handled;

    /// The backlog became empty: called once, before the actor waits. The place to shrink, collect or
    /// publish.
    fn idle(&mut self) {}

    /// A call of this handler panicked, its batch is lost and its callers were told. Says how to go on. The
    /// default asks for a fresh handler, and where there is no factory carries on with this one, as the panic
    /// left it.
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// Called last, whatever the reason, unless the handler was given up after a panic.
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

/// One operation of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Op<T, R, M> {
    /// An item nobody waits for.
    Cast(T),
    /// An item whose caller waits.
    Call(T, Reply<R>),
    /// A message of another kind.
    Info(M),
}

/// How a handler starts.
#[derive(Debug)]
#[non_exhaustive]
pub enum Init {
    /// Ready for batches.
    Ready,
    /// Ready, but call [`Handler::handle_continue`] before the first batch.
    Continue,
    /// It cannot start: spawning the actor fails with this cause.
    Stop(Cause),
}

impl Init {
    /// It cannot start, because of `cause`: an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// What happens next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Flow {
    /// The next batch.
    Continue,
    /// [`Handler::handle_continue`], then the next batch.
    HandleContinue,
    /// Stop. Nothing further is handled; what waited is given back, see
    /// [`Handle::blocking_stop`](super::Handle::blocking_stop).
    Stop(Cause),
}

impl Flow {
    /// Stop, because of `cause`: an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// What a handler returns for a batch.
pub type Handled = Result<Flow, Failure>;

/// Why a batch failed. `?` makes it of any error, and of a text.
///
/// It is no error itself, so that every error can become one.
pub struct Failure(Cause);

impl Failure {
    /// Returns the cause, which all callers of the batch share.
    #[must_use]
    pub const fn cause(&self) -> &Cause {
        &self.0
    }

    pub(super) fn into_cause(self) -> Cause {
        self.0
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let cause = Cause::from(error.into());
        failing(&cause);
        Self(cause)
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Failure").field(&self.0).finish()
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a batch may take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// More may come.
    Continue,
    /// The batch is complete with this operation.
    Finish,
}

/// How an actor goes on after its handler panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recover {
    /// With this handler: its state was repaired, or cannot be harmed.
    Continue,
    /// With a fresh one, if the actor was started with a factory; otherwise with this one.
    Rebuild,
    /// Not at all: stop with [`StopReason::Panicked`].
    Stop,
}

/// Why an actor stopped. Two causes are equal if they print the same text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// It was asked to drain: everything accepted was handled.
    Drained,
    /// The last handle was dropped: everything accepted was handled.
    Released,
    /// It was asked to stop, for this cause.
    Asked(Cause),
    /// Its handler said so, for this cause.
    Handler(Cause),
    /// Its handler panicked and could not or would not go on.
    Panicked,
    /// The runtime it ran on shut down.
    Abandoned,
}

impl PartialEq for StopReason {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Asked(one), Self::Asked(other)) | (Self::Handler(one), Self::Handler(other)) => {
                one.to_string() == other.to_string()
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Eq for StopReason {}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drained => f.write_str("drained"),
            Self::Released => f.write_str("drained after its last handle was dropped"),
            Self::Asked(cause) => write!(f, "asked to stop: {cause}"),
            Self::Handler(cause) => write!(f, "stopped by its handler: {cause}"),
            Self::Panicked => f.write_str("the handler panicked"),
            Self::Abandoned => f.write_str("the runtime it ran on shut down"),
        }
    }
}
