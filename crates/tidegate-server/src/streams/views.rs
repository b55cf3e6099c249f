//! The views of streams from which the server makes the answers of the API.

use serde_json::Value;
use tidegate::Time;
use tidegate_stream::api::answer::Kind;
use tidegate_stream::api::body::InfoDetails;
use tidegate_stream::api::view;
use tidegate_stream::api::view::{StreamCounts, StreamView};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Stream;

use super::JetStream;
use crate::config::StreamSettings;
use crate::streams::serving::consumers::LiveAt;

/// A stream, with the number of its consumers on this node. This number differs from the number in the log,
/// because the log does not keep all consumers.
pub(super) struct Shown<'a> {
    pub(super) stream: &'a Stream,
    pub(super) consumers: usize,
}

impl StreamView for Shown<'_> {
    fn config(&self) -> &StreamConfig {
        self.stream.config()
    }

    fn created_us(&self) -> u64 {
        self.stream.created_us()
    }

    fn counts(&self) -> StreamCounts {
        StreamCounts {
            consumers: self.consumers,
            ..StreamView::counts(self.stream)
        }
    }

    fn deleted(&self, limit: usize) -> Vec<StreamSeq> {
        self.stream.deleted(limit)
    }

    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64)) {
        StreamView::subjects(self.stream, pattern, each);
    }
}

impl JetStream {
    /// Returns the operator's settings for streams, such as limits and the domain.
    #[must_use]
    pub(crate) const fn settings(&self) -> &StreamSettings {
        &self.settings
    }

    /// Returns up to `limit` streams for the monitor: the name of each stream, and its description in the
    /// form of an API answer, with the stream's consumers if `consumers` is set.
    pub(crate) fn details(&self, now: Time, limit: usize, consumers: bool) -> Vec<(String, Value)> {
        let server = self.server(now);
        let parsed = |json: &[u8]| {
            let mut value: Value = serde_json::from_slice(json).unwrap_or_default();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("type");
            }
            value
        };
        let kept = self
            .streams
            .iter()
            .filter(|s| s.home().is_here() && !s.is_filling());
        let all = kept.take(limit);
        all.map(|stream| {
            let info = view::stream_info(&server, &self.shown(stream), &InfoDetails::default());
            let mut value = parsed(&info.unwrap_or_default());
            value["name"] = stream.name().into();
            if consumers {
                let wall_us = self.wall.peek(now);
                let of = self.consumers.of(stream.id()).map(|live| {
                    let kind = Kind::ConsumerInfo;
                    parsed(&view::consumer_info(
                        kind,
                        &server,
                        stream.name(),
                        &LiveAt(live, wall_us),
                    ))
                });
                value["consumer_detail"] = of.collect();
            }
            (stream.name().to_owned(), value)
        })
        .collect()
    }
}
