//! The configurations of streams and consumers, as JSON gives them and as the log keeps them.
//!
//! Names, defaults and the omission of empty fields are the same as in nats-server, so that stock clients
//! understand the configurations. Durations are nanoseconds. Only supported features have a field:
//! [`crate::api::body`] refuses requests for other features. The state machines check the rules between
//! fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sequence::StreamSeq;
use super::timestamp::Timestamp;

/// A stream's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// The stream's name, unique among streams.
    pub name: String,
    /// Text for people, which the client chooses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The patterns of the subjects that the stream stores. If a request leaves them out, the stream's name
    /// is the only pattern.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// The rule for the removal of messages.
    pub retention: Retention,
    /// The most consumers that the stream may have; -1 is any number.
    pub max_consumers: i64,
    /// The most messages that the stream keeps; -1 is any number.
    pub max_msgs: i64,
    /// The most bytes that the stream keeps; -1 is any number.
    pub max_bytes: i64,
    /// The age at which the stream removes a message, in nanoseconds; 0 means never.
    pub max_age: i64,
    /// The most messages that the stream keeps of one subject; -1 is any number.
    pub max_msgs_per_subject: i64,
    /// The most bytes of a message, headers included; -1 is any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_msg_size: i32,
    /// The behaviour of the stream at a limit.
    pub discard: Discard,
    /// The place where the nodes keep the stream's messages.
    pub storage: Storage,
    /// The number of nodes that keep the stream; 0 in a request means 1.
    pub num_replicas: i64,
    /// True if the server sends publishers no acknowledgement.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_ack: bool,
    /// The time for which the stream remembers a message's id, in nanoseconds; 0 in a request means the
    /// default.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_window: i64,
    /// The compression of messages on disk.
    pub compression: Compression,
    /// The number of the stream's first message; 0 in a request means 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_seq: StreamSeq,
    /// True if clients may read messages by direct requests, which the server answers with the message itself
    /// in place of JSON.
    pub allow_direct: bool,
    /// True if clients may read messages of mirrors by direct requests.
    pub mirror_direct: bool,
    /// True if a stream with [`Discard::New`] also refuses new messages at `max_msgs_per_subject`.
    #[serde(skip_serializing_if = "is_zero")]
    pub discard_new_per_subject: bool,
    /// True if the stream stores no new message and removes none.
    pub sealed: bool,
    /// True if clients cannot delete messages.
    pub deny_delete: bool,
    /// True if clients cannot purge the stream.
    pub deny_purge: bool,
    /// True if a message may replace the messages before it (`Nats-Rollup`).
    pub allow_rollup_hdrs: bool,
    /// The limits and defaults of the stream's consumers.
    pub consumer_limits: ConsumerLimits,
    /// True if a message may set its own lifetime (`Nats-TTL`).
    pub allow_msg_ttl: bool,
    /// The lifetime of the marker that the stream stores when a subject's last message expires; 0 means no
    /// markers.
    #[serde(skip_serializing_if = "is_zero")]
    pub subject_delete_marker_ttl: i64,
    /// True if the stream accepts atomic batches.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_atomic: bool,
    /// True if the stream accepts fast-ingest batches.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_batched: bool,
    /// Keys and values that the client chooses. Only the server may set keys that start with `_nats.`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Default for StreamConfig {
    /// Returns the configuration of a request without any field. Every limit is 0, so that the server can
    /// tell that a request left the field out.
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
            // nats-server also takes `File` if a request leaves the field out.
            storage: Storage::File,
            num_replicas: 0,
            no_ack: false,
            duplicate_window: 0,
            compression: Compression::None,
            first_seq: StreamSeq::ZERO,
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
            metadata: BTreeMap::new(),
        }
    }
}

/// The rule for the removal of a stream's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// The stream removes messages at a limit.
    #[default]
    Limits,
    /// The stream removes a message once every consumer that wants it has acknowledged it.
    Interest,
    /// The stream removes a message once the first consumer has acknowledged it.
    WorkQueue,
}

/// The behaviour of a stream at a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// The stream removes the oldest messages.
    #[default]
    Old,
    /// The stream refuses new messages.
    New,
}

/// The place where the nodes keep a stream's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// The nodes keep the messages in the log.
    #[default]
    File,
    /// A node keeps the messages in memory, until it stops.
    Memory,
}

/// The compression of a stream's messages on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// The messages are not compressed.
    #[default]
    None,
    /// The messages are compressed with S2, an extension of Snappy.
    S2,
}

/// The defaults of a stream's consumers, which are also the most that they may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerLimits {
    /// The time after which the server removes an unused consumer, in nanoseconds; 0 means no default.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The most messages that a consumer has delivered and that receivers have not acknowledged; 0 means no
    /// default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
}

/// A consumer's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// The name of a durable consumer, which remains while no client uses it; empty for other consumers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    /// The consumer's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Text for people, which the client chooses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The message with which the consumer starts.
    pub deliver_policy: DeliverPolicy,
    /// The first message, with [`DeliverPolicy::ByStartSequence`].
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: StreamSeq,
    /// The first message's earliest time, with [`DeliverPolicy::ByStartTime`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Timestamp>,
    /// The rule that decides which acknowledgement a delivery needs.
    pub ack_policy: AckPolicy,
    /// The time after which the consumer redelivers an unacknowledged message, in nanoseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub ack_wait: i64,
    /// The most deliveries of a message; -1 is any number, 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_deliver: i64,
    /// The times before the second, third, ... delivery of a message, in place of `ack_wait`, in nanoseconds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backoff: Vec<i64>,
    /// The pattern of the subjects that the consumer delivers; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// Several patterns of subjects that the consumer delivers, in place of `filter_subject`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_subjects: Vec<String>,
    /// The speed at which the consumer delivers stored messages.
    pub replay_policy: ReplayPolicy,
    /// The most bits that a push consumer delivers in a second; 0 is any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limit_bps: u64,
    /// The share of acknowledgements that the consumer reports, in percent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sample_freq: String,
    /// The most pulls that wait; 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_waiting: i64,
    /// The most messages that the consumer has delivered and that receivers have not acknowledged; -1 is any
    /// number, 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    /// True if a push consumer asks its receiver to confirm from time to time that it has read the deliveries
    /// so far.
    #[serde(skip_serializing_if = "is_zero")]
    pub flow_control: bool,
    /// True if the consumer delivers headers without payloads.
    #[serde(skip_serializing_if = "is_zero")]
    pub headers_only: bool,
    /// The most messages of one pull; 0 is any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_batch: i64,
    /// The longest time for which a pull may wait, in nanoseconds; 0 is any time.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_expires: i64,
    /// The most bytes of one pull; 0 is any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_bytes: i64,
    /// The subject to which a push consumer delivers; empty for a pull consumer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    /// The queue group to which a push consumer delivers; empty for none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_group: String,
    /// The silence after which a push consumer sends a heartbeat, in nanoseconds; 0 means never.
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_heartbeat: i64,
    /// The time after which the server removes the consumer if no client uses it, in nanoseconds; 0 takes the
    /// default.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The number of nodes that keep the consumer; 0 means as many as keep its stream.
    pub num_replicas: i64,
    /// True if the log does not keep the consumer's state.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_storage: bool,
    /// Keys and values that the client chooses. Only the server may set keys that start with `_nats.`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The consumer delivers nothing before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Timestamp>,
}

/// The message with which a consumer starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverPolicy {
    /// The consumer starts with the first message.
    #[default]
    All,
    /// The consumer starts with the last message.
    Last,
    /// The consumer starts with the next message that the stream stores.
    New,
    /// The consumer starts with the message of a given number.
    ByStartSequence,
    /// The consumer starts with the first message stored at a given time or later.
    ByStartTime,
    /// The consumer delivers the last message of each subject, then every new message.
    LastPerSubject,
}

/// The rule that decides which acknowledgement a delivery needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckPolicy {
    /// A delivery needs no acknowledgement.
    #[default]
    None,
    /// An acknowledgement counts for its message and for all earlier messages.
    All,
    /// Each message needs its own acknowledgement.
    Explicit,
}

/// The speed at which a consumer delivers stored messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPolicy {
    /// The consumer delivers as fast as the receiver accepts messages.
    #[default]
    #[serde(rename = "instant")]
    AtOnce,
    /// The consumer delivers messages at the intervals at which the stream stored them.
    Original,
}

/// Returns whether a field has its zero value, which nats-server leaves out.
fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
