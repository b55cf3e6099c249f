//! Batches of messages that publishers send: the state of each batch until the stream stores it, as pure
//! code.
//!
//! [`Atomic`] stages batches that the stream stores completely or not at all. [`Fast`] follows batches with
//! messages that the stream stores as they arrive; the server acknowledges them together, as often as an
//! engine controller allows. Times, messages and outcomes go in; proposals and answers come out. No clock, no
//! socket, no file.
//!
//! The log does not keep this state. After a restart the server knows no batch, and answers further messages
//! of a batch with that error. The stream still has all acknowledged messages.

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
    /// The message's subject.
    pub subject: &'a [u8],
    /// The message's reply subject; may be empty.
    pub reply: &'a [u8],
    /// The message's complete header block; empty without headers.
    pub headers: &'a [u8],
    /// The message's payload.
    pub payload: &'a [u8],
}

/// The most bytes of a batch's id.
const ID_BYTES_MAX: usize = 64;

/// The time after which the server abandons a silent batch.
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Checks the rules that hold for the messages of all batches, atomic and fast-ingest ones.
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

/// Parses a number that consists only of decimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
