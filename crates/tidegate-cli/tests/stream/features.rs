//! Tests of rarely used features, with a client over plain sockets, so that the tests compare the exact
//! answers: advisories, pauses, back-off, invalid pull requests, times to live, and the last messages of
//! several subjects.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::raw::{Raw, Received};
use super::server::Server;

/// Creates a stream `S` that takes `s.>`, with the further settings `more`.
fn stream(raw: &mut Raw, more: Value) {
    let mut config = json!({"name": "S", "subjects": ["s.>"]});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let made = raw.api("STREAM.CREATE.S", &config);
    assert_eq!(made.get("error"), None, "{made}");
}

/// Creates a durable consumer `C` of the stream `S`, with the further settings `more`.
fn consumer(raw: &mut Raw, more: Value) -> Value {
    let mut config = json!({"durable_name": "C", "ack_policy": "explicit"});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let body = json!({"stream_name": "S", "config": config});
    raw.api("CONSUMER.CREATE.S.C", &body)
}

fn publish(raw: &mut Raw, subject: &str) {
    raw.publish(subject, "ack", b"x").unwrap();
    let answer = raw.message().unwrap().json();
    assert_eq!(answer.get("error"), None, "{answer}");
}

/// Sends a pull request, and returns the first message or status that the server sends.
fn pull(raw: &mut Raw, body: &Value) -> Received {
    let next = "$JS.API.CONSUMER.MSG.NEXT.S.C";
    raw.publish(next, "pull", body.to_string().as_bytes())
        .unwrap();
    raw.message().unwrap()
}

/// Answers a message with `payload`, and reads the server's reply.
fn answer(raw: &mut Raw, message: &Received, payload: &[u8]) -> Received {
    let to = message.reply.clone().unwrap();
    raw.publish(&to, "acked", payload).unwrap();
    raw.message().unwrap()
}

#[test]
fn watchers_hear_of_creations_pauses_and_deletions() {
    let server = Server::start();
    let mut watch = Raw::connect(&server.url).unwrap();
    watch
        .send(
            b"SUB $JS.EVENT.ADVISORY.STREAM.> 7\r\nSUB $JS.EVENT.ADVISORY.CONSUMER.> 8\r\nPING\r\n",
        )
        .unwrap();
    // The server answers this request only after it has registered the subscriptions.
    watch.api("INFO", &json!({}));
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    consumer(&mut raw, json!({}));
    let until = "2035-01-01T00:00:00Z";
    raw.api("CONSUMER.PAUSE.S.C", &json!({ "pause_until": until }));
    raw.api("CONSUMER.PAUSE.S.C", &json!({}));
    raw.api("CONSUMER.DELETE.S.C", &json!({}));
    raw.api(
        "STREAM.UPDATE.S",
        &json!({"name": "S", "subjects": ["s.>"], "max_msgs": 5}),
    );
    raw.api("STREAM.DELETE.S", &json!({}));
    let kind = "io.nats.jetstream.advisory.v1.";
    for (subject, kind_of, field, value) in [
        (
            "STREAM.CREATED.S",
            "stream_action",
            "action",
            json!("create"),
        ),
        (
            "CONSUMER.CREATED.S.C",
            "consumer_action",
            "action",
            json!("create"),
        ),
        (
            "CONSUMER.PAUSE.S.C",
            "consumer_pause",
            "paused",
            json!(true),
        ),
        (
            "CONSUMER.PAUSE.S.C",
            "consumer_pause",
            "paused",
            json!(false),
        ),
        (
            "CONSUMER.DELETED.S.C",
            "consumer_action",
            "action",
            json!("delete"),
        ),
        (
            "STREAM.UPDATED.S",
            "stream_action",
            "action",
            json!("modify"),
        ),
        (
            "STREAM.DELETED.S",
            "stream_action",
            "action",
            json!("delete"),
        ),
    ] {
        let told = watch.message().unwrap();
        assert_eq!(told.subject, format!("$JS.EVENT.ADVISORY.{subject}"));
        let body = told.json();
        assert_eq!(body["type"], json!(format!("{kind}{kind_of}")), "{body}");
        assert_eq!(
            (&body["stream"], &body[field]),
            (&json!("S"), &value),
            "{body}"
        );
    }
}

#[test]
fn watchers_hear_of_requests_with_their_answers() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    // Without a listener the server reports on no request.
    raw.api("INFO", &json!({}));
    let advisories = "$JS.EVENT.ADVISORY.API";
    let of_audits = json!({"name": "AUDITS", "subjects": [advisories]});
    raw.api("STREAM.CREATE.AUDITS", &of_audits);
    let mut watch = Raw::connect(&server.url).unwrap();
    watch
        .send(format!("SUB {advisories} 7\r\n").as_bytes())
        .unwrap();
    // The stream stores the report on this request before those on the requests below.
    watch.try_api("STREAM.NAMES", &json!({})).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    raw.api("STREAM.INFO.NONE", &json!({}));
    for (subject, request, response) in [
        ("STREAM.NAMES", "{}", "AUDITS"),
        ("STREAM.CREATE.S", r#""name":"S""#, r#""did_create":true"#),
        ("STREAM.INFO.NONE", "{}", "10059"),
    ] {
        let told = watch.message().unwrap();
        let body = told.json();
        assert_eq!(body["type"], "io.nats.jetstream.advisory.v1.api_audit");
        assert_eq!(body["subject"], format!("$JS.API.{subject}"), "{body}");
        let has = |field: &str, text: &str| body[field].as_str().unwrap().contains(text);
        assert!(
            has("request", request) && has("response", response),
            "{body}"
        );
        assert_eq!(body["client"]["acc"], "$G", "{body}");
    }
    // Each of these requests has a report, too, so the stream grows if it stores them.
    let mut stored = || raw.api("STREAM.INFO.AUDITS", &json!({}))["state"]["messages"].as_u64();
    assert!((0..1000).any(|_| stored() > Some(3)));
}

#[test]
fn sampled_acknowledgements_are_reported() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    consumer(&mut raw, json!({"sample_freq": "100%"}));
    let mut watch = Raw::connect(&server.url).unwrap();
    watch.send(b"SUB $JS.EVENT.METRIC.> 7\r\n").unwrap();
    watch.api("INFO", &json!({}));
    let message = pull(&mut raw, &json!({}));
    answer(&mut raw, &message, b"+ACK");
    let told = watch.message().unwrap();
    assert_eq!(told.subject, "$JS.EVENT.METRIC.CONSUMER.ACK.S.C");
    let body = told.json();
    assert_eq!(
        body["type"],
        json!("io.nats.jetstream.metric.v1.consumer_ack")
    );
    for field in ["consumer_seq", "stream_seq", "deliveries"] {
        assert_eq!(body[field], json!(1), "{body}");
    }
    assert!(body["ack_time"].as_u64().is_some(), "{body}");
}

#[test]
fn a_paused_consumer_delivers_once_it_goes_on() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    consumer(&mut raw, json!({}));
    let until = "2035-01-01T00:00:00Z";
    let paused = raw.api("CONSUMER.PAUSE.S.C", &json!({ "pause_until": until }));
    assert_eq!(
        (&paused["paused"], &paused["pause_until"]),
        (&json!(true), &json!(until))
    );
    let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
    assert_eq!(
        (&info["paused"], &info["num_pending"]),
        (&json!(true), &json!(1))
    );
    let status = pull(&mut raw, &json!({"batch": 1, "expires": 50_000_000}));
    assert!(
        status.headers().contains("408 Request Timeout"),
        "{status:?}"
    );
    let goes_on = raw.api("CONSUMER.PAUSE.S.C", &json!({}));
    assert_eq!(goes_on["paused"], json!(false));
    assert_eq!(pull(&mut raw, &json!({})).subject, "s.a");
}

#[test]
fn back_off_sets_the_wait_before_each_delivery_and_the_last_is_reported() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    let made = consumer(
        &mut raw,
        json!({"backoff": [50_000_000, 100_000_000], "max_deliver": 3}),
    );
    assert_eq!(made["config"]["ack_wait"], json!(50_000_000));
    let mut watch = Raw::connect(&server.url).unwrap();
    watch
        .send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.> 7\r\n")
        .unwrap();
    watch.api("INFO", &json!({}));
    for delivery in 1..=3 {
        let message = pull(&mut raw, &json!({}));
        let mark = format!("$JS.ACK.S.C.{delivery}.1.{delivery}.");
        assert!(message.reply.unwrap().starts_with(&mark));
    }
    // nats-server sends this advisory only at the next pull.
    let next = "$JS.API.CONSUMER.MSG.NEXT.S.C";
    raw.publish(next, "pull", b"").unwrap();
    let told = watch.message().unwrap().json();
    assert_eq!(
        (&told["stream_seq"], &told["deliveries"]),
        (&json!(1), &json!(3))
    );
    let refused = raw.api(
        "CONSUMER.CREATE.S.D",
        &json!({"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit", "backoff": [1, 2, 3], "max_deliver": 2}}),
    );
    assert_eq!(refused["error"]["err_code"], json!(10116));
}

#[test]
fn a_consumer_that_wants_no_acknowledgements_does_not_listen_for_them() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    consumer(&mut raw, json!({"ack_policy": "none"}));
    let message = pull(&mut raw, &json!({}));
    let answered = answer(&mut raw, &message, b"");
    assert!(
        answered.headers().starts_with("NATS/1.0 503"),
        "{answered:?}"
    );
}

/// Tests that INFO names the level of the JetStream API. The server must count a request only after its
/// answer, and the account must have no limits of its own.
#[test]
fn clients_are_told_of_the_api_before_they_use_it() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let mut info = String::new();
    let socket = TcpStream::connect(&server.url).unwrap();
    BufReader::new(socket).read_line(&mut info).unwrap();
    assert!(info.contains("\"api_lvl\":"), "{info}");
    for asked in 0..2 {
        let account = raw.api("INFO", &json!({}));
        assert_eq!(account["api"]["total"], json!(asked), "{account}");
        assert_eq!(account["limits"]["max_memory"], json!(-1), "{account}");
    }
}

#[test]
fn meaningless_requests_are_answered() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    publish(&mut raw, "s.a");
    consumer(&mut raw, json!({}));
    let status = pull(&mut raw, &json!({"expires": -1}));
    assert!(
        status.headers().starts_with("NATS/1.0 408 Request Timeout"),
        "{status:?}"
    );
    let message = pull(&mut raw, &json!({}));
    // The server must answer an acknowledgement that it does not understand, and the message must stay
    // unacknowledged.
    let answered = answer(&mut raw, &message, b"hello");
    assert!(answered.payload.is_empty(), "{answered:?}");
    let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
    assert_eq!(info["num_ack_pending"], json!(1));
    for (seq, code) in [(9, 10057), (0, 10057), (1, 0)] {
        let deleted = raw.api("STREAM.MSG.DELETE.S", &json!({ "seq": seq }));
        let error = deleted["error"]["err_code"].as_u64().unwrap_or(0);
        assert_eq!(error, code, "{deleted}");
    }
    let config = json!({"name": "T", "subjects": ["t"], "pedantic": true, "max_bytes": -7});
    let refused = raw.api("STREAM.CREATE.T", &config);
    assert_eq!(refused["error"]["err_code"], json!(10157), "{refused}");
}

#[test]
fn messages_with_a_time_to_live_go_and_leave_a_marker() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    // A delete marker lives for a second here, so every message must live at least that long.
    stream(
        &mut raw,
        json!({"allow_msg_ttl": true, "subject_delete_marker_ttl": 1_000_000_000, "allow_rollup_hdrs": true}),
    );
    for (ttl, code) in [("never", 0), ("soon", 10165), ("500ms", 10165)] {
        raw.publish_with(&format!("s.{ttl}"), "ack", &[&format!("Nats-TTL: {ttl}")]);
        let answer = raw.message().unwrap().json();
        let error = answer["error"]["err_code"].as_u64().unwrap_or(0);
        assert_eq!(error, code, "{ttl}: {answer}");
    }
    // The pull begins before the message and the marker exist, so it must get both before they expire.
    let body = json!({"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "none", "filter_subject": "s.1s"}});
    raw.api("CONSUMER.CREATE.S.C", &body);
    let next = "$JS.API.CONSUMER.MSG.NEXT.S.C";
    raw.publish(next, "pull", b"2").unwrap();
    raw.publish_with("s.1s", "ack", &["Nats-TTL: 1s"]);
    let mut given = Vec::new();
    while given.len() < 2 {
        let message = raw.message().unwrap();
        if message.subject == "s.1s" {
            given.push(message.headers().to_owned());
        }
    }
    assert!(given[0].contains("Nats-TTL: 1"), "{given:?}");
    assert!(given[1].contains("Nats-Marker-Reason: MaxAge"), "{given:?}");
    let info = raw.api("STREAM.INFO.S", &json!({"subjects_filter": ">"}));
    assert_eq!(info["state"]["subjects"]["s.never"], json!(1), "{info}");
}

#[test]
fn the_last_messages_of_several_subjects_come_in_one_answer() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({"allow_direct": true}));
    for subject in ["s.a", "s.b", "s.c", "s.a", "s.b"] {
        publish(&mut raw, subject);
    }
    let mut ask = |body: Value| {
        let body = body.to_string();
        raw.publish("$JS.API.DIRECT.GET.S", "get", body.as_bytes())
            .unwrap();
        let mut seqs: Vec<u64> = Vec::new();
        loop {
            let got = raw.message().unwrap();
            let headers = got.headers().to_owned();
            match headers
                .lines()
                .find_map(|l| l.strip_prefix("Nats-Sequence: "))
            {
                Some(seq) => seqs.push(seq.parse().unwrap()),
                None => return (seqs, headers.lines().next().unwrap().to_owned()),
            }
        }
    };
    let end = "NATS/1.0 204 EOB".to_owned();
    assert_eq!(
        ask(json!({"multi_last": ["s.>"]})),
        (vec![3, 4, 5], end.clone())
    );
    assert_eq!(
        ask(json!({"multi_last": ["s.a", "s.c"]})),
        (vec![3, 4], end.clone())
    );
    assert_eq!(
        ask(json!({"multi_last": ["s.*"], "up_to_seq": 3})),
        (vec![1, 2, 3], end.clone())
    );
    assert_eq!(
        ask(json!({"multi_last": ["s.*"], "batch": 2})),
        (vec![3, 4], end)
    );
    let (none, status) = ask(json!({"multi_last": ["t.*"]}));
    assert!(
        none.is_empty() && status.starts_with("NATS/1.0 404"),
        "{status}"
    );
}

#[test]
fn a_pull_that_acknowledgements_hold_up_ends_when_a_sign_of_life_is_due() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({}));
    consumer(&mut raw, json!({"max_ack_pending": 2}));
    for subject in ["s.a", "s.b", "s.c"] {
        publish(&mut raw, subject);
    }
    let body = json!({"batch": 9, "no_wait": true, "expires": 25_000_000_000_u64, "idle_heartbeat": 200_000_000});
    assert_eq!(pull(&mut raw, &body).headers(), "");
    assert_eq!(raw.message().unwrap().headers(), "");
    let end = raw.message().unwrap();
    assert!(end.headers().starts_with("NATS/1.0 404 "), "{end:?}");
}

#[test]
fn no_message_has_a_subject_that_cannot_be() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({"allow_direct": true}));
    publish(&mut raw, "s.a.b");
    for subject in ["s..b", ".a", "s.a.", "s. b", "s.>.b", "s.a.b "] {
        for ask in [
            json!({"last_by_subj": subject}),
            json!({"next_by_subj": subject, "seq": 1}),
        ] {
            let answer = raw.api("STREAM.MSG.GET.S", &ask);
            assert_eq!(answer["error"]["err_code"], 10037, "{ask}: {answer}");
            let ask = ask.to_string();
            raw.publish("$JS.API.DIRECT.GET.S", "direct", ask.as_bytes())
                .unwrap();
            let answer = raw.message().unwrap();
            let headers = answer.headers();
            assert_eq!(headers, "NATS/1.0 404 Message Not Found\r\n\r\n", "{ask}");
        }
        let several = json!({"multi_last": [subject]}).to_string();
        raw.publish("$JS.API.DIRECT.GET.S", "direct", several.as_bytes())
            .unwrap();
        let answer = raw.message().unwrap();
        assert_eq!(answer.headers(), "NATS/1.0 404 No Results\r\n\r\n");
    }
}

#[test]
fn a_pattern_rolls_up_what_it_matches() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({"allow_rollup_hdrs": true}));
    for subject in ["s.a", "s.a.x", "s.a.y", "s.b.x"] {
        publish(&mut raw, subject);
    }
    raw.publish_with("s.a.*", "ack", &["Nats-Rollup: sub"]);
    assert_eq!(raw.message().unwrap().json()["seq"], 5);
    let info = raw.api("STREAM.INFO.S", &json!({"subjects_filter": ">"}));
    let left = json!({"s.a": 1, "s.a.*": 1, "s.b.x": 1});
    assert_eq!(info["state"]["subjects"], left, "{info}");
}

#[test]
fn the_subjects_of_a_large_stream_come_in_pages() {
    const SUBJECTS: usize = 5000;
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw, json!({"storage": "memory"}));
    let all: String = (0..SUBJECTS)
        .map(|n| format!("PUB s.{n} 1\r\nx\r\n"))
        .collect();
    raw.send(all.as_bytes()).unwrap();
    // The stream stores messages in order, so it has all messages once it has acknowledged this one.
    raw.publish("s.0", "ack", b"x").unwrap();
    assert_eq!(raw.message().unwrap().json()["seq"], SUBJECTS + 1);
    for (filter, offset, total, here) in [
        (">", 0, SUBJECTS, SUBJECTS),
        (">", 4990, SUBJECTS, 10),
        ("s.7", 0, 1, 1),
        ("q.>", 0, 0, 0),
    ] {
        let ask = json!({"subjects_filter": filter, "offset": offset});
        let info = raw.api("STREAM.INFO.S", &ask);
        assert_eq!(info["total"], total, "{filter}");
        let subjects = info["state"]["subjects"].as_object();
        assert_eq!(subjects.map_or(0, serde_json::Map::len), here, "{filter}");
    }
}
