//! The answers of the JetStream API: their types, their fields, and their encoding as JSON.
//!
//! An answer is an object with a `type`, and with either an `error` or the fields of the result; never both.

use std::borrow::Cow;

use serde::Serialize;

use crate::consumer::ConsumerSeq;
use crate::convert::{or_zero, saturating_usize};
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level::API_LEVEL;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The type of the answer to a request for a subject that the server does not serve.
pub const SYSTEM: &str = "io.nats.jetstream.api.v1.system_response";

/// The kinds of requests that the server answers in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    AccountInfo,
    StreamCreate,
    StreamUpdate,
    StreamInfo,
    StreamNames,
    StreamList,
    StreamDelete,
    StreamPurge,
    MessageGet,
    MessageDelete,
    ConsumerCreate,
    ConsumerInfo,
    ConsumerNames,
    ConsumerList,
    ConsumerDelete,
    ConsumerPause,
    ConsumerReset,
    MetaStepDown,
    StreamStepDown,
    ConsumerStepDown,
}

impl Kind {
    /// Returns the `type` of the answer.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AccountInfo => "io.nats.jetstream.api.v1.account_info_response",
            Self::StreamCreate => "io.nats.jetstream.api.v1.stream_create_response",
            Self::StreamUpdate => "io.nats.jetstream.api.v1.stream_update_response",
            Self::StreamInfo => "io.nats.jetstream.api.v1.stream_info_response",
            Self::StreamNames => "io.nats.jetstream.api.v1.stream_names_response",
            Self::StreamList => "io.nats.jetstream.api.v1.stream_list_response",
            Self::StreamDelete => "io.nats.jetstream.api.v1.stream_delete_response",
            Self::StreamPurge => "io.nats.jetstream.api.v1.stream_purge_response",
            Self::MessageGet => "io.nats.jetstream.api.v1.stream_msg_get_response",
            Self::MessageDelete => "io.nats.jetstream.api.v1.stream_msg_delete_response",
            Self::ConsumerCreate => "io.nats.jetstream.api.v1.consumer_create_response",
            Self::ConsumerInfo => "io.nats.jetstream.api.v1.consumer_info_response",
            Self::ConsumerNames => "io.nats.jetstream.api.v1.consumer_names_response",
            Self::ConsumerList => "io.nats.jetstream.api.v1.consumer_list_response",
            Self::ConsumerDelete => "io.nats.jetstream.api.v1.consumer_delete_response",
            Self::ConsumerPause => "io.nats.jetstream.api.v1.consumer_pause_response",
            Self::ConsumerReset => "io.nats.jetstream.api.v1.consumer_reset_response",
            Self::MetaStepDown => "io.nats.jetstream.api.v1.meta_leader_stepdown_response",
            Self::StreamStepDown => "io.nats.jetstream.api.v1.stream_leader_stepdown_response",
            Self::ConsumerStepDown => "io.nats.jetstream.api.v1.consumer_leader_stepdown_response",
        }
    }
}

/// Encodes the answer to a request that succeeded.
#[must_use]
pub fn done(kind: Kind, result: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a, T> {
        r#type: &'static str,
        #[serde(flatten)]
        result: &'a T,
    }
    to_vec(&Answer {
        r#type: kind.as_str(),
        result,
    })
}

/// Encodes the answer to a request that the server refused. `kind` is [`Kind::as_str`] or [`SYSTEM`].
#[must_use]
pub fn refused(kind: &'static str, error: &ApiError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        r#type: &'static str,
        error: &'a ApiError,
    }
    to_vec(&Answer {
        r#type: kind,
        error,
    })
}

/// The nodes that keep a stream or serve a consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterInfo {
    /// The cluster's name; empty outside of a cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The Raft group that replicates the stream or consumer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raft_group: String,
    /// The node that serves the stream or consumer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// The time at which the leader began to lead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Timestamp>,
    /// True if the replication traffic between the nodes counts for the system account, and not for a
    /// client's.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_account: bool,
    /// The account for which the replication traffic between the nodes counts.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub traffic_account: &'static str,
    /// The nodes that keep a copy, other than the leader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaInfo>,
}

impl ClusterInfo {
    /// Returns this description for a stream of `num_replicas` replicas. If more nodes keep the stream than
    /// `num_replicas`, the description leaves out the surplus nodes, disconnected ones first: a monitoring
    /// tool reports any other number of nodes as a fault, while a disconnected surplus copy is no fault.
    #[must_use]
    pub fn of(&self, num_replicas: i64) -> Cow<'_, Self> {
        let others = saturating_usize(or_zero(num_replicas).max(1) - 1);
        if self.replicas.len() <= others {
            return Cow::Borrowed(self);
        }
        let mut replicas = self.replicas.clone();
        replicas.sort_by_key(|replica| (replica.offline, !replica.current));
        replicas.truncate(others);
        Cow::Owned(Self {
            replicas,
            ..self.clone()
        })
    }
}

/// A node that keeps a copy of the stream, as the leader sees this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaInfo {
    /// The node's name.
    pub name: String,
    /// True if the node has every committed entry, or nearly every one.
    pub current: bool,
    /// True if the node is not connected.
    #[serde(skip_serializing_if = "is_zero")]
    pub offline: bool,
    /// The nanoseconds since the leader last heard from the node.
    pub active: u64,
    /// The number of entries that the node lacks.
    #[serde(skip_serializing_if = "is_zero")]
    pub lag: u64,
    /// The node's id.
    pub peer: String,
}

/// The description of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo<'a> {
    /// The configuration, with the version and level of the answering server in the metadata.
    pub config: Cow<'a, StreamConfig>,
    /// The time at which the stream was created.
    pub created: Timestamp,
    /// The state of the stream's messages.
    pub state: StreamState,
    /// The server's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The nodes that keep the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cow<'a, ClusterInfo>>,
    /// The time of this answer.
    pub ts: Timestamp,
}

/// The state of a stream's messages.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The number of messages.
    pub messages: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The number of the first message.
    pub first_seq: StreamSeq,
    /// The time at which the first message was stored.
    pub first_ts: Timestamp,
    /// The number of the last message ever stored.
    pub last_seq: StreamSeq,
    /// The time at which the last message was stored.
    pub last_ts: Timestamp,
    /// The number of subjects that have messages.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_subjects: u64,
    /// The number of messages of each subject, if the request asks for it.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "subject_counts"
    )]
    pub subjects: Vec<(String, u64)>,
    /// The number of deleted messages between the first and the last.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_deleted: u64,
    /// The numbers of the deleted messages, if the request asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<StreamSeq>,
    /// The number of consumers.
    pub consumer_count: usize,
}

/// The part of a list that an answer contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The number of things in the whole list.
    pub total: usize,
    /// The number of things that the answer skips.
    pub offset: usize,
    /// The most things that an answer holds.
    pub limit: usize,
}

impl Page {
    /// Creates the page of `limit` things after the first `offset` of `total`.
    #[must_use]
    pub fn new(total: usize, offset: usize, limit: usize) -> Self {
        Self {
            total,
            offset: offset.min(total),
            limit,
        }
    }
}

/// The description of a consumer.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerInfo<'a> {
    /// The name of the consumer's stream.
    pub stream_name: &'a str,
    /// The consumer's name.
    pub name: &'a str,
    /// The time at which the consumer was created.
    pub created: Timestamp,
    /// The configuration, with the version and level of the answering server in the metadata.
    pub config: Cow<'a, ConsumerConfig>,
    /// The last delivery.
    pub delivered: Sequences,
    /// The last delivery up to which receivers have acknowledged every delivery.
    pub ack_floor: Sequences,
    /// The number of delivered messages that receivers have not acknowledged.
    pub num_ack_pending: u64,
    /// The number of messages that the consumer delivered more than once, and that receivers have not
    /// acknowledged.
    pub num_redelivered: u64,
    /// The number of pulls that wait for messages.
    pub num_waiting: u64,
    /// The number of messages that the consumer has still to deliver for the first time.
    pub num_pending: u64,
    /// True if a client subscribes to the deliver subject.
    #[serde(skip_serializing_if = "is_zero")]
    pub push_bound: bool,
    /// True if deliveries are paused.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// The nanoseconds until the pause ends.
    #[serde(skip_serializing_if = "is_zero")]
    pub pause_remaining: i64,
    /// The nodes that serve the consumer.
    pub cluster: &'a ClusterInfo,
    /// The time of this answer.
    pub ts: Timestamp,
}

/// A delivery, by its number in the consumer and the number of its message in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sequences {
    /// The number of the delivery in the consumer.
    pub consumer_seq: ConsumerSeq,
    /// The number of the message in the stream.
    pub stream_seq: StreamSeq,
    /// The time of the delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<Timestamp>,
}

/// The usage and the limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountInfo<'a> {
    /// The number of bytes of messages in memory.
    pub memory: u64,
    /// The number of bytes of messages on disk.
    pub storage: u64,
    /// The number of bytes in memory that the server reserves for streams.
    pub reserved_memory: u64,
    /// The number of bytes on disk that the server reserves for streams.
    pub reserved_storage: u64,
    /// The number of streams.
    pub streams: usize,
    /// The number of consumers.
    pub consumers: usize,
    /// The limits of the account.
    pub limits: AccountLimits,
    /// The server's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The counts of API requests.
    pub api: ApiCounts,
}

/// The limits of an account; -1 is any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLimits {
    /// The most bytes in memory.
    pub max_memory: i64,
    /// The most bytes on disk.
    pub max_storage: i64,
    /// The most streams.
    pub max_streams: i64,
    /// The most consumers.
    pub max_consumers: i64,
    /// The most unacknowledged messages of one consumer.
    pub max_ack_pending: i64,
    /// The most bytes of one stream in memory.
    pub memory_max_stream_bytes: i64,
    /// The most bytes of one stream on disk.
    pub storage_max_stream_bytes: i64,
    /// True if every stream must have a limit of bytes.
    pub max_bytes_required: bool,
}

impl Default for AccountLimits {
    fn default() -> Self {
        Self {
            max_memory: -1,
            max_storage: -1,
            max_streams: -1,
            max_consumers: -1,
            max_ack_pending: -1,
            memory_max_stream_bytes: -1,
            storage_max_stream_bytes: -1,
            max_bytes_required: false,
        }
    }
}

/// The counts of API requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApiCounts {
    /// The API level of this server.
    pub level: u32,
    /// The number of requests so far.
    pub total: u64,
    /// The number of requests that the server refused.
    pub errors: u64,
}

impl Default for ApiCounts {
    fn default() -> Self {
        Self {
            level: API_LEVEL,
            total: 0,
            errors: 0,
        }
    }
}

/// Encodes the answer to a request that succeeded and has no other result.
#[must_use]
pub fn success(kind: Kind) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success {
        success: bool,
    }
    done(kind, &Success { success: true })
}

/// Encodes the answer to a purge that removed this many messages.
#[must_use]
pub fn purged(purged: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Purged {
        success: bool,
        purged: u64,
    }
    done(
        Kind::StreamPurge,
        &Purged {
            success: true,
            purged,
        },
    )
}

/// Encodes the answer to a pause: the consumer is paused until `until`, or is no longer paused.
#[must_use]
pub fn paused(until: Option<Timestamp>, now: Timestamp) -> Vec<u8> {
    #[derive(Serialize)]
    struct Paused {
        paused: bool,
        pause_until: Timestamp,
        #[serde(skip_serializing_if = "is_zero")]
        pause_remaining: i64,
    }
    let until = until.unwrap_or(Timestamp::ZERO);
    // Clients read the time as an `i64`. A pause of centuries does not fit, so the server answers the highest
    // number.
    let remaining = i64::try_from(until.as_nanos() - now.as_nanos()).unwrap_or(i64::MAX);
    let paused = until > now;
    done(
        Kind::ConsumerPause,
        &Paused {
            paused,
            pause_until: until,
            pause_remaining: if paused { remaining } else { 0 },
        },
    )
}

/// Encodes the answer to a request for one message, as the stream stores the message; `no_headers` leaves out
/// the message's headers.
#[must_use]
pub fn message(
    seq: StreamSeq,
    message: &crate::consumer::Message<'_>,
    no_headers: bool,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        message: Stored<'a>,
    }
    #[derive(Serialize)]
    struct Stored<'a> {
        subject: Cow<'a, str>,
        seq: StreamSeq,
        #[serde(skip_serializing_if = "String::is_empty")]
        hdrs: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        data: String,
        time: Timestamp,
    }
    let headers: &[u8] = if no_headers { b"" } else { message.headers };
    let message = Stored {
        subject: String::from_utf8_lossy(message.subject),
        seq,
        hdrs: base64(headers),
        data: base64(message.payload),
        time: Timestamp::from_micros(message.time_us),
    };
    done(Kind::MessageGet, &Answer { message })
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn to_vec(answer: &impl Serialize) -> Vec<u8> {
    // The serialisation never fails: strings, numbers and lists of them always have a JSON form.
    serde_json::to_vec(answer).unwrap_or_else(|e| unreachable!("an answer is always JSON: {e}"))
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn subject_counts<S: serde::Serializer>(
    subjects: &[(String, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(subjects.iter().map(|(subject, count)| (subject, count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_replicas_as_were_asked_for() {
        let replica = |name: &str, current, offline| ReplicaInfo {
            name: name.to_owned(),
            current,
            offline,
            ..ReplicaInfo::default()
        };
        let cluster = ClusterInfo {
            leader: "n1".to_owned(),
            replicas: vec![
                replica("n2", false, true),
                replica("n3", false, false),
                replica("n4", true, false),
                replica("n5", true, false),
            ],
            ..ClusterInfo::default()
        };
        let shown = |n| {
            let of = cluster.of(n);
            let names = of.replicas.iter().map(|r| r.name.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(0), "");
        assert_eq!(shown(1), "");
        assert_eq!(shown(3), "n4 n5");
        assert_eq!(shown(4), "n4 n5 n3");
        assert_eq!(shown(5), "n2 n3 n4 n5");
    }
}
