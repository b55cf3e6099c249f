//! Restores a stream from a backup: adds messages with their own numbers and times, and consumers with their
//! states, to a stream that serves no client before it is complete ([`Transit::Restoring`]).
//!
//! The group's leader reads the backup and proposes it in parts. Each part has a number, and the stream
//! refuses any part but the next one, so it takes no part twice and leaves no part out. The last part ends
//! the restoration: the stream then keeps its limits, and serves clients. If the backup is damaged, or the
//! group changes its leader while it reads the backup, the group deletes the stream.
//!
//! ```text
//! part  number u64 | count of messages u32 | of each message number u64, time u64
//!       | count of removed messages u32 | of each message number u64
//!       | count of consumers u32 | of each name u32 and bytes, made at u64, configuration u32 and JSON,
//!         state u32 and bytes
//!       | ends u8: 0, or 1 followed by made at u64 (0 unknown), first number u64, last number u64,
//!         last time u64
//!       the messages follow as publishes
//! ```

use std::sync::Arc;

use super::block::{Flags, MESSAGE_BYTES_MAX, Slot};
use super::command::{Command, Commands, EntryError, Kind, Place};
use super::consumers::StreamConsumer;
use super::headers::{Asked, Ttl};
use super::moving::Transit;
use super::outcome::Effect;
use super::shared::SharedConfig;
use super::single::{Stream, counted_bytes, lifetime};
use super::wire::{Reader, RestoreError, SEQ_MAX, put_u32, put_u64};
use crate::consumer::restored::Progress;
use crate::consumer::{State, rules};
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

/// The limit on the messages of a part, and on its removals, so that one part does not take long to apply.
const ROWS_MAX: usize = 1 << 16;

/// A part of a backup, which the leader gathers from a client's backup and proposes to the group.
#[derive(Debug, Default)]
pub struct RestorePart {
    messages: Vec<Message>,
    removed: Vec<StreamSeq>,
    consumers: Vec<(String, StreamConsumer)>,
    end: Option<RestoreEnd>,
    bytes: usize,
}

/// A message of the backup, as the part holds it until the leader proposes the part.
#[derive(Debug)]
struct Message {
    seq: StreamSeq,
    time_us: u64,
    subject: Vec<u8>,
    headers: Vec<u8>,
    payload: Vec<u8>,
}

/// The facts about a restored stream with which its last part ends. The messages alone do not determine these
/// facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreEnd {
    /// The time at which a client created the stream that the backup holds, in microseconds since 1970; 0 if
    /// the backup lacks it.
    pub created_us: u64,
    /// The number of the stream's first message; in an empty stream, the number after the last one. The
    /// restored stream has no message below it.
    pub first_seq: StreamSeq,
    /// The number of the last message that the stream ever stored, even if it has removed that message. The
    /// restored stream continues behind it.
    pub last_seq: StreamSeq,
    /// The time at which the stream stored its last message, in microseconds since 1970. The restored stream
    /// reports it to clients.
    pub last_time_us: u64,
}

impl RestorePart {
    /// Adds a message that has this number, and that its stream stored at `time_us`, in microseconds since
    /// 1970. For a message without headers, the header block is empty. The restored stream keeps the number
    /// and the time.
    pub fn message(
        &mut self,
        seq: StreamSeq,
        time_us: u64,
        subject: Vec<u8>,
        headers: Vec<u8>,
        payload: Vec<u8>,
    ) {
        self.bytes += subject.len() + headers.len() + payload.len() + 64;
        self.messages.push(Message {
            seq,
            time_us,
            subject,
            headers,
            payload,
        });
    }

    /// Adds the number of a message that the stream has removed, although the backup holds it. The restored
    /// stream removes the message too.
    pub fn removed(&mut self, seq: StreamSeq) {
        self.bytes += 8;
        self.removed.push(seq);
    }

    /// Adds a consumer of a stream with this configuration. The backup says that a client created the
    /// consumer at `created_us`, in microseconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns an error if this server does not support the consumer's configuration, and the restoration
    /// fails.
    pub fn consumer(
        &mut self,
        stream: &StreamConfig,
        (name, created_us): (String, u64),
        mut config: Box<ConsumerConfig>,
        progress: &Progress,
    ) -> Result<(), ApiError> {
        rules::set_defaults(&mut config, stream);
        if config.num_replicas != stream.num_replicas {
            // A consumer has the replicas of its stream. The client may restore the stream with another
            // number of replicas, so the part leaves out the consumer's number.
            config.num_replicas = 0;
        }
        rules::check(&config, stream)?;
        let state = State::restored(progress, &config);
        self.bytes += 1024 + state.pending().len() * 16;
        let consumer = StreamConsumer {
            config: SharedConfig::new(&name, *config),
            created_us,
            state: Arc::new(state),
        };
        self.consumers.push((name, consumer));
        Ok(())
    }

    /// Makes this part the last one, with which the stream's restoration ends.
    pub const fn end(&mut self, end: RestoreEnd) {
        self.end = Some(end);
    }

    /// Returns about how many bytes the part takes in an entry, so that the leader proposes the part before
    /// it is too large.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the part holds nothing, so that the leader need not propose it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0 && self.end.is_none()
    }

    /// Returns whether the part has room for no further message. The leader then proposes the part and begins
    /// the next one.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.messages.len() >= ROWS_MAX || self.removed.len() >= ROWS_MAX
    }

    /// Encodes the part as the payload of a command, for the leader to propose. The part gets this number,
    /// and the stream takes it only in turn.
    #[must_use]
    pub fn encode(&self, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        put_u64(&mut out, number);
        put_u32(&mut out, count(self.messages.len()));
        for message in &self.messages {
            put_u64(&mut out, message.seq.get());
            put_u64(&mut out, message.time_us);
        }
        put_u32(&mut out, count(self.removed.len()));
        for seq in &self.removed {
            put_u64(&mut out, seq.get());
        }
        put_u32(&mut out, count(self.consumers.len()));
        for (name, consumer) in &self.consumers {
            consumer.put(name, &consumer.state.encode(), &mut out);
        }
        out.push(u8::from(self.end.is_some()));
        if let Some(end) = self.end {
            put_u64(&mut out, end.created_us);
            put_u64(&mut out, end.first_seq.get());
            put_u64(&mut out, end.last_seq.get());
            put_u64(&mut out, end.last_time_us);
        }
        out
    }

    /// Iterates over the part's messages as publish commands, which follow the part in the entry.
    pub fn publishes(&self) -> impl Iterator<Item = Command<'_>> {
        self.messages.iter().map(|message| Command {
            headers: Some(&message.headers[..]).filter(|h| !h.is_empty()),
            ..Command::new(
                Kind::Publish,
                crate::schema::number::StreamNumber::NONE,
                &message.subject,
                &message.payload,
            )
        })
    }
}

/// A part of a backup as a node decodes it from an entry, without the messages themselves.
pub(super) struct Part {
    number: u64,
    rows: Vec<(StreamSeq, u64)>,
    removed: Vec<StreamSeq>,
    consumers: Vec<(String, StreamConsumer)>,
    end: Option<RestoreEnd>,
}

impl Part {
    /// Reads a part from an entry, and takes the part's messages from the commands that follow it.
    pub(super) fn read<'a>(
        payload: &[u8],
        commands: &mut Commands<'a>,
    ) -> Result<(Result<Self, RestoreError>, Vec<Command<'a>>), EntryError> {
        let count = payload.get(8..12).and_then(|n| n.first_chunk());
        let count = count.map_or(0, |n| u32::from_le_bytes(*n)) as usize;
        let mut messages = Vec::new();
        for command in commands.by_ref().take(count) {
            messages.push(command?);
        }
        Ok((Self::decode(payload), messages))
    }

    fn decode(payload: &[u8]) -> Result<Self, RestoreError> {
        let wrong = RestoreError::Inconsistent("a part of a restored stream");
        let from = &mut Reader(payload);
        let number = from.u64()?;
        let mut rows = Vec::new();
        let mut least = StreamSeq::FIRST;
        for _ in 0..from.u32()? {
            let seq = StreamSeq::new(from.u64()?);
            if seq < least || seq >= SEQ_MAX {
                return Err(wrong);
            }
            least = seq.next();
            rows.push((seq, from.u64()?));
        }
        let mut removed = Vec::new();
        for _ in 0..from.u32()? {
            removed.push(StreamSeq::new(from.u64()?));
        }
        let mut consumers = Vec::new();
        for _ in 0..from.u32()? {
            consumers.push(StreamConsumer::read(from, |_, bytes| {
                State::decode(bytes).map_err(|_| RestoreError::Inconsistent("a consumer's state"))
            })?);
        }
        let end = match from.u8()? {
            0 => None,
            1 => Some(RestoreEnd {
                created_us: from.u64()?,
                first_seq: StreamSeq::new(from.u64()?),
                last_seq: StreamSeq::new(from.u64()?),
                last_time_us: from.u64()?,
            }),
            _ => return Err(wrong),
        };
        let possible = |e: &RestoreEnd| e.last_seq < SEQ_MAX && e.first_seq <= e.last_seq.next();
        match from.0.is_empty() && end.as_ref().is_none_or(possible) {
            true => Ok(Self {
                number,
                rows,
                removed,
                consumers,
                end,
            }),
            false => Err(wrong),
        }
    }
}

impl Stream {
    /// Returns whether the stream is being restored from a backup: it serves no client, because it is not
    /// complete.
    #[must_use]
    pub const fn is_restoring(&self) -> bool {
        matches!(self.transit, Transit::Restoring(_))
    }

    /// Returns whether the stream in this group is not complete: it is a copy of a moving stream, or a backup
    /// still fills it. Limits and sweeps wait until it is complete.
    pub(super) const fn is_incomplete(&self) -> bool {
        self.is_filling() || self.is_restoring()
    }

    /// Creates a stream that a backup fills. The stream begins with the number that the backup gives, not
    /// with the configuration's number, because its messages keep their numbers.
    pub(super) fn to_restore(
        id: crate::schema::number::StreamNumber,
        config: StreamConfig,
        created_us: u64,
    ) -> Self {
        let mut blank = config.clone();
        blank.first_seq = StreamSeq::ZERO;
        let mut stream = Self::new(id, blank, created_us, false);
        stream.config = config;
        stream
    }

    /// Applies a part of a backup with its messages at the time `now`, if it is the next part. Returns
    /// whether the stream took the part. `keep` returns the place of a message in the log and its bytes, as
    /// for an import.
    pub(super) fn take_part(
        &mut self,
        part: Part,
        messages: &[Command<'_>],
        now: u64,
        keep: impl Fn(&Self, &Command<'_>) -> (Place, Option<bytes::Bytes>),
        effects: &mut Vec<Effect>,
    ) -> bool {
        let fits = |c: &Command<'_>| {
            c.kind == Kind::Publish && counted_bytes(c) <= MESSAGE_BYTES_MAX.into()
        };
        let first = part.rows.first().map(|(seq, _)| *seq);
        if self.transit != Transit::Restoring(part.number)
            || !self.kept.is_here()
            || part.rows.len() != messages.len()
            || !messages.iter().all(fits)
            || first.is_some_and(|seq| seq <= self.content.last_seq)
        {
            return false;
        }
        self.transit = Transit::Restoring(part.number.saturating_add(1));
        for ((seq, time_us), command) in part.rows.into_iter().zip(messages) {
            let (place, body) = keep(self, command);
            self.restore(seq, time_us, now, command, (place, body), effects);
        }
        for seq in part.removed {
            self.remove(seq, effects);
        }
        for (name, consumer) in part.consumers {
            self.put_consumer(&name, consumer);
        }
        if let Some(end) = part.end {
            self.end_restoring(end, now, effects);
        }
        true
    }

    fn restore(
        &mut self,
        seq: StreamSeq,
        time_us: u64,
        now: u64,
        command: &Command<'_>,
        (place, body): (Place, Option<bytes::Bytes>),
        effects: &mut Vec<Effect>,
    ) {
        let asked = Asked::read(command.headers.unwrap_or_default());
        let (mut flags, due_us) = match asked.ttl.and_then(Ttl::read) {
            Some(ttl) if self.config.allow_msg_ttl => lifetime(ttl, &self.limits, time_us),
            _ => (Flags::default(), 0),
        };
        if asked.is_marker() {
            flags = flags.with(Flags::MARKER);
        }
        let bytes = u32::try_from(counted_bytes(command));
        let bytes = bytes.expect("the check refused larger messages");
        let slot = Slot {
            place,
            time_us,
            bytes,
            subject: 0,
            flags,
            due_us,
        };
        self.put(seq, command.subject, slot, body, effects);
        self.last_msg_id.clear();
        if let Some(id) = asked.msg_id {
            self.last_msg_id.extend_from_slice(id);
            let time_us = self.content.last_time_us;
            let recent = time_us.saturating_add(self.limits.dedup_us) > now;
            if recent && self.dedup.find(id).is_none() {
                self.dedup.add(id, seq, time_us);
            }
        }
    }

    /// Ends the restoration: the stream gets its numbers and time of creation, and from now on the stream
    /// keeps its limits and serves clients.
    fn end_restoring(&mut self, end: RestoreEnd, now: u64, effects: &mut Vec<Effect>) {
        if end.created_us > 0 {
            self.created_us = end.created_us.min(now);
        }
        let content = &mut self.content;
        if end.last_seq > content.last_seq {
            content.last_seq = end.last_seq;
        }
        content.last_time_us = content.last_time_us.max(end.last_time_us);
        if self.content.first_seq < end.first_seq && end.first_seq > StreamSeq::FIRST {
            self.remove_range(StreamSeq::ZERO, end.first_seq.prev(), effects);
        }
        if self.content.messages == 0 {
            self.content.first_seq = self.content.last_seq.next();
        }
        self.content.age_anew();
        self.transit = Transit::None;
        let config = self.config.clone();
        self.update(config, effects);
        self.begin_sweep(StreamSeq::FIRST..=self.content.last_seq, effects);
    }
}

#[cfg(test)]
mod tests;
