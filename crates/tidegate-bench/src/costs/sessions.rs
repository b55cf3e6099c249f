//! Measures the works of the node without sockets for the simulation: operations, publishes, copies,
//! subscriptions, and frames of other nodes.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::wire::{FRAME_BYTES_MAX, Frame, Routed, read};
use tidegate_nats::connect::Info;
use tidegate_nats::outbox::Outbox;
use tidegate_nats::parse::Publish;
use tidegate_server::{ClientKey, Node, Settings, list_connections};

use super::{Table, median, timed};

/// The number of operations in a round, over which the bench takes the mean time.
const N: usize = 10_000;
/// The number of receivers of a message, to measure the cost of one copy.
const RECEIVERS: usize = 256;
/// The length of a message, in bytes, that each receiver gets as a copy of its own.
const LONG: usize = 8 * 1024;
/// The number of connections on a page of the list.
const PAGE: usize = 1024;
const ANY: Load = Load::new(u64::MAX, u64::MAX);
const NOW: Time = Time::from_nanos(1);

pub(super) fn measure(rounds: usize) -> Table {
    let operation = one(rounds, &"PING\r\n".repeat(N));
    let publish = one(rounds, &"PUB a.b.c 2\r\nxx\r\n".repeat(N));
    let (subscribe, unsubscribe) = subscriptions(rounds);
    let (list, look) = lists(rounds);
    vec![
        ("Operation", operation),
        ("Publish", publish.saturating_sub(operation)),
        ("Copy", copies(rounds, publish)),
        ("CopyByte", copied_bytes(rounds)),
        ("Subscribe", subscribe.saturating_sub(operation)),
        ("Unsubscribe", unsubscribe.saturating_sub(operation)),
        ("Frame", frames(rounds)),
        ("List", list),
        ("Look", look),
    ]
}

fn node() -> (Node, ClientKey) {
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    let key = accept(&mut node);
    (node, key)
}

/// Connects a further client to the node.
fn accept(node: &mut Node) -> ClientKey {
    let key = node.handle_accepted(NOW, ([127, 0, 0, 1], 1).into(), false, false);
    say(node, key, "CONNECT {\"verbose\":false}\r\n");
    key
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

/// Measures how long the node takes to copy a byte of a message into the outboxes of many clients.
fn copied_bytes(rounds: usize) -> u64 {
    let (mut node, key) = node();
    for _ in 0..RECEIVERS {
        let receiver = accept(&mut node);
        say(&mut node, receiver, "SUB a 1\r\n");
    }
    let mut message = |len: usize| {
        let text = format!("PUB a {len}\r\n{}\r\n", "x".repeat(len));
        median(rounds, 1, || {
            let took = say(&mut node, key, &text);
            took + timed(|| {
                while node.is_spreading() {
                    node.handle_timeouts(NOW);
                }
            })
        })
    };
    let (short, long) = (message(1), message(LONG));
    long.saturating_sub(short) / (RECEIVERS * LONG) as u64
}

/// Measures how long the node takes to list a connection, and to look at a connection that it does not list.
fn lists(rounds: usize) -> (u64, u64) {
    let (mut node, _) = node();
    let mut listed = |connections: usize| {
        while node.len() < connections {
            accept(&mut node);
        }
        median(rounds, 1, || {
            timed(|| {
                std::hint::black_box(list_connections(&node));
            })
        })
    };
    let (page, many) = (listed(PAGE), listed(4 * PAGE));
    let look = many.saturating_sub(page) / (3 * PAGE) as u64;
    ((page / PAGE as u64).saturating_sub(look), look)
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
