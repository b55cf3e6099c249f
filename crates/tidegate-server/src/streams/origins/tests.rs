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

#[test]
fn a_consumer_keeps_its_stream_however_leaders_change() {
    for replicas in [1, 3] {
        let mut w = world(replicas);
        let by = json!({"name": "Q", "consumer": {"name": "C", "deliver_subject": "d"}});
        made(
            &mut w,
            "STREAM.CREATE.G",
            &json!({"name": "G", "sources": [by], "num_replicas": 3}),
        );
        for next in [1, 2, 0, 2, 1] {
            publish(&mut w, 6);
            for _ in 0..5 {
                w.turn();
            }
            kill(&mut w, next);
        }
        check(&mut w);
        assert_eq!(state(&mut w, "G")["messages"], 0);
    }
}

#[test]
fn a_consumer_that_is_deleted_and_made_again_goes_on() {
    let mut w = world(3);
    publish(&mut w, 4);
    pass(&mut w);
    made(&mut w, "CONSUMER.DELETE.Q.C", &Value::Null);
    publish(&mut w, 4);
    pass(&mut w);
    let info = w.ask(1, "STREAM.INFO.F", &Value::Null);
    assert_eq!(info["sources"][0]["error"]["err_code"], 10014, "{info}");
    assert_eq!(info["state"]["messages"], 4, "{info}");
    kill(&mut w, 1);
    let config = json!({"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d"});
    let body = json!({"stream_name": "Q", "config": config});
    made(&mut w, "CONSUMER.CREATE.Q.C", &body);
    publish(&mut w, 4);
    check(&mut w);
}

#[test]
fn a_mirror_of_an_origin_without_a_leader_says_so() {
    let mut w = World::of(3);
    let origin = json!({"name": "O", "subjects": ["o"], "num_replicas": 1});
    made(&mut w, "STREAM.CREATE.O", &origin);
    let mirror = json!({"name": "M", "mirror": {"name": "O"}, "num_replicas": 3});
    made(&mut w, "STREAM.CREATE.M", &mirror);
    pass(&mut w);
    let (group, owner) = (w.group_of("O"), w.owner_of("O"));
    w.follow(group);
    for _ in 0..4 {
        w.settle();
    }
    let info = w.ask(1, "STREAM.INFO.M", &Value::Null);
    let error = info["mirror"]["error"]["description"].as_str();
    let says = error.is_some_and(|e| e.contains("no node leads") || e.contains("not answered"));
    assert!(says, "{info}");
    // The monitor warns once that has lasted.
    for _ in 0..10 {
        w.settle();
    }
    let stuck = |w: &World| {
        let all = w.nodes.iter().flat_map(|node| node.all_streams());
        let stuck = all.map(|streams| streams.stuck_origins(w.now));
        stuck.filter_map(|(_, text)| text).collect::<Vec<_>>()
    };
    let found = stuck(&w);
    assert!(
        found.len() == 1 && found[0].starts_with("stream M takes in nothing from O: "),
        "{found:?}"
    );
    w.lead(group, owner);
    for _ in 0..9 {
        w.settle();
    }
    let info = w.ask(1, "STREAM.INFO.M", &Value::Null);
    assert!(info["mirror"].get("error").is_none(), "{info}");
    assert!(stuck(&w).is_empty());
}

#[test]
fn each_message_comes_once_though_both_streams_move() {
    for turns in [0, 3, 20] {
        let mut w = world(1);
        let by = json!({"name": "Q", "consumer": {"name": "C", "deliver_subject": "d"}});
        let config = |name: &str, replicas: u64| match name {
            "Q" => json!({"name": "Q", "subjects": ["q"], "retention": "workqueue",
                "num_replicas": replicas}),
            _ => json!({"name": "F", "sources": [by], "num_replicas": replicas}),
        };
        for (name, replicas, next) in [("F", 3, 1), ("Q", 1, 2), ("F", 1, 0), ("Q", 3, 1)] {
            publish(&mut w, 6);
            for _ in 0..turns {
                w.turn();
            }
            let update = format!("STREAM.UPDATE.{name}");
            // The answers to publishes come along with the answer to the request.
            let answers = w.answers(1, &update, &config(name, replicas));
            let mut changed = answers.iter().filter(|answer| !answer["config"].is_null());
            assert!(changed.next().is_some(), "{answers:?}");
            publish(&mut w, 6);
            kill(&mut w, next);
            for _ in 0..8 {
                w.settle();
            }
            drop(w.heard(1));
        }
        check(&mut w);
    }
}
