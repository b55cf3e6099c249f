//! Measures the works of the node without sockets for the simulation: operations, publishes, copies,
//! subscriptions, and frames of other nodes.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::wire::{FRAME_BYTES_MAX, Frame, Routed, read};
use tidegate_nats::connect::Info;
use tidegate_nats::outbox::Outbox;
use tidegate_nats::parse::Publish;
use tidegate_server::{ClientKey, Node, Settings};

use super::{Table, median, timed};

/// The number of operations in a round, over which the bench takes the mean time.
const N: usize = 10_000;
/// The number of receivers of a message, to measure the cost of one copy.
const RECEIVERS: usize = 256;
const ANY: Load = Load::new(u64::MAX, u64::MAX);
const NOW: Time = Time::from_nanos(1);

pub(super) fn measure(rounds: usize) -> Table {
    let operation = one(rounds, &"PING\r\n".repeat(N));
    let publish = one(rounds, &"PUB a.b.c 2\r\nxx\r\n".repeat(N));
    let (subscribe, unsubscribe) = subscriptions(rounds);
    vec![
        ("Operation", operation),
        ("Publish", publish.saturating_sub(operation)),
        ("Copy", copies(rounds, publish)),
        ("Subscribe", subscribe.saturating_sub(operation)),
        ("Unsubscribe", unsubscribe.saturating_sub(operation)),
        ("Frame", frames(rounds)),
    ]
}

fn node() -> (Node, ClientKey) {
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    let key = node.handle_accepted(NOW, ([127, 0, 0, 1], 1).into(), false, false);
    say(&mut node, key, "CONNECT {\"verbose\":false}\r\n");
    (node, key)
}

/// Lets the node handle `text` from a client, drops all bytes in its outboxes, and returns the node's time.
fn say(node: &mut Node, key: ClientKey, text: &str) -> Duration {
    let bytes = text.as_bytes();
    let mut used = 0;
    let took = timed(|| {
        while used < bytes.len() {
            let received = node.handle_received(NOW, key, &bytes[used..], ANY);
            used += received.used;
            if received.used == 0 && !received.full {
                break;
            }
        }
    });
    node.take_gathered();
    while let Some(key) = node.poll_dirty() {
        let len = node.outbox(key).len();
        node.handle_written(NOW, key, len);
    }
    took
}

/// Measures how long the node takes for one operation. `text` holds `N` operations.
fn one(rounds: usize, text: &str) -> u64 {
    let (mut node, key) = node();
    median(rounds, N, || say(&mut node, key, text))
}

/// Measures how long the node takes for one copy of a message with many receivers.
fn copies(rounds: usize, publish: u64) -> u64 {
    let (mut node, key) = node();
    let subs = (0..RECEIVERS).map(|n| format!("SUB a.* {n}\r\n"));
    say(&mut node, key, &subs.collect::<String>());
    let text = "PUB a.b 2\r\nxx\r\n".repeat(N / RECEIVERS);
    let message = median(rounds, N / RECEIVERS, || say(&mut node, key, &text));
    message.saturating_sub(publish) / RECEIVERS as u64
}

/// Measures how long the node takes for a subscription, and for an unsubscription.
fn subscriptions(rounds: usize) -> (u64, u64) {
    let (mut node, key) = node();
    let all = |verb: &str, of: fn(usize) -> String| -> String {
        (0..N).map(|n| format!("{verb} {}\r\n", of(n))).collect()
    };
    let subs = all("SUB", |n| format!("s.{n} {n}"));
    let unsubs = all("UNSUB", |n| n.to_string());
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        begun.push(say(&mut node, key, &subs));
        ended.push(say(&mut node, key, &unsubs));
    }
    let of = |mut times: Vec<Duration>| median(rounds, N, || times.pop().unwrap_or_default());
    (of(begun), of(ended))
}

/// Measures how long the node takes to decode another node's frame with a message.
fn frames(rounds: usize) -> u64 {
    let message = Publish {
        subject: b"a.b.c",
        reply: None,
        headers: None,
        payload: &[b'x'; 128],
    };
    let routed = Routed {
        plain: true,
        groups: &[],
        asks: false,
        handed: false,
        passed: 0,
        to: None,
        message,
    };
    let mut out = Outbox::default();
    Frame::Message(routed).write(&mut out);
    let bytes = out.to_vec();
    median(rounds, N, || {
        timed(|| {
            for _ in 0..N {
                let _ = std::hint::black_box(read(std::hint::black_box(&bytes), FRAME_BYTES_MAX));
            }
        })
    })
}
