//! Dispatchers: handlers that own each batch and finish it later. The actor of a dispatcher runs on a
//! thread of its own and needs no runtime.

use std::any::Any;
use std::future::poll_fn;
use std::thread;

use super::actor::Actor;
use super::block::block_until;
use super::builder::{Builder, not_started};
use super::error::SpawnError;
use super::handle::Handle;
use super::handler::StopReason;
use super::mend::catch;
use super::owned::OwnedBatch;
use super::reply::{Reply, pair};
use super::several::{Launch, Several, Turn};
use crate::blocking::Enter;

/// A handler that owns its batches and passes each of them on, to be finished later by a thread pool,
/// another runtime or a device.
///
/// The actor calls [`dispatch`](Dispatcher::dispatch) with each batch and goes on at once. A batch runs
/// until it is [finished](OwnedBatch::done) or dropped. The controller decides how many batches run at once
/// ([`Decision::in_flight`](crate::controller::Decision::in_flight)), at most [`Builder::in_flight_max`].
/// Every closure that takes an [`OwnedBatch`] is a dispatcher. A closure that calls a method of its batch
/// names the type: `|batch: OwnedBatch<u64>| batch.done()`.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// use tidegate::batcher::{Builder, OwnedBatch};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (to_pool, from_actor) = mpsc::sync_channel::<OwnedBatch<u64, u64>>(64);
/// let pool = std::thread::spawn(move || {
///     for mut batch in from_actor {
///         let mut items = Vec::new();
///         batch.take_items(&mut items);
///         batch.answer(items.into_iter().map(|n| n * 2));
///         batch.done();
///     }
/// });
/// let doubled = Builder::new().spawn_dispatcher(move |batch| {
///     // Without a pool the batch is dropped, and its callers learn of it.
///     let _ = to_pool.send(batch);
/// })?;
/// let request = doubled.try_send_request(21)?;
/// drop(doubled);
/// pool.join().map_err(|_| "the pool panicked")?;
/// # let mut request = request;
/// assert_eq!(request.try_take().ok_or("answered")??, 42);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dispatcher of batches of `{T}`",
    note = "a closure names the type of its argument: `|batch: OwnedBatch<Item, Reply>| ..`"
)]
pub trait Dispatcher<T, R = (), M = std::convert::Infallible>: 'static {
    /// Takes a batch, which is never empty. Its items have the order in which each producer sent them, or
    /// the order of each key ([`Builder::key`]). A panic in `dispatch` loses this batch and no other.
    fn dispatch(&mut self, batch: OwnedBatch<T, R, M>);

    /// Does the idle work of the dispatcher. The actor calls `idle` once when the backlog is empty and no
    /// batch runs, before it waits for items.
    fn idle(&mut self) {}

    /// Ends the dispatcher. The actor calls `terminate` last, with the reason of its end, after every batch
    /// is finished. The actor does not call it if a runtime that shuts down drops the actor
    /// ([`StopReason::Abandoned`]).
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

impl<T, R, M, F> Dispatcher<T, R, M> for F
where
    F: FnMut(OwnedBatch<T, R, M>) + 'static,
{
    fn dispatch(&mut self, batch: OwnedBatch<T, R, M>) {
        self(batch);
    }
}

impl<T: Send + 'static> Builder<T> {
    /// Starts an actor on a thread of its own that hands each batch to `dispatcher`, several at once.
    /// Blocks the calling thread until the actor's thread runs, even if that thread polls a task. A closure
    /// that calls a method of its batch names the type: `|batch: OwnedBatch<u64>| batch.done()`.
    ///
    /// # Errors
    /// The settings are impossible, or the operating system starts no thread.
    pub fn spawn_dispatcher<R, M, D>(self, dispatcher: D) -> Result<Handle<T, R, M>, SpawnError>
    where
        R: Send + 'static,
        M: Send + 'static,
        D: Dispatcher<T, R, M> + Send,
    {
        let name = self.thread_name()?;
        let (handle, actor) = self.build_several()?;
        let (started, ready) = pair();
        thread::Builder::new()
            .name(name)
            .spawn(move || run(actor, dispatcher, started))
            .map_err(SpawnError::Thread)?;
        ready.wait().map_err(not_started)?;
        Ok(handle)
    }
}

pub(super) struct Dispatching<D>(pub(super) D);

impl<T, R, M, D: Dispatcher<T, R, M>> Launch<T, R, M> for Dispatching<D> {
    fn launch(&mut self, batch: OwnedBatch<T, R, M>) {
        self.0.dispatch(batch);
    }

    fn idle(&mut self) {
        self.0.idle();
    }

    fn handler(&self) -> &dyn Any {
        &self.0
    }
}

fn run<T, R, M, D>(actor: Actor<T, R, M>, dispatcher: D, started: Reply<()>)
where
    T: Send + 'static,
    R: Send + 'static,
    M: Send + 'static,
    D: Dispatcher<T, R, M>,
{
    let _inside = Enter::new(actor.id());
    let (mut several, mut to) = (Several::new(actor), Dispatching(dispatcher));
    started.send(());
    let clock = several.clock();
    let mut now = clock.now();
    loop {
        match several.turn(now, &mut to) {
            Turn::Again => now = clock.now(),
            Turn::Wait(step) => {
                let until = several.actor.prepare_wait(step, now);
                let wait = poll_fn(|cx| several.poll_wait(step, cx));
                block_until(wait, clock.instant(until));
                now = clock.now();
                several.actor.waited(step, now, until);
            }
            Turn::End => break,
        }
    }
    let reason = several.actor.reason();
    let _ = catch(|| to.0.terminate(&reason));
    let _ = catch(|| drop(to));
    several.actor.end(reason);
}
