//! Tests a source that reads a work queue by a consumer, in virtual time, while leaders change and messages
//! between leaders get lost.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_cluster::groups::ALL;

use crate::streams::directory::tests::World;

fn made(w: &mut World, what: &str, body: &Value) {
    let answer = w.ask(1, what, body);
    assert!(answer.get("error").is_none(), "{answer}");
}

/// Creates three nodes with the work queue Q, its consumer C, and the stream F, which takes in the messages
/// of C and has this number of replicas.
fn world(replicas: u64) -> World {
    let mut w = World::of(3);
    let queue =
        json!({"name": "Q", "subjects": ["q"], "retention": "workqueue", "num_replicas": 3});
    made(&mut w, "STREAM.CREATE.Q", &queue);
    let config = json!({"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d",
        "max_ack_pending": 5});
    let body = json!({"stream_name": "Q", "config": config});
    made(&mut w, "CONSUMER.CREATE.Q.C", &body);
    let by = json!({"name": "Q", "consumer": {"name": "C", "deliver_subject": "d"}});
    let sourced = json!({"name": "F", "sources": [by], "num_replicas": replicas});
    made(&mut w, "STREAM.CREATE.F", &sourced);
    w
}

/// Makes another node the leader of the group of all nodes.
fn kill(w: &mut World, next: usize) {
    w.follow(ALL);
    w.turn();
    w.lead(ALL, next);
}

fn publish(w: &mut World, count: usize) {
    for _ in 0..count {
        w.publish(1, "q", "r.p", "x");
    }
}

/// Lets two seconds pass, and drops the answers to publishes.
fn pass(w: &mut World) {
    w.settle();
    w.settle();
    drop(w.heard(1));
}

fn state(w: &mut World, name: &str) -> Value {
    w.ask(1, &format!("STREAM.INFO.{name}"), &Value::Null)["state"].clone()
}

/// Checks that F has each message of Q once and in order, and that Q has removed them.
fn check(w: &mut World) {
    w.lost = 0;
    pass(w);
    let stored = state(w, "Q")["last_seq"].as_u64().unwrap();
    for _ in 0..40 {
        if state(w, "F")["messages"] == stored && state(w, "Q")["messages"] == 0 {
            break;
        }
        w.settle();
    }
    let (queue, sourced) = (state(w, "Q"), state(w, "F"));
    assert_eq!(sourced["last_seq"], stored, "{sourced} {queue}");
    assert_eq!(
        (&sourced["messages"], &queue["messages"]),
        (&json!(stored), &json!(0))
    );
    for seq in 1..=stored {
        let message = w.ask(1, "STREAM.MSG.GET.F", &json!({ "seq": seq }))["message"].clone();
        let headers = STANDARD.decode(message["hdrs"].as_str().unwrap()).unwrap();
        let headers = String::from_utf8(headers).unwrap();
        let source = format!("Nats-Stream-Source: Q:C=C {seq} > > q\r\n");
        assert!(headers.contains(&source), "{seq}: {headers}");
    }
    let info = w.ask(1, "CONSUMER.INFO.Q.C", &Value::Null);
    assert_eq!(
        (&info["num_pending"], &info["num_ack_pending"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(info["push_bound"], true, "{info}");
}

#[test]
fn each_message_comes_once_however_leaders_change() {
    for replicas in [1, 3] {
        for turns in [0, 1, 2, 3, 5, 20, 60] {
            let mut w = world(replicas);
            for next in [1, 2, 0, 2, 1] {
                publish(&mut w, 6);
                for _ in 0..turns {
                    w.turn();
                }
                kill(&mut w, next);
            }
            check(&mut w);
        }
    }
}

#[test]
fn each_message_comes_once_though_messages_between_leaders_get_lost() {
    for lost in [10, 40] {
        let mut w = world(1);
        w.lost = lost;
        for next in [1, 2, 0] {
            publish(&mut w, 20);
            w.settle();
            kill(&mut w, next);
            w.settle();
        }
        check(&mut w);
    }
}

#[test]
fn a_reset_neither_repeats_nor_loses_messages() {
    for (seq, taken) in [(1, 8), (7, 6), (20, 4)] {
        let mut w = world(3);
        publish(&mut w, 4);
        pass(&mut w);
        let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
        made(&mut w, "CONSUMER.PAUSE.Q.C", &until);
        publish(&mut w, 4);
        pass(&mut w);
        assert_eq!(state(&mut w, "F")["messages"], 4);
        made(&mut w, "CONSUMER.RESET.Q.C", &json!({ "seq": seq }));
        made(&mut w, "CONSUMER.PAUSE.Q.C", &Value::Null);
        pass(&mut w);
        assert_eq!(state(&mut w, "F")["messages"], taken, "reset to {seq}");
    }
}

#[test]
fn a_consumer_feeds_one_stream() {
    let mut w = world(3);
    let by = json!({"name": "Q", "consumer": {"name": "C", "deliver_subject": "d"}});
    made(
        &mut w,
        "STREAM.CREATE.G",
        &json!({"name": "G", "sources": [by], "num_replicas": 3}),
    );
    publish(&mut w, 3);
    pass(&mut w);
    let info = w.ask(1, "STREAM.INFO.G", &Value::Null);
    assert_eq!(info["sources"][0]["error"]["err_code"], 10045, "{info}");
    assert_eq!(state(&mut w, "F")["messages"], 3);
    // Once F does not take in messages any more, G does.
    made(&mut w, "STREAM.DELETE.F", &Value::Null);
    for _ in 0..16 {
        w.settle();
    }
    publish(&mut w, 2);
    pass(&mut w);
    assert_eq!(state(&mut w, "G")["messages"], 2);
}
