//! Tests that the parser reads requests with a configuration of a stream or a consumer, and refuses wrong
//! ones as nats-server does.

use super::*;
use crate::schema::config::Retention;

#[test]
fn streams_refused() {
    let name = "x".repeat(256);
    let long = (
        format!("STREAM.CREATE.{name}"),
        format!(r#"{{"name":"{name}"}}"#),
    );
    for (subject, body, code, text) in [
        (
            "STREAM.CREATE.T",
            "",
            10056,
            "stream name in subject does not match request",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"S"}"#,
            10056,
            "stream name in subject does not match request",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","foo":1}"#,
            10025,
            "invalid JSON: json: unknown field \"foo\"",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","pedantic":1}"#,
            10025,
            "invalid JSON: pedantic: expected true or false",
        ),
        (
            "STREAM.CREATE.a/b",
            r#"{"name":"a/b"}"#,
            10128,
            "Stream name can not contain path separators",
        ),
        (
            &long.0,
            &long.1,
            10052,
            "stream name is too long, maximum allowed is 255",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","sealed":true}"#,
            10052,
            "stream configuration for create can not be sealed",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","mirror_direct":true}"#,
            10052,
            "stream has no mirror but does have mirror direct",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","num_replicas":6}"#,
            10052,
            "maximum replicas is 5",
        ),
        (
            "STREAM.CREATE.T",
            r#"{"name":"T","num_replicas":-1}"#,
            10133,
            "replicas count cannot be negative",
        ),
    ] {
        let expected = ("stream_create".into(), code, text.into());
        assert_eq!(refused(subject, body), expected);
    }
    // The fields that nats-server has and this server does not support, and which the parser must refuse by
    // name.
    for (field, value) in [
        ("allow_msg_counter", "true"),
        ("allow_msg_schedules", "true"),
        ("compression s2", ""),
    ] {
        let body = match field.split_once(' ') {
            Some((field, value)) => format!(r#"{{"name":"T","{field}":"{value}"}}"#),
            None => format!(r#"{{"name":"T","{field}":{value}}}"#),
        };
        for verb in ["CREATE", "UPDATE"] {
            let (_, code, text) = refused(&format!("STREAM.{verb}.T"), &body);
            assert_eq!(
                (code, text),
                (10052, format!("{field} is not supported by this server"))
            );
        }
    }
}

#[test]
fn streams_accepted() {
    let body = r#"{"name":"T","subjects":["t.>"],"max_msgs":5,"pedantic":true,"metadata":{"a":"b","_nats.ver":"9"},"persist_mode":"default","placement":{},
        "mirror":null,"sources":[],"republish":null,"allow_msg_counter":false,"allow_atomic":true,"num_replicas":1,"retention":"limits"}"#;
    let Request::StreamCreate { config, pedantic } = parse("STREAM.CREATE.T", body).unwrap() else {
        panic!("the parser read another kind of request");
    };
    assert!(pedantic && config.allow_atomic && config.max_msgs == 5);
    let metadata: Vec<_> = config.metadata.iter().collect();
    assert_eq!(metadata, [("_nats.req.level", "2"), ("a", "b")]);
    let body = r#"{"name":"T","subject_transform":{"src":"t.*","dest":"u.$1"},"republish":{"dest":"r.>","headers_only":true}}"#;
    let Request::StreamCreate { config, .. } = parse("STREAM.CREATE.T", body).unwrap() else {
        panic!("the parser read another kind of request");
    };
    let shown = serde_json::to_value(&config).unwrap();
    let expected: serde_json::Value = serde_json::from_str(body).unwrap();
    for field in ["subject_transform", "republish"] {
        assert_eq!(shown[field], expected[field]);
    }
    let body = r#"{"name":"T","persist_mode":"async","placement":{"cluster":"c"}}"#;
    let Request::StreamCreate { config, .. } = parse("STREAM.CREATE.T", body).unwrap() else {
        panic!("the parser read another kind of request");
    };
    let shown = serde_json::to_value(&config).unwrap();
    assert_eq!(
        (&shown["persist_mode"], &shown["placement"]["cluster"]),
        (&"async".into(), &"c".into())
    );
    assert_eq!(
        config.metadata.iter().next(),
        Some(("_nats.req.level", "2"))
    );
    let (_, _, text) = refused(
        "STREAM.CREATE.T",
        r#"{"name":"T","persist_mode":"sometimes"}"#,
    );
    assert!(text.contains("`sometimes`"), "{text}");
    for (text, retention) in [
        ("interest", Retention::Interest),
        ("workqueue", Retention::WorkQueue),
    ] {
        let body = format!(r#"{{"name":"T","retention":"{text}"}}"#);
        let made = parse("STREAM.CREATE.T", &body);
        assert!(
            matches!(made, Ok(Request::StreamCreate { config, .. }) if config.retention == retention)
        );
    }
    let sealed = parse("STREAM.UPDATE.T", r#"{"name":"T","sealed":true}"#);
    assert!(matches!(sealed, Ok(Request::StreamUpdate { config, .. }) if config.sealed));
}

#[test]
fn consumers_refused() {
    let long = format!("CONSUMER.CREATE.S.{}", "x".repeat(256));
    for (subject, body, code) in [
        ("CONSUMER.CREATE.S.C", "", 10056),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"T","config":{}}"#,
            10056,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":{"zz":1}}"#,
            10025,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":{},"zz":1}"#,
            10025,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":{},"action":"zz"}"#,
            10025,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":{"ack_policy":"zz"}}"#,
            10025,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":[]}"#,
            10025,
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"stream_name":"S","config":{"durable_name":"D"}}"#,
            10017,
        ),
        (
            "CONSUMER.CREATE.S.a/b",
            r#"{"stream_name":"S","config":{}}"#,
            10127,
        ),
        (
            "CONSUMER.CREATE.S.F.s.1",
            r#"{"stream_name":"S","config":{"filter_subject":"s.2"}}"#,
            10131,
        ),
        (
            "CONSUMER.CREATE.S.F.s.1",
            r#"{"stream_name":"S","config":{"filter_subjects":["s.1"]}}"#,
            10137,
        ),
        (
            "CONSUMER.DURABLE.CREATE.S.D",
            r#"{"stream_name":"S","config":{}}"#,
            10018,
        ),
        (
            "CONSUMER.DURABLE.CREATE.S.D",
            r#"{"stream_name":"S","config":{"durable_name":"E"}}"#,
            10017,
        ),
        (
            "CONSUMER.CREATE.S",
            r#"{"stream_name":"S","config":{"durable_name":"E"}}"#,
            10020,
        ),
        (
            "CONSUMER.CREATE.S",
            r#"{"stream_name":"S","config":{"name":"a/b"}}"#,
            10127,
        ),
        (
            "CONSUMER.CREATE.S",
            r#"{"stream_name":"S","config":{"name":"a b"}}"#,
            10103,
        ),
        (
            "CONSUMER.CREATE.S",
            r#"{"stream_name":"S","config":{"name":"a.b"}}"#,
            10103,
        ),
        (
            "CONSUMER.CREATE.S.R",
            r#"{"stream_name":"S","config":{"num_replicas":-1}}"#,
            10133,
        ),
        (&long, r#"{"stream_name":"S","config":{}}"#, 10102),
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"priority_groups":["a"]}}"#,
            10012,
        ),
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"priority_policy":"overflow"}}"#,
            10012,
        ),
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"priority_timeout":5}}"#,
            10012,
        ),
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"direct":true}}"#,
            10012,
        ),
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"sourcing":true}}"#,
            10012,
        ),
    ] {
        let (kind, c, text) = refused(subject, body);
        assert_eq!(
            (kind.as_str(), c),
            ("consumer_create", code),
            "{subject} {body} {text}"
        );
    }
    let (_, _, text) = refused(
        "CONSUMER.CREATE.S.G",
        r#"{"stream_name":"S","config":{"priority_groups":["a"]}}"#,
    );
    assert_eq!(text, "priority_groups is not supported by this server");
}

#[test]
fn consumers_accepted() {
    for (subject, config, name, durable) in [
        (
            "CONSUMER.CREATE.S.C",
            r#"{"durable_name":"C","name":"X"}"#,
            "C",
            "C",
        ),
        (
            "CONSUMER.CREATE.S.C",
            r#"{"name":"X","priority_policy":"none","priority_groups":[]}"#,
            "C",
            "",
        ),
        ("CONSUMER.CREATE.S", "{}", "", ""),
        ("CONSUMER.CREATE.S", r#"{"name":"E"}"#, "E", ""),
        (
            "CONSUMER.CREATE.S.F.s.*.>",
            r#"{"filter_subject":"s.*.>"}"#,
            "F",
            "",
        ),
        (
            "CONSUMER.DURABLE.CREATE.S.D",
            r#"{"durable_name":"D"}"#,
            "D",
            "D",
        ),
    ] {
        let body = format!(r#"{{"stream_name":"S","config":{config},"action":"create"}}"#);
        let body = body.leak();
        match parse(subject, body).unwrap() {
            Request::ConsumerCreate {
                stream,
                config,
                action,
                pedantic,
            } => {
                assert_eq!((stream, action, pedantic), ("S", Action::Create, false));
                assert_eq!((&*config.name, &*config.durable_name), (name, durable));
                assert_eq!(config.metadata.get("_nats.req.level"), Some("0"));
            }
            other => panic!("{other:?}"),
        }
    }
}
