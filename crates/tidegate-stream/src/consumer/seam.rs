//! The traits through which a consumer uses its stream and the connections of clients: [`View`] and
//! [`Source`] for the stream, [`Sink`] for the connections.
//!
//! Owns no state. The implementations keep the messages, know the clients that listen to a subject, and apply
//! the consumer's filters: a source shows one consumer's part of a stream.

use crate::schema::sequence::StreamSeq;

/// The part of a stream that decides where a new consumer starts.
pub trait View {
    /// Returns the number of the first message, of any subject; for an empty stream, one more than
    /// [`View::last_seq`].
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message ever stored, of any subject; 0 before the first message.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the last message that passes the consumer's filters.
    fn last_matching(&mut self) -> Option<StreamSeq>;

    /// Returns the first message, of any subject, stored at this time or later (microseconds since the Unix
    /// epoch); one more than [`View::last_seq`] if there is none.
    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq;
}

/// The messages of a stream that pass one consumer's filters.
pub trait Source {
    /// Returns the number of the first message, of any subject; for an empty stream, one more than
    /// [`Source::last_seq`].
    fn first_seq(&self) -> StreamSeq;

    /// Returns the number of the last message ever stored, of any subject.
    fn last_seq(&self) -> StreamSeq;

    /// Returns the first message that passes the filters and has the number `seq` or a higher one.
    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq>;

    /// Returns how many messages numbered `seq` or higher pass the filters.
    fn count_from(&mut self, seq: StreamSeq) -> u64;

    /// Returns the last message of each subject that passes the filters, in order. Returns `None` if each
    /// message is the last of its subject, as in a stream that keeps one message for each subject.
    fn last_per_subject(&mut self) -> Option<Vec<StreamSeq>>;

    /// Returns whether the stream holds the message.
    fn contains(&self, seq: StreamSeq) -> bool;

    /// Reads a message.
    fn message(&mut self, seq: StreamSeq) -> Fetch<'_>;
}

/// The result of reading a message.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// The message.
    Ready(Message<'a>),
    /// The stream is reading the message; call [`Consumer::deliver`](super::Consumer::deliver) again when the
    /// stream has read it.
    Pending,
    /// The stream no longer holds the message, or cannot read it.
    Gone,
}

/// A stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message's subject.
    pub subject: &'a [u8],
    /// The message's whole header block; empty if it has none.
    pub headers: &'a [u8],
    /// The message's payload.
    pub payload: &'a [u8],
    /// The time at which the stream stored the message, in microseconds since the Unix epoch.
    pub time_us: u64,
}

/// A message on its way to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The subject to which the publisher sent the message, and which the receiver sees.
    pub subject: &'a [u8],
    /// The subject to which the receiver acknowledges the message.
    pub reply: &'a [u8],
    /// The message's whole header block; empty if it has none.
    pub headers: &'a [u8],
    /// The message's payload.
    pub payload: &'a [u8],
}

/// The connections of clients, to which a consumer sends messages and statuses.
pub trait Sink {
    /// Returns whether a client listens to `to` and can take more messages. With a `group`, only members of
    /// this queue group count.
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready;

    /// Hands a message to a client that listens to `to`. The consumer calls this only after [`Sink::ready`]
    /// returned [`Ready::Yes`] in the same turn.
    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready;

    /// Returns whether the connections take no more messages in this turn.
    fn is_full(&self) -> bool {
        false
    }

    /// Sends a message that has only headers, with `reply` as the message's reply subject unless `reply` is
    /// empty.
    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]);

    /// Sends an empty message: the answer to an acknowledgement that the consumer has recorded.
    fn answer(&mut self, to: &[u8]);

    /// Publishes an advisory.
    fn advisory(&mut self, advisory: &super::Advisory<'_>);
}

/// The readiness of a receiver to take more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// A client listens and can take more messages.
    Yes,
    /// The client's connection has enough to write: the consumer delivers again when the connection has
    /// written that.
    Behind,
    /// No client listens.
    Nobody,
}
