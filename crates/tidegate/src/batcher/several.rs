//! The part of a driver of several batches at once: everything except waiting.
//!
//! A driver takes [`turn`](Several::turn)s until a turn asks it to wait or to end. A turn first
//! ends the batches that returned, and then performs the next step of the core. The core, not the
//! driver, decides how many batches run.

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

/// The part of a driver that takes an actor's batches.
pub(super) trait Launch<T, R, M> {
    /// Starts a batch, on a task, a thread or elsewhere.
    fn launch(&mut self, batch: OwnedBatch<T, R, M>);

    /// The driver calls this when nothing waits and no batch runs.
    fn idle(&mut self);

    /// Returns the handler for visits.
    fn handler(&self) -> &dyn Any;
}

/// The next action of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The driver takes another turn.
    Again,
    /// The driver waits in this step before the next turn.
    Wait(DriverStep),
    /// The driver ends the actor.
    End,
}

/// An actor and the batches that it handed out.
pub(super) struct Several<T: Send, R: Send, M: Send> {
    pub(super) actor: Actor<T, R, M>,
    landing: Arc<Landing<T, R, M>>,
    /// Batches that returned, oldest first; empty between two turns.
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

    /// Performs one step at `now`.
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
            // A handler of several batches has no continue, so nothing happens.
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
            // If `launch` panics, it drops the batch, and the drop returns the batch to the landing.
            let _ = catch(|| to.launch(batch));
        }
    }

    /// Waits in `step` until it is time to poll the core again.
    pub(super) fn poll_wait(&mut self, step: DriverStep, cx: &mut Context<'_>) -> Poll<()> {
        if self.landing.poll(cx).is_ready() || self.actor.poll_visits(cx).is_ready() {
            return Poll::Ready(());
        }
        match step {
            // No further batch may start yet, so items in the queue do not end the wait.
            DriverStep::Busy { .. } => Poll::Pending,
            // The next poll of the core notices the end of the queue.
            _ => self.actor.consumer.poll_ready(cx).map(|_| ()),
        }
    }
}

impl<T: Send, R: Send, M: Send> Drop for Several<T, R, M> {
    /// Closes the landing: a runtime that shuts down drops the actor while batches are in flight.
    fn drop(&mut self) {
        self.landing.close();
    }
}
