//! Tests of streams that keep messages for their consumers, with a client over plain sockets: the rules of
//! work queues, the messages that consumers settle, and messages that lose their last consumer.

use std::time::Instant;

use serde_json::{Value, json};

use super::raw::{PATIENCE, Raw, Received};
use super::server::{Server, other};

/// Sends a request, and returns the number of its error, or 0.
fn ask(raw: &mut Raw, subject: &str, body: &Value) -> u64 {
    let answer = raw.api(subject, body);
    let error = answer["error"]["err_code"].as_u64().unwrap_or(0);
    assert!(error > 0 || answer.get("error").is_none(), "{answer}");
    error
}

fn stream(raw: &mut Raw, verb: &str, config: Value) -> u64 {
    let name = config["name"].as_str().unwrap().to_owned();
    ask(raw, &format!("STREAM.{verb}.{name}"), &config)
}

/// Creates or changes a durable consumer with explicit acknowledgements.
fn consumer(raw: &mut Raw, stream: &str, name: &str, more: Value) -> u64 {
    let mut config = json!({"durable_name": name, "ack_policy": "explicit"});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let body = json!({"stream_name": stream, "config": config});
    ask(raw, &format!("CONSUMER.CREATE.{stream}.{name}"), &body)
}

fn delete(raw: &mut Raw, stream: &str, name: &str) {
    let subject = format!("CONSUMER.DELETE.{stream}.{name}");
    assert_eq!(ask(raw, &subject, &json!({})), 0);
}

/// Publishes to each of these subjects, and returns the message numbers, or the negative numbers of errors.
fn publish(raw: &mut Raw, subjects: &[&str]) -> Vec<i64> {
    let mut numbers = Vec::new();
    for subject in subjects {
        raw.publish(subject, "ack", b"x").unwrap();
        let answer = raw.message().unwrap().json();
        let refused = answer["error"]["err_code"].as_i64().map(|code| -code);
        numbers.push(refused.unwrap_or_else(|| answer["seq"].as_i64().unwrap()));
    }
    numbers
}

fn pull(raw: &mut Raw, stream: &str, name: &str, count: u64) -> Vec<Received> {
    let body = json!({"batch": count, "expires": 20_000_000_000_u64}).to_string();
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
    raw.publish(&next, "pull", body.as_bytes()).unwrap();
    (0..count).map(|_| raw.message().unwrap()).collect()
}

fn number(message: &Received) -> u64 {
    let reply = message.reply.as_deref().unwrap();
    reply.split('.').nth(5).unwrap().parse().unwrap()
}

fn numbers(messages: &[Received]) -> Vec<u64> {
    messages.iter().map(number).collect()
}

/// Acknowledges with `verb`, and waits for the answer, so that the acknowledgement is durable.
fn settle(raw: &mut Raw, message: &Received, verb: &[u8]) {
    let to = message.reply.clone().unwrap();
    raw.publish(&to, "settled", verb).unwrap();
    assert!(raw.message().unwrap().subject.ends_with("settled"));
}

/// Returns the count of messages, the first number and the last number of a stream.
fn state(raw: &mut Raw, stream: &str) -> [u64; 3] {
    let info = raw.api(&format!("STREAM.INFO.{stream}"), &json!({}));
    let state = &info["state"];
    ["messages", "first_seq", "last_seq"].map(|field| state[field].as_u64().expect(field))
}

/// Waits until the stream has this state, because nats-server removes messages a little after its answer.
fn comes_to(raw: &mut Raw, stream: &str, expected: [u64; 3]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = state(raw, stream);
        if now == expected {
            return;
        }
        assert!(
            Instant::now() < until,
            "{stream} has {now:?}, expected {expected:?}"
        );
    }
}

fn queue(name: &str, more: Value) -> Value {
    let mut config =
        json!({"name": name, "subjects": [format!("{name}.>")], "retention": "workqueue"});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    config
}

#[test]
fn each_message_of_a_work_queue_has_one_consumer() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(stream(&mut raw, "CREATE", queue("Q", json!({}))), 0);
    let info = raw.api("STREAM.INFO.Q", &json!({}));
    assert_eq!(info["config"]["retention"], "workqueue");
    for (code, config) in [
        (10084, json!({"ack_policy": "none"})),
        (
            10098,
            json!({"ack_policy": "none", "deliver_subject": "to"}),
        ),
        (10098, json!({"ack_policy": "all"})),
        (10101, json!({"deliver_policy": "new"})),
        (
            10101,
            json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 1}),
        ),
    ] {
        assert_eq!(
            consumer(&mut raw, "Q", "C", config.clone()),
            code,
            "{config}"
        );
    }
    assert_eq!(consumer(&mut raw, "Q", "C", json!({})), 0);
    assert_eq!(consumer(&mut raw, "Q", "C", json!({})), 0);
    assert_eq!(consumer(&mut raw, "Q", "D", json!({})), 10099);
    let a = json!({"filter_subject": "Q.a"});
    assert_eq!(consumer(&mut raw, "Q", "D", a.clone()), 10100);
    assert_eq!(consumer(&mut raw, "Q", "C", a.clone()), 0);
    assert_eq!(consumer(&mut raw, "Q", "D", json!({})), 10099);
    for overlapping in [
        json!({"filter_subject": "Q.*"}),
        json!({"filter_subject": "Q.>"}),
        a,
        json!({"filter_subjects": ["Q.b", "Q.a"]}),
    ] {
        assert_eq!(
            consumer(&mut raw, "Q", "D", overlapping.clone()),
            10100,
            "{overlapping}"
        );
    }
    let rest = json!({"filter_subjects": ["Q.b", "Q.c"]});
    assert_eq!(consumer(&mut raw, "Q", "D", rest), 0);
    let both = json!({"filter_subjects": ["Q.b", "Q.a"]});
    assert_eq!(consumer(&mut raw, "Q", "D", both), 10100);
    // Tidegate refuses an update that would give two consumers the same messages.
    if other().is_none() {
        assert_eq!(consumer(&mut raw, "Q", "D", json!({})), 10099);
    }
    for retention in ["limits", "interest"] {
        let changed = queue("Q", json!({"retention": retention}));
        assert_eq!(stream(&mut raw, "UPDATE", changed), 10052);
    }
}

#[test]
fn two_creations_at_once_do_not_share_messages() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(stream(&mut raw, "CREATE", queue("Q", json!({}))), 0);
    let names = ["A", "B", "C", "D"];
    for name in names {
        let config =
            json!({"durable_name": name, "ack_policy": "explicit", "filter_subject": "Q.a"});
        let body = json!({"stream_name": "Q", "config": config}).to_string();
        let subject = format!("$JS.API.CONSUMER.CREATE.Q.{name}");
        raw.publish(&subject, "made", body.as_bytes()).unwrap();
    }
    let answers = names.map(|_| raw.message().unwrap().json());
    let codes = answers.iter().map(|a| a["error"]["err_code"].as_u64());
    let refused: Vec<u64> = codes.flatten().collect();
    assert_eq!(refused, [10100; 3], "{answers:?}");
}

#[test]
fn a_work_queue_keeps_a_message_until_it_is_settled() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(stream(&mut raw, "CREATE", queue("Q", json!({}))), 0);
    let subjects = ["Q.a", "Q.b", "Q.a", "Q.a", "Q.a"];
    assert_eq!(publish(&mut raw, &subjects), [1, 2, 3, 4, 5]);
    let a = json!({"filter_subject": "Q.a", "max_deliver": 1, "ack_wait": 200_000_000});
    assert_eq!(consumer(&mut raw, "Q", "A", a), 0);
    let taken = pull(&mut raw, "Q", "A", 4);
    assert_eq!(numbers(&taken), [1, 3, 4, 5]);
    settle(&mut raw, &taken[1], b"+ACK");
    settle(&mut raw, &taken[0], b"+TERM");
    comes_to(&mut raw, "Q", [3, 2, 5]);
    // A message must stay after its last delivery, and a late acknowledgement must remove it.
    let until = Instant::now() + PATIENCE;
    loop {
        let info = raw.api("CONSUMER.INFO.Q.A", &json!({}));
        if info["num_ack_pending"] == 0 {
            break;
        }
        let waits = Instant::now() < until;
        assert!(waits, "the consumer does not give up: {info}");
    }
    assert_eq!(state(&mut raw, "Q"), [3, 2, 5]);
    settle(&mut raw, &taken[2], b"+ACK");
    comes_to(&mut raw, "Q", [2, 2, 5]);
    // A deleted consumer must leave its messages to the next consumer.
    delete(&mut raw, "Q", "A");
    assert_eq!(state(&mut raw, "Q"), [2, 2, 5]);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(state(&mut raw, "Q"), [2, 2, 5]);
    assert_eq!(consumer(&mut raw, "Q", "B", json!({})), 0);
    let taken = pull(&mut raw, "Q", "B", 2);
    assert_eq!(numbers(&taken), [2, 5]);
    settle(&mut raw, &taken[0], b"+ACK");
    // After a crash the stream must know each answered acknowledgement, and keep the messages without one.
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    comes_to(&mut raw, "Q", [1, 5, 5]);
    assert_eq!(publish(&mut raw, &["Q.z"]), [6]);
    let body = json!({"seq": 2});
    assert_eq!(ask(&mut raw, "STREAM.MSG.GET.Q", &body), 10037);
    drop(server);
}

#[test]
fn a_full_queue_takes_messages_again_once_some_are_settled() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let full = json!({"max_msgs": 2, "discard": "new"});
    assert_eq!(stream(&mut raw, "CREATE", queue("Q", full.clone())), 0);
    assert_eq!(publish(&mut raw, &["Q.a", "Q.b", "Q.c"]), [1, 2, -10077]);
    let mut changed = queue("Q", full);
    changed["retention"] = json!("interest");
    assert_eq!(stream(&mut raw, "UPDATE", changed), 10052);
    assert_eq!(
        consumer(&mut raw, "Q", "A", json!({"filter_subject": "Q.a"})),
        0
    );
    let taken = pull(&mut raw, "Q", "A", 1);
    settle(&mut raw, &taken[0], b"+ACK");
    comes_to(&mut raw, "Q", [1, 2, 2]);
    assert_eq!(publish(&mut raw, &["Q.c", "Q.d"]), [3, -10077]);
    delete(&mut raw, "Q", "A");
    assert_eq!(state(&mut raw, "Q"), [2, 2, 3]);
    let other = json!({"name": "I", "subjects": ["I.>"], "retention": "interest", "max_msgs": 2, "discard": "new"});
    assert_eq!(stream(&mut raw, "CREATE", other.clone()), 0);
    // The stream keeps no message without a consumer, so it is never full.
    assert_eq!(publish(&mut raw, &["I.a", "I.a", "I.a"]), [1, 2, 3]);
    assert_eq!(consumer(&mut raw, "I", "A", json!({})), 0);
    assert_eq!(publish(&mut raw, &["I.a", "I.a", "I.a"]), [4, 5, -10077]);
    assert_eq!(consumer(&mut raw, "I", "B", json!({})), 0);
    delete(&mut raw, "I", "A");
    comes_to(&mut raw, "I", [2, 4, 5]);
    delete(&mut raw, "I", "B");
    comes_to(&mut raw, "I", [0, 6, 5]);
    let mut limits = other;
    limits["retention"] = json!("limits");
    assert_eq!(stream(&mut raw, "UPDATE", limits), 0);
}

#[test]
fn a_stream_by_interest_keeps_what_consumers_need() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let config = json!({"name": "I", "subjects": ["I.>"], "retention": "interest"});
    assert_eq!(stream(&mut raw, "CREATE", config.clone()), 0);
    assert_eq!(publish(&mut raw, &["I.a", "I.b"]), [1, 2]);
    assert_eq!(state(&mut raw, "I"), [0, 3, 2]);
    assert_eq!(
        consumer(&mut raw, "I", "A", json!({"filter_subject": "I.a"})),
        0
    );
    assert_eq!(consumer(&mut raw, "I", "ALL", json!({})), 0);
    assert_eq!(publish(&mut raw, &["I.a", "I.b", "I.c"]), [3, 4, 5]);
    let all = pull(&mut raw, "I", "ALL", 3);
    let a = pull(&mut raw, "I", "A", 1);
    assert_eq!((numbers(&all), numbers(&a)), (vec![3, 4, 5], vec![3]));
    settle(&mut raw, &all[0], b"+ACK");
    assert_eq!(state(&mut raw, "I"), [3, 3, 5]);
    settle(&mut raw, &a[0], b"+ACK");
    comes_to(&mut raw, "I", [2, 4, 5]);
    // The stream must remove a message that only the consumer's former filter matched.
    assert_eq!(
        consumer(&mut raw, "I", "A", json!({"filter_subject": "I.b"})),
        0
    );
    assert_eq!(publish(&mut raw, &["I.a", "I.b"]), [6, 7]);
    settle(&mut raw, &all[2], b"+ACK");
    comes_to(&mut raw, "I", [3, 4, 7]);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    comes_to(&mut raw, "I", [3, 4, 7]);
    delete(&mut raw, "I", "ALL");
    comes_to(&mut raw, "I", [2, 4, 7]);
    let taken = pull(&mut raw, "I", "A", 2);
    assert_eq!(numbers(&taken), [4, 7]);
    // A consumer without acknowledgements must settle each message that it delivers.
    let none = json!({"ack_policy": "none", "deliver_policy": "new"});
    assert_eq!(consumer(&mut raw, "I", "NONE", none), 0);
    assert_eq!(publish(&mut raw, &["I.c"]), [8]);
    settle(&mut raw, &taken[0], b"+ACK");
    settle(&mut raw, &taken[1], b"+ACK");
    comes_to(&mut raw, "I", [1, 8, 8]);
    assert_eq!(numbers(&pull(&mut raw, "I", "NONE", 1)), [8]);
    comes_to(&mut raw, "I", [0, 9, 8]);
    // A reset must count earlier messages as acknowledged.
    assert_eq!(publish(&mut raw, &["I.b", "I.b", "I.c"]), [9, 10, 11]);
    delete(&mut raw, "I", "NONE");
    comes_to(&mut raw, "I", [2, 9, 11]);
    assert_eq!(ask(&mut raw, "CONSUMER.RESET.I.A", &json!({"seq": 10})), 0);
    comes_to(&mut raw, "I", [1, 10, 11]);
    delete(&mut raw, "I", "A");
    comes_to(&mut raw, "I", [0, 12, 11]);
    drop(server);
}

#[test]
fn the_retention_of_a_stream_changes() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let with = |retention: &str| json!({"name": "L", "subjects": ["L.>"], "retention": retention});
    assert_eq!(stream(&mut raw, "CREATE", with("limits")), 0);
    assert_eq!(publish(&mut raw, &["L.a", "L.a", "L.b"]), [1, 2, 3]);
    assert_eq!(stream(&mut raw, "UPDATE", with("workqueue")), 10052);
    assert_eq!(stream(&mut raw, "UPDATE", with("interest")), 0);
    comes_to(&mut raw, "L", [0, 4, 3]);
    assert_eq!(stream(&mut raw, "UPDATE", with("limits")), 0);
    assert_eq!(publish(&mut raw, &["L.a", "L.a", "L.a"]), [4, 5, 6]);
    assert_eq!(consumer(&mut raw, "L", "A", json!({})), 0);
    let taken = pull(&mut raw, "L", "A", 3);
    settle(&mut raw, &taken[0], b"+ACK");
    settle(&mut raw, &taken[2], b"+ACK");
    assert_eq!(state(&mut raw, "L"), [3, 4, 6]);
    assert_eq!(stream(&mut raw, "UPDATE", with("interest")), 0);
    comes_to(&mut raw, "L", [1, 5, 6]);
    settle(&mut raw, &taken[1], b"+ACK");
    comes_to(&mut raw, "L", [0, 7, 6]);
}

#[test]
fn a_consumer_with_very_many_messages_goes() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let config = json!({"name": "I", "subjects": ["I.>"], "retention": "interest"});
    assert_eq!(stream(&mut raw, "CREATE", config), 0);
    assert_eq!(
        consumer(&mut raw, "I", "A", json!({"filter_subject": "I.a"})),
        0
    );
    assert_eq!(
        consumer(&mut raw, "I", "B", json!({"filter_subject": "I.b"})),
        0
    );
    // The stream gets more messages than it examines with one command, several times as many.
    let count = 20_000;
    let mut out = Vec::new();
    for n in 0..count {
        let subject = if n % 100 == 0 { "b" } else { "a" };
        out.extend_from_slice(format!("PUB I.{subject} 1\r\nx\r\n").as_bytes());
    }
    raw.send(&out).unwrap();
    comes_to(&mut raw, "I", [count, 1, count]);
    delete(&mut raw, "I", "A");
    // The server must answer other requests meanwhile, and must continue after a restart.
    assert_eq!(publish(&mut raw, &["I.a", "I.b"]), [20_001, 20_002]);
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    comes_to(&mut raw, "I", [count / 100 + 1, 1, count + 2]);
    delete(&mut raw, "I", "B");
    comes_to(&mut raw, "I", [0, count + 3, count + 2]);
    drop(server);
}
