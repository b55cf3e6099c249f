//! The waits of an actor's drivers on tokio. The [`Patience`] decides how a driver waits.
//!
//! This file performs the yields and the alarms, and decides nothing. A thread of the process serves the
//! alarms, so that a runtime needs no timer.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use tokio::task::{consume_budget, yield_now};

use super::actor::Actor;
use super::core::DriverStep;
use super::patience::{Pass, Patience};
use super::several::Several;
use super::timer::{self, Alarm};
use crate::{Clock, Time};

/// The waits of one driver on tokio, with their alarm and their budget: see the [module](self).
pub(super) struct Waits {
    patience: Patience,
    alarm: Option<Set>,
}

/// An alarm that is set for the time `at`, and the task that the alarm wakes, so that a later poll can keep
/// the alarm.
struct Set {
    at: Time,
    /// The alarm, kept because a dropped alarm does not go off.
    _alarm: Alarm,
    task: Waker,
}

/// The part of a driver on tokio that waits for items or for the end of batches.
pub(super) trait Waiting<T: Send, R: Send, M: Send> {
    fn actor(&mut self) -> &mut Actor<T, R, M>;

    /// Waits, in `step`, until the driver has a reason to poll the core again.
    fn poll_wait(&mut self, step: DriverStep, cx: &mut Context<'_>) -> Poll<()>;
}

impl<T: Send, R: Send, M: Send> Waiting<T, R, M> for Actor<T, R, M> {
    fn actor(&mut self) -> &mut Self {
        self
    }

    fn poll_wait(&mut self, _: DriverStep, cx: &mut Context<'_>) -> Poll<()> {
        // `poll_ready` also reports the end of the queue. The driver ignores that result, because the next
        // poll of the core notices the end.
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

    /// Lets other tasks run after a batch is finished, if callers that were just answered may call again.
    /// Otherwise takes a step of tokio's budget of this task, so that the task yields once the budget is
    /// used up. Returns the time afterwards.
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

    /// Cancels the alarm and resets the counts of waits after the driver took a step other than waiting,
    /// because the next batch has waits of its own.
    pub(super) fn started(&mut self) {
        self.alarm = None;
        self.patience.started();
    }

    /// Waits, in `step`, until the driver has a reason to poll the core again. Returns the time after the
    /// wait.
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
            // Enough items for the next batch arrived while the driver prepared the wait, so the driver
            // does not wait.
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
                // The timer of this crate ends the wait, because the runtime may have no timer or may have
                // paused its clock.
                let _ = timer::before(clock.instant(until), wait).await;
            }
            Pass::Take => driver.actor().end_hold(),
        }
        let now = clock.now();
        driver.actor().waited(*step, now, until);
        now
    }

    /// Returns ready at the time `at`, at which a wait ends. Before that time, sets an alarm that wakes the
    /// task then.
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
