//! Tests consumers that the leader proposes only once they have lasted, while the test kills leaders.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_cluster::groups::ALL;

use crate::streams::directory::tests::World;

/// Makes a request for a consumer that pushes to the client at node 2, as clients of ordered consumers send
/// it.
fn watched(of: &Value) -> Value {
    let mut config = json!({
        "name": "W", "deliver_subject": "r.2.messages", "ack_policy": "none", "mem_storage": true,
        "max_deliver": 1, "flow_control": true, "idle_heartbeat": 30_000_000_000_u64, "inactive_threshold": 300_000_000_000_u64,
    });
    for (key, value) in of.as_object().unwrap() {
        config[key] = value.clone();
    }
    json!({"stream_name": "S", "config": config})
}

/// Creates three nodes that all keep the stream S with one message in it.
fn world() -> World {
    let mut w = World::of(3);
    w.create(1, "S", 3);
    publish(&mut w, "one");
    w
}

/// Creates a world with a consumer that has lasted long enough for the leader to propose it.
fn lasting(of: &Value) -> World {
    let mut w = world();
    let made = w.answers(2, "CONSUMER.CREATE.S.W", &watched(of));
    assert!(made[0].get("error").is_none(), "{made:?}");
    w
}

fn publish(w: &mut World, text: &str) {
    w.publish(1, "s.S", "r.p", text);
    w.settle();
    drop(w.heard(1));
}

/// Takes the messages that were pushed to the client at node 2 since the last call: the number that the
/// consumer gave each message, and the message's sequence in the stream.
fn pushed(w: &mut World) -> Vec<(u64, u64)> {
    let heard = w.heard(2);
    let replies = heard.split([' ', '\r']);
    let numbers = replies.filter(|word| word.starts_with("$JS.ACK.S.W."));
    let numbers = numbers.map(|reply| {
        let tokens: Vec<&str> = reply.split('.').collect();
        (tokens[6].parse().unwrap(), tokens[5].parse().unwrap())
    });
    numbers.collect()
}

/// Kills the leader, so that another node leads and goes on with the log.
fn kill(w: &mut World, next: usize) {
    w.follow(ALL);
    w.settle();
    w.lead(ALL, next);
    w.settle();
}

fn consumers(w: &mut World) -> usize {
    let list = w.ask(1, "CONSUMER.LIST.S", &Value::Null);
    list["consumers"].as_array().unwrap().len()
}

#[test]
fn a_consumer_that_had_messages_gets_others_than_it_expects() {
    let mut w = lasting(&json!({}));
    publish(&mut w, "two");
    drop(w.heard(2));
    for next in [1, 2, 1] {
        kill(&mut w, next);
        // The client expects message 3 next, so it sees from these numbers that the consumer has started
        // again.
        assert_eq!(pushed(&mut w), [(1, 1), (2, 2)]);
        assert_eq!(consumers(&mut w), 1);
    }
}

#[test]
fn a_consumer_that_had_no_messages_goes_on_and_misses_none() {
    let mut w = lasting(&json!({"deliver_policy": "new"}));
    assert_eq!(pushed(&mut w), []);
    // The stream stores the message, and the leader goes before the consumer delivers it.
    w.say(2, "UNSUB 1\r\n");
    publish(&mut w, "two");
    kill(&mut w, 1);
    w.say(2, "SUB r.2.* 2\r\n");
    w.settle();
    publish(&mut w, "three");
    assert_eq!(pushed(&mut w), [(1, 2), (2, 3)]);
}

#[test]
fn the_last_of_each_subject_are_those_up_to_its_beginning() {
    let policy = json!({"deliver_policy": "last_per_subject", "filter_subject": "s.>"});
    let mut w = lasting(&policy);
    w.publish(1, "s.other", "r.p", "two");
    w.settle();
    drop(w.heard(2));
    kill(&mut w, 1);
    assert_eq!(pushed(&mut w), [(1, 1), (2, 2)]);
    // The next leader starts the consumer at the second message, because the first message is no longer the
    // last of its subject.
    publish(&mut w, "three");
    drop(w.heard(2));
    kill(&mut w, 2);
    assert_eq!(pushed(&mut w), [(1, 2), (2, 3)]);
}

#[test]
fn deleted_it_is_gone_however_far_the_log_is_with_it() {
    let commands = |w: &World| w.nodes[0].directory().unwrap().stats().commands;
    let mut told = Vec::new();
    // The test kills the leader before it has proposed the consumer, before the group has applied the
    // proposal, and after that.
    for turns in [0, 4, 5, 6, 7, 20] {
        let mut w = world();
        let before = commands(&w);
        let body = watched(&json!({})).to_string();
        w.publish(2, "$JS.API.CONSUMER.CREATE.S.W", "r.a", &body);
        for _ in 0..turns {
            w.now = w.now + Duration::from_millis(50);
            w.turn();
        }
        drop(w.heard(2));
        w.publish(2, "$JS.API.CONSUMER.DELETE.S.W", "r.b", "");
        w.settle();
        let heard = w.heard(2);
        assert!(heard.contains("\"success\":true"), "{turns}: {heard}");
        told.push(commands(&w) - before);
        assert_eq!(consumers(&mut w), 0, "{turns}");
        kill(&mut w, 1);
        assert_eq!(consumers(&mut w), 0, "{turns}");
        assert_eq!(pushed(&mut w), [], "{turns}");
    }
    // The leader does not propose a consumer that does not last, so the consumer costs the log nothing.
    assert_eq!((told[0], told[5]), (0, 2), "{told:?}");
}

#[test]
fn watchers_hear_once_of_a_creation() {
    let mut w = world();
    w.say(1, "SUB $JS.EVENT.ADVISORY.CONSUMER.> 7\r\n");
    w.settle();
    w.answers(2, "CONSUMER.CREATE.S.W", &watched(&json!({})));
    w.settle();
    let heard = w.heard(1);
    assert_eq!(heard.matches("\"action\":\"create\"").count(), 1, "{heard}");
}

#[test]
fn a_consumer_without_visible_numbers_ends_with_the_lead() {
    for other in [json!({"flow_control": false}), json!({"max_deliver": -1})] {
        let mut w = lasting(&other);
        let before = consumers(&mut w);
        kill(&mut w, 1);
        assert_eq!((before, consumers(&mut w)), (1, 0), "{other}");
    }
}
