//! Makes spans of OTLP from the steps of followed publishes, pure.
//!
//! A publish is a server span `publish STREAM`, a child of the client's span if the message names one. Its
//! own children are the times up to the moments `proposed`, `durable` and `acknowledged`, one after the
//! other, so that a waterfall shows the slow step.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use tidegate::Time;
use tidegate_server::{PublishSpan, Published};

use super::{attribute, scope, text};

/// The flags of a span that is recorded, and of which the export knows if its parent is in another program.
const FLAGS: u32 = 0x101;
/// The flag of a span with its parent in another program.
const IS_REMOTE: u32 = 0x200;

/// A publish that the server has followed, with random numbers for its spans, so that a request that is sent
/// again has the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) publish: PublishSpan,
    /// The time at which the event loop had written the acknowledgement, by its own clock, and by the
    /// machine's.
    pub(super) acknowledged: Time,
    pub(super) at: SystemTime,
    pub(super) ids: Ids,
}

/// The random numbers of a trace, and of a publish's span and its three children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) trace: [u8; 16],
    pub(super) spans: [[u8; 8]; 4],
}

impl Ids {
    /// The number of random bytes that the numbers need.
    pub(super) const BYTES: usize = 16 + 4 * 8;

    pub(super) fn new(random: &[u8; Self::BYTES]) -> Self {
        let mut ids = Self::default();
        let (trace, spans) = random.split_at(16);
        ids.trace.copy_from_slice(trace);
        for (id, bytes) in ids.spans.iter_mut().zip(spans.chunks_exact(8)) {
            id.copy_from_slice(bytes);
        }
        ids
    }
}

/// Makes the request that hands these publishes to the collector.
pub(super) fn request(resource: &Resource, publishes: &[Followed]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: scope(),
                spans: publishes.iter().flat_map(spans).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

/// Returns the span of a publish, and its children.
fn spans(followed: &Followed) -> [Span; 4] {
    let publish = &followed.publish;
    let at = |time: Time| {
        let at = followed.at.checked_sub(followed.acknowledged - time);
        let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
    };
    let trace = publish
        .parent
        .map_or(followed.ids.trace, |parent| parent.trace_id);
    let [own, proposed, durable, acknowledged] = followed.ids.spans;
    let child = |id: [u8; 8], name: &str, from: Time, to: Time| Span {
        trace_id: trace.to_vec(),
        span_id: id.to_vec(),
        parent_span_id: own.to_vec(),
        flags: FLAGS,
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: at(from),
        end_time_unix_nano: at(to),
        ..Span::default()
    };
    let whole = Span {
        trace_id: trace.to_vec(),
        span_id: own.to_vec(),
        parent_span_id: publish
            .parent
            .map(|parent| parent.span_id.to_vec())
            .unwrap_or_default(),
        flags: match publish.parent {
            Some(_) => FLAGS | IS_REMOTE,
            None => FLAGS,
        },
        name: match publish.stream.as_str() {
            "" => "publish".to_owned(),
            stream => format!("publish {stream}"),
        },
        kind: SpanKind::Server.into(),
        start_time_unix_nano: at(publish.received),
        end_time_unix_nano: at(followed.acknowledged),
        attributes: attributes(publish),
        status: status(&publish.result),
        ..Span::default()
    };
    [
        whole,
        child(proposed, "proposed", publish.received, publish.proposed),
        child(durable, "durable", publish.proposed, publish.durable),
        child(
            acknowledged,
            "acknowledged",
            publish.durable,
            followed.acknowledged,
        ),
    ]
}

fn attributes(publish: &PublishSpan) -> Vec<KeyValue> {
    let (result, sequence) = match &publish.result {
        Published::Stored(sequence) => ("stored", Some(*sequence)),
        Published::Duplicate(sequence) => ("duplicate", Some(*sequence)),
        Published::Refused(_) => ("refused", None),
    };
    let number = |key: &str, value: u64| {
        attribute(
            key,
            Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)),
        )
    };
    let subject = String::from_utf8_lossy(&publish.subject);
    let mut all = vec![
        text("messaging.system", "nats"),
        text("messaging.destination.name", subject),
        text("tidegate.stream", publish.stream.as_str()),
        text("tidegate.result", result),
        number("tidegate.bytes", publish.bytes as u64),
        number("tidegate.entry.commands", publish.commands as u64),
        number("tidegate.entry.bytes", publish.entry_bytes as u64),
    ];
    all.extend(sequence.map(|sequence| number("tidegate.sequence", sequence)));
    all
}

/// Returns the status of a publish: a refused one is an error, with the reason that the client reads.
fn status(result: &Published) -> Option<Status> {
    match result {
        Published::Stored(_) | Published::Duplicate(_) => None,
        Published::Refused(why) => Some(Status {
            message: why.clone(),
            code: StatusCode::Error.into(),
        }),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use tidegate_nats::headers::TraceParent;

    use super::*;

    /// Returns a publish without a trace that was stored under this number.
    pub(in crate::serve::otlp) fn followed(sequence: u64) -> Followed {
        Followed {
            publish: PublishSpan {
                parent: None,
                stream: "S".into(),
                subject: (*b"s.x").into(),
                bytes: 3,
                received: Time::from_nanos(1000),
                proposed: Time::from_nanos(1500),
                durable: Time::from_nanos(4000),
                commands: 7,
                entry_bytes: 99,
                result: Published::Stored(sequence),
            },
            acknowledged: Time::from_nanos(5000),
            at: UNIX_EPOCH + Duration::from_secs(1),
            ids: Ids::new(&std::array::from_fn(|at| at as u8)),
        }
    }

    #[test]
    fn a_publish_is_a_span_with_its_steps_as_children() {
        let mut publish = followed(9);
        publish.publish.parent = Some(TraceParent {
            trace_id: [0xaa; 16],
            span_id: [0xbb; 8],
            is_sampled: true,
        });
        let all = spans(&publish);
        let names: Vec<&str> = all.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["publish S", "proposed", "durable", "acknowledged"]);
        assert!(all.iter().all(|span| span.trace_id == [0xaa; 16]));
        let [whole, steps @ ..] = &all;
        assert_eq!(
            (&whole.parent_span_id[..], whole.flags),
            (&[0xbb; 8][..], 0x301)
        );
        assert_eq!(whole.span_id, [16, 17, 18, 19, 20, 21, 22, 23]);
        assert!(
            steps
                .iter()
                .all(|step| step.parent_span_id == whole.span_id)
        );
        // The steps fill the span, without a gap.
        let end = 1_000_000_000;
        let bounds = [end - 4000, end - 3500, end - 1000, end];
        for (step, bounds) in steps.iter().zip(bounds.windows(2)) {
            let times = [step.start_time_unix_nano, step.end_time_unix_nano];
            assert_eq!(times, *bounds, "{}", step.name);
        }
        assert_eq!(whole.start_time_unix_nano, bounds[0]);
        assert_eq!(
            (whole.end_time_unix_nano, whole.status.clone()),
            (end, None)
        );
        assert!(
            whole
                .attributes
                .contains(&attribute("tidegate.sequence", Value::IntValue(9)))
        );
        assert!(
            whole
                .attributes
                .contains(&text("messaging.destination.name", "s.x"))
        );
    }

    #[test]
    fn a_publish_without_a_trace_begins_one_and_a_refused_one_is_an_error() {
        let mut publish = followed(9);
        publish.publish.result = Published::Refused("too long".into());
        publish.publish.stream.clear();
        let [whole, ..] = spans(&publish);
        assert_eq!(whole.trace_id, (0..16).collect::<Vec<u8>>());
        assert!(whole.parent_span_id.is_empty());
        assert_eq!((whole.name.as_str(), whole.flags), ("publish", 0x101));
        let status = whole.status.unwrap();
        assert_eq!((status.code, &*status.message), (2, "too long"));
        assert!(
            whole
                .attributes
                .iter()
                .all(|a| a.key != "tidegate.sequence")
        );
    }
}
