//! The driver for threads: one named thread that does what the [`Core`](super::core::Core) says next.

use super::actor::{Actor, Panicked};
use super::core::Step;
use super::handler::{Flow, Handler, Init, StopReason};
use super::mend::{Factory, Mended, catch, mend};
use super::reply::{Reply, after_panic, may_fail};
use crate::Time;
use crate::blocking::Enter;

/// Runs an actor to its end. `started` is answered as soon as the handler's `init` is through.
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
    let mut now = clock.now();
    let lost = loop {
        actor.receive_visits(&handler);
        let step = actor.poll(now);
        let returned = match step {
            Step::Take(limit) => catch(|| {
                if actor.gather(now, limit, |batch, op| handler.append(batch, op)) {
                    let handled = may_fail(|| handler.handle_batch(&mut actor.batch));
                    actor.batch.conclude(handled)
                } else {
                    Flow::Continue
                }
            }),
            Step::Continue => catch(|| handler.handle_continue()),
            Step::Idle => match catch(|| handler.idle()) {
                // Nothing came meanwhile: the time is needed only after the next wait.
                Ok(()) if actor.is_empty() => continue,
                idle => idle.map(|()| Flow::Continue),
            },
            Step::Hold { .. } | Step::Rest | Step::Busy => {
                now = wait(&mut actor, step, now);
                continue;
            }
            Step::End => break false,
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
    // A handler that could not be mended is dropped, no more.
    let _ = catch(|| {
        if !lost {
            handler.terminate(&reason);
        }
        drop(handler);
    });
    actor.end(reason);
}

/// Until there is something to ask the core about; then it is the time returned.
fn wait<T: Send, R: Send, M: Send>(actor: &mut Actor<T, R, M>, step: Step, now: Time) -> Time {
    let clock = actor.clock();
    let until = actor.prepare_wait(step, now);
    // The end of the queue shows when the core is asked.
    let _ = match clock.instant(until) {
        Some(at) => actor.consumer.blocking_wait_until(at).map(|_| ()),
        None => actor.consumer.blocking_wait(),
    };
    let now = clock.now();
    actor.waited(step, now, until);
    now
}
