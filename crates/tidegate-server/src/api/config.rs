//! What users ask of a stream and of a consumer, as JSON says it and as the log keeps it.
//!
//! Names, defaults and what is left out when empty are nats-server's, so that stock clients find what they
//! expect. Durations are nanoseconds. Only what this server can do has a field: requests that ask for more
//! are refused where they are read ([`super::body`]). Rules between fields are the state machines'.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Patterns of the subjects it takes; empty in a request means its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// When messages go.
    pub retention: Retention,
    /// The most consumers it may have; -1: any number.
    pub max_consumers: i64,
    /// The most messages it keeps; -1: any number.
    pub max_msgs: i64,
    /// The most bytes it keeps; -1: any number.
    pub max_bytes: i64,
    /// How long it keeps a message; 0: for ever.
    pub max_age: i64,
    /// The most messages it keeps of one subject; -1: any number.
    pub max_msgs_per_subject: i64,
    /// The most bytes of a message, headers included; -1: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_msg_size: i32,
    /// What makes room.
    pub discard: Discard,
    /// Where messages are kept.
    pub storage: Storage,
    /// On how many nodes it is kept; 0 in a request means 1.
    pub num_replicas: i64,
    /// Publishers are not answered.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_ack: bool,
    /// How long a message's id is remembered; 0 in a request means the default.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_window: i64,
    /// How messages are compressed on disk.
    pub compression: Compression,
    /// The first message's number, if not 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_seq: u64,
    /// Messages may be read without the leader's JSON.
    pub allow_direct: bool,
    /// The same for mirrors.
    pub mirror_direct: bool,
    /// `max_msgs_per_subject` refuses too, with [`Discard::New`].
    #[serde(skip_serializing_if = "is_zero")]
    pub discard_new_per_subject: bool,
    /// Nothing comes in or goes.
    pub sealed: bool,
    /// Messages cannot be deleted.
    pub deny_delete: bool,
    /// The stream cannot be purged.
    pub deny_purge: bool,
    /// A message may replace those before it (`Nats-Rollup`).
    pub allow_rollup_hdrs: bool,
    /// Limits and defaults of its consumers.
    pub consumer_limits: ConsumerLimits,
    /// A message may say how long it lives (`Nats-TTL`).
    pub allow_msg_ttl: bool,
    /// How long the marker lives that says a subject's last message went of age; 0: no markers.
    #[serde(skip_serializing_if = "is_zero")]
    pub subject_delete_marker_ttl: i64,
    /// Atomic batches are taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_atomic: bool,
    /// Fast-ingest batches are taken.
    #[serde(skip_serializing_if = "is_zero")]
    pub allow_batched: bool,
    /// Free pairs; keys that start with `_nats.` are the server's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

impl Default for StreamConfig {
    /// What a request means that names nothing: every limit as JSON's zero, so that what was not said can be
    /// told.
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
            // What an absent field means to nats-server too.
            storage: Storage::File,
            num_replicas: 0,
            no_ack: false,
            duplicate_window: 0,
            compression: Compression::None,
            first_seq: 0,
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

/// When a stream's messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retention {
    /// When a limit is reached.
    #[default]
    Limits,
    /// When every consumer that wants them has acknowledged them.
    Interest,
    /// When the first consumer has acknowledged them.
    WorkQueue,
}

/// What happens at a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discard {
    /// The oldest messages go.
    #[default]
    Old,
    /// New messages are refused.
    New,
}

/// Where a stream's messages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    /// In the log.
    #[default]
    File,
    /// In memory, until the node ends.
    Memory,
}

/// How a stream's messages are compressed on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// S2, an extension of Snappy.
    S2,
}

/// What a stream's consumers get if they say nothing, and the most they may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerLimits {
    /// How long a consumer that nobody uses stays; 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// The most messages handed out and not acknowledged; 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
}

/// A consumer's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// Its name if it stays when nobody uses it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub durable_name: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Free text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where it starts.
    pub deliver_policy: DeliverPolicy,
    /// The first message, with [`DeliverPolicy::ByStartSequence`].
    #[serde(skip_serializing_if = "is_zero")]
    pub opt_start_seq: u64,
    /// The first message's earliest time, with [`DeliverPolicy::ByStartTime`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Timestamp>,
    /// What counts as done.
    pub ack_policy: AckPolicy,
    /// How long before a message is delivered again.
    #[serde(skip_serializing_if = "is_zero")]
    pub ack_wait: i64,
    /// How often a message is delivered; -1: any number of times, 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_deliver: i64,
    /// How long before the second, third, ... delivery, in place of `ack_wait`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backoff: Vec<i64>,
    /// The pattern of the subjects it wants; empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_subject: String,
    /// The same, several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filter_subjects: Vec<String>,
    /// How fast.
    pub replay_policy: ReplayPolicy,
    /// Bits a second at most (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub rate_limit_bps: u64,
    /// Share of acknowledgements that are reported, in percent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sample_freq: String,
    /// The most pulls that wait; 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_waiting: i64,
    /// The most messages handed out and not acknowledged; -1: any number, 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_ack_pending: i64,
    /// The receiver says when it has caught up (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub flow_control: bool,
    /// Headers without payloads.
    #[serde(skip_serializing_if = "is_zero")]
    pub headers_only: bool,
    /// The most messages of one pull; 0: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_batch: i64,
    /// The longest a pull may wait; 0: any time.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_expires: i64,
    /// The most bytes of one pull; 0: any number.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_bytes: i64,
    /// Where messages go (push); empty: it is pulled.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_subject: String,
    /// The queue group they go to (push).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub deliver_group: String,
    /// The longest silence before a heartbeat (push).
    #[serde(skip_serializing_if = "is_zero")]
    pub idle_heartbeat: i64,
    /// How long it stays when nobody uses it; 0: not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub inactive_threshold: i64,
    /// On how many nodes it is kept; 0: as its stream.
    pub num_replicas: i64,
    /// Its state is not in the log.
    #[serde(skip_serializing_if = "is_zero")]
    pub mem_storage: bool,
    /// Free pairs; keys that start with `_nats.` are the server's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Nothing is delivered before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Timestamp>,
}

/// Where a consumer starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverPolicy {
    /// With the first message.
    #[default]
    All,
    /// With the last.
    Last,
    /// With the next to come.
    New,
    /// With a number.
    ByStartSequence,
    /// With a time.
    ByStartTime,
    /// With the last message of each subject, then what comes.
    LastPerSubject,
}

/// What counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AckPolicy {
    /// Being delivered.
    #[default]
    None,
    /// The acknowledgement of this message or of a later one.
    All,
    /// The acknowledgement of this message.
    Explicit,
}

/// How fast stored messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPolicy {
    /// As fast as they are taken.
    #[default]
    #[serde(rename = "instant")]
    AtOnce,
    /// As they came.
    Original,
}

/// Returns whether a field is left out as nats-server leaves it out.
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
