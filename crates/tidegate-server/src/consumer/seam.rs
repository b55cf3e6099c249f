//! What a consumer needs of its stream and of the connections, as traits: a [`View`] and a [`Source`] on one
//! side, a [`Sink`] on the other.
//!
//! Owns no state. Leaves to whoever implements them how messages are kept, who listens to a subject, and
//! which of a stream's messages pass the consumer's filters: a source shows one consumer's part of a stream.

/// What is asked of a stream to find where a new consumer starts.
pub trait View {
    /// The number of the first message, whatever its subject; of an empty stream one more than
    /// [`View::last_seq`].
    fn first_seq(&self) -> u64;

    /// The number of the last message there was, whatever its subject; 0 before the first.
    fn last_seq(&self) -> u64;

    /// The last message that passes the consumer's filters.
    fn last_matching(&mut self) -> Option<u64>;

    /// The first message, whatever its subject, stored at this time or later (microseconds since the Unix
    /// epoch); one more than [`View::last_seq`] if there is none.
    fn seq_at_time(&mut self, time_us: u64) -> u64;
}

/// The messages of a stream that pass one consumer's filters.
pub trait Source {
    /// The number of the first message, whatever its subject; of an empty stream one more than
    /// [`Source::last_seq`].
    fn first_seq(&self) -> u64;

    /// The number of the last message there was, whatever its subject.
    fn last_seq(&self) -> u64;

    /// The first message that passes the filters, numbered `seq` or higher.
    fn next_at(&mut self, seq: u64) -> Option<u64>;

    /// How many messages numbered `seq` or higher pass the filters.
    fn count_from(&mut self, seq: u64) -> u64;

    /// The last message of each subject that passes the filters, in order; `None` where each message is the
    /// last of its subject, as in a stream that keeps one a subject.
    fn last_per_subject(&mut self) -> Option<Vec<u64>>;

    /// Returns whether the message is there.
    fn contains(&self, seq: u64) -> bool;

    /// Reads a message.
    fn message(&mut self, seq: u64) -> Fetch<'_>;
}

/// What reading a message gave.
#[derive(Clone, Copy, Debug)]
pub enum Fetch<'a> {
    /// The message.
    Ready(Message<'a>),
    /// It is being read; deliver again when it has been.
    Pending,
    /// It is not there any more, or cannot be read.
    Gone,
}

/// A stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its subject.
    pub subject: &'a [u8],
    /// Its header block, whole, or nothing.
    pub headers: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
    /// When it was stored, in microseconds since the Unix epoch.
    pub time_us: u64,
}

/// A message on its way to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The subject it was published to: what the receiver is shown.
    pub subject: &'a [u8],
    /// The subject that acknowledges it.
    pub reply: &'a [u8],
    /// Its header block, whole, or nothing.
    pub headers: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
}

/// The connections.
pub trait Sink {
    /// Whether somebody listens to `to`, and can take more. With a `group`, only members of this queue group
    /// count.
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready;

    /// Hands a message to whoever listens to `to`. Called only after [`Sink::ready`] said so, in the same
    /// turn.
    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready;

    /// Sends a message that has headers only, and a reply subject where it is not empty.
    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]);

    /// Sends an empty message: an acknowledgement was recorded.
    fn answer(&mut self, to: &[u8]);

    /// Publishes what people who watch the consumer are told.
    fn advisory(&mut self, advisory: &super::Advisory<'_>);
}

/// Whether a receiver takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It does.
    Yes,
    /// Enough waits for its connection: deliver again when that has been written.
    Behind,
    /// Nobody listens.
    Nobody,
}
