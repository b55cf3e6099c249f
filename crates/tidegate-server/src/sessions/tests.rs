//! Tests of the node's invariants with random clients, which send random operations that are cut at random
//! places.

use proptest::prelude::*;
use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::connect::Info;
use tidegate_nats::session::CloseReason;
use tidegate_nats::settings::SessionSettings;

use super::{Node, Received, spreading};
use crate::config::Settings;
use crate::party::ClientKey;

const ANY: Load = Load::new(u64::MAX, u64::MAX);

fn node() -> Node {
    let settings = Settings {
        sessions: SessionSettings {
            max_payload: 64,
            max_control_line: 64,
            max_subscriptions: 8,
            ..SessionSettings::default()
        },
        max_pending: 4096,
        ..Settings::default()
    };
    Node::new(settings, Info::default(), 1)
}

fn accept(node: &mut Node) -> ClientKey {
    node.handle_accepted(
        Time::from_nanos(1),
        ([127, 0, 0, 1], 1).into(),
        false,
        false,
    )
}

/// Draws whole operations that a client sends, some of them malformed.
fn operations() -> impl Strategy<Value = String> {
    let subject = || prop::sample::select(vec!["a", "b", "a.b", "a.*", ">", "a..b", "*.b"]);
    let one = prop_oneof![
        4 => (subject(), 0..70_usize).prop_map(|(s, n)| format!("PUB {s} {n}\r\n{}\r\n", "x".repeat(n))),
        2 => (subject(), subject(), 0..9_usize).prop_map(|(s, r, n)| format!("PUB {s} {r} {n}\r\n{}\r\n", "y".repeat(n))),
        3 => (subject(), 0..12_u8).prop_map(|(s, sid)| format!("SUB {s} {sid}\r\n")),
        2 => (subject(), 0..12_u8).prop_map(|(s, sid)| format!("SUB {s} q {sid}\r\n")),
        3 => (0..12_u8, 0..4_u8).prop_map(|(sid, n)| format!("UNSUB {sid} {n}\r\n")),
        1 => Just("PING\r\n".to_owned()),
        1 => Just("HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n".to_owned()),
        1 => any::<[bool; 4]>().prop_map(|[v, e, h, n]| {
            format!("CONNECT {{\"verbose\":{v},\"echo\":{e},\"headers\":{h},\"no_responders\":{}}}\r\n", h && n)
        }),
        1 => "[A-Z ]{0,9}\r\n",
    ];
    prop::collection::vec(one, 0..40).prop_map(|v| v.concat())
}

/// Returns the bytes that two clients receive if the first sends `text`, cut after every `piece` bytes.
fn talk(text: &[u8], piece: usize) -> [Vec<u8>; 2] {
    let mut node = node();
    let now = Time::from_nanos(1);
    let keys = [accept(&mut node), accept(&mut node)];
    node.handle_received(
        now,
        keys[1],
        b"CONNECT {\"verbose\":false}\r\nSUB > 1\r\nSUB a q 2\r\n",
        ANY,
    );
    let mut sent = [Vec::new(), Vec::new()];
    let mut held = Vec::new();
    for part in text.chunks(piece) {
        held.extend_from_slice(part);
        if node.contains(keys[0]) {
            loop {
                let used = node.handle_received(now, keys[0], &held, ANY).used;
                held.drain(..used);
                if !node.is_spreading() {
                    break;
                }
                node.handle_timeouts(now);
            }
        }
        node.check_invariants();
        while let Some(key) = node.poll_dirty() {
            let bytes = node.outbox(key).to_vec();
            node.handle_written(now, key, bytes.len());
            sent[usize::from(key == keys[1])].extend(bytes);
        }
    }
    sent
}

/// `no_header_support` refuses headers, also to a client that asks for them.
#[test]
fn without_header_support_a_message_with_headers_ends_the_session() {
    for supported in [true, false] {
        let settings = Settings {
            sessions: SessionSettings {
                headers: supported,
                ..SessionSettings::default()
            },
            ..Settings::default()
        };
        let mut node = Node::new(settings, Info::default(), 1);
        let key = accept(&mut node);
        let text =
            b"CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        let now = Time::from_nanos(1);
        node.handle_received(now, key, text, ANY);
        while let Some(key) = node.poll_dirty() {
            let bytes = node.outbox(key).to_vec().len();
            node.handle_written(now, key, bytes);
        }
        assert_eq!(node.contains(key), supported);
    }
}

/// A message with many receivers reaches them in parts. Meanwhile the node reads nothing from its publisher,
/// so each receiver gets the publisher's messages in order. A receiver that comes meanwhile gets only later
/// messages, also if it has the key of a receiver that left.
#[test]
fn a_message_reaches_many_receivers_in_parts() {
    let mut node = node();
    let now = Time::from_nanos(1);
    let publisher = accept(&mut node);
    let subscribe = b"CONNECT {\"verbose\":false}\r\nSUB a 1\r\n";
    let receiver = |node: &mut Node| {
        let key = accept(node);
        node.handle_received(now, key, subscribe, ANY);
        key
    };
    let receivers: Vec<ClientKey> = (0..12).map(|_| receiver(&mut node)).collect();
    let text = b"CONNECT {\"verbose\":false}\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\nPING\r\n";
    let mut used = node.handle_received(now, publisher, text, ANY).used;
    let reached = |node: &Node| {
        let reached = receivers
            .iter()
            .filter(|key| !node.outbox(**key).is_empty());
        reached.count()
    };
    assert!(node.is_spreading() && !node.reads(publisher) && used < text.len());
    assert_eq!(reached(&node), spreading::AT_ONCE);
    assert_eq!(node.deadline(), Some(Time::ZERO));
    // The last receiver leaves, and a new receiver gets its key, but no copy of the message.
    let last = receivers[11];
    node.handle_closed(now, last, CloseReason::ClientClosed);
    assert_eq!(node.poll_closed().map(|(key, _)| key), Some(last));
    assert_eq!(receiver(&mut node), last);
    node.check_invariants();
    while used < text.len() {
        node.handle_timeouts(now);
        node.check_invariants();
        used += node
            .handle_received(now, publisher, &text[used..], ANY)
            .used;
    }
    while node.is_spreading() {
        node.handle_timeouts(now);
    }
    for key in &receivers[..11] {
        assert_eq!(
            node.outbox(*key).to_vec(),
            b"MSG a 1 1\r\nx\r\nMSG a 1 1\r\ny\r\n"
        );
    }
    assert_eq!(node.outbox(last).to_vec(), b"MSG a 1 1\r\ny\r\n");
    assert_eq!(node.outbox(publisher).to_vec(), b"PONG\r\n");
    // No receiver is left, so the requester must get the status `no responders`.
    let asks = b"CONNECT {\"headers\":true,\"no_responders\":true,\"echo\":false}\r\n";
    node.handle_received(now, publisher, asks, ANY);
    node.handle_received(now, publisher, b"SUB r 9\r\n", ANY);
    for sid in 0..6 {
        let own = format!("SUB b {sid}\r\n");
        node.handle_received(now, publisher, own.as_bytes(), ANY);
    }
    node.handle_received(now, publisher, b"PUB b r 1\r\nz\r\n", ANY);
    while node.is_spreading() {
        node.handle_timeouts(now);
    }
    let heard = String::from_utf8(node.outbox(publisher).to_vec()).unwrap();
    assert!(
        heard.contains("HMSG r 9 ") && heard.contains("NATS/1.0 503"),
        "{heard}"
    );
}

/// Counts the bytes that the node copies at once: a long message reaches fewer receivers at a time than a
/// short one. Receivers share a payload that is longer still, so that message reaches as many as a short one.
#[test]
fn a_part_of_a_delivery_is_bounded_in_bytes_too() {
    let now = Time::from_nanos(1);
    for (len, first) in [
        (1, spreading::AT_ONCE),
        (super::fanout::BYTES_A_RECEIVER, 1),
        (3 * super::fanout::BYTES_A_RECEIVER, 1),
        (8 * super::fanout::BYTES_A_RECEIVER, spreading::AT_ONCE),
    ] {
        let mut node = Node::new(Settings::default(), Info::default(), 1);
        let publisher = accept(&mut node);
        let receivers: Vec<ClientKey> = (0..5).map(|_| accept(&mut node)).collect();
        for key in &receivers {
            let subscribe = b"CONNECT {\"verbose\":false}\r\nSUB a 1\r\n";
            node.handle_received(now, *key, subscribe, ANY);
        }
        let (head, payload) = (format!("PUB a {len}\r\n"), "x".repeat(len));
        let text = format!("CONNECT {{\"verbose\":false}}\r\n{head}{payload}\r\n");
        node.handle_received(now, publisher, text.as_bytes(), ANY);
        let reached = |node: &Node| {
            let reached = receivers.iter().filter(|k| !node.outbox(**k).is_empty());
            reached.count()
        };
        assert_eq!(reached(&node), first, "{len} bytes");
        while node.is_spreading() {
            node.handle_timeouts(now);
        }
        let expected = format!("MSG a 1 {len}\r\n{payload}\r\n");
        for key in &receivers {
            assert!(node.outbox(*key).to_vec() == expected.as_bytes());
        }
        node.check_invariants();
    }
}

/// A client with many subscriptions leaves while another one publishes to them: it gets nothing more, a queue
/// group's message goes to the member that stays, and no new connection gets its key.
#[test]
fn a_client_leaves_in_parts() {
    let mut node = node();
    let now = Time::from_nanos(1);
    let quiet = "CONNECT {\"verbose\":false}\r\n";
    let (leaves, stays) = (accept(&mut node), accept(&mut node));
    let subs: String = (0..8).map(|sid| format!("SUB a q {sid}\r\n")).collect();
    node.handle_received(now, leaves, (quiet.to_owned() + &subs).as_bytes(), ANY);
    node.handle_received(
        now,
        stays,
        (quiet.to_owned() + "SUB a q 1\r\n").as_bytes(),
        ANY,
    );
    node.handle_closed(now, leaves, CloseReason::ClientClosed);
    assert!(!node.contains(leaves) && node.len() == 1);
    assert_eq!(node.poll_closed().map(|(key, _)| key), Some(leaves));
    let mut turns = 0;
    while node.deadline() == Some(Time::ZERO) {
        node.handle_received(now, stays, b"PUB a 1\r\nx\r\n", ANY);
        assert_ne!(accept(&mut node), leaves);
        node.handle_timeouts(now);
        node.check_invariants();
        turns += 1;
    }
    assert_eq!(turns, 4);
    assert_eq!(node.outbox(stays).to_vec(), b"MSG a 1 1\r\nx\r\n".repeat(4));
    assert_eq!(node.sublist_stats().len, 1);
    assert_eq!(accept(&mut node), leaves);
}

proptest! {
    #[test]
    fn where_bytes_are_cut_changes_nothing(text in operations(), piece in 1..50_usize) {
        // Both outboxes stay within `max_pending`, so that the node closes no slow receiver in either run.
        let whole = talk(text.as_bytes(), 50);
        prop_assert_eq!(talk(text.as_bytes(), piece), whole);
    }

    /// Tests clients that connect, leave, and sometimes never read: the node must keep no trace of them.
    #[test]
    fn nothing_is_left_behind(acts in prop::collection::vec((0..4_usize, operations(), any::<bool>()), 0..12)) {
        let mut node = node();
        let mut keys = [None; 4];
        let mut now = Time::from_nanos(1);
        for (i, text, ends) in acts {
            now = now.after(5_000_000);
            node.handle_timeouts(now);
            let key = *keys[i].get_or_insert_with(|| accept(&mut node));
            if node.contains(key) {
                node.handle_received(now, key, text.as_bytes(), ANY);
            }
            if ends {
                node.handle_closed(now, key, CloseReason::ClientClosed);
            }
            node.check_invariants();
            // The first client never reads, and the other clients read everything.
            let dirty: Vec<ClientKey> = std::iter::from_fn(|| node.poll_dirty()).collect();
            for key in dirty {
                let len = if Some(key) == keys[0] { 0 } else { node.outbox(key).len() };
                node.handle_written(now, key, len);
            }
            while let Some((key, _)) = node.poll_closed() {
                keys.iter_mut().filter(|k| **k == Some(key)).for_each(|k| *k = None);
            }
            node.check_invariants();
        }
        for key in keys.into_iter().flatten() {
            node.handle_closed(now, key, CloseReason::ClientClosed);
        }
        for _ in 0..8 * 12 {
            node.handle_timeouts(now);
            node.check_invariants();
        }
        prop_assert!(node.is_empty());
        prop_assert_eq!(node.sublist_stats().len, 0);
        prop_assert_eq!(node.deadline(), None);
    }
}

/// Tests a client that sends requests and never reads the answers: the node must close its connection, as it
/// does with a slow receiver.
#[test]
fn replies_that_wait_are_bounded() {
    for request in ["PING\r\n", "CONNECT {\"verbose\":true}\r\n"] {
        let mut node = node();
        let now = Time::from_nanos(1);
        let key = accept(&mut node);
        let mut sent = 0;
        while node.contains(key) {
            sent += node.handle_received(now, key, request.as_bytes(), ANY).used;
            assert!(sent < 100_000, "the outbox of {request} has no bound");
        }
        assert_eq!(node.poll_closed(), Some((key, CloseReason::SlowPending)));
    }
}

/// Hands in all of `text` as the driver does, in as many steps as the node takes.
fn send(node: &mut Node, key: ClientKey, text: &str) {
    let (now, mut used) = (Time::from_nanos(1), 0);
    while used < text.len() {
        used += node
            .handle_received(now, key, &text.as_bytes()[used..], ANY)
            .used;
        node.handle_timeouts(now);
    }
}

/// Tests that look-ups that visit many patterns count towards a step, so that the driver looks at the clock
/// after a few of them.
#[test]
fn costly_look_ups_end_a_step() {
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    let (listener, publisher) = (accept(&mut node), accept(&mut node));
    let quiet = "CONNECT {\"verbose\":false}\r\n";
    let subscribe = |bits: u32| {
        let token = |at: u32| if bits >> at & 1 == 1 { "*." } else { "a." };
        let tokens: String = (0..10).map(token).collect();
        format!("SUB {tokens}x {bits}\r\n")
    };
    let subscribe: String = (0..1 << 10).map(subscribe).collect();
    send(&mut node, listener, &format!("{quiet}{subscribe}"));
    send(&mut node, publisher, quiet);
    let publish = |n: u32| format!("PUB {}y{n:03} 0\r\n\r\n", "a.".repeat(10));
    let text: String = (0..100).map(publish).collect();
    let received = node.handle_received(Time::from_nanos(1), publisher, text.as_bytes(), ANY);
    // Each look-up visits 2047 nodes of the trie.
    let expected = Received {
        used: 3 * text.len() / 100,
        full: true,
    };
    assert_eq!(received, expected);
}

/// Tests that a message to very many queue groups reaches them in parts, and each of them once.
#[test]
fn a_message_reaches_many_queue_groups_in_parts() {
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    let (listener, publisher) = (accept(&mut node), accept(&mut node));
    let quiet = "CONNECT {\"verbose\":false}\r\n";
    let groups = 1000;
    let subscribe: String = (0..groups)
        .map(|n| format!("SUB a g{n} {n:04}\r\n"))
        .collect();
    send(&mut node, listener, &format!("{quiet}{subscribe}"));
    send(&mut node, publisher, quiet);
    let message = "MSG a 0000 1\r\nx\r\n";
    let mut reached = 0;
    node.handle_received(Time::from_nanos(1), publisher, b"PUB a 1\r\nx\r\n", ANY);
    while node.is_spreading() {
        let now = node.outbox(listener).len() / message.len();
        assert!(
            now - reached <= 4 * spreading::AT_ONCE,
            "{now} after {reached}"
        );
        reached = now;
        node.handle_timeouts(Time::from_nanos(1));
    }
    let text = String::from_utf8(node.outbox(listener).to_vec()).unwrap();
    let mut messages: Vec<String> = text.split_inclusive("x\r\n").map(str::to_owned).collect();
    messages.sort_unstable();
    let expected: Vec<String> = (0..groups)
        .map(|n| format!("MSG a {n:04} 1\r\nx\r\n"))
        .collect();
    assert_eq!(messages, expected);
}
