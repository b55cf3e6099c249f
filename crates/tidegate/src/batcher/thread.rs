//! The driver for threads: one named thread that performs the steps of the [`Core`](super::core::Core).

use super::actor::Actor;
use super::core::DriverStep;
use super::handler::{Flow, Handler, Init, StopReason};
use super::mend::Panicked;
use super::mend::{Factory, Mended, catch, mend};
use super::patience::Looks;
use super::reply::{Reply, after_panic, may_fail};
use crate::Time;
use crate::blocking::Enter;

/// Runs an actor to its end. Answers through `started` as soon as the handler's `init` returns.
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
                // Nothing arrived meanwhile, so the next poll would only return this rest again.
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
    // The actor drops a handler that could not recover, without a call of `terminate`.
    let _ = catch(|| {
        if !lost {
            handler.terminate(&reason);
        }
        drop(handler);
    });
    actor.end(reason);
}

/// Waits until it is time to poll the core again. Returns the time.
fn wait<T: Send, R: Send, M: Send>(
    actor: &mut Actor<T, R, M>,
    looks: &mut Looks,
    step: DriverStep,
    now: Time,
) -> Time {
    let clock = actor.clock();
    let until = actor.prepare_wait(step, now);
    let may_look = looks.may_look(now);
    // The next poll of the core notices the end of the queue.
    let passed = actor.consumer.wait_counting(clock.instant(until), may_look);
    let now = clock.now();
    looks.looked(now, passed.looks, passed.slept);
    actor.waited(step, now, until);
    now
}
