//! The half of a driver that runs several batches at once: everything but waiting.
//!
//! A driver takes [`turn`](Several::turn)s until one says to wait or to end. A turn first takes in the
//! batches that returned, then does what the core says next. The core, not the driver, decides how many
//! batches run.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::actor::{Actor, Panicked};
use super::core::Step;
use super::handler::Append;
use super::mend::catch;
use super::owned::{Landed, Landing, OwnedBatch};
use crate::{Clock, Time};

/// Takes the batches of an actor.
pub(super) trait Launch<T, R, M> {
    /// Takes a batch on its way.
    fn launch(&mut self, batch: OwnedBatch<T, R, M>);

    /// Nothing waits, and no batch runs.
    fn idle(&mut self);

    /// The handler as visitors see it.
    fn handler(&self) -> &dyn Any;
}

/// The next move of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Takes another turn.
    Again,
    /// Waits first.
    Wait(Step),
    /// Ends the actor.
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

    /// Does one thing at `now`.
    pub(super) fn turn(&mut self, now: Time, to: &mut impl Launch<T, R, M>) -> Turn {
        self.landing.take(&mut self.landed);
        for landed in self.landed.drain(..) {
            self.actor.land(landed);
        }
        self.actor.receive_visits(to.handler());
        let step = self.actor.poll(now);
        match step {
            Step::Take(limit) => {
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
            Step::Idle => {
                if catch(|| to.idle()).is_err() {
                    self.actor.count_panic();
                }
                Turn::Again
            }
            // A handler of several batches has no continue.
            Step::Continue => Turn::Again,
            Step::Hold { .. } | Step::Busy { .. } | Step::Rest => Turn::Wait(step),
            Step::End => Turn::End,
        }
    }

    fn launch(&mut self, to: &mut impl Launch<T, R, M>) {
        if let Some((batch, ticket)) = self.actor.hand_over() {
            let batch = OwnedBatch::new(batch, ticket, Arc::clone(&self.landing));
            // The batch returns by itself also after a panic.
            let _ = catch(|| to.launch(batch));
        }
    }

    /// Waits in `step` until there is something to ask the core about.
    pub(super) fn poll_wait(&mut self, step: Step, cx: &mut Context<'_>) -> Poll<()> {
        if self.landing.poll(cx).is_ready() || self.actor.poll_visits(cx).is_ready() {
            return Poll::Ready(());
        }
        match step {
            // No item of the queue may start yet.
            Step::Busy { .. } => Poll::Pending,
            // The end of the queue shows when the core is asked.
            _ => self.actor.consumer.poll_ready(cx).map(|_| ()),
        }
    }
}

impl<T: Send, R: Send, M: Send> Drop for Several<T, R, M> {
    /// A runtime that shuts down drops the actor while batches are in other hands.
    fn drop(&mut self) {
        self.landing.close();
    }
}
