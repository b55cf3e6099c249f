//! A batch owned by user code that finishes it later, and the return of the batch to the actor.
//!
//! The actor hands out an [`OwnedBatch`] and continues with the next batch. The batch returns through the
//! [`Landing`], finished or dropped, on any thread and in any order. The landing wakes the actor, which
//! reports the end of the batch to its core. Each batch returns exactly once, so that the landing never
//! holds more than the batches in flight.

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

/// A batch that a [`Dispatcher`](super::Dispatcher) owns. The batch may go to another thread or task. It
/// ends with [`OwnedBatch::done`], in any order with the other batches in flight. An owned batch
/// dereferences to a [`Batch`].
///
/// A batch that is dropped without `done` counts as failed: callers without an answer get
/// [`ReplyError::NoReply`](super::ReplyError::NoReply), or
/// [`ReplyError::Panicked`](super::ReplyError::Panicked) if a panic drops the batch, and the controller
/// ignores its cost. The items still in the batch are lost. Items [given back](Batch::retry) before the
/// drop still get another try. A batch that is never dropped (`std::mem::forget`) keeps its place among the
/// batches in flight, and its actor never ends.
pub struct OwnedBatch<T, R = (), M = std::convert::Infallible> {
    batch: Batch<T, R, M>,
    ticket: Ticket,
    /// The landing through which the batch returns to its actor; `None` after it returned.
    landing: Option<Arc<Landing<T, R, M>>>,
}

/// The actor's record of a batch that runs outside the actor. The record returns with the batch, so that the
/// actor can report the end of the batch.
pub(super) struct Ticket {
    pub(super) id: BatchId,
    /// The time at which the batch started. The actor measures the duration of the batch from this time.
    pub(super) since: Time,
    pub(super) calls: u64,
    /// The keys of the batch, which the actor frees when the batch is done.
    pub(super) keys: Vec<u64>,
}

/// The way in which a batch that user code owns ended, as the actor reports it to its core.
pub(super) enum End {
    /// The code that owns the batch finished it. The flow says how the actor continues.
    Done(Flow),
    /// The code that owned the batch panicked, so the batch failed.
    Panicked,
    /// The code that owned the batch dropped it without finishing it, so the batch failed.
    Dropped,
}

/// A batch that returned to its actor, with the time and the outcome of its end, which the actor reports to
/// its core.
pub(super) struct Landed<T, R, M> {
    pub(super) ticket: Ticket,
    /// The time at which the returned batch ended: the user code finished or dropped it.
    pub(super) at: Time,
    pub(super) ok: bool,
    pub(super) end: End,
    /// The batch, empty except for the operations given back for another try. The actor reuses the memory
    /// of the batch.
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

    /// Finishes the batch, so that another batch may take its place in flight. Callers without an answer
    /// get [`ReplyError::NoReply`](super::ReplyError::NoReply). After [`Batch::fail`] the batch counts as
    /// failed.
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
        // The operations left in the batch hold the user's values, so their drop may panic. The batch must
        // return to its actor in any case, so a panic is caught here.
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

/// The place to which the batches of an actor return from the user code that owns them, so that the actor can
/// end them.
pub(super) struct Landing<T, R, M> {
    clock: Clock,
    state: Mutex<State<T, R, M>>,
}

struct State<T, R, M> {
    landed: Vec<Landed<T, R, M>>,
    /// True if the actor is gone. Then no operation that a batch gives back gets another try.
    closed: bool,
    /// The waker of the actor while the actor sleeps, for the next batch that returns.
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

    /// Closes the landing because the actor is gone. The callers of the batches in it get an error.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let landed = std::mem::take(&mut state.landed);
        drop(state);
        landed.into_iter().for_each(abandon);
    }

    /// Moves the batches that returned to the actor into the vector `into`, which must be empty, so that the
    /// actor ends them.
    pub(super) fn take(&self, into: &mut Vec<Landed<T, R, M>>) {
        std::mem::swap(&mut lock(&self.state).landed, into);
    }

    /// Returns ready if a batch has returned. Otherwise makes the next batch that returns wake the task of
    /// `cx`.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if !state.landed.is_empty() {
            return Poll::Ready(());
        }
        let old = state.actor.replace(cx.waker().clone());
        // A waker may own its task, and the task may own a batch of this landing. So the actor drops the
        // old waker without the lock.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// Answers the callers of the operations that a batch gave back with an error, because the actor is gone
/// and makes no other try.
fn abandon<T, R, M>(landed: Landed<T, R, M>) {
    let _ = catch(|| abandoned(|| drop(landed)));
}
