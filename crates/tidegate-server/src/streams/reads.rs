//! Answers the requests of clients for stored messages: the node sends each answer once the store has read
//! the messages.
//!
//! At most [`READS_MAX`] requests wait at a time, so that they take bounded memory; the node refuses further
//! requests.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate_raft::store::Fetch;
use tidegate_stream::api::answer::{self, Kind};
use tidegate_stream::api::direct::{Index, Part, Reading};
use tidegate_stream::api::status;
use tidegate_stream::consumer::Message;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{COMMAND_HEADER_BYTES, Command, Filter, Place, Stream};

use super::context::Context;
use super::{JetStream, Messages, Voice};

/// The limit on the number of clients' requests for stored messages that wait. The node refuses more, so that
/// waiting requests take bounded memory.
const READS_MAX: usize = 16 * 1024;
/// The limit on the number of requests that the node ends in one turn, so that no turn takes long if
/// the store has read the messages of many requests.
const ENDED_A_TURN: usize = if cfg!(test) { 8 } else { 256 };
/// The number of bytes in the outbox of a client's connection above which the streams send this client no
/// further messages until the connection has written some, so that a slow client does not fill the node's
/// memory.
pub(super) const BEHIND_BYTES: usize = 4 * 1024 * 1024;

/// The requests of clients for stored messages that the node has not answered completely, in the order in
/// which the node answers them.
#[derive(Debug, Default)]
pub(super) struct Reads {
    waiting: VecDeque<Read>,
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
    what: What,
}

#[derive(Debug)]
enum What {
    /// The client asked for messages in the form in which the stream stores them, so the node sends each
    /// message as it is.
    Direct(Box<Reading>),
    /// The client asked for one message as JSON, so the node encodes the message, with or without its
    /// headers.
    Json { seq: StreamSeq, no_headers: bool },
}

impl Reads {
    fn add(&mut self, read: Read) -> bool {
        let room = self.waiting.len() < READS_MAX;
        if room {
            self.waiting.push_back(read);
        }
        room
    }

    /// Returns whether the node has requests to look at, so that the event loop starts another turn.
    pub(super) const fn is_due(&self) -> bool {
        self.more
    }

    /// Queues a request for messages in their stored form, for the client at `reply`. Returns whether the
    /// queue had room, so that the caller can refuse the request.
    pub(super) fn direct(&mut self, stream: StreamNumber, reply: &[u8], reading: Reading) -> bool {
        self.add(Read {
            stream,
            reply: reply.into(),
            what: What::Direct(Box::new(reading)),
        })
    }

    /// Queues a request for one message as JSON, for the client at `reply`. Returns whether the queue had
    /// room, so that the caller can refuse the request.
    pub(super) fn json(
        &mut self,
        stream: StreamNumber,
        reply: &[u8],
        seq: StreamSeq,
        no_headers: bool,
    ) -> bool {
        self.add(Read {
            stream,
            reply: reply.into(),
            what: What::Json { seq, no_headers },
        })
    }
}

/// The result of the node's attempt in this turn to answer a client's request for stored messages. The node
/// repeats the attempt in a later turn if it did not reach the end.
enum Came {
    ToItsEnd,
    /// The node continues the answer in a later turn: the store is still reading a message, or too many bytes
    /// wait in the client's outbox.
    NotYet,
}

impl JetStream {
    /// Answers the requests of clients for stored messages, as far as the messages are in memory. Makes the
    /// store read the other messages, so that a later turn can answer with them.
    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_>, now: Time, messages: &dyn Messages) {
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
            let came = match &mut read.what {
                What::Json { seq, no_headers } => {
                    let (seq, no_headers) = (*seq, *no_headers);
                    self.read_json(
                        cx,
                        now,
                        (messages, &mut wanted),
                        &read.reply,
                        read.stream,
                        seq,
                        no_headers,
                    )
                }
                What::Direct(reading) => {
                    let from = (messages, &mut wanted);
                    self.read_direct(cx, now, from, &read.reply, read.stream, reading)
                }
            };
            match came {
                Came::NotYet => self.reads.waiting.push_back(read),
                Came::ToItsEnd => ended += 1,
            }
        }
        cx.outputs.read(wanted);
    }

    #[allow(clippy::too_many_arguments)] // The parts of one request.
    fn read_json(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        (messages, wanted): (&dyn Messages, &mut Vec<Place>),
        reply: &[u8],
        stream: StreamNumber,
        seq: StreamSeq,
        no_headers: bool,
    ) -> Came {
        let mut held = Held::default();
        let fetched = self.streams.get(stream).map_or(Fetched::Gone, |s| {
            fetch(s, seq, messages, wanted, &mut held)
        });
        let body = match fetched {
            Fetched::Pending => return Came::NotYet,
            Fetched::Gone => {
                answer::refused(Kind::MessageGet.as_str(), &ApiError::NO_MESSAGE_FOUND)
            }
            Fetched::Ready(message) => answer::message(seq, &message, no_headers),
        };
        self.voice(cx, now).answer_with(reply, &body);
        Came::ToItsEnd
    }

    fn read_direct(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        (messages, wanted): (&dyn Messages, &mut Vec<Place>),
        reply: &[u8],
        stream: StreamNumber,
        reading: &mut Reading,
    ) -> Came {
        let mut block = Vec::new();
        let mut held = Held::default();
        loop {
            let Some(stream) = self.streams.get(stream) else {
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
            match reading.poll(&mut Indexed(stream)) {
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

/// A stream as the index in which a direct request finds the numbers of the messages that it asks for.
pub(super) struct Indexed<'a>(pub(super) &'a Stream);

impl Index for Indexed<'_> {
    fn first_seq(&self) -> StreamSeq {
        self.0.state().first_seq
    }

    fn last_seq(&self) -> StreamSeq {
        self.0.state().last_seq
    }

    fn contains(&self, seq: StreamSeq) -> bool {
        self.0.contains(seq)
    }

    fn next_at(&mut self, seq: StreamSeq, pattern: &[u8]) -> Option<StreamSeq> {
        self.0.next_at(seq, &mut Filter::new([pattern]))
    }

    fn count_from(&mut self, seq: StreamSeq, pattern: &[u8]) -> u64 {
        self.0.count_from(seq, &mut Filter::new([pattern]))
    }

    fn last_of(&mut self, pattern: &[u8]) -> Option<StreamSeq> {
        self.0.last_of(pattern)
    }

    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq {
        self.0.seq_at_time(time_us)
    }

    fn last_per_subject(
        &mut self,
        pattern: &[u8],
        up_to: StreamSeq,
        max: usize,
    ) -> Option<Vec<StreamSeq>> {
        self.0
            .last_per_subject_up_to(&Filter::new([pattern]), up_to, max)
    }
}
