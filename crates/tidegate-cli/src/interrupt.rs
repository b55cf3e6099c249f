//! Ctrl-C and SIGTERM: the first one asks the command to stop and to print its results, the second one ends
//! the process.
//!
//! Every command listens to Ctrl-C, except for those that have nothing to finish: they keep the system's
//! default action. The client commands listen to SIGTERM, too; a server gives SIGTERM a meaning of its own.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code that a shell expects of a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes the first Ctrl-C set a flag instead of ending the process.
pub fn listen() -> std::io::Result<()> {
    let flag = Arc::clone(ASKED.get_or_init(Arc::default));
    // The order matters: the second Ctrl-C must find the flag set.
    signal_hook::flag::register_conditional_shutdown(
        signal_hook::consts::SIGINT,
        i32::from(EXIT_CODE),
        Arc::clone(&flag),
    )?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, flag)?;
    Ok(())
}

/// Returns whether Ctrl-C was pressed, or SIGTERM came to a command that listens to it.
#[inline]
pub fn asked() -> bool {
    ASKED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
