//! Batches of messages as publishers send them: what holds a batch together until it is stored, as pure code.
//!
//! [`Atomic`] gathers batches that are stored whole or not at all; [`Fast`] follows batches whose messages
//! are stored as they come and acknowledged together, as often as an engine controller lets them be. Times,
//! messages and outcomes in; what to propose and what to answer out. No clock, no socket, no file.
//!
//! Neither is in the log: after a restart every batch is unknown, and its publisher is told so. What was
//! acknowledged is stored.

mod advisory;
mod answer;
mod atomic;
mod fast;
mod idle;
mod pacing;
mod reply;

pub use answer::{Answer, What};
pub use atomic::{Abandoned, Atomic, AtomicBatch, AtomicLimits, Reason, Staged, batch_id};
pub use fast::{Fast, FastLimits, Held, Persisted, Ticket, Verdict};
pub use reply::{Control, Op, PatternError, control};

use crate::api::config::StreamConfig;
use crate::api::error::ApiError;

/// A message that belongs to a batch.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its subject.
    pub subject: &'a [u8],
    /// Where answers go; may be empty.
    pub reply: &'a [u8],
    /// Its header block, whole, or nothing.
    pub headers: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// The most bytes of a batch's id.
const ID_BYTES_MAX: usize = 64;

/// How long a batch may be silent.
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// What a message of any batch must be.
fn acceptable(config: &StreamConfig, message: &Incoming<'_>) -> Result<(), ApiError> {
    if config.sealed {
        return Err(ApiError::STREAM_SEALED);
    }
    let bytes = message.headers.len() + message.payload.len();
    if usize::try_from(config.max_msg_size).is_ok_and(|max| max > 0 && bytes > max) {
        return Err(ApiError::MESSAGE_TOO_LARGE);
    }
    Ok(())
}

/// A number in decimal digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
