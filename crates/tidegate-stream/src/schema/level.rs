//! Handles API levels: the level that a client may require of the server, and the metadata keys by which a
//! stream or consumer states the level that it requires.
//!
//! Three keys of a configuration's metadata are reserved for the server. The server stores `_nats.req.level`
//! with the configuration. It adds `_nats.ver` and `_nats.level`, its own version and level, only to answers,
//! because another server may answer next.

use tidegate_nats::headers;

use super::config::{AckPolicy, ConsumerConfig, PersistMode, StreamConfig};
use super::metadata::Metadata;

/// The API level of this server, which is the level of fast-ingest batches. If a client asks for a feature of
/// this or a lower level that the server lacks, the server refuses the request and names the feature.
pub const API_LEVEL: u32 = 4;

/// The header by which a client requires an API level of the server. With it, a client ensures that a server
/// that lacks a feature refuses the request.
const REQUIRED: &[u8] = b"Nats-Required-Api-Level";
const REQUIRED_LEVEL: &str = "_nats.req.level";
const SERVER_VERSION: &str = "_nats.ver";
const SERVER_LEVEL: &str = "_nats.level";

/// Returns whether this server has the API level that a request with these headers requires. Otherwise the
/// server refuses the request.
#[must_use]
pub fn suffices(block: &[u8]) -> bool {
    match headers::get(block, REQUIRED) {
        None | Some(b"") => true,
        Some(level) => std::str::from_utf8(level)
            .ok()
            .and_then(|level| level.parse::<i64>().ok())
            .is_some_and(|level| level <= i64::from(API_LEVEL)),
    }
}

/// Returns the header block of a message without the header `Nats-Required-Api-Level`, which the caller has
/// checked; `None` if the message lacks this header. The stream stores the message without it.
#[must_use]
pub fn satisfied(block: &[u8]) -> Option<Vec<u8>> {
    headers::without(block, REQUIRED)
}

/// Stores, in the metadata of a stream's configuration, the API level that the features in this configuration
/// require, so that older servers know that they lack them.
pub fn mark_stream(config: &mut StreamConfig) {
    let level = if config.allow_batched {
        4
    } else if config.allow_atomic || config.persist_mode == PersistMode::Async {
        2
    } else {
        u32::from(config.allow_msg_ttl || config.subject_delete_marker_ttl > 0)
    };
    mark(&mut config.metadata, level);
}

/// Stores, in the metadata of a consumer's configuration, the API level that the features in this
/// configuration require, so that older servers know that they lack them.
pub fn mark_consumer(config: &mut ConsumerConfig) {
    let level = match config.ack_policy {
        AckPolicy::FlowControl => 4,
        _ => u32::from(config.pause_until.is_some()),
    };
    mark(&mut config.metadata, level);
}

/// Returns the metadata of a configuration as an answer shows it: with the server's version and API level
/// added for the client.
#[must_use]
pub fn answered(metadata: &Metadata, version: &str) -> Metadata {
    let mut metadata = metadata.clone();
    metadata.insert(SERVER_VERSION, version);
    metadata.insert(SERVER_LEVEL, &API_LEVEL.to_string());
    metadata
}

fn mark(metadata: &mut Metadata, level: u32) {
    metadata.remove(SERVER_VERSION);
    metadata.remove(SERVER_LEVEL);
    metadata.insert(REQUIRED_LEVEL, &level.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required() {
        let block = |v: &str| format!("NATS/1.0\r\nNats-Required-Api-Level: {v}\r\n\r\n");
        for (level, suffices_) in [
            ("0", true),
            ("4", true),
            ("5", false),
            ("99", false),
            ("x", false),
            ("-1", true),
        ] {
            assert_eq!(suffices(block(level).as_bytes()), suffices_, "{level}");
        }
        assert!(suffices(b"") && suffices(b"NATS/1.0\r\n\r\n"));
        assert_eq!(
            satisfied(block("1").as_bytes()).unwrap(),
            b"NATS/1.0\r\n\r\n"
        );
    }

    #[test]
    fn marked() {
        let level = |config: StreamConfig| {
            let mut config = config;
            mark_stream(&mut config);
            config.metadata.get(REQUIRED_LEVEL).unwrap().to_owned()
        };
        let plain = StreamConfig::default();
        assert_eq!(level(plain.clone()), "0");
        assert_eq!(
            level(StreamConfig {
                allow_msg_ttl: true,
                ..plain.clone()
            }),
            "1"
        );
        assert_eq!(
            level(StreamConfig {
                allow_atomic: true,
                ..plain.clone()
            }),
            "2"
        );
        assert_eq!(
            level(StreamConfig {
                allow_batched: true,
                ..plain
            }),
            "4"
        );
        let mut consumer = ConsumerConfig {
            ack_policy: AckPolicy::FlowControl,
            ..ConsumerConfig::default()
        };
        mark_consumer(&mut consumer);
        assert_eq!(consumer.metadata.get(REQUIRED_LEVEL), Some("4"));
    }

    #[test]
    fn fields_that_answers_add_are_not_stored() {
        let mut config = StreamConfig::default();
        config.metadata.insert("a", "b");
        mark_stream(&mut config);
        let stored = config.metadata.clone();
        config.metadata = answered(&config.metadata, "1.2.3");
        assert_eq!(config.metadata.len(), 4);
        mark_stream(&mut config);
        assert_eq!(config.metadata, stored);
    }
}
