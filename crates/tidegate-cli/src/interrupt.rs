//! Ctrl-C: asked for once, everything stops where it stands and says what it has; asked for twice, it is
//! over.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell expects of a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the first Ctrl-C only sets the flag.
pub fn listen() -> std::io::Result<()> {
    let flag = Arc::clone(ASKED.get_or_init(Arc::default));
    // In this order: the second Ctrl-C finds the flag set.
    signal_hook::flag::register_conditional_shutdown(
        signal_hook::consts::SIGINT,
        i32::from(EXIT_CODE),
        Arc::clone(&flag),
    )?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, flag)?;
    Ok(())
}

/// Returns whether Ctrl-C was pressed.
#[inline]
pub fn asked() -> bool {
    ASKED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}
