//! The two threads that wait for the collector: of spans, and of metrics.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tidegate_server::{Handle, SpanReceiver, Spans, metrics_text};
use tokio::time::Instant;

use super::losses::Losses;
use super::metrics::{self, Times};
use super::post::{Failure, Poster};
use super::queue::Queue;
use super::traces::{self, Followed, Ids};

/// The longest wait for spans, after which the thread looks for losses to tell of.
const LOOK: Duration = Duration::from_secs(1);

/// Hands spans to the collector until the server has ended and the last ones are sent, or the time for that
/// is over.
pub(super) fn export_traces(
    spans: &SpanReceiver,
    poster: &Poster,
    resource: &Resource,
    delay: Duration,
) {
    let mut queue = Queue::new(delay);
    let mut losses = Losses::default();
    loop {
        let now = Instant::now();
        // The difference is zero if the moment has passed.
        let wait = queue.due().map_or(LOOK, |due| LOOK.min(due - now));
        let has_ended = match spans.receive(wait) {
            Ok(turn) => {
                take(turn, &mut queue, &mut losses);
                false
            }
            Err(_) => true,
        };
        let dropped = spans.take_dropped();
        if dropped > 0 {
            losses.add(dropped, "the thread that sends spans was behind");
        }
        if has_ended {
            while queue.len() > 0 && send(&mut queue, poster, resource, &mut losses) {}
            if queue.len() > 0 {
                losses.add(queue.len() as u64, "the program ends");
            }
            tell(
                "publishes with their spans",
                losses.rest(Instant::now()),
                poster,
            );
            return;
        }
        if queue.due().is_some_and(|due| due <= Instant::now()) {
            send(&mut queue, poster, resource, &mut losses);
        }
        tell(
            "publishes with their spans",
            losses.due(Instant::now()),
            poster,
        );
    }
}

/// Puts the spans of a turn into the queue.
fn take(turn: Option<Spans>, queue: &mut Queue, losses: &mut Losses) {
    let Some(turn) = turn else {
        return;
    };
    let now = Instant::now();
    let mut lost = 0;
    for publish in turn.publishes {
        let mut random = [0; Ids::BYTES];
        let is_random = getrandom::fill(&mut random).is_ok();
        let followed = Followed {
            publish,
            acknowledged: turn.acknowledged,
            at: turn.at,
            ids: Ids::new(&random),
        };
        lost += u64::from(!is_random || !queue.push(now, followed));
    }
    if lost > 0 {
        losses.add(lost, "too many spans wait for the collector");
    }
}

/// Sends the next batch. Returns false if the batch stays in the queue.
fn send(queue: &mut Queue, poster: &Poster, resource: &Resource, losses: &mut Losses) -> bool {
    let batch = queue.batch();
    let len = batch.len();
    let answer = poster.post(traces::request(resource, batch).encode_to_vec());
    let now = Instant::now();
    match answer {
        Ok(answer) => {
            let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
            if let Some(partial) = answer.partial_success
                && partial.rejected_spans > 0
            {
                // Each publish has four spans.
                let lost = partial.rejected_spans.unsigned_abs().div_ceil(4);
                losses.add(lost, &partial.error_message);
            }
            queue.handle_answer(now, len);
            true
        }
        Err(why @ Failure::Refused(_)) => {
            losses.add(len as u64, &why.to_string());
            queue.handle_answer(now, len);
            true
        }
        Err(why) => {
            losses.add(0, &why.to_string());
            queue.handle_failure(now);
            false
        }
    }
}

/// Hands the figures of `/metrics` to the collector in each interval, until the program ends.
pub(super) fn export_metrics(
    handle: &Handle,
    poster: &Poster,
    resource: &Resource,
    interval: Duration,
    (streams, consumers): (usize, usize),
) {
    let start_ns = unix_ns();
    let mut losses = Losses::default();
    while poster.wait(interval) {
        let outcome = match metrics_text(handle, streams, consumers) {
            None => Err("the event loop did not answer in time".to_owned()),
            Some(page) => {
                let now_ns = unix_ns();
                let request = metrics::request(resource, &page, Times { start_ns, now_ns });
                let answer = poster.post(request.encode_to_vec());
                answer.map_err(|why| why.to_string()).and_then(|answer| {
                    let answer = ExportMetricsServiceResponse::decode(answer).unwrap_or_default();
                    match answer.partial_success {
                        Some(partial) if partial.rejected_data_points > 0 => {
                            Err(partial.error_message)
                        }
                        _ => Ok(()),
                    }
                })
            }
        };
        // Newer figures replace those that were lost, so no export is repeated.
        if let Err(why) = outcome {
            losses.add(1, &why);
        }
        tell("exports of metrics", losses.due(Instant::now()), poster);
    }
}

/// Logs what the collector did not get.
fn tell(what: &str, told: Option<(u64, &str)>, poster: &Poster) {
    if let Some((lost, why)) = told {
        tracing::warn!(
            "the collector at {} does not take everything; lost since the last such line: {lost} {what}: {}",
            poster.address(),
            why.escape_debug()
        );
    }
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
