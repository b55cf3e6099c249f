//! The results of a group's commands: an [`Outcome`] for the client that waits for a command, and [`Effect`]s
//! for the modules that keep data about the streams.

use super::command::Place;
use super::index::Bulk;
use super::mapping::Republished;
use super::subjects::Name;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The result of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The stream stored the published message.
    Stored {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number that the stream gave to the message.
        seq: StreamSeq,
    },
    /// The stream did not store the message, because it has already stored a message with the same id.
    Duplicate {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number that the stream gave to the earlier message with the same id.
        seq: StreamSeq,
    },
    /// The stream or the group refused the command, which changed nothing.
    Refused {
        /// The number of the stream that the command names; 0 if it names none.
        stream: StreamNumber,
        /// The error that says why the command was refused, as the client gets it.
        error: ApiError,
    },
    /// The stream stored an atomic batch. The next `count` outcomes belong to the batch's messages.
    Batch {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number that the stream gave to the batch's last message.
        seq: StreamSeq,
        /// The number of messages in the stored batch.
        count: u32,
    },
    /// The group created the stream.
    Created {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group created no stream, because a stream with this name and the same configuration exists.
    Exists {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The command updated the configuration of the stream, which now is as the command asks.
    Updated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group deleted the stream.
    Deleted {
        /// The number of the deleted stream.
        stream: StreamNumber,
    },
    /// The stream removed the messages that a purge selects.
    Purged {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number of messages that the purge removed.
        purged: u64,
    },
    /// The stream removed the message that the command names, as a client asked.
    Removed {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream created a consumer.
    ConsumerCreated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream created no consumer, because a consumer with this name and the same configuration exists.
    ConsumerExists {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The command changed the configuration of the consumer.
    ConsumerUpdated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream deleted a consumer.
    ConsumerDeleted {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group applied the command. The outcome holds no data, because no answer to a client needs any.
    Done,
}

/// A change of a stream that a command made, for the modules that keep data about the streams.
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
        /// The number of the stored message in its stream.
        seq: StreamSeq,
        /// The place of the message in the log; the default place if the stream is in memory.
        place: Place,
        /// The size of the message in bytes, as the stream counts it: subject, headers and payload, and 30
        /// bytes (34 with headers).
        bytes: u32,
        /// The message's subject.
        subject: Name,
        /// The facts for the leader if the stream may publish the message again; `None` if it does not, and
        /// for a message of a copy that moves to this group.
        republished: Option<Republished>,
    },
    /// A stream removed a message.
    Removed {
        /// The number of the stream.
        stream: StreamNumber,
        /// The number of the removed message in its stream.
        seq: StreamSeq,
        /// The place of the message in the log at the time of its removal.
        place: Place,
        /// The size of the message in bytes, as the stream counted it.
        bytes: u32,
        /// The message's subject.
        subject: Name,
    },
    /// A stream removed many messages with one command.
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
    /// A client changed the configuration of a stream.
    StreamUpdated {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The group deleted a stream, with its messages and consumers.
    StreamDeleted {
        /// The number of the deleted stream.
        stream: StreamNumber,
        /// The stream's name.
        name: String,
        /// The messages that the deleted stream still had.
        messages: Bulk,
        /// The names of the consumers of the deleted stream.
        consumers: Vec<String>,
    },
    /// The directory of this group has noted that the stream's home group has created the stream.
    StreamMade {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream moves from this group to another one, and does not change in this group unless it thaws.
    StreamFrozen {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The directory has called off the stream's move from this group: the stream stays here, with its
    /// consumers.
    StreamThawed {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The directory of this group has called off the stream's move: the group that keeps the stream goes on
    /// keeping it.
    StreamStays {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The copy of a moving stream in this group is complete, with its consumers: this group keeps the stream
    /// from now on.
    StreamFilled {
        /// The number of the stream.
        stream: StreamNumber,
    },
    /// The stream has moved: another group keeps it from now on. The effects before this one have removed the
    /// stream's content from this group.
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
    /// A client changed the configuration of a consumer.
    ConsumerUpdated {
        /// The number of the stream.
        stream: StreamNumber,
        /// The consumer's name.
        name: String,
    },
    /// A reset by a client has moved a consumer to another message of its stream; the consumer's state holds
    /// the new position.
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
