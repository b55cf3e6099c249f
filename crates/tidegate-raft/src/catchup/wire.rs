//! Encodes the questions and answers by which a member fetches the state of another member. All numbers are
//! little-endian. An answer ends with a CRC32C of all bytes before the checksum.
//!
//! ```text
//! 1 | index, 8 | offset, 8
//!     asks for a part of a checkpoint; index 0: of the newest
//! 2 | index, 8 | offset, 8 | total, 8 | bytes ... | crc, 4
//!     that part; no bytes and total 0: there is no such checkpoint
//! 3 | index, 8 | stream, 4 | first, 8 | last, 8
//!     asks a member that has applied this entry for messages of a stream, by number
//! 4 | stream, 4 | first, 8 | next, 8 | (number, 8 | length, 4 | entry ...) ... | crc, 4
//!     the existing ones from `first` up to, not including, `next`, each as an entry of its own
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

use crate::replica::Index;

/// A question of a member that catches up, to another member that has the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The question for a part of a checkpoint, with which a catch-up begins.
    State {
        /// The index of the last entry in the wanted checkpoint; [`Index::ZERO`] for the newest checkpoint.
        index: Index,
        /// The offset in the checkpoint at which the wanted part begins, in bytes: the asking member has the
        /// bytes before it.
        offset: u64,
    },
    /// The question for messages of a stream, by their numbers, that the asking member's log lacks.
    Messages {
        /// The index of an entry that the asked member must have applied before it answers: only then does
        /// the asked member know which messages exist.
        index: Index,
        /// The id of the stream to which the messages belong.
        stream: StreamNumber,
        /// The number of the first message that the asking member wants.
        first: StreamSeq,
        /// The number of the last message that the asking member wants.
        last: StreamSeq,
    },
}

/// The answer of a member to a question of a member that catches up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer with a part of a checkpoint.
    State {
        /// The index of the last entry in the checkpoint from which this part comes.
        index: Index,
        /// The offset in the checkpoint at which this part begins, in bytes. The taker compares it with its
        /// question.
        offset: u64,
        /// The length of the whole checkpoint in bytes; 0 if the asked member has no such checkpoint.
        total: u64,
        /// The bytes of this part of the checkpoint.
        bytes: Bytes,
    },
    /// The answer with messages of a stream.
    Messages {
        /// The id of the stream to which the messages belong.
        stream: StreamNumber,
        /// The number of the first message that the question asked for. The answer covers all numbers from
        /// it on.
        first: StreamSeq,
        /// The number behind the last message number that the answer covers. If the answer lacks a number
        /// before it, the stream has no message of that number.
        next: StreamSeq,
        /// The messages, each with its number and in the form of an entry that holds only this message.
        messages: Vec<(StreamSeq, Bytes)>,
    },
}

/// A decoded message of the catch-up protocol: a question or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A question of a member that catches up.
    Ask(Ask),
    /// An answer to such a member.
    Answer(Answer),
}

/// The error for bytes of a peer that are neither a question nor an answer of the catch-up protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a question or answer of a node that catches up: {what}")]
pub struct WireError {
    what: &'static str,
}

const fn wrong(what: &'static str) -> WireError {
    WireError { what }
}

const ASK_STATE: u8 = 1;
const STATE: u8 = 2;
const ASK_MESSAGES: u8 = 3;
const MESSAGES: u8 = 4;
const CRC: usize = 4;

impl Ask {
    /// Encodes the question into the bytes that the asking member sends.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(32);
        match *self {
            Self::State { index, offset } => {
                out.put_u8(ASK_STATE);
                out.put_u64_le(index.get());
                out.put_u64_le(offset);
            }
            Self::Messages {
                index,
                stream,
                first,
                last,
            } => {
                out.put_u8(ASK_MESSAGES);
                out.put_u64_le(index.get());
                out.put_u32_le(stream.get());
                out.put_u64_le(first.get());
                out.put_u64_le(last.get());
            }
        }
        out.freeze()
    }
}

/// Encodes the answer to [`Ask::State`]: the bytes at `offset` of a checkpoint that is `total` bytes long.
#[must_use]
pub fn encode_state(index: Index, offset: u64, total: u64, bytes: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(32 + bytes.len());
    out.put_u8(STATE);
    out.put_u64_le(index.get());
    out.put_u64_le(offset);
    out.put_u64_le(total);
    out.put_slice(bytes);
    sealed(out)
}

/// Encodes the answer to [`Ask::Messages`], message by message, because the giver may have to wait for a
/// read between two of them.
#[derive(Debug)]
pub struct MessagesEncoder(BytesMut);

impl MessagesEncoder {
    const NEXT: usize = 1 + 4 + 8;

    /// Starts an answer without messages. [`Self::message`] then adds messages of `stream`, from number
    /// `first` on.
    #[must_use]
    pub fn begin(stream: StreamNumber, first: StreamSeq) -> Self {
        let mut out = BytesMut::with_capacity(4096);
        out.put_u8(MESSAGES);
        out.put_u32_le(stream.get());
        out.put_u64_le(first.get());
        out.put_u64_le(0);
        Self(out)
    }

    /// Appends a message to the answer: the message's number, and the entry that holds only this message.
    pub fn message(&mut self, seq: StreamSeq, command: &[u8]) {
        self.0.put_u64_le(seq.get());
        let len = u32::try_from(command.len());
        self.0
            .put_u32_le(len.expect("the largest payload bounds the length of a command"));
        self.0.put_slice(command);
    }

    /// Returns the length of the answer so far in bytes, by which the giver bounds the answer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the giver has added no message to the answer so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len() == Self::NEXT + 8
    }

    /// Ends the answer and returns its bytes. The answer covers all message numbers before `next`; for a
    /// number that it lacks, the stream has no message.
    #[must_use]
    pub fn end(mut self, next: StreamSeq) -> Bytes {
        self.0[Self::NEXT..Self::NEXT + 8].copy_from_slice(&next.get().to_le_bytes());
        sealed(self.0)
    }
}

fn sealed(mut out: BytesMut) -> Bytes {
    let crc = crc32c::crc32c(&out);
    out.put_u32_le(crc);
    out.freeze()
}

/// Decodes a question or an answer of another member, without copying the messages.
///
/// # Errors
/// See [`WireError`]: the bytes are neither a question nor an answer, or differ from the bytes that the
/// sender wrote.
pub fn decode(bytes: &Bytes) -> Result<Frame, WireError> {
    let (&kind, _) = bytes.split_first().ok_or(wrong("it is empty"))?;
    if matches!(kind, ASK_STATE | ASK_MESSAGES) {
        let mut from = From(bytes.slice(1..));
        let ask = if kind == ASK_STATE {
            Ask::State {
                index: Index::new(from.u64()?),
                offset: from.u64()?,
            }
        } else {
            Ask::Messages {
                index: Index::new(from.u64()?),
                stream: StreamNumber::new(from.u32()?),
                first: from.seq()?,
                last: from.seq()?,
            }
        };
        return match from.0.is_empty() {
            true => Ok(Frame::Ask(ask)),
            false => Err(wrong("it goes on behind its end")),
        };
    }
    let body = bytes.len().checked_sub(CRC).ok_or(wrong("it is cut off"))?;
    let mut crc = From(bytes.slice(body..));
    if crc.u32()? != crc32c::crc32c(&bytes[..body]) {
        return Err(wrong("its checksum differs"));
    }
    let mut from = From(bytes.slice(1.min(body)..body));
    match kind {
        STATE => Ok(Frame::Answer(Answer::State {
            index: Index::new(from.u64()?),
            offset: from.u64()?,
            total: from.u64()?,
            bytes: from.0,
        })),
        MESSAGES => {
            let stream = StreamNumber::new(from.u32()?);
            let (first, next) = (from.seq()?, from.seq()?);
            let mut messages = Vec::new();
            while !from.0.is_empty() {
                let (seq, len) = (from.seq()?, from.u32()? as usize);
                messages.push((seq, from.take(len)?));
            }
            Ok(Frame::Answer(Answer::Messages {
                stream,
                first,
                next,
                messages,
            }))
        }
        _ => Err(wrong("its kind is unknown")),
    }
}

/// The bytes of a question or an answer that its decoder has not read yet.
struct From(Bytes);

impl From {
    fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        match len <= self.0.len() {
            true => Ok(self.0.split_to(len)),
            false => Err(wrong("it is cut off")),
        }
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        let mut n = [0; 4];
        n.copy_from_slice(&self.take(4)?);
        Ok(u32::from_le_bytes(n))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        let mut n = [0; 8];
        n.copy_from_slice(&self.take(8)?);
        Ok(u64::from_le_bytes(n))
    }

    fn seq(&mut self) -> Result<StreamSeq, WireError> {
        self.u64().map(StreamSeq::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<(Bytes, Frame)> {
        let state = Ask::State {
            index: Index::new(7),
            offset: 9,
        };
        let messages = Ask::Messages {
            index: Index::new(7),
            stream: StreamNumber::new(3),
            first: StreamSeq::new(1),
            last: StreamSeq::MAX,
        };
        let mut several = MessagesEncoder::begin(StreamNumber::new(3), StreamSeq::new(1));
        assert!(several.is_empty());
        several.message(StreamSeq::new(1), b"one");
        several.message(StreamSeq::new(4), b"");
        vec![
            (state.encode(), Frame::Ask(state)),
            (messages.encode(), Frame::Ask(messages)),
            (
                encode_state(Index::new(7), 9, 20, b"part"),
                Frame::Answer(Answer::State {
                    index: Index::new(7),
                    offset: 9,
                    total: 20,
                    bytes: Bytes::from_static(b"part"),
                }),
            ),
            (
                several.end(StreamSeq::new(6)),
                Frame::Answer(Answer::Messages {
                    stream: StreamNumber::new(3),
                    first: StreamSeq::new(1),
                    next: StreamSeq::new(6),
                    messages: vec![
                        (StreamSeq::new(1), Bytes::from_static(b"one")),
                        (StreamSeq::new(4), Bytes::new()),
                    ],
                }),
            ),
        ]
    }

    #[test]
    fn frames_come_back() {
        for (bytes, frame) in frames() {
            assert_eq!(decode(&bytes), Ok(frame));
        }
    }

    #[test]
    fn damaged_and_cut_off_answers_are_refused() {
        for (bytes, frame) in frames() {
            for cut in 0..bytes.len() {
                assert!(decode(&bytes.slice(..cut)).is_err());
            }
            if let Frame::Ask(_) = frame {
                continue;
            }
            for bit in 0..bytes.len() * 8 {
                let mut other = bytes.to_vec();
                other[bit / 8] ^= 1 << (bit % 8);
                let read = decode(&other.into());
                assert!(!matches!(read, Ok(Frame::Answer(_))), "bit {bit}: {read:?}");
            }
        }
    }
}
