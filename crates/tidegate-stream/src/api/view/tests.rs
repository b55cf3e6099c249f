//! Tests that each answer has the bytes of nats-server 2.15.2, because clients read the fields: all fields in
//! that order, except for the server's version.

use std::collections::BTreeMap;

use super::*;
use crate::api::answer;
use crate::consumer::Message;
use crate::schema::sequence::nth;

const VERSION: &str = "2.12.0";
const CREATED: u64 = 1_795_316_806_996_994;

struct Shown {
    config: StreamConfig,
    counts: StreamCounts,
    subjects: BTreeMap<String, u64>,
}

impl StreamView for Shown {
    fn config(&self) -> &StreamConfig {
        &self.config
    }

    fn created_us(&self) -> u64 {
        CREATED
    }

    fn counts(&self) -> StreamCounts {
        self.counts
    }

    fn deleted(&self, limit: usize) -> Vec<StreamSeq> {
        [nth(2)].into_iter().take(limit).collect()
    }

    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64)) {
        // The view yields the subjects out of order, because the answer must sort them.
        for (subject, count) in self.subjects.iter().rev() {
            if tidegate_nats::subject::contains(pattern, subject.as_bytes()) {
                each(subject.as_bytes(), *count);
            }
        }
    }
}

fn shown(name: &str, subjects: &[&str]) -> Shown {
    let mut config = StreamConfig {
        name: name.into(),
        subjects: subjects.iter().map(ToString::to_string).collect(),
        max_consumers: -1,
        max_msgs: -1,
        max_bytes: -1,
        max_msgs_per_subject: -1,
        max_msg_size: -1,
        num_replicas: 1,
        duplicate_window: 120_000_000_000,
        allow_direct: true,
        allow_batched: true,
        ..StreamConfig::default()
    };
    level::mark_stream(&mut config);
    Shown {
        config,
        counts: StreamCounts::default(),
        subjects: BTreeMap::new(),
    }
}

/// Returns the cluster information of a single node, for the tests' answers.
fn alone() -> &'static ClusterInfo {
    static ALONE: std::sync::LazyLock<ClusterInfo> = std::sync::LazyLock::new(|| ClusterInfo {
        leader: "n1".into(),
        ..ClusterInfo::default()
    });
    &ALONE
}

fn server() -> Server<'static> {
    Server {
        version: VERSION,
        domain: None,
        cluster: alone(),
        now: Timestamp::parse("2026-11-22T03:06:47Z").unwrap(),
    }
}

fn text(answer: Vec<u8>) -> String {
    let text = String::from_utf8(answer).unwrap();
    serde_json::from_str::<Value>(&text).unwrap();
    text
}

const CONFIG: &str = r#""config":{"name":"S","subjects":["s.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":120000000000,"compression":"none","allow_direct":true,"mirror_direct":false,"sealed":false,"deny_delete":false,"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{},"allow_msg_ttl":false,"allow_batched":true,"metadata":{"_nats.level":"4","_nats.req.level":"4","_nats.ver":"2.12.0"}},"created":"2026-11-22T03:06:46.996994Z""#;
const EMPTY: &str = r#""state":{"messages":0,"bytes":0,"first_seq":0,"first_ts":"0001-01-01T00:00:00Z","last_seq":0,"last_ts":"0001-01-01T00:00:00Z","consumer_count":0}"#;
/// The end of an answer that has only the time, because a single server leaves out its cluster there.
const ALONE: &str = r#""ts":"2026-11-22T03:06:47Z""#;
const TS: &str = r#""cluster":{"leader":"n1"},"ts":"2026-11-22T03:06:47Z""#;

#[test]
fn streams_made_and_changed() {
    let made = stream_changed(Kind::StreamCreate, &server(), &shown("S", &["s.>"]));
    assert_eq!(
        text(made),
        format!(
            r#"{{"type":"io.nats.jetstream.api.v1.stream_create_response",{CONFIG},{EMPTY},{ALONE},"did_create":true}}"#
        )
    );
    let changed = stream_changed(Kind::StreamUpdate, &server(), &shown("S", &["s.>"]));
    assert_eq!(
        text(changed),
        format!(
            r#"{{"type":"io.nats.jetstream.api.v1.stream_update_response",{CONFIG},{EMPTY},{ALONE}}}"#
        )
    );
}

#[test]
fn a_stream_in_detail() {
    let mut stream = shown("S", &["s.>"]);
    stream.counts = StreamCounts {
        messages: 3,
        bytes: 127,
        first_seq: nth(1),
        first_us: Some(CREATED),
        last_seq: nth(4),
        last_us: Some(CREATED + 6),
        subjects: 2,
        deleted: 1,
        consumers: 5,
    };
    stream.subjects = [("s.0".to_owned(), 1), ("s.2".to_owned(), 2)].into();
    let details = InfoDetails {
        offset: 0,
        deleted_details: true,
        subjects_filter: "s.*".into(),
    };
    let state = r#""state":{"messages":3,"bytes":127,"first_seq":1,"first_ts":"2026-11-22T03:06:46.996994Z","last_seq":4,"last_ts":"2026-11-22T03:06:46.997Z","num_subjects":2,"subjects":{"s.0":1,"s.2":2},"num_deleted":1,"deleted":[2],"consumer_count":5}"#;
    assert_eq!(
        text(stream_info(&server(), &stream, &details).unwrap()),
        format!(
            r#"{{"type":"io.nats.jetstream.api.v1.stream_info_response","total":2,"offset":0,"limit":100000,{CONFIG},{state},{TS}}}"#
        )
    );
    // The client asks for the second page, and then for subjects that the stream does not have.
    let page = InfoDetails {
        offset: 1,
        deleted_details: false,
        subjects_filter: ">".into(),
    };
    let second = text(stream_info(&server(), &stream, &page).unwrap());
    assert!(
        second.contains(r#""total":2,"offset":1,"#) && second.contains(r#""subjects":{"s.2":2}"#)
    );
    let none = InfoDetails {
        subjects_filter: "q".into(),
        ..InfoDetails::default()
    };
    let none = text(stream_info(&server(), &stream, &none).unwrap());
    assert!(
        none.contains(r#""total":0,"offset":0,"limit":0,"#) && !none.contains(r#""subjects":{"#)
    );
    stream.counts.deleted = 1_000_001;
    let error = stream_info(&server(), &stream, &details).unwrap_err();
    assert_eq!(error.err_code, 10051);
}

#[test]
fn the_domain_is_named() {
    let server = Server {
        domain: Some("hub"),
        ..server()
    };
    let stream = shown("S", &["s.>"]);
    let info = text(stream_info(&server, &stream, &InfoDetails::default()).unwrap());
    assert!(info.contains(r#","domain":"hub","cluster":{"leader":"n1"},"ts":"#));
}

#[test]
fn lists_of_streams() {
    let names = text(stream_names(Page::new(5, 3, 1024), ["A", "B"].into_iter()));
    let head = r#"{"type":"io.nats.jetstream.api.v1.stream_names_response","total":"#;
    assert_eq!(
        names,
        format!(r#"{head}5,"offset":3,"limit":1024,"streams":["A","B"]}}"#)
    );
    let streams = [shown("S", &["s.>"])];
    let page = Page::new(1, 0, LIST_MAX);
    let list = text(stream_list(&server(), page, streams.iter()));
    let head = r#"{"type":"io.nats.jetstream.api.v1.stream_list_response","total":1,"offset":0,"limit":256,"streams":"#;
    assert_eq!(list, format!(r#"{head}[{{{CONFIG},{EMPTY},{TS}}}]}}"#));
}

struct Follower(&'static str, ConsumerConfig, ConsumerCounts);

impl ConsumerView for Follower {
    fn name(&self) -> &str {
        self.0
    }

    fn config(&self) -> ConsumerConfig {
        self.1.clone()
    }

    fn created_us(&self) -> u64 {
        CREATED
    }

    fn counts(&self) -> ConsumerCounts {
        self.2
    }
}

fn follower(name: &'static str) -> Follower {
    let mut config = ConsumerConfig {
        name: name.into(),
        max_deliver: -1,
        max_waiting: 512,
        ..ConsumerConfig::default()
    };
    level::mark_consumer(&mut config);
    let at = Sequences {
        consumer_seq: crate::consumer::ConsumerSeq::default(),
        stream_seq: StreamSeq::new(2),
        last_active: None,
    };
    Follower(
        name,
        config,
        ConsumerCounts {
            delivered: at,
            ack_floor: at,
            pending: 1,
            ..ConsumerCounts::default()
        },
    )
}

const CONSUMER: &str = r#""stream_name":"S","name":"E","created":"2026-11-22T03:06:46.996994Z","config":{"name":"E","deliver_policy":"all","ack_policy":"none","max_deliver":-1,"replay_policy":"instant","max_waiting":512,"num_replicas":0,"metadata":{"_nats.level":"4","_nats.req.level":"0","_nats.ver":"2.12.0"}},"delivered":{"consumer_seq":0,"stream_seq":2},"ack_floor":{"consumer_seq":0,"stream_seq":2},"num_ack_pending":0,"num_redelivered":0,"num_waiting":0,"num_pending":1,"cluster":{"leader":"n1"},"ts":"2026-11-22T03:06:47Z""#;

#[test]
fn consumers_in_detail() {
    for (kind, name) in [
        (Kind::ConsumerCreate, "consumer_create"),
        (Kind::ConsumerInfo, "consumer_info"),
    ] {
        assert_eq!(
            text(consumer_info(kind, &server(), "S", &follower("E"))),
            format!(r#"{{"type":"io.nats.jetstream.api.v1.{name}_response",{CONSUMER}}}"#)
        );
    }
    let mut busy = follower("E");
    busy.1.pause_until = Timestamp::parse("2026-11-22T03:06:48Z");
    busy.2.push_bound = true;
    busy.2.delivered.last_active = Some(Timestamp::from_micros(CREATED));
    let busy = text(consumer_info(Kind::ConsumerInfo, &server(), "S", &busy));
    assert!(
        busy.contains(r#""stream_seq":2,"last_active":"2026-11-22T03:06:46.996994Z"}"#),
        "{busy}"
    );
    assert!(
        busy.contains(r#""push_bound":true,"paused":true,"pause_remaining":1000000000,"cluster":{"leader":"n1"},"ts":"#),
        "{busy}"
    );
}

#[test]
fn lists_of_consumers() {
    let names = text(consumer_names(
        Page::new(2, 0, NAMES_MAX),
        ["a", "b"].into_iter(),
    ));
    let head = r#"{"type":"io.nats.jetstream.api.v1.consumer_names_response","total":2,"offset":"#;
    assert_eq!(
        names,
        format!(r#"{head}0,"limit":1024,"consumers":["a","b"]}}"#)
    );
    let consumers = [follower("E")];
    let page = Page::new(1, 0, LIST_MAX);
    let list = text(consumer_list(&server(), "S", page, consumers.iter()));
    let head = r#"{"type":"io.nats.jetstream.api.v1.consumer_list_response","total":1,"offset":0,"limit":256,"consumers":"#;
    assert_eq!(list, format!("{head}[{{{CONSUMER}}}]}}"));
}

#[test]
fn short_answers() {
    let v1 = |name: &str, rest: &str| {
        format!(r#"{{"type":"io.nats.jetstream.api.v1.{name}_response",{rest}}}"#)
    };
    assert_eq!(
        text(answer::success(Kind::StreamDelete)),
        v1("stream_delete", r#""success":true"#)
    );
    assert_eq!(
        text(answer::purged(3)),
        v1("stream_purge", r#""success":true,"purged":3"#)
    );
    assert_eq!(
        text(answer::refused(
            Kind::StreamInfo.as_str(),
            &ApiError::STREAM_NOT_FOUND
        )),
        v1(
            "stream_info",
            r#""error":{"code":404,"err_code":10059,"description":"stream not found"}"#
        )
    );
    let now = Timestamp::parse("2026-11-22T03:06:47Z").unwrap();
    let until = Timestamp::parse("2030-01-01T00:00:00Z");
    assert_eq!(
        text(answer::paused(until, now)),
        v1(
            "consumer_pause",
            r#""paused":true,"pause_until":"2030-01-01T00:00:00Z","pause_remaining":98139193000000000"#
        )
    );
    for until in [None, Timestamp::parse("2020-01-01T00:00:00Z")] {
        let at = until.unwrap_or(Timestamp::ZERO);
        let expected = format!(r#""paused":false,"pause_until":"{at}""#);
        assert_eq!(
            text(answer::paused(until, now)),
            v1("consumer_pause", &expected)
        );
    }
    assert_eq!(
        text(account_info(&answer::AccountInfo::default())),
        v1(
            "account_info",
            r#""memory":0,"storage":0,"reserved_memory":0,"reserved_storage":0,"streams":0,"consumers":0,"limits":{"max_memory":-1,"max_storage":-1,"max_streams":-1,"max_consumers":-1,"max_ack_pending":-1,"memory_max_stream_bytes":-1,"storage_max_stream_bytes":-1,"max_bytes_required":false},"api":{"level":4,"total":0,"errors":0}"#
        )
    );
}

#[test]
fn messages_as_json() {
    let message = Message {
        subject: b"s.1",
        headers: b"NATS/1.0\r\nA: b\r\n\r\n",
        payload: b"hi",
        time_us: CREATED,
    };
    let head = r#"{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":"s.1","seq":2,"#;
    let time = r#""time":"2026-11-22T03:06:46.996994Z"}}"#;
    assert_eq!(
        text(answer::message(nth(2), &message, false)),
        format!(r#"{head}"hdrs":"TkFUUy8xLjANCkE6IGINCg0K","data":"aGk=",{time}"#)
    );
    let empty = Message {
        payload: b"",
        ..message
    };
    assert_eq!(
        text(answer::message(nth(2), &empty, true)),
        format!("{head}{time}")
    );
}
