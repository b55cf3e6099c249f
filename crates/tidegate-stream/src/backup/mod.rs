//! Reads and writes backups of streams in the formats of nats-server, so that clients can move streams
//! between the two servers.
//!
//! A backup is a stream of bytes, compressed with S2 (`s2`), which is an extension of Snappy. nats-server
//! 2.15 writes one entry for the stream's state, one for each consumer and one for each message
//! (`archive`). Earlier versions write a tar file (`tar`) with the files of their storage (`files`).
//! This program reads both forms and writes the first one ([`Writer`]).
//!
//! [`Reader`] takes the bytes as they arrive and hands out [`Item`]s. The reader works in steps with a bound,
//! so that the event loop does not stop, and keeps at most one compressed block and one entry in memory. The
//! bytes come from a client, so any bytes end in items or in a [`BackupError`], never in a panic.

mod archive;
mod consumer;
mod files;
mod reader;
mod record;
mod s2;
mod tar;
mod writer;

use thiserror::Error;

pub use crate::consumer::restored::{Progress, Unacked};
pub use consumer::Consumer;
pub use reader::{Reader, Step};
pub use writer::{ConsumerFacts, Summary, Writer};

use crate::schema::sequence::StreamSeq;

/// The limit on a message of a backup, in bytes of headers and payload, and (`NAME_BYTES_MAX`) the limit on a
/// subject or file name. They bound the reader's memory.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 64 << 20;
const NAME_BYTES_MAX: u64 = 65_535;
/// The limit on the description of a stream, or of a consumer with its unacknowledged messages, in bytes. It
/// bounds the reader's memory.
const FACTS_BYTES_MAX: u64 = 64 << 20;
/// The bound of the message numbers in a backup. The reader refuses this number and higher ones, because the
/// stream could not number the next one.
const SEQ_END: u64 = 1 << 62;

/// A part of a stream, as a backup holds it. The leader puts the items into the restored stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Facts about the stream as a whole. They come before all other items, and further ones may follow,
    /// because some facts are only in later files.
    Stream(StreamFacts),
    /// A consumer with its state, for the restored stream.
    Consumer(Box<Consumer>),
    /// A message of the stream. The numbers of the messages rise, so that the stream can store them in order.
    Message(Message),
    /// The stream has removed the message with this number, which it stored at this time in nanoseconds since
    /// 1970, although the backup may hold the message earlier on.
    Removed(StreamSeq, i64),
    /// The stream has given this number, at this time in nanoseconds since 1970, to a message that it has
    /// removed. The restored stream does not use the number again.
    Passed(StreamSeq, i64),
    /// The end of a whole backup, without which the leader does not finish the restoration.
    End,
}

/// The facts about a stream as a whole, as far as the backup has them; `None` for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFacts {
    /// The time at which a client created the stream, in microseconds since 1970.
    pub created_us: Option<u64>,
    /// The number of the stream's first message; in an empty stream, the number after the last one. The
    /// restored stream drops messages below it.
    pub first_seq: Option<StreamSeq>,
    /// The number of the last message that the stream ever stored; 0 before the first message. The restored
    /// stream continues behind it.
    pub last_seq: Option<StreamSeq>,
    /// The time at which the stream stored its last message, in microseconds since 1970. The restored stream
    /// reports it.
    pub last_time_us: Option<u64>,
}

/// A message of a stream, as a backup holds it, for the restored stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the message in its stream, which the restored stream keeps.
    pub seq: StreamSeq,
    /// The time at which the stream stored the message, in nanoseconds since 1970, which the restored stream
    /// keeps.
    pub time_ns: i64,
    /// The subject under which the stream stored the message.
    pub subject: Vec<u8>,
    /// The header block of the message; empty for a message without headers.
    pub headers: Vec<u8>,
    /// The payload of the message, without compression.
    pub payload: Vec<u8>,
}

/// The reason why bytes are not a backup that this program can restore. The client gets its text.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackupError {
    /// The backup ends before its end mark, because the client or the server that made it stopped.
    #[error("the backup is cut: it ends before its end mark")]
    Cut,
    /// The bytes are not a stream of compressed blocks; the field names the expected part.
    #[error("the compressed data is damaged: expected {0}")]
    Compression(&'static str),
    /// The decompressed bytes contradict the format of a backup; the field names the expected part.
    #[error("the backup is damaged: expected {0}")]
    Format(&'static str),
    /// A checksum does not fit the bytes that it covers, so they are damaged; the field names the part.
    #[error("the backup is damaged: the checksum of {0} is wrong")]
    Checksum(&'static str),
    /// A part of the backup is larger than the limit that bounds the reader's memory.
    #[error("the backup has {what} of {bytes} bytes, and the limit is {max}")]
    Large {
        /// The part that is too large, in words for the client.
        what: &'static str,
        /// The size of the part in bytes, as the backup states it.
        bytes: u64,
        /// The limit on the part, in bytes.
        max: u64,
    },
    /// The numbers of the backup contradict each other; the field says which.
    #[error("the backup contradicts itself: {0}")]
    Contradiction(&'static str),
    /// The backup is of a stream with another name than the client asked for; the field is that name.
    #[error("stream names do not match: the backup is of stream {0}")]
    Name(String),
    /// The server that made the backup noted an error in it, so the backup is not whole; the field is that
    /// text.
    #[error("the server that made the backup could not read the stream: {0}")]
    Noted(String),
    /// A consumer has a setting or a state that this server does not support, so the server cannot restore
    /// the stream with it.
    #[error("consumer {name}: {why}")]
    Consumer {
        /// The name of the unsupported consumer, by which the client finds it.
        name: String,
        /// The reason why the server does not support the consumer, as the decoder states it.
        why: String,
    },
}

/// Returns a message number, or an error if no stream can have it, because the backup is damaged.
fn number(seq: u64) -> Result<StreamSeq, BackupError> {
    match seq < SEQ_END {
        true => Ok(StreamSeq::new(seq)),
        false => Err(BackupError::Contradiction(
            "a message number is beyond the highest possible one",
        )),
    }
}

/// A queue of bytes: the reader adds bytes at the end, and takes them from the start in pieces.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
}

impl Buffer {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    fn push(&mut self, bytes: &[u8]) {
        // The buffer moves the rest to the front only when at least as many bytes have left, so that moving
        // stays cheap.
        if self.from > 0 && self.from >= self.len() {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn consume(&mut self, len: usize) {
        self.from += len;
        debug_assert!(self.from <= self.bytes.len());
        if self.from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
            self.bytes.shrink_to(1 << 20);
        }
    }

    /// Takes `len` bytes out of the buffer; `None` if fewer are there.
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        let taken = self.as_slice().get(..len)?.to_vec();
        self.consume(len);
        Some(taken)
    }
}

/// Reads a number of the variable-length form at the start of `bytes`, and returns it with its length; `None`
/// if the bytes end within it and the reader must wait for more.
fn uvarint(bytes: &[u8]) -> Result<Option<(u64, usize)>, BackupError> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        if at == 9 && *byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    match bytes.len() < 10 {
        true => Ok(None),
        false => Err(BackupError::Format("a number of at most 64 bits")),
    }
}

/// Reads a signed number of the variable-length form: its sign is in the lowest bit, so that small negative
/// numbers take few bytes.
const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn put_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests;
