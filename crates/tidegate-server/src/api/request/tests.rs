//! Every request and every refusal that needs nothing but the request, by table.

use super::*;
use crate::api::body::{InfoDetails, StreamPage};

fn parse<'a>(subject: &'a str, body: &'a str) -> Result<Request<'a>, Refusal> {
    parse_with(subject, b"", body)
}

fn parse_with<'a>(subject: &'a str, headers: &[u8], body: &'a str) -> Result<Request<'a>, Refusal> {
    let subject = format!("$JS.API.{subject}");
    let subject: &'a [u8] = subject.into_bytes().leak();
    Request::parse(strip(subject, None).unwrap(), headers, body.as_bytes())
}

/// What a refused request is answered: the type's middle, the number and the text.
fn refused(subject: &str, body: &str) -> (String, u16, String) {
    match parse(subject, body) {
        Err(Refusal::Error(kind, error)) => {
            let kind = kind.strip_prefix("io.nats.jetstream.api.v1.").unwrap();
            let kind = kind.strip_suffix("_response").unwrap();
            (
                kind.to_owned(),
                error.err_code,
                error.description.into_owned(),
            )
        }
        other => panic!("{subject} {body}: {other:?}"),
    }
}

#[test]
fn subjects_of_the_api() {
    assert_eq!(strip(b"$JS.API.INFO", None), Some(&b"INFO"[..]));
    assert_eq!(strip(b"$JS.hub.API.INFO", Some("hub")), Some(&b"INFO"[..]));
    assert_eq!(strip(b"$JS.API.INFO", Some("hub")), Some(&b"INFO"[..]));
    for other in [
        "$JS.hub.API.INFO",
        "$JS.APIS.INFO",
        "$JS.ACK.S.C",
        "JS.API.INFO",
        "",
        "$JS.",
        "$JS.API",
    ] {
        assert_eq!(strip(other.as_bytes(), None), None, "{other}");
    }
    assert_eq!(strip(b"$JS.hubs.API.INFO", Some("hub")), None);
}

#[test]
fn nobody_serves() {
    for subject in [
        "FOO",
        "INFO.X",
        "STREAM",
        "STREAM.ZZZ",
        "STREAM.ZZZ.S",
        "STREAM.CREATE",
        "STREAM.CREATE.a.b",
        "STREAM.NAMES.S",
        "STREAM.MSG.S",
        "STREAM.MSG.PUT.S",
        "STREAM.MSG.GET",
        "CONSUMER",
        "CONSUMER.INFO.S",
        "CONSUMER.INFO.S.C.D",
        "CONSUMER.NAMES",
        "CONSUMER.NAMES.S.C",
        "CONSUMER.CREATE",
        "CONSUMER.DURABLE.CREATE.S",
        "CONSUMER.DURABLE.CREATE.S.C.D",
        "CONSUMER.MSG.NEXT.S",
        "CONSUMER.MSG.NEXT.S.C.D",
        "DIRECT.GET",
        "DIRECT.PUT.S",
        "STREAM..S",
        "STREAM.INFO.",
        ".",
        "",
    ] {
        let expected = ("system".into(), 10003, "bad request".into());
        assert_eq!(refused(subject, ""), expected, "{subject}");
    }
    assert_eq!(
        Request::parse(b"STREAM.INFO.\xff", b"", b""),
        Err(Refusal::Error(SYSTEM, ApiError::BAD_REQUEST))
    );
}

#[test]
fn served_elsewhere() {
    for (subject, kind, code) in [
        ("STREAM.LEADER.STEPDOWN.S", "stream_leader_stepdown", 10010),
        (
            "CONSUMER.LEADER.STEPDOWN.S.C",
            "consumer_leader_stepdown",
            10010,
        ),
        ("STREAM.PEER.REMOVE.S", "stream_remove_peer", 10010),
        ("META.LEADER.STEPDOWN", "system", 10010),
        ("SERVER.REMOVE", "system", 10010),
        ("STREAM.SNAPSHOT.S", "stream_snapshot", 10003),
        ("STREAM.RESTORE.S", "stream_restore", 10003),
        ("CONSUMER.UNPIN.S.C", "consumer_unpin", 10003),
        ("CONSUMER.RESET.S.C", "consumer_reset", 10003),
    ] {
        let (k, c, _) = refused(subject, "{}");
        assert_eq!((k.as_str(), c), (kind, code), "{subject}");
    }
    let (_, _, text) = refused("STREAM.SNAPSHOT.S", "{}");
    assert_eq!(
        text,
        "bad request: STREAM.SNAPSHOT is not supported by this server"
    );
}

#[test]
fn requests_without_a_configuration() {
    let (stream, consumer) = ("S", "C");
    let table: Vec<(&str, &str, Request<'_>)> = vec![
        ("INFO", "", Request::AccountInfo),
        (
            "STREAM.INFO.S",
            "",
            Request::StreamInfo {
                stream,
                details: InfoDetails::default(),
            },
        ),
        (
            "STREAM.INFO.S",
            "hello",
            Request::StreamInfo {
                stream,
                details: InfoDetails::default(),
            },
        ),
        (
            "STREAM.INFO.S",
            r#"{"offset":3,"deleted_details":true,"subjects_filter":">"}"#,
            Request::StreamInfo {
                stream,
                details: InfoDetails {
                    offset: 3,
                    deleted_details: true,
                    subjects_filter: ">".into(),
                },
            },
        ),
        (
            "STREAM.NAMES",
            "",
            Request::StreamNames(StreamPage::default()),
        ),
        (
            "STREAM.LIST",
            r#"{"offset":-1,"subject":"a.*"}"#,
            Request::StreamList(StreamPage {
                offset: -1,
                subject: "a.*".into(),
            }),
        ),
        ("STREAM.DELETE.S", "{}", Request::StreamDelete { stream }),
        (
            "STREAM.PURGE.S",
            "",
            Request::StreamPurge {
                stream,
                purge: PurgeRequest::default(),
            },
        ),
        (
            "STREAM.PURGE.S",
            r#"{"filter":"a","keep":2}"#,
            Request::StreamPurge {
                stream,
                purge: PurgeRequest {
                    filter: "a".into(),
                    seq: 0,
                    keep: 2,
                },
            },
        ),
        (
            "STREAM.MSG.DELETE.S",
            r#"{"seq":2,"no_erase":true}"#,
            Request::MessageDelete {
                stream,
                delete: DeleteRequest {
                    seq: 2,
                    no_erase: true,
                },
            },
        ),
        (
            "CONSUMER.INFO.S.C",
            "",
            Request::ConsumerInfo { stream, consumer },
        ),
        (
            "CONSUMER.DELETE.S.C",
            "{}",
            Request::ConsumerDelete { stream, consumer },
        ),
        (
            "CONSUMER.NAMES.S",
            r#"{"offset":-7}"#,
            Request::ConsumerNames { stream, offset: 0 },
        ),
        (
            "CONSUMER.LIST.S",
            r#"{"offset":7}"#,
            Request::ConsumerList { stream, offset: 7 },
        ),
        (
            "CONSUMER.PAUSE.S.C",
            "",
            Request::ConsumerPause {
                stream,
                consumer,
                until: None,
            },
        ),
        (
            "CONSUMER.PAUSE.S.C",
            r#"{"pause_until":"0001-01-01T00:00:00Z"}"#,
            Request::ConsumerPause {
                stream,
                consumer,
                until: None,
            },
        ),
        (
            "CONSUMER.PAUSE.S.C",
            r#"{"pause_until":"2030-01-01T00:00:00Z"}"#,
            Request::ConsumerPause {
                stream,
                consumer,
                until: Timestamp::parse("2030-01-01T00:00:00Z"),
            },
        ),
        (
            "CONSUMER.MSG.NEXT.S.C",
            "whatever",
            Request::ConsumerNext { stream, consumer },
        ),
    ];
    for (subject, body, expected) in table {
        assert_eq!(parse(subject, body).unwrap(), expected, "{subject} {body}");
    }
}

#[test]
fn bodies_refused() {
    for (subject, body, kind, code) in [
        ("STREAM.INFO.S", r#"{"x":1}"#, "stream_info", 10025),
        ("STREAM.INFO.S", "[1]", "stream_info", 10025),
        ("STREAM.NAMES", r#"{"offset":"a"}"#, "stream_names", 10025),
        ("STREAM.DELETE.S", r#"{"a":1}"#, "stream_delete", 10038),
        ("STREAM.DELETE.S", "x", "stream_delete", 10038),
        (
            "STREAM.PURGE.S",
            r#"{"seq":1,"keep":1}"#,
            "stream_purge",
            10003,
        ),
        ("STREAM.PURGE.S", r#"{"seq":-1}"#, "stream_purge", 10025),
        ("STREAM.MSG.GET.S", "", "stream_msg_get", 10003),
        ("STREAM.MSG.GET.S", "{", "stream_msg_get", 10025),
        (
            "STREAM.MSG.GET.S",
            r#"{"seq":1,"zzz":1}"#,
            "stream_msg_get",
            10025,
        ),
        (
            "STREAM.MSG.GET.S",
            r#"{"seq":1,"last_by_subj":"a"}"#,
            "stream_msg_get",
            10003,
        ),
        (
            "STREAM.MSG.GET.S",
            r#"{"seq":1,"batch":2}"#,
            "stream_msg_get",
            10003,
        ),
        (
            "STREAM.MSG.GET.S",
            r#"{"no_hdr":true}"#,
            "stream_msg_get",
            10003,
        ),
        ("STREAM.MSG.DELETE.S", "{}", "stream_msg_delete", 10003),
        (
            "STREAM.MSG.DELETE.S",
            r#"{"seq":"1"}"#,
            "stream_msg_delete",
            10025,
        ),
        ("CONSUMER.INFO.S.C", r#"{"a":1}"#, "consumer_info", 10038),
        ("CONSUMER.DELETE.S.C", "1", "consumer_delete", 10038),
        (
            "CONSUMER.PAUSE.S.C",
            r#"{"pause_until":"soon"}"#,
            "consumer_pause",
            10025,
        ),
        ("CONSUMER.LIST.S", r#"{"x":1}"#, "consumer_list", 10025),
    ] {
        let (k, c, _) = refused(subject, body);
        assert_eq!((k.as_str(), c), (kind, code), "{subject} {body}");
    }
}

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
            r#"{"name":"T","num_replicas":3}"#,
            10074,
            "replicas > 1 not supported in non-clustered mode",
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
    // What is there in nats-server and not here, each by its name.
    for (field, value) in [
        ("mirror", r#"{"name":"A"}"#),
        ("sources", r#"[{"name":"A"}]"#),
        ("republish", r#"{"src":">","dest":"r.>"}"#),
        ("subject_transform", r#"{"src":">","dest":"r.>"}"#),
        ("allow_msg_counter", "true"),
        ("allow_msg_schedules", "true"),
        ("placement", r#"{"cluster":"c"}"#),
        ("persist_mode async", ""),
        ("retention interest", ""),
        ("retention workqueue", ""),
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
        "mirror":null,"sources":[],"republish":{},"allow_msg_counter":false,"allow_atomic":true,"num_replicas":1,"retention":"limits"}"#;
    let Request::StreamCreate { config, pedantic } = parse("STREAM.CREATE.T", body).unwrap() else {
        panic!("another request");
    };
    assert!(pedantic && config.allow_atomic && config.max_msgs == 5);
    let metadata: Vec<_> = config
        .metadata
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(metadata, [("_nats.req.level", "2"), ("a", "b")]);
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
            r#"{"stream_name":"S","config":{"num_replicas":3}}"#,
            10074,
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
        (
            "CONSUMER.CREATE.S.G",
            r#"{"stream_name":"S","config":{"ack_policy":"flow_control"}}"#,
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
                assert_eq!(config.metadata["_nats.req.level"], "0");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn levels() {
    let headers = b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n";
    for (subject, kind) in [
        ("INFO", Kind::AccountInfo),
        ("STREAM.DELETE.S", Kind::StreamDelete),
    ] {
        assert_eq!(
            parse_with(subject, headers, ""),
            Err(Refusal::Error(kind.as_str(), ApiError::REQUIRED_API_LEVEL))
        );
    }
    for subject in ["CONSUMER.MSG.NEXT.S.C", "DIRECT.GET.S"] {
        assert_eq!(
            parse_with(subject, headers, "1"),
            Err(Refusal::Status(status::REQUIRED_API_LEVEL))
        );
    }
    let enough = b"NATS/1.0\r\nNats-Required-Api-Level: 2\r\n\r\n";
    assert_eq!(parse_with("INFO", enough, ""), Ok(Request::AccountInfo));
}

#[test]
fn direct_gets() {
    for (subject, body, expected) in [
        ("DIRECT.GET.S", "", status::EMPTY_REQUEST),
        ("DIRECT.GET.S", "{}", status::EMPTY_REQUEST),
        ("DIRECT.GET.S", r#"{"batch":5}"#, status::EMPTY_REQUEST),
        ("DIRECT.GET.S", "{", status::MALFORMED_REQUEST),
        ("DIRECT.GET.S", r#"{"seq":"1"}"#, status::MALFORMED_REQUEST),
        (
            "DIRECT.GET.S",
            r#"{"seq":1,"last_by_subj":"a"}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"last_by_subj":"a","batch":2}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"next_by_subj":"a","multi_last":["b"]}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"seq":1,"start_time":"2030-01-01T00:00:00Z"}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"multi_last":["a"],"up_to_seq":1,"up_to_time":"2030-01-01T00:00:00Z"}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"seq":1,"batch":-1}"#,
            status::BAD_REQUEST,
        ),
        (
            "DIRECT.GET.S",
            r#"{"last_by_subj":"a..b"}"#,
            status::BAD_REQUEST,
        ),
        ("DIRECT.GET.S.a", r#"{"seq":1}"#, status::BAD_REQUEST),
        ("DIRECT.GET.S.a", "x", status::MALFORMED_REQUEST),
    ] {
        assert_eq!(
            parse(subject, body),
            Err(Refusal::Status(expected)),
            "{subject} {body}"
        );
    }
    for (subject, body) in [
        ("DIRECT.GET.S", r#"{"seq":1,"zzz":1}"#),
        ("DIRECT.GET.S", r#"{"start_time":"2020-01-01T00:00:00Z"}"#),
        (
            "DIRECT.GET.S",
            r#"{"multi_last":["a.>","b"],"batch":3,"up_to_seq":9}"#,
        ),
        ("DIRECT.GET.S.a.b", ""),
        ("DIRECT.GET.S.a.b", r#"{"no_hdr":true}"#),
    ] {
        let get = parse(subject, body);
        assert!(
            matches!(get, Ok(Request::DirectGet { stream: "S", .. })),
            "{subject} {body} {get:?}"
        );
    }
}
