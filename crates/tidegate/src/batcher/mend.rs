//! What happens after a panic: the handler repairs itself, is built anew, or is given up.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::actor::Panicked;
use super::handler::Recover;
use super::reply::after_panic;

/// Makes the handler; `None` when it cannot make another.
pub(super) type Factory<H> = Box<dyn FnMut() -> Option<H> + Send>;

/// How a handler came out of it.
pub(super) enum Mended {
    /// The same goes on.
    Same,
    /// Another took its place and is to be initialized.
    Fresh,
    /// There is none any more.
    Lost,
}

/// Runs foreign code. Whatever it panics with has been reported by the panic hook already.
pub(super) fn catch<V>(call: impl FnOnce() -> V) -> Result<V, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        // It may be of the kind that panics when dropped. The second one is let be.
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
