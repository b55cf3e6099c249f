//! Handles Ctrl-C and SIGTERM: at the first signal the command stops and prints its results, and the second
//! signal ends the process.
//!
//! Every command listens to Ctrl-C, except for commands that have nothing to finish: the system ends these at
//! once. The client commands listen to SIGTERM, too. A server gives SIGTERM a meaning of its own.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// The exit code that a shell expects of a program ended by Ctrl-C.
pub const EXIT_CODE: u8 = 130;
/// The exit code that a shell expects of a program ended by SIGTERM.
const TERMINATED: u8 = 143;

static ASKED: OnceLock<Asked> = OnceLock::new();

/// The user's request to stop the command: a flag that the first signal sets, and the exit code for the
/// shell.
#[derive(Default)]
struct Asked {
    flag: Arc<AtomicBool>,
    /// The exit code that belongs to the signal that set the flag, with which the program ends.
    code: Arc<AtomicUsize>,
}

/// The error of work that Ctrl-C or SIGTERM ended early. The program chooses its exit code by this error, see
/// [`exit_code`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Makes the first Ctrl-C set a flag instead of ending the process, so that the command can print its
/// results.
pub fn listen() -> std::io::Result<()> {
    listen_to(SIGINT, EXIT_CODE)
}

/// Makes the first SIGTERM set the flag, too, instead of ending the process, so that the command ends
/// cleanly.
pub(crate) fn listen_to_term() -> std::io::Result<()> {
    listen_to(SIGTERM, TERMINATED)
}

fn listen_to(signal: i32, code: u8) -> std::io::Result<()> {
    let asked = ASKED.get_or_init(Asked::default);
    let flag = Arc::clone(&asked.flag);
    // The order matters: a second signal must find the flag set, and a reader of the flag must find the code.
    signal_hook::flag::register_conditional_shutdown(signal, i32::from(code), Arc::clone(&flag))?;
    signal_hook::flag::register_usize(signal, Arc::clone(&asked.code), code.into())?;
    signal_hook::flag::register(signal, flag)?;
    Ok(())
}

/// Returns whether the user pressed Ctrl-C, or SIGTERM came to a command that listens to it. The command then
/// stops.
#[inline]
pub fn asked() -> bool {
    ASKED
        .get()
        .is_some_and(|asked| asked.flag.load(Ordering::Relaxed))
}

/// Returns success, or after Ctrl-C or SIGTERM the exit code that a shell expects after the signal.
pub fn exit_code() -> ExitCode {
    match ASKED.get() {
        // The handler stores the code before it sets the flag.
        Some(asked) if asked.flag.load(Ordering::SeqCst) => {
            let code = asked.code.load(Ordering::SeqCst);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_CODE))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns whether Ctrl-C or SIGTERM ended the work that failed with `error`, which decides the exit code.
pub(crate) fn caused(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        // An error of a read or a write does not name the error inside as its cause.
        let io = cause.downcast_ref().and_then(std::io::Error::get_ref);
        cause.is::<Interrupted>() || io.is_some_and(|inner| inner.is::<Interrupted>())
    })
}

/// Returns an error if Ctrl-C or SIGTERM asked the command to stop, so that the caller ends its work.
pub(crate) fn check() -> Result<(), Interrupted> {
    match asked() {
        true => Err(Interrupted),
        false => Ok(()),
    }
}
