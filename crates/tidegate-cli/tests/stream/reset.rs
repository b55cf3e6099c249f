//! Tests of resets of consumers (`CONSUMER.RESET`), with a client over plain sockets: the answers, the
//! deliveries after a reset, the state of the consumers after a crash, and the requests that the server
//! refuses.

use serde_json::{Value, json};

use super::raw::{Raw, Received};
use super::server::{Server, other};

/// Creates a stream `S` and publishes the messages 1 to `count` to it.
fn stream(raw: &mut Raw, count: u64) {
    let made = raw.api("STREAM.CREATE.S", &json!({"name": "S", "subjects": ["s"]}));
    assert_eq!(made.get("error"), None, "{made}");
    for seq in 1..=count {
        raw.publish("s", "ack", b"x").unwrap();
        assert_eq!(raw.message().unwrap().json()["seq"], seq);
    }
}

/// Creates a durable consumer of the stream `S` with explicit acknowledgements and the further settings
/// `more`.
fn durable(raw: &mut Raw, name: &str, more: Value) {
    let mut config = json!({"durable_name": name, "ack_policy": "explicit"});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let body = json!({"stream_name": "S", "config": config});
    let made = raw.api(&format!("CONSUMER.CREATE.S.{name}"), &body);
    assert_eq!(made.get("error"), None, "{made}");
}

fn ask(raw: &mut Raw, name: &str, count: u64) {
    let body = json!({"batch": count, "expires": 20_000_000_000_u64}).to_string();
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.S.{name}");
    raw.publish(&next, "pull", body.as_bytes()).unwrap();
}

fn pull(raw: &mut Raw, name: &str, count: u64) -> Vec<Received> {
    ask(raw, name, count);
    (0..count).map(|_| raw.message().unwrap()).collect()
}

/// Returns three numbers of a delivery: how often the message was delivered, its stream sequence, and its
/// consumer sequence.
fn numbers(message: &Received) -> [u64; 3] {
    let reply = message.reply.as_deref().unwrap();
    let words: Vec<&str> = reply.split('.').collect();
    [4, 5, 6].map(|at| words[at].parse().unwrap())
}

fn ack(raw: &mut Raw, message: &Received) {
    let to = message.reply.clone().unwrap();
    raw.publish(&to, "acked", b"+ACK").unwrap();
    assert!(raw.message().unwrap().subject.ends_with("acked"));
}

/// Returns the expected state of a consumer that was reset to the stream sequence `next` and has delivered no
/// message since.
fn begun(next: u64, pending: u64) -> Value {
    let before = json!({"consumer_seq": 0, "stream_seq": next - 1});
    json!([before, before, 0, 0, pending])
}

fn told(info: &Value) -> Value {
    let fields = [
        "delivered",
        "ack_floor",
        "num_ack_pending",
        "num_redelivered",
        "num_pending",
    ];
    fields.iter().map(|field| info[field].clone()).collect()
}

fn reset(raw: &mut Raw, name: &str, body: &str) -> Value {
    let subject = format!("$JS.API.CONSUMER.RESET.S.{name}");
    raw.publish(&subject, "reset", body.as_bytes()).unwrap();
    raw.message().unwrap().json()
}

#[test]
fn a_consumer_begins_again() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, 6);
    durable(&mut raw, "C", json!({}));
    let first = pull(&mut raw, "C", 4);
    ack(&mut raw, &first[0]);
    ack(&mut raw, &first[2]);
    // The reset must go back to the first unacknowledged message, so that acknowledgements of later messages
    // no longer count.
    for body in ["", "{}", r#"{"seq":0}"#] {
        let answer = reset(&mut raw, "C", body);
        let kind = "io.nats.jetstream.api.v1.consumer_reset_response";
        assert_eq!(answer["type"], kind, "{answer}");
        assert_eq!(
            (&answer["name"], &answer["stream_name"]),
            (&json!("C"), &json!("S"))
        );
        assert_eq!(answer["reset_seq"], 2, "{answer}");
        assert_eq!(told(&answer), begun(2, 5), "{answer}");
    }
    let again = pull(&mut raw, "C", 2);
    assert_eq!(numbers(&again[0]), [1, 2, 1]);
    assert_eq!(numbers(&again[1]), [1, 3, 2]);
    // This reset names a message that the stream does not have yet.
    let answer = reset(&mut raw, "C", r#"{"seq":100}"#);
    assert_eq!(
        (&answer["reset_seq"], told(&answer)),
        (&json!(100), begun(100, 0))
    );
    let answer = reset(&mut raw, "C", r#"{"seq":5}"#);
    assert_eq!(
        (&answer["reset_seq"], told(&answer)),
        (&json!(5), begun(5, 2))
    );
    // A reset that the server has answered must be durable.
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
    assert_eq!(told(&info), begun(5, 2), "{info}");
    // A waiting pull must get the messages that the consumer delivers again.
    ask(&mut raw, "C", 9);
    let seen: Vec<_> = (0..2).map(|_| numbers(&raw.message().unwrap())).collect();
    assert_eq!(seen, [[1, 5, 1], [1, 6, 2]]);
    raw.publish("$JS.API.CONSUMER.RESET.S.C", "reset", br#"{"seq":6}"#)
        .unwrap();
    let mut two = [raw.message().unwrap(), raw.message().unwrap()];
    two.sort_by_key(|message| message.reply.is_none());
    assert_eq!(numbers(&two[0]), [1, 6, 1]);
    assert_eq!(two[1].json()["reset_seq"], 6);
    ack(&mut raw, &two[0]);
    let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
    let all = json!({"consumer_seq": 1, "stream_seq": 6});
    for field in ["delivered", "ack_floor"] {
        let at = &info[field];
        assert_eq!(at["consumer_seq"], all["consumer_seq"], "{info}");
        assert_eq!(at["stream_seq"], all["stream_seq"], "{info}");
    }
}

#[test]
fn no_reset_goes_before_what_a_consumer_was_to_begin_with() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, 6);
    let (seq, time) = ("by_start_sequence", "by_start_time");
    for (name, more) in [
        ("L", json!({"deliver_policy": "last"})),
        ("N", json!({"deliver_policy": "new"})),
        ("Q", json!({"deliver_policy": seq, "opt_start_seq": 3})),
        (
            "T",
            json!({"deliver_policy": time, "opt_start_time": "2035-01-01T00:00:00Z"}),
        ),
        (
            "P",
            json!({"deliver_policy": "last_per_subject", "filter_subject": "s"}),
        ),
    ] {
        durable(&mut raw, name, more);
    }
    for (name, asked, why) in [
        ("L", 6, "not allowed"),
        ("N", 7, "not allowed"),
        ("P", 6, "not allowed"),
        ("Q", 2, "below start seq"),
        ("T", 6, "below start time"),
    ] {
        let answer = reset(&mut raw, name, &json!({"seq": asked}).to_string());
        let error =
            json!({"code": 400, "err_code": 10204, "description": format!("invalid reset: {why}")});
        assert_eq!(answer["error"], error, "{name}");
    }
    for (name, asked, next) in [
        ("L", 0, 6),
        ("N", 0, 7),
        ("Q", 0, 3),
        ("Q", 3, 3),
        ("Q", 5, 5),
        ("T", 0, 7),
        ("T", 9, 9),
    ] {
        let answer = reset(&mut raw, name, &json!({"seq": asked}).to_string());
        assert_eq!(answer["reset_seq"], next, "{name} {asked}: {answer}");
    }
    for body in ["x", "1", "[]", r#"{"seq":-1}"#, r#"{"seq":"1"}"#] {
        let answer = reset(&mut raw, "Q", body);
        assert_eq!(answer["error"]["err_code"], 10025, "{body}: {answer}");
    }
}

#[test]
fn pushed_messages_are_pushed_again() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, 3);
    raw.send(b"SUB pushed 7\r\n").unwrap();
    for (ack, durable) in [("none", false), ("none", true), ("explicit", true)] {
        let name = format!("{ack}{durable}");
        let mut config = json!({
            "name": name, "deliver_subject": "pushed", "ack_policy": ack, "mem_storage": true,
            "idle_heartbeat": 600_000_000_000_u64, "flow_control": true,
        });
        if durable {
            config["durable_name"] = json!(name);
        }
        let body = json!({"stream_name": "S", "config": config}).to_string();
        let create = format!("$JS.API.CONSUMER.CREATE.S.{name}");
        raw.publish(&create, "made", body.as_bytes()).unwrap();
        let (mut made, mut seen) = (false, Vec::new());
        while !made || seen.len() < 3 {
            let message = raw.message().unwrap();
            match message.subject.ends_with("made") {
                true => made = true,
                false => seen.push(numbers(&message)),
            }
        }
        assert_eq!(seen, [[1, 1, 1], [1, 2, 2], [1, 3, 3]]);
        let subject = format!("$JS.API.CONSUMER.RESET.S.{name}");
        raw.publish(&subject, "reset", br#"{"seq":2}"#).unwrap();
        let (mut answer, mut seen) = (None, Vec::new());
        while answer.is_none() || seen.len() < 2 {
            let message = raw.message().unwrap();
            match message.subject.ends_with("reset") {
                true => answer = Some(message.json()),
                false => seen.push(numbers(&message)),
            }
        }
        assert_eq!(answer.unwrap()["reset_seq"], 2);
        assert_eq!(seen, [[1, 2, 1], [1, 3, 2]]);
        raw.api(&format!("CONSUMER.DELETE.S.{name}"), &json!({}));
    }
}

#[test]
fn acknowledgements_before_a_reset_do_not_count_after_it() {
    if other().is_some() {
        println!(
            "nats-server may have begun again before it looks at them, and answers none of them then"
        );
        return;
    }
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, 20);
    durable(&mut raw, "C", json!({}));
    let mut next = 1;
    for round in 0..30 {
        let messages = pull(&mut raw, "C", 3);
        assert_eq!(numbers(&messages[0]), [1, next, 1]);
        for message in &messages {
            let to = message.reply.clone().unwrap();
            raw.publish(&to, "acked", b"+ACK").unwrap();
        }
        next = 1 + round % 7;
        let body = json!({"seq": next}).to_string();
        raw.publish("$JS.API.CONSUMER.RESET.S.C", "reset", body.as_bytes())
            .unwrap();
        // The server may answer the acknowledgements and the reset in any order.
        let answers: Vec<_> = (0..4).map(|_| raw.message().unwrap()).collect();
        let of_reset: Vec<_> = answers
            .iter()
            .filter(|a| a.subject.ends_with("reset"))
            .collect();
        assert_eq!(of_reset.len(), 1, "{answers:?}");
        assert_eq!(of_reset[0].json()["reset_seq"], next);
        let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
        assert_eq!(told(&info), begun(next, 21 - next), "{info}");
    }
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
    assert_eq!(told(&info), begun(next, 21 - next), "{info}");
}
