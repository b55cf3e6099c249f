//! The driver of an actor on a thread: one named thread performs the steps of the
//! [`Core`](super::core::Core).

use super::actor::Actor;
use super::core::DriverStep;
use super::handler::{Flow, Handler, Init, StopReason};
use super::mend::Panicked;
use super::mend::{Factory, Mended, catch, mend};
use super::patience::Looks;
use super::reply::{Reply, after_panic, may_fail};
use crate::Time;
use crate::blocking::Enter;

/// Runs an actor on this thread until its end. Answers `started` as soon as the handler's `init` has
/// returned.
pub(super) fn run<H: Handler>(
    mut actor: Actor<H::Item, H::Reply, H::Info>,
    mut factory: Factory<H>,
    started: Reply<()>,
) {
    let _inside = Enter::new(actor.id());
    let made = catch(|| {
        let mut handler = factory()?;
        let init = handler.init();
        Some((handler, init))
    });
    let mut handler = match made {
        Ok(Some((_, Init::Stop(cause)))) => return started.fail(cause),
        Ok(Some((handler, init))) => {
            actor.initialized(init);
            handler
        }
        Ok(None) | Err(Panicked) => return after_panic(|| drop(started)),
    };
    started.send(());
    let clock = actor.clock();
    let mut looks = Looks::new();
    let mut now = clock.now();
    let lost = loop {
        actor.receive_visits(&handler);
        let step = actor.poll(now);
        let returned = match step {
            DriverStep::Take(limit) => catch(|| {
                if actor.gather(now, limit, |batch, op| handler.append(batch, op)) {
                    let handled = may_fail(|| handler.handle_batch(&mut actor.batch));
                    actor.batch.conclude(handled)
                } else {
                    Flow::Continue
                }
            }),
            DriverStep::Continue => catch(|| handler.handle_continue()),
            DriverStep::Idle => match catch(|| handler.idle()) {
                // No item arrived while the handler's `idle` ran. Another poll of the core would only
                // return the rest step, so the driver rests at once.
                Ok(()) if actor.is_empty() => {
                    now = wait(&mut actor, &mut looks, DriverStep::Rest, now);
                    continue;
                }
                idle => idle.map(|()| Flow::Continue),
            },
            DriverStep::Hold { .. } | DriverStep::Rest | DriverStep::Busy { .. } => {
                now = wait(&mut actor, &mut looks, step, now);
                continue;
            }
            DriverStep::End => break false,
        };
        now = clock.now();
        if actor.finish(now, returned).is_ok() {
            continue;
        }
        let init = match mend(&mut handler, &mut factory, H::recover) {
            Mended::Same => Ok(Init::Ready),
            Mended::Fresh => catch(|| handler.init()),
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
    // The driver drops a handler that could not recover from its panic, without a call of `terminate`.
    let _ = catch(|| {
        if !lost {
            handler.terminate(&reason);
        }
        drop(handler);
    });
    actor.end(reason);
}

/// Waits, in `step`, until the driver has a reason to poll the core again. Returns the time after the wait.
fn wait<T: Send, R: Send, M: Send>(
    actor: &mut Actor<T, R, M>,
    looks: &mut Looks,
    step: DriverStep,
    now: Time,
) -> Time {
    let clock = actor.clock();
    let until = actor.prepare_wait(step, now);
    let may_look = looks.may_look(now);
    // `wait_counting` does not report the end of the queue, because the next poll of the core notices it.
    let passed = actor.consumer.wait_counting(clock.instant(until), may_look);
    let now = clock.now();
    looks.looked(now, passed.looks, passed.slept);
    actor.waited(step, now, until);
    now
}
