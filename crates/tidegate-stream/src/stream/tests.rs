//! Tests the outcomes and effects of commands on streams in short scenes, one for each feature of a stream.

use bytes::Bytes;
use serde_json::json;

use tidegate_cluster::groups::GroupId;

use super::*;
use crate::consumer::Start;
use crate::schema::error::ApiError;
use crate::schema::number::{DirectoryNumber, StreamNumber};
use crate::schema::sequence::{StreamSeq, nth};

const ONE: StreamNumber = StreamNumber::FIRST;
const TWO: StreamNumber = StreamNumber::new(2);

/// The streams of a test, and the effects of the last entry.
struct Scene {
    streams: Streams,
    now_us: u64,
    lsn: u64,
    effects: Vec<Effect>,
}

impl Scene {
    fn new() -> Self {
        Self {
            streams: Streams::new(AccountLimits::NONE),
            now_us: 1_000_000,
            lsn: 0,
            effects: Vec::new(),
        }
    }

    /// Creates a scene with one stream `S`, number 1, which takes the messages of `s.>`.
    fn with(config: serde_json::Value) -> Self {
        let mut scene = Self::new();
        let mut all = json!({"name": "S", "subjects": ["s.>"]});
        all.as_object_mut()
            .unwrap()
            .extend(config.as_object().unwrap().clone());
        assert_eq!(
            scene.command(Kind::CreateStream, 0, "", &all.to_string()),
            Outcome::Created { stream: ONE }
        );
        scene
    }

    fn apply(&mut self, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> Vec<Outcome> {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, self.now_us));
        let mut out = Vec::new();
        self.effects.clear();
        self.lsn += 64;
        self.streams
            .apply(self.lsn, &Bytes::from(entry), &mut out, &mut self.effects)
            .unwrap();
        self.streams.check_invariants();
        out
    }

    fn command(&mut self, kind: Kind, stream: u32, subject: &str, payload: &str) -> Outcome {
        let command = Command::new(
            kind,
            StreamNumber::new(stream),
            subject.as_bytes(),
            payload.as_bytes(),
        );
        let mut out = self.apply(|entry| {
            entry.command(&command).unwrap();
        });
        assert_eq!(out.len(), 1);
        out.remove(0)
    }

    fn create_kept(&mut self, kept: Placement, json: &str) -> Outcome {
        let subject = kept.encode();
        let command = Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            &subject,
            json.as_bytes(),
        );
        let mut out = self.apply(|entry| {
            entry.command(&command).unwrap();
        });
        out.remove(0)
    }

    fn publish(&mut self, subject: &str, headers: &[(&str, &str)]) -> Outcome {
        let block = block(headers);
        let mut out = self.apply(|entry| {
            entry
                .publish(ONE, subject.as_bytes(), block.as_deref(), b"hello")
                .unwrap();
        });
        out.remove(0)
    }

    fn batch(&mut self, messages: &[(&str, &[(&str, &str)])]) -> Vec<Outcome> {
        self.apply(|entry| {
            entry.atomic(ONE, messages.len() as u32).unwrap();
            for (subject, headers) in messages {
                let block = block(headers);
                entry
                    .publish(ONE, subject.as_bytes(), block.as_deref(), b"x")
                    .unwrap();
            }
        })
    }

    fn stream(&self) -> &Stream {
        self.streams.get(ONE).unwrap()
    }

    fn seqs(&self) -> Vec<u64> {
        let mut all = Filter::all();
        let mut seqs = Vec::new();
        while let Some(seq) = self
            .stream()
            .next_at(nth(seqs.last().map_or(0, |s| s + 1)), &mut all)
        {
            seqs.push(seq.get());
        }
        seqs
    }
}

fn block(headers: &[(&str, &str)]) -> Option<Vec<u8>> {
    if headers.is_empty() {
        return None;
    }
    let mut block = b"NATS/1.0\r\n".to_vec();
    for (name, value) in headers {
        block.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    block.extend(b"\r\n");
    Some(block)
}

fn stored(seq: u64) -> Outcome {
    let seq = nth(seq);
    Outcome::Stored { stream: ONE, seq }
}

fn refused(error: ApiError) -> Outcome {
    Outcome::Refused { stream: ONE, error }
}

#[test]
fn messages_are_numbered_and_found() {
    let mut scene = Scene::with(json!({}));
    assert_eq!(scene.streams.capture(b"s.a.b"), Some(ONE));
    assert_eq!(scene.streams.capture(b"t"), None);
    for n in 1..=600 {
        scene.now_us += 10;
        let subject = format!("s.{}", n % 3);
        assert_eq!(scene.publish(&subject, &[]), stored(n));
    }
    let state = scene.stream().state();
    assert_eq!(
        (state.messages, state.first_seq, state.last_seq),
        (600, nth(1), nth(600))
    );
    assert_eq!((state.num_subjects, state.num_deleted), (3, 0));
    assert_eq!(
        (state.first_time_us, state.last_time_us),
        (1_000_010, 1_006_000)
    );
    assert_eq!(state.bytes, 600 * (30 + 3 + 5));
    let message = scene.stream().message(nth(300)).unwrap();
    assert_eq!(
        (&*message.subject, message.place.lsn),
        (&b"s.0"[..], 64 * 301)
    );
    assert_eq!(message.place.offset, ENTRY_HEADER_BYTES as u32);
    let mut filter = Filter::new(["s.1"]);
    assert_eq!(
        scene.stream().next_at(nth(299), &mut filter),
        Some(nth(301))
    );
    assert_eq!(scene.stream().count_from(nth(1), &mut filter), 200);
    assert_eq!(scene.stream().count_from(nth(301), &mut filter), 100);
    let mut filter = Filter::new(["s.1", "s.2"]);
    assert_eq!(
        scene.stream().next_at(nth(300), &mut filter),
        Some(nth(301))
    );
    assert_eq!(scene.stream().count_from(nth(301), &mut filter), 200);
    assert_eq!(scene.stream().last_of(b"s.*"), Some(nth(600)));
    assert_eq!(scene.stream().last_of(b"s.1"), Some(nth(598)));
    assert_eq!(
        scene.stream().lasts_part(&Filter::all(), 0, 9, None),
        (vec![nth(598), nth(599), nth(600)], None)
    );
    assert_eq!(scene.stream().seq_at_time(1_003_001), nth(301));
    assert_eq!(scene.stream().seq_at_time(0), nth(1));
    assert_eq!(scene.stream().seq_at_time(u64::MAX), nth(601));
}

#[test]
fn a_message_sent_twice_is_stored_once() {
    let mut scene = Scene::with(json!({"duplicate_window": 1_000_000_000}));
    assert_eq!(scene.publish("s.a", &[("Nats-Msg-Id", "1")]), stored(1));
    let duplicate = Outcome::Duplicate {
        stream: ONE,
        seq: nth(1),
    };
    assert_eq!(scene.publish("s.b", &[("Nats-Msg-Id", "1")]), duplicate);
    scene.now_us += 1_000_000;
    assert_eq!(scene.publish("s.a", &[("Nats-Msg-Id", "1")]), duplicate);
    scene.now_us += 1;
    assert_eq!(scene.publish("s.a", &[("Nats-Msg-Id", "1")]), stored(2));
}

#[test]
fn expectations() {
    let mut scene = Scene::with(json!({}));
    scene.publish("s.a", &[("Nats-Msg-Id", "x")]);
    scene.publish("s.b", &[]);
    let mut case = |name: &str, value: &str| scene.publish("s.a", &[(name, value)]);
    assert_eq!(
        case("Nats-Expected-Stream", "T"),
        refused(ApiError::EXPECTED_STREAM)
    );
    assert_eq!(
        case("Nats-Expected-Last-Msg-Id", "x"),
        refused(ApiError::wrong_last_msg_id(""))
    );
    for wrong in ["1", "x", "3"] {
        assert_eq!(
            case("Nats-Expected-Last-Sequence", wrong),
            refused(ApiError::wrong_last_sequence(2))
        );
    }
    assert_eq!(
        case("Nats-Expected-Last-Subject-Sequence", "2"),
        refused(ApiError::wrong_last_sequence(1))
    );
    assert_eq!(
        case("Nats-Expected-Last-Subject-Sequence-Subject", "s.b"),
        refused(ApiError::MISSING_SEQ_FOR_SUBJECT)
    );
    assert_eq!(case("Nats-Expected-Last-Subject-Sequence", "1"), stored(3));
    let of = |scene: &mut Scene, seq, subject| {
        scene.publish(
            "s.c",
            &[
                ("Nats-Expected-Last-Subject-Sequence", seq),
                ("Nats-Expected-Last-Subject-Sequence-Subject", subject),
            ],
        )
    };
    assert_eq!(of(&mut scene, "2", "s.b"), stored(4));
    assert_eq!(
        of(&mut scene, "2", "s.*"),
        refused(ApiError::wrong_last_sequence(4))
    );
    assert_eq!(of(&mut scene, "4", "s.*"), stored(5));
    assert_eq!(of(&mut scene, "0", "s.new"), stored(6));
}

#[test]
fn limits_drop_the_oldest() {
    let mut scene = Scene::with(json!({"max_msgs": 3}));
    for _ in 0..5 {
        scene.publish("s.a", &[]);
    }
    assert_eq!(scene.seqs(), [3, 4, 5]);
    assert!(matches!(
        scene.effects[1],
        Effect::Removed { seq, .. } if seq == nth(2)
    ));
    let mut scene = Scene::with(json!({"max_bytes": 100}));
    for _ in 0..5 {
        scene.publish("s.a", &[]);
    }
    assert_eq!(scene.seqs(), [4, 5]);
    for per_subject in [1, 2] {
        let mut scene = Scene::with(json!({"max_msgs_per_subject": per_subject}));
        for n in 0..6 {
            scene.publish(if n % 2 == 0 { "s.a" } else { "s.b" }, &[]);
        }
        assert_eq!(scene.seqs().len(), 2 * per_subject);
    }
}

#[test]
fn limits_refuse_the_newest() {
    let full = |what: &str| refused(ApiError::store_failed(what));
    let mut scene = Scene::with(json!({"max_msgs": 2, "discard": "new"}));
    scene.publish("s.a", &[]);
    scene.publish("s.a", &[]);
    assert_eq!(scene.publish("s.a", &[]), full("maximum messages exceeded"));
    let mut scene = Scene::with(json!({"max_bytes": 50, "discard": "new"}));
    scene.publish("s.a", &[]);
    assert_eq!(scene.publish("s.a", &[]), full("maximum bytes exceeded"));
    let mut scene = Scene::with(
        json!({"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": true, "allow_rollup_hdrs": true}),
    );
    scene.publish("s.a", &[]);
    let error = full("maximum messages per subject exceeded");
    assert_eq!(scene.publish("s.a", &[]), error);
    assert_eq!(scene.publish("s.a", &[("Nats-Rollup", "sub")]), stored(2));
    // The stream here lacks `discard_new_per_subject`, so the subject's oldest message makes room, as in a
    // key-value bucket.
    let mut scene =
        Scene::with(json!({"max_msgs_per_subject": 1, "discard": "new", "max_msgs": 1}));
    scene.publish("s.a", &[]);
    assert_eq!(scene.publish("s.a", &[]), stored(2));
    assert_eq!(scene.publish("s.b", &[]), full("maximum messages exceeded"));
    let mut scene = Scene::with(json!({"max_msg_size": 4}));
    assert_eq!(
        scene.publish("s.a", &[]),
        refused(ApiError::MESSAGE_TOO_LARGE)
    );
}

#[test]
fn roll_ups() {
    let mut scene = Scene::with(json!({"allow_rollup_hdrs": true}));
    for n in 0..6 {
        scene.publish(if n % 2 == 0 { "s.a" } else { "s.b" }, &[]);
    }
    // The stream accepts the value of the header in upper and lower case, as nats-server does.
    assert_eq!(scene.publish("s.a", &[("Nats-Rollup", "SUB")]), stored(7));
    assert_eq!(scene.seqs(), [2, 4, 6, 7]);
    assert_eq!(scene.publish("s.a", &[("Nats-Rollup", "all")]), stored(8));
    assert_eq!(scene.seqs(), [8]);
    for subject in ["s.a", "s.b", "s.b.c", "s.*", "s.a"] {
        scene.publish(subject, &[]);
    }
    // The roll-up of a message that a client publishes to a pattern removes the messages of all matching
    // subjects. The stream stores that message under the pattern as its subject.
    let sub = [("Nats-Rollup", "sub")];
    assert_eq!(scene.publish("s.*.*", &sub), stored(14));
    assert_eq!(scene.seqs(), [8, 9, 10, 12, 13, 14]);
    assert_eq!(scene.publish("s.*", &sub), stored(15));
    assert_eq!(scene.seqs(), [14, 15]);
    assert_eq!(scene.publish("s.>", &sub), stored(16));
    assert_eq!(scene.seqs(), [16]);
    assert_eq!(scene.publish("s.x*", &sub), stored(17));
    assert_eq!(scene.seqs(), [16, 17]);
    let odd = ApiError::rollup_failed(r#"rollup value invalid: "x""#);
    assert_eq!(scene.publish("s.a", &[("Nats-Rollup", "x")]), refused(odd));
    let mut scene = Scene::with(json!({}));
    let not = ApiError::rollup_failed("rollup not permitted");
    assert_eq!(
        scene.publish("s.a", &[("Nats-Rollup", "sub")]),
        refused(not)
    );
}

#[test]
fn purging() {
    let mut scene = Scene::with(json!({}));
    for n in 0..10 {
        scene.publish(if n % 2 == 0 { "s.a" } else { "s.b" }, &[]);
    }
    let mut purge = |what: serde_json::Value| {
        let outcome = scene.command(Kind::Purge, 1, "", &what.to_string());
        (outcome, scene.seqs())
    };
    let purged = |purged| Outcome::Purged {
        stream: ONE,
        purged,
    };
    assert_eq!(
        purge(json!({"filter": "s.a", "keep": 3})),
        (purged(2), vec![2, 4, 5, 6, 7, 8, 9, 10])
    );
    assert_eq!(
        purge(json!({"filter": "s.b", "seq": 5})),
        (purged(2), vec![5, 6, 7, 8, 9, 10])
    );
    assert_eq!(purge(json!({"seq": 7})), (purged(2), vec![7, 8, 9, 10]));
    assert_eq!(purge(json!({"keep": 2})), (purged(2), vec![9, 10]));
    assert_eq!(purge(json!({"seq": 1})).0, purged(0));
    assert_eq!(
        purge(json!({"seq": 2, "keep": 2})).0,
        refused(ApiError::BAD_REQUEST)
    );
    assert_eq!(purge(json!({})), (purged(2), vec![]));
    assert_eq!(purge(json!({"seq": 100})).0, purged(0));
    let state = scene.stream().state();
    assert_eq!((state.first_seq, state.last_seq), (nth(100), nth(99)));
    assert_eq!(scene.publish("s.a", &[]), stored(100));
}

#[test]
fn deleting_messages() {
    let mut scene = Scene::with(json!({}));
    for _ in 0..4 {
        scene.publish("s.a", &[]);
    }
    let mut delete = |seq: u64| {
        scene.command(
            Kind::DeleteMessage,
            1,
            "",
            &json!({ "seq": seq }).to_string(),
        )
    };
    assert_eq!(delete(2), Outcome::Removed { stream: ONE });
    assert_eq!(delete(2), refused(ApiError::sequence_not_found(2)));
    let outside = |why| refused(ApiError::message_delete(why));
    assert_eq!(delete(9), outside("stream store EOF"));
    assert_eq!(delete(0), outside("no message found"));
    assert_eq!(scene.stream().deleted(10), [nth(2)]);
    assert_eq!(scene.stream().state().num_deleted, 1);
    assert_eq!(scene.stream().last_of(b"s.a"), Some(nth(4)));
    scene.command(Kind::DeleteMessage, 1, "", r#"{"seq":4}"#);
    assert_eq!(scene.stream().last_of(b"s.a"), Some(nth(3)));
    assert_eq!(scene.publish("s.a", &[]), stored(5));
}

#[test]
fn streams_come_change_and_go() {
    let mut scene = Scene::with(json!({}));
    let same = r#"{"name":"S","subjects":["s.>"]}"#;
    assert_eq!(
        scene.command(Kind::CreateStream, 0, "", same),
        Outcome::Exists { stream: ONE }
    );
    let error = |error| Outcome::Refused {
        stream: StreamNumber::NONE,
        error,
    };
    assert_eq!(
        scene.command(
            Kind::CreateStream,
            0,
            "",
            r#"{"name":"S","subjects":["x"]}"#
        ),
        error(ApiError::STREAM_NAME_EXISTS)
    );
    assert_eq!(
        scene.command(
            Kind::CreateStream,
            0,
            "",
            r#"{"name":"T","subjects":["s.x"]}"#
        ),
        error(ApiError::SUBJECT_OVERLAP)
    );
    assert_eq!(
        scene.command(Kind::CreateStream, 0, "", r#"{"name":"T"}"#),
        Outcome::Created { stream: TWO }
    );
    for _ in 0..5 {
        scene.publish("s.a", &[]);
    }
    assert_eq!(
        scene.command(
            Kind::UpdateStream,
            1,
            "",
            r#"{"name":"S","subjects":["u"],"max_msgs":2}"#
        ),
        Outcome::Updated { stream: ONE }
    );
    assert_eq!(scene.seqs(), [4, 5]);
    assert_eq!(
        (scene.streams.capture(b"s.a"), scene.streams.capture(b"u")),
        (None, Some(ONE))
    );
    assert_eq!(
        scene.command(Kind::DeleteStream, 1, "", ""),
        Outcome::Deleted { stream: ONE }
    );
    assert!(
        matches!(&scene.effects[0], Effect::StreamDeleted { messages, .. } if messages.len() == 2)
    );
    assert_eq!(scene.streams.capture(b"u"), None);
    assert_eq!(scene.publish("u", &[]), refused(ApiError::STREAM_NOT_FOUND));
    assert_eq!(
        scene.command(Kind::CreateStream, 0, "", same),
        Outcome::Created {
            stream: StreamNumber::new(3)
        }
    );
}

#[test]
fn batches_stand_or_fall_together() {
    let mut scene = Scene::with(json!({"allow_atomic": true, "allow_rollup_hdrs": true}));
    let whole = scene.batch(&[("s.a", &[]), ("s.b", &[("Nats-Msg-Id", "1")])]);
    let batch = Outcome::Batch {
        stream: ONE,
        seq: nth(2),
        count: 2,
    };
    assert_eq!(whole, [batch, stored(1), stored(2)]);
    let id: &[(&str, &str)] = &[("Nats-Msg-Id", "1")];
    let other: &[(&str, &str)] = &[("Nats-Msg-Id", "2")];
    let last: &[(&str, &str)] = &[("Nats-Expected-Last-Sequence", "2")];
    let subject: &[(&str, &str)] = &[("Nats-Expected-Last-Subject-Sequence", "1")];
    let sub: &[(&str, &str)] = &[("Nats-Rollup", "sub")];
    let all: &[(&str, &str)] = &[("Nats-Rollup", "all")];
    type Message<'a> = (&'a str, &'a [(&'a str, &'a str)]);
    let cases: [(&[Message<'_>], ApiError); 6] = [
        (&[("s.a", &[]), ("s.b", id)], ApiError::ATOMIC_DUPLICATE),
        (
            &[("s.a", other), ("s.b", other)],
            ApiError::ATOMIC_DUPLICATE,
        ),
        (
            &[("s.a", &[]), ("s.b", last)],
            ApiError::WRONG_LAST_SEQUENCE_UNKNOWN,
        ),
        (
            &[("s.a", &[]), ("s.a", subject)],
            ApiError::WRONG_LAST_SEQUENCE_UNKNOWN,
        ),
        (
            &[("s.a", &[]), ("s.a", sub)],
            ApiError::rollup_failed("batch rollup sub invalid"),
        ),
        (
            &[("s.a", &[]), ("s.b", all)],
            ApiError::rollup_failed("batch rollup all invalid"),
        ),
    ];
    for (messages, error) in cases {
        let out = scene.batch(messages);
        assert_eq!(out, vec![refused(error); 3]);
        assert_eq!(scene.stream().state().last_seq, nth(2));
    }
    assert_eq!(scene.batch(&[("s.x", last), ("s.a", subject)]).len(), 3);
    assert_eq!(scene.stream().state().last_seq, nth(4));
    let cut = scene.apply(|entry| {
        entry.atomic(ONE, 2).unwrap();
        entry.publish(ONE, b"s.a", None, b"").unwrap();
    });
    assert_eq!(cut, vec![refused(ApiError::ATOMIC_INCOMPLETE); 2]);
}

#[test]
fn streams_in_memory_keep_their_messages() {
    let mut scene = Scene::with(json!({"storage": "memory"}));
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, 5);
    encoder.publish(ONE, b"s.a", None, b"in memory").unwrap();
    let (mut out, mut effects) = (Vec::new(), Vec::new());
    scene
        .streams
        .apply_memory(&entry.into(), &mut out, &mut effects)
        .unwrap();
    assert_eq!(out, [stored(1)]);
    let body = scene.stream().body(nth(1)).unwrap();
    assert_eq!(Command::read(body, 0).unwrap().payload, b"in memory");
    scene.command(Kind::Purge, 1, "", "{}");
    assert_eq!(scene.stream().body(nth(1)), None);
}

/// Tests that a consumer starts as its configuration says, if the stream has lost the message at its start. A
/// restart of a stream in memory loses messages.
#[test]
fn a_consumer_without_its_first_message_begins_as_configured() {
    for (start, before) in [
        (r#"{"at":3}"#, 2),
        (r#"{"at":4}"#, 3),
        (r#"{"at":5}"#, 3),
        (r#"{"last_per_subject":4}"#, 3),
    ] {
        let mut scene = Scene::with(json!({}));
        for _ in 0..3 {
            scene.publish("s.a", &[]);
        }
        let config = r#"{"deliver_policy":"new","ack_policy":"none"}"#;
        let request = format!(r#"{{"config":{config},"action":"create","start":{start}}}"#);
        let made = scene.command(Kind::CreateConsumer, 1, "C", &request);
        assert_eq!(made, Outcome::ConsumerCreated { stream: ONE });
        let state = scene.stream().consumer("C").unwrap().state();
        assert_eq!(
            state.start(),
            Start::At(StreamSeq::new(before + 1)),
            "{start}"
        );
    }
}

#[test]
fn sealed_and_denied() {
    let mut scene = Scene::with(json!({"deny_delete": true, "deny_purge": true}));
    scene.publish("s.a", &[]);
    assert_eq!(
        scene.command(Kind::Purge, 1, "", "{}"),
        refused(ApiError::purge_failed("stream purge not permitted"))
    );
    assert_eq!(
        scene.command(Kind::DeleteMessage, 1, "", r#"{"seq":1}"#),
        refused(ApiError::message_delete("message delete not permitted"))
    );
    let seal =
        r#"{"name":"S","subjects":["s.>"],"sealed":true,"deny_delete":true,"deny_purge":true}"#;
    scene.command(Kind::UpdateStream, 1, "", seal);
    assert_eq!(scene.publish("s.a", &[]), refused(ApiError::STREAM_SEALED));
}

impl Scene {
    /// Lets time pass up to `now_us`, and removes the due messages as the leader does; returns the number of
    /// rounds of proposals.
    fn expire(&mut self, now_us: u64) -> usize {
        self.now_us = now_us;
        let mut rounds = 0;
        while self
            .streams
            .next_expiry(now_us)
            .is_some_and(|due| due <= now_us)
        {
            rounds += 1;
            assert!(rounds < 1000, "expiry comes to no end");
            let mut entry = Vec::new();
            let mut encoder = Encoder::begin(&mut entry, now_us);
            let written = self.streams.propose_expiry(
                now_us,
                crate::schema::config::Storage::File,
                &mut encoder,
            );
            assert!(
                written.unwrap() > 0,
                "something is due, and nothing is proposed"
            );
            self.lsn += 64;
            let mut out = Vec::new();
            self.streams
                .apply(self.lsn, &entry.into(), &mut out, &mut self.effects)
                .unwrap();
            self.streams.check_invariants();
        }
        rounds
    }
}

const SECOND: u64 = 1_000_000;

#[test]
fn messages_go_of_age() {
    let mut scene = Scene::with(json!({"max_age": 10_000_000_000_u64, "allow_msg_ttl": true}));
    let start = scene.now_us;
    assert_eq!(scene.streams.next_expiry(start), None);
    scene.publish("s.a", &[]);
    scene.publish("s.a", &[("Nats-TTL", "never")]);
    scene.now_us += SECOND;
    scene.publish("s.b", &[("Nats-TTL", "2")]);
    scene.publish("s.b", &[("Nats-TTL", "1h")]);
    assert_eq!(scene.streams.next_expiry(start), Some(start + 3 * SECOND));
    assert_eq!(scene.expire(start + 3 * SECOND - 1), 0);
    assert_eq!(scene.expire(start + 3 * SECOND), 1);
    assert_eq!(scene.seqs(), [1, 2, 4]);
    scene.expire(start + 10 * SECOND);
    assert_eq!(scene.seqs(), [2, 4]);
    scene.expire(start + 11 * SECOND);
    assert_eq!(scene.seqs(), [2]);
    assert_eq!(scene.streams.next_expiry(u64::MAX), None);
    assert_eq!(scene.publish("s.c", &[]), stored(5));
}

#[test]
fn times_to_live_are_checked() {
    let mut scene = Scene::with(json!({"allow_msg_ttl": true}));
    for bad in ["x", "-1", "10ms"] {
        let error = refused(ApiError::MESSAGE_TTL_INVALID);
        assert_eq!(scene.publish("s.a", &[("Nats-TTL", bad)]), error);
    }
    let mut scene = Scene::with(json!({}));
    let error = refused(ApiError::MESSAGE_TTL_DISABLED);
    assert_eq!(scene.publish("s.a", &[("Nats-TTL", "5")]), error);
    assert_eq!(scene.publish("s.a", &[("Nats-TTL", "0")]), stored(1));
}

#[test]
fn many_messages_go_in_rounds() {
    let mut scene = Scene::with(json!({"max_age": 1_000_000_000_u64}));
    scene.apply(|entry| {
        for _ in 0..10_000 {
            entry.publish(ONE, b"s.a", None, b"").unwrap();
        }
    });
    assert_eq!(scene.expire(3 * SECOND), 3);
    assert_eq!(scene.stream().state().messages, 0);
}

#[test]
fn a_marker_stays_where_a_subject_ends() {
    let config =
        json!({"max_age": 10_000_000_000_u64, "subject_delete_marker_ttl": 60_000_000_000_u64});
    let mut scene = Scene::with(config);
    scene.publish("s.a", &[]);
    scene.publish("s.a", &[]);
    scene.publish("s.b", &[("KV-Operation", "PURGE")]);
    let start = scene.now_us;
    scene.expire(start + 10 * SECOND);
    // At the age limit, the stream removed the first message of `s.a`, and a marker replaced the last one.
    // The purge marker of `s.b` left no marker, because it is one itself.
    assert_eq!(scene.seqs(), [4]);
    let marker = scene.stream().message(nth(4)).unwrap();
    assert_eq!(&*marker.subject, b"s.a");
    let stored = scene
        .effects
        .iter()
        .any(|e| matches!(e, Effect::Stored { seq, place, .. } if (*seq, *place) == (nth(4), marker.place)));
    assert!(stored);
    // The stream removes the marker by its age limit, which comes before the marker's own time to live. A
    // marker leaves no other marker.
    scene.expire(start + 20 * SECOND);
    assert_eq!(scene.seqs(), [0; 0]);
    assert_eq!(scene.streams.next_expiry(u64::MAX), None);
}

#[test]
fn a_marker_replaces_no_newer_message() {
    let config =
        json!({"max_age": 10_000_000_000_u64, "subject_delete_marker_ttl": 60_000_000_000_u64});
    let mut scene = Scene::with(config);
    scene.publish("s.a", &[]);
    scene.now_us += 10 * SECOND;
    let now = scene.now_us;
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, now);
    let storage = crate::schema::config::Storage::File;
    let written = scene.streams.propose_expiry(now, storage, &mut encoder);
    assert_eq!(written, Ok(2));
    scene.publish("s.a", &[]);
    let mut out = Vec::new();
    scene
        .streams
        .apply(1 << 20, &entry.into(), &mut out, &mut scene.effects)
        .unwrap();
    assert_eq!(scene.seqs(), [2]);
}

#[test]
fn consumers_are_kept() {
    let mut scene = Scene::with(json!({"max_consumers": 1}));
    for _ in 0..5 {
        scene.publish("s.a", &[]);
    }
    let request = |action: &str, ack: &str| {
        json!({"config": {"name": "C", "deliver_policy": "new", "ack_policy": ack}, "action": action}).to_string()
    };
    let mut create =
        |name: &str, request: &str| scene.command(Kind::CreateConsumer, 1, name, request);
    assert_eq!(
        create("C", &request("update", "none")),
        refused(ApiError::CONSUMER_DOES_NOT_EXIST)
    );
    assert_eq!(
        create("C", &request("create", "none")),
        Outcome::ConsumerCreated { stream: ONE }
    );
    assert_eq!(
        create("C", &request("create", "none")),
        Outcome::ConsumerExists { stream: ONE }
    );
    assert_eq!(
        create("C", &request("create", "all")),
        refused(ApiError::CONSUMER_EXISTS)
    );
    assert_eq!(
        create("D", &request("", "none")),
        refused(ApiError::MAXIMUM_CONSUMERS)
    );
    let consumer = scene.stream().consumer("C").unwrap();
    assert_eq!(consumer.state().delivered().stream_seq, StreamSeq::new(5));
    assert!(matches!(
        scene.command(Kind::ConsumerDelta, 1, "C", "?"),
        Outcome::Refused { .. }
    ));
    let seq = |seq: u64| String::from_utf8(seq.to_le_bytes().to_vec()).unwrap();
    for (name, payload, error) in [
        ("D", seq(3), ApiError::CONSUMER_NOT_FOUND),
        ("", seq(3), ApiError::BAD_REQUEST),
        ("C", seq(0), ApiError::BAD_REQUEST),
        ("C", "3".into(), ApiError::BAD_REQUEST),
        ("C", seq(0x7f << 56), ApiError::BAD_REQUEST),
    ] {
        assert_eq!(
            scene.command(Kind::ResetConsumer, 1, name, &payload),
            refused(error)
        );
    }
    assert_eq!(
        scene.command(Kind::ResetConsumer, 1, "C", &seq(3)),
        Outcome::Done
    );
    assert!(matches!(
        scene.effects.last(),
        Some(Effect::ConsumerReset { stream: ONE, name }) if name == "C"
    ));
    let state = scene.stream().consumer("C").unwrap().state();
    assert_eq!(state.delivered().stream_seq, StreamSeq::new(2));
    assert_eq!(
        scene.command(Kind::DeleteConsumer, 1, "C", ""),
        Outcome::ConsumerDeleted { stream: ONE }
    );
    assert_eq!(
        scene.command(Kind::ConsumerDelta, 1, "C", ""),
        refused(ApiError::CONSUMER_NOT_FOUND)
    );
}

#[test]
fn new_limits_for_consumers_hold_for_those_there_are() {
    let mut scene = Scene::with(json!({}));
    let request = json!({"config": {"name": "C", "ack_policy": "explicit", "max_ack_pending": 20}, "action": ""});
    assert_eq!(
        scene.command(Kind::CreateConsumer, 1, "C", &request.to_string()),
        Outcome::ConsumerCreated { stream: ONE }
    );
    let mut config = scene.stream().config().clone();
    config.consumer_limits.max_ack_pending = 10;
    let refused = scene.streams.check_update(&config).unwrap_err();
    assert_eq!(
        refused,
        ApiError::stream_update("change to limits violates consumers: C")
    );
    config.consumer_limits.max_ack_pending = 20;
    scene.streams.check_update(&config).unwrap();
}

#[test]
fn an_operators_limits_are_asked_before() {
    let limits = AccountLimits {
        streams: 2,
        file_bytes: 1000,
        memory_bytes: 100,
        replicated: false,
    };
    let mut streams = Streams::new(limits);
    let config = |name: &str, json: serde_json::Value| -> crate::schema::config::StreamConfig {
        let mut all = json!({ "name": name });
        all.as_object_mut()
            .unwrap()
            .extend(json.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    };
    let create = |streams: &mut Streams, config: &crate::schema::config::StreamConfig| {
        let kept = streams.check_create(config)?;
        let mut entry = Vec::new();
        let payload = serde_json::to_vec(&kept).unwrap();
        let command = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", &payload);
        Encoder::begin(&mut entry, 1).command(&command).unwrap();
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        streams
            .apply(8, &entry.into(), &mut out, &mut effects)
            .unwrap();
        Ok::<_, ApiError>(out.remove(0))
    };
    let big = config("A", json!({"max_bytes": 2000}));
    assert_eq!(create(&mut streams, &big), Err(ApiError::STORAGE_EXCEEDED));
    let memory = config("A", json!({"max_bytes": 101, "storage": "memory"}));
    assert_eq!(
        create(&mut streams, &memory),
        Err(ApiError::MEMORY_EXCEEDED)
    );
    create(&mut streams, &config("A", json!({"max_bytes": 800}))).unwrap();
    let both = config("B", json!({"max_bytes": 300}));
    assert_eq!(create(&mut streams, &both), Err(ApiError::STORAGE_EXCEEDED));
    let grown = config("A", json!({"max_bytes": 1000}));
    assert_eq!(streams.check_update(&grown).unwrap().max_bytes, 1000);
    create(&mut streams, &config("B", json!({}))).unwrap();
    assert_eq!(
        create(&mut streams, &config("C", json!({}))),
        Err(ApiError::MAXIMUM_STREAMS)
    );
    assert_eq!(streams.check_quota(TWO, 1000, Held::default()), Ok(()));
    assert_eq!(
        streams.check_quota(TWO, 1001, Held::default()),
        Err(ApiError::STORAGE_EXCEEDED)
    );
    let beside = Held {
        file_bytes: 100,
        ..Held::default()
    };
    assert_eq!(streams.check_quota(TWO, 900, beside), Ok(()));
    assert_eq!(
        streams.check_quota(TWO, 901, beside),
        Err(ApiError::STORAGE_EXCEEDED)
    );
    assert_eq!(
        streams.usage(crate::schema::config::Storage::File).reserved,
        800
    );
}

#[test]
fn an_entry_for_what_another_group_keeps_holds_nothing() {
    let mut scene = Scene::with(json!({}));
    let json = r#"{"name":"E","subjects":["e.>"],"allow_atomic":true}"#;
    let group = GroupId::new(0x1001);
    let made = scene.create_kept(Placement::Elsewhere { group }, json);
    assert_eq!(made, Outcome::Created { stream: TWO });
    assert_eq!(scene.streams.capture(b"e.a"), Some(TWO));
    let out = scene.apply(|entry| {
        entry.publish(TWO, b"e.a", None, b"x").unwrap();
        entry.atomic(TWO, 1).unwrap();
        entry.publish(TWO, b"e.a", None, b"x").unwrap();
    });
    let refused = |o: &Outcome| matches!(o, Outcome::Refused { error, .. } if *error == ApiError::STREAM_INVALID);
    assert!(out.len() == 3 && out.iter().all(refused), "{out:?}");
    for (kind, payload) in [
        (Kind::Purge, "{}"),
        (Kind::DeleteMessage, "{\"seq\":1}"),
        (Kind::CreateConsumer, "{\"config\":{\"name\":\"C\"}}"),
        (Kind::Expire, ""),
    ] {
        assert!(refused(&scene.command(kind, 2, "C", payload)), "{kind:?}");
    }
    let changes = scene.streams.changes();
    assert_eq!(scene.command(Kind::Made, 2, "", ""), Outcome::Done);
    assert!(matches!(
        scene.effects[..],
        [Effect::StreamMade { stream: TWO }]
    ));
    assert_eq!(scene.streams.changes(), changes + 1);
    assert_eq!(scene.command(Kind::Made, 2, "", ""), Outcome::Done);
    assert!(scene.effects.is_empty() && scene.streams.changes() == changes + 1);
    // The directory refuses the command, because this group itself keeps the stream.
    assert!(matches!(
        scene.command(Kind::Made, 1, "", ""),
        Outcome::Refused { .. }
    ));
    let bytes: Vec<u8> = scene.streams.snapshot().chunks().flatten().collect();
    let again = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
    let kept = again.get(TWO).unwrap().home();
    assert_eq!(kept, Home::Elsewhere { group, made: true });
    assert_eq!(
        scene.command(Kind::DeleteStream, 2, "", ""),
        Outcome::Deleted { stream: TWO }
    );
}

#[test]
fn a_name_belongs_to_one_stream_of_the_directory_at_a_time() {
    let mut scene = Scene::new();
    let json = r#"{"name":"E","subjects":["e.>"]}"#;
    let made = scene.create_kept(Placement::Of(DirectoryNumber::new(5)), json);
    assert_eq!(made, Outcome::Created { stream: ONE });
    assert_eq!(
        scene.create_kept(Placement::Of(DirectoryNumber::new(5)), json),
        Outcome::Exists { stream: ONE }
    );
    let other = scene.create_kept(Placement::Of(DirectoryNumber::new(6)), json);
    assert!(matches!(other, Outcome::Refused { .. }), "{other:?}");
    assert_eq!(
        scene.publish("e.a", &[]),
        Outcome::Stored {
            stream: ONE,
            seq: nth(1)
        }
    );
    let nonsense = scene.command(Kind::CreateStream, 0, "abc", json);
    assert!(matches!(nonsense, Outcome::Refused { error, .. } if error == ApiError::BAD_REQUEST));
}

#[test]
fn a_snapshot_of_the_first_version_is_read() {
    let mut scene = Scene::with(json!({}));
    scene.publish("s.a", &[]);
    let bytes: Vec<u8> = scene.streams.snapshot().chunks().flatten().collect();
    // The test makes a snapshot of version 1 from a new one: version 1 lacks the home group and the move,
    // after the stream's number.
    let mut first = bytes.clone();
    first[0] = 1;
    assert_eq!(first.drain(28..50).collect::<Vec<u8>>(), [0; 22]);
    let again = Streams::restore(&first, AccountLimits::NONE).unwrap();
    assert_eq!(again.get(ONE).unwrap().home(), Home::Here);
    assert!(again.snapshot().chunks().flatten().eq(bytes));
    first[0] = 7;
    let error = Streams::restore(&first, AccountLimits::NONE).unwrap_err();
    assert!(matches!(error, RestoreError::Version(7)));
}
