//! The configurations of streams and consumers, as JSON gives them and as the log keeps them.
//!
//! Names, defaults and the omission of empty fields are nats-server's, so that stock clients understand them.
//! Durations are nanoseconds. Only supported features have a field: [`crate::api::body`] refuses
//! requests that ask for more. The state machines check the rules between fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sequence::StreamSeq;
use super::timestamp::Timestamp;

/// A stream's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamConfig {
    /// Its name, unique among streams.
    pub name: String,
    /// Free text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The patterns of the subjects that it stores; empty in a request means its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// The rule for the removal of messages.
    pub retention: Retention,
    /// The most consumers it may have; -1: any number.
    pub max_consumers: i64,
    /// The most messages it keeps; -1: any number.
    pub max_msgs: i64,
    /// The most bytes it keeps; -1: any number.
    pub max_bytes: i64,
    /// The age at which it removes a message; 0 means never.
    pub max_age: i64,
    /// The most messages it keeps of one subject; -1: any number.
    pub max_msgs_per_subject: i64,
    /// The most bytes of a message, headers included; -1: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_msg_size: i32,
    /// The behaviour at a limit.
    pub discard: Discard,
    /// The place where messages are kept.
    pub storage: Storage,
    /// The number of nodes that keep it; 0 in a request means 1.
    pub num_replicas: i64,
    /// The server sends publishers no acknowledgement.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_ack: bool,
    /// The time for which the stream remembers a message's id; 0 in a request means the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_window: i64,
    /// The compression of messages on disk.
    pub compression: Compression,
    /// The number of the first message, if not 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_seq: StreamSeq,
    /// Clients may read messages by direct requests, without the leader's JSON.
    pub allow_direct: bool,
    /// The same for mirrors.
    pub mirror_direct: bool,
    /// With [`Discard::New`], the stream refuses new messages at `max_msgs_per_subject`, too.
    #[serde(skip_serializing_if = "is_zero")]
    pub discard_new_per_subject: bool,
    /// The stream stores no new message and removes none.
    pub sealed: bool,
    /// Clients cannot delete messages.
    pub deny_delete: bool,
    /// Clients cannot purge the stream.
    pub deny_purge: bool,
    /// A message may replace those before it (`Nats-Rollup`).
    pub allow_rollup_hdrs: bool,
    /// Limits and defaults of its consumers.
    pub consumer_limits: ConsumerLimits,
    /// A message may set its own lifetime (`Nats-TTL`).
    pub allow_msg_ttl: bool,
    /// The lifetime of the marker that the stream stores when a subject's last message expires; 0 means no
    /// markers.
    #[serde(skip_serializing_if = "is_zero")]
    pub subject_delete_marker_ttl: i64,
    /// The stream accepts atomic batches.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_atomic: bool,
    /// The stream accepts fast-ingest batches.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_batched: bool,
    /// Free pairs; keys that start with `_nats.` are reserved for the server.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Default for StreamConfig {
    /// Returns the configuration of a request without any field. Every limit is JSON's zero, so that the
    /// server can tell an absent field.
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
            // nats-server, too, reads an absent field so.
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

/// The place where a stream's messages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// In the log.
    #[default]
    File,
    /// In memory, until the node stops.
    Memory,
}

/// The compression of a stream's messages on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// S2, an extension of Snappy.
    S2,
}

/// The defaults of a stream's consumers, which are also the most that they may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerLimits {
    /// The time after which the stream removes an unused consumer; 0 means no default.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The most messages delivered and not acknowledged; 0 means no default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
}

/// A consumer's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// Its name, if it remains while it is unused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Free text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The message with which it starts.
    pub deliver_policy: DeliverPolicy,
    /// The first message, with [`DeliverPolicy::ByStartSequence`].
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: StreamSeq,
    /// The first message's earliest time, with [`DeliverPolicy::ByStartTime`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Timestamp>,
    /// The rule by which a delivery is settled.
    pub ack_policy: AckPolicy,
    /// The time after which the consumer redelivers a message.
    #[serde(skip_serializing_if = "is_zero")]
    pub ack_wait: i64,
    /// The most deliveries of a message; -1 is any number, 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_deliver: i64,
    /// The times before the second, third, ... delivery, in place of `ack_wait`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backoff: Vec<i64>,
    /// The pattern of the subjects that it delivers; empty means all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// Several such patterns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_subjects: Vec<String>,
    /// The speed of deliveries.
    pub replay_policy: ReplayPolicy,
    /// The most bits a second (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limit_bps: u64,
    /// The share of acknowledgements that the consumer reports, in percent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sample_freq: String,
    /// The most pulls that wait; 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_waiting: i64,
    /// The most messages delivered and not acknowledged; -1 is any number, 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    /// The receiver reports when it has caught up (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub flow_control: bool,
    /// The consumer delivers headers without payloads.
    #[serde(skip_serializing_if = "is_zero")]
    pub headers_only: bool,
    /// The most messages of one pull; 0: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_batch: i64,
    /// The longest time that a pull may wait; 0 is any time.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_expires: i64,
    /// The most bytes of one pull; 0: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_bytes: i64,
    /// The subject to which the consumer delivers (push); empty for a pull consumer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    /// The queue group to which the consumer delivers (push).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_group: String,
    /// The longest silence before a heartbeat (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_heartbeat: i64,
    /// The time after which the server removes the consumer if it is unused; 0 takes the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The number of nodes that keep it; 0 means as many as its stream.
    pub num_replicas: i64,
    /// The log does not keep its state.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_storage: bool,
    /// Free pairs; keys that start with `_nats.` are reserved for the server.
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
    /// The first message.
    #[default]
    All,
    /// The last message.
    Last,
    /// The next message to be stored.
    New,
    /// The message with a given number.
    ByStartSequence,
    /// The first message from a given time on.
    ByStartTime,
    /// The last message of each subject, then every new one.
    LastPerSubject,
}

/// The rule by which a delivery is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckPolicy {
    /// The delivery settles the message.
    #[default]
    None,
    /// The acknowledgement of this message or of a later one settles it.
    All,
    /// The acknowledgement of this message settles it.
    Explicit,
}

/// The speed at which a consumer delivers stored messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPolicy {
    /// As fast as the receiver accepts them.
    #[default]
    #[serde(rename = "instant")]
    AtOnce,
    /// At the intervals at which they were stored.
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
