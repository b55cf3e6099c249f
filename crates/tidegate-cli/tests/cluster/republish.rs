//! Tests a stream that publishes its messages again while its leader changes: listeners at each node must
//! hear every acknowledged message, and a second stream that stores the republished messages must have all of
//! them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::nodes::Nodes;
use super::raw::Raw;

/// The number of messages that the publisher has in flight.
const WINDOW: u64 = 16;
/// The time without an answer after which the publisher sends its messages again, to another node.
const ATTEMPT: Duration = Duration::from_millis(500);

/// Publishes messages until `stop` is set, each again until a node acknowledges it. Returns the number of
/// messages.
fn publish(urls: &[String], stop: &AtomicBool) -> u64 {
    let mut urls = urls.iter().cycle();
    let mut sent = 0;
    let mut raw = None;
    while !stop.load(Ordering::Acquire) {
        let mut missing: BTreeSet<u64> = (sent..sent + WINDOW).collect();
        while !missing.is_empty() {
            let Some(connection) = &mut raw else {
                raw = Raw::connect_within(urls.next().unwrap(), ATTEMPT).ok();
                continue;
            };
            for n in &missing {
                let id = format!("Nats-Msg-Id: {n}");
                connection.publish_with(&format!("s.{n}"), &n.to_string(), &[&id]);
            }
            while !missing.is_empty() {
                let Ok(answer) = connection.message() else {
                    break;
                };
                let stored = answer.headers().is_empty() && answer.json().get("error").is_none();
                let n = answer.subject.rsplit('.').next().unwrap();
                if !stored || !missing.remove(&n.parse().unwrap()) {
                    break;
                }
            }
            if !missing.is_empty() {
                raw = None;
            }
        }
        sent += WINDOW;
    }
    sent
}

#[test]
fn listeners_hear_each_message_under_every_leader() {
    let mut nodes = Nodes::start(3);
    nodes.add_stream("O", "o.>");
    let config = json!({"name": "S", "subjects": ["s.>"], "num_replicas": 3,
        "republish": {"src": "s.*", "dest": "o.$1"}});
    nodes.until("a stream to be made", || {
        nodes.ask("STREAM.CREATE.S", &config)
    });
    let mut listeners: Vec<Raw> = (0..3)
        .map(|node| {
            let mut raw = Raw::connect(&nodes.url(node)).unwrap();
            raw.send(b"SUB o.> 7\r\n").unwrap();
            raw
        })
        .collect();
    // A node gets messages from another node once it has announced its subscriptions there.
    for (at, raw) in listeners.iter_mut().enumerate() {
        let mut other = Raw::connect(&nodes.url((at + 1) % 3)).unwrap();
        nodes.until("interest", || {
            other.publish("o.probe", "probe", b"").unwrap();
            other.message().map_err(|e| e.to_string())?;
            Ok(())
        });
        assert_eq!(raw.message().unwrap().subject, "o.probe");
    }
    let (urls, stop) = (nodes.urls(), AtomicBool::new(false));
    let (sent, ended) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| publish(&urls, &stop));
        let leader = nodes.leader("S");
        nodes.lead("S", (leader + 1) % 3);
        nodes.lead("S", (leader + 2) % 3);
        let leader = nodes.leader("S");
        nodes.end(leader);
        nodes.leader("S");
        stop.store(true, Ordering::Release);
        (publisher.join().unwrap(), leader)
    });
    let all: BTreeSet<String> = (0..sent).map(|n| n.to_string()).collect();
    for (at, raw) in listeners.iter_mut().enumerate() {
        if at == ended {
            continue;
        }
        let mut heard = BTreeSet::new();
        while !all.is_subset(&heard) {
            let message = raw.message().unwrap();
            let name = message.subject.strip_prefix("o.").unwrap().to_owned();
            if name != "probe" {
                let headers = message.headers();
                assert!(headers.contains("Nats-Stream: S\r\n"), "{headers}");
                heard.insert(name);
            }
        }
    }
}
