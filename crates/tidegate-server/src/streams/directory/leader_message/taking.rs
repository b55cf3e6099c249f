//! The request of a stream's leader for messages of an origin, and the answer of the origin's leader.

use serde::{Deserialize, Serialize};
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::config::StreamSource;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Progress;

/// A request of a stream's leader for the messages of an origin that follow a progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The directory number of the stream that takes in the messages.
    pub(crate) target: DirectoryNumber,
    /// The group of that stream. Its leader gets the answer.
    pub(crate) group: GroupId,
    /// The directory number of the origin.
    pub(crate) origin: DirectoryNumber,
    /// True if the stream is a mirror, which continues only with the same origin.
    pub(crate) is_mirror: bool,
    pub(crate) source: StreamSource,
    /// The progress that the log of the stream's group holds: a quorum of that group has the messages up to
    /// it.
    pub(crate) logged: Option<Progress>,
    /// The progress from which the messages follow.
    pub(crate) from: Option<Progress>,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The progress of the request, the progress with the messages of this answer, and the number of the
    /// origin's last message.
    pub(crate) state: Result<(Option<Progress>, Progress, StreamSeq), ApiError>,
    /// An entry: the head of an intake with the numbers and times of the messages, then the messages. These
    /// bytes are not JSON, so they follow the JSON in the payload.
    #[serde(skip)]
    pub(crate) entry: Vec<u8>,
}
