//! Writes the figures of single streams and consumers for `/metrics`, with the counts of those that the
//! operator's bounds leave out.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

use super::metrics::{GAUGE, encode_each, encode_labelled};
use crate::event_loop::report::Streams;
use crate::streams::figures::{ConsumerFigures, StreamFigures};

/// The name, the help text and the value of a metric of single streams.
type OfStream = (&'static str, &'static str, fn(&StreamFigures) -> f64);

/// The name, the help text and the value of a metric of single consumers.
type OfConsumer = (&'static str, &'static str, fn(&ConsumerFigures) -> f64);

/// The metrics with the label `stream`.
const OF_STREAMS: [OfStream; 7] = [
    ("stream_state_messages", "Messages in the stream", |s| {
        s.messages as f64
    }),
    (
        "stream_state_bytes",
        "Bytes of the messages in the stream",
        |s| s.bytes as f64,
    ),
    (
        "stream_state_subjects",
        "Subjects with messages in the stream",
        |s| s.subjects as f64,
    ),
    (
        "stream_state_first_sequence",
        "Number of the first message in the stream",
        |s| s.first_seq as f64,
    ),
    (
        "stream_state_last_sequence",
        "Number of the last message that the stream stored",
        |s| s.last_seq as f64,
    ),
    ("stream_state_consumers", "Consumers of the stream", |s| {
        s.consumers as f64
    }),
    (
        "stream_state_leader",
        "1 if this node serves the stream, 0 if it only keeps a copy",
        |s| f64::from(u8::from(s.is_led)),
    ),
];

/// The metrics with the labels `stream` and `consumer`.
const OF_CONSUMERS: [OfConsumer; 5] = [
    (
        "consumer_pending",
        "Messages that the consumer has still to deliver",
        |c| c.pending as f64,
    ),
    (
        "consumer_ack_pending",
        "Messages delivered and not acknowledged",
        |c| c.ack_pending as f64,
    ),
    (
        "consumer_waiting_pulls",
        "Pulls that wait for messages",
        |c| c.waiting as f64,
    ),
    (
        "consumer_delivered_sequence",
        "Number in the stream of the last message delivered",
        |c| c.delivered as f64,
    ),
    (
        "consumer_ack_floor_sequence",
        "Number in the stream up to which every message is acknowledged",
        |c| c.ack_floor as f64,
    ),
];

/// Encodes the series of the streams and consumers in the report, and how many the bounds leave out.
pub(super) fn encode(s: &Streams, to: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let series = &s.series;
    for (name, help, value) in OF_STREAMS {
        let rows = series.streams.iter();
        let rows = rows.map(|s| ([("stream", s.name.as_str())], value(s)));
        encode_labelled(to, name, help, rows, GAUGE)?;
    }
    for (name, help, value) in OF_CONSUMERS {
        let rows = series.consumers.iter();
        let rows = rows.map(|c| {
            let labels = [("stream", c.stream.as_str()), ("consumer", c.name.as_str())];
            (labels, value(c))
        });
        encode_labelled(to, name, help, rows, GAUGE)?;
    }
    // The totals are a little older than the series, so the series may be more.
    let left_out = |all: usize, shown: usize| all.saturating_sub(shown) as f64;
    let gauges = [
        (
            "series_left_out_streams",
            "Streams without series of their own, because of metrics_streams",
            left_out(s.streams, series.streams.len()),
        ),
        (
            "series_left_out_consumers",
            "Consumers without series of their own, because of metrics_consumers or metrics_streams",
            left_out(s.consumers, series.consumers.len()),
        ),
    ];
    encode_each(to, gauges, ConstGauge::new)
}
