//! Recovery from a panic: the handler repairs itself, the factory makes a new one, or the actor gives the
//! handler up.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::handler::Recover;
use super::reply::after_panic;

/// The error of a call into user code that panicked.
#[derive(Debug)]
pub(super) struct Panicked;

/// Makes a handler. Returns `None` if it can make no other.
pub(super) type Factory<H> = Box<dyn FnMut() -> Option<H> + Send>;

/// The outcome of a recovery.
pub(super) enum Mended {
    /// The same handler continues.
    Same,
    /// A new handler took the place of the old one, and its `init` is due.
    Fresh,
    /// No handler is left.
    Lost,
}

/// Runs user code and catches its panic, which the panic hook has reported already.
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
