//! Tests, by tables, that the parser reads all requests, and refuses all requests that are wrong in
//! themselves, as nats-server does. [`configs`] tests the requests with a configuration.

mod configs;

use proptest::prelude::*;

use super::*;
use crate::api::body::{InfoDetails, Placement, StreamPage};
use crate::schema::sequence::nth;

fn parse<'a>(subject: &'a str, body: &'a str) -> Result<Request<'a>, Refusal> {
    parse_with(subject, b"", body)
}

fn parse_with<'a>(subject: &'a str, headers: &[u8], body: &'a str) -> Result<Request<'a>, Refusal> {
    let subject = format!("$JS.API.{subject}");
    let subject: &'a [u8] = subject.into_bytes().leak();
    Request::parse(strip(subject, None).unwrap(), headers, body.as_bytes())
}

/// Returns the answer to a refused request: the middle of its type, the number of the error, and the error's
/// text, for comparison.
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
fn requests_without_a_server() {
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
        ("STREAM.PEER.REMOVE.S", "stream_remove_peer", 10010),
        ("SERVER.REMOVE", "system", 10010),
        ("STREAM.SNAPSHOT.S", "stream_snapshot", 10003),
        ("STREAM.RESTORE.S", "stream_restore", 10003),
        ("CONSUMER.UNPIN.S.C", "consumer_unpin", 10003),
    ] {
        let (k, c, _) = refused(subject, "{}");
        assert_eq!((k.as_str(), c), (kind, code), "{subject}");
    }
}

#[test]
fn backups() {
    let asked = |subject: &'static str, body: &'static str| {
        Request::parse(subject.as_bytes(), b"", body.as_bytes())
    };
    let body =
        r#"{"deliver_subject":"_INBOX.x","no_consumers":true,"chunk_size":1024,"jsck":false}"#;
    let Ok(Request::StreamSnapshot { stream, snapshot }) = asked("STREAM.SNAPSHOT.S", body) else {
        panic!("expected a request for a backup");
    };
    assert_eq!((stream, &*snapshot.deliver_subject), ("S", "_INBOX.x"));
    assert_eq!((snapshot.no_consumers, snapshot.chunk_size), (true, 1024));
    let (_, code, _) = refused("STREAM.SNAPSHOT.S", r#"{"deliver_subject":"a.*"}"#);
    assert_eq!(code, 10015);
    let body = r#"{"config":{"name":"S","subjects":["a"],"num_replicas":1},"state":{"messages":5,"first_ts":"0001-01-01T00:00:00Z"}}"#;
    let Ok(Request::StreamRestore { config }) = asked("STREAM.RESTORE.S", body) else {
        panic!("expected a request to restore");
    };
    assert_eq!(config.name, "S");
    let Ok(Request::StreamRestore { config }) = asked("STREAM.RESTORE.T", r#"{"config":{}}"#)
    else {
        panic!("expected a request to restore");
    };
    assert_eq!(config.name, "T");
    let (_, code, _) = refused("STREAM.RESTORE.T", r#"{"config":{"name":"S"}}"#);
    assert_eq!(code, 10056);
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
                    seq: nth(0),
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
                    seq: nth(2),
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
    let reset = |seq| Request::ConsumerReset {
        stream,
        consumer,
        seq: StreamSeq::new(seq),
    };
    let resets = [
        ("", 0),
        ("null", 0),
        ("{}", 0),
        (r#"{"seq":null}"#, 0),
        (r#"{"seq":18446744073709551615}"#, u64::MAX),
    ]
    .map(|(body, seq)| ("CONSUMER.RESET.S.C", body, reset(seq)));
    for (subject, body, expected) in table.into_iter().chain(resets) {
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
        ("CONSUMER.RESET.S.C", r#"{"x":1}"#, "consumer_reset", 10025),
        ("CONSUMER.RESET.S.C", "1", "consumer_reset", 10025),
        (
            "CONSUMER.RESET.S.C",
            r#"{"seq":-1}"#,
            "consumer_reset",
            10025,
        ),
    ] {
        let (k, c, _) = refused(subject, body);
        assert_eq!((k.as_str(), c), (kind, code), "{subject} {body}");
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

proptest! {
    /// Tests that the parser turns any input into a request or an answer, and never panics.
    #[test]
    fn anything(
        family in prop::sample::select(vec![
            "INFO", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.INFO.S", "STREAM.PURGE.S", "STREAM.MSG.GET.S",
            "CONSUMER.CREATE.S.C", "CONSUMER.CREATE.S.C.f", "CONSUMER.PAUSE.S.C", "CONSUMER.RESET.S.C", "DIRECT.GET.S", "DIRECT.GET.S.a", "",
        ]),
        tail in "[.A-Z*>/ -~]{0,12}",
        headers in prop::collection::vec(any::<u8>(), 0..60),
        fields in prop::collection::vec(
            (prop::sample::select(vec![
                "name", "stream_name", "config", "metadata", "mirror", "max_msgs", "seq", "batch", "multi_last", "pause_until",
                "backoff", "action", "pedantic", "consumer_limits", "persist_mode", "priority_policy", "x",
            ]),
            prop::sample::select(vec![
                "null", "1", "-1", "1e300", "\"S\"", "\"\"", "true", "[]", "[\"a\"]", "{}", "{\"name\":\"C\"}", "[[[", "\"\\ud800\"",
            ])),
            0..5,
        ),
    ) {
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let (subject, body) = (format!("{family}{tail}"), format!("{{{}}}", fields.join(",")));
        match Request::parse(subject.as_bytes(), &headers, body.as_bytes()) {
            Ok(_) => {}
            Err(Refusal::Error(kind, error)) => prop_assert!(kind.ends_with("_response") && error.err_code > 10_000),
            Err(Refusal::Status(block)) => prop_assert!(block.starts_with(b"NATS/1.0 4") && block.ends_with(b"\r\n\r\n")),
        }
    }
}

#[test]
fn another_leader() {
    let to = |kind, stream, consumer, cluster: &str, preferred: &str| {
        let (cluster, preferred) = (cluster.to_owned(), preferred.to_owned());
        Ok(Request::StepDown {
            kind,
            stream,
            consumer,
            to: Placement {
                cluster,
                preferred,
                ..Placement::default()
            },
        })
    };
    assert_eq!(
        parse("META.LEADER.STEPDOWN", ""),
        to(Kind::MetaStepDown, "", "", "", "")
    );
    assert_eq!(
        parse(
            "STREAM.LEADER.STEPDOWN.S",
            r#"{"placement":{"cluster":"c","preferred":"n2"}}"#
        ),
        to(Kind::StreamStepDown, "S", "", "c", "n2")
    );
    assert_eq!(
        parse("CONSUMER.LEADER.STEPDOWN.S.C", "{}"),
        to(Kind::ConsumerStepDown, "S", "C", "", "")
    );
    let tags = parse("META.LEADER.STEPDOWN", r#"{"placement":{"tags":["ssd"]}}"#);
    let Ok(Request::StepDown { to, .. }) = tags else {
        panic!("{tags:?}");
    };
    assert_eq!(to.tags, ["ssd"]);
}
