//! Answers requests for stored messages: finds the messages that a request asks for, and makes the headers
//! that the server sends with each message.
//!
//! [`DirectGet`] is the request, [`Index`] finds messages in a stream, and [`Reading`] is the progress of one
//! answer. A reading names one message at a time and waits until the caller has read that message, so that a
//! slow disk blocks no other reader.
//!
//! Polling order: the caller calls [`Reading::poll`]; for [`Part::Read`] it reads the message, then calls
//! [`Reading::handle_message`] or [`Reading::handle_gone`], and polls again; any other step ends the reading.
//! The reading so waits for each message.

use std::collections::VecDeque;

use serde::Deserialize;
use tidegate_nats::subject;

use super::puback::write_number;
use super::{json, status};
use crate::consumer::Message;
use crate::convert::{or_zero, positive};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The limit on the subjects in one answer that returns the last message of each subject. The server refuses
/// a request beyond it, as nats-server does.
pub const MULTI_LAST_MAX: usize = 1024;
/// The limit on the messages in one answer to a direct request, in bytes: the default, and the highest bound
/// that a request can set.
pub const MAX_BYTES: u64 = 64 << 20;

/// A client's request for stored messages of a stream, which any node with the stream can answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DirectGet {
    seq: StreamSeq,
    last_by_subj: String,
    next_by_subj: String,
    batch: i64,
    max_bytes: i64,
    start_time: Option<Timestamp>,
    multi_last: Vec<String>,
    up_to_seq: StreamSeq,
    up_to_time: Option<Timestamp>,
    no_hdr: bool,
}

/// The fields of a [`DirectGet`] that a client may use in a request for one message as JSON. The server
/// refuses other fields.
const FIELDS: &[&str] = &[
    "seq",
    "last_by_subj",
    "next_by_subj",
    "batch",
    "max_bytes",
    "start_time",
    "multi_last",
    "up_to_seq",
    "up_to_time",
    "no_hdr",
];

/// A stream's messages by number, subject and time, as the reader of an answer needs them. The server
/// implements it for its streams.
pub trait Index {
    /// Returns the number of the stream's first message; in an empty stream, one more than
    /// [`Index::last_seq`]. A search by time compares with it.
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that the stream ever stored. An answer leaves out later
    /// messages.
    fn last_seq(&self) -> StreamSeq;

    /// Returns whether the stream has the message with this number, or has removed it.
    fn contains(&self, seq: StreamSeq) -> bool;

    /// Returns the number of the first message, from number `seq` on, with a subject that matches `pattern`,
    /// for a client that reads a subject in order.
    fn next_at(&mut self, seq: StreamSeq, pattern: &[u8]) -> Option<StreamSeq>;

    /// Counts the messages, from number `seq` on, with subjects that match `pattern`. The answer tells the
    /// client how many messages remain.
    fn count_from(&mut self, seq: StreamSeq, pattern: &[u8]) -> u64;

    /// Returns the number of the last message with a subject that matches `pattern`, for a client that wants
    /// the last value.
    fn last_of(&mut self, pattern: &[u8]) -> Option<StreamSeq>;

    /// Returns the number of the first message that the stream stored at this time or later, in microseconds
    /// since the Unix epoch; one more than [`Index::last_seq`] if no message is that young. A request with a
    /// start time begins there.
    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq;

    /// Returns, for each subject that matches `pattern`, the number of its last message up to number `up_to`,
    /// in any order; `None` if more than `max` subjects have such a message, because the answer would be too
    /// large.
    fn last_per_subject(
        &mut self,
        pattern: &[u8],
        up_to: StreamSeq,
        max: usize,
    ) -> Option<Vec<StreamSeq>>;
}

/// Parses a direct request. `subject` is the part of the request's subject after the stream's name. The error
/// is the status with which the server answers the client.
pub(super) fn parse(subject: Option<&str>, body: &[u8]) -> Result<DirectGet, &'static [u8]> {
    let get: Option<DirectGet> = match body {
        [] => None,
        _ => Some(json::body(body).map_err(|_| status::MALFORMED_REQUEST)?),
    };
    let Some(subject) = subject else {
        let get = get.ok_or(status::EMPTY_REQUEST)?;
        return get.check().map(|()| get);
    };
    let get = get.unwrap_or_default();
    let only_bounds = DirectGet {
        max_bytes: get.max_bytes,
        no_hdr: get.no_hdr,
        ..DirectGet::default()
    };
    if get != only_bounds || !subject::is_pattern(subject.as_bytes()) {
        return Err(status::BAD_REQUEST);
    }
    Ok(DirectGet {
        last_by_subj: subject.to_owned(),
        ..get
    })
}

/// Parses the body of a request for one message as JSON, as older clients send it.
pub(super) fn parse_json(body: &[u8]) -> Result<DirectGet, ApiError> {
    if json::is_empty(body) {
        return Err(ApiError::BAD_REQUEST);
    }
    let get: DirectGet = json::fields_of(json::object(body)?, FIELDS)?;
    let several = get.batch > 0 || get.max_bytes > 0 || !get.multi_last.is_empty();
    if several || get.check().is_err() {
        return Err(ApiError::BAD_REQUEST);
    }
    Ok(get)
}

impl DirectGet {
    /// Returns whether the request asks the server to send messages without their headers, because the client
    /// does not need them.
    #[must_use]
    pub const fn no_headers(&self) -> bool {
        self.no_hdr
    }

    /// Returns the number of the one message that this request asks for; `None` if the stream has no such
    /// message, and the server answers with a status.
    #[must_use]
    pub fn find(&self, index: &mut impl Index) -> Option<StreamSeq> {
        if !self.last_by_subj.is_empty() {
            return can_be(&self.last_by_subj)
                .then(|| index.last_of(self.last_by_subj.as_bytes()))
                .flatten();
        }
        if !self.next_by_subj.is_empty() && !can_be(&self.next_by_subj) {
            return None;
        }
        let seq = self.start(index);
        if self.next_by_subj.is_empty() {
            Some(seq).filter(|&seq| index.contains(seq))
        } else {
            index.next_at(seq, self.next_by_subj.as_bytes())
        }
    }

    /// Starts the answer to this request. The returned reading finds the messages of the answer one by one,
    /// so that the caller can wait for each from the disk.
    #[must_use]
    pub fn read(&self, index: &mut impl Index) -> Reading {
        let bytes_left = positive(self.max_bytes).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES));
        let mut reading = Reading {
            way: Way::Ended(None),
            no_headers: self.no_hdr,
            several: self.batch > 0 || !self.multi_last.is_empty(),
            left: or_zero(self.batch),
            bytes_left,
            pending: 0,
            sent: 0,
            last: StreamSeq::ZERO,
        };
        if !self.multi_last.is_empty() {
            if reading.left == 0 {
                reading.left = u64::MAX;
            }
            reading.way = self.multi(index);
            if let Way::Listed { seqs, .. } = &reading.way {
                reading.pending = seqs.len() as u64;
            }
        } else if reading.several && !self.next_by_subj.is_empty() && !can_be(&self.next_by_subj) {
            reading.way = Way::Ended(Some(status::MESSAGE_NOT_FOUND));
        } else if reading.several {
            let pattern = match self.next_by_subj.as_str() {
                "" => ">",
                pattern => pattern,
            };
            let seq = self.start(index);
            reading.pending = index.count_from(seq, pattern.as_bytes());
            reading.way = Way::Next {
                seq,
                pattern: pattern.to_owned(),
                valid_through: index.last_seq(),
            };
        } else {
            reading.left = 1;
            reading.way = match self.find(index) {
                Some(seq) => Way::One(seq),
                None => Way::Ended(Some(status::MESSAGE_NOT_FOUND)),
            };
        }
        reading
    }

    /// Checks that the request asks for something and does not contradict itself, as nats-server does. The
    /// check accepts a subject that no message can have: the answer then has no message.
    fn check(&self) -> Result<(), &'static [u8]> {
        let seq = self.seq > StreamSeq::ZERO;
        let last = !self.last_by_subj.is_empty();
        let next = !self.next_by_subj.is_empty();
        let multi = !self.multi_last.is_empty();
        let time = self.start_time.is_some();
        if !(seq || last || next || multi || time) {
            return Err(status::EMPTY_REQUEST);
        }
        if (seq && (last || time))
            || (last && (time || next || multi || self.batch > 0))
            || (next && multi)
            || (self.up_to_seq > StreamSeq::ZERO && self.up_to_time.is_some())
            || self.batch < 0
            || self.multi_last.len() > MULTI_LAST_MAX
        {
            return Err(status::BAD_REQUEST);
        }
        Ok(())
    }

    fn start(&self, index: &mut impl Index) -> StreamSeq {
        match self.start_time {
            Some(time) => index.seq_at_time(time.as_micros_up()),
            None => self.seq,
        }
    }

    fn multi(&self, index: &mut impl Index) -> Way {
        let up_to = match self.up_to_time {
            Some(time) => {
                let after = index.seq_at_time(time.as_micros_up());
                if after <= index.first_seq() {
                    return Way::Ended(Some(status::NO_RESULTS));
                }
                after.prev()
            }
            None if self.up_to_seq == StreamSeq::ZERO => index.last_seq(),
            None => self.up_to_seq,
        };
        let mut seqs = Vec::new();
        for pattern in self.multi_last.iter().filter(|p| can_be(p)) {
            match index.last_per_subject(pattern.as_bytes(), up_to, MULTI_LAST_MAX) {
                Some(found) => seqs.extend(found),
                None => return Way::Ended(Some(status::TOO_MANY_RESULTS)),
            }
            seqs.sort_unstable();
            seqs.dedup();
            if seqs.len() > MULTI_LAST_MAX {
                return Way::Ended(Some(status::TOO_MANY_RESULTS));
            }
        }
        seqs.retain(|&seq| seq >= self.seq);
        if seqs.is_empty() {
            return Way::Ended(Some(status::NO_RESULTS));
        }
        Way::Listed {
            seqs: seqs.into(),
            up_to,
        }
    }
}

/// Returns whether a message can have a subject that matches `pattern`: whether the pattern is well-formed.
/// Otherwise the server need not search.
fn can_be(pattern: &str) -> bool {
    subject::is_pattern(pattern.as_bytes())
}

/// The progress of the server's answer to one [`DirectGet`], which the caller keeps between its turns.
#[derive(Clone, Debug)]
pub struct Reading {
    way: Way,
    no_headers: bool,
    /// True if the answer to the request may have several messages. The server ends such an answer with a
    /// status, by which the client knows that no more messages come.
    several: bool,
    /// The number of messages that the server may still send in this answer, from the client's limit.
    left: u64,
    /// The number of bytes that the server may still send in this answer. The message that uses up this
    /// number is the last of the answer. The limit keeps one answer from blocking others.
    bytes_left: u64,
    /// The number of messages that match the request, after the message that the server sent last in this
    /// answer. Each message tells it to the client.
    pending: u64,
    sent: u64,
    /// The number of the message that the server sent last in this answer. The next message tells it to the
    /// client, which notices a lost message.
    last: StreamSeq,
}

#[derive(Clone, Debug)]
enum Way {
    One(StreamSeq),
    Next {
        /// The number from which on the reading looks for the next message of this answer.
        seq: StreamSeq,
        pattern: String,
        /// The number of the stream's last message when the reading counted `pending`, which leaves out later
        /// messages. At the end the reading counts again if later messages have come.
        valid_through: StreamSeq,
    },
    Listed {
        seqs: VecDeque<StreamSeq>,
        up_to: StreamSeq,
    },
    /// The answer has ended. The field is the status that the server still has to send; `None` if it has sent
    /// the status, or needs to send none.
    Ended(Option<&'static [u8]>),
}

/// The next step of an answer to a direct request, which the caller of [`Reading::poll`] has to carry out,
/// because the reading itself has no disk and no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The caller must read the message with this number and send it to the client, then report it to the
    /// reading.
    Read(StreamSeq),
    /// The caller must send this status, a header block, which ends the answer and tells the client why.
    Status(Vec<u8>),
    /// The answer has ended; the caller sends nothing more and drops the reading.
    End,
}

impl Reading {
    /// Returns the next step of the answer to a direct request, which the caller has to carry out before it
    /// calls this again.
    pub fn poll(&mut self, index: &mut impl Index) -> Part {
        let full = self.left == 0 || self.bytes_left == 0;
        let next = match &mut self.way {
            Way::Ended(status) => {
                return status
                    .take()
                    .map_or(Part::End, |s| Part::Status(s.to_vec()));
            }
            _ if full => None,
            Way::One(seq) => Some(*seq),
            Way::Next { seq, pattern, .. } => index.next_at(*seq, pattern.as_bytes()),
            Way::Listed { seqs, .. } => seqs.front().copied(),
        };
        match next {
            Some(seq) => {
                if let Way::Next { seq: from, .. } = &mut self.way {
                    *from = seq;
                }
                Part::Read(seq)
            }
            None => self.end(index),
        }
    }

    /// Counts the message as sent after the caller has read the message that [`Reading::poll`] named last.
    /// Appends to `block` the header block that the caller sends with this message. If `block` remains empty,
    /// the caller sends the message without headers.
    pub fn handle_message(
        &mut self,
        stream: &str,
        seq: StreamSeq,
        message: &Message<'_>,
        block: &mut Vec<u8>,
    ) {
        self.pass();
        self.pending = self.pending.saturating_sub(1);
        if !self.no_headers {
            self.head(stream, seq, message, block);
        }
        let bytes = message.subject.len() + message.headers.len() + message.payload.len();
        self.bytes_left = self.bytes_left.saturating_sub(bytes as u64);
        self.left -= 1;
        self.sent += 1;
        self.last = seq;
    }

    /// Records that the stream no longer holds the message that [`Reading::poll`] named last, so that the
    /// answer goes on with the next one.
    pub fn handle_gone(&mut self) {
        self.pass();
        self.pending = self.pending.saturating_sub(1);
        if !self.several {
            self.way = Way::Ended(Some(status::MESSAGE_NOT_FOUND));
        }
    }

    /// Advances the answer past the message that [`Reading::poll`] named last, so that the next poll names a
    /// later one.
    fn pass(&mut self) {
        match &mut self.way {
            Way::Next { seq, .. } => *seq = seq.next(),
            Way::Listed { seqs, .. } => {
                seqs.pop_front();
            }
            Way::One(_) | Way::Ended(_) => {}
        }
    }

    fn head(&self, stream: &str, seq: StreamSeq, message: &Message<'_>, block: &mut Vec<u8>) {
        match message.headers.strip_suffix(b"\r\n") {
            Some(own) => block.extend_from_slice(own),
            None => block.extend_from_slice(b"NATS/1.0\r\n"),
        }
        let text = |block: &mut Vec<u8>, name: &[u8], value: &[u8]| {
            block.extend_from_slice(name);
            block.extend_from_slice(value);
            block.extend_from_slice(b"\r\n");
        };
        text(block, b"Nats-Stream: ", stream.as_bytes());
        text(block, b"Nats-Subject: ", message.subject);
        number(block, b"Nats-Sequence: ", seq.get());
        let time = Timestamp::from_micros(message.time_us).to_string();
        text(block, b"Nats-Time-Stamp: ", time.as_bytes());
        if self.several {
            number(block, b"Nats-Num-Pending: ", self.pending);
            number(block, b"Nats-Last-Sequence: ", self.last.get());
        }
        block.extend_from_slice(b"\r\n");
    }

    fn end(&mut self, index: &mut impl Index) -> Part {
        let way = std::mem::replace(&mut self.way, Way::Ended(None));
        if !self.several {
            return Part::End;
        }
        if self.sent == 0 {
            return Part::Status(status::MESSAGE_NOT_FOUND.to_vec());
        }
        let mut block = b"NATS/1.0 204 EOB\r\n".to_vec();
        if let Way::Next {
            seq,
            pattern,
            valid_through,
        } = &way
            && index.last_seq() > *valid_through
        {
            self.pending = index.count_from(*seq, pattern.as_bytes());
        }
        number(&mut block, b"Nats-Num-Pending: ", self.pending);
        number(&mut block, b"Nats-Last-Sequence: ", self.last.get());
        if let Way::Listed { up_to, .. } = way {
            number(&mut block, b"Nats-UpTo-Sequence: ", up_to.get());
        }
        block.extend_from_slice(b"\r\n");
        Part::Status(block)
    }
}

fn number(block: &mut Vec<u8>, name: &[u8], value: u64) {
    block.extend_from_slice(name);
    write_number(block, value);
    block.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
