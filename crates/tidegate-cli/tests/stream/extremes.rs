//! Tests of the largest and smallest numbers that requests can have: the server refuses or accepts them as
//! nats-server does, computes nothing wrong from them, and keeps serving.

use serde_json::{Value, json};

use super::raw::Raw;
use super::server::{Server, other};

const MAX: &str = "9223372036854775807";
const MIN: &str = "-9223372036854775808";
const U64_MAX: &str = "18446744073709551615";

/// Sends a request with exactly this body, and returns the answer.
fn ask(raw: &mut Raw, what: &str, body: &str) -> Value {
    raw.publish(&format!("$JS.API.{what}"), "api", body.as_bytes())
        .unwrap();
    raw.message().unwrap().json()
}

/// Returns the number of the error in the answer to a request, or 0.
fn code(raw: &mut Raw, what: &str, body: &str) -> u64 {
    let answer = ask(raw, what, body);
    answer["error"]["err_code"].as_u64().unwrap_or(0)
}

/// Returns the number of the error that this server gives for a number that nats-server accepts.
fn ours(code: u64) -> u64 {
    match other() {
        None => code,
        Some(_) => 0,
    }
}

#[test]
fn numbers_in_the_configuration_of_a_stream() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let beyond = |text: &str| match text.starts_with('-') {
        true => "-9223372036854775809",
        false => "9223372036854775808",
    };
    let mut cases = vec![
        ("\"first_seq\":4611686018427387904".to_owned(), 0),
        (format!("\"first_seq\":{U64_MAX}"), ours(10052)),
        ("\"first_seq\":18446744073709551616".to_owned(), 10025),
        ("\"first_seq\":-1".to_owned(), 10025),
        ("\"first_seq\":1.5".to_owned(), 10025),
        ("\"max_msg_size\":2147483647".to_owned(), 0),
        ("\"max_msg_size\":-2147483648".to_owned(), 0),
        ("\"max_msg_size\":2147483648".to_owned(), 10025),
        (format!("\"max_age\":{MAX}"), 0),
        (format!("\"max_age\":{MIN}"), 10052),
        (format!("\"duplicate_window\":{MAX}"), 0),
        (format!("\"duplicate_window\":{MIN}"), 10052),
        (format!("\"num_replicas\":{MAX}"), 10052),
        (format!("\"num_replicas\":{MIN}"), 10133),
        (format!("\"subject_delete_marker_ttl\":{MAX}"), 0),
        (format!("\"subject_delete_marker_ttl\":{MIN}"), 10052),
        (
            format!(
                "\"consumer_limits\":{{\"inactive_threshold\":{MAX},\"max_ack_pending\":{MAX}}}"
            ),
            0,
        ),
    ];
    for field in ["max_msgs", "max_msgs_per_subject", "max_consumers"] {
        for number in [MAX, MIN] {
            cases.push((format!("\"{field}\":{number}"), 0));
            cases.push((format!("\"{field}\":{}", beyond(number)), 10025));
        }
    }
    cases.push((format!("\"max_bytes\":{MIN}"), 0));
    for (field, expected) in cases {
        let body = format!(r#"{{"name":"S","subjects":["s"],{field}}}"#);
        assert_eq!(
            code(&mut raw, "STREAM.CREATE.S", &body),
            expected,
            "{field}"
        );
        if expected > 0 || field.ends_with(U64_MAX) {
            code(&mut raw, "STREAM.DELETE.S", "");
            continue;
        }
        let first = match field.contains("first_seq") {
            true => 4_611_686_018_427_387_904_u64,
            false => 1,
        };
        for seq in first..first + 3 {
            raw.publish("s", "ack", b"x").unwrap();
            assert_eq!(raw.message().unwrap().json()["seq"], seq, "{field}");
        }
        if first > 1 && other().is_some() {
            // nats-server stores these messages, and does not find them again.
            code(&mut raw, "STREAM.DELETE.S", "");
            continue;
        }
        let got = ask(
            &mut raw,
            "STREAM.MSG.GET.S",
            &format!("{{\"seq\":{}}}", first + 1),
        );
        assert_eq!(got["message"]["seq"], first + 1, "{field}");
        let made = r#"{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit"}}"#;
        assert_eq!(code(&mut raw, "CONSUMER.CREATE.S.C", made), 0, "{field}");
        raw.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", "pull", b"1")
            .unwrap();
        let (seq, message) = raw.delivered().unwrap();
        assert_eq!(seq, first, "{field}");
        raw.publish(&message.reply.unwrap(), "acked", b"+ACK")
            .unwrap();
        raw.message().unwrap();
        assert_eq!(code(&mut raw, "STREAM.DELETE.S", ""), 0, "{field}");
    }
}

#[test]
fn numbers_in_the_configuration_of_a_consumer() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let stream = r#"{"name":"S","subjects":["s"]}"#;
    assert_eq!(code(&mut raw, "STREAM.CREATE.S", stream), 0);
    for _ in 0..3 {
        raw.publish("s", "ack", b"x").unwrap();
        raw.message().unwrap();
    }
    let from = r#""deliver_policy":"by_start_sequence","opt_start_seq":"#;
    let since = r#""deliver_policy":"by_start_time","opt_start_time":"#;
    let push = r#""deliver_subject":"d","idle_heartbeat":"#;
    for (fields, expected, delivers) in [
        (format!("\"ack_wait\":{MAX}"), 0, true),
        (format!("\"ack_wait\":{MIN}"), 10183, true),
        (
            format!("\"backoff\":[{MAX},{MAX}],\"max_deliver\":{MAX}"),
            0,
            true,
        ),
        (format!("\"backoff\":[{MIN}]"), 10184, true),
        (format!("\"max_deliver\":{MIN}"), 0, true),
        (
            "\"max_deliver\":9223372036854775808".to_owned(),
            10025,
            true,
        ),
        (format!("\"max_ack_pending\":{MAX}"), 0, true),
        (format!("\"max_ack_pending\":{MIN}"), 0, true),
        (
            format!("\"max_waiting\":{MAX},\"max_batch\":{MAX}"),
            0,
            true,
        ),
        (
            format!("\"max_expires\":{MAX},\"max_bytes\":{MAX}"),
            0,
            true,
        ),
        (
            format!("\"max_expires\":{MIN},\"max_bytes\":{MIN}"),
            0,
            true,
        ),
        (format!("\"inactive_threshold\":{MAX}"), 0, true),
        (format!("\"inactive_threshold\":{MIN}"), 0, true),
        (format!("{from}{U64_MAX}"), 0, false),
        (format!("{from}9223372036854775808"), 0, false),
        (format!("{from}18446744073709551616"), 10025, false),
        (
            format!("{since}\"9999-12-31T23:59:59.999999999Z\""),
            0,
            false,
        ),
        (format!("{since}\"0001-01-01T00:00:01Z\""), 0, true),
        (
            "\"pause_until\":\"9999-12-31T23:59:59Z\"".to_owned(),
            0,
            false,
        ),
        (format!("\"num_replicas\":{MAX}"), 10074, true),
        (format!("\"num_replicas\":{MIN}"), 10133, true),
        (format!("{push}{MAX}"), 0, false),
        (
            format!("{push}{MAX},\"rate_limit_bps\":{U64_MAX}"),
            0,
            false,
        ),
        (format!("\"sample_freq\":\"{MAX}%\""), 0, true),
        (
            "\"sample_freq\":\"9223372036854775808%\"".to_owned(),
            10095,
            true,
        ),
    ] {
        let body = format!(
            r#"{{"stream_name":"S","config":{{"durable_name":"C","ack_policy":"explicit",{fields}}}}}"#
        );
        let made = code(&mut raw, "CONSUMER.CREATE.S.C", &body);
        assert_eq!(made, expected, "{fields}");
        if expected > 0 {
            continue;
        }
        assert_eq!(code(&mut raw, "CONSUMER.INFO.S.C", ""), 0, "{fields}");
        if delivers {
            let pull = format!("{{\"batch\":1,\"expires\":{MAX}}}");
            raw.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", "pull", pull.as_bytes())
                .unwrap();
            let (seq, message) = raw.delivered().unwrap();
            assert_eq!(seq, 1, "{fields}");
            let later = format!("-NAK {{\"delay\":{MAX}}}");
            let reply = message.reply.unwrap();
            raw.publish(&reply, "acked", later.as_bytes()).unwrap();
            raw.message().unwrap();
            let info = ask(&mut raw, "CONSUMER.INFO.S.C", "");
            assert_eq!(info["num_ack_pending"], 1, "{fields}: {info}");
        }
        assert_eq!(code(&mut raw, "CONSUMER.DELETE.S.C", ""), 0, "{fields}");
    }
}

#[test]
fn numbers_in_requests() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let stream = r#"{"name":"S","subjects":["s"],"allow_direct":true,"allow_msg_ttl":true}"#;
    assert_eq!(code(&mut raw, "STREAM.CREATE.S", stream), 0);
    for _ in 0..3 {
        raw.publish("s", "ack", b"x").unwrap();
        raw.message().unwrap();
    }
    let config = json!({"durable_name": "C", "ack_policy": "explicit"});
    let made = json!({"stream_name": "S", "config": config}).to_string();
    assert_eq!(code(&mut raw, "CONSUMER.CREATE.S.C", &made), 0);
    let last = format!("{{\"seq\":{U64_MAX}}}");
    for (what, body, expected) in [
        ("STREAM.MSG.GET.S", last.clone(), 10037),
        (
            "STREAM.MSG.GET.S",
            format!("{{\"seq\":{U64_MAX},\"next_by_subj\":\"s\"}}"),
            10037,
        ),
        ("STREAM.MSG.DELETE.S", last.clone(), 10057),
        ("STREAM.PURGE.S", format!("{{\"keep\":{U64_MAX}}}"), 0),
        ("CONSUMER.RESET.S.C", last.clone(), ours(10204)),
        (
            "CONSUMER.PAUSE.S.C",
            r#"{"pause_until":"9999-12-31T23:59:59.999999999Z"}"#.to_owned(),
            0,
        ),
        ("STREAM.NAMES", format!("{{\"offset\":{MAX}}}"), 0),
        ("STREAM.INFO.S", format!("{{\"offset\":{MAX}}}"), 0),
    ] {
        assert_eq!(code(&mut raw, what, &body), expected, "{what} {body}");
    }
    for (headers, expected) in [
        (
            vec![format!("Nats-Expected-Last-Sequence: {U64_MAX}")],
            10071,
        ),
        (vec!["Nats-TTL: 9223372036s".to_owned()], 0),
        (vec![format!("Nats-TTL: {MAX}s")], 10165),
    ] {
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        raw.publish_with("s", "ack", &lines);
        let answer = raw.message().unwrap().json();
        let code = answer["error"]["err_code"].as_u64().unwrap_or(0);
        assert_eq!(code, expected, "{headers:?}: {answer}");
    }
    for body in [
        last.clone(),
        format!("{{\"seq\":{U64_MAX},\"batch\":{MAX},\"max_bytes\":{MAX}}}"),
        format!("{{\"multi_last\":[\"none\"],\"up_to_seq\":{U64_MAX}}}"),
    ] {
        raw.publish("$JS.API.DIRECT.GET.S", "got", body.as_bytes())
            .unwrap();
        let answer = raw.message().unwrap();
        let status = answer
            .headers()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        assert!(status.starts_with("NATS/1.0 404"), "{body}: {status}");
    }
    if other().is_none() {
        // nats-server gives such a number to the next message, and this server refuses the purge.
        let purge = code(&mut raw, "STREAM.PURGE.S", &last);
        assert_eq!(purge, 10003);
    }
    let info = ask(&mut raw, "STREAM.INFO.S", "");
    assert_eq!(info["state"]["messages"], 4, "{info}");
}

#[test]
fn a_source_that_begins_beyond_all_numbers_waits() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    assert_eq!(
        code(
            &mut raw,
            "STREAM.CREATE.O",
            r#"{"name":"O","subjects":["o"]}"#
        ),
        0
    );
    raw.publish("o", "ack", b"x").unwrap();
    raw.message().unwrap();
    for number in [U64_MAX, "9223372036854775808", MAX] {
        let body = format!(r#"{{"name":"F","sources":[{{"name":"O","opt_start_seq":{number}}}]}}"#);
        assert_eq!(code(&mut raw, "STREAM.CREATE.F", &body), 0, "{number}");
        let info = super::origins::comes_to(&mut raw, "F", |info| {
            info["sources"][0]["active"].as_i64() >= Some(0)
        });
        assert_eq!(info["state"]["messages"], 0, "{info}");
        assert!(info["sources"][0].get("error").is_none(), "{info}");
        assert_eq!(code(&mut raw, "STREAM.DELETE.F", ""), 0);
    }
}
