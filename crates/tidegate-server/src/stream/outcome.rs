//! What came of commands: an [`Outcome`] for whoever waits for it, and [`Effect`]s for whoever keeps
//! something beside the streams.

use super::command::Place;
use super::index::Bulk;
use super::subjects::Name;
use crate::api::error::ApiError;

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The message has this number.
    Stored {
        /// Its stream.
        stream: u32,
        /// Its number.
        seq: u64,
    },
    /// A message with its id was stored under this number; this one was not.
    Duplicate {
        /// Its stream.
        stream: u32,
        /// The first one's number.
        seq: u64,
    },
    /// Nothing was done.
    Refused {
        /// The stream it was about; 0 if it was about none.
        stream: u32,
        /// Why.
        error: ApiError,
    },
    /// The next `count` outcomes are those of an atomic batch that was stored.
    Batch {
        /// Its stream.
        stream: u32,
        /// The last message's number.
        seq: u64,
        /// How many messages it has.
        count: u32,
    },
    /// The stream was made.
    Created {
        /// Its number.
        stream: u32,
    },
    /// The stream was there already, configured just so.
    Exists {
        /// Its number.
        stream: u32,
    },
    /// The stream has the configuration asked for.
    Updated {
        /// Its number.
        stream: u32,
    },
    /// The stream is gone.
    Deleted {
        /// The number it had.
        stream: u32,
    },
    /// The messages are gone.
    Purged {
        /// Their stream.
        stream: u32,
        /// How many.
        purged: u64,
    },
    /// The message is gone.
    Removed {
        /// Its stream.
        stream: u32,
    },
    /// The consumer was made.
    ConsumerCreated {
        /// Its stream.
        stream: u32,
    },
    /// The consumer was there already, configured just so.
    ConsumerExists {
        /// Its stream.
        stream: u32,
    },
    /// The consumer has the configuration asked for.
    ConsumerUpdated {
        /// Its stream.
        stream: u32,
    },
    /// The consumer is gone.
    ConsumerDeleted {
        /// Its stream.
        stream: u32,
    },
    /// It was done, and nobody waits for more.
    Done,
}

/// What changed in a stream.
///
/// Each message that is [`Effect::Stored`] is one day among those [`Effect::Removed`], [`Effect::Purged`] or
/// [`Effect::StreamDeleted`], with the place it has then and the same count of bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// A message came.
    Stored {
        /// Its stream.
        stream: u32,
        /// Its number.
        seq: u64,
        /// Where it lies; nowhere if the stream is in memory.
        place: Place,
        /// What it counts in its stream.
        bytes: u32,
        /// Its subject.
        subject: Name,
    },
    /// A message went.
    Removed {
        /// Its stream.
        stream: u32,
        /// Its number.
        seq: u64,
        /// Where it lay.
        place: Place,
        /// What it counted in its stream.
        bytes: u32,
        /// Its subject.
        subject: Name,
    },
    /// Many messages went at once.
    Purged {
        /// Their stream.
        stream: u32,
        /// Which.
        messages: Bulk,
    },
    /// A stream was made.
    StreamCreated {
        /// Its number.
        stream: u32,
    },
    /// A stream's configuration changed.
    StreamUpdated {
        /// Its number.
        stream: u32,
    },
    /// A stream went with all it held.
    StreamDeleted {
        /// The number it had.
        stream: u32,
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
        stream: u32,
    },
    /// The stream leaves for another group: nothing changes here unless it thaws.
    StreamFrozen {
        /// Its number.
        stream: u32,
    },
    /// The stream does not leave after all: it goes on, with its consumers.
    StreamThawed {
        /// Its number.
        stream: u32,
    },
    /// The stream does not leave the other group that keeps it after all.
    StreamStays {
        /// Its number.
        stream: u32,
    },
    /// The stream has come here whole, with its consumers.
    StreamFilled {
        /// Its number.
        stream: u32,
    },
    /// Another group keeps the stream from now on: what was here went before.
    StreamMoved {
        /// Its number.
        stream: u32,
    },
    /// A consumer was made.
    ConsumerCreated {
        /// Its stream.
        stream: u32,
        /// Its name.
        name: String,
    },
    /// A consumer's configuration changed.
    ConsumerUpdated {
        /// Its stream.
        stream: u32,
        /// Its name.
        name: String,
    },
    /// A consumer begins again, where its state says.
    ConsumerReset {
        /// Its stream.
        stream: u32,
        /// Its name.
        name: String,
    },
    /// A consumer went.
    ConsumerDeleted {
        /// Its stream.
        stream: u32,
        /// Its name.
        name: String,
    },
}
