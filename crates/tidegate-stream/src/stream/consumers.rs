//! The consumers of a stream as the log keeps them: their configurations and states, which each node of the
//! group has.
//!
//! This module owns the set of consumers, and their states as the deltas in the log change them.
//! [`crate::consumer`] owns the rules of a configuration and all other behaviour of a consumer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::filter::Filter;
use super::shared::SharedConfig;
use super::single::Stream;
use crate::consumer::{Start, State, View};
use crate::schema::config::ConsumerConfig;
use crate::schema::sequence::StreamSeq;

/// The beginning of the names of holders: consumers that keep the messages of an origin until another stream
/// has taken them in. No client can use such a name, because it has a dot.
pub const HOLDER_PREFIX: &str = "$TG.";

/// Returns whether this is the name of a holder, which the limits and rules for the consumers of clients
/// leave out.
pub(super) fn is_holder(name: &str) -> bool {
    name.starts_with(HOLDER_PREFIX)
}

/// The part of a consumer that the log keeps, so that each node of the group can become its leader:
/// configuration, time of creation and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConsumer {
    pub(super) config: SharedConfig,
    pub(super) created_us: u64,
    pub(super) state: Arc<State>,
}

impl StreamConsumer {
    /// Returns the consumer's configuration, as the last command of the log has set it. A copy of it shares
    /// the memory.
    #[must_use]
    pub const fn config(&self) -> &SharedConfig {
        &self.config
    }

    /// Returns the time at which the group created the consumer, in microseconds since 1970.
    #[must_use]
    pub const fn created_us(&self) -> u64 {
        self.created_us
    }

    /// Returns the consumer's state: its position in the stream, and its unacknowledged messages, as the log
    /// has them.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }
}

/// The payload of a [`super::Kind::CreateConsumer`] command, which creates or changes a consumer as a client
/// asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsumerRequest {
    /// The consumer's configuration, which the leader has checked before it proposed the command.
    pub config: ConsumerConfig,
    /// The client's condition on the consumer's existence: `create` if no consumer with another configuration
    /// may have the consumer's name, `update` if the consumer must exist, empty for no condition.
    #[serde(default)]
    pub action: String,
    /// The position at which a consumer starts that the leader already serves and adds to the log later, as
    /// it does with ordered consumers; `None` for a new consumer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
}

/// The part of a stream in which a new consumer looks for the message with which it starts. The view passes
/// only the messages that the consumer's filter passes.
#[derive(Debug)]
pub struct StreamView<'a> {
    stream: &'a Stream,
    filter: Filter,
}

impl<'a> StreamView<'a> {
    /// Creates the view that a new consumer with this configuration has of the stream, so that the consumer
    /// can choose its start.
    #[must_use]
    pub fn new(stream: &'a Stream, config: &ConsumerConfig) -> Self {
        Self {
            stream,
            filter: consumer_filter(config),
        }
    }
}

/// Creates the filter of the subjects that a consumer with this configuration delivers. Without filters in
/// the configuration, the filter passes all subjects.
#[must_use]
pub fn consumer_filter(config: &ConsumerConfig) -> Filter {
    let one = (!config.filter_subject.is_empty()).then_some(&config.filter_subject);
    Filter::new(one.into_iter().chain(&config.filter_subjects))
}

impl View for StreamView<'_> {
    fn first_seq(&self) -> StreamSeq {
        self.stream.content.first_seq
    }

    fn last_seq(&self) -> StreamSeq {
        self.stream.content.last_seq
    }

    fn last_matching(&mut self) -> Option<StreamSeq> {
        self.stream.last_matching(&self.filter)
    }

    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq {
        self.stream.seq_at_time(time_us)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::schema::number::StreamNumber;
    use crate::stream::{AccountLimits, Command, Encoder, Kind, Streams};

    /// The length of the head of an `Arc`'s allocation, in bytes.
    const HEAD: usize = 16;

    /// Prints and bounds the types of which a server has a hundred thousand. The bounds are sizes to which
    /// allocators round up.
    #[test]
    fn a_consumer_takes_little_memory() {
        let sizes = [
            ("configuration", HEAD + SharedConfig::BYTES, 448),
            ("state", HEAD + size_of::<State>(), 128),
            ("entry", size_of::<(Box<str>, StreamConsumer)>(), 40),
        ];
        for (what, bytes, most) in sizes {
            println!("{what}: {bytes} bytes");
            assert!(bytes <= most, "{what}: {bytes} bytes, at most {most}");
        }
    }

    fn apply(streams: &mut Streams, lsn: u64, kind: Kind, name: &str, payload: &str) {
        let (mut entry, mut out) = (Vec::new(), Vec::new());
        let number = match kind {
            Kind::CreateStream => StreamNumber::NONE,
            _ => StreamNumber::FIRST,
        };
        let command = Command::new(kind, number, name.as_bytes(), payload.as_bytes());
        let mut encoder = Encoder::begin(&mut entry, 1_000_000);
        encoder.command(&command).unwrap();
        let entry = Bytes::from(entry);
        streams
            .apply(lsn, &entry, &mut out, &mut Vec::new())
            .unwrap();
    }

    /// Consumers that no client has used share state and configuration, also after a start from a checkpoint;
    /// a consumer that changes gets its own.
    #[test]
    fn unused_consumers_share_their_memory() {
        let mut streams = Streams::new(AccountLimits::NONE);
        let config = json!({"name": "S", "subjects": ["s"]}).to_string();
        apply(&mut streams, 64, Kind::CreateStream, "", &config);
        for (n, name) in (2..).zip(["b", "a", "c"]) {
            let config = json!({"config": {"durable_name": name, "ack_policy": "explicit"}});
            let config = config.to_string();
            apply(&mut streams, 64 * n, Kind::CreateConsumer, name, &config);
        }
        let bytes: Vec<u8> = streams.snapshot().chunks().flatten().collect();
        let mut again = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
        for streams in [&mut streams, &mut again] {
            let states = |streams: &Streams| -> Vec<Arc<State>> {
                let stream = streams.get(StreamNumber::FIRST).unwrap();
                let all = stream.consumers.values();
                all.map(|consumer| Arc::clone(&consumer.state)).collect()
            };
            let configs = |streams: &Streams| -> Vec<SharedConfig> {
                let stream = streams.get(StreamNumber::FIRST).unwrap();
                let all = stream.consumers.values();
                all.map(|consumer| consumer.config.clone()).collect()
            };
            let all = configs(streams);
            assert!(all.iter().all(|config| config.is_shared_with(&all[0])));
            let before = states(streams);
            assert!(before.iter().all(|state| Arc::ptr_eq(state, &before[0])));
            let seq = 9_u64.to_le_bytes();
            let reset = Command::new(Kind::ResetConsumer, StreamNumber::FIRST, b"a", &seq);
            let (mut entry, mut out) = (Vec::new(), Vec::new());
            let mut encoder = Encoder::begin(&mut entry, 1_000_000);
            encoder.command(&reset).unwrap();
            let entry = Bytes::from(entry);
            streams
                .apply(640, &entry, &mut out, &mut Vec::new())
                .unwrap();
            let after = states(streams);
            assert_ne!(after[0], before[0]);
            assert_eq!(after[1..], before[1..]);
            let changed = json!({"config": {"durable_name": "a", "ack_policy": "explicit", "max_deliver": 3}});
            apply(
                streams,
                704,
                Kind::CreateConsumer,
                "a",
                &changed.to_string(),
            );
            let all = configs(streams);
            assert!(!all[0].is_shared_with(&all[1]) && all[1].is_shared_with(&all[2]));
            assert_eq!(all[0].full("a").max_deliver, 3);
        }
    }
}
