//! Several batches at once on tokio: handlers of `&self`, each batch a task of its own, and dispatchers.
//!
//! The actor is a task that gathers batches and spawns one task for each of them. A batch returns when its
//! task finishes, panics or is dropped with its runtime.

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
    /// The item that producers send.
    type Item: Send + 'static;
    /// The answer to a call; `()` if callers learn only that the batch was handled.
    type Reply: Send + 'static;
    /// Messages of another kind; [`Infallible`] if there are none.
    type Info: Send + 'static;

    /// The actor calls this once before anything else. [`Init::Continue`] means [`Init::Ready`] here.
    fn init(&self) -> impl Future<Output = Init> + Send {
        async { Init::Ready }
    }

    /// Handles one batch, never empty. The actor drops the operations left in `batch` afterwards, and
    /// callers without an answer get [`ReplyError::NoReply`](super::ReplyError::NoReply). An error, as `?`
    /// returns it, fails the callers without an answer, and the actor goes on.
    /// [`HandleContinue`](super::Flow::HandleContinue) means [`Continue`](super::Flow::Continue) here;
    /// [`Stop`](super::Flow::Stop) ends the actor when the other batches are finished.
    fn handle_batch(
        &self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
    ) -> impl Future<Output = Handled> + Send;

    /// The actor calls this once when the backlog is empty and no batch runs, before it waits.
    fn idle(&self) {}

    /// The actor calls this last when it ends by itself, with the reason. Every batch is finished by then.
    /// The actor does not call it if a runtime that shuts down drops the actor ([`StopReason::Abandoned`]).
    fn terminate(&self, reason: &StopReason) -> impl Future<Output = ()> + Send {
        let _ = reason;
        async {}
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Starts an actor as a task of the current tokio runtime, which needs no timer. The actor calls the
    /// closure with the items of each batch and runs its futures as tasks, several at once. A future returns
    /// an [`Outcome`]: `()`, one reply an item in a `Vec`, or a `Result` of either.
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
    /// A closure that uses a value of its own in the future clones it first:
    /// `move |items: Vec<T>| { let pool = pool.clone(); async move { .. } }`.
    ///
    /// # Errors
    /// Impossible settings; [`SpawnError::Abandoned`] if the runtime shuts down.
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

    /// Starts an actor as a task of the current tokio runtime and waits for the handler's `init`. Each batch
    /// is handled in a task of its own, several at once. The runtime needs no timer.
    ///
    /// # Errors
    /// Impossible settings, or a handler that does not start;
    /// [`SpawnError::Abandoned`] if the runtime shuts down.
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
    /// Starts an actor like [`Builder::spawn_dispatcher`], as a task of the current tokio runtime, which
    /// needs no timer: the dispatcher may spawn tasks that own their batches. The call waits for nothing, so
    /// it is no async function.
    ///
    /// # Errors
    /// Impossible settings.
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

/// The handler that [`Builder::spawn_shared`] makes of a closure.
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
            // The task drops its reference to the handler before it finishes the batch. So once the actor
            // ends, the actor holds the only reference.
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

/// Takes turns until the actor ends.
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
