//! Answers requests for stored messages: finds the messages that a request asks for, and makes the headers
//! that the server sends with each message.
//!
//! [`DirectGet`] is the request, and [`Reading`] is the progress of one answer. A stream may have millions of
//! subjects, so a reading looks for its next message in parts ([`Reading::seek`]). It then names the message
//! and waits until the caller has read it, so that a slow disk blocks no other reader.
//!
//! Polling order: the caller calls [`Reading::seek`] until it returns true, then [`Reading::poll`]; for
//! [`Part::Read`] it reads the message, then calls [`Reading::handle_message`] or [`Reading::handle_gone`],
//! and begins again; any other step ends the reading. The reading so waits for each message.

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
use crate::stream::{Filter, LastOf, LastPerSubject, Lasts, Stream};

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

    /// Returns the number of the bytes that the request keeps in memory while it waits, by which the caller
    /// bounds the waiting requests.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let patterns = self
            .multi_last
            .iter()
            .map(|p| size_of::<String>() + p.len());
        size_of::<Self>()
            + self.last_by_subj.len()
            + self.next_by_subj.len()
            + patterns.sum::<usize>()
    }

    /// Returns the number of the one message that this request asks for; `None` if the stream has no such
    /// message, and the server answers with a status. The call looks at the whole stream at once.
    #[must_use]
    pub fn find(&self, stream: &Stream) -> Option<StreamSeq> {
        match self.read(stream).poll(stream) {
            Part::Read(seq) => Some(seq),
            Part::Status(_) | Part::End => None,
        }
    }

    /// Starts the answer to this request. The returned reading finds the messages of the answer one by one,
    /// so that the caller can wait for each from the disk.
    #[must_use]
    pub fn read(&self, stream: &Stream) -> Reading {
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
        let not_found = Way::Ended(Some(status::MESSAGE_NOT_FOUND));
        if !self.multi_last.is_empty() {
            if reading.left == 0 {
                reading.left = u64::MAX;
            }
            reading.way = self.multi(stream);
            return reading;
        }
        if !reading.several {
            reading.left = 1;
        }
        reading.way = if !self.last_by_subj.is_empty() {
            match can_be(&self.last_by_subj) {
                true => Way::Last(Box::new(LastOf::new(self.last_by_subj.as_bytes()))),
                false => not_found,
            }
        } else if !self.next_by_subj.is_empty() && !can_be(&self.next_by_subj) {
            not_found
        } else if reading.several || !self.next_by_subj.is_empty() {
            let filter = match self.next_by_subj.as_str() {
                "" => Filter::all(),
                pattern => Filter::new([pattern]),
            };
            let seq = self.start(stream);
            Way::Next(Box::new(Next {
                seq,
                filter,
                found: None,
                is_over: false,
                counting: reading.several.then_some((seq, 0)),
                valid_through: StreamSeq::MAX,
            }))
        } else {
            let seq = self.start(stream);
            match stream.contains(seq) {
                true => Way::One(seq),
                false => not_found,
            }
        };
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

    fn start(&self, stream: &Stream) -> StreamSeq {
        match self.start_time {
            Some(time) => stream.seq_at_time(time.as_micros_up()),
            None => self.seq,
        }
    }

    fn multi(&self, stream: &Stream) -> Way {
        let up_to = match self.up_to_time {
            Some(time) => {
                let after = stream.seq_at_time(time.as_micros_up());
                if after <= stream.first_seq() {
                    return Way::Ended(Some(status::NO_RESULTS));
                }
                Some(after.prev())
            }
            None => Some(self.up_to_seq).filter(|seq| *seq > StreamSeq::ZERO),
        };
        let patterns = self.multi_last.iter().filter(|p| can_be(p));
        Way::Lasts {
            lasts: Box::new(LastPerSubject::new(patterns, up_to, MULTI_LAST_MAX)),
            from: self.seq,
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

/// The way in which a reading finds its messages.
#[derive(Clone, Debug)]
enum Way {
    One(StreamSeq),
    /// The reading looks for the last message of a pattern, the only one of the answer.
    Last(Box<LastOf>),
    Next(Box<Next>),
    /// The reading looks for the last message of each subject.
    Lasts {
        lasts: Box<LastPerSubject>,
        /// The number below which the answer leaves out messages.
        from: StreamSeq,
    },
    Listed {
        seqs: VecDeque<StreamSeq>,
        up_to: StreamSeq,
    },
    /// The answer has ended. The field is the status that the server still has to send; `None` if it has sent
    /// the status, or needs to send none.
    Ended(Option<&'static [u8]>),
}

/// The progress of an answer with the next messages that a filter passes.
#[derive(Clone, Debug)]
struct Next {
    /// The number from which on the reading looks for the next message of this answer.
    seq: StreamSeq,
    filter: Filter,
    /// The next message of this answer, once the reading has found it.
    found: Option<StreamSeq>,
    /// True if the answer has no further message.
    is_over: bool,
    /// The number from which on the reading still counts messages, and the count so far; `None` if the
    /// reading knows the count.
    counting: Option<(StreamSeq, u64)>,
    /// The number of the stream's last message when the reading counted, which leaves out later messages. At
    /// the end the reading counts again if later messages have come.
    valid_through: StreamSeq,
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
    /// Looks for the next message of the answer. Returns whether [`Reading::poll`] can name the next step at
    /// once. `left` is the number of steps that the caller allows, and each step of the search lowers it;
    /// once it is 0, the caller goes on in a later turn.
    pub fn seek(&mut self, stream: &Stream, left: &mut usize) -> bool {
        let is_full = self.left == 0 || self.bytes_left == 0;
        match &mut self.way {
            Way::One(_) | Way::Listed { .. } | Way::Ended(_) => return true,
            Way::Last(last) => match last.go_on(stream, left) {
                None => return false,
                Some(Some(seq)) => self.way = Way::One(seq),
                Some(None) => self.way = Way::Ended(Some(status::MESSAGE_NOT_FOUND)),
            },
            Way::Lasts { lasts, from } => match lasts.go_on(stream, left) {
                None => return false,
                Some(Lasts::TooMany) => self.way = Way::Ended(Some(status::TOO_MANY_RESULTS)),
                Some(Lasts::Found { mut seqs, up_to }) => {
                    seqs.retain(|seq| *seq >= *from);
                    self.pending = seqs.len() as u64;
                    self.way = match seqs.is_empty() {
                        true => Way::Ended(Some(status::NO_RESULTS)),
                        false => Way::Listed {
                            seqs: seqs.into(),
                            up_to,
                        },
                    };
                }
            },
            Way::Next(next) => {
                let counts = self.several && self.sent > 0;
                return next.seek(stream, (is_full, counts), &mut self.pending, left);
            }
        }
        true
    }

    /// Returns whether the answer has ended before its first message, so that the caller need not wait for
    /// the disk. The caller has called [`Reading::seek`] until it returned true.
    #[must_use]
    pub fn is_in_vain(&self) -> bool {
        match &self.way {
            Way::Ended(_) => true,
            Way::Next(next) => next.is_over && self.sent == 0,
            _ => false,
        }
    }

    /// Returns the next step of the answer to a direct request, which the caller has to carry out before it
    /// calls this again. If the caller has not called [`Reading::seek`] until it returned true, this call
    /// looks at the whole stream at once.
    pub fn poll(&mut self, stream: &Stream) -> Part {
        let mut left = usize::MAX;
        while !self.seek(stream, &mut left) {}
        let is_full = self.left == 0 || self.bytes_left == 0;
        let next = match &mut self.way {
            Way::Ended(status) => {
                return status
                    .take()
                    .map_or(Part::End, |s| Part::Status(s.to_vec()));
            }
            _ if is_full => None,
            Way::One(seq) => Some(*seq),
            Way::Next(next) => next.found,
            Way::Listed { seqs, .. } => seqs.front().copied(),
            Way::Last(_) | Way::Lasts { .. } => None,
        };
        match next {
            Some(seq) => Part::Read(seq),
            None => self.end(),
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
            Way::Next(next) => {
                if let Some(seq) = next.found.take() {
                    next.seq = seq.saturating_next();
                }
            }
            Way::Listed { seqs, .. } => {
                seqs.pop_front();
            }
            Way::One(_) | Way::Last(_) | Way::Lasts { .. } | Way::Ended(_) => {}
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

    fn end(&mut self) -> Part {
        let way = std::mem::replace(&mut self.way, Way::Ended(None));
        if !self.several {
            return match (way, self.sent) {
                (Way::Next(_), 0) => Part::Status(status::MESSAGE_NOT_FOUND.to_vec()),
                _ => Part::End,
            };
        }
        if self.sent == 0 {
            return Part::Status(status::MESSAGE_NOT_FOUND.to_vec());
        }
        let mut block = b"NATS/1.0 204 EOB\r\n".to_vec();
        number(&mut block, b"Nats-Num-Pending: ", self.pending);
        number(&mut block, b"Nats-Last-Sequence: ", self.last.get());
        if let Way::Listed { up_to, .. } = way {
            number(&mut block, b"Nats-UpTo-Sequence: ", up_to.get());
        }
        block.extend_from_slice(b"\r\n");
        Part::Status(block)
    }
}

impl Next {
    /// Goes on with the count and then with the search for the next message, as [`Reading::seek`] does. The
    /// answer `is_full` if it may have no further message; `counts` tells whether its end states the count of
    /// the messages that are left.
    fn seek(
        &mut self,
        stream: &Stream,
        (is_full, counts): (bool, bool),
        pending: &mut u64,
        left: &mut usize,
    ) -> bool {
        loop {
            if let Some((from, count)) = self.counting {
                let (part, next) = stream.count_within(from, &self.filter, left);
                self.counting = next.map(|from| (from, count + part));
                if self.counting.is_some() {
                    return false;
                }
                *pending = count + part;
                self.valid_through = stream.last_seq();
            }
            // The stream may have removed the found message since.
            self.found = self.found.filter(|seq| stream.contains(*seq));
            if is_full {
                self.is_over = true;
            } else if self.found.is_none() && !self.is_over {
                match stream.next_part(self.seq, &self.filter, left) {
                    Ok(Some(seq)) => (self.seq, self.found) = (seq, Some(seq)),
                    Ok(None) => self.is_over = true,
                    Err(seq) => {
                        self.seq = seq;
                        return false;
                    }
                }
            }
            if !self.is_over || !counts || stream.last_seq() <= self.valid_through {
                return true;
            }
            self.counting = Some((self.seq, 0));
        }
    }
}

fn number(block: &mut Vec<u8>, name: &[u8], value: u64) {
    block.extend_from_slice(name);
    write_number(block, value);
    block.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
