//! The traits through which a consumer uses its stream and the connections of clients: [`View`] and
//! [`Source`] for the stream, [`Sink`] for the connections.
//!
//! This module owns no state. The implementations of the traits keep the messages, know the clients that
//! listen to a subject, and apply the consumer's filters: a source shows one consumer's part of a stream.

use crate::schema::sequence::StreamSeq;

/// The facts about a stream that decide with which message a new consumer starts.
pub trait View {
    /// Returns the number of the stream's first message, of any subject; in an empty stream, one more than
    /// [`View::last_seq`].
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that the stream ever stored, of any subject; 0 before the first
    /// message.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that passes the consumer's filters.
    fn last_matching(&mut self) -> Option<StreamSeq>;

    /// Returns the number of the first message, of any subject, that the stream stored at this time or later
    /// (microseconds since the Unix epoch); one more than [`View::last_seq`] if no message is that young.
    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq;
}

/// The messages of a stream that pass one consumer's filters.
pub trait Source {
    /// Returns the number of the stream's first message, of any subject; in an empty stream, one more than
    /// [`Source::last_seq`].
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message that the stream ever stored, of any subject.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the number of the first message, from number `seq` on, that passes the consumer's filters.
    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq>;

    /// Counts the messages, from number `seq` on, that pass the consumer's filters.
    fn count_from(&mut self, seq: StreamSeq) -> u64;

    /// Looks at up to `len` of the stream's subjects, from place `from` on. Returns the number of the last
    /// message of each of them that passes the consumer's filters, in no particular order, and the place of
    /// the next subject; `None` in its place once no subject is left. If `up_to` is given, a subject with
    /// messages above this number counts with its last message up to it. A subject keeps its place as long as
    /// it has messages. Returns `None` if each message is the last of its subject, as in a stream
    /// that keeps one message for each subject.
    fn lasts(&mut self, from: usize, len: usize, up_to: Option<StreamSeq>) -> Option<Lasts>;

    /// Returns whether a count of messages takes so long that the consumer counts in parts.
    fn counts_in_parts(&self) -> bool;

    /// Counts the messages that pass the consumer's filters in up to `len` numbers, from number `from` on.
    /// Returns the count, and the number from which to go on; `None` in its place once no message is left.
    fn count_part(&mut self, from: StreamSeq, len: u64) -> (u64, Option<StreamSeq>);

    /// Returns whether the stream holds the message with this number, and the message passes the consumer's
    /// filters and is the last of its subject.
    fn is_last(&mut self, seq: StreamSeq) -> bool;

    /// Returns whether the stream holds the message with this number.
    fn contains(&self, seq: StreamSeq) -> bool;

    /// Reads the message with this number, or begins to read it.
    fn message(&mut self, seq: StreamSeq) -> Fetch<'_>;
}

/// The last messages of some of a stream's subjects, and the place of the next subject; `None` in its place
/// once no subject is left.
pub type Lasts = (Vec<StreamSeq>, Option<usize>);

/// The result of reading a message from the stream.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// The stream has read the message, which the consumer can deliver.
    Ready(Message<'a>),
    /// The stream is reading the message; the caller calls [`Consumer::deliver`](super::Consumer::deliver)
    /// again after the stream has read it.
    Pending,
    /// The stream no longer holds the message, or cannot read it, so the consumer skips it.
    Gone,
}

/// A message that a stream has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message's subject.
    pub subject: &'a [u8],
    /// The message's whole header block; empty if the message has no headers.
    pub headers: &'a [u8],
    /// The message's payload.
    pub payload: &'a [u8],
    /// The time at which the stream stored the message, in microseconds since the Unix epoch.
    pub time_us: u64,
}

/// A message on its way from a consumer to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The subject to which the publisher sent the message, and which the receiver sees.
    pub subject: &'a [u8],
    /// The subject to which the receiver acknowledges the message.
    pub reply: &'a [u8],
    /// The message's whole header block; empty if the message has no headers.
    pub headers: &'a [u8],
    /// The message's payload.
    pub payload: &'a [u8],
}

/// The connections of clients, to which a consumer sends messages and statuses.
pub trait Sink {
    /// Returns whether a client listens to the subject `to` and can take more messages. With a `group`, only
    /// members of this queue group count.
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready;

    /// Hands a message to a client that listens to the subject `to`. The consumer calls this only after
    /// [`Sink::ready`] has returned [`Ready::Yes`] in the same turn.
    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready;

    /// Returns whether the connections take no more messages in this turn of the event loop.
    fn is_full(&self) -> bool {
        false
    }

    /// Sends a status, a message that has only headers, to the subject `to`; the status has the reply subject
    /// `reply` unless `reply` is empty.
    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]);

    /// Answers an acknowledgement that the consumer has recorded: sends an empty message to the subject `to`.
    fn answer(&mut self, to: &[u8]);

    /// Publishes an advisory about a message of the consumer for operators.
    fn advisory(&mut self, advisory: &super::Advisory<'_>);
}

/// The readiness of the clients that listen to a subject to take more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A client listens, and its connection can take more messages.
    Yes,
    /// A client listens, but its connection still has many bytes to write. The consumer delivers again after
    /// the connection has written.
    Behind,
    /// No client listens to the subject.
    Nobody,
}
