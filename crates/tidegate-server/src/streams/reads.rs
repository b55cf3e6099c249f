//! Answers the requests of clients for stored messages: the node looks for the messages of each answer, and
//! sends the answer once the store has read them.
//!
//! A request with patterns may have to look at millions of subjects or messages. So all requests of a group
//! together take [`STEPS_A_TURN`] steps in a turn ([`looking`](super::looking)). At most [`READS_MAX`]
//! requests wait at a time, so that they take bounded memory; the node refuses further requests.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_raft::store::Fetch;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::direct::{DirectGet, Part, Reading};
use tidegate_stream::api::status;
use tidegate_stream::consumer::Message;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{COMMAND_HEADER_BYTES, Command, Place, Stream};

use super::context::Context;
use super::looking::Looking;
use super::{JetStream, Messages, Voice};
use crate::cost::{Work, spend};
use crate::cures::{cures, part};

/// The limit on the number of clients' requests for stored messages that wait. The node refuses more, so that
/// waiting requests take bounded memory.
const READS_MAX: usize = 16 * 1024;
/// The limit on the number of requests that the node ends in one turn, so that no turn takes long if
/// the store has read the messages of many requests.
const ENDED_A_TURN: usize = if cfg!(test) { 8 } else { 256 };
/// The number of steps, such as comparisons of a subject with a pattern, that the requests of a group take in
/// one turn: those that wait, and as many for the requests that come until the next turn.
pub(super) const STEPS_A_TURN: usize = if cfg!(test) { 16 } else { 4096 };
/// The number of steps of one request before the request of another asker has its turn.
const STEPS_A_REQUEST: usize = STEPS_A_TURN / 4;
/// The number of bytes in the outbox of a client's connection above which the streams send this client no
/// further messages until the connection has written some, so that a slow client does not fill the node's
/// memory.
pub(super) const BEHIND_BYTES: usize = 4 * 1024 * 1024;

/// The requests of clients for stored messages that the node has not answered completely.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// The requests of which the node knows the next message, in the order in which it answers them.
    waiting: VecDeque<Read>,
    looking: Looking,
    /// The number of steps that are left for requests until the node serves the requests again.
    left: usize,
    /// True if the node has ended its work on the requests in this turn before it has looked at all of them,
    /// so that the event loop starts another turn.
    more: bool,
}

/// One request of a client for stored messages, and its progress, so that the node can continue the answer in
/// a later turn.
#[derive(Debug)]
pub(super) struct Read {
    stream: StreamNumber,
    reply: Box<[u8]>,
    form: Form,
    reading: Box<Reading>,
    bytes: usize,
}

/// The form in which the node sends the messages of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The client asked for messages in the form in which the stream stores them, so the node sends each
    /// message as it is.
    Direct,
    /// The client asked for one message as JSON, so the node encodes the message, with or without its
    /// headers.
    Json { no_headers: bool },
}

/// The state of a request for which the node has just begun to look.
pub(super) enum Begun {
    /// The request waits for its messages.
    Waits,
    /// The stream has no message for the request. Only a request for one message as JSON ends so.
    InVain,
    /// Too many requests wait, so the caller refuses this one.
    Refused,
}

impl Read {
    /// Returns the reply subject of the request, by which the node knows the asker.
    pub(super) fn reply(&self) -> &[u8] {
        &self.reply
    }

    /// Returns the memory of the request, by which the node bounds the waiting requests.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Creates a request of this many bytes, for a test of the order of requests.
    #[cfg(test)]
    pub(super) fn of_test(reply: &str, bytes: usize) -> Self {
        use tidegate_stream::stream::{AccountLimits, Kind as Of, Streams};
        let mut streams = Streams::new(AccountLimits::NONE);
        let mut entry = Vec::new();
        let mut encoder = tidegate_stream::stream::Encoder::begin(&mut entry, 1);
        let config = br#"{"name":"S","subjects":["s"]}"#;
        let create = Command::new(Of::CreateStream, StreamNumber::NONE, b"", config);
        encoder.command(&create).unwrap();
        let applied = streams.apply(1, &entry.into(), &mut Vec::new(), &mut Vec::new());
        applied.unwrap();
        let stream = streams.get(StreamNumber::FIRST).unwrap();
        Self {
            stream: stream.id(),
            reply: reply.as_bytes().into(),
            form: Form::Direct,
            reading: Box::new(DirectGet::default().read(stream)),
            bytes,
        }
    }
}

impl Reads {
    /// Returns whether the node has requests to look at, so that the event loop starts another turn.
    pub(super) const fn is_due(&self) -> bool {
        self.more || !self.looking.is_empty()
    }

    fn add(&mut self, read: Read, is_found: bool) -> Begun {
        let has_room = self.waiting.len() + self.looking.len() < READS_MAX;
        match is_found {
            true if has_room => self.waiting.push_back(read),
            false if has_room && self.looking.has_room_for(read.bytes) => self.looking.push(read),
            _ => return Begun::Refused,
        }
        Begun::Waits
    }
}

/// The result of the node's attempt in this turn to answer a client's request for stored messages. The node
/// repeats the attempt in a later turn if it did not reach the end.
enum Came {
    ToItsEnd,
    /// The node continues the answer in a later turn: the store is still reading a message, or too many bytes
    /// wait in the client's outbox.
    NotYet,
    /// The node has still to look for the next message of the answer.
    ToASearch,
}

impl JetStream {
    /// Begins to answer a client's request for messages in their stored form.
    pub(super) fn begin_direct(
        &mut self,
        stream: StreamNumber,
        get: &DirectGet,
        reply: &[u8],
    ) -> Begun {
        self.begin_read(stream, get, reply, Form::Direct)
    }

    /// Begins to answer a client's request for one message as JSON.
    pub(super) fn begin_json(
        &mut self,
        stream: StreamNumber,
        get: &DirectGet,
        reply: &[u8],
    ) -> Begun {
        let no_headers = get.no_headers();
        self.begin_read(stream, get, reply, Form::Json { no_headers })
    }

    /// Looks for the first message of a request with the steps that are left in this turn, and queues the
    /// request. A request waits behind the earlier ones of its asker for which the node still looks.
    fn begin_read(&mut self, id: StreamNumber, get: &DirectGet, reply: &[u8], form: Form) -> Begun {
        let Some(stream) = self.streams.get(id) else {
            return Begun::InVain;
        };
        let mut reading = get.read(stream);
        let before = self.reads.left;
        let is_found =
            !self.reads.looking.has_asker_of(reply) && reading.seek(stream, &mut self.reads.left);
        spend(Work::LookUp, (before - self.reads.left) as u64);
        if is_found && form != Form::Direct && reading.is_in_vain() {
            return Begun::InVain;
        }
        let read = Read {
            stream: id,
            reply: reply.into(),
            form,
            reading: Box::new(reading),
            // The patterns of a request are in memory twice while the node looks for its messages.
            bytes: size_of::<Read>() + reply.len() + 2 * get.memory_bytes(),
        };
        self.reads.add(read, is_found)
    }

    /// Answers the requests of clients for stored messages, as far as the messages are in memory. Makes the
    /// store read the other messages, so that a later turn can answer with them.
    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_>, now: Time, messages: &dyn Messages) {
        self.look_for_messages(cx);
        let mut wanted = Vec::new();
        let mut ended = 0;
        self.reads.more = false;
        for _ in 0..self.reads.waiting.len() {
            if ended >= ENDED_A_TURN {
                self.reads.more = true;
                break;
            }
            let Some(mut read) = self.reads.waiting.pop_front() else {
                break;
            };
            let from = (messages, &mut wanted);
            let before = self.reads.left;
            let came = match read.form {
                Form::Json { no_headers } => self.read_json(cx, now, from, &mut read, no_headers),
                Form::Direct => self.read_direct(cx, now, from, &mut read),
            };
            spend(Work::LookUp, (before - self.reads.left) as u64);
            match came {
                Came::NotYet => self.reads.waiting.push_back(read),
                Came::ToASearch => self.reads.looking.push(read),
                Came::ToItsEnd => ended += 1,
            }
        }
        cx.outputs.read(wanted);
    }

    /// Looks for the next messages of the requests that wait for that, a bounded number of steps in a turn.
    fn look_for_messages(&mut self, cx: &mut Context<'_>) {
        self.reads.left = part(cures().searching, STEPS_A_TURN);
        while self.reads.left > 0
            && let Some(mut read) = self.reads.looking.take()
        {
            let slice = self
                .reads
                .left
                .min(part(cures().searching, STEPS_A_REQUEST));
            let mut left = slice;
            let is_found = match self.streams.get(read.stream) {
                // Its client has gone, so the node drops the request.
                Some(_)
                    if read.form == Form::Direct && cx.pending_at(&read.reply, None).is_none() =>
                {
                    true
                }
                Some(stream) => read.reading.seek(stream, &mut left),
                // The answer ends with a status, because a client has deleted the stream.
                None => true,
            };
            spend(Work::LookUp, (slice - left) as u64);
            // A request that takes no step costs time, too.
            self.reads.left -= (slice - left).max(1);
            match is_found {
                true => self.reads.waiting.push_back(read),
                false => self.reads.looking.put_back(read),
            }
        }
    }

    fn read_json(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        (messages, wanted): (&dyn Messages, &mut Vec<Place>),
        read: &mut Read,
        no_headers: bool,
    ) -> Came {
        let mut held = Held::default();
        let mut at = StreamSeq::ZERO;
        let fetched = match self.streams.get(read.stream) {
            None => Fetched::Gone,
            Some(stream) if !read.reading.seek(stream, &mut self.reads.left) => {
                return Came::ToASearch;
            }
            Some(stream) => match read.reading.poll(stream) {
                Part::Read(seq) => {
                    at = seq;
                    fetch(stream, seq, messages, wanted, &mut held)
                }
                Part::Status(_) | Part::End => {
                    self.stats.api_errors += 1;
                    Fetched::Gone
                }
            },
        };
        let body = match fetched {
            Fetched::Pending => return Came::NotYet,
            Fetched::Gone => {
                answer::refused(Kind::MessageGet.as_str(), &ApiError::NO_MESSAGE_FOUND)
            }
            Fetched::Ready(message) => answer::message(at, &message, no_headers),
        };
        self.voice(cx, now).answer_with(&read.reply, &body);
        Came::ToItsEnd
    }

    fn read_direct(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        (messages, wanted): (&dyn Messages, &mut Vec<Place>),
        read: &mut Read,
    ) -> Came {
        let mut block = Vec::new();
        let mut held = Held::default();
        let (reply, reading) = (&*read.reply, &mut read.reading);
        loop {
            let Some(stream) = self.streams.get(read.stream) else {
                // A client has deleted the stream since the request came. Without an answer the client would
                // wait for the rest of the messages until its own timeout.
                self.voice(cx, now)
                    .status_to(reply, status::MESSAGE_NOT_FOUND);
                return Came::ToItsEnd;
            };
            match cx.pending_at(reply, None) {
                None => return Came::ToItsEnd,
                Some(pending) if pending > BEHIND_BYTES || cx.outputs.are_many() => {
                    return Came::NotYet;
                }
                Some(_) => {}
            }
            if !reading.seek(stream, &mut self.reads.left) {
                return Came::ToASearch;
            }
            match reading.poll(stream) {
                Part::End => return Came::ToItsEnd,
                Part::Status(block) => {
                    self.voice(cx, now).status_to(reply, &block);
                    return Came::ToItsEnd;
                }
                Part::Read(seq) => match fetch(stream, seq, messages, wanted, &mut held) {
                    Fetched::Pending => return Came::NotYet,
                    Fetched::Gone => reading.handle_gone(),
                    Fetched::Ready(message) => {
                        block.clear();
                        reading.handle_message(stream.name(), seq, &message, &mut block);
                        let mut voice = Voice {
                            wall_us: 0,
                            cx: cx.again(),
                            streams: &self.streams,
                            speech: &mut self.speech,
                        };
                        // The client recognises the answer by its subject, which is the client's reply
                        // subject. The headers of the answer state the subject of the stored message.
                        voice.say(reply, reply, None, &block, message.payload);
                    }
                },
            }
        }
    }
}

/// The bytes of a stored message. [`fetch`] puts them here, so that its caller can borrow the message.
#[derive(Debug, Default)]
pub(crate) struct Held(bytes::Bytes);

/// The result of [`fetch`] for a stored message: the message, a wait until the store has read it, or no
/// message, because the stream has removed it.
pub(super) enum Fetched<'a> {
    Ready(Message<'a>),
    Pending,
    Gone,
}

/// Returns a stored message, if the message is in this node's memory. Otherwise adds the message's place to
/// `wanted`, so that the caller makes the store read there.
pub(super) fn fetch<'a>(
    stream: &Stream,
    seq: StreamSeq,
    messages: &dyn Messages,
    wanted: &mut Vec<Place>,
    held: &'a mut Held,
) -> Fetched<'a> {
    let Some(stored) = stream.message(seq) else {
        return Fetched::Gone;
    };
    held.0 = match stream.in_memory() {
        true => match stream.body(seq) {
            Some(body) => body.clone(),
            None => return Fetched::Gone,
        },
        false => match peek(messages, stored.place, wanted) {
            Fetch::Ready(bytes) => bytes,
            Fetch::Pending => return Fetched::Pending,
            Fetch::Gone => return Fetched::Gone,
            Fetch::Damaged => {
                tracing::error!(
                    "message {seq} of stream {} is damaged in this node's log: the server treats the message as gone, and serves the others",
                    stream.name()
                );
                return Fetched::Gone;
            }
        },
    };
    debug_assert!(held.0.len() >= COMMAND_HEADER_BYTES);
    match Command::read(&held.0, 0) {
        Ok(command) => Fetched::Ready(Message {
            subject: command.subject,
            headers: command.headers.unwrap_or_default(),
            payload: command.payload,
            time_us: stored.time_us,
        }),
        Err(e) => {
            tracing::error!(
                "the server cannot decode message {seq} of stream {}, and treats the message as gone: {e}",
                stream.name()
            );
            Fetched::Gone
        }
    }
}

fn peek(messages: &dyn Messages, place: Place, wanted: &mut Vec<Place>) -> Fetch {
    let peeked = messages.peek(place);
    if peeked.ask {
        wanted.push(place);
    }
    peeked.fetch
}
