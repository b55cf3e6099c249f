//! Defines the request of a stream's leader for messages of an origin, and the answer of the origin's leader.

use serde::{Deserialize, Serialize};
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::config::StreamSource;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Progress;

/// The request that a stream's leader sends to the origin's leader: it asks for the messages that follow a
/// progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The directory number of the stream that takes in the messages, which the answer repeats.
    pub(crate) target: DirectoryNumber,
    /// The group of the stream that takes in the messages. The origin's leader sends the answer to the leader
    /// of this group.
    pub(crate) group: GroupId,
    /// The directory number of the origin, by which the origin's leader finds the stream.
    pub(crate) origin: DirectoryNumber,
    /// True if the stream is a mirror, which continues only with the same origin. The origin's leader gives
    /// no messages of another stream with that name.
    pub(crate) is_mirror: bool,
    pub(crate) source: StreamSource,
    /// The progress that the log of the stream's group holds: a quorum of that group has the messages up to
    /// it, so that the origin may remove them.
    pub(crate) logged: Option<Progress>,
    /// The progress after which the messages of the answer begin, so that the asking leader gets no message
    /// twice.
    pub(crate) from: Option<Progress>,
    /// For an origin in another cluster, the time of the message at the progress in the mirror, in
    /// microseconds since 1970. A remote that came back with an old copy of its data has another message
    /// there.
    #[serde(skip)]
    pub(crate) last_us: Option<u64>,
}

/// The answer of the origin's leader to a [`Request`], from which the asking leader makes an intake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The progress that the request stated, the progress with the messages of this answer, and the sequence
    /// of the origin's last message, from which the asking leader computes its lag.
    pub(crate) state: Result<(Option<Progress>, Progress, StreamSeq), ApiError>,
    /// The messages as an entry that the asking leader proposes: the head of an intake with the numbers and
    /// times of the messages, then the messages. These bytes are not JSON, so they follow the JSON in the
    /// payload.
    #[serde(skip)]
    pub(crate) entry: Vec<u8>,
}

/// The messages that a thread fetched from another cluster, for the leader of the stream that takes them in.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// The group of that stream.
    pub(crate) group: GroupId,
    /// The directory number of that stream.
    pub(crate) target: DirectoryNumber,
    /// The key of the source.
    pub(crate) key: String,
    pub(crate) answer: Answer,
}
