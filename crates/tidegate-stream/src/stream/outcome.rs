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
        /// Its stream.
        stream: StreamNumber,
        /// Its number.
        seq: StreamSeq,
    },
    /// The message is a duplicate: a message with its id is already stored under this number.
    Duplicate {
        /// Its stream.
        stream: StreamNumber,
        /// The first one's number.
        seq: StreamSeq,
    },
    /// The command was refused and changed nothing.
    Refused {
        /// Its stream; 0 if it had none.
        stream: StreamNumber,
        /// The reason.
        error: ApiError,
    },
    /// The next `count` outcomes are those of an atomic batch that was stored.
    Batch {
        /// Its stream.
        stream: StreamNumber,
        /// The last message's number.
        seq: StreamSeq,
        /// How many messages it has.
        count: u32,
    },
    /// The stream was made.
    Created {
        /// Its number.
        stream: StreamNumber,
    },
    /// A stream with this name and the same configuration exists.
    Exists {
        /// Its number.
        stream: StreamNumber,
    },
    /// The stream has the requested configuration.
    Updated {
        /// Its number.
        stream: StreamNumber,
    },
    /// The stream was deleted.
    Deleted {
        /// The number it had.
        stream: StreamNumber,
    },
    /// The messages were purged.
    Purged {
        /// Their stream.
        stream: StreamNumber,
        /// The number of purged messages.
        purged: u64,
    },
    /// The message was removed.
    Removed {
        /// Its stream.
        stream: StreamNumber,
    },
    /// The consumer was made.
    ConsumerCreated {
        /// Its stream.
        stream: StreamNumber,
    },
    /// A consumer with this name and the same configuration exists.
    ConsumerExists {
        /// Its stream.
        stream: StreamNumber,
    },
    /// The consumer has the requested configuration.
    ConsumerUpdated {
        /// Its stream.
        stream: StreamNumber,
    },
    /// The consumer was deleted.
    ConsumerDeleted {
        /// Its stream.
        stream: StreamNumber,
    },
    /// The command was applied, and has no result.
    Done,
}

/// A change of a stream.
///
/// Each message that [`Effect::Stored`] reports is later part of one [`Effect::Removed`], [`Effect::Purged`]
/// or [`Effect::StreamDeleted`], with its place at that time and the same size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// A message was stored.
    Stored {
        /// Its stream.
        stream: StreamNumber,
        /// Its number.
        seq: StreamSeq,
        /// Its place; the default if the stream is in memory.
        place: Place,
        /// Its size as its stream counts it.
        bytes: u32,
        /// Its subject.
        subject: Name,
    },
    /// A message was removed.
    Removed {
        /// Its stream.
        stream: StreamNumber,
        /// Its number.
        seq: StreamSeq,
        /// Its last place.
        place: Place,
        /// Its size as its stream counted it.
        bytes: u32,
        /// Its subject.
        subject: Name,
    },
    /// Many messages were removed at once.
    Purged {
        /// Their stream.
        stream: StreamNumber,
        /// The messages.
        messages: Bulk,
    },
    /// A stream was made.
    StreamCreated {
        /// Its number.
        stream: StreamNumber,
    },
    /// A stream's configuration changed.
    StreamUpdated {
        /// Its number.
        stream: StreamNumber,
    },
    /// A stream was deleted, with its messages and consumers.
    StreamDeleted {
        /// The number it had.
        stream: StreamNumber,
        /// Its name.
        name: String,
        /// Its messages.
        messages: Bulk,
        /// The names of its consumers.
        consumers: Vec<String>,
    },
    /// The group that is to keep the stream has made it.
    StreamMade {
        /// Its number.
        stream: StreamNumber,
    },
    /// The stream leaves for another group: it does not change here unless it thaws.
    StreamFrozen {
        /// Its number.
        stream: StreamNumber,
    },
    /// The move by which the stream was to leave is called off: it stays here, with its consumers.
    StreamThawed {
        /// Its number.
        stream: StreamNumber,
    },
    /// The move of the stream is called off: the other group still keeps it.
    StreamStays {
        /// Its number.
        stream: StreamNumber,
    },
    /// The copy of a stream is complete, with its consumers: this group keeps it now.
    StreamFilled {
        /// Its number.
        stream: StreamNumber,
    },
    /// Another group keeps the stream from now on; the effects before this one removed its content here.
    StreamMoved {
        /// Its number.
        stream: StreamNumber,
    },
    /// A consumer was made.
    ConsumerCreated {
        /// Its stream.
        stream: StreamNumber,
        /// Its name.
        name: String,
    },
    /// A consumer's configuration changed.
    ConsumerUpdated {
        /// Its stream.
        stream: StreamNumber,
        /// Its name.
        name: String,
    },
    /// A consumer was reset to the position in its state.
    ConsumerReset {
        /// Its stream.
        stream: StreamNumber,
        /// Its name.
        name: String,
    },
    /// A consumer was deleted.
    ConsumerDeleted {
        /// Its stream.
        stream: StreamNumber,
        /// Its name.
        name: String,
    },
}
