//! Recovery of an actor from a panic of its handler: the same handler continues, the factory makes a new
//! handler, or the actor ends without a handler.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handler::Recover;
use super::reply::after_panic;

/// The error of a call of user code: the code panicked, and the actor caught the panic.
#[derive(Debug)]
pub(super) struct Panicked;

/// A function that makes a handler in place of a handler that panicked. Returns `None` if it can make no
/// further handler.
pub(super) type Factory<H> = Box<dyn FnMut() -> Option<H> + Send>;

/// The outcome of a recovery from a panic of the handler, by which the driver goes on.
pub(super) enum Mended {
    /// The actor continues with the same handler.
    Same,
    /// A new handler took the place of the old one. The actor must call its `init` next.
    Fresh,
    /// No handler is left, so the actor must end.
    Lost,
}

/// Runs user code and catches its panic, so that the actor survives. The panic hook has printed the panic by
/// then, so the caught payload is dropped.
pub(super) fn catch<V>(call: impl FnOnce() -> V) -> Result<V, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        // The drop of the panic's payload may panic, too. The payload of that second panic is leaked.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        Panicked
    })
}

pub(super) fn mend<H>(
    handler: &mut H,
    factory: &mut Factory<H>,
    recover: impl FnOnce(&mut H) -> Recover,
) -> Mended {
    let made = catch(|| match after_panic(|| recover(handler)) {
        Recover::Continue => Ok(None),
        Recover::Rebuild => Ok(factory()),
        Recover::Stop => Err(Panicked),
    });
    match made {
        Ok(Ok(None)) => Mended::Same,
        Ok(Ok(Some(fresh))) => {
            let old = std::mem::replace(handler, fresh);
            let _ = catch(|| after_panic(|| drop(old)));
            Mended::Fresh
        }
        Ok(Err(Panicked)) | Err(Panicked) => Mended::Lost,
    }
}
