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
use crate::schema::mapping::SubjectTransform;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The `type` of the answer to a request with a subject that the server does not serve.
pub const SYSTEM: &str = "io.nats.jetstream.api.v1.system_response";

/// The kind of an API request that the server answers in JSON.
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
    StreamSnapshot,
    StreamRestore,
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
    /// Returns the text for the field `type` of the answer to this kind of request.
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
            Self::StreamSnapshot => "io.nats.jetstream.api.v1.stream_snapshot_response",
            Self::StreamRestore => "io.nats.jetstream.api.v1.stream_restore_response",
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

/// Encodes the JSON answer to a request that succeeded, with the fields of `result`.
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

/// Encodes the JSON answer to a request that the server refused. `kind` is [`Kind::as_str`] or [`SYSTEM`].
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

/// The nodes that keep a stream or serve a consumer, as an info answer shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterInfo {
    /// The name of the cluster to which the node belongs; empty outside of a cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of the Raft group that keeps the stream or consumer on several nodes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raft_group: String,
    /// The name of the node that serves the stream or consumer, which is the group's leader; empty if the
    /// answering node knows no leader.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// The time at which the answering node began to lead the group; `None` if another node leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Timestamp>,
    /// True if the replication traffic between the nodes counts for the system account, and not for the
    /// account of a client.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_account: bool,
    /// The name of the account for which the replication traffic between the nodes counts.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub traffic_account: &'static str,
    /// The nodes other than the leader that keep a copy of the stream or consumer. Only the leader knows
    /// them, so another node's answer lists none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaInfo>,
}

impl ClusterInfo {
    /// Returns this description for a stream of `num_replicas` replicas. If more nodes than that keep the
    /// stream, the description leaves out the surplus nodes, disconnected ones first: a monitoring tool
    /// reports any other number of nodes as a fault, while a disconnected surplus copy is no fault.
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

/// A node that keeps a copy of the stream or consumer, as the leader sees this node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaInfo {
    /// The name of the node.
    pub name: String,
    /// True if the answering node hears from this node, and this node lacks few or none of the log's entries.
    pub current: bool,
    /// True if the leader has no connection to the node.
    #[serde(skip_serializing_if = "is_zero")]
    pub offline: bool,
    /// The time since the answering node last heard from this node, in nanoseconds; 0 if it never did.
    pub active: u64,
    /// The number of log entries that this node still lacks, compared with the leader's log.
    #[serde(skip_serializing_if = "is_zero")]
    pub lag: u64,
    /// The id of the node, as NATS tools show it.
    pub peer: String,
}

/// The description of a stream in an API answer to a client.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo<'a> {
    /// The stream's configuration, with the version and API level of the answering server in the metadata.
    pub config: Cow<'a, StreamConfig>,
    /// The time at which the server created the stream.
    pub created: Timestamp,
    /// The counts, numbers and times of the messages that the stream holds.
    pub state: StreamState,
    /// The server's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The nodes that keep the stream; `None` leaves the field out of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cow<'a, ClusterInfo>>,
    /// The state of the mirror's origin; `None` if the stream is no mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<OriginState>,
    /// The states of the stream's sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<OriginState>,
    /// The time at which the server made this answer.
    pub ts: Timestamp,
}

/// The state of an origin of a stream: how far the stream has got in it.
#[derive(Clone, Debug, Serialize)]
pub struct OriginState {
    /// The name of the origin.
    pub name: String,
    /// The number of messages that the origin has and the stream has not taken in.
    pub lag: u64,
    /// The time since the origin's last answer, in nanoseconds; -1 if it has never answered.
    pub active: i64,
    /// The pattern of the subjects that the stream takes in; empty for all subjects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// The transforms of the subjects under which the stream stores the messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subject_transforms: Vec<SubjectTransform>,
    /// The error of the last attempt to take in messages; `None` if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ApiError>,
}

/// The state of a stream's messages, as an answer shows it.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The number of messages.
    pub messages: u64,
    /// The number of bytes of the stream's messages.
    pub bytes: u64,
    /// The number of the stream's first message. In an empty stream, it is the number that the next message
    /// gets, or 0 if the stream has never stored a message.
    pub first_seq: StreamSeq,
    /// The time at which the stream stored its first message; [`Timestamp::ZERO`] if the stream is empty.
    pub first_ts: Timestamp,
    /// The number of the last message that the stream ever stored, which it may have removed since; 0 before
    /// the first message.
    pub last_seq: StreamSeq,
    /// The time at which the stream stored its last message, which it may have removed since;
    /// [`Timestamp::ZERO`] if the stream has never stored a message.
    pub last_ts: Timestamp,
    /// The number of subjects with messages in the stream.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_subjects: u64,
    /// Subjects of the stream, each with its number of messages; empty unless the request asks for them.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "subject_counts"
    )]
    pub subjects: Vec<(String, u64)>,
    /// The number of removed messages between the stream's first message and its last.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_deleted: u64,
    /// The numbers of the removed messages; empty unless the request asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<StreamSeq>,
    /// The number of the stream's consumers.
    pub consumer_count: usize,
}

/// The position of an answer's items in the whole list of streams, consumers or subjects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The number of items in the whole list of streams, consumers or subjects.
    pub total: usize,
    /// The number of items at the beginning of the list that the answer skips.
    pub offset: usize,
    /// The most list items that one answer contains.
    pub limit: usize,
}

impl Page {
    /// Creates the page of a list of `total` items that skips `offset` items and contains at most `limit`.
    #[must_use]
    pub fn new(total: usize, offset: usize, limit: usize) -> Self {
        Self {
            total,
            offset: offset.min(total),
            limit,
        }
    }
}

/// The description of a consumer in an API answer to a client.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerInfo<'a> {
    /// The name of the consumer's stream.
    pub stream_name: &'a str,
    /// The consumer's name.
    pub name: &'a str,
    /// The time at which the server created the consumer.
    pub created: Timestamp,
    /// The consumer's configuration, with the version and API level of the answering server in the metadata.
    pub config: Cow<'a, ConsumerConfig>,
    /// The number of the consumer's last delivery, and of the message that it delivered.
    pub delivered: Sequences,
    /// The ack floor: the last delivery up to which receivers have acknowledged every delivery.
    pub ack_floor: Sequences,
    /// The number of messages that the consumer has delivered and that receivers have not acknowledged.
    pub num_ack_pending: u64,
    /// The number of unacknowledged messages that the consumer has delivered more than once.
    pub num_redelivered: u64,
    /// The number of pull requests that wait at the consumer for messages.
    pub num_waiting: u64,
    /// The number of messages that pass the consumer's filters and that the consumer has still to deliver for
    /// the first time.
    pub num_pending: u64,
    /// True if a client subscribes to the deliver subject of a push consumer.
    #[serde(skip_serializing_if = "is_zero")]
    pub push_bound: bool,
    /// True while a pause stops the consumer's deliveries.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// The time until the pause of the consumer ends, in nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub pause_remaining: i64,
    /// The nodes that keep the consumer, with the leader that serves it.
    pub cluster: &'a ClusterInfo,
    /// The time at which the server made this answer.
    pub ts: Timestamp,
}

/// A delivery of a consumer, by its number in the consumer and the number of its message in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sequences {
    /// The number of the delivery among all deliveries of the consumer.
    pub consumer_seq: ConsumerSeq,
    /// The number of the delivered message in the stream.
    pub stream_seq: StreamSeq,
    /// The time of the delivery; for the ack floor, the time of the last acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<Timestamp>,
}

/// The usage and the limits of an account, as an info answer shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountInfo<'a> {
    /// The number of bytes of messages that the account's streams hold in memory.
    pub memory: u64,
    /// The number of bytes of messages that the account's streams hold on disk.
    pub storage: u64,
    /// The number of bytes that the server reserves in memory: the sum of the byte limits of the streams in
    /// memory.
    pub reserved_memory: u64,
    /// The number of bytes that the server reserves on disk: the sum of the byte limits of the streams on
    /// disk.
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
    /// The counts of the JetStream API requests of the account.
    pub api: ApiCounts,
}

/// The limits of an account, as an info answer shows them; a limit of -1 allows any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLimits {
    /// The most bytes of messages that all streams together may hold in memory.
    pub max_memory: i64,
    /// The most bytes of messages that all streams together may hold on disk.
    pub max_storage: i64,
    /// The most streams that the account may have.
    pub max_streams: i64,
    /// The most consumers that the account may have.
    pub max_consumers: i64,
    /// The most unacknowledged messages that one consumer may have.
    pub max_ack_pending: i64,
    /// The most bytes of messages that one stream may hold in memory.
    pub memory_max_stream_bytes: i64,
    /// The most bytes of messages that one stream may hold on disk.
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

/// The API level of a server, and counts of the API requests to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApiCounts {
    /// The API level of this server.
    pub level: u32,
    /// The number of API requests that clients have sent to this server since its start.
    pub total: u64,
    /// The number of API requests that this server has refused since its start.
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

/// Encodes the JSON answer to a request that succeeded and has no result of its own.
#[must_use]
pub fn success(kind: Kind) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success {
        success: bool,
    }
    done(kind, &Success { success: true })
}

/// Encodes the JSON answer to a purge that removed `purged` messages from a stream.
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

/// Encodes the JSON answer to a request that pauses a consumer until `until`, or that ends the pause
/// (`None`).
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
    // Clients read the remaining time of a pause as an `i64` of nanoseconds. A pause of centuries does not
    // fit, so the server states the highest `i64`.
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

/// Encodes the JSON answer to a request for one message, as the stream has stored the message; `no_headers`
/// leaves out the message's headers.
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
    // The serialisation never fails: strings, numbers and lists of these always have a JSON form.
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
