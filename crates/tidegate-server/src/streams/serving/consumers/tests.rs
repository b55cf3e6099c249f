//! Tests pulls that a client sends through several nodes and that wait while the client is away.

use serde_json::{Value, json};

use super::Consumers;
use crate::streams::directory::tests::World;

/// Creates nodes that have the stream `A` of one replica with a durable consumer `C`. Returns also a node
/// that does not keep the stream, through which clients pull.
fn world() -> (World, usize) {
    let mut w = World::of(3);
    w.create(0, "A", 1);
    let create =
        json!({"stream_name": "A", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    let made = w.ask(0, "CONSUMER.DURABLE.CREATE.A.C", &create);
    assert_eq!(made["name"], "C", "{made}");
    let away = (w.owner_of("A") + 1) % 3;
    (w, away)
}

fn pull(w: &mut World, node: usize, inbox: &str) {
    let body = r#"{"batch":5,"expires":60000000000}"#;
    let text = format!(
        "SUB {inbox}.* 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.A.C {inbox}.1 {}\r\n{body}\r\n",
        body.len()
    );
    w.say(node, &text);
    w.settle();
}

fn info(w: &mut World, node: usize) -> Value {
    w.ask(node, "CONSUMER.INFO.A.C", &Value::Null)
}

#[test]
fn a_pull_goes_on_at_another_node_when_a_client_listens_there() {
    for listens in ["box.*", "box.1", "box.>", ">"] {
        let (mut w, node) = world();
        let other = (node + 1) % 3;
        pull(&mut w, node, "box");
        assert_eq!(info(&mut w, node)["num_waiting"], 1);
        w.say(node, "UNSUB 7\r\n");
        assert_eq!(info(&mut w, other)["num_waiting"], 0);
        w.publish(node, "a.x", "r.p", "hello");
        w.settle();
        let now = info(&mut w, other);
        assert_eq!(
            (&now["num_pending"], &now["num_ack_pending"]),
            (&json!(1), &json!(0))
        );
        w.say(other, format!("SUB {listens} 8\r\n"));
        w.settle();
        let heard = w.heard(other);
        let reply = "$JS.ACK.A.C.1.1.1.";
        assert_eq!(heard.matches(reply).count(), 1, "{listens}: {heard}");
        assert!(!w.heard(node).contains(reply));
        let now = info(&mut w, node);
        assert_eq!(
            (&now["num_pending"], &now["num_ack_pending"]),
            (&json!(0), &json!(1))
        );
    }
}

#[test]
fn a_client_that_listens_again_in_the_same_turn_is_found() {
    let (mut w, node) = world();
    pull(&mut w, node, "box");
    // Each of these lines makes the consumer check whether a client listens for its pulls, and the node does
    // nothing else in between.
    w.say(
        node,
        "UNSUB 7\r\nPUB $JS.API.CONSUMER.INFO.A.C r.0.i 0\r\n\r\nSUB box.* 8\r\n",
    );
    w.publish(node, "a.x", "r.p", "hello");
    w.settle();
    let heard = w.heard(node);
    assert_eq!(heard.matches("$JS.ACK.A.C.1.1.1.").count(), 1, "{heard}");
}

#[test]
fn subscriptions_find_the_consumers_that_wait_for_them_and_no_others() {
    let mut all = Consumers::default();
    for (key, to) in [(1, "a.b"), (2, "a.c"), (3, "a.b.c"), (4, "ab"), (5, "b")] {
        all.away.insert((to.as_bytes().into(), key));
    }
    for (pattern, keys) in [
        ("a.b", &[1][..]),
        ("a.*", &[1, 2]),
        ("a.>", &[1, 2, 3]),
        ("a.*.c", &[3]),
        ("*.c", &[2]),
        ("*", &[4, 5]),
        (">", &[1, 2, 3, 4, 5]),
        ("a", &[]),
        ("c.*", &[]),
    ] {
        assert_eq!(all.awaiting(pattern.as_bytes()), keys, "{pattern}");
    }
}

/// Counts the messages that many consumers deliver in each turn: together they deliver no more than a turn's
/// share, they take turns, and each message arrives once.
#[test]
fn many_consumers_share_the_deliveries_of_a_turn() {
    const CONSUMERS: usize = 12;
    const MESSAGES: usize = 30;
    let mut w = World::of(3);
    w.create(0, "A", 1);
    let owner = w.owner_of("A");
    for n in 0..MESSAGES {
        w.publish(owner, &format!("a.{n}"), "r.p", "x");
    }
    w.settle();
    w.heard(owner);
    for n in 0..CONSUMERS {
        let create = json!({"stream_name": "A",
            "config": {"durable_name": format!("D{n}"), "ack_policy": "none"}});
        let made = w.ask(owner, &format!("CONSUMER.DURABLE.CREATE.A.D{n}"), &create);
        assert_eq!(made["num_pending"], MESSAGES, "{made}");
    }
    let body = r#"{"batch":30,"no_wait":true}"#;
    for n in 0..CONSUMERS {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.A.D{n}");
        w.publish(owner, &subject, &format!("r.d{n}"), body);
    }
    let mut counts = [0; CONSUMERS];
    let mut turns = 0;
    while counts.iter().sum::<usize>() < CONSUMERS * MESSAGES {
        w.turn();
        turns += 1;
        assert!(turns < 100, "{counts:?}");
        let heard = w.heard(owner);
        let mut of_turn = 0;
        for (n, count) in counts.iter_mut().enumerate() {
            let delivered = heard.matches(&format!("$JS.ACK.A.D{n}.")).count();
            (*count, of_turn) = (*count + delivered, of_turn + delivered);
        }
        assert!(of_turn <= super::STEPS_A_TURN, "{of_turn} in a turn");
    }
    assert_eq!(counts, [MESSAGES; CONSUMERS]);
    // 360 messages and the consumers themselves need that many shares at least.
    assert!(turns > CONSUMERS * MESSAGES / super::STEPS_A_TURN);
    w.settle();
    assert_eq!(w.heard(owner).matches("$JS.ACK").count(), 0);
}
