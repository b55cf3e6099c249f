//! The admission of messages: checks a published message against its stream's configuration and content,
//! before the stream stores it.
//!
//! The order of the checks, by which a publisher gets the error that nats-server gives, is: sealed, expected
//! stream, time to live, duplicate, last id, size, last number, last number of the subject, roll-up, limits.
//! The checks do not change the stream. For a message of an atomic batch, the checks use the stream as it was
//! before the batch, and the earlier messages of the batch ([`Stage`]).

use std::collections::{HashMap, HashSet};

use tidegate_nats::subject;

use super::block::Flags;
use super::command::Command;
use super::headers::{Asked, Ttl, number};
use super::single::{Stream, counted_bytes, lifetime};
use crate::convert::saturating_u32;
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// The limit on the headers of a published message, in bytes. The stream refuses longer headers, as
/// nats-server does.
const HEADERS_BYTES_MAX: usize = 65_535;

/// The data of a published message that passed all checks: with these data the stream stores the message and
/// needs no second look at the headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted<'a> {
    pub(super) bytes: u32,
    pub(super) flags: Flags,
    pub(super) due_us: u64,
    pub(super) msg_id: Option<&'a [u8]>,
    pub(super) rollup: Rollup,
}

/// The older messages that the stream removes when it stores a message with the header `Nats-Rollup`, as the
/// publisher asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rollup {
    #[default]
    None,
    /// The stream removes the older messages of the message's subject.
    Subject,
    /// The subject of the message is a pattern with wildcards. The stream removes the older messages of all
    /// subjects that the pattern matches, and those published to the pattern itself.
    Matching,
    All,
}

/// The reason why a stream does not store a published message: it is a duplicate, or a check failed. The
/// leader tells it to the publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Duplicate(StreamSeq),
    Error(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

/// The counts and ids of the messages of an atomic batch that have passed the checks so far, for the checks
/// of the batch's next message.
#[derive(Debug, Default)]
pub(super) struct Stage<'a> {
    ids: HashSet<&'a [u8]>,
    subjects: HashMap<&'a [u8], u64>,
    messages: u64,
    /// The number (`kept`) and the size (`bytes`) of the batch's messages that the stream will keep, for the
    /// check of its limits. A stream by interest keeps no message without a consumer.
    kept: u64,
    bytes: u64,
}

impl Stream {
    /// Checks whether the stream accepts a published message in the stream's present state. `stage` holds the
    /// earlier messages of an atomic batch, and gets this message, too, for the checks of the next one.
    #[inline]
    pub(super) fn check<'a>(
        &mut self,
        command: &Command<'a>,
        now: u64,
        stage: Option<&mut Stage<'a>>,
    ) -> Result<Accepted<'a>, Refusal> {
        if self.config.sealed {
            return Err(ApiError::STREAM_SEALED.into());
        }
        let bytes = counted_bytes(command);
        let mut accepted = Accepted {
            // The conversion of the size loses nothing for a message that the stream stores: the check of the
            // size refuses a message of more than 512 MiB. For a larger message the conversion need not be
            // exact.
            bytes: saturating_u32(bytes),
            flags: Flags::default(),
            due_us: 0,
            msg_id: None,
            rollup: Rollup::None,
        };
        match command.headers {
            Some(headers) if !headers.is_empty() => {
                let asked = Asked::read(headers);
                self.check_headers(command, &asked, now, stage.as_deref(), &mut accepted)?;
            }
            _ => self.check_size(command)?,
        }
        let ahead = stage.as_deref().map_or(0, |stage| stage.messages);
        let seq = self.content.last_seq.next().after(ahead);
        let keeps = !self.limits.discard_new || !self.is_without_interest(seq, command.subject);
        if self.limits.discard_new && keeps {
            self.check_room(command, bytes, accepted.rollup, stage.as_deref())?;
        }
        if let Some(stage) = stage {
            stage.ids.extend(accepted.msg_id);
            *stage.subjects.entry(command.subject).or_default() += 1;
            stage.messages += 1;
            if keeps {
                stage.kept += 1;
                stage.bytes += bytes;
            }
        }
        Ok(accepted)
    }

    pub(super) fn check_size(&self, command: &Command<'_>) -> Result<(), ApiError> {
        let headers = command.headers.map_or(0, <[u8]>::len);
        if (headers + command.payload.len()) as u64 > self.limits.message_bytes {
            return Err(ApiError::MESSAGE_TOO_LARGE);
        }
        // The index has room for a size of up to 512 MiB, so the stream refuses a message that is larger with
        // its subject and overhead. No message that a client can send comes near this limit.
        if counted_bytes(command) > super::block::MESSAGE_BYTES_MAX.into() {
            return Err(ApiError::MESSAGE_TOO_LARGE);
        }
        if headers > HEADERS_BYTES_MAX {
            return Err(ApiError::HEADERS_TOO_LARGE);
        }
        Ok(())
    }

    fn check_headers<'a>(
        &mut self,
        command: &Command<'a>,
        asked: &Asked<'a>,
        now: u64,
        stage: Option<&Stage<'a>>,
        accepted: &mut Accepted<'a>,
    ) -> Result<(), Refusal> {
        if asked
            .expected_stream
            .is_some_and(|name| name != self.config.name.as_bytes())
        {
            return Err(ApiError::EXPECTED_STREAM.into());
        }
        if asked.incr.is_some() {
            return Err(ApiError::COUNTER_DISABLED.into());
        }
        if asked.schedule.is_some() {
            return Err(ApiError::SCHEDULES_DISABLED.into());
        }
        if let Some(ttl) = asked.ttl {
            let ttl = Ttl::read(ttl);
            if !self.config.allow_msg_ttl && ttl != Some(Ttl::Unset) {
                return Err(ApiError::MESSAGE_TTL_DISABLED.into());
            }
            let ttl = ttl.ok_or(ApiError::MESSAGE_TTL_INVALID)?;
            (accepted.flags, accepted.due_us) = lifetime(ttl, &self.limits, now);
        }
        if asked.is_marker() {
            accepted.flags = accepted.flags.with(Flags::MARKER);
        }
        if let Some(id) = asked.msg_id {
            self.check_duplicate(id, now, stage)?;
            accepted.msg_id = Some(id);
        }
        if let Some(id) = asked.expected_last_msg_id
            && *id != *self.last_msg_id
        {
            let last = String::from_utf8_lossy(&self.last_msg_id);
            return Err(ApiError::wrong_last_msg_id(last).into());
        }
        self.check_size(command)?;
        self.check_expected(command, asked, stage)?;
        accepted.rollup = self.check_rollup(command, asked, stage)?;
        Ok(())
    }

    pub(super) fn check_duplicate(
        &mut self,
        id: &[u8],
        now: u64,
        stage: Option<&Stage<'_>>,
    ) -> Result<(), Refusal> {
        self.dedup
            .forget_before(now.saturating_sub(self.limits.dedup_us));
        if self.limits.dedup_us == 0 {
            return Ok(());
        }
        let found = self.dedup.find(id);
        match (stage, found) {
            (None, None) => Ok(()),
            (None, Some(seq)) => Err(Refusal::Duplicate(seq)),
            (Some(stage), None) if !stage.ids.contains(id) => Ok(()),
            (Some(_), _) => Err(ApiError::ATOMIC_DUPLICATE.into()),
        }
    }

    fn check_expected(
        &mut self,
        command: &Command<'_>,
        asked: &Asked<'_>,
        stage: Option<&Stage<'_>>,
    ) -> Result<(), ApiError> {
        if let Some(expected) = asked.expected_last_seq {
            if stage.is_some_and(|s| s.messages > 0) {
                return Err(ApiError::WRONG_LAST_SEQUENCE_UNKNOWN);
            }
            if number(expected) != Some(self.content.last_seq.get()) {
                return Err(ApiError::wrong_last_sequence(self.content.last_seq));
            }
        }
        let Some(expected) = asked.expected_last_subject_seq else {
            return match asked.expected_subject {
                Some(_) => Err(ApiError::MISSING_SEQ_FOR_SUBJECT),
                None => Ok(()),
            };
        };
        let subject = asked.expected_subject.unwrap_or(command.subject);
        if stage.is_some_and(|s| s.subjects.contains_key(subject)) {
            return Err(ApiError::WRONG_LAST_SEQUENCE_UNKNOWN);
        }
        let last = match self.content.subjects.find(subject) {
            Some(id) => self.content.last_of_mut(id),
            None if asked.expected_subject.is_some() => self.content.last_expected(subject),
            None => None,
        };
        let last = last.unwrap_or_default();
        if number(expected) != Some(last.get()) {
            return Err(ApiError::wrong_last_sequence(last));
        }
        Ok(())
    }

    pub(super) fn check_rollup(
        &self,
        command: &Command<'_>,
        asked: &Asked<'_>,
        stage: Option<&Stage<'_>>,
    ) -> Result<Rollup, ApiError> {
        let Some(rollup) = asked.rollup else {
            return Ok(Rollup::None);
        };
        if !self.config.allow_rollup_hdrs || self.config.deny_purge {
            return Err(ApiError::rollup_failed("rollup not permitted"));
        }
        match rollup.to_ascii_lowercase().as_slice() {
            b"sub" if stage.is_some_and(|s| s.subjects.contains_key(command.subject)) => {
                Err(ApiError::rollup_failed("batch rollup sub invalid"))
            }
            // The roll-up of a message that a client publishes to a pattern replaces the messages of all
            // matching subjects: clients of key-value buckets purge all keys that match a pattern in this
            // way.
            b"sub" if subject::has_wildcard(command.subject) => Ok(Rollup::Matching),
            b"sub" => Ok(Rollup::Subject),
            b"all" if stage.is_some_and(|s| s.messages > 0) => {
                Err(ApiError::rollup_failed("batch rollup all invalid"))
            }
            b"all" => Ok(Rollup::All),
            _ => Err(ApiError::rollup_failed(format_args!(
                "rollup value invalid: {:?}",
                String::from_utf8_lossy(rollup)
            ))),
        }
    }

    /// Checks that a stream with [`Discard::New`](crate::schema::config::Discard::New), which refuses new
    /// messages at a limit, has room for this message. Otherwise the publisher gets an error.
    pub(super) fn check_room(
        &mut self,
        command: &Command<'_>,
        bytes: u64,
        rollup: Rollup,
        stage: Option<&Stage<'_>>,
    ) -> Result<(), ApiError> {
        let limits = self.limits;
        let staged = |of: fn(&Stage<'_>) -> u64| stage.map_or(0, of);
        let mut replaced = 0;
        if limits.per_subject != u64::MAX {
            let id = self.content.subjects.find(command.subject);
            let count = id.map_or(0, |id| u64::from(self.content.subjects.stat(id).count));
            let in_batch = stage.and_then(|s| s.subjects.get(command.subject));
            if count + in_batch.copied().unwrap_or(0) >= limits.per_subject {
                if self.config.discard_new_per_subject && rollup == Rollup::None {
                    return Err(ApiError::store_failed(
                        "maximum messages per subject exceeded",
                    ));
                }
                // The oldest message of the subject makes room for the new message, so its bytes count as
                // free. For a message of an atomic batch, the check does not know yet which message the
                // stream will remove.
                let oldest = match (stage, id) {
                    (None, Some(id)) => self.content.first_of(id),
                    _ => None,
                };
                let oldest = oldest.and_then(|seq| self.content.index.get(seq));
                replaced = oldest.map_or(0, |slot| slot.bytes.into());
            }
        }
        let content = &self.content;
        if content.messages + staged(|s| s.kept) >= limits.messages && replaced == 0 {
            return Err(ApiError::store_failed("maximum messages exceeded"));
        }
        let total = content.bytes + staged(|s| s.bytes) + bytes;
        if total > limits.bytes && replaced < bytes {
            return Err(ApiError::store_failed("maximum bytes exceeded"));
        }
        Ok(())
    }
}
