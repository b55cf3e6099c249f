//! Tests of streams that map subjects, with a client over plain sockets: the subjects under which a stream
//! stores messages, and the messages that it publishes again.

use serde_json::{Value, json};

use super::raw::{Raw, Received};
use super::server::Server;

/// Creates or changes the stream `S`, which stores `s.>`. Returns the number of the error, or 0.
fn stream(raw: &mut Raw, verb: &str, more: Value) -> (u64, String) {
    let mut config = json!({"name": "S", "subjects": ["s.>"]});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let answer = raw.api(&format!("STREAM.{verb}.S"), &config);
    let error = &answer["error"];
    let text = error["description"].as_str().unwrap_or_default();
    (error["err_code"].as_u64().unwrap_or(0), text.to_owned())
}

fn made(raw: &mut Raw, verb: &str, more: Value) {
    assert_eq!(stream(raw, verb, more), (0, String::new()));
}

/// Publishes a message, and returns its number in the stream, or the negative number of the error.
fn publish(raw: &mut Raw, subject: &str, headers: &[&str]) -> i64 {
    raw.publish_with(subject, "ack", headers);
    let answer = raw.message().unwrap().json();
    let refused = answer["error"]["err_code"].as_i64().map(|code| -code);
    refused.unwrap_or_else(|| answer["seq"].as_i64().unwrap())
}

/// Returns the subjects of the stream's messages, each with its count.
fn subjects(raw: &mut Raw) -> Value {
    let filter = json!({"subjects_filter": ">"});
    raw.api("STREAM.INFO.S", &filter)["state"]["subjects"].take()
}

/// Returns a client that listens at these subjects.
fn listener(server: &Server, patterns: &[&str]) -> Raw {
    let mut raw = Raw::connect(&server.url).unwrap();
    for (n, pattern) in patterns.iter().enumerate() {
        raw.send(format!("SUB {pattern} {}\r\n", n + 7).as_bytes())
            .unwrap();
    }
    // The server answers this request only after it has registered the subscriptions.
    raw.api("INFO", &json!({}));
    raw
}

fn header<'a>(message: &'a Received, name: &str) -> Option<&'a str> {
    let lines = message.headers().split("\r\n");
    let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    values.next()
}

fn body(message: &Received) -> &[u8] {
    &message.payload[message.headers().len()..]
}

#[test]
fn a_stream_stores_under_mapped_subjects() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start_in(&data, "");
    let mut raw = Raw::connect(&server.url).unwrap();
    let transform = json!({"src": "s.*.*", "dest": "t.{{wildcard(2)}}.{{partition(3,1)}}"});
    let more = json!({"subject_transform": transform, "max_msgs_per_subject": 2});
    made(&mut raw, "CREATE", more.clone());
    made(&mut raw, "CREATE", more.clone());
    let info = raw.api("STREAM.INFO.S", &json!({}));
    assert_eq!(info["config"]["subject_transform"], transform);
    // The stream stores the last three messages under one subject, of which it keeps two.
    for (n, subject) in ["s.other", "s.a.x", "s.a.x", "s.a.x"].iter().enumerate() {
        assert_eq!(publish(&mut raw, subject, &[]), n as i64 + 1);
    }
    let there = json!({"s.other": 1, "t.x.1": 2});
    assert_eq!(subjects(&mut raw), there);
    let last = "Nats-Expected-Last-Subject-Sequence";
    assert_eq!(publish(&mut raw, "s.a.x", &[&format!("{last}: 3")]), -10071);
    assert_eq!(publish(&mut raw, "s.a.x", &[&format!("{last}: 4")]), 5);
    let id = ["Nats-Msg-Id: a"];
    assert_eq!(publish(&mut raw, "s.a.y", &id), 6);
    assert_eq!(publish(&mut raw, "s.a.y", &id), 6, "a duplicate");
    // The consumer's filter must match the mapped subjects.
    let config = json!({"durable_name": "C", "ack_policy": "none", "filter_subject": "t.y.>"});
    raw.api(
        "CONSUMER.CREATE.S.C",
        &json!({"stream_name": "S", "config": config}),
    );
    let next = "$JS.API.CONSUMER.MSG.NEXT.S.C";
    let pull = br#"{"batch":1,"expires":20000000000}"#;
    raw.publish(next, "pull", pull).unwrap();
    let (seq, message) = raw.delivered().unwrap();
    assert_eq!((seq, &*message.subject), (6, "t.y.1"));
    raw.api("CONSUMER.DELETE.S.C", &json!({}));
    let found = raw.api("STREAM.MSG.GET.S", &json!({"last_by_subj": "t.x.1"}));
    assert_eq!(found["message"]["seq"], json!(5));
    let purged = raw.api("STREAM.PURGE.S", &json!({"filter": "t.x.>"}));
    assert_eq!(purged["purged"], json!(2));
    // A change of the transform must affect only later messages, and a restart must change nothing.
    made(
        &mut raw,
        "UPDATE",
        json!({"subject_transform": {"src": "s.>", "dest": "u.>"}}),
    );
    assert_eq!(publish(&mut raw, "s.a.y", &[]), 7);
    made(&mut raw, "UPDATE", json!({}));
    assert_eq!(publish(&mut raw, "s.a.y", &[]), 8);
    let there = json!({"s.other": 1, "t.y.1": 1, "u.a.y": 1, "s.a.y": 1});
    assert_eq!(subjects(&mut raw), there);
    drop(server);
    let server = Server::start_in(&data, "");
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(subjects(&mut raw), there);
    assert_eq!(publish(&mut raw, "s.a.y", &[]), 9);
}

#[test]
fn atomic_batches_are_stored_under_mapped_subjects() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let transform = json!({"src": "s.*", "dest": "t.$1"});
    let more = json!({"subject_transform": transform, "allow_atomic": true});
    made(&mut raw, "CREATE", more);
    for (n, commit) in [(1, &[][..]), (2, &["Nats-Batch-Commit: 1"][..])] {
        let seq = format!("Nats-Batch-Sequence: {n}");
        let headers = [&["Nats-Batch-Id: b", &*seq][..], commit].concat();
        raw.publish_with(&format!("s.{n}"), "ack", &headers);
        let answer = raw.message().unwrap();
        assert_eq!(answer.payload.is_empty(), n == 1);
    }
    assert_eq!(subjects(&mut raw), json!({"t.1": 1, "t.2": 1}));
}

#[test]
fn a_stream_publishes_its_messages_again() {
    for storage in ["file", "memory"] {
        let server = Server::start();
        let mut heard = listener(&server, &["r.>"]);
        let mut raw = Raw::connect(&server.url).unwrap();
        let republish = json!({"src": "s.*", "dest": "r.$1"});
        let more = json!({"storage": storage, "republish": republish});
        made(&mut raw, "CREATE", more);
        let info = raw.api("STREAM.INFO.S", &json!({}));
        assert_eq!(info["config"]["republish"], republish);
        // The source of the mapping does not match the second subject.
        for (n, subject) in ["s.a", "s.a.b", "s.b", "s.a"].iter().enumerate() {
            raw.publish(subject, "ack", subject.as_bytes()).unwrap();
            assert_eq!(raw.message().unwrap().json()["seq"], json!(n + 1));
        }
        for (to, seq, last, subject) in [
            ("r.a", "1", "0", "s.a"),
            ("r.b", "3", "0", "s.b"),
            ("r.a", "4", "1", "s.a"),
        ] {
            let message = heard.message().unwrap();
            assert_eq!((&*message.subject, message.reply.as_ref()), (to, None));
            assert_eq!(body(&message), subject.as_bytes());
            for (name, value) in [
                ("Nats-Stream", Some("S")),
                ("Nats-Subject", Some(subject)),
                ("Nats-Sequence", Some(seq)),
                ("Nats-Last-Sequence", Some(last)),
                ("Nats-Msg-Size", None),
            ] {
                assert_eq!(header(&message, name), value, "{name}");
            }
            let time = header(&message, "Nats-Time-Stamp").unwrap();
            let got = raw.api(
                "STREAM.MSG.GET.S",
                &json!({"seq": seq.parse::<u64>().unwrap()}),
            );
            assert_eq!(got["message"]["time"], json!(time));
        }
        // The stream must not publish a duplicate again, and must keep a message's headers.
        let headers = ["Nats-Msg-Id: a", "A: b"];
        for _ in 0..2 {
            assert_eq!(publish(&mut raw, "s.c", &headers), 5);
        }
        let republish = json!({"src": "s.*", "dest": "r.$1", "headers_only": true});
        let more = json!({"storage": storage, "republish": republish});
        made(&mut raw, "UPDATE", more);
        raw.publish("s.d", "ack", b"hello").unwrap();
        assert_eq!(raw.message().unwrap().json()["seq"], json!(6));
        let message = heard.message().unwrap();
        assert_eq!(header(&message, "A"), Some("b"));
        assert_eq!(header(&message, "Nats-Sequence"), Some("5"));
        let message = heard.message().unwrap();
        assert_eq!(header(&message, "Nats-Msg-Size"), Some("5"));
        assert_eq!(header(&message, "Nats-Sequence"), Some("6"));
        assert_eq!(body(&message), b"");
        made(&mut raw, "UPDATE", json!({"storage": storage}));
        assert_eq!(publish(&mut raw, "s.e", &[]), 7);
        heard.api("INFO", &json!({}));
    }
}

#[test]
fn another_stream_takes_the_messages_that_are_published_again() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let other = raw.api(
        "STREAM.CREATE.O",
        &json!({"name": "O", "subjects": ["o.>"]}),
    );
    assert_eq!(other.get("error"), None, "{other}");
    // With both settings, the stream must publish again under the subject under which it stored the message.
    let more = json!({"subject_transform": {"src": "s.>", "dest": "o.>"},
        "republish": {"src": ">", "dest": ">"}});
    made(&mut raw, "CREATE", more);
    let info = raw.api("STREAM.INFO.S", &json!({}));
    let implicit = json!({"src": "o.>", "dest": "o.>"});
    assert_eq!(info["config"]["republish"], implicit);
    const COUNT: i64 = 3000;
    for n in 1..=COUNT {
        raw.publish(&format!("s.{n}"), "ack", b"x").unwrap();
    }
    for n in 1..=COUNT {
        assert_eq!(raw.message().unwrap().json()["seq"], json!(n));
    }
    // The other stream stores the last messages a little after their acknowledgements.
    loop {
        let state = raw.api("STREAM.INFO.O", &json!({}))["state"].take();
        if state["messages"] == json!(COUNT) {
            assert_eq!(state["num_subjects"], json!(COUNT));
            break;
        }
    }
    let got = raw.api("STREAM.MSG.GET.O", &json!({"seq": 7}));
    assert_eq!(got["message"]["subject"], json!("o.7"));
}

#[test]
fn mappings_that_make_no_sense_are_refused() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let transform =
        |src: &str, dest: &str| json!({"subject_transform": {"src": src, "dest": dest}});
    let republish = |src: &str, dest: &str| json!({"republish": {"src": src, "dest": dest}});
    let bad = "stream transform: invalid mapping destination:";
    for (more, code, text) in [
        (
            transform("s..x", "t"),
            10155,
            "stream transform source: invalid subject s..x".to_owned(),
        ),
        (
            transform("s.*", "t.*"),
            10156,
            "stream transform: invalid subject".to_owned(),
        ),
        (
            transform("s.*", "t.{{nope(1)}}"),
            10156,
            format!("{bad} unknown function in {{{{nope(1)}}}}"),
        ),
        (
            transform("s.*", "t.{{wildcard(2)}}"),
            10156,
            format!("{bad} wildcard index out of range in {{{{wildcard(2)}}}}: [2]"),
        ),
        (
            republish("s.*", "s.x.$1"),
            10052,
            "stream configuration for republish destination forms a cycle".to_owned(),
        ),
        (
            republish("s.*", "t.*"),
            10052,
            "stream configuration for republish with transform from 's.*' to 't.*' not valid"
                .to_owned(),
        ),
        (
            json!({"pedantic": true, "republish": {"dest": "t.>"}}),
            10157,
            "pedantic mode: republish source can not be empty".to_owned(),
        ),
        (
            json!({"pedantic": true, "subject_transform": {"src": "s.>", "dest": "t.>"},
                "republish": {"src": ">", "dest": ">"}}),
            10157,
            "pedantic mode: implicit republish based on subject transform".to_owned(),
        ),
    ] {
        assert_eq!(stream(&mut raw, "CREATE", more), (code, text));
    }
}
