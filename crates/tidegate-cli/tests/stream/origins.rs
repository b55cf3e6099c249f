//! Tests of mirrors and sources on one server, with a client over plain sockets.

use std::time::Instant;

use serde_json::{Value, json};

use super::raw::{PATIENCE, Raw};
use super::server::{Server, other};

/// Creates or changes a stream. Returns the number of the error, or 0.
pub(super) fn stream(raw: &mut Raw, verb: &str, config: &Value) -> u64 {
    let name = config["name"].as_str().unwrap();
    let answer = raw.api(&format!("STREAM.{verb}.{name}"), config);
    answer["error"]["err_code"].as_u64().unwrap_or(0)
}

pub(super) fn publish(raw: &mut Raw, subject: &str, count: usize) {
    for n in 0..count {
        raw.publish(subject, "ack", n.to_string().as_bytes())
            .unwrap();
        let answer = raw.message().unwrap().json();
        assert!(answer["seq"].as_u64().is_some(), "{answer}");
    }
}

/// Waits until `is` returns true for the info of the stream, because the server copies messages in its own
/// time.
pub(super) fn comes_to(raw: &mut Raw, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let info = raw.api(&format!("STREAM.INFO.{name}"), &json!({}));
        if is(&info) {
            return info;
        }
        assert!(Instant::now() < until, "{info}");
    }
}

pub(super) fn has(messages: u64, last: u64) -> impl Fn(&Value) -> bool {
    move |info| info["state"]["messages"] == messages && info["state"]["last_seq"] == last
}

/// Returns the subject, time, headers and payload of a message as JSON.
pub(super) fn get(raw: &mut Raw, name: &str, seq: u64) -> Value {
    let answer = raw.api(&format!("STREAM.MSG.GET.{name}"), &json!({"seq": seq}));
    answer["message"].clone()
}

#[test]
fn a_mirror_follows_its_origin_and_is_promoted() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let origin = json!({"name": "O", "subjects": ["o.>"], "allow_direct": true});
    let mirror = json!({"name": "M", "mirror": {"name": "O"}});
    // A client may create the mirror before its origin.
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    let waits = |info: &Value| info["mirror"]["error"]["err_code"] == 10059;
    let info = comes_to(&mut raw, "M", waits);
    assert_eq!(info["mirror"]["active"], -1);
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    publish(&mut raw, "o.a", 20);
    publish(&mut raw, "o.b", 5);
    let info = comes_to(&mut raw, "M", has(25, 25));
    assert_eq!(info["mirror"]["name"], "O");
    assert!(info["config"].get("subjects").is_none(), "{info}");
    let lags = |info: &Value| info["mirror"]["lag"] == 0 && info["mirror"].get("error").is_none();
    let info = comes_to(&mut raw, "M", lags);
    assert!(info["mirror"]["active"].as_i64().unwrap() >= 0, "{info}");
    assert_eq!(get(&mut raw, "M", 23), get(&mut raw, "O", 23));
    // A removed message of the origin must leave a gap in the mirror.
    raw.api("STREAM.MSG.DELETE.O", &json!({"seq": 25}));
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    publish(&mut raw, "o.c", 3);
    comes_to(&mut raw, "M", has(28, 28));
    let late =
        json!({"name": "F", "mirror": {"name": "O", "opt_start_seq": 10, "filter_subject": "o.a"}});
    assert_eq!(stream(&mut raw, "CREATE", &late), 0);
    comes_to(&mut raw, "F", has(11, 20));
    for (code, config) in [
        (
            10034,
            json!({"name": "X", "subjects": ["x"], "mirror": {"name": "O"}}),
        ),
        (
            10031,
            json!({"name": "X", "sources": [{"name": "O"}], "mirror": {"name": "O"}}),
        ),
        (10142, json!({"name": "X", "mirror": {"name": "a.b"}})),
        (10052, json!({"name": "X", "mirror": {"name": "X"}})),
        (
            10140,
            json!({"name": "X", "sources": [{"name": "O"}, {"name": "O"}]}),
        ),
    ] {
        assert_eq!(stream(&mut raw, "CREATE", &config), code, "{config}");
    }
    let other = json!({"name": "M", "mirror": {"name": "P"}});
    assert_eq!(stream(&mut raw, "UPDATE", &other), 10055);
    let promoted = json!({"name": "M", "subjects": ["m"]});
    assert_eq!(stream(&mut raw, "UPDATE", &promoted), 0);
    publish(&mut raw, "m", 1);
    publish(&mut raw, "o.d", 1);
    comes_to(&mut raw, "F", |info| info["mirror"]["lag"] == 0);
    let info = comes_to(&mut raw, "M", has(29, 29));
    assert!(info.get("mirror").is_none(), "{info}");
}

/// An origin with more subjects than a message can name would give nothing, so the server refuses it.
#[test]
fn very_many_transforms_are_refused_or_serve() {
    if other().is_some() {
        println!(
            "nats-server accepts any number of transforms, and then stores no message of the origin"
        );
        return;
    }
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let origin = json!({"name": "O", "subjects": ["o.>"]});
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    publish(&mut raw, "o.7", 1);
    let with = |transforms: u64| {
        let one = |n: u64| json!({"src": format!("o.{n}"), "dest": format!("taken.{n}")});
        let all: Vec<Value> = (0..transforms).map(one).collect();
        json!({"name": "O", "subject_transforms": all})
    };
    for (transforms, of_source, of_mirror) in [(5_000, 10145, 10151), (2_000, 0, 0)] {
        let sourced = json!({"name": "S", "sources": [with(transforms)]});
        assert_eq!(stream(&mut raw, "CREATE", &sourced), of_source);
        let mirror = json!({"name": "M", "mirror": with(transforms)});
        assert_eq!(stream(&mut raw, "CREATE", &mirror), of_mirror);
    }
    for name in ["S", "M"] {
        comes_to(&mut raw, name, has(1, 1));
        assert_eq!(get(&mut raw, name, 1)["subject"], "taken.7");
    }
}

#[test]
fn a_stuck_mirror_shows_how_far_behind_it_is_and_why() {
    if other().is_some() {
        println!("nats-server shows neither the lag nor the error of a mirror that is full");
        return;
    }
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let full = json!({"name": "M", "max_msgs": 4, "discard": "new", "mirror": {"name": "O"}});
    assert_eq!(stream(&mut raw, "CREATE", &full), 0);
    // A mirror that has never reached its origin knows no lag.
    let waits = |info: &Value| info["mirror"]["error"]["err_code"] == 10059;
    let info = comes_to(&mut raw, "M", waits);
    assert_eq!(
        (&info["mirror"]["active"], &info["mirror"]["lag"]),
        (&json!(-1), &json!(0))
    );
    let origin = json!({"name": "O", "subjects": ["o"]});
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    publish(&mut raw, "o", 10);
    let stuck = |lag: u64| {
        move |info: &Value| {
            let mirror = &info["mirror"];
            mirror["lag"] == lag && mirror["error"]["err_code"] == 10077
        }
    };
    comes_to(&mut raw, "M", |info| stuck(6)(info) && has(4, 4)(info));
    publish(&mut raw, "o", 5);
    comes_to(&mut raw, "M", stuck(11));
    // The next leader finds out, too.
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let info = comes_to(&mut raw, "M", stuck(11));
    assert!(info["mirror"]["active"].as_i64().unwrap() >= 0, "{info}");
    let wide = json!({"name": "M", "mirror": {"name": "O"}});
    assert_eq!(stream(&mut raw, "UPDATE", &wide), 0);
    let whole = |info: &Value| info["mirror"]["lag"] == 0 && info["mirror"].get("error").is_none();
    comes_to(&mut raw, "M", |info| whole(info) && has(15, 15)(info));
}

#[test]
fn a_mirror_never_mixes_an_origin_with_a_later_one() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let origin = json!({"name": "O", "subjects": ["o"]});
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    assert_eq!(
        stream(
            &mut raw,
            "CREATE",
            &json!({"name": "M", "mirror": {"name": "O"}})
        ),
        0
    );
    let sources = json!({"name": "S", "sources": [{"name": "O"}]});
    assert_eq!(stream(&mut raw, "CREATE", &sources), 0);
    publish(&mut raw, "o", 3);
    comes_to(&mut raw, "M", has(3, 3));
    comes_to(&mut raw, "S", has(3, 3));
    raw.api("STREAM.DELETE.O", &json!({}));
    comes_to(&mut raw, "M", |info| {
        info["mirror"]["error"]["err_code"] == 10059
    });
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    publish(&mut raw, "o", 5);
    let info = comes_to(&mut raw, "M", |info| {
        info["mirror"]["error"]["err_code"] == 10029
    });
    assert_eq!(info["state"]["messages"], 3);
    // A source begins again, because its messages have numbers of their own in the stream.
    comes_to(&mut raw, "S", has(8, 8));
}

#[test]
fn sources_are_added_in_order_with_their_origin() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    for name in ["A", "B"] {
        let config = json!({"name": name, "subjects": [format!("{name}.>")]});
        assert_eq!(stream(&mut raw, "CREATE", &config), 0);
    }
    publish(&mut raw, "A.x", 10);
    publish(&mut raw, "B.x", 4);
    publish(&mut raw, "B.y", 3);
    let config = json!({"name": "S", "subjects": ["s"], "allow_direct": true,
        "sources": [{"name": "A"}, {"name": "B", "filter_subject": "B.y"}]});
    assert_eq!(stream(&mut raw, "CREATE", &config), 0);
    let info = comes_to(&mut raw, "S", has(13, 13));
    assert_eq!(info["sources"].as_array().unwrap().len(), 2, "{info}");
    publish(&mut raw, "s", 1);
    comes_to(&mut raw, "S", has(14, 14));
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    publish(&mut raw, "A.x", 1);
    comes_to(&mut raw, "S", has(15, 15));
    let mut seen = Vec::new();
    for seq in 1..=15 {
        let body = json!({"seq": seq}).to_string();
        raw.publish("$JS.API.DIRECT.GET.S", "got", body.as_bytes())
            .unwrap();
        let message = raw.message().unwrap();
        let source = message.headers().split("Nats-Stream-Source: ").nth(1);
        seen.extend(source.map(|s| s.split("\r\n").next().unwrap().to_owned()));
    }
    let of = |name: &str| -> Vec<&String> { seen.iter().filter(|s| s.starts_with(name)).collect() };
    let a: Vec<String> = (1..=11).map(|n| format!("A {n} > > A.x")).collect();
    let b: Vec<String> = (5..=7).map(|n| format!("B {n} B.y > B.y")).collect();
    assert_eq!(of("A"), a.iter().collect::<Vec<_>>());
    assert_eq!(of("B"), b.iter().collect::<Vec<_>>());
    // The server must refuse sources that form a loop.
    let looped = json!({"name": "A", "subjects": ["A.>"], "sources": [{"name": "S"}]});
    assert_eq!(stream(&mut raw, "UPDATE", &looped), 10052);
    // After a purge, the stream must not get the purged messages again.
    raw.api("STREAM.PURGE.S", &json!({}));
    publish(&mut raw, "A.x", 1);
    comes_to(&mut raw, "S", has(1, 16));
}

#[test]
fn a_work_queue_keeps_its_messages_for_a_mirror() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let queue = json!({"name": "Q", "subjects": ["q.>"], "retention": "workqueue"});
    assert_eq!(stream(&mut raw, "CREATE", &queue), 0);
    publish(&mut raw, "q.a", 10);
    let mirror = json!({"name": "M", "mirror": {"name": "Q"}});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    comes_to(&mut raw, "M", has(10, 10));
    // The work queue must have removed the messages that the mirror has.
    comes_to(&mut raw, "Q", has(0, 10));
    // With a worker, a message must stay until both the worker and the mirror have it.
    let worker =
        json!({"stream_name": "Q", "config": {"durable_name": "W", "ack_policy": "explicit"}});
    let made = raw.api("CONSUMER.CREATE.Q.W", &worker);
    assert!(made.get("error").is_none(), "{made}");
    publish(&mut raw, "q.b", 3);
    comes_to(&mut raw, "M", has(13, 13));
    comes_to(&mut raw, "Q", has(3, 13));
    // A full mirror must accept no message, and the work queue must keep the messages.
    let full = json!({"name": "N", "max_msgs": 2, "discard": "new", "mirror": {"name": "Q"}});
    assert_eq!(stream(&mut raw, "CREATE", &full), 0);
    let stuck = |info: &Value| info["mirror"]["error"]["err_code"] == 10077;
    let info = comes_to(&mut raw, "N", stuck);
    assert_eq!(info["state"]["messages"], 2);
    for _ in 0..3 {
        let body = json!({"batch": 1}).to_string();
        raw.publish("$JS.API.CONSUMER.MSG.NEXT.Q.W", "pull", body.as_bytes())
            .unwrap();
        let message = raw.message().unwrap();
        raw.publish(message.reply.as_deref().unwrap(), "acked", b"+ACK")
            .unwrap();
        raw.message().unwrap();
    }
    comes_to(&mut raw, "Q", has(1, 13));
    // The work queue must no longer keep messages for a deleted mirror.
    raw.api("STREAM.DELETE.N", &json!({}));
    comes_to(&mut raw, "Q", |info| info["state"]["consumer_count"] == 2);
}
