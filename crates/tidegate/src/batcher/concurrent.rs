//! Actors on tokio that run several batches at once: handlers that share their state by `&self` and handle
//! each batch in a task of its own, and dispatchers.
//!
//! The actor is a task that gathers batches. For a shared handler, the actor spawns one task for each
//! batch. A batch returns to the actor when its task finishes, panics, or is dropped with its runtime.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::actor::Actor;
use super::batch::Batch;
use super::builder::{Builder, not_started};
use super::dispatch::{Dispatcher, Dispatching};
use super::driven::Driven;
use super::error::SpawnError;
use super::handle::Handle;
use super::handler::{Handled, Init, StopReason};
use super::mend::Panicked;
use super::mend::catch;
use super::outcome::Outcome;
use super::owned::{End, OwnedBatch};
use super::reply::{Reply, after_panic, pair};
use super::several::{Launch, Several, Turn};
use super::task::catch_async;
use super::waits::Waits;
use crate::blocking::ActorId;

/// A handler that works on several batches at once and shares its state between them.
///
/// The controller decides how many batches run
/// ([`Decision::in_flight`](crate::controller::Decision::in_flight)), at most [`Builder::in_flight_max`].
/// Batches end in any order; [`Builder::key`] keeps the items of each key in order. A panic loses only its
/// own batch; the other batches and the handler go on.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of several batches at once",
    note = "give a closure to `Builder::spawn_shared`: `spawn_shared(async |items: Vec<_>| ..)`"
)]
pub trait SharedHandler: Send + Sync + 'static {
    /// The items that producers send to the actor for this handler.
    type Item: Send + 'static;
    /// The answer that the caller of an item gets; `()` if callers learn only that the actor handled the
    /// batch.
    type Reply: Send + 'static;
    /// The messages, other than items, that producers send to the handler ([`Handle::info`]); [`Infallible`]
    /// if the handler gets none.
    type Info: Send + 'static;

    /// Prepares the handler. The actor calls `init` once, before every other method. [`Init::Continue`]
    /// means [`Init::Ready`] here, because a shared handler has no `handle_continue`.
    fn init(&self) -> impl Future<Output = Init> + Send {
        async { Init::Ready }
    }

    /// Handles one batch, which is never empty. Afterwards the actor drops the operations left in `batch`,
    /// and callers without an answer get [`ReplyError::NoReply`](super::ReplyError::NoReply). If the
    /// handler returns an error, as `?` does, the callers without an answer get that error, and the actor
    /// continues. [`HandleContinue`](super::Flow::HandleContinue) means [`Continue`](super::Flow::Continue)
    /// here; [`Stop`](super::Flow::Stop) ends the actor after the other batches in flight are finished.
    fn handle_batch(
        &self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
    ) -> impl Future<Output = Handled> + Send;

    /// Does the idle work of the handler. The actor calls `idle` once when the backlog is empty and no
    /// batch runs, before it waits for items.
    fn idle(&self) {}

    /// Ends the handler. The actor calls `terminate` last, with the reason of its end, after every batch is
    /// finished. The actor does not call it if a runtime that shuts down drops the actor
    /// ([`StopReason::Abandoned`]).
    fn terminate(&self, reason: &StopReason) -> impl Future<Output = ()> + Send {
        let _ = reason;
        async {}
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Starts an actor as a task of the current tokio runtime, which needs no timer. The actor calls the
    /// closure with the items of each batch and runs the returned futures as tasks, several at once. A
    /// future returns an [`Outcome`]: `()`, one reply an item in a `Vec`, or a `Result` of either.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// use tidegate::batcher::Builder;
    ///
    /// let lens = Builder::new()
    ///     .spawn_shared(async |words: Vec<String>| words.iter().map(String::len).collect::<Vec<_>>())
    ///     .await?;
    /// let request = lens.try_send_request("tide".to_owned())?;
    /// assert_eq!(request.await?, 4);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// If the future uses a value that the closure captured, the closure clones that value first:
    /// `move |items: Vec<T>| { let pool = pool.clone(); async move { .. } }`.
    ///
    /// # Errors
    /// The settings are impossible, or the runtime shuts down ([`SpawnError::Abandoned`]).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn_shared<F, Fut, O>(self, f: F) -> Result<Handle<T, O::Reply>, SpawnError>
    where
        F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = O> + Send + 'static,
        O: Outcome + Send + 'static,
    {
        let closure = SharedClosure {
            f,
            types: PhantomData,
        };
        self.spawn_shared_handler(closure).await
    }

    /// Starts an actor as a task of the current tokio runtime, which needs no timer, and waits for the
    /// handler's `init`. The actor handles each batch in a task of its own, several at once.
    ///
    /// # Errors
    /// The settings are impossible, the handler does not start, or the runtime shuts down
    /// ([`SpawnError::Abandoned`]).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn_shared_handler<H>(
        self,
        handler: H,
    ) -> Result<Handle<T, H::Reply, H::Info>, SpawnError>
    where
        H: SharedHandler<Item = T>,
    {
        let (handle, actor) = self.build_several()?;
        let (started, ready) = pair();
        let id = actor.id();
        tokio::spawn(Driven::new(id, run(actor, Arc::new(handler), started)));
        ready.await.map_err(not_started)?;
        Ok(handle)
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Starts an actor like [`Builder::spawn_dispatcher`], but as a task of the current tokio runtime,
    /// which needs no timer. The dispatcher may spawn tasks that own their batches. The call does not wait
    /// for the start of the actor, so it is no async function.
    ///
    /// # Errors
    /// The settings are impossible.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn_dispatcher_task<R, M, D>(
        self,
        dispatcher: D,
    ) -> Result<Handle<T, R, M>, SpawnError>
    where
        R: Send + 'static,
        M: Send + 'static,
        D: Dispatcher<T, R, M> + Send,
    {
        let (handle, actor) = self.build_several()?;
        let id = actor.id();
        tokio::spawn(Driven::new(id, run_dispatcher(actor, dispatcher)));
        Ok(handle)
    }
}

/// The shared handler that [`Builder::spawn_shared`] makes of a closure.
struct SharedClosure<T, F, O> {
    f: F,
    types: PhantomData<fn(T) -> O>,
}

impl<T, F, Fut, O> SharedHandler for SharedClosure<T, F, O>
where
    T: Send + 'static,
    F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = O> + Send + 'static,
    O: Outcome + Send + 'static,
{
    type Item = T;
    type Reply = O::Reply;
    type Info = Infallible;

    async fn handle_batch(&self, batch: &mut Batch<T, O::Reply>) -> Handled {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        (self.f)(items).await.answer(batch)
    }
}

impl<T, F, O> fmt::Debug for SharedClosure<T, F, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedClosure").finish_non_exhaustive()
    }
}

struct Tasks<H>(Arc<H>, ActorId);

impl<H: SharedHandler> Launch<H::Item, H::Reply, H::Info> for Tasks<H> {
    fn launch(&mut self, batch: OwnedBatch<H::Item, H::Reply, H::Info>) {
        let handler = Arc::clone(&self.0);
        let life = async move {
            let mut batch = batch;
            let handled = catch_async(async { handler.handle_batch(&mut batch).await }).await;
            let flow = handled.map(|handled| batch.conclude(handled));
            // The task of a batch drops its reference to the handler before it finishes the batch. So an
            // actor that ends after its last batch holds the only reference, and drops the handler itself.
            drop(handler);
            batch.finish(flow.map_or(End::Panicked, End::Done));
        };
        tokio::spawn(Driven::new(self.1, life));
    }

    fn idle(&mut self) {
        self.0.idle();
    }

    fn handler(&self) -> &dyn Any {
        &*self.0
    }
}

async fn run<H: SharedHandler>(
    actor: Actor<H::Item, H::Reply, H::Info>,
    handler: Arc<H>,
    started: Reply<()>,
) {
    match catch_async(async { handler.init().await }).await {
        Ok(Init::Stop(cause)) => return started.fail(cause),
        Ok(Init::Ready | Init::Continue) => {}
        Err(Panicked) => return after_panic(|| drop(started)),
    }
    started.send(());
    let id = actor.id();
    let (mut several, mut to) = (Several::new(actor), Tasks(handler, id));
    drive(&mut several, &mut to).await;
    let reason = several.actor.reason();
    let _ = catch_async(async { to.0.terminate(&reason).await }).await;
    let _ = catch(|| drop(to));
    several.actor.end(reason);
}

async fn run_dispatcher<T, R, M, D>(actor: Actor<T, R, M>, dispatcher: D)
where
    T: Send + 'static,
    R: Send + 'static,
    M: Send + 'static,
    D: Dispatcher<T, R, M> + Send,
{
    let (mut several, mut to) = (Several::new(actor), Dispatching(dispatcher));
    drive(&mut several, &mut to).await;
    let reason = several.actor.reason();
    let _ = catch(|| to.0.terminate(&reason));
    let _ = catch(|| drop(to));
    several.actor.end(reason);
}

/// Drives an actor of several batches until the actor ends: ends the batches that returned, performs the next
/// step of the core, and waits when that step is a wait.
async fn drive<T: Send, R: Send, M: Send>(
    several: &mut Several<T, R, M>,
    to: &mut impl Launch<T, R, M>,
) {
    let clock = several.clock();
    let mut waits = Waits::new();
    let mut now = clock.now();
    loop {
        match several.turn(now, to) {
            Turn::Again => {
                waits.started();
                tokio::task::consume_budget().await;
                now = clock.now();
            }
            Turn::Wait(step) => now = waits.pass(several, &step, now).await,
            Turn::End => return,
        }
    }
}
