//! Tests that a node may free the memory of removed messages later: the parts of that work change no count,
//! no list and no snapshot.

use bytes::Bytes;
use serde_json::json;

use super::super::super::{
    AccountLimits, Command, Encoder, Entry, Filter, Kind, Outcome, StreamState, Streams,
};
use crate::schema::config::Storage;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::nth;

const ONE: StreamNumber = StreamNumber::FIRST;
const NOW: u64 = 1_000_000;

struct Scene {
    streams: Streams,
    lsn: u64,
}

impl Scene {
    /// Creates a stream with the subjects `s.0.0`, `s.1.1`, `s.2.0`, and so on, `len` of them, each with one
    /// message. All messages expire after an hour, so that the removals also concern times of expiry.
    fn new(len: u64, config: &serde_json::Value) -> Self {
        let mut scene = Self {
            streams: Streams::new(AccountLimits::NONE),
            lsn: 0,
        };
        let mut all = json!({"name": "S", "subjects": ["s.>"], "allow_msg_ttl": true});
        let more = config.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(more);
        let made = scene.command(Kind::CreateStream, 0, &all.to_string());
        assert_eq!(made, Outcome::Created { stream: ONE });
        (0..len).for_each(|n| scene.publish(&format!("s.{n}.{}", n % 2)));
        scene
    }

    fn apply(&mut self, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> Outcome {
        let (mut entry, mut out) = (Vec::new(), Vec::new());
        write(&mut Encoder::begin(&mut entry, NOW));
        self.lsn += 64;
        let entry = Bytes::from(entry);
        let applied = self
            .streams
            .apply(self.lsn, &entry, &mut out, &mut Vec::new());
        applied.unwrap();
        self.streams.check_invariants();
        out.pop().unwrap()
    }

    fn command(&mut self, kind: Kind, stream: u32, payload: &str) -> Outcome {
        let command = Command::new(kind, StreamNumber::new(stream), b"", payload.as_bytes());
        self.apply(|entry| {
            entry.command(&command).unwrap();
        })
    }

    fn publish(&mut self, subject: &str) {
        let headers = b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n";
        let stored = self.apply(|entry| {
            let subject = subject.as_bytes();
            entry.publish(ONE, subject, Some(headers), b"x").unwrap();
        });
        assert!(matches!(stored, Outcome::Stored { .. }), "{stored:?}");
    }

    fn purge(&mut self, filter: &str) -> u64 {
        let request = json!({ "filter": filter }).to_string();
        match self.command(Kind::Purge, 1, &request) {
            Outcome::Purged { purged, .. } => purged,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self) -> StreamState {
        self.streams.get(ONE).unwrap().state()
    }

    fn subjects(&self) -> usize {
        let stream = self.streams.get(ONE).unwrap();
        let listed = stream.subjects(&Filter::all()).count();
        assert_eq!(listed as u64, self.state().num_subjects);
        listed
    }

    fn snapshot(&self) -> Vec<u8> {
        self.streams.snapshot().chunks().flatten().collect()
    }

    /// Does the rest of the work, and checks after each part that no query and no snapshot changes. Returns
    /// the number of parts.
    fn finish(&mut self) -> usize {
        let (state, snapshot) = (self.state(), self.snapshot());
        let mut parts = 0;
        while self.streams.is_reclaiming() {
            self.streams.reclaim(1);
            self.streams.check_invariants();
            assert_eq!((self.state(), self.snapshot()), (state, snapshot.clone()));
            parts += 1;
        }
        parts
    }
}

#[test]
fn a_purge_by_subject_shows_at_once_and_frees_memory_in_parts() {
    let mut scene = Scene::new(600, &json!({}));
    assert_eq!(scene.purge("s.*.0"), 300);
    let state = scene.state();
    assert_eq!((state.messages, state.first_seq), (300, nth(2)));
    assert_eq!((state.num_subjects, state.num_deleted), (300, 299));
    assert!(scene.streams.is_reclaiming());
    // While the node reclaims the messages of the first purge, a purged subject gets a message, a new subject
    // appears, and a client purges a second time.
    scene.streams.reclaim(20);
    scene.publish("s.0.0");
    scene.publish("s.new");
    assert_eq!((scene.state().messages, scene.subjects()), (302, 302));
    assert_eq!(scene.purge("s.*.1"), 300);
    assert_eq!(scene.purge("s.*.0"), 1);
    assert_eq!((scene.state().messages, scene.subjects()), (1, 1));
    assert_eq!(scene.state().first_seq, nth(602));
    assert!(scene.finish() > 10);
    assert_eq!(scene.purge(""), 1);
    scene.finish();
}

#[test]
fn a_node_that_starts_from_a_checkpoint_in_the_middle_has_the_same_state() {
    for parts in [0, 1, 7, 100, 10_000] {
        let mut one = Scene::new(600, &json!({"max_msgs_per_subject": 3}));
        one.purge("s.*.0");
        one.streams.reclaim(parts);
        let mut other = Scene {
            streams: Streams::restore(&one.snapshot(), AccountLimits::NONE).unwrap(),
            lsn: one.lsn,
        };
        assert!(!other.streams.is_reclaiming());
        for scene in [&mut one, &mut other] {
            scene.publish("s.2.0");
            scene.publish("s.x");
            scene.purge("s.1.1");
        }
        assert_eq!(one.snapshot(), other.snapshot(), "after {parts} parts");
        one.finish();
        assert_eq!(one.snapshot(), other.snapshot());
    }
}

#[test]
fn a_stream_is_deleted_while_its_messages_are_reclaimed() {
    for storage in ["file", "memory"] {
        for filter in ["s.*.0", ""] {
            let config = json!({"storage": storage, "max_msgs_per_subject": 2});
            let mut scene = Scene::new(40, &config);
            scene.purge(filter);
            scene.streams.reclaim(3);
            let deleted = scene.command(Kind::DeleteStream, 1, "");
            assert_eq!(deleted, Outcome::Deleted { stream: ONE });
            assert!(scene.streams.is_reclaiming());
            while scene.streams.is_reclaiming() {
                scene.streams.reclaim(1);
                scene.streams.check_invariants();
            }
        }
    }
}

#[test]
fn a_stream_in_memory_frees_the_bytes_of_purged_messages() {
    let mut scene = Scene::new(600, &json!({"storage": "memory"}));
    assert_eq!(scene.purge("s.*.1"), 300);
    let stream = scene.streams.get(ONE).unwrap();
    assert!(stream.body(nth(1)).is_some() && stream.message(nth(2)).is_none());
    assert!(scene.finish() > 0);
    let stream = scene.streams.get(ONE).unwrap();
    assert!(stream.body(nth(1)).is_some() && stream.body(nth(2)).is_none());
    assert_eq!(scene.purge("s.>"), 300);
    scene.finish();
}

#[test]
fn a_lower_limit_removes_whole_blocks_at_once() {
    let mut scene = Scene::new(1000, &json!({}));
    let config = json!({"name": "S", "subjects": ["s.>"], "allow_msg_ttl": true, "max_msgs": 10});
    let updated = scene.command(Kind::UpdateStream, 1, &config.to_string());
    assert_eq!(updated, Outcome::Updated { stream: ONE });
    let state = scene.state();
    assert_eq!((state.messages, state.first_seq), (10, nth(991)));
    assert_eq!(scene.subjects(), 10);
    assert!(scene.finish() > 0);
}

#[test]
fn messages_expire_once_the_purged_ones_are_reclaimed() {
    let mut scene = Scene::new(600, &json!({}));
    let due = |scene: &mut Scene| scene.streams.next_expiry(NOW);
    let hour = NOW + 3_600_000_000;
    assert_eq!(due(&mut scene), Some(hour));
    scene.purge("s.*.0");
    scene.finish();
    assert_eq!(due(&mut scene), Some(hour));
    // A node that has not reclaimed anything yet must remove the same messages at the entry, because all
    // nodes must agree.
    let mut late = Scene::new(600, &json!({}));
    late.purge("s.*.0");
    for scene in [&mut scene, &mut late] {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, hour);
        let expire = Command::new(Kind::Expire, ONE, b"", b"");
        encoder.command(&expire).unwrap();
        assert_eq!(Entry::decode(&entry).unwrap().time_us(), hour);
        let mut out = Vec::new();
        let applied = scene
            .streams
            .apply(1 << 20, &entry.into(), &mut out, &mut Vec::new());
        applied.unwrap();
        assert_eq!(scene.state().messages, 0);
    }
    assert_eq!(scene.snapshot(), late.snapshot());
    late.finish();
    let mut nothing = Vec::new();
    let mut encoder = Encoder::begin(&mut nothing, hour);
    let written = late
        .streams
        .propose_expiry(hour, Storage::File, &mut encoder);
    assert_eq!(written.unwrap(), 0);
}

/// Compares purges that the node has prepared in any number of parts with the same purges without a
/// preparation, also those that keep messages or end at a number.
#[test]
fn a_prepared_purge_leaves_the_same_state() {
    for request in [
        json!({"filter": "s.*.0"}),
        json!({"filter": "s.*.0", "keep": 7}),
        json!({"filter": "s.>", "keep": 500}),
        json!({"filter": "s.*.1", "seq": 401}),
        json!({"filter": "s.40.0"}),
        json!({"filter": "s.none"}),
    ] {
        for parts in [0, 1, 3, 1000] {
            let (mut one, mut other) = (Scene::new(600, &json!({})), Scene::new(600, &json!({})));
            one.streams
                .foresee(ONE, request["filter"].as_str().unwrap());
            for _ in 0..parts {
                one.streams.go_on_foreseeing(100);
            }
            // Messages come and go after the preparation.
            for scene in [&mut one, &mut other] {
                scene.publish("s.4.0");
                scene.command(Kind::DeleteMessage, 1, r#"{"seq":300}"#);
            }
            let purge = |scene: &mut Scene| scene.command(Kind::Purge, 1, &request.to_string());
            assert_eq!(purge(&mut one), purge(&mut other), "{request}, {parts}");
            assert!(!one.streams.is_foreseeing());
            assert!(one.snapshot() == other.snapshot(), "{request}, {parts}");
            one.finish();
        }
    }
}

#[test]
fn the_results_for_a_purge_go_with_their_stream_or_when_it_does_not_come() {
    let mut scene = Scene::new(600, &json!({}));
    scene.streams.foresee(ONE, "s.*.0");
    scene.streams.go_on_foreseeing(10);
    assert!(scene.streams.is_foreseeing() && !scene.streams.is_foreseen(ONE, "s.*.0"));
    scene.command(Kind::DeleteStream, 1, "{}");
    assert_eq!(scene.streams.go_on_foreseeing(10), 0);
    assert!(!scene.streams.is_foreseeing());

    let mut scene = Scene::new(600, &json!({}));
    scene.streams.foresee(ONE, "s.*.0");
    while scene.streams.is_foreseeing() {
        let looked = scene.streams.go_on_foreseeing(100);
        assert!((1..=100).contains(&looked), "{looked} subjects in a part");
    }
    assert!(scene.streams.is_foreseen(ONE, "s.*.0"));
    scene.streams.forget_foreseen();
    assert!(!scene.streams.is_foreseen(ONE, "s.*.0"));
    assert_eq!(scene.purge("s.*.0"), 300);
}

#[test]
fn only_a_purge_that_takes_long_needs_a_preparation() {
    let mut scene = Scene::new(50, &json!({}));
    (0..100).for_each(|_| scene.publish("s.often"));
    let must = |pattern: &str, limit| scene.streams.must_foresee(ONE, pattern, limit);
    assert!(must("s.*.0", 50) && !must("s.*.0", 51));
    assert!(must("s.often", 24) && !must("s.often", 25));
    assert!(!must("s.1.1", 1) && !must("s.none", 0) && !must("", 0) && !must(">", 0));
    assert!(!scene.streams.must_foresee(StreamNumber::new(9), "s.*.0", 0));
    // A few subjects have so many messages that their blocks take long to copy.
    let mut scene = Scene::new(2, &json!({}));
    (0..100).for_each(|_| scene.publish("s.often"));
    assert!(scene.streams.must_foresee(ONE, "s.*", 25));
}

/// Makes a stream and deletes it again and again. The state of the group does not grow, and neither does the
/// work that is left.
#[test]
fn streams_made_and_deleted_leave_no_state() {
    let mut scene = Scene::new(0, &json!({}));
    let (mut before, mut numbers) = (None, Vec::new());
    for round in 0..50_u32 {
        let number = StreamNumber::new(round + 2);
        let config = json!({"name": format!("R{}", round % 3), "subjects": [format!("r.{round}.>")],
            "max_msgs_per_subject": 4, "allow_msg_ttl": true});
        let made = scene.command(Kind::CreateStream, 0, &config.to_string());
        assert_eq!(made, Outcome::Created { stream: number });
        for n in 0..20 {
            let stored = scene.apply(|entry| {
                let subject = format!("r.{round}.{n}");
                let ttl = Some(&b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n"[..]);
                entry
                    .publish(number, subject.as_bytes(), ttl, b"x")
                    .unwrap();
            });
            assert!(matches!(stored, Outcome::Stored { .. }), "{stored:?}");
        }
        scene.streams.foresee(number, "r.*.*");
        scene.streams.go_on_foreseeing(5);
        scene.command(Kind::DeleteStream, round + 2, "{}");
        scene.streams.go_on_foreseeing(5);
        scene.finish();
        let left = (scene.streams.len(), scene.streams.is_foreseeing());
        let now = (left, scene.streams.held(), scene.snapshot().len());
        assert_eq!(*before.get_or_insert(now), now, "round {round}");
        numbers.push(scene.streams.last_id());
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 50, "no number comes twice");
}
