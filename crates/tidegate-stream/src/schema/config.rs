//! The configurations of streams and consumers, as clients send them in JSON and as the log keeps them.
//!
//! Names, defaults and the omission of empty fields are the same as in nats-server, so that stock clients
//! understand the configurations. Durations are nanoseconds. A feature of nats-server that this server lacks
//! has no field: [`crate::api::body`] refuses requests for such a feature. The state machines of streams and
//! consumers check the rules between fields.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::mapping::{Republish, SubjectTransform};
use super::metadata::Metadata;
use super::sequence::StreamSeq;
use super::timestamp::Timestamp;

/// The configuration of a stream, with which a client creates or changes the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name. No other stream of the server or cluster has this name, because clients address the
    /// stream by it.
    pub name: String,
    /// A description of the stream for people. The server only stores the description and returns it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The patterns of the subjects that the stream takes: the stream stores each message that a publisher
    /// sends to one of them. If a request names no pattern, the stream's name is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// The rule by which the stream removes messages: by limits alone, or also by acknowledgements.
    pub retention: Retention,
    /// The limit on the consumers of the stream; -1 is any number. The stream refuses further consumers.
    pub max_consumers: i64,
    /// The limit on the messages that the stream keeps; -1 is any number. `discard` says what the stream does
    /// at the limit.
    pub max_msgs: i64,
    /// The limit on the messages that the stream keeps, in bytes; -1 is any number. `discard` says what the
    /// stream does at the limit.
    pub max_bytes: i64,
    /// The age at which the stream removes a message, in nanoseconds; 0 means never. So old messages do not
    /// fill the disk.
    pub max_age: i64,
    /// The limit on the messages that the stream keeps of one subject; -1 is any number. The stream removes
    /// older messages of the subject.
    pub max_msgs_per_subject: i64,
    /// The limit on the headers and payload of a message, in bytes; -1 is any number. The stream refuses
    /// larger messages.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_msg_size: i32,
    /// The reaction of the stream to a new message at a limit: it removes old messages, or refuses the new
    /// one.
    pub discard: Discard,
    /// The place where the nodes keep the stream's messages: the log on disk, or memory, which is faster and
    /// loses them at a restart.
    pub storage: Storage,
    /// The number of nodes that keep a copy of the stream; 0 in a request means 1. With several copies the
    /// stream survives failures of nodes.
    pub num_replicas: i64,
    /// True if the server does not acknowledge messages to their publishers (no PubAck), so that publishers
    /// need not handle answers.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_ack: bool,
    /// The time for which the stream remembers the id of a message (`Nats-Msg-Id`) to recognise duplicates,
    /// in nanoseconds. 0 in a request means two minutes, or `max_age` if that is shorter.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_window: i64,
    /// The nodes to which the client restricts the stream, for example by tags.
    #[serde(skip_serializing_if = "is_zero")]
    pub placement: Placement,
    /// The origin, if this stream is a mirror: the mirror stores the origin's messages under their own
    /// numbers and times. `None` if the stream is no mirror.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<StreamSource>,
    /// The streams from which this stream also takes in messages, under numbers of its own, for example to
    /// gather several streams.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<StreamSource>,
    /// The compression with which the client wants the nodes to store the stream's messages on disk.
    pub compression: Compression,
    /// The number that the stream gives to its first message, so that a client can continue the numbers of
    /// another stream; 0 in a request means 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_seq: StreamSeq,
    /// The transform of the subjects under which the stream stores messages; `None` keeps all subjects as
    /// publishers wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_transform: Option<SubjectTransform>,
    /// The rule by which the server publishes the stream's new messages again, so that subscribers get them
    /// without a consumer; `None` publishes no message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub republish: Option<Republish>,
    /// True if clients may read messages by direct requests. The server answers a direct request with the
    /// message itself, and other requests for a message with JSON.
    pub allow_direct: bool,
    /// True if the origin of this mirror answers direct requests. A mirror takes the value from its origin,
    /// and no other stream may have true. The origin's leader answers the direct requests for the origin.
    pub mirror_direct: bool,
    /// True if a stream with [`Discard::New`] also refuses a new message when its subject has
    /// `max_msgs_per_subject` messages. Otherwise the stream removes the subject's oldest message.
    #[serde(skip_serializing_if = "is_zero")]
    pub discard_new_per_subject: bool,
    /// True if the stream is sealed: it stores no new message and removes none, for ever.
    pub sealed: bool,
    /// True if the stream refuses to delete single messages, so that a history stays whole.
    pub deny_delete: bool,
    /// True if the stream refuses purges, so that a history stays whole.
    pub deny_purge: bool,
    /// True if a publisher may let a message replace all older messages of its subject or of the stream
    /// (header `Nats-Rollup`), so that the stream keeps only the latest state.
    pub allow_rollup_hdrs: bool,
    /// The settings of the stream that apply to all its consumers: defaults and upper bounds, so that one
    /// client's consumer cannot burden the server.
    pub consumer_limits: ConsumerLimits,
    /// True if a publisher may set the lifetime of a message (header `Nats-TTL`), after which the stream
    /// removes the message.
    pub allow_msg_ttl: bool,
    /// The lifetime of a marker, the message that the stream stores when the last message of a subject
    /// expires, in nanoseconds; 0 means that the stream stores no markers. Consumers learn by a marker that a
    /// subject has no messages left.
    #[serde(skip_serializing_if = "is_zero")]
    pub subject_delete_marker_ttl: i64,
    /// True if the stream accepts atomic batches, which the stream stores completely or not at all.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_atomic: bool,
    /// True if the stream accepts fast-ingest batches: it stores their messages as they arrive, and the
    /// server acknowledges many of them together, which lets a publisher send faster.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_batched: bool,
    /// The way in which the client lets the server store messages. The server only returns it: in each mode,
    /// an acknowledgement follows the sync that covers its message.
    #[serde(skip_serializing_if = "is_zero")]
    pub persist_mode: PersistMode,
    /// Metadata of the stream: keys and values that the client chooses. Only the server sets keys that start
    /// with `_nats.`, such as its version.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl Default for StreamConfig {
    /// Returns the configuration that a request without any field describes. Every limit is 0, which tells
    /// the server that the request left the limit out.
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            subjects: Vec::new(),
            retention: Retention::Limits,
            max_consumers: 0,
            max_msgs: 0,
            max_bytes: 0,
            max_age: 0,
            max_msgs_per_subject: 0,
            max_msg_size: 0,
            discard: Discard::Old,
            // As nats-server does, the server stores messages on disk if a request leaves the field `storage`
            // out.
            storage: Storage::File,
            num_replicas: 0,
            no_ack: false,
            duplicate_window: 0,
            placement: Placement::default(),
            mirror: None,
            sources: Vec::new(),
            compression: Compression::None,
            first_seq: StreamSeq::ZERO,
            subject_transform: None,
            republish: None,
            allow_direct: false,
            mirror_direct: false,
            discard_new_per_subject: false,
            sealed: false,
            deny_delete: false,
            deny_purge: false,
            allow_rollup_hdrs: false,
            consumer_limits: ConsumerLimits::default(),
            allow_msg_ttl: false,
            subject_delete_marker_ttl: 0,
            allow_atomic: false,
            allow_batched: false,
            persist_mode: PersistMode::Default,
            metadata: Metadata::new(),
        }
    }
}

impl StreamConfig {
    /// Returns whether the configuration has a setting that the first programs with streams do not know. The
    /// log and checkpoints mark such a configuration, so that these programs refuse it by name.
    #[must_use]
    pub const fn is_extended(&self) -> bool {
        let retains = !matches!(self.retention, Retention::Limits);
        retains || self.subject_transform.is_some() || self.republish.is_some()
    }

    /// Iterates over the origins: the streams from which this stream takes in messages, as a mirror or by
    /// sources. The leader asks each of them for messages.
    pub fn origins(&self) -> impl Iterator<Item = &StreamSource> {
        self.mirror.iter().chain(&self.sources)
    }

    /// Returns whether the stream takes in the messages of an origin by a consumer that the client names. The
    /// log and checkpoints mark such a configuration, so that programs that do not know it refuse it by name.
    #[must_use]
    pub fn names_consumers(&self) -> bool {
        self.origins().any(|origin| origin.consumer.is_some())
    }

    /// Iterates over the origins that this cluster keeps.
    pub fn local_origins(&self) -> impl Iterator<Item = &StreamSource> {
        self.origins().filter(|origin| origin.external.is_none())
    }

    /// Returns whether the stream takes in messages from any other stream, so that the leader must ask for
    /// them.
    #[must_use]
    pub const fn has_origins(&self) -> bool {
        self.mirror.is_some() || !self.sources.is_empty()
    }
}

/// An origin of a stream, as a client configures it: another stream, from which the stream takes in messages
/// as a mirror or by a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSource {
    /// The name of the origin, which need not exist yet.
    pub name: String,
    /// The number of the origin's message with which the stream begins; 0 if the client has not set it.
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: StreamSeq,
    /// The time at which the stream begins: with the messages that the origin stored then or later. `None` if
    /// the client has not set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Timestamp>,
    /// A pattern of subjects: the stream takes in only messages with a matching subject. An empty pattern
    /// means all messages.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// The transforms of the subjects under which the stream stores the messages. The stream takes in the
    /// messages of their sources, and the first transform that matches a subject counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subject_transforms: Vec<SubjectTransform>,
    /// The other cluster that keeps the origin; `None` for a stream of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The consumer of the origin by which the stream takes in the messages; `None` if the server takes them
    /// in without a consumer of the client's. The consumer's configuration then says where the stream begins
    /// and which subjects it takes in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<OriginConsumer>,
}

/// A consumer of an origin, by which a stream takes in the origin's messages. A client has created it with
/// the ack policy [`AckPolicy::FlowControl`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OriginConsumer {
    /// The name of the consumer, which need not exist yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The subject to which the consumer delivers. It must be that of the consumer's configuration.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
}

/// The other cluster that keeps an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct External {
    /// The prefix of the other cluster's API: `$JS.NAME.API`, with the NAME of a remote in the settings of
    /// this server.
    pub api: String,
    /// The prefix of the subjects at which the messages arrive in nats-server. This server fetches them, so
    /// the prefix has no effect.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver: String,
}

impl External {
    /// Returns the name of the remote; `None` if the prefix names none.
    ///
    /// ```
    /// use tidegate_stream::schema::config::External;
    ///
    /// let external = External { api: "$JS.hub.API".into(), ..External::default() };
    /// assert_eq!(external.remote(), Some("hub"));
    /// ```
    #[must_use]
    pub fn remote(&self) -> Option<&str> {
        let name = self.api.strip_prefix("$JS.")?.strip_suffix(".API")?;
        let odd = |c: char| c.is_whitespace() || matches!(c, '.' | '*' | '>');
        Some(name).filter(|name| !name.is_empty() && !name.contains(odd))
    }
}

impl StreamSource {
    /// Returns the text by which a stream tells its sources apart: the name of the origin, with the API of
    /// another cluster and the name of a consumer behind it, the filter and the destination of the subjects.
    /// The header `Nats-Stream-Source` states the same.
    #[must_use]
    pub fn key(&self) -> String {
        let (name, filter, destination) = (self.full_name(), self.filter(), self.destination());
        format!("{name} {filter} {destination}")
    }

    /// Returns the name of the origin, with the API of another cluster and the name of the consumer behind
    /// it, as far as the source has them.
    #[must_use]
    pub fn full_name(&self) -> Cow<'_, str> {
        let name = self.cluster_name();
        match &self.consumer {
            Some(consumer) => format!("{name}:C={}", consumer.name).into(),
            None => name,
        }
    }

    /// Returns the name of the origin, with the API of another cluster behind it. Two sources with the same
    /// text have the same origin.
    #[must_use]
    pub fn cluster_name(&self) -> Cow<'_, str> {
        match &self.external {
            Some(external) => format!("{}:{}", self.name, external.api).into(),
            None => self.name.as_str().into(),
        }
    }

    /// Returns the patterns of the subjects that the stream takes in; `>` for all subjects. They are a part
    /// of the source's key.
    #[must_use]
    pub fn filter(&self) -> String {
        let sources = self.subject_transforms.iter().map(|t| t.src.as_str());
        let all: Vec<&str> = match self.subject_transforms.is_empty() {
            true => vec![self.filter_subject.as_str()],
            false => sources.collect(),
        };
        all.into_iter()
            .map(or_all)
            .collect::<Vec<_>>()
            .join(SEPARATOR)
    }

    /// Returns the destinations of the subjects in the header `Nats-Stream-Source`; `>` for unchanged
    /// subjects. They are a part of the source's key.
    #[must_use]
    pub fn destination(&self) -> String {
        let all = self.subject_transforms.iter().map(|t| or_all(&t.dest));
        match self.subject_transforms.is_empty() {
            true => ">".to_owned(),
            false => all.collect::<Vec<_>>().join(SEPARATOR),
        }
    }

    /// Iterates over the patterns of the subjects that the stream takes in; without a pattern, it takes in
    /// all. The leader asks the origin for messages of these subjects.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        let one = Some(self.filter_subject.as_str()).filter(|filter| !filter.is_empty());
        let sources = self.subject_transforms.iter().map(|t| or_all(&t.src));
        one.into_iter().chain(sources)
    }
}

/// The separator of several patterns in the header `Nats-Stream-Source`, as in nats-server, so that clients
/// can split the header.
const SEPARATOR: &str = "\u{c}";

/// Returns the pattern; `>` in place of an empty one, because an empty pattern means all subjects.
const fn or_all(pattern: &str) -> &str {
    match pattern.is_empty() {
        true => ">",
        false => pattern,
    }
}

/// The rule by which a stream removes messages, chosen by the client that creates the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// The stream removes messages when they exceed a limit of count, bytes or age, regardless of consumers.
    #[default]
    Limits,
    /// The stream also removes a message once every consumer with a matching filter has acknowledged it, and
    /// does not keep a message for which no consumer has a matching filter.
    Interest,
    /// The stream also removes a message once the one consumer with a matching filter has acknowledged it, so
    /// that each message is processed once.
    WorkQueue,
}

/// The reaction of a stream to a new message at a limit of messages or bytes, chosen by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// At a limit, the stream removes its oldest messages to make room for a new message, so that publishers
    /// never have to wait.
    #[default]
    Old,
    /// At a limit, the stream refuses new messages, and publishers get an error.
    New,
}

/// The place where the nodes keep a stream's messages, chosen by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// The nodes keep the messages in the log on disk, so that a restart loses none.
    #[default]
    File,
    /// A single server keeps the messages only in memory, and loses them when it stops. In a cluster, the log
    /// keeps them too, so that a node that restarts gets them back.
    Memory,
}

/// The compression with which the nodes store a stream's messages on disk, chosen by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// The nodes store the messages uncompressed, as this server always does.
    #[default]
    None,
    /// The nodes compress the messages with S2, an extension of Snappy. This server refuses a configuration
    /// with it.
    S2,
}

/// The way in which a client allows the server to store the messages of a stream: before or after their
/// acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PersistMode {
    /// The server acknowledges a message after the sync, so that a crash loses no acknowledged message.
    #[default]
    #[serde(alias = "")]
    Default,
    /// The client accepts an acknowledgement before the sync. This server still acknowledges a message only
    /// after the sync.
    Async,
}

/// The nodes to which a client restricts a stream. The directory chooses a group of such nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placement {
    /// The name of the cluster with the nodes that keep the stream; empty accepts any cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The tags that each of the nodes must have. The directory chooses a group in which all nodes have them;
    /// a server alone accepts any tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The node that the client wants as the stream's leader. The server refuses a name here, as nats-server
    /// does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred: String,
}

/// The settings of a stream for its consumers. Each is the default for a consumer and the highest value that
/// a consumer may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerLimits {
    /// The time after which the server removes a consumer that no client uses, to free its memory, in
    /// nanoseconds; 0 means that the stream sets no default and no bound.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The limit on the messages of a consumer that await an acknowledgement; 0 means that the stream sets no
    /// default and no bound.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
}

/// The configuration of a consumer, with which a client creates or changes the consumer, and which the log
/// keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// The name of a durable consumer, which the server keeps while no client uses it; empty for a consumer
    /// that is not durable, which the server deletes some time after its client has gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    /// The consumer's name, by which clients address the consumer in its stream.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A description of the consumer for people. The server only stores the description and returns it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: Box<str>,
    /// The rule that chooses the first message that the consumer delivers, for example the first one or the
    /// next one of the stream.
    pub deliver_policy: DeliverPolicy,
    /// The number of the first message to deliver, with [`DeliverPolicy::ByStartSequence`]; 0 if the client
    /// has not set it.
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: StreamSeq,
    /// The time of the start with [`DeliverPolicy::ByStartTime`]: the consumer delivers the messages that the
    /// stream stored then or later. `None` if the client has not set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Timestamp>,
    /// The rule that says which deliveries a receiver has to acknowledge, so that the consumer does not
    /// redeliver the messages.
    pub ack_policy: AckPolicy,
    /// The time after which the consumer redelivers an unacknowledged message, in nanoseconds; 0 in a request
    /// means 30 s, or never with [`AckPolicy::FlowControl`]. The receiver may have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub ack_wait: i64,
    /// The limit on the deliveries of one message, after which the consumer gives the message up; -1 is any
    /// number, as is 0 in a request.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_deliver: i64,
    /// The waits before the second, third, ... delivery of a message, in nanoseconds. They replace
    /// `ack_wait`, so that a failing receiver gets more and more time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backoff: Vec<i64>,
    /// A pattern of subjects: the consumer delivers only messages with a matching subject. An empty pattern
    /// means all messages.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// Several patterns of subjects, in place of `filter_subject`: the consumer delivers a message if one of
    /// them matches its subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_subjects: Vec<String>,
    /// The speed of deliveries: as fast as possible, or at the intervals at which the stream stored the
    /// messages.
    pub replay_policy: ReplayPolicy,
    /// The rate limit of a push consumer, in bits a second; 0 is any rate. The limit protects a slow
    /// receiver.
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limit_bps: u64,
    /// The percentage of acknowledgements for which the consumer publishes an advisory, such as `30%`; empty
    /// means none. Operators watch the speed of receivers by them.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub sample_freq: Box<str>,
    /// The limit on the pull requests that wait at the consumer; 0 in a request for a pull consumer means
    /// 512. The consumer refuses further pulls.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_waiting: i64,
    /// The limit on the messages that await an acknowledgement: at this number the consumer stops delivering
    /// new ones. -1 is any number; 0 in a request takes the stream's default, or 1000.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    /// True if a push consumer asks its receiver from time to time to confirm that it has read the deliveries
    /// so far, and stops while too many are unconfirmed.
    #[serde(skip_serializing_if = "is_zero")]
    pub flow_control: bool,
    /// True if the consumer delivers only the headers of messages, without their payloads, for receivers that
    /// need only subjects and headers.
    #[serde(skip_serializing_if = "is_zero")]
    pub headers_only: bool,
    /// The limit on the messages that one pull request asks for; 0 is any number. The consumer refuses a
    /// larger request.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_batch: i64,
    /// The limit on the time for which a pull request waits, in nanoseconds; 0 is any time. The consumer
    /// refuses a longer request.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_expires: i64,
    /// The limit on the bytes that one pull request asks for; 0 is any number. The consumer refuses a larger
    /// request.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_bytes: i64,
    /// The subject to which a push consumer delivers messages; empty for a pull consumer, from which clients
    /// ask for messages.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    /// The queue group to which a push consumer delivers: one member gets each message. Empty for no group.
    /// The members share the work.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub deliver_group: Box<str>,
    /// The time without a delivery after which a push consumer sends a heartbeat, in nanoseconds; 0 means
    /// never. By heartbeats the receiver knows that the consumer is alive.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_heartbeat: i64,
    /// The time after which the server removes the consumer if no client uses it, in nanoseconds. 0 in a
    /// request takes the stream's default, or 5 s for a consumer that is not durable. So consumers of clients
    /// that have gone take no memory.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The number of nodes that keep the consumer's state; 0 means as many nodes as keep its stream, so that
    /// each of them can become its leader.
    pub num_replicas: i64,
    /// True if the client wants the consumer's state in memory only. The log still keeps the state of a
    /// durable or replicated consumer.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_storage: bool,
    /// Metadata of the consumer: keys and values that the client chooses. Only the server sets keys that
    /// start with `_nats.`, such as its version.
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The end of a pause: the consumer delivers nothing before this time. `None` without a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Timestamp>,
}

impl ConsumerConfig {
    /// Iterates over the patterns of the subjects that the consumer delivers; without a pattern, the consumer
    /// delivers all.
    pub fn filters(&self) -> impl Iterator<Item = &str> {
        let one = Some(&self.filter_subject).filter(|filter| !filter.is_empty());
        one.into_iter()
            .chain(&self.filter_subjects)
            .map(String::as_str)
    }
}

/// The rule that chooses the first message that a consumer delivers, as its client needs the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverPolicy {
    /// The consumer starts with the first message of the stream, so that the client gets all that the stream
    /// holds.
    #[default]
    All,
    /// The consumer starts with the last message that its filters pass, so that the client knows the latest
    /// state.
    Last,
    /// The consumer starts with the next message that the stream stores, so that the client gets no old
    /// messages.
    New,
    /// The consumer starts with the message that has the number `opt_start_seq`, for a client that continues
    /// there.
    ByStartSequence,
    /// The consumer starts with the first message that the stream stored at `opt_start_time` or later, for a
    /// client that wants the messages since then.
    ByStartTime,
    /// The consumer delivers the last message of each subject, and then every newer message, so that the
    /// client knows the latest state of each subject.
    LastPerSubject,
}

/// The rule that says which deliveries a receiver has to acknowledge, so that the consumer can stop
/// redelivering the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckPolicy {
    /// The consumer expects no acknowledgements, and never redelivers a message.
    #[default]
    None,
    /// The receiver acknowledges a message and thereby all earlier messages, which saves acknowledgements.
    All,
    /// The receiver acknowledges each message by itself, because receivers may process messages in any order.
    Explicit,
    /// The receiver acknowledges all messages up to one by its answers to flow control requests, which state
    /// that message. Only a push consumer with flow control has this policy, and it never redelivers a
    /// message by itself. A stream takes in the messages of another stream by such a consumer.
    #[serde(rename = "flow_control")]
    FlowControl,
}

/// The speed at which a consumer delivers messages that the stream has already stored, as the client wants
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPolicy {
    /// The consumer delivers stored messages as fast as the receiver accepts them, because the client wants
    /// the messages and not their pace.
    #[default]
    #[serde(rename = "instant")]
    AtOnce,
    /// The consumer delivers stored messages at the intervals at which the stream stored them, so that a
    /// client can repeat a course of events.
    Original,
}

/// Returns whether a field has its zero value. The JSON leaves such a field out, as in nats-server.
fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_names_a_consumer() {
        let json = r#"{"name":"O","consumer":{"name":"C","deliver_subject":"d"}}"#;
        let source: StreamSource = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&source).unwrap(), json);
        assert_eq!(source.key(), "O:C=C > >");
        let mut elsewhere = source;
        elsewhere.external = Some(External {
            api: "$JS.hub.API".into(),
            ..External::default()
        });
        assert_eq!(elsewhere.full_name(), "O:$JS.hub.API:C=C");
        assert_eq!(elsewhere.cluster_name(), "O:$JS.hub.API");
    }

    #[test]
    fn a_stream_as_nats_server_writes_it() {
        let config = StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            max_consumers: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_msgs_per_subject: -1,
            max_msg_size: -1,
            num_replicas: 1,
            duplicate_window: 120_000_000_000,
            ..StreamConfig::default()
        };
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(
            json,
            r#"{"name":"S","subjects":["s.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":120000000000,"compression":"none","allow_direct":false,"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false}"#
        );
        assert_eq!(serde_json::from_str::<StreamConfig>(&json).unwrap(), config);
    }

    #[test]
    fn a_consumer_as_nats_server_writes_it() {
        let json = r#"{"deliver_policy":"all","ack_policy":"none","replay_policy":"instant","num_replicas":0}"#;
        assert_eq!(
            serde_json::to_string(&ConsumerConfig::default()).unwrap(),
            json
        );
        let full = r#"{"durable_name":"C","name":"C","description":"d","deliver_policy":"by_start_time","opt_start_seq":1,"opt_start_time":"2026-08-21T10:00:00Z","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"backoff":[1,2],"filter_subject":"a","filter_subjects":["b"],"replay_policy":"original","rate_limit_bps":1,"sample_freq":"50","max_waiting":512,"max_ack_pending":1000,"flow_control":true,"headers_only":true,"max_batch":1,"max_expires":2,"max_bytes":3,"deliver_subject":"x","deliver_group":"g","idle_heartbeat":5,"inactive_threshold":6,"num_replicas":1,"mem_storage":true,"metadata":{"k":"v"},"pause_until":"2026-08-21T10:00:00Z"}"#;
        let config: ConsumerConfig = serde_json::from_str(full).unwrap();
        assert_eq!(serde_json::to_string(&config).unwrap(), full);
    }
}
