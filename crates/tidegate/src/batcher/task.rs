//! The driver of an actor on tokio: a task that performs the steps of the [`Core`](super::core::Core), and
//! handlers that may await.
//!
//! The loop is that of the driver on a thread, with three differences: it awaits, it lets other tasks run
//! between two batches, and it waits as a task does (`waits`).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::actor::Actor;
use super::batch::Batch;
use super::builder::{Builder, not_started, once};
use super::core::DriverStep;
use super::driven::Driven;
use super::error::SpawnError;
use super::handle::Handle;
use super::handler::{Append, Flow, Handled, Handler, Init, Op, Recover, StopReason};
use super::mend::Panicked;
use super::mend::{Factory, Mended, catch, mend};
use super::reply::{Reply, after_panic, may_fail, pair};
use super::waits::Waits;

/// User code like a [`Handler`] that may await. Every `Handler` that is `Send` is also an async handler.
///
/// The actor makes the same calls, in the same order, as for a [`Handler`]. Between two awaits a handler
/// should not block its thread for long.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an async handler",
    note = "wrap a closure: `each_batch_async(async |items: Vec<_>| ..)`, or `map_batch_async` for one reply an item"
)]
pub trait AsyncHandler: Send + 'static {
    /// The items that producers send to the actor: see [`Handler::Item`].
    type Item: Send + 'static;
    /// The reply that the caller of an item gets: see [`Handler::Reply`].
    type Reply: Send + 'static;
    /// The messages, other than items, that producers send to the handler: see [`Handler::Info`].
    type Info: Send + 'static;

    /// Prepares the handler. The actor calls `init` before every other method: see [`Handler::init`].
    fn init(&mut self) -> impl Future<Output = Init> + Send {
        async { Init::Ready }
    }

    /// Does further work of the handler between two batches. The actor calls this only if the handler asked
    /// for the call: see [`Handler::handle_continue`].
    fn handle_continue(&mut self) -> impl Future<Output = Flow> + Send {
        async { Flow::Continue }
    }

    /// Takes one operation into the batch that the actor is gathering: see [`Handler::append`].
    fn append(
        &mut self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append {
        batch.push(op);
        Append::Continue
    }

    /// Handles one batch of operations: see [`Handler::handle_batch`].
    fn handle_batch(
        &mut self,
        batch: &mut Batch<Self::Item, Self::Reply, Self::Info>,
    ) -> impl Future<Output = Handled> + Send;

    /// Does the idle work of the handler. The actor calls `idle` when no item waits: see [`Handler::idle`].
    fn idle(&mut self) {}

    /// Decides how the actor continues after the handler panicked: see [`Handler::recover`].
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// Ends the handler. The actor calls `terminate` last: see [`Handler::terminate`].
    fn terminate(&mut self, reason: &StopReason) -> impl Future<Output = ()> + Send {
        let _ = reason;
        async {}
    }
}

impl<H: Handler + Send> AsyncHandler for H {
    type Item = H::Item;
    type Reply = H::Reply;
    type Info = H::Info;

    async fn init(&mut self) -> Init {
        Handler::init(self)
    }

    async fn handle_continue(&mut self) -> Flow {
        Handler::handle_continue(self)
    }

    fn append(
        &mut self,
        batch: &mut Batch<H::Item, H::Reply, H::Info>,
        op: Op<H::Item, H::Reply, H::Info>,
    ) -> Append {
        Handler::append(self, batch, op)
    }

    async fn handle_batch(&mut self, batch: &mut Batch<H::Item, H::Reply, H::Info>) -> Handled {
        Handler::handle_batch(self, batch)
    }

    fn idle(&mut self) {
        Handler::idle(self);
    }

    fn recover(&mut self) -> Recover {
        Handler::recover(self)
    }

    async fn terminate(&mut self, reason: &StopReason) {
        Handler::terminate(self, reason);
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Starts the actor as a task of the current tokio runtime, which needs no timer, and waits for the
    /// handler's `init`.
    ///
    /// # Errors
    /// The settings are impossible, the handler does not start, or the runtime shuts down
    /// ([`SpawnError::Abandoned`]).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn_task<H>(self, handler: H) -> Result<Handle<T, H::Reply, H::Info>, SpawnError>
    where
        H: AsyncHandler<Item = T>,
    {
        self.spawn_any(once(handler)).await
    }

    /// Starts the actor like [`Builder::spawn_task`], with a factory that makes the handler. After a panic
    /// of the handler, the factory makes a new one.
    ///
    /// # Errors
    /// The settings are impossible, the handler does not start, or the runtime shuts down
    /// ([`SpawnError::Abandoned`]).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn_task_with<H, F>(
        self,
        mut factory: F,
    ) -> Result<Handle<T, H::Reply, H::Info>, SpawnError>
    where
        H: AsyncHandler<Item = T>,
        F: FnMut() -> H + Send + 'static,
    {
        self.spawn_any(Box::new(move || Some(factory()))).await
    }

    async fn spawn_any<H: AsyncHandler<Item = T>>(
        self,
        factory: Factory<H>,
    ) -> Result<Handle<T, H::Reply, H::Info>, SpawnError> {
        let (handle, actor) = self.build()?;
        let (started, ready) = pair();
        let id = handle.shared.queue.id();
        tokio::spawn(Driven::new(id, run(actor, factory, started)));
        ready.await.map_err(not_started)?;
        Ok(handle)
    }
}

async fn run<H: AsyncHandler>(
    mut actor: Actor<H::Item, H::Reply, H::Info>,
    mut factory: Factory<H>,
    started: Reply<()>,
) {
    let Ok(Some(mut handler)) = catch(&mut factory) else {
        return after_panic(|| drop(started));
    };
    match catch_async(async { handler.init().await }).await {
        Ok(Init::Stop(cause)) => return started.fail(cause),
        Ok(init) => actor.initialized(init),
        Err(Panicked) => return after_panic(|| drop(started)),
    }
    started.send(());
    let clock = actor.clock();
    let mut waits = Waits::new();
    let mut now = clock.now();
    let lost = loop {
        actor.receive_visits(&handler);
        let step = actor.poll(now);
        let returned = match step {
            DriverStep::Take(limit) => {
                let any = catch(|| actor.gather(now, limit, |batch, op| handler.append(batch, op)));
                match any {
                    Ok(true) => {
                        let handle = async { handler.handle_batch(&mut actor.batch).await };
                        let handled = catch_async(handle).await;
                        handled.map(|handled| actor.batch.conclude(handled))
                    }
                    Ok(false) => Ok(Flow::Continue),
                    Err(Panicked) => Err(Panicked),
                }
            }
            DriverStep::Continue => catch_async(async { handler.handle_continue().await }).await,
            DriverStep::Idle => match catch(|| handler.idle()) {
                // No item arrived while the handler's `idle` ran. Another poll of the core would only
                // return the rest step, so the driver rests at once.
                Ok(()) if actor.is_empty() => {
                    now = waits.pass(&mut actor, &DriverStep::Rest, now).await;
                    continue;
                }
                idle => idle.map(|()| Flow::Continue),
            },
            DriverStep::Hold { .. } | DriverStep::Rest | DriverStep::Busy { .. } => {
                now = waits.pass(&mut actor, &step, now).await;
                continue;
            }
            DriverStep::End => break false,
        };
        now = clock.now();
        if actor.finish(now, returned).is_ok() {
            now = waits.finished(&mut actor, now).await;
            continue;
        }
        let init = match mend(&mut handler, &mut factory, H::recover) {
            Mended::Same => Ok(Init::Ready),
            Mended::Fresh => catch_async(async { handler.init().await }).await,
            Mended::Lost => Err(Panicked),
        };
        match init {
            Ok(init) if actor.may_restart(step) => actor.initialized(init),
            _ => break true,
        }
    };
    if lost {
        actor.stop(StopReason::Panicked);
    }
    let reason = actor.reason();
    if !lost {
        let _ = catch_async(async { handler.terminate(&reason).await }).await;
    }
    // The driver drops a handler that could not recover from its panic, without a call of `terminate`.
    let _ = catch(|| drop(handler));
    actor.end(reason);
}

/// Runs user code that awaits, and catches its panic. Callers pass an `async` block that calls the handler,
/// so that the handler's code before its first await also runs inside.
pub(super) async fn catch_async<V>(call: impl Future<Output = V>) -> Result<V, Panicked> {
    let mut call = pin!(call);
    poll_fn(|cx| match catch(|| may_fail(|| call.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Err(Panicked) => Poll::Ready(Err(Panicked)),
    })
    .await
}
