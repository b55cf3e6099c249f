//! Advisories: messages by which operators learn of events in a consumer, beside the messages that the
//! consumer delivers.
//!
//! This module owns the events, subjects and JSON of advisories. The caller that publishes an advisory sets
//! its id and time.

use serde::Serialize;

use super::sequence::ConsumerSeq;
use crate::schema::sequence::StreamSeq;

/// An advisory about one delivered message of a consumer, by which operators learn of trouble with the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advisory<'a> {
    /// The name of the stream that holds the message, for the advisory's subject and payload.
    pub stream: &'a str,
    /// The name of the consumer that delivered the message, for the advisory's subject and payload.
    pub consumer: &'a str,
    /// The number of the message in the stream, by which an operator can read the message.
    pub stream_seq: StreamSeq,
    /// The number of times that the consumer has delivered the message so far, so that operators see repeated
    /// failures.
    pub deliveries: u32,
    /// The event that happened to the message, such as the end of its redelivery.
    pub event: Event<'a>,
}

/// An event that an advisory reports about a delivered message. The event determines the subject and the
/// fields of the advisory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The message reached its delivery limit, and the consumer gave it up. An operator may want to look at
    /// the message.
    MaxDeliver,
    /// The receiver refused the message for now, and asked the consumer to redeliver it.
    Nak {
        /// The number of the delivery that the receiver refused, among all deliveries of the consumer.
        consumer_seq: ConsumerSeq,
    },
    /// The receiver acknowledged the message. The consumer reports only a sample of acknowledgements, and
    /// this message is in the sample. Operators see how fast receivers are.
    Acked {
        /// The number of the acknowledged delivery, among all deliveries of the consumer.
        consumer_seq: ConsumerSeq,
        /// The time from the delivery to the acknowledgement, in nanoseconds, by which operators see how fast
        /// receivers are.
        ack_ns: u64,
    },
    /// The consumer no longer redelivers the message: the receiver asked for that, or the stream removed the
    /// message.
    Terminated {
        /// The number of the delivery that the receiver terminated, or else of the message's first delivery,
        /// among all deliveries of the consumer.
        consumer_seq: ConsumerSeq,
        /// The reason why redelivery ends: the receiver's own words, or that the stream removed the message.
        reason: &'a str,
    },
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    timestamp: &'a str,
    stream: &'a str,
    consumer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_seq: Option<ConsumerSeq>,
    stream_seq: StreamSeq,
    deliveries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ack_time: Option<u64>,
}

impl Advisory<'_> {
    /// Returns the subject to which the caller publishes the advisory: it states the event, the stream and
    /// the consumer, so that operators can subscribe to some of them.
    #[must_use]
    pub fn subject(&self) -> String {
        let kind = match self.event {
            Event::MaxDeliver => "MAX_DELIVERIES",
            Event::Nak { .. } => "MSG_NAKED",
            Event::Terminated { .. } => "MSG_TERMINATED",
            Event::Acked { .. } => {
                return format!(
                    "$JS.EVENT.METRIC.CONSUMER.ACK.{}.{}",
                    self.stream, self.consumer
                );
            }
        };
        format!(
            "$JS.EVENT.ADVISORY.CONSUMER.{kind}.{}.{}",
            self.stream, self.consumer
        )
    }

    /// Returns the advisory's payload as JSON, as nats-server writes it. `id` is unique among advisories, and
    /// `timestamp` is the time in the form of RFC 3339.
    #[must_use]
    pub fn json(&self, id: &str, timestamp: &str) -> Vec<u8> {
        let (kind, consumer_seq, reason) = match self.event {
            Event::MaxDeliver => ("io.nats.jetstream.advisory.v1.max_deliver", None, None),
            Event::Nak { consumer_seq } => (
                "io.nats.jetstream.advisory.v1.nak",
                Some(consumer_seq),
                None,
            ),
            Event::Acked { consumer_seq, .. } => (
                "io.nats.jetstream.metric.v1.consumer_ack",
                Some(consumer_seq),
                None,
            ),
            Event::Terminated {
                consumer_seq,
                reason,
            } => (
                "io.nats.jetstream.advisory.v1.terminated",
                Some(consumer_seq),
                Some(reason).filter(|r| !r.is_empty()),
            ),
        };
        let json = Json {
            kind,
            id,
            timestamp,
            stream: self.stream,
            consumer: self.consumer,
            consumer_seq,
            stream_seq: self.stream_seq,
            deliveries: self.deliveries,
            reason,
            ack_time: match self.event {
                Event::Acked { ack_ns, .. } => Some(ack_ns),
                _ => None,
            },
        };
        serde_json::to_vec(&json).expect("strings and numbers are JSON")
    }
}
