//! Batches of messages as publishers send them: the state of each batch until it is stored, as pure code.
//!
//! [`Atomic`] stages batches that the stream stores completely or not at all. [`Fast`] follows batches with
//! messages that the stream stores as they arrive; the server acknowledges them together, as often as an
//! engine controller allows. Times, messages and outcomes go in; proposals and answers come out. No clock, no
//! socket, no file.
//!
//! The log keeps the state of neither: after a restart the server knows no batch, and says so to the
//! publisher of each. Acknowledged messages are stored.

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

use crate::schema::config::StreamConfig;
use crate::schema::error::ApiError;

/// A message that belongs to a batch.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Its subject.
    pub subject: &'a [u8],
    /// The subject for answers; may be empty.
    pub reply: &'a [u8],
    /// The complete header block, or nothing.
    pub headers: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// The most bytes of a batch's id.
const ID_BYTES_MAX: usize = 64;

/// The time after which the server abandons a silent batch.
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Checks the rules for a message of any batch.
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

/// Reads a number of decimal digits and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
