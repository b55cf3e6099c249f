//! The user's side of an actor: a [`Handler`] gets one batch at a time and
//! has exclusive use of its own state.
//!
//! Only `handle_batch` is required. The actor makes its calls in a fixed order: `init`; `handle_continue` if
//! it was requested; then for each batch `append` for every item and `handle_batch` once; `idle` when
//! nothing is left, once until the next batch; `recover` after a panic; `terminate` last. This file knows
//! nothing of threads, queues or controllers.
//!
//! # Room for extensions
//!
//! `handle_batch` gets the batch and returns a `Result`. The batch carries all else, so that these
//! features need no change of the trait:
//!
//! - Results of single items: [`Batch::answer_each`], or [`map_results`](super::map_results).
//! - Weights in bytes: [`Builder::weigh`](super::Builder::weigh).
//! - Calls with a deadline ([`Handle::call_timeout`](super::Handle::call_timeout)): after the deadline the
//!   caller drops the call, and the actor skips its item. The actor itself does not look at deadlines yet.
//! - Keys: the builder sets them, and a batch of a keyed actor is a batch like any other.
//! - Items given back for another try: [`Batch::retry`], [`Drain::retry`](super::Drain::retry). The batch
//!   counts the tries of each item ([`Batch::attempt`]).

use super::batch::Batch;
use super::reply::{Cause, Reply, failing};

/// User code that handles batches, with the state that it keeps between them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    note = "wrap a closure: `each_batch(|items: &mut Vec<_>| ..)`, or `map_batch` for one reply an item",
    note = "an async closure: `each_batch_async(async |items: Vec<_>| ..)`, for `spawn_task`"
)]
pub trait Handler: 'static {
    /// The item that producers send.
    type Item: Send + 'static;
    /// The reply that callers get; `()` if callers learn only that the batch was handled.
    type Reply: Send + 'static;
    /// Messages of another kind, in order with the items; [`Infallible`](std::convert::Infallible) if there
    /// are none.
    type Info: Send + 'static;

    /// The actor calls this once before every other method, and again after the handler was rebuilt. The call
    /// that starts the actor waits for it.
    fn init(&mut self) -> Init {
        Init::Ready
    }

    /// The actor calls this after [`Init::Continue`] or [`Flow::HandleContinue`], before any further batch.
    /// The method suits long work for which the start of the actor should not wait.
    fn handle_continue(&mut self) -> Flow {
        Flow::Continue
    }

    /// Takes one operation into the batch that is being gathered, and may finish that batch early: by its
    /// bytes in the user's own encoding, by memory, by a key. The last operation is always part of the
    /// batch. The default puts the operation into `batch`.
    ///
    /// An early finish does not count as a full batch. [`Knee`](crate::controller::Knee) learns the cost of
    /// such a batch as of any other. The rules [`Exponential`](crate::controller::Exponential),
    /// [`Aimd`](crate::controller::Aimd) and [`StormAimd`](crate::controller::StormAimd) **halve** their
    /// limit after each early finish below the limit.
    #[inline]
    fn append(
        &mut self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append {
        batch.push(op);
        Append::Continue
    }

    /// Handles one batch, never empty, with its items in the order in which each producer sent them. The
    /// actor drops the operations left in `batch` afterwards; callers without an answer get
    /// [`ReplyError::NoReply`](super::ReplyError::NoReply).
    ///
    /// # Errors
    /// The batch failed: each caller without an answer gets
    /// [`ReplyError::Failed`](super::ReplyError::Failed) with the cause, also where the handler drops the
    /// [`Reply`] on its way out with `?`. A reply that the handler keeps stays unanswered. The batch counts
    /// as failed, the controller ignores its cost, and **the actor goes on** with the next batch;
    /// `Ok(Flow::stop(cause))` ends the actor.
    fn handle_batch(&mut self, batch: &mut Batch<Self::Item, Self::Reply, Self::Info>) -> Handled;

    /// The actor calls this once when the backlog is empty, before it waits: after batches, and also before
    /// the first item if none waits at the start. The method suits shrinking, collecting or publishing.
    fn idle(&mut self) {}

    /// The actor calls this after a call of this handler panicked. The batch is lost, and its callers got an
    /// error. Returns how the actor continues. The default asks for a fresh handler:
    /// [`Builder::spawn_with`](super::Builder::spawn_with) and `Builder::spawn_task_with` make one, and a
    /// panic in the `init` of the new handler ends the actor. The other forms have no factory: there the
    /// actor continues with this handler, as the panic left it. A closure has no `recover` and continues,
    /// too.
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// The actor calls this last when it ends by itself, with the reason. The actor does not call it if it
    /// gave the handler up after a panic, nor if a runtime that shuts down drops the task of the actor
    /// ([`StopReason::Abandoned`]).
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

/// One operation of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Op<T, R, M> {
    /// An item without a waiting caller.
    Cast(T),
    /// An item with a waiting caller.
    Call(T, Reply<R>),
    /// A message that is no item.
    Info(M),
}

/// How a handler starts.
#[derive(Debug)]
#[non_exhaustive]
pub enum Init {
    /// The handler is ready for batches.
    Ready,
    /// The handler is ready, but the actor must call [`Handler::handle_continue`] before the first batch.
    Continue,
    /// The handler cannot start: the start of the actor fails with this cause.
    Stop(Cause),
}

impl Init {
    /// Returns [`Init::Stop`] with `cause`: an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// The handler's wish for the next action of the actor.
#[derive(Debug)]
#[non_exhaustive]
pub enum Flow {
    /// The actor handles the next batch.
    Continue,
    /// The actor calls [`Handler::handle_continue`], then handles the next batch.
    HandleContinue,
    /// The actor stops: it handles nothing further and gives the waiting items back: see
    /// [`Handle::blocking_stop`](super::Handle::blocking_stop).
    Stop(Cause),
}

impl Flow {
    /// Returns [`Flow::Stop`] with `cause`: an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// The result of a handler for a batch.
pub type Handled = Result<Flow, Failure>;

/// The cause of a failed batch. The operator `?` makes a `Failure` of any error, and of a text.
///
/// `Failure` does not implement `Error`, so that every error can become one.
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

/// The decision whether a batch may take more operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// The batch may take more operations.
    Continue,
    /// The batch is complete with this operation.
    Finish,
}

/// The decision how an actor continues after its handler panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recover {
    /// The actor continues with this handler: its state was repaired, or a panic cannot harm it.
    Continue,
    /// The actor continues with a fresh handler if it was started with a factory; otherwise with this one.
    Rebuild,
    /// The actor does not continue: it stops with [`StopReason::Panicked`].
    Stop,
}

/// The reason why an actor stopped. Two causes are equal if they print the same text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// A caller drained the actor, which handled everything it accepted.
    Drained,
    /// The last handle was dropped, and the actor handled everything it accepted.
    Released,
    /// A caller stopped the actor, for this cause.
    Asked(Cause),
    /// The handler stopped the actor, for this cause.
    Handler(Cause),
    /// The handler panicked and the actor could not or would not continue.
    Panicked,
    /// The runtime that the actor ran on shut down. The handler's
    /// `terminate` was not called, and the batches in progress are lost.
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
