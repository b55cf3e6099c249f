//! A batch owned by the code that finishes it later, and its return to the actor.
//!
//! The actor hands out an [`OwnedBatch`] and goes on. The batch returns through the [`Landing`], finished or
//! dropped, on any thread and in any order. The landing wakes the actor, which reports the end to its core.
//! Each batch returns exactly once, so that the landing never holds more than the batches in flight.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::batch::Batch;
use super::handler::Flow;
use super::mend::catch;
use super::reply::{abandoned, after_panic, lock};
use crate::controller::BatchId;
use crate::{Clock, Time};

/// A batch that a [`Dispatcher`](super::Dispatcher) owns. It may go to another thread or task, and ends with
/// [`OwnedBatch::done`], in any order with the other batches in flight. It dereferences to a [`Batch`].
///
/// A batch that is dropped without `done` counts as failed: callers without an answer get
/// [`ReplyError::NoReply`](super::ReplyError::NoReply), or
/// [`ReplyError::Panicked`](super::ReplyError::Panicked) if a panic drops it, and the
/// controller ignores its cost. The items still in it are lost. Items that it [gave
/// back](Batch::retry) before still get another try. A batch that is never dropped
/// (`std::mem::forget`) keeps its place among the batches in flight, and its actor never ends.
pub struct OwnedBatch<T, R = (), M = std::convert::Infallible> {
    batch: Batch<T, R, M>,
    ticket: Ticket,
    /// The place to which the batch returns; `None` once it returned.
    landing: Option<Arc<Landing<T, R, M>>>,
}

/// The actor's record of a batch, which returns with the batch.
pub(super) struct Ticket {
    pub(super) id: BatchId,
    /// The start of the batch.
    pub(super) since: Time,
    pub(super) calls: u64,
    /// The keys to release when the batch is done.
    pub(super) keys: Vec<u64>,
}

/// The way a batch ended.
pub(super) enum End {
    /// The code that owns the batch finished it, and says how the actor continues.
    Done(Flow),
    /// The code that owns the batch panicked.
    Panicked,
    /// The code that owns the batch dropped it.
    Dropped,
}

/// A batch that returned.
pub(super) struct Landed<T, R, M> {
    pub(super) ticket: Ticket,
    /// The end of the batch.
    pub(super) at: Time,
    pub(super) ok: bool,
    pub(super) end: End,
    /// The batch, empty except for the operations given back, and kept to reuse its memory.
    pub(super) batch: Batch<T, R, M>,
}

impl<T, R, M> OwnedBatch<T, R, M> {
    pub(super) const fn new(
        batch: Batch<T, R, M>,
        ticket: Ticket,
        landing: Arc<Landing<T, R, M>>,
    ) -> Self {
        Self {
            batch,
            ticket,
            landing: Some(landing),
        }
    }

    /// Finishes the batch. Callers without an answer get
    /// [`ReplyError::NoReply`](super::ReplyError::NoReply), and another batch may take its place in flight.
    /// After [`Batch::fail`] the batch counts as failed.
    pub fn done(self) {
        self.finish(End::Done(Flow::Continue));
    }

    pub(super) fn finish(mut self, end: End) {
        self.land(end);
    }

    fn land(&mut self, end: End) {
        let Some(landing) = self.landing.take() else {
            return;
        };
        let at = landing.clock.now();
        // The remaining operations are the user's values, so their drop may panic.
        let cleared = match end {
            End::Done(_) | End::Dropped => catch(|| self.batch.clear()),
            End::Panicked => catch(|| {
                after_panic(|| self.batch.lose());
                true
            }),
        };
        let (end, failed) = match cleared {
            Ok(failed) => (end, failed),
            Err(_) => {
                while catch(|| after_panic(|| self.batch.lose())).is_err() {}
                (End::Panicked, true)
            }
        };
        let ticket = Ticket {
            keys: std::mem::take(&mut self.ticket.keys),
            ..self.ticket
        };
        landing.put(Landed {
            ticket,
            at,
            ok: !failed && matches!(end, End::Done(_)),
            end,
            batch: std::mem::replace(&mut self.batch, Batch::new()),
        });
    }
}

impl<T, R, M> Deref for OwnedBatch<T, R, M> {
    type Target = Batch<T, R, M>;

    fn deref(&self) -> &Batch<T, R, M> {
        &self.batch
    }
}

impl<T, R, M> DerefMut for OwnedBatch<T, R, M> {
    fn deref_mut(&mut self) -> &mut Batch<T, R, M> {
        &mut self.batch
    }
}

impl<T, R, M> Drop for OwnedBatch<T, R, M> {
    fn drop(&mut self) {
        self.land(if std::thread::panicking() {
            End::Panicked
        } else {
            End::Dropped
        });
    }
}

impl<T, R, M> fmt::Debug for OwnedBatch<T, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedBatch")
            .field("len", &self.batch.len())
            .field("reason", &self.batch.reason())
            .finish_non_exhaustive()
    }
}

/// The place to which batches return.
pub(super) struct Landing<T, R, M> {
    clock: Clock,
    state: Mutex<State<T, R, M>>,
}

struct State<T, R, M> {
    landed: Vec<Landed<T, R, M>>,
    /// True if the actor is gone, so that operations given back get no further try.
    closed: bool,
    /// The waker of the actor while it sleeps.
    actor: Option<Waker>,
}

impl<T, R, M> Landing<T, R, M> {
    pub(super) const fn new(clock: Clock) -> Self {
        let state = State {
            landed: Vec::new(),
            closed: false,
            actor: None,
        };
        Self {
            clock,
            state: Mutex::new(state),
        }
    }

    fn put(&self, landed: Landed<T, R, M>) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return abandon(landed);
        }
        state.landed.push(landed);
        let actor = state.actor.take();
        drop(state);
        if let Some(actor) = actor {
            actor.wake();
        }
    }

    /// Closes the landing and abandons the batches in it, because the actor is gone.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let landed = std::mem::take(&mut state.landed);
        drop(state);
        landed.into_iter().for_each(abandon);
    }

    /// Moves the batches that returned into `into`, which is empty.
    pub(super) fn take(&self, into: &mut Vec<Landed<T, R, M>>) {
        std::mem::swap(&mut lock(&self.state).landed, into);
    }

    /// Returns whether a batch returned. If none has, the next batch that returns wakes the task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if !state.landed.is_empty() {
            return Poll::Ready(());
        }
        let old = state.actor.replace(cx.waker().clone());
        // A waker may own its task, and the task may own another end of this landing, so the old waker is
        // dropped without the lock.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// Answers the callers of operations given back with an error, because no other try comes.
fn abandon<T, R, M>(landed: Landed<T, R, M>) {
    let _ = catch(|| abandoned(|| drop(landed)));
}
