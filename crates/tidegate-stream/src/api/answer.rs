//! Writes the answers of the JetStream API to the requests of clients: their types, their fields, and their
//! encoding as JSON.
//!
//! The server encodes each answer as an object with a `type`, and with either an `error` or the fields of the
//! result, never both, so that a client can tell success from failure.

use std::borrow::Cow;

use serde::Serialize;

use crate::consumer::ConsumerSeq;
use crate::convert::{or_zero, saturating_usize};
use crate::schema::config::{ConsumerConfig, External, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::level::API_LEVEL;
use crate::schema::mapping::SubjectTransform;
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;

/// The `type` of the answer to a request with a subject that the server does not serve. Clients check the
/// type.
pub const SYSTEM: &str = "io.nats.jetstream.api.v1.system_response";

/// The kind of an API request that the server answers in JSON. It determines the type of the answer.
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
    /// Returns the text for the field `type` of the answer to this kind of request, by which the client
    /// checks the answer.
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

/// Encodes the JSON answer to a request that succeeded, with the fields of `result` that the client asked
/// for.
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
/// The client learns from the error why the server refused.
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

/// The nodes that keep a stream or serve a consumer, as an info answer shows them to clients and monitoring
/// tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterInfo {
    /// The name of the cluster to which the node belongs; empty outside of a cluster, which leaves the field
    /// out of the answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of the Raft group that keeps the stream or consumer on several nodes. Tools show it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raft_group: String,
    /// The name of the node that serves the stream or consumer, which is the group's leader; empty if the
    /// answering node knows no leader. Tools report that as a fault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// The time at which the answering node began to lead the group; `None` if another node leads, because
    /// this node does not know that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Timestamp>,
    /// True if the replication traffic between the nodes counts for the system account, and not for the
    /// account of a client, as operators see it.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_account: bool,
    /// The name of the account for which the replication traffic between the nodes counts, as nats-server
    /// reports it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub traffic_account: &'static str,
    /// The nodes other than the leader that keep a copy of the stream or consumer. Only the leader knows
    /// them, so another node's answer lists no nodes.
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

/// A node that keeps a copy of the stream or consumer, as the leader sees this node. A tool sees from it
/// whether the copy is up to date.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaInfo {
    /// The name of the node with the copy, from its configuration.
    pub name: String,
    /// True if the leader hears from this node, and this node lacks few or none of the log's entries.
    pub current: bool,
    /// True if the leader has no connection to the node, which may have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub offline: bool,
    /// The time since the leader last heard from this node, in nanoseconds; 0 if the leader never heard from
    /// it.
    pub active: u64,
    /// The number of log entries that this node still lacks, compared with the leader's log. Tools show it as
    /// the copy's lag.
    #[serde(skip_serializing_if = "is_zero")]
    pub lag: u64,
    /// The id of the node, as NATS tools show it beside the name.
    pub peer: String,
}

/// The description of a stream in an API answer to a client, for example to an info request.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo<'a> {
    /// The stream's configuration, with the version and API level of the answering server in the metadata, as
    /// nats-server adds them.
    pub config: Cow<'a, StreamConfig>,
    /// The time at which the server created the stream. A client recognises a new stream of an old name by
    /// it.
    pub created: Timestamp,
    /// The counts, numbers and times of the messages that the stream holds, at the time of the answer.
    pub state: StreamState,
    /// The JetStream domain of the server, which clients use in subjects; `None` leaves the field out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The nodes that keep the stream, with its leader; `None` leaves the field out of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cow<'a, ClusterInfo>>,
    /// The progress of the mirror in its origin; `None` if the stream is no mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<OriginState>,
    /// The progress of the stream in each of its sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<OriginState>,
    /// In a cluster, the stream and its mirrors, from which a client can choose; empty if it has no mirror.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternates: Vec<Alternate<'a>>,
    /// The time at which the server made this answer. The client compares the other times with it.
    pub ts: Timestamp,
}

/// A stream with the messages of the stream for which a client asked: this stream itself, or a mirror of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Alternate<'a> {
    /// The name of the stream or mirror.
    pub name: &'a str,
    /// The JetStream domain of the server; `None` leaves the field out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The name of the cluster that keeps the stream or mirror.
    pub cluster: &'a str,
}

/// The progress of a stream in one of its origins, by which an operator sees whether the stream is up to
/// date.
#[derive(Clone, Debug, Serialize)]
pub struct OriginState {
    /// The name of the origin, the other stream from which this stream takes in messages.
    pub name: String,
    /// The number of messages that the origin has and the stream has not taken in, as of the origin's last
    /// answer.
    pub lag: u64,
    /// The time since the origin's last answer, in nanoseconds; -1 if the origin has never answered. A long
    /// time is a sign of a fault.
    pub active: i64,
    /// The pattern of the subjects that the stream takes in from this origin; empty for all subjects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// The transforms of the subjects under which the stream stores the messages of this origin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subject_transforms: Vec<SubjectTransform>,
    /// The other cluster that keeps the origin; `None` for a stream of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The error of the last attempt to take in messages; `None` if that attempt succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ApiError>,
}

/// The state of a stream's messages, as an answer shows it to the client.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The number of messages that the stream holds.
    pub messages: u64,
    /// The size of the messages that the stream holds, in bytes.
    pub bytes: u64,
    /// The number of the stream's first message. In an empty stream, this is the number that the next message
    /// gets, or 0 if the stream has never stored a message. Clients begin to read there.
    pub first_seq: StreamSeq,
    /// The time at which the stream stored its first message; [`Timestamp::ZERO`] if the stream is empty. A
    /// client sees the age of the stream's content by it.
    pub first_ts: Timestamp,
    /// The number of the last message that the stream ever stored, which it may have removed since; 0 before
    /// the first message. Publishers can depend on it.
    pub last_seq: StreamSeq,
    /// The time at which the stream stored its last message, which it may have removed since;
    /// [`Timestamp::ZERO`] if the stream has never stored a message. A client sees by it whether publishers
    /// are active.
    pub last_ts: Timestamp,
    /// The number of subjects that have messages in the stream.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_subjects: u64,
    /// Subjects of the stream, each with its number of messages; empty unless the client's request asks for
    /// them, because they may be many.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "subject_counts"
    )]
    pub subjects: Vec<(String, u64)>,
    /// The number of removed messages between the stream's first message and its last, so that a client knows
    /// how many numbers are missing.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_deleted: u64,
    /// The numbers of the removed messages; empty unless the client's request asks for them, because they may
    /// be many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<StreamSeq>,
    /// The number of the stream's consumers, at the time of the answer.
    pub consumer_count: usize,
}

/// The position of an answer's items in the whole list of streams, consumers or subjects. The client asks for
/// the next page until it has all items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The number of items in the whole list, so that the client knows whether more pages follow.
    pub total: usize,
    /// The number of items at the beginning of the list that the answer skips, because the client has them
    /// from earlier pages.
    pub offset: usize,
    /// The limit on the list items in one answer, which keeps the answer short.
    pub limit: usize,
}

impl Page {
    /// Creates the page of a list of `total` items that skips `offset` items and contains at most `limit`. An
    /// offset beyond the list counts as its end.
    #[must_use]
    pub fn new(total: usize, offset: usize, limit: usize) -> Self {
        Self {
            total,
            offset: offset.min(total),
            limit,
        }
    }
}

/// The description of a consumer in an API answer to a client, for example to an info request.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerInfo<'a> {
    /// The name of the stream from which the consumer delivers messages.
    pub stream_name: &'a str,
    /// The name of the consumer in its stream, by which the client addresses it.
    pub name: &'a str,
    /// The time at which the server created the consumer. A client recognises a new consumer of an old name
    /// by it.
    pub created: Timestamp,
    /// The consumer's configuration, with the version and API level of the answering server in the metadata,
    /// as nats-server adds them.
    pub config: Cow<'a, ConsumerConfig>,
    /// The number of the consumer's last delivery, and the number of the delivered message in the stream.
    pub delivered: Sequences,
    /// The ack floor: the delivery up to which receivers have acknowledged every delivery, which shows their
    /// progress.
    pub ack_floor: Sequences,
    /// The number of messages that the consumer has delivered and that receivers have not acknowledged. A
    /// client sees from it how far its receivers are behind.
    pub num_ack_pending: u64,
    /// The number of unacknowledged messages that the consumer has delivered more than once, a sign of
    /// failing or slow receivers.
    pub num_redelivered: u64,
    /// The number of pull requests that wait at the consumer for messages, a sign of idle receivers.
    pub num_waiting: u64,
    /// The number of messages that pass the consumer's filters and that the consumer has still to deliver for
    /// the first time, that is, its backlog.
    pub num_pending: u64,
    /// True if a client subscribes to the deliver subject of a push consumer, so that a second client knows
    /// that the consumer is in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub push_bound: bool,
    /// True while a pause stops the consumer's deliveries, so that a client knows why no messages come.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// The time until the pause of the consumer ends, in nanoseconds; 0 without a pause.
    #[serde(skip_serializing_if = "is_zero")]
    pub pause_remaining: i64,
    /// The nodes that keep the consumer, with the leader that serves the consumer.
    pub cluster: &'a ClusterInfo,
    /// The time at which the server made this answer. The client compares the other times with it.
    pub ts: Timestamp,
}

/// A delivery of a consumer, by its number in the consumer and the number of its message in the stream. An
/// info answer shows such positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sequences {
    /// The number of the delivery among all deliveries of the consumer, redeliveries included.
    pub consumer_seq: ConsumerSeq,
    /// The number of the delivered message in the stream, by which a client can read the message.
    pub stream_seq: StreamSeq,
    /// The time of the delivery; for the ack floor, the time of the last acknowledgement. `None` if this node
    /// does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<Timestamp>,
}

/// The usage and the limits of an account, as an info answer shows them, so that a client sees how much room
/// is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountInfo<'a> {
    /// The size of the messages that the account's streams hold in memory, in bytes.
    pub memory: u64,
    /// The size of the messages that the account's streams hold on disk, in bytes.
    pub storage: u64,
    /// The number of bytes that the server reserves in memory: the sum of the byte limits of the streams in
    /// memory. The server accepts no streams beyond its limit.
    pub reserved_memory: u64,
    /// The number of bytes that the server reserves on disk: the sum of the byte limits of the streams on
    /// disk. The server accepts no streams beyond its limit.
    pub reserved_storage: u64,
    /// The number of streams of the account, which the server reports to the client.
    pub streams: usize,
    /// The number of consumers of all streams of the account, which the server reports to the client.
    pub consumers: usize,
    /// The limits of the account, beyond which the server refuses requests.
    pub limits: AccountLimits,
    /// The JetStream domain of the server, which clients use in subjects; `None` leaves the field out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// The counts of the JetStream API requests of the account, for operators.
    pub api: ApiCounts,
}

/// The limits of an account, as an info answer shows them to a client; a limit of -1 allows any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLimits {
    /// The limit on the messages that all streams together hold in memory, in bytes.
    pub max_memory: i64,
    /// The limit on the messages that all streams together hold on disk, in bytes.
    pub max_storage: i64,
    /// The limit on the streams of the account; the server refuses to create more.
    pub max_streams: i64,
    /// The limit on the consumers of the account; the server refuses to create more.
    pub max_consumers: i64,
    /// The limit on the unacknowledged messages of one consumer, which bounds its memory.
    pub max_ack_pending: i64,
    /// The limit on the messages that one stream holds in memory, in bytes.
    pub memory_max_stream_bytes: i64,
    /// The limit on the messages that one stream holds on disk, in bytes.
    pub storage_max_stream_bytes: i64,
    /// True if every stream must have a limit of bytes, so that the server can reserve the space.
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

/// The API level of a server, and counts of the API requests to this server, as the answer about an account
/// shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApiCounts {
    /// The API level of this server, by which a client knows the features of the API.
    pub level: u32,
    /// The number of API requests that clients have sent to this server since its start, for operators.
    pub total: u64,
    /// The number of API requests that this server has refused since its start, for operators.
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

/// Encodes the JSON answer to a request that succeeded and has no result of its own, such as a deletion.
#[must_use]
pub fn success(kind: Kind) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success {
        success: bool,
    }
    done(kind, &Success { success: true })
}

/// Encodes the JSON answer to a purge that removed `purged` messages from a stream, so that the client learns
/// the number.
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
/// (`None`). The client learns the remaining time.
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
/// leaves out the message's headers, as the client asked.
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
    // The serialisation never fails, because strings, numbers and lists of these always have a JSON form.
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
