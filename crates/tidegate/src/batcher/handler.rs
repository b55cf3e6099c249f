//! The user's side of an actor: a [`Handler`] gets one batch at a time and has exclusive use of its own
//! state.
//!
//! Only `handle_batch` is required. The actor makes its calls in a fixed order: `init`; `handle_continue` if
//! the handler asked for it; then for each batch `append` for every item and `handle_batch` once; `idle` when
//! no item waits, at most once between two batches; `recover` after a panic; `terminate` last. This file
//! knows nothing of threads, queues or controllers.
//!
//! # Room for extensions
//!
//! `handle_batch` gets the batch and returns a `Result`. All other information belongs to the batch, so
//! that these features need no change of the trait:
//!
//! - Results of single items: [`Batch::answer_each`], or [`map_results`](super::map_results).
//! - Weights in bytes: [`Builder::weigh`](super::Builder::weigh).
//! - Calls with a deadline ([`Handle::call_timeout`](super::Handle::call_timeout)): after the deadline the
//!   caller drops the call, and the actor skips its item. The actor itself does not look at deadlines yet.
//! - Order per key: the builder sets the function that returns an item's key. A batch of an actor with keys
//!   is a batch like any other.
//! - Items given back for another try: [`Batch::retry`], [`Drain::retry`](super::Drain::retry). The batch
//!   counts the tries of each item ([`Batch::attempt`]).

use super::batch::Batch;
use super::reply::{Cause, Reply, failing};

/// User code that handles batches of items for an actor. A handler keeps its own state between batches.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    note = "wrap a closure: `each_batch(|items: &mut Vec<_>| ..)`, or `map_batch` for one reply an item",
    note = "an async closure: `each_batch_async(async |items: Vec<_>| ..)`, for `spawn_task`"
)]
pub trait Handler: 'static {
    /// The items that producers send to the actor for this handler.
    type Item: Send + 'static;
    /// The reply that the caller of an item gets; `()` if callers learn only that the handler handled the
    /// batch.
    type Reply: Send + 'static;
    /// The messages, other than items, that producers send to the handler. The handler gets them in order
    /// with the items. [`Infallible`](std::convert::Infallible) if the handler gets none.
    type Info: Send + 'static;

    /// Prepares the handler. The actor calls `init` once before every other method, and again on each
    /// handler that replaces a handler that panicked. The call that starts the actor (`Builder::spawn`)
    /// waits until `init` returns.
    fn init(&mut self) -> Init {
        Init::Ready
    }

    /// Does further work of the handler between two batches. The actor calls this method after
    /// [`Init::Continue`] or [`Flow::HandleContinue`], before any further batch. It suits long work for
    /// which the start of the actor should not wait.
    fn handle_continue(&mut self) -> Flow {
        Flow::Continue
    }

    /// Takes one operation into the batch that the actor is gathering. May finish that batch early: by its
    /// bytes in the user's own encoding, by memory, by a key. The operation is always part of the batch,
    /// even if it finishes the batch. The default puts the operation into `batch`.
    ///
    /// A batch that the handler finishes early does not count as full. [`Knee`](crate::controller::Knee)
    /// learns the cost of such a batch as of any other. The rules
    /// [`Exponential`](crate::controller::Exponential), [`Aimd`](crate::controller::Aimd) and
    /// [`StormAimd`](crate::controller::StormAimd) **halve** their limit after each batch that the handler
    /// finishes below the limit.
    #[inline]
    fn append(
        &mut self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append {
        batch.push(op);
        Append::Continue
    }

    /// Handles one batch, which is never empty. The items have the order in which each producer sent them.
    /// Afterwards the actor drops the operations left in `batch`; callers without an answer get
    /// [`ReplyError::NoReply`](super::ReplyError::NoReply).
    ///
    /// # Errors
    /// The batch failed: each caller without an answer gets
    /// [`ReplyError::Failed`](super::ReplyError::Failed) with the cause. A caller also gets the cause if
    /// the handler drops the [`Reply`] while it returns by `?`. A reply that the handler keeps stays
    /// unanswered. The batch counts as failed, the controller ignores its cost, and **the actor continues**
    /// with the next batch; `Ok(Flow::stop(cause))` ends the actor.
    fn handle_batch(&mut self, batch: &mut Batch<Self::Item, Self::Reply, Self::Info>) -> Handled;

    /// Does the idle work of the handler, such as freeing memory or publishing results. The actor calls
    /// `idle` once each time the backlog becomes empty, before it waits for items. It also calls `idle`
    /// before the first item, if no item waits at the start of the actor.
    fn idle(&mut self) {}

    /// Decides how the actor continues after a call of this handler panicked. The batch of that call is
    /// lost, and its callers get an error. By default the actor continues with a new handler:
    /// [`Builder::spawn_with`](super::Builder::spawn_with) and `Builder::spawn_task_with` make one with
    /// their factory, and a panic in the `init` of the new handler ends the actor. An actor started without
    /// a factory continues with this handler, as the panic left it. A closure has no `recover`, so its
    /// actor continues with the same closure.
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// Ends the handler. The actor calls `terminate` last, with the reason of its end. The actor does not
    /// call it if the handler could not recover from a panic, nor if a runtime that shuts down drops the
    /// task of the actor ([`StopReason::Abandoned`]).
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

/// One operation of a batch: an item or a message that a producer sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum Op<T, R, M> {
    /// An item that a producer cast: no caller waits for its answer.
    Cast(T),
    /// An item of a call, and the reply for the caller that waits.
    Call(T, Reply<R>),
    /// A message, other than an item, that a producer sent.
    Info(M),
}

/// The result of a handler's `init`, by which the handler tells the actor whether to start.
#[derive(Debug)]
#[non_exhaustive]
pub enum Init {
    /// The handler is ready for batches, so the actor starts.
    Ready,
    /// The handler is ready, but the actor must call [`Handler::handle_continue`] before the first batch.
    Continue,
    /// The handler cannot start. The call that starts the actor fails with this cause.
    Stop(Cause),
}

impl Init {
    /// Returns [`Init::Stop`] with `cause`, which may be an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// The next action of the actor, as the handler asks for it after a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Flow {
    /// The actor continues with the next batch, as after most batches.
    Continue,
    /// The actor calls [`Handler::handle_continue`], then continues with the next batch.
    HandleContinue,
    /// The actor stops: it handles no further batch, and gives the waiting items back (see
    /// [`Handle::blocking_stop`](super::Handle::blocking_stop)).
    Stop(Cause),
}

impl Flow {
    /// Returns [`Flow::Stop`] with `cause`, which may be an error or a text.
    pub fn stop(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stop(Cause::from(cause.into()))
    }
}

/// The result of a handler for one batch: the actor's next action, or the cause of a failed batch.
pub type Handled = Result<Flow, Failure>;

/// The cause of a failed batch. The operator `?` converts any error, and any text, into a `Failure`.
///
/// `Failure` does not implement `Error`, so that a conversion from every error type is possible.
pub struct Failure(Cause);

impl Failure {
    /// Returns the cause of the failed batch, which all callers of the batch share.
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

/// The decision of a handler, after each operation, whether the batch may take more operations or is
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Append {
    /// The batch may take more operations, so the actor goes on gathering.
    Continue,
    /// The batch is complete with this operation, so the actor ends the batch here.
    Finish,
}

/// The decision of a handler that panicked: whether and how the actor continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recover {
    /// The actor continues with this handler, because the handler repaired its state, or because a panic
    /// cannot harm the state.
    Continue,
    /// The actor continues with a new handler from its factory. An actor without a factory continues with
    /// this handler.
    Rebuild,
    /// The actor stops with [`StopReason::Panicked`], because the handler decides not to continue after its
    /// panic.
    Stop,
}

/// The reason why an actor stopped. Two reasons with a cause are equal if their causes print the same text.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// The actor was drained: a caller asked for it, and the actor handled everything it accepted.
    Drained,
    /// The actor drained because its last handle was dropped: it handled everything it accepted.
    Released,
    /// A caller stopped the actor, for this cause.
    Asked(Cause),
    /// The handler stopped the actor, for this cause.
    Handler(Cause),
    /// The handler panicked, and then either its `recover` stopped the actor, or no handler was left that
    /// could continue.
    Panicked,
    /// The runtime that ran the actor shut down. The actor did not call the handler's `terminate`, and the
    /// batches in progress are lost.
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
            Self::Abandoned => f.write_str("the runtime that ran the actor shut down"),
        }
    }
}
