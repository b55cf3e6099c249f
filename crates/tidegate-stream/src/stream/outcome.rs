//! The results of a group's commands: an [`Outcome`] for the client that waits for a command, and [`Effect`]s
//! for the modules that keep data about the streams and must follow each change.

use super::command::Place;
use super::index::Bulk;
use super::mapping::Republished;
use super::subjects::Name;
use crate::schema::error::ApiError;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::StreamSeq;

/// The result of one command, from which the leader makes the answer to the client that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The stream stored the published message, so the leader acknowledges it to the publisher.
    Stored {
        /// The number of the stream that stored the message; the acknowledgement gives the publisher its
        /// name.
        stream: StreamNumber,
        /// The number that the stream gave to the message. The leader tells it to the publisher.
        seq: StreamSeq,
    },
    /// The stream did not store the message, because it has already stored a message with this id. The
    /// publisher gets the earlier number.
    Duplicate {
        /// The number of the stream that has the earlier message; the leader's answer gives its name.
        stream: StreamNumber,
        /// The number that the stream gave to the earlier message with this id. The leader tells it to the
        /// publisher.
        seq: StreamSeq,
    },
    /// The stream or the group refused the command, which changed nothing. The leader tells the client why.
    Refused {
        /// The number of the stream that the command names; 0 if the command names no stream.
        stream: StreamNumber,
        /// The error by which the client learns why the stream or the group refused the command.
        error: ApiError,
    },
    /// The stream stored an atomic batch. The next `count` outcomes belong to the batch's messages. The
    /// leader acknowledges the batch with its last message.
    Batch {
        /// The number of the stream that stored the batch; the acknowledgement gives the publisher its name.
        stream: StreamNumber,
        /// The number that the stream gave to the batch's last message. The leader tells it to the publisher.
        seq: StreamSeq,
        /// The number of messages in the stored batch, so that the leader finds their outcomes.
        count: u32,
    },
    /// The group created the stream, as a client asked.
    Created {
        /// The number that the group gave to the new stream. The leader's answer to the client describes that
        /// stream.
        stream: StreamNumber,
    },
    /// The group created no stream, because a stream with this name and the same configuration exists, so a
    /// client can repeat its request.
    Exists {
        /// The number of the stream that exists already. The leader's answer to the client describes it.
        stream: StreamNumber,
    },
    /// The command updated the configuration of the stream, which is now as the client's command asks.
    Updated {
        /// The number of the stream with the new configuration. The leader's answer to the client describes
        /// it.
        stream: StreamNumber,
    },
    /// The group deleted the stream, as a client asked.
    Deleted {
        /// The number of the stream that the group deleted. In a directory, the leader finds the stream's
        /// entry by it.
        stream: StreamNumber,
    },
    /// The stream removed the messages that a client's purge selects.
    Purged {
        /// The number of the stream that removed the messages.
        stream: StreamNumber,
        /// The number of messages that the purge removed. The leader tells it to the client.
        purged: u64,
    },
    /// The stream removed the message that the command names, as a client's request to delete it asked.
    Removed {
        /// The number of the stream that removed the message.
        stream: StreamNumber,
    },
    /// The stream created a consumer, as a client asked.
    ConsumerCreated {
        /// The number of the stream that has the new consumer, which the leader's answer names.
        stream: StreamNumber,
    },
    /// The stream created no consumer, because a consumer with this name and the same configuration exists,
    /// so a client can repeat its request.
    ConsumerExists {
        /// The number of the stream that has the consumer already, which the leader's answer names.
        stream: StreamNumber,
    },
    /// The command changed the configuration of the consumer, as a client asked.
    ConsumerUpdated {
        /// The number of the stream that has the consumer, which the leader's answer names.
        stream: StreamNumber,
    },
    /// The stream deleted a consumer, as a client asked.
    ConsumerDeleted {
        /// The number of the stream that had the consumer.
        stream: StreamNumber,
    },
    /// The group applied the command. The outcome holds no data, because no answer to a client needs any.
    Done,
}

/// A change of a stream that a command made, for the modules that keep data about the streams and must follow
/// each change.
///
/// Each message that [`Effect::Stored`] reports is later part of one [`Effect::Removed`], [`Effect::Purged`]
/// or [`Effect::StreamDeleted`], with its place at that time and the same size. So the node can count the
/// bytes in the log that are still in use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// A stream stored a message, so its consumers can deliver the message.
    Stored {
        /// The number of the stream that stored the message.
        stream: StreamNumber,
        /// The number of the stored message in its stream, by which consumers find the message.
        seq: StreamSeq,
        /// The place of the message in the log; the default place if the stream is in memory. The node reads
        /// the message there.
        place: Place,
        /// The size of the message in bytes, as the stream counts it: subject, headers and payload, and 30
        /// bytes (34 with headers). The node counts these bytes in the log as in use.
        bytes: u32,
        /// The message's subject, by which consumers decide whether they want the message.
        subject: Name,
        /// The facts that the leader needs if the stream may publish the message again; `None` if it does
        /// not, and for a message of a copy that moves to this group.
        republished: Option<Republished>,
    },
    /// A stream removed a message, so the node frees the message's space and consumers forget the message.
    Removed {
        /// The number of the stream that removed the message.
        stream: StreamNumber,
        /// The number of the removed message in its stream, so that consumers can forget the message.
        seq: StreamSeq,
        /// The place of the message in the log at the time of its removal. The node counts the space there as
        /// free.
        place: Place,
        /// The size of the message in bytes, as the stream counted it when it stored the message.
        bytes: u32,
        /// The message's subject, by which a consumer knows whether it counted the message.
        subject: Name,
    },
    /// A stream removed many messages with one command, so the report of them is one collection.
    Purged {
        /// The number of the stream that removed the messages.
        stream: StreamNumber,
        /// The removed messages, which the node visits in parts to free their space.
        messages: Bulk,
    },
    /// The group created a stream, so the node begins to serve it.
    StreamCreated {
        /// The number of the new stream, by which the node begins to serve it.
        stream: StreamNumber,
    },
    /// A client changed the configuration of a stream, so the node must read its limits and mappings again.
    StreamUpdated {
        /// The number of the stream with the new configuration, which the node reads.
        stream: StreamNumber,
    },
    /// The group deleted a stream, with its messages and consumers, so the node stops serving it.
    StreamDeleted {
        /// The number that the deleted stream had in its group. The node drops the data that it keeps under
        /// it.
        stream: StreamNumber,
        /// The name of the deleted stream, which the group no longer has under its number.
        name: String,
        /// The messages that the deleted stream still had, which the node visits in parts to free their
        /// space.
        messages: Bulk,
        /// The names of the consumers of the deleted stream, so that the node ends these consumers.
        consumers: Vec<String>,
    },
    /// The directory of this group has noted that the stream's home group has created the stream, so the node
    /// need not ask for it again.
    StreamMade {
        /// The number of the stream's entry in this directory, by which the node finds the stream.
        stream: StreamNumber,
    },
    /// The stream moves from this group to another one, and does not change in this group unless it thaws.
    /// The node stops serving it.
    StreamFrozen {
        /// The number of the frozen stream in this group, so that the node ends the stream's consumers.
        stream: StreamNumber,
    },
    /// The directory has called off the stream's move from this group: the stream stays here, with its
    /// consumers, and the node serves it again.
    StreamThawed {
        /// The number of the stream that thaws, in this group, so that the node serves the stream's consumers
        /// again.
        stream: StreamNumber,
    },
    /// The directory of this group has called off the stream's move: the stream stays in the group that keeps
    /// it.
    StreamStays {
        /// The number of the stream's entry in this directory, by which the node finds the ended move.
        stream: StreamNumber,
    },
    /// The copy of a moving stream in this group is complete, with its consumers: this group keeps the stream
    /// from now on, and the node begins to serve it.
    StreamFilled {
        /// The number of the stream in this group, by which the leader begins to serve the stream's
        /// consumers.
        stream: StreamNumber,
    },
    /// The stream has moved: another group keeps it from now on. The effects before this one have removed the
    /// stream's content from this group.
    StreamMoved {
        /// The number of the stream's entry in this directory, by which the node finds the ended move.
        stream: StreamNumber,
    },
    /// A stream created a consumer, so the leader begins to serve it.
    ConsumerCreated {
        /// The number of the stream that has the new consumer, by which the leader finds it.
        stream: StreamNumber,
        /// The name of the new consumer in its stream, by which the leader finds it.
        name: String,
    },
    /// A client changed the configuration of a consumer, so the leader delivers by the new configuration.
    ConsumerUpdated {
        /// The number of the stream that has the consumer, by which the leader finds it.
        stream: StreamNumber,
        /// The name of the consumer with the new configuration, by which the leader finds it.
        name: String,
    },
    /// A reset by a client has moved a consumer to another message of its stream; the consumer's state holds
    /// the new position.
    ConsumerReset {
        /// The number of the stream that has the consumer, by which the leader finds it.
        stream: StreamNumber,
        /// The name of the consumer that the client reset, by which the leader finds it.
        name: String,
    },
    /// A stream deleted a consumer, so the leader stops serving it.
    ConsumerDeleted {
        /// The number of the stream that had the consumer, so that the leader ends the right consumer.
        stream: StreamNumber,
        /// The name of the deleted consumer, so that the leader ends the right consumer.
        name: String,
    },
}
