//! Reads and writes the entries of a backup as nats-server 2.15 does, so that either server can restore it.
//!
//! ```text
//! archive  "NATSARC1" | entries
//! entry    name length | time | number | header length | payload length, each variable-length;
//!          the time is signed | name | headers | payload
//! ```
//!
//! The first entry, `state.json`, has the state of the stream. The consumers follow (`consumers/<name>`, in
//! JSON), then the messages: the name is the subject, and the number is that of the message in the stream. An
//! empty entry ends the archive.

use serde::{Deserialize, Serialize};

use super::consumer::{Named, consumer_of_json};
use super::{
    BackupError, Buffer, FACTS_BYTES_MAX, Item, MESSAGE_BYTES_MAX, Message, NAME_BYTES_MAX,
    StreamFacts, number, put_uvarint, unzigzag, uvarint, zigzag,
};
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

pub(super) const MAGIC: &[u8; 8] = b"NATSARC1";
pub(super) const STATE: &str = "state.json";
pub(super) const CONSUMERS: &str = "consumers/";

/// The fields of an entry before its name, which tell the reader the lengths of the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: u64,
    pub(super) time_ns: i64,
    pub(super) seq: u64,
    pub(super) headers: u64,
    pub(super) payload: u64,
}

impl Header {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_uvarint(out, self.name);
        put_uvarint(out, zigzag(self.time_ns));
        put_uvarint(out, self.seq);
        put_uvarint(out, self.headers);
        put_uvarint(out, self.payload);
    }

    /// Reads the fields at the start of `bytes`, and returns them with their length; `None` if the bytes end
    /// within them and the reader must wait for more.
    fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, BackupError> {
        let mut at = 0;
        let mut fields = [0; 5];
        for field in &mut fields {
            match uvarint(&bytes[at..])? {
                Some((value, len)) => (*field, at) = (value, at + len),
                None => return Ok(None),
            }
        }
        let [name, time, seq, headers, payload] = fields;
        let header = Self {
            name,
            time_ns: unzigzag(time),
            seq,
            headers,
            payload,
        };
        Ok(Some((header, at)))
    }
}

/// The state of a stream as the archive's first entry has it, by which the reader checks the other entries.
/// `created` is an addition of this program, and nats-server ignores it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first_seq: u64,
    pub(super) first_ts: Timestamp,
    pub(super) last_seq: u64,
    pub(super) last_ts: Timestamp,
    pub(super) consumer_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Timestamp>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            messages: 0,
            bytes: 0,
            first_seq: 0,
            first_ts: Timestamp::ZERO,
            last_seq: 0,
            last_ts: Timestamp::ZERO,
            consumer_count: 0,
            created: None,
        }
    }
}

/// Reads the entries of an archive behind its first eight bytes, one entry at a time.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// The number of consumers that are still to come; `None` before the stream's state. After them the
    /// messages come.
    consumers: Option<u64>,
    ended: bool,
}

impl Archive {
    /// Takes the next entry out of `plain`; `None` if the entry is not there completely and the reader must
    /// wait for more bytes.
    pub(super) fn next(&mut self, plain: &mut Buffer) -> Result<Option<Item>, BackupError> {
        let Some((header, used)) = Header::read(plain.as_slice())? else {
            return Ok(None);
        };
        let large = |what, bytes, max| BackupError::Large { what, bytes, max };
        if header.name > NAME_BYTES_MAX {
            return Err(large("a name", header.name, NAME_BYTES_MAX));
        }
        let body = header.headers.checked_add(header.payload);
        let body = body.ok_or(BackupError::Format("an entry of a possible length"))?;
        let (what, max) = match header.seq {
            0 => ("a description", FACTS_BYTES_MAX),
            _ => ("a message", MESSAGE_BYTES_MAX),
        };
        if body > max {
            return Err(large(what, body, max));
        }
        let (name_len, headers_len) = (header.name as usize, header.headers as usize);
        let all = used + name_len + body as usize;
        let Some(entry) = plain.as_slice().get(used..all) else {
            return Ok(None);
        };
        let (name, body) = entry.split_at(name_len);
        let (headers, payload) = body.split_at(headers_len);
        let item = self.item(&header, name, headers, payload)?;
        plain.consume(all);
        Ok(Some(item))
    }

    fn item(
        &mut self,
        header: &Header,
        name: &[u8],
        headers: &[u8],
        payload: &[u8],
    ) -> Result<Item, BackupError> {
        let Some(left) = self.consumers else {
            if name != STATE.as_bytes() {
                return Err(BackupError::Format("the stream's state first"));
            }
            let state: State = serde_json::from_slice(payload)
                .map_err(|_| BackupError::Format("the stream's state in JSON"))?;
            return self.begin(&state);
        };
        if left > 0 {
            let name = std::str::from_utf8(name).ok();
            let name = name.and_then(|name| name.strip_prefix(CONSUMERS));
            let name = name.ok_or(BackupError::Format("as many consumers as the state counts"))?;
            self.consumers = Some(left - 1);
            return consumer_of_json(Named(name), payload).map(|c| Item::Consumer(Box::new(c)));
        }
        if header.seq == 0 {
            return match *header == Header::default() {
                true => {
                    self.ended = true;
                    Ok(Item::End)
                }
                false => Err(BackupError::Format("the number of a message")),
            };
        }
        Ok(Item::Message(Message {
            seq: number(header.seq)?,
            time_ns: header.time_ns,
            subject: name.to_vec(),
            headers: headers.to_vec(),
            payload: payload.to_vec(),
        }))
    }

    fn begin(&mut self, state: &State) -> Result<Item, BackupError> {
        let wrong = |what| Err(BackupError::Contradiction(what));
        let Ok(consumers) = u64::try_from(state.consumer_count) else {
            return wrong("the stream has fewer than no consumers");
        };
        let (first, last) = (number(state.first_seq)?, number(state.last_seq)?);
        let holds = match state.first_seq {
            0 if state.last_seq > 0 => return wrong("the stream has a last message and no first"),
            0 => 0,
            first if first > state.last_seq + 1 => {
                return wrong("the first message comes after the number of the next one");
            }
            first => state.last_seq + 1 - first,
        };
        if state.messages > holds {
            return wrong("the stream has more messages than numbers");
        }
        self.consumers = Some(consumers);
        Ok(Item::Stream(StreamFacts {
            created_us: state.created.map(Timestamp::as_micros),
            first_seq: Some(first.max(StreamSeq::FIRST)),
            last_seq: Some(last),
            last_time_us: Some(state.last_ts.as_micros()),
        }))
    }
}
