//! Atomic batches: stages (keeps in memory) the messages of a batch until one of them commits the batch. Then
//! the caller gets all messages of the batch, and proposes them in one log entry, so that the stream stores
//! all of them or none.
//!
//! ```text
//! (none) --seq 1--> open --seq n+1--> open --commit--> handed out
//!                     |
//!                     +-- a gap, too large, silent for 10 s --> abandoned, with an advisory
//! ```
//!
//! This module owns the sequence of messages in a batch, the limits and the staging. The state machine of the
//! stream decides whether the stream may store the messages (duplicates, expected sequences, limits of the
//! stream), for all of them at once, when it applies the entry. This module sends no answers: [`Staged`]
//! tells the caller the answer.

use std::collections::HashMap;
use std::ops::Range;

use tidegate::Time;
use tidegate_nats::headers;

use super::idle::Idle;
use super::{ID_BYTES_MAX, Incoming};
use crate::schema::config::StreamConfig;
use crate::schema::error::ApiError;
use crate::schema::level;
use crate::schema::number::StreamNumber;

const BATCH_ID: &[u8] = b"Nats-Batch-Id";
const BATCH_SEQUENCE: &[u8] = b"Nats-Batch-Sequence";
const BATCH_COMMIT: &[u8] = b"Nats-Batch-Commit";
/// The header line that marks the last message of an atomic batch, with the empty line that ends the header
/// block. The server adds it if the publisher committed the batch by another message.
const COMMIT_LINE: &[u8] = b"Nats-Batch-Commit: 1\r\n\r\n";
const EXPECTED_LAST_MSG_ID: &[u8] = b"Nats-Expected-Last-Msg-Id";

/// The limits on the open atomic batches of a server, which bound the memory that they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicLimits {
    /// The limit on the messages of one atomic batch. The server refuses a longer batch, as nats-server does.
    pub messages_max: u64,
    /// The limit on the messages of one atomic batch, in bytes, because the server proposes a batch in one
    /// log entry.
    pub batch_bytes_max: usize,
    /// The limit on the atomic batches that are open for one stream at a time, so that one stream's
    /// publishers do not use up the server's limit.
    pub per_stream_max: usize,
    /// The limit on the atomic batches that are open on the server at a time, which bounds their memory.
    pub open_max: usize,
    /// The limit on the messages that the server stages for all open atomic batches together, in bytes.
    pub bytes_max: usize,
}

impl Default for AtomicLimits {
    fn default() -> Self {
        Self {
            messages_max: 1000,
            batch_bytes_max: 64 << 20,
            per_stream_max: 50,
            open_max: 1000,
            bytes_max: 256 << 20,
        }
    }
}

/// Returns the id of the atomic batch to which a message belongs, from the message's header block; `None` if
/// the message belongs to no atomic batch, and the server proposes it at once.
#[must_use]
pub fn batch_id(block: &[u8]) -> Option<&[u8]> {
    headers::get(block, BATCH_ID).filter(|id| !id.is_empty())
}

/// All open atomic batches of a server, with the messages that have arrived and that wait for the rest of
/// their batches.
#[derive(Debug)]
pub struct Atomic {
    limits: AtomicLimits,
    /// The open batches by stream, and by id within a stream; a stream without open batches is not in the
    /// map, so that the map does not grow with old streams.
    open: HashMap<StreamNumber, HashMap<Box<[u8]>, Open>>,
    open_count: usize,
    bytes: usize,
    idle: Idle,
}

/// The result of handling a message of an atomic batch, which tells the caller the next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Staged {
    /// The message waits for the rest of its batch. If the message has a reply subject, the caller sends an
    /// empty answer there, so that the publisher knows of its arrival.
    Waiting,
    /// The batch is complete. The caller proposes the batch to the group, and answers the publisher after the
    /// group has applied it.
    Commit(AtomicBatch),
    /// The server refuses the message, and abandons the message's batch if the batch was open, because the
    /// stream must store all or none of it.
    Refused {
        /// The error with which the caller answers the publisher of the message, so that the publisher can
        /// correct the batch.
        error: ApiError,
        /// The abandoned batch, for which the caller publishes an advisory; `None` if no batch was open, or
        /// if the error calls for no advisory.
        abandoned: Option<Abandoned>,
    },
}

/// An atomic batch that the server has given up: the stream stores none of its messages. Operators learn of
/// it by an advisory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abandoned {
    /// The stream to which the publisher sent the abandoned batch. The advisory names it.
    pub stream: StreamNumber,
    /// The id of the abandoned batch, which the advisory states.
    pub id: Vec<u8>,
    /// The reason why the server gave the batch up, which the advisory states.
    pub reason: Reason,
}

/// The reason why the server gave an atomic batch up, as operators see it in the advisory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The publisher sent no message of the batch for 10 s, so the server frees the memory of the batch.
    Timeout,
    /// The batch exceeded a limit on its messages or bytes, so the server could not stage the rest.
    Large,
    /// A message of the batch did not arrive, or arrived out of order, so the batch can never be whole.
    Incomplete,
    /// The batch requires a feature that this server does not have, so the server cannot store it as the
    /// publisher wants.
    Unsupported,
}

impl Reason {
    /// Returns the reason as the advisory about an abandoned batch spells it, in the words of nats-server.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Large => "large",
            Self::Incomplete => "incomplete",
            Self::Unsupported => "unsupported",
        }
    }
}

/// A complete atomic batch, which the caller proposes in one log entry, so that the stream stores all of it
/// or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicBatch {
    /// The number of the stream to which the publisher sent the batch.
    pub stream: StreamNumber,
    /// The id of the batch, which the answer to the publisher names.
    pub id: Vec<u8>,
    messages: Messages,
}

impl AtomicBatch {
    /// Returns the number of messages in the batch, at least one, for the command that makes them atomic.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.messages.spans.len())
            .expect("a batch in memory has fewer than 2^32 messages")
    }

    /// Returns whether the batch has no messages, which is never true of a complete batch. The method
    /// accompanies [`AtomicBatch::len`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.spans.is_empty()
    }

    /// Returns the size of the batch's messages in bytes, with subjects, headers and payloads, for the limits
    /// of the account.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.messages.bytes.len()
    }

    /// Iterates over the messages of the batch in order: subject, header block (`None` without headers) and
    /// payload of each. The caller writes them into one log entry.
    pub fn messages(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>, &[u8])> {
        self.messages.iter()
    }
}

impl Atomic {
    /// Creates the state of a server that has no open atomic batch, with the limits that the server sets.
    #[must_use]
    pub fn new(limits: AtomicLimits) -> Self {
        Self {
            limits,
            open: HashMap::new(),
            open_count: 0,
            bytes: 0,
            idle: Idle::default(),
        }
    }

    /// Handles a message that belongs to the atomic batch `id` of a stream with this configuration: stages
    /// it, commits the batch, or refuses it.
    pub fn handle_message(
        &mut self,
        now: Time,
        stream: StreamNumber,
        config: &StreamConfig,
        id: &[u8],
        message: &Incoming<'_>,
    ) -> Staged {
        self.stage(now, stream, config, id, message)
            .unwrap_or_else(|(error, reason)| {
                let was_open = self.remove(stream, id).is_some();
                Staged::Refused {
                    error,
                    abandoned: reason.filter(|_| was_open).map(|reason| Abandoned {
                        stream,
                        id: id.to_vec(),
                        reason,
                    }),
                }
            })
    }

    /// Forgets the open batches of a stream that a client has deleted, or that no longer accepts atomic
    /// batches, because the stream could never store them.
    pub fn handle_stream_gone(&mut self, stream: StreamNumber) {
        for batch in self.open.remove(&stream).into_iter().flatten() {
            self.open_count -= 1;
            self.bytes -= batch.1.messages.bytes.len();
        }
    }

    /// Abandons the batches for which no message has arrived for 10 s, and appends them to `abandoned`, so
    /// that the caller publishes an advisory for each.
    pub fn handle_timeouts(&mut self, now: Time, abandoned: &mut Vec<Abandoned>) {
        if !self.idle.is_due(now) {
            return;
        }
        let (mut oldest, before) = (None::<Time>, abandoned.len());
        for (&stream, batches) in &self.open {
            for (id, batch) in batches {
                if Idle::is_over(now, batch.heard) {
                    abandoned.push(Abandoned {
                        stream,
                        id: id.to_vec(),
                        reason: Reason::Timeout,
                    });
                } else {
                    oldest = Some(oldest.map_or(batch.heard, |at| at.min(batch.heard)));
                }
            }
        }
        for batch in &abandoned[before..] {
            self.remove(batch.stream, &batch.id);
        }
        abandoned[before..].sort_unstable_by(|a, b| (a.stream, &a.id).cmp(&(b.stream, &b.id)));
        self.idle.looked(now, oldest);
    }

    /// Returns the time at which to call [`Atomic::handle_timeouts`]; `None` if no batch is open.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.idle.deadline()
    }

    /// Returns the number of open atomic batches on the server, which its limit bounds.
    #[must_use]
    pub const fn open(&self) -> usize {
        self.open_count
    }

    /// Returns the size of the messages that the server has staged for open batches, in bytes, which its
    /// limit bounds.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn stage(
        &mut self,
        now: Time,
        stream: StreamNumber,
        config: &StreamConfig,
        id: &[u8],
        message: &Incoming<'_>,
    ) -> Result<Staged, (ApiError, Option<Reason>)> {
        let refuse = |error| Err((error, None));
        let incomplete = Err((ApiError::ATOMIC_INCOMPLETE, Some(Reason::Incomplete)));
        super::acceptable(config, message).map_err(|error| (error, None))?;
        if !config.allow_atomic {
            return refuse(ApiError::ATOMIC_DISABLED);
        }
        if id.len() > ID_BYTES_MAX {
            return refuse(ApiError::ATOMIC_INVALID_ID);
        }
        let Some(seq) = headers::get(message.headers, BATCH_SEQUENCE).and_then(super::number)
        else {
            return refuse(ApiError::ATOMIC_MISSING_SEQ);
        };
        let commit = headers::get(message.headers, BATCH_COMMIT);
        let eob = commit == Some(b"eob");
        // A message that only ends its batch (`eob`) does not count as a message of the batch, because the
        // stream does not store it.
        let len = seq - u64::from(eob && seq > 0);
        let too_large = (
            ApiError::atomic_too_large(self.limits.messages_max),
            Some(Reason::Large),
        );
        let Some(last) = self.last(stream, id) else {
            return self
                .start(now, stream, id, seq, len > self.limits.messages_max)
                .and_then(|()| self.stage(now, stream, config, id, message));
        };
        if commit.is_some_and(|commit| commit != b"1" && !eob) {
            return refuse(ApiError::ATOMIC_INVALID_COMMIT);
        }
        if !level::suffices(message.headers) {
            return Err((ApiError::REQUIRED_API_LEVEL, Some(Reason::Unsupported)));
        }
        if seq != last + 1 || (eob && last == 0) {
            return incomplete;
        }
        if len > self.limits.messages_max {
            return Err(too_large);
        }
        if !eob {
            self.push(now, stream, id, message)?;
        }
        if commit.is_none() {
            return Ok(Staged::Waiting);
        }
        let Some(mut batch) = self.remove(stream, id) else {
            return incomplete;
        };
        if batch.expects_id {
            let header = String::from_utf8_lossy(EXPECTED_LAST_MSG_ID);
            return refuse(ApiError::atomic_unsupported_header(header));
        }
        if eob {
            batch.messages.mark_last();
        }
        Ok(Staged::Commit(AtomicBatch {
            stream,
            id: id.to_vec(),
            messages: batch.messages,
        }))
    }

    /// Returns the number, in the batch, of the last message that the server has staged; `None` if no batch
    /// with this id is open. The next message must have the number after it.
    fn last(&self, stream: StreamNumber, id: &[u8]) -> Option<u64> {
        let batch = self.open.get(&stream)?.get(id)?;
        Some(batch.messages.spans.len() as u64)
    }

    fn start(
        &mut self,
        now: Time,
        stream: StreamNumber,
        id: &[u8],
        seq: u64,
        too_large: bool,
    ) -> Result<(), (ApiError, Option<Reason>)> {
        if seq != 1 {
            let error = if too_large {
                ApiError::atomic_too_large(self.limits.messages_max)
            } else {
                ApiError::ATOMIC_INCOMPLETE
            };
            return Err((error, None));
        }
        let of_stream = self.open.get(&stream).map_or(0, HashMap::len);
        if of_stream >= self.limits.per_stream_max || self.open_count >= self.limits.open_max {
            return Err((ApiError::ATOMIC_TOO_MANY, None));
        }
        let batch = Open {
            messages: Messages::default(),
            heard: now,
            expects_id: false,
        };
        self.open
            .entry(stream)
            .or_default()
            .insert(id.into(), batch);
        self.open_count += 1;
        self.idle.watch(now);
        Ok(())
    }

    fn push(
        &mut self,
        now: Time,
        stream: StreamNumber,
        id: &[u8],
        message: &Incoming<'_>,
    ) -> Result<(), (ApiError, Option<Reason>)> {
        let satisfied = level::satisfied(message.headers);
        let block = satisfied.as_deref().unwrap_or(message.headers);
        let bytes = message.subject.len() + block.len() + message.payload.len();
        let limits = self.limits;
        let batch = self
            .open
            .get_mut(&stream)
            .and_then(|batches| batches.get_mut(id));
        let Some(batch) = batch else {
            return Err((ApiError::ATOMIC_INCOMPLETE, None));
        };
        if batch.messages.bytes.len() + bytes > limits.batch_bytes_max {
            let most = format!("at most {} bytes", limits.batch_bytes_max);
            return Err((ApiError::atomic_too_large(most), Some(Reason::Large)));
        }
        if self.bytes + bytes > limits.bytes_max {
            return Err((ApiError::ATOMIC_TOO_MANY, Some(Reason::Large)));
        }
        batch.heard = now;
        batch.expects_id |= headers::get(block, EXPECTED_LAST_MSG_ID).is_some();
        batch.messages.push(message.subject, block, message.payload);
        self.bytes += bytes;
        Ok(())
    }

    fn remove(&mut self, stream: StreamNumber, id: &[u8]) -> Option<Open> {
        let batches = self.open.get_mut(&stream)?;
        let batch = batches.remove(id)?;
        if batches.is_empty() {
            self.open.remove(&stream);
        }
        self.open_count -= 1;
        self.bytes -= batch.messages.bytes.len();
        Some(batch)
    }

    /// Panics if an invariant of the open batches does not hold. Tests call this after every step of a batch.
    #[cfg(test)]
    fn check_invariants(&self) {
        let batches = || self.open.values().flat_map(HashMap::values);
        assert_eq!(self.open_count, batches().count());
        let staged: usize = batches().map(|b| b.messages.bytes.len()).sum();
        assert_eq!(self.bytes, staged);
        assert!(self.open_count <= self.limits.open_max && self.bytes <= self.limits.bytes_max);
        assert!(
            self.open
                .values()
                .all(|b| !b.is_empty() && b.len() <= self.limits.per_stream_max)
        );
        assert!(batches().all(|b| b.messages.spans.len() as u64 <= self.limits.messages_max));
    }
}

/// An open atomic batch: some of its messages have arrived, and the server waits for the others.
#[derive(Debug)]
struct Open {
    messages: Messages,
    /// The time at which the latest message of the batch arrived. After 10 s without another the server
    /// abandons the batch.
    heard: Time,
    /// True if a message of the batch names the expected id of the message before it
    /// (`Nats-Expected-Last-Msg-Id`), which batches do not support, so the server refuses the batch at its
    /// commit.
    expects_id: bool,
}

/// The messages of an atomic batch, one after the other in one buffer, so that staging costs no allocation
/// for each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Messages {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// The start of a message in the buffer of its batch, and the lengths of the message's parts, in bytes, by
/// which the batch finds the message again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    subject_len: usize,
    headers_len: usize,
    payload_len: usize,
}

impl Messages {
    fn push(&mut self, subject: &[u8], block: &[u8], payload: &[u8]) {
        self.spans.push(Span {
            start: self.bytes.len(),
            subject_len: subject.len(),
            headers_len: block.len(),
            payload_len: payload.len(),
        });
        self.bytes.extend_from_slice(subject);
        self.bytes.extend_from_slice(block);
        self.bytes.extend_from_slice(payload);
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>, &[u8])> {
        self.spans.iter().map(|span| {
            let (subject, block, payload) = span.parts();
            let block = Some(&self.bytes[block]).filter(|block| !block.is_empty());
            (&self.bytes[subject], block, &self.bytes[payload])
        })
    }

    /// Adds the header that commits a batch to the batch's last message, as if the publisher had sent the
    /// message with this header. nats-server stores it in this form too.
    fn mark_last(&mut self) {
        let Some(span) = self.spans.last_mut() else {
            return;
        };
        let (_, block, _) = span.parts();
        if let Some(open) = self.bytes[block.clone()].strip_suffix(b"\r\n") {
            let end = block.start + open.len();
            let grown = COMMIT_LINE.len() - (block.end - end);
            self.bytes
                .splice(end..block.end, COMMIT_LINE.iter().copied());
            span.headers_len += grown;
        }
    }
}

impl Span {
    const fn parts(self) -> (Range<usize>, Range<usize>, Range<usize>) {
        let block = self.start + self.subject_len;
        let payload = block + self.headers_len;
        (
            self.start..block,
            block..payload,
            payload..payload + self.payload_len,
        )
    }
}

#[cfg(test)]
mod tests;
