//! The traits through which a consumer, as pure code, uses its stream and the connections of clients:
//! [`View`] and [`Source`] for the stream, [`Sink`] for the connections.
//!
//! This module owns no state. The implementations of the traits keep the messages, know the clients that
//! listen to a subject, and apply the consumer's filters: a source shows one consumer's part of a stream.

use crate::schema::sequence::StreamSeq;

/// The facts about a stream that decide with which message a new consumer starts. The stream provides them on
/// each node.
pub trait View {
    /// Returns the number of the stream's first message, of any subject; in an empty stream, one more than
    /// [`View::last_seq`]. A consumer of all messages starts there.
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that the stream ever stored, of any subject; 0 before the first
    /// message. A consumer of new messages starts after it.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that passes the consumer's filters. A consumer of the last
    /// message starts there.
    fn last_matching(&mut self) -> Option<StreamSeq>;

    /// Returns the number of the first message, of any subject, that the stream stored at this time or later
    /// (microseconds since the Unix epoch); one more than [`View::last_seq`] if no message is that young. A
    /// consumer with a start time starts there.
    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq;
}

/// The messages of a stream that pass one consumer's filters, as the consumer reads them.
pub trait Source {
    /// Returns the number of the stream's first message, of any subject; in an empty stream, one more than
    /// [`Source::last_seq`].
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that the stream ever stored, of any subject, at which a search
    /// for messages ends.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the number of the first message, from number `seq` on, that passes the consumer's filters. The
    /// consumer delivers this message next.
    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq>;

    /// Counts the messages, from number `seq` on, that pass the consumer's filters, for the consumer's count
    /// of pending messages.
    fn count_from(&mut self, seq: StreamSeq) -> u64;

    /// Looks at up to `len` of the stream's subjects, from place `from` on. Returns the number of the last
    /// message of each of them that passes the consumer's filters, in no particular order, and the place of
    /// the next subject; `None` in its place once no subject is left. If `up_to` is given, a subject with
    /// messages above this number counts with its last message up to it. A subject keeps its place as long as
    /// it has messages. Returns `None` if each message is the last of its subject, as in a stream
    /// that keeps one message for each subject.
    fn lasts(&mut self, from: usize, len: usize, up_to: Option<StreamSeq>) -> Option<Lasts>;

    /// Returns whether a count of messages takes so long that the consumer must count in parts, because the
    /// event loop would stop.
    fn counts_in_parts(&self) -> bool;

    /// Counts the messages that pass the consumer's filters in up to `len` numbers, from number `from` on.
    /// The consumer calls it again for the next part. Returns the count, and the number from which to go on;
    /// `None` in its place once no message is left.
    fn count_part(&mut self, from: StreamSeq, len: u64) -> (u64, Option<StreamSeq>);

    /// Returns whether the stream holds the message with this number, and the message passes the consumer's
    /// filters and is the last of its subject, so that the consumer still delivers it first.
    fn is_last(&mut self, seq: StreamSeq) -> bool;

    /// Returns whether the stream holds the message with this number, so that the consumer can forget a
    /// removed message.
    fn contains(&self, seq: StreamSeq) -> bool;

    /// Reads the message with this number, or begins to read it from the disk, and lets the consumer wait.
    fn message(&mut self, seq: StreamSeq) -> Fetch<'_>;
}

/// The last messages of some of a stream's subjects, and the place of the next subject; `None` in its place
/// once no subject is left. A consumer collects them in parts.
pub type Lasts = (Vec<StreamSeq>, Option<usize>);

/// The result of reading a message from the stream, which tells the consumer whether to deliver, to wait or
/// to skip the message.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// The stream has read the message, which the consumer can deliver now.
    Ready(Message<'a>),
    /// The stream is reading the message; the consumer waits, and the caller calls
    /// [`Consumer::deliver`](super::Consumer::deliver) again after the stream has read it.
    Pending,
    /// The stream no longer holds the message, or cannot read it, so the consumer skips it.
    Gone,
}

/// A message that a stream has stored, as the consumer reads it from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message's subject, under which the receiver gets it.
    pub subject: &'a [u8],
    /// The message's whole header block; empty if the message has no headers. The receiver gets it unchanged.
    pub headers: &'a [u8],
    /// The message's payload, which the receiver gets unchanged.
    pub payload: &'a [u8],
    /// The time at which the stream stored the message, in microseconds since the Unix epoch. The
    /// acknowledgement subject states it.
    pub time_us: u64,
}

/// A message on its way from a consumer to a receiver. The consumer hands it to a [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The subject to which the publisher sent the message, and which the receiver sees as the message's
    /// subject.
    pub subject: &'a [u8],
    /// The subject to which the receiver acknowledges the message. Its numbers identify the delivery.
    pub reply: &'a [u8],
    /// The header block that the receiver gets; empty if the message has no headers.
    pub headers: &'a [u8],
    /// The payload that the receiver gets; empty if the consumer delivers only headers.
    pub payload: &'a [u8],
}

/// The connections of clients, to which a consumer sends messages and statuses. The server implements it.
pub trait Sink {
    /// Returns whether a client listens to the subject `to` and can take more messages. With a `group`, only
    /// members of this queue group count. The consumer waits for a client that is ready.
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready;

    /// Hands a message to a client that listens to the subject `to`. The consumer calls this only after
    /// [`Sink::ready`] has returned [`Ready::Yes`] in the same turn. Returns whether the client can take
    /// more.
    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready;

    /// Returns whether the connections take no more messages in this turn of the event loop, so that the
    /// consumer stops until the next turn.
    fn is_full(&self) -> bool {
        false
    }

    /// Sends a status, a message that has only headers, to the client that listens to the subject `to`, for
    /// example because its pull has ended; the status has the reply subject `reply` unless `reply` is empty.
    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]);

    /// Answers an acknowledgement that the consumer has recorded: sends an empty message to the subject `to`,
    /// at which the receiver waits for it.
    fn answer(&mut self, to: &[u8]);

    /// Publishes an advisory about a message of the consumer for operators, who subscribe to such advisories.
    fn advisory(&mut self, advisory: &super::Advisory<'_>);
}

/// The readiness of the clients that listen to a subject to take more messages, by which the consumer paces
/// its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A client listens, and its connection can take more messages, so the consumer delivers.
    Yes,
    /// A client listens, but its connection still has many bytes to write. The consumer delivers again after
    /// the connection has written.
    Behind,
    /// No client listens to the subject, so the consumer sends nothing to it.
    Nobody,
}
