//! The waits of the drivers on tokio, as the [`Patience`] decides them.
//!
//! This file owns the yields and the alarms, and decides nothing. A thread of the process serves the alarms,
//! so that a runtime needs no timer.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use tokio::task::{consume_budget, yield_now};

use super::actor::Actor;
use super::core::DriverStep;
use super::patience::{Pass, Patience};
use super::several::Several;
use super::timer::{self, Alarm};
use crate::{Clock, Time};

/// The waits of one driver: see the [module](self).
pub(super) struct Waits {
    patience: Patience,
    alarm: Option<Set>,
}

/// An alarm that is set for the moment `at`, and the task that it wakes.
struct Set {
    at: Time,
    /// The alarm itself; it is kept because a dropped alarm does not go off.
    _alarm: Alarm,
    task: Waker,
}

/// The part of a driver that waits.
pub(super) trait Waiting<T: Send, R: Send, M: Send> {
    fn actor(&mut self) -> &mut Actor<T, R, M>;

    /// Waits in `step` until it is time to poll the core again.
    fn poll_wait(&mut self, step: DriverStep, cx: &mut Context<'_>) -> Poll<()>;
}

impl<T: Send, R: Send, M: Send> Waiting<T, R, M> for Actor<T, R, M> {
    fn actor(&mut self) -> &mut Self {
        self
    }

    fn poll_wait(&mut self, _: DriverStep, cx: &mut Context<'_>) -> Poll<()> {
        // The next poll of the core notices the end of the queue.
        self.consumer.poll_ready(cx).map(|_| ())
    }
}

impl<T: Send, R: Send, M: Send> Waiting<T, R, M> for Several<T, R, M> {
    fn actor(&mut self) -> &mut Actor<T, R, M> {
        &mut self.actor
    }

    fn poll_wait(&mut self, step: DriverStep, cx: &mut Context<'_>) -> Poll<()> {
        Self::poll_wait(self, step, cx)
    }
}

impl Waits {
    pub(super) const fn new() -> Self {
        Self {
            patience: Patience::new(),
            alarm: None,
        }
    }

    /// Lets other tasks run after a batch is finished, where that is due, or where callers
    /// may call again. Returns the time.
    pub(super) async fn finished<T: Send, R: Send, M: Send>(
        &mut self,
        actor: &mut Actor<T, R, M>,
        now: Time,
    ) -> Time {
        self.alarm = None;
        let (expected, waiting) = (actor.expected(), actor.waiting());
        if !self.patience.finished(now, expected, waiting) {
            consume_budget().await;
            return now;
        }
        yield_now().await;
        actor.clock().now()
    }

    /// Resets the waits after the driver did something, because the next batch has its own waits.
    pub(super) fn started(&mut self) {
        self.alarm = None;
        self.patience.started();
    }

    /// Waits in `step` until it is time to poll the core again. Returns the time.
    pub(super) async fn pass<T: Send, R: Send, M: Send>(
        &mut self,
        driver: &mut impl Waiting<T, R, M>,
        step: &DriverStep,
        now: Time,
    ) -> Time {
        let clock = driver.actor().clock();
        let until = driver.actor().prepare_wait(*step, now);
        let pass = match *step {
            DriverStep::Hold { .. } if until > now => {
                let waiting = driver.actor().waiting();
                self.patience.hold(now, until, waiting)
            }
            // Enough items arrived while the wait was prepared.
            DriverStep::Hold { .. } => {
                driver.actor().waited(*step, now, until);
                return now;
            }
            _ => Pass::Timer,
        };
        match pass {
            Pass::Yield => yield_now().await,
            Pass::Alarm(at) => {
                poll_fn(|cx| match driver.poll_wait(*step, cx) {
                    Poll::Pending => self.poll_alarm(clock, at, cx),
                    ready => ready,
                })
                .await;
            }
            Pass::Timer => {
                let wait = poll_fn(|cx| driver.poll_wait(*step, cx));
                // The process's own timer ends this wait: a runtime may be without one, or hold its time
                // still.
                let _ = timer::before(clock.instant(until), wait).await;
            }
            Pass::Take => driver.actor().end_hold(),
        }
        let now = clock.now();
        driver.actor().waited(*step, now, until);
        now
    }

    /// Returns ready at the moment `at`, at which an alarm wakes the task.
    fn poll_alarm(&mut self, clock: Clock, at: Time, cx: &Context<'_>) -> Poll<()> {
        if clock.now() >= at {
            self.alarm = None;
            return Poll::Ready(());
        }
        let is_set = |set: &Set| set.at == at && set.task.will_wake(cx.waker());
        if self.alarm.as_ref().is_some_and(is_set) {
            return Poll::Pending;
        }
        let Some(instant) = clock.instant(at) else {
            return Poll::Pending;
        };
        let alarm = Alarm::new(instant);
        alarm.set(cx.waker());
        self.alarm = Some(Set {
            at,
            _alarm: alarm,
            task: cx.waker().clone(),
        });
        Poll::Pending
    }
}
