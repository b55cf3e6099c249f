//! The part that the drivers of several batches at once, a thread and a task, share: everything except
//! waiting.
//!
//! A driver takes [`turn`](Several::turn)s until a turn asks it to wait or to end. A turn first ends the
//! batches that returned, and then performs the next step of the actor's core. The core, not the driver,
//! decides how many batches run.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::actor::Actor;
use super::core::DriverStep;
use super::handler::Append;
use super::mend::Panicked;
use super::mend::catch;
use super::owned::{Landed, Landing, OwnedBatch};
use crate::{Clock, Time};

/// The user's side of an actor that runs several batches at once: a shared handler or a dispatcher.
pub(super) trait Launch<T, R, M> {
    /// Starts a batch that the actor gathered: spawns a task for it, or passes it to the user's dispatcher.
    fn launch(&mut self, batch: OwnedBatch<T, R, M>);

    /// Calls the `idle` of the user's handler, because no item waits and no batch runs.
    fn idle(&mut self);

    /// Returns the handler, for the closures that inspect it.
    fn handler(&self) -> &dyn Any;
}

/// The next action of a driver, as the result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The driver takes another turn at once.
    Again,
    /// The driver waits before it takes the next turn. The step (hold, busy or rest) says for which event and
    /// until when.
    Wait(DriverStep),
    /// The driver ends the actor.
    End,
}

/// An actor that runs several batches at once, and the landing to which its batches return.
pub(super) struct Several<T: Send, R: Send, M: Send> {
    pub(super) actor: Actor<T, R, M>,
    landing: Arc<Landing<T, R, M>>,
    /// The batches that returned and that this turn ends, oldest first; empty between two turns.
    landed: Vec<Landed<T, R, M>>,
}

impl<T: Send, R: Send, M: Send> Several<T, R, M> {
    pub(super) fn new(actor: Actor<T, R, M>) -> Self {
        let landing = Arc::new(Landing::new(actor.clock()));
        Self {
            actor,
            landing,
            landed: Vec::new(),
        }
    }

    pub(super) fn clock(&self) -> Clock {
        self.actor.clock()
    }

    /// Takes a turn at time `now`: ends the batches that returned, runs the waiting inspections, and
    /// performs the next step of the core. Starts batches on `to`.
    pub(super) fn turn(&mut self, now: Time, to: &mut impl Launch<T, R, M>) -> Turn {
        self.landing.take(&mut self.landed);
        for landed in self.landed.drain(..) {
            self.actor.land(landed);
        }
        self.actor.receive_visits(to.handler());
        let step = self.actor.poll(now);
        match step {
            DriverStep::Take(limit) => {
                let gathered = catch(|| {
                    self.actor.gather(now, limit, |batch, op| {
                        batch.push(op);
                        Append::Continue
                    })
                });
                match gathered {
                    Ok(true) => self.launch(to),
                    Ok(false) => {}
                    Err(Panicked) => self.actor.lose_gathered(),
                }
                Turn::Again
            }
            DriverStep::Idle => {
                if catch(|| to.idle()).is_err() {
                    self.actor.count_panic();
                }
                Turn::Again
            }
            // A handler of several batches has no `handle_continue`, so the driver does nothing here.
            DriverStep::Continue => Turn::Again,
            DriverStep::Hold { .. } | DriverStep::Busy { .. } | DriverStep::Rest => {
                Turn::Wait(step)
            }
            DriverStep::End => Turn::End,
        }
    }

    fn launch(&mut self, to: &mut impl Launch<T, R, M>) {
        if let Some((batch, ticket)) = self.actor.hand_over() {
            let batch = OwnedBatch::new(batch, ticket, Arc::clone(&self.landing));
            // If the user's code panics in `launch`, it drops the batch, and the drop returns the batch to
            // the landing.
            let _ = catch(|| to.launch(batch));
        }
    }

    /// Waits until the driver has a reason to poll the core again: a batch returned, an inspection waits,
    /// or (except in a busy step) an item arrived.
    pub(super) fn poll_wait(&mut self, step: DriverStep, cx: &mut Context<'_>) -> Poll<()> {
        if self.landing.poll(cx).is_ready() || self.actor.poll_visits(cx).is_ready() {
            return Poll::Ready(());
        }
        match step {
            // No further batch may start yet, so items in the queue do not end the wait.
            DriverStep::Busy { .. } => Poll::Pending,
            // `poll_ready` also reports the end of the queue. The driver ignores that result, because the
            // next poll of the core notices the end.
            _ => self.actor.consumer.poll_ready(cx).map(|_| ()),
        }
    }
}

impl<T: Send, R: Send, M: Send> Drop for Several<T, R, M> {
    /// Closes the landing, to which batches return. A runtime that shuts down may drop the actor while
    /// batches are in flight.
    fn drop(&mut self) {
        self.landing.close();
    }
}
