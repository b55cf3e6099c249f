//! Tests the spans of followed publishes, as a thread that exports them gets them.

use std::num::NonZeroU64;

use serde_json::json;
use tidegate_server::{PublishSpan, Published, Server, SpanReceiver, SpanSampling, span_channel};

use super::monitor::ask;
use super::raw::{PATIENCE, Raw};
use super::{Running, serve, settings};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Starts a server with the stream `S` that follows publishes by this rule. The directory keeps the data.
fn start(one_in: u64, directory: &tempfile::TempDir) -> (Running, SpanReceiver, Raw) {
    let store = format!("jetstream {{ store_dir: {:?} }}", directory.path());
    let mut settings = settings(&store);
    let one_in = NonZeroU64::new(one_in);
    settings.streams.as_mut().unwrap().spans = Some(SpanSampling { one_in });
    let mut server = Server::bind(settings).unwrap();
    let (to, spans) = span_channel();
    server.send_spans(to);
    let server = serve(server);
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB r.a 1\r\n");
    let config = json!({"name": "S", "subjects": ["s.>"], "max_msg_size": 300});
    ask(&mut client, &[("STREAM.CREATE.S".to_owned(), config)]);
    (server, spans, client)
}

/// Publishes a message with these header lines, and waits for its acknowledgement.
fn publish(client: &mut Raw, headers: &str, payload: &str) {
    let headers = format!("NATS/1.0\r\n{headers}\r\n");
    let (head, all) = (headers.len(), headers.len() + payload.len());
    client.send(format!(
        "HPUB s.x r.a {head} {all}\r\n{headers}{payload}\r\n"
    ));
    client.until("MSG r.a");
    client.until("}\r\n");
}

/// Takes the spans up to and with the wanted number of them.
fn take(spans: &SpanReceiver, wanted: usize) -> Vec<PublishSpan> {
    let mut all = Vec::new();
    while all.len() < wanted {
        let turn = spans.receive(PATIENCE).unwrap().expect("spans");
        for span in turn.publishes {
            let steps = [
                span.received,
                span.proposed,
                span.durable,
                turn.acknowledged,
            ];
            assert!(steps.is_sorted(), "{span:?}");
            assert!(
                span.commands > 0 && span.entry_bytes > span.bytes,
                "{span:?}"
            );
            all.push(span);
        }
    }
    assert_eq!(all.len(), wanted);
    all
}

#[test]
fn a_publish_of_a_recorded_trace_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, spans, mut client) = start(0, &directory);
    publish(&mut client, "", "no trace");
    let other = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-00\r\n");
    publish(&mut client, &other, "not recorded");
    let recorded = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\nNats-Msg-Id: 7\r\n");
    publish(&mut client, &recorded, "stored");
    publish(&mut client, &recorded, "again");
    let other = recorded.replace(": 7", ": 8");
    publish(&mut client, &other, &"x".repeat(301));
    let all = take(&spans, 3);
    let results: Vec<&Published> = all.iter().map(|span| &span.result).collect();
    let [
        Published::Stored(3),
        Published::Duplicate(3),
        Published::Refused(why),
    ] = results[..]
    else {
        panic!("{results:?}");
    };
    assert!(why.contains("10054"), "{why}");
    for span in &all {
        let parent = span.parent.unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[1]), (0x4b, 0xf0));
        assert_eq!((span.stream.as_str(), &*span.subject), ("S", &b"s.x"[..]));
    }
    drop(client);
    drop(server);
    assert!(spans.receive(PATIENCE).is_err(), "the server has ended");
    assert_eq!(spans.take_dropped(), 0);
}

#[test]
fn a_share_of_other_publishes_is_followed_and_a_slow_thread_loses_spans() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, spans, mut client) = start(2, &directory);
    for n in 1..=1200 {
        publish(&mut client, "", &format!("{n}"));
    }
    // The server hands over the last span after it has sent the acknowledgement. The test must not make room
    // before.
    client.done("");
    // The channel holds the spans of 256 turns. Each publish waits for its acknowledgement, so each of them
    // has a turn of its own.
    let all = take(&spans, 256);
    let stored: Vec<Published> = all.into_iter().map(|span| span.result).collect();
    let wanted = (1..=256).map(|n| Published::Stored(2 * n));
    assert_eq!(stored, wanted.collect::<Vec<_>>());
    assert_eq!(spans.take_dropped(), 600 - 256);
}
