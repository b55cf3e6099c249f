//! Follows the batches of messages that publishers send: keeps the state of each batch until the stream has
//! stored it, as pure code that uses no clock, no socket and no file. Times, messages and outcomes go in;
//! proposals and answers come out.
//!
//! [`Atomic`] stages batches that the stream stores completely or not at all. [`Fast`] follows batches with
//! messages that the stream stores as they arrive; the server acknowledges these messages together, as often
//! as an engine controller allows.
//!
//! The log does not keep this state. After a restart the server knows no batch, and answers further messages
//! of a batch with the error for an unknown batch. The stream still has all acknowledged messages.

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

/// A published message that belongs to an atomic or fast-ingest batch, as the server received it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The subject to which the publisher sent the message.
    pub subject: &'a [u8],
    /// The subject to which the publisher wants an answer to this message; empty if the publisher wants no
    /// answer.
    pub reply: &'a [u8],
    /// The message's complete header block; empty if the message has no headers. It may name the batch.
    pub headers: &'a [u8],
    /// The payload of the message, as the publisher sent it.
    pub payload: &'a [u8],
}

/// The limit on the id of a batch, in bytes. The server refuses a longer id, as nats-server does.
const ID_BYTES_MAX: usize = 64;

/// The time after which the server abandons a batch if no message of the batch has arrived, because its
/// publisher has probably gone.
const IDLE: std::time::Duration = std::time::Duration::from_secs(10);

/// Checks a message by the rules that hold for all batches, atomic and fast-ingest ones: the stream is not
/// sealed, and the message is not too large. Returns the error that the publisher gets.
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

/// Parses a number that consists only of decimal digits; `None` for any other text, which the server refuses
/// as a number of a batch.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
