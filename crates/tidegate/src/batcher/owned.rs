//! A batch in the hands of the code that finishes it later, and the way back to its actor.
//!
//! The actor hands out an [`OwnedBatch`] and goes on. The batch returns through the [`Landing`], finished
//! or dropped, on any thread and in any order; the actor is woken, and tells its core of the end. Each
//! batch returns exactly once, so that the landing never holds more than the batches in flight.

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

/// A batch that a [`Dispatcher`](super::Dispatcher) owns: it may go to another thread or task and is
/// finished by [`OwnedBatch::done`], in any order with the other batches in flight. It reads like a
/// [`Batch`].
///
/// A batch that is dropped without `done` counts as failed: callers without an answer learn of it, and its
/// cost teaches the controller nothing. Items that were [given back](Batch::retry) before come again all the
/// same. A batch that is never dropped (`std::mem::forget`) keeps its place
/// among the batches in flight, and its actor never ends.
pub struct OwnedBatch<T, R = (), M = std::convert::Infallible> {
    batch: Batch<T, R, M>,
    ticket: Ticket,
    /// `None` once the batch returned.
    landing: Option<Arc<Landing<T, R, M>>>,
}

/// The actor's record of a batch, which returns with it.
pub(super) struct Ticket {
    pub(super) id: BatchId,
    /// The start of the batch.
    pub(super) since: Time,
    pub(super) calls: u64,
    /// Keys that are free when the batch is done.
    pub(super) keys: Vec<u64>,
}

/// How a batch ended.
pub(super) enum End {
    /// By its word: whether it did its work, and how the actor goes on.
    Done(Flow),
    /// Its code panicked.
    Panicked,
    /// It was dropped.
    Dropped,
}

/// A batch that returned.
pub(super) struct Landed<T, R, M> {
    pub(super) ticket: Ticket,
    /// The end of the batch.
    pub(super) at: Time,
    pub(super) ok: bool,
    pub(super) end: End,
    /// Empty but for the operations given back, kept for its memory.
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

    /// Finishes the batch. Callers without an answer learn that there is none
    /// ([`ReplyError::NoReply`](super::ReplyError::NoReply)), and the place of the batch is free for another.
    /// After [`Batch::fail`] it counts as failed.
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
        // The operations left are the user's, and may panic when dropped.
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

/// Where batches return to.
pub(super) struct Landing<T, R, M> {
    clock: Clock,
    state: Mutex<State<T, R, M>>,
}

struct State<T, R, M> {
    landed: Vec<Landed<T, R, M>>,
    /// The actor is gone, and with it the next try of the operations given back.
    closed: bool,
    /// The actor, where it sleeps.
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

    /// Takes nothing more: the actor is gone.
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

    /// Returns whether a batch returned; the task is woken when one does.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        if !state.landed.is_empty() {
            return Poll::Ready(());
        }
        let old = state.actor.replace(cx.waker().clone());
        // A waker may own its task, and that another end of this landing.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// Tells the callers of operations given back that no other try comes.
fn abandon<T, R, M>(landed: Landed<T, R, M>) {
    let _ = catch(|| abandoned(|| drop(landed)));
}
