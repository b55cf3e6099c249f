//! Answers of the JetStream API: their types, their fields, and how they become JSON.
//!
//! An answer is an object with a `type`, and either an `error` or the result's fields; never both.

use std::borrow::Cow;

use serde::Serialize;

use super::config::{ConsumerConfig, StreamConfig};
use super::error::ApiError;
use super::level::API_LEVEL;
use super::timestamp::Timestamp;

/// The type of the answer to a subject nobody serves.
pub const SYSTEM: &str = "io.nats.jetstream.api.v1.system_response";

/// The kinds of requests that are answered in JSON.
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
    /// What stands in the answer's `type`.
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

/// The answer of a request that was done.
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

/// The answer of a request that was refused; `kind` is [`Kind::as_str`] or [`SYSTEM`].
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

/// Which nodes keep a stream or serve a consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClusterInfo {
    /// The cluster's name; empty outside of one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The replicated log it is kept in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raft_group: String,
    /// The node that serves it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub leader: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Timestamp>,
    /// Whether what the nodes tell each other is no client's traffic.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_account: bool,
    /// The account whose traffic that counts as.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub traffic_account: &'static str,
    /// The others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaInfo>,
}

impl ClusterInfo {
    /// The same for a stream of so many replicas. Where more nodes keep it than were asked to, the best of
    /// them are shown: for who watches a stream another number is a fault, and one copy too many that is away
    /// is none.
    #[must_use]
    pub fn of(&self, num_replicas: i64) -> Cow<'_, Self> {
        let others = usize::try_from(num_replicas.max(1) - 1).unwrap_or(usize::MAX);
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

/// A node that keeps a copy, as the leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaInfo {
    /// Its name.
    pub name: String,
    /// It has everything that is committed, or nearly.
    pub current: bool,
    /// It is not connected.
    #[serde(skip_serializing_if = "is_zero")]
    pub offline: bool,
    /// How many nanoseconds ago it was heard of.
    pub active: u64,
    /// How many entries it lacks.
    #[serde(skip_serializing_if = "is_zero")]
    pub lag: u64,
    /// Its id.
    pub peer: String,
}

/// What a stream is and holds.
#[derive(Clone, Debug, Serialize)]
pub struct StreamInfo<'a> {
    /// Its configuration, with who answers in the metadata.
    pub config: Cow<'a, StreamConfig>,
    /// When it was made.
    pub created: Timestamp,
    /// What it holds.
    pub state: StreamState,
    /// The server's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// Where it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cow<'a, ClusterInfo>>,
    /// When this was so.
    pub ts: Timestamp,
}

/// What a stream holds.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// How many messages.
    pub messages: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The number of the first message.
    pub first_seq: u64,
    /// When it was stored.
    pub first_ts: Timestamp,
    /// The number of the last message there was.
    pub last_seq: u64,
    /// When it was stored.
    pub last_ts: Timestamp,
    /// How many subjects messages have.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_subjects: u64,
    /// The messages of each subject, where asked for.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "subject_counts"
    )]
    pub subjects: Vec<(String, u64)>,
    /// How many numbers between the first and the last have no message.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_deleted: u64,
    /// Which, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<u64>,
    /// How many consumers there are.
    pub consumer_count: usize,
}

/// Which part of a list an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Page {
    /// How many there are.
    pub total: usize,
    /// How many were passed over.
    pub offset: usize,
    /// The most an answer holds.
    pub limit: usize,
}

impl Page {
    /// The page of `limit` things after `offset` of `total`.
    #[must_use]
    pub fn new(total: usize, offset: usize, limit: usize) -> Self {
        Self {
            total,
            offset: offset.min(total),
            limit,
        }
    }
}

/// What a consumer is and where it stands.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerInfo<'a> {
    /// Its stream.
    pub stream_name: &'a str,
    /// Its name.
    pub name: &'a str,
    /// When it was made.
    pub created: Timestamp,
    /// Its configuration, with who answers in the metadata.
    pub config: Cow<'a, ConsumerConfig>,
    /// The last delivery.
    pub delivered: Sequences,
    /// The last delivery up to which everything is acknowledged.
    pub ack_floor: Sequences,
    /// How many deliveries are not acknowledged.
    pub num_ack_pending: u64,
    /// How many messages are out for the second time or more.
    pub num_redelivered: u64,
    /// How many pulls wait.
    pub num_waiting: u64,
    /// How many messages are still to be delivered for the first time.
    pub num_pending: u64,
    /// Somebody listens where messages are pushed to.
    #[serde(skip_serializing_if = "is_zero")]
    pub push_bound: bool,
    /// Deliveries are stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub paused: bool,
    /// For how many nanoseconds more.
    #[serde(skip_serializing_if = "is_zero")]
    pub pause_remaining: i64,
    /// Where it is served.
    pub cluster: &'a ClusterInfo,
    /// When this was so.
    pub ts: Timestamp,
}

/// A delivery by both its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sequences {
    /// Which delivery of the consumer.
    pub consumer_seq: u64,
    /// Which message of the stream.
    pub stream_seq: u64,
    /// When it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<Timestamp>,
}

/// What an account uses and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountInfo<'a> {
    /// Bytes of messages in memory.
    pub memory: u64,
    /// Bytes of messages on disk.
    pub storage: u64,
    /// Bytes in memory promised to streams.
    pub reserved_memory: u64,
    /// Bytes on disk promised to streams.
    pub reserved_storage: u64,
    /// How many streams there are.
    pub streams: usize,
    /// How many consumers there are.
    pub consumers: usize,
    /// What it may use.
    pub limits: AccountLimits,
    /// The server's domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<&'a str>,
    /// What was asked of the API.
    pub api: ApiCounts,
}

/// What an account may use; -1: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLimits {
    /// Bytes in memory.
    pub max_memory: i64,
    /// Bytes on disk.
    pub max_storage: i64,
    /// Streams.
    pub max_streams: i64,
    /// Consumers.
    pub max_consumers: i64,
    /// Messages of one consumer that are not acknowledged.
    pub max_ack_pending: i64,
    /// Bytes of one stream in memory.
    pub memory_max_stream_bytes: i64,
    /// Bytes of one stream on disk.
    pub storage_max_stream_bytes: i64,
    /// Every stream must have a limit of bytes.
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

/// What was asked of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ApiCounts {
    /// The level this server has.
    pub level: u32,
    /// Requests so far.
    pub total: u64,
    /// How many of them were refused.
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

/// The answer where all there is to say is that it was done.
#[must_use]
pub fn success(kind: Kind) -> Vec<u8> {
    #[derive(Serialize)]
    struct Success {
        success: bool,
    }
    done(kind, &Success { success: true })
}

/// So many messages were removed.
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

/// The consumer is paused until a time, or not any more.
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

/// The answer to a request for one message: it as it is stored, its headers unless they are not wanted.
#[must_use]
pub fn message(seq: u64, message: &crate::consumer::Message<'_>, no_headers: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        message: Stored<'a>,
    }
    #[derive(Serialize)]
    struct Stored<'a> {
        subject: Cow<'a, str>,
        seq: u64,
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
    // Strings, numbers and lists of them: nothing JSON has no word for.
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
