//! The results of commands: an [`Outcome`] for the client that waits for it, and [`Effect`]s for the modules
//! that keep data about the streams.

use super::command::Place;
use super::index::Bulk;
use super::subjects::Name;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The stream stored the message under this number.
    Stored {
        /// The number of the stream.
        stream: StreamNumber,
        /// The message's number in the stream.
        seq: StreamSeq,
    },
    /// The message is a duplicate: the stream has already stored a message with the same id.
    Duplicate {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number under which the stream stored the first of the two messages.
        seq: StreamSeq,
    },
    /// The stream or the group refused the command, which changed nothing.
    Refused {
        /// The number of the command's stream; 0 if the command has none.
        stream: StreamNumber,
        /// The reason why the stream or the group refused the command.
        error: ApiError,
    },
    /// The stream stored an atomic batch. The next `count` outcomes are those of the batch's messages.
    Batch {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number of the batch's last message.
        seq: StreamSeq,
        /// The number of messages of the batch.
        count: u32,
    },
    /// The group created the stream.
    Created {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// A stream with this name and the same configuration exists.
    Exists {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream has the requested configuration.
    Updated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group deleted the stream.
    Deleted {
        /// The number that the stream had.
        stream: StreamNumber,
    },
    /// The stream removed the messages that the purge names.
    Purged {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number of purged messages.
        purged: u64,
    },
    /// The stream removed the message.
    Removed {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream created the consumer.
    ConsumerCreated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// A consumer with this name and the same configuration exists.
    ConsumerExists {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The consumer has the requested configuration.
    ConsumerUpdated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream deleted the consumer.
    ConsumerDeleted {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group applied the command, which has no further result.
    Done,
}

/// A change of a stream that a command made, for modules that keep data about the streams.
///
/// Each message that [`Effect::Stored`] reports is later part of one [`Effect::Removed`], [`Effect::Purged`]
/// or [`Effect::StreamDeleted`], with its place at that time and the same size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// A stream stored a message.
    Stored {
        /// The number of the stream.
        stream: StreamNumber,
        /// The message's number in the stream.
        seq: StreamSeq,
        /// The message's place in the log; the default place if the stream is in memory.
        place: Place,
        /// The message's size, as the stream counts it.
        bytes: u32,
        /// The message's subject.
        subject: Name,
    },
    /// A stream removed a message.
    Removed {
        /// The number of the stream.
        stream: StreamNumber,
        /// The message's number in the stream.
        seq: StreamSeq,
        /// The place in the log at which the message was last.
        place: Place,
        /// The message's size, as the stream counted it.
        bytes: u32,
        /// The message's subject.
        subject: Name,
    },
    /// A stream removed many messages at once.
    Purged {
        /// The number of the stream.
        stream: StreamNumber,
        /// The removed messages.
        messages: Bulk,
    },
    /// The group created a stream.
    StreamCreated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// A stream's configuration changed.
    StreamUpdated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group deleted a stream, with its messages and consumers.
    StreamDeleted {
        /// The number that the stream had.
        stream: StreamNumber,
        /// The stream's name.
        name: String,
        /// The messages that the stream had.
        messages: Bulk,
        /// The names of the consumers that the stream had.
        consumers: Vec<String>,
    },
    /// The stream's home group has created the stream, as this directory now knows.
    StreamMade {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream moves to another group: it does not change in this group unless it thaws.
    StreamFrozen {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The directory has called the stream's move off: the stream stays in this group, with its consumers.
    StreamThawed {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// This directory has called the stream's move off: the other group still keeps the stream.
    StreamStays {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The copy of a stream is complete, with its consumers: this group keeps the stream from now on.
    StreamFilled {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// Another group keeps the stream from now on. The effects before this one have removed the stream's
    /// content from this group.
    StreamMoved {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// A stream created a consumer.
    ConsumerCreated {
        /// The number of the stream.
        stream: StreamNumber,
        /// The consumer's name.
        name: String,
    },
    /// A consumer's configuration changed.
    ConsumerUpdated {
        /// The number of the stream.
        stream: StreamNumber,
        /// The consumer's name.
        name: String,
    },
    /// A consumer was reset to the position in its state.
    ConsumerReset {
        /// The number of the stream.
        stream: StreamNumber,
        /// The consumer's name.
        name: String,
    },
    /// A stream deleted a consumer.
    ConsumerDeleted {
        /// The number of the stream.
        stream: StreamNumber,
        /// The consumer's name.
        name: String,
    },
}
