//! Sends advisories about streams and consumers, for people who watch a server: created, changed, deleted,
//! paused.
//!
//! This module owns the text of these advisories, and decides when the server sends them. Without a listener
//! the server makes no advisory. The consumers themselves send the advisories about messages.

use serde::Serialize;
use tidegate::Time;
use tidegate_cluster::groups::ALL;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::Effect;

use super::context::Context;
use super::{JetStream, Voice};

/// A change of a stream or a consumer about which the server sends an advisory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Advised<'a> {
    StreamCreated {
        stream: &'a str,
    },
    StreamUpdated {
        stream: &'a str,
    },
    StreamDeleted {
        stream: &'a str,
    },
    ConsumerCreated {
        stream: &'a str,
        consumer: &'a str,
    },
    ConsumerDeleted {
        stream: &'a str,
        consumer: &'a str,
    },
    /// A client has paused the consumer until the time `until` or, with `None`, resumed it, so the server
    /// sends an advisory.
    ConsumerPaused {
        stream: &'a str,
        consumer: &'a str,
        until: Option<Timestamp>,
    },
    /// A client begins to restore the stream from a backup, so the server sends an advisory.
    RestoreBegun {
        stream: &'a str,
    },
    /// A client has restored the stream, so the server sends an advisory. The backup took this many bytes,
    /// and began at this time in microseconds since 1970.
    RestoreEnded {
        stream: &'a str,
        begun_us: u64,
        bytes: u64,
    },
    /// The server begins to send a backup of the stream to a client, and sends an advisory about that.
    SnapshotBegun {
        stream: &'a str,
    },
    /// The server has sent a backup of the stream that began at this time in microseconds since 1970, or has
    /// failed to send it. The advisory says which.
    SnapshotEnded {
        stream: &'a str,
        begun_us: u64,
        error: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct Json<'a> {
    r#type: &'static str,
    id: &'a str,
    timestamp: &'a str,
    stream: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> Advised<'a> {
    fn subject(&self) -> String {
        const PREFIX: &str = "$JS.EVENT.ADVISORY";
        match self {
            Self::StreamCreated { stream } => format!("{PREFIX}.STREAM.CREATED.{stream}"),
            Self::StreamUpdated { stream } => format!("{PREFIX}.STREAM.UPDATED.{stream}"),
            Self::StreamDeleted { stream } => format!("{PREFIX}.STREAM.DELETED.{stream}"),
            Self::ConsumerCreated { stream, consumer } => {
                format!("{PREFIX}.CONSUMER.CREATED.{stream}.{consumer}")
            }
            Self::ConsumerDeleted { stream, consumer } => {
                format!("{PREFIX}.CONSUMER.DELETED.{stream}.{consumer}")
            }
            Self::ConsumerPaused {
                stream, consumer, ..
            } => format!("{PREFIX}.CONSUMER.PAUSE.{stream}.{consumer}"),
            Self::RestoreBegun { stream } => format!("{PREFIX}.STREAM.RESTORE_CREATE.{stream}"),
            Self::RestoreEnded { stream, .. } => {
                format!("{PREFIX}.STREAM.RESTORE_COMPLETE.{stream}")
            }
            Self::SnapshotBegun { stream } => format!("{PREFIX}.STREAM.SNAPSHOT_CREATE.{stream}"),
            Self::SnapshotEnded { stream, .. } => {
                format!("{PREFIX}.STREAM.SNAPSHOT_COMPLETE.{stream}")
            }
        }
    }

    /// Encodes the advisory as JSON, for the people who watch the server; `id` is unique among all
    /// advisories, and `now` is the advisory's time.
    fn json(&self, id: &'a str, now: Timestamp) -> Vec<u8> {
        let (stream, consumer, action) = match *self {
            Self::StreamCreated { stream } => (stream, None, Some("create")),
            Self::StreamUpdated { stream } => (stream, None, Some("modify")),
            Self::StreamDeleted { stream } => (stream, None, Some("delete")),
            Self::ConsumerCreated { stream, consumer } => (stream, Some(consumer), Some("create")),
            Self::ConsumerDeleted { stream, consumer } => (stream, Some(consumer), Some("delete")),
            Self::ConsumerPaused {
                stream, consumer, ..
            } => (stream, Some(consumer), None),
            Self::RestoreBegun { stream }
            | Self::RestoreEnded { stream, .. }
            | Self::SnapshotBegun { stream }
            | Self::SnapshotEnded { stream, .. } => (stream, None, None),
        };
        let (start, bytes, error) = match *self {
            Self::RestoreEnded {
                begun_us, bytes, ..
            } => (Some(begun_us), Some(bytes), None),
            Self::SnapshotEnded {
                begun_us, error, ..
            } => (Some(begun_us), None, error),
            _ => (None, None, None),
        };
        let until = match *self {
            Self::ConsumerPaused { until, .. } => Some(until.unwrap_or(Timestamp::ZERO)),
            _ => None,
        };
        let json = Json {
            r#type: match (consumer, action) {
                (None, None) => match self {
                    Self::RestoreBegun { .. } => "io.nats.jetstream.advisory.v1.restore_create",
                    Self::RestoreEnded { .. } => "io.nats.jetstream.advisory.v1.restore_complete",
                    Self::SnapshotBegun { .. } => "io.nats.jetstream.advisory.v1.snapshot_create",
                    _ => "io.nats.jetstream.advisory.v1.snapshot_complete",
                },
                (_, None) => "io.nats.jetstream.advisory.v1.consumer_pause",
                (None, _) => "io.nats.jetstream.advisory.v1.stream_action",
                (Some(_), _) => "io.nats.jetstream.advisory.v1.consumer_action",
            },
            id,
            timestamp: &now.to_string(),
            stream,
            consumer,
            action,
            paused: until.map(|until| until > now),
            pause_until: until,
            start: start.map(Timestamp::from_micros),
            end: start.map(|_| now),
            bytes,
            error,
        };
        serde_json::to_vec(&json).unwrap_or_else(|e| unreachable!("strings are JSON: {e}"))
    }
}

impl Voice<'_> {
    /// Sends an advisory about a stream or consumer, if a client or a stream listens to the advisory's
    /// subject, because an advisory without a listener is lost work.
    pub(super) fn advise(&mut self, advised: &Advised<'_>) {
        let subject = advised.subject();
        if self.is_heard(subject.as_bytes()) {
            let id = self.speech.next_advisory(self.wall_us);
            let body = advised.json(&id, Timestamp::from_micros(self.wall_us));
            self.answer_with(subject.as_bytes(), &body);
        }
    }
}

impl JetStream {
    /// Sends advisories about the changes that an entry made, before the consumers handle these changes, so
    /// that a watcher hears of a consumer before its deliveries.
    pub(super) fn advise_changes(&mut self, cx: &mut Context<'_>, now: Time, effects: &[Effect]) {
        for effect in effects {
            let name = |stream| self.streams.get(stream).map(|s| s.name().to_owned());
            // A later command of the entry may have deleted the stream, and with it the stream's name. The
            // server then sends no advisory about the earlier change, because it cannot name the stream.
            match effect {
                // The directory's leader has already sent the advisory for a stream that another group keeps.
                Effect::StreamCreated { .. }
                | Effect::StreamUpdated { .. }
                | Effect::StreamDeleted { .. }
                    if self.group != ALL => {}
                Effect::StreamCreated { stream } => {
                    if let Some(stream) = &name(*stream) {
                        let advised = Advised::StreamCreated { stream };
                        self.voice(cx, now).advise(&advised);
                    }
                }
                Effect::StreamUpdated { stream } => {
                    if let Some(stream) = &name(*stream) {
                        let advised = Advised::StreamUpdated { stream };
                        self.voice(cx, now).advise(&advised);
                    }
                }
                Effect::StreamDeleted { name: stream, .. } => {
                    let advised = Advised::StreamDeleted { stream };
                    self.voice(cx, now).advise(&advised);
                }
                Effect::ConsumerCreated {
                    stream,
                    name: consumer,
                } => {
                    let live = self.consumers.find(*stream, consumer);
                    if live.is_some_and(|key| self.consumers.get(key).is_some_and(|l| l.told)) {
                        // This node created the consumer, and sent the advisory then. The consumer was known
                        // to this node alone until now, so the node sends no second advisory.
                        continue;
                    }
                    if let Some(stream) = &name(*stream) {
                        let advised = Advised::ConsumerCreated { stream, consumer };
                        self.voice(cx, now).advise(&advised);
                    }
                    self.advise_paused(cx, now, *stream, consumer, None);
                }
                Effect::ConsumerUpdated {
                    stream,
                    name: consumer,
                } => {
                    let live = self.consumers.find(*stream, consumer);
                    let live = live.and_then(|key| self.consumers.get(key));
                    let before = live.and_then(|live| live.config.nameless().pause_until);
                    self.advise_paused(cx, now, *stream, consumer, before);
                }
                Effect::ConsumerDeleted {
                    stream,
                    name: consumer,
                } => {
                    if let Some(stream) = &name(*stream) {
                        let advised = Advised::ConsumerDeleted { stream, consumer };
                        self.voice(cx, now).advise(&advised);
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends watchers an advisory that a client has paused or resumed a consumer, if its pause now ends at
    /// another time than `before`.
    fn advise_paused(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        stream: StreamNumber,
        consumer: &str,
        before: Option<Timestamp>,
    ) -> Option<()> {
        let of = self.streams.get(stream)?;
        let until = of.consumer(consumer)?.config().nameless().pause_until;
        if until != before {
            let stream = of.name().to_owned();
            self.voice(cx, now).advise(&Advised::ConsumerPaused {
                stream: &stream,
                consumer,
                until,
            });
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_nats_server_says_it() {
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let made = Advised::ConsumerCreated {
            stream: "S",
            consumer: "C",
        };
        assert_eq!(made.subject(), "$JS.EVENT.ADVISORY.CONSUMER.CREATED.S.C");
        assert_eq!(
            String::from_utf8(made.json("x", now)).unwrap(),
            r#"{"type":"io.nats.jetstream.advisory.v1.consumer_action","id":"x","timestamp":"2023-11-14T22:13:20Z","stream":"S","consumer":"C","action":"create"}"#
        );
        let goes_on = Advised::ConsumerPaused {
            stream: "S",
            consumer: "C",
            until: None,
        };
        assert_eq!(
            String::from_utf8(goes_on.json("x", now)).unwrap(),
            r#"{"type":"io.nats.jetstream.advisory.v1.consumer_pause","id":"x","timestamp":"2023-11-14T22:13:20Z","stream":"S","consumer":"C","paused":false,"pause_until":"0001-01-01T00:00:00Z"}"#
        );
        let gone = Advised::StreamDeleted { stream: "S" };
        assert_eq!(gone.subject(), "$JS.EVENT.ADVISORY.STREAM.DELETED.S");
        assert!(
            String::from_utf8(gone.json("x", now))
                .unwrap()
                .ends_with(r#""stream":"S","action":"delete"}"#)
        );
    }
}
