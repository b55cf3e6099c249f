//! Tests that the server answers direct requests with the messages, headers and statuses of nats-server.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::nth;
use crate::stream::{AccountLimits, Command, Encoder, Kind, Streams};

/// A stream that stored message n at second n, and the headers of some of its messages.
struct Scene {
    streams: Streams,
    headers: BTreeMap<StreamSeq, &'static [u8]>,
}

impl Scene {
    fn new(subjects: &[&str]) -> Self {
        let mut scene = Self {
            streams: Streams::new(AccountLimits::NONE),
            headers: BTreeMap::new(),
        };
        let config = br#"{"name":"S","subjects":["s.*","a","a.*","b","c"]}"#;
        scene.apply(0, |entry| {
            let command = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config);
            entry.command(&command).unwrap();
        });
        subjects.iter().for_each(|subject| scene.publish(subject));
        scene
    }

    fn apply(&mut self, second: u64, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, second * 1_000_000));
        let entry = Bytes::from(entry);
        let applied = self
            .streams
            .apply(second * 64, &entry, &mut Vec::new(), &mut Vec::new());
        applied.unwrap();
    }

    fn stream(&self) -> &Stream {
        self.streams.get(StreamNumber::FIRST).unwrap()
    }

    fn publish(&mut self, subject: &str) {
        let next = self.stream().last_seq().next();
        self.apply(next.get(), |entry| {
            let stream = StreamNumber::FIRST;
            entry
                .publish(stream, subject.as_bytes(), None, b"x")
                .unwrap();
        });
        assert_eq!(self.stream().last_seq(), next);
    }

    fn remove(&mut self, seq: StreamSeq) {
        let body = format!(r#"{{"seq":{seq}}}"#);
        self.apply(self.stream().last_seq().get(), |entry| {
            let stream = StreamNumber::FIRST;
            let command = Command::new(Kind::DeleteMessage, stream, b"", body.as_bytes());
            entry.command(&command).unwrap();
        });
        assert!(!self.stream().contains(seq));
    }
}

/// Returns everything that the server sends in answer to a request, with each header block on one line, for
/// comparison.
fn answer(scene: &Scene, subject: Option<&str>, body: &str) -> Vec<String> {
    let line = |block: &[u8]| {
        let text = std::str::from_utf8(block).unwrap();
        let text = text.strip_suffix("\r\n\r\n").unwrap_or(text);
        text.replace("NATS/1.0", "")
            .replace("\r\nNats-", "; ")
            .trim()
            .to_owned()
    };
    let get = match parse(subject, body.as_bytes()) {
        Ok(get) => get,
        Err(status) => return vec![line(status)],
    };
    let stream = scene.stream();
    let (mut reading, mut sent) = (get.read(stream), Vec::new());
    loop {
        // The reading looks for its messages in the shortest parts.
        while !reading.seek(stream, &mut 1) {}
        match reading.poll(stream) {
            Part::Read(seq) => {
                let Some(stored) = stream.message(seq) else {
                    reading.handle_gone();
                    continue;
                };
                let message = Message {
                    subject: &stored.subject,
                    headers: scene.headers.get(&seq).copied().unwrap_or_default(),
                    payload: b"hi",
                    time_us: seq.get() * 1_000_000,
                };
                let mut block = Vec::new();
                reading.handle_message("S", seq, &message, &mut block);
                sent.push(line(&block));
            }
            Part::Status(block) => sent.push(line(&block)),
            Part::End => return sent,
        }
    }
}

/// Returns the line that [`answer`] gives for a message: its subject, its number, and `more` after the time.
fn sent(subject: &str, seq: u64, more: &str) -> String {
    format!(
        "; Stream: S; Subject: {subject}; Sequence: {seq}; Time-Stamp: 1970-01-01T00:00:0{seq}Z{more}"
    )
}

#[test]
fn one_message() {
    let mut scene = Scene::new(&["s.0", "s.1", "s.2", "s.0"]);
    scene.remove(nth(2));
    for (body, subject, seq) in [
        (r#"{"seq":1}"#, "s.0", 1),
        (r#"{"last_by_subj":"s.2"}"#, "s.2", 3),
        (r#"{"last_by_subj":"s.>"}"#, "s.0", 4),
        (r#"{"next_by_subj":"s.>"}"#, "s.0", 1),
        (r#"{"seq":2,"next_by_subj":"s.*"}"#, "s.2", 3),
        (r#"{"start_time":"1970-01-01T00:00:02.5Z"}"#, "s.2", 3),
    ] {
        assert_eq!(
            answer(&scene, None, body),
            [sent(subject, seq, "")],
            "{body}"
        );
    }
    assert_eq!(answer(&scene, Some("s.0"), ""), [sent("s.0", 4, "")]);
    let missing = ["404 Message Not Found"];
    for body in [
        r#"{"seq":2}"#,
        r#"{"seq":9}"#,
        r#"{"last_by_subj":"q"}"#,
        r#"{"start_time":"2030-01-01T00:00:00Z"}"#,
    ] {
        assert_eq!(answer(&scene, None, body), missing, "{body}");
    }
    assert_eq!(answer(&scene, Some("s.99"), ""), missing);
}

#[test]
fn own_headers_come_first() {
    let mut scene = Scene::new(&["s.0"]);
    scene.headers.insert(nth(1), b"NATS/1.0\r\nA: b\r\n\r\n");
    assert_eq!(
        answer(&scene, None, r#"{"seq":1}"#),
        ["A: b; Stream: S; Subject: s.0; Sequence: 1; Time-Stamp: 1970-01-01T00:00:01Z"]
    );
    assert_eq!(answer(&scene, None, r#"{"seq":1,"no_hdr":true}"#), [""]);
}

#[test]
fn several_messages() {
    let mut scene = Scene::new(&["s.0", "s.1", "s.2"]);
    scene.remove(nth(2));
    let first = |pending: u64| {
        sent(
            "s.0",
            nth(1).get(),
            &format!("; Num-Pending: {pending}; Last-Sequence: 0"),
        )
    };
    let third = || sent("s.2", 3, "; Num-Pending: 0; Last-Sequence: 1");
    let eob =
        |pending: u64, last: u64| format!("204 EOB; Num-Pending: {pending}; Last-Sequence: {last}");
    assert_eq!(
        answer(&scene, None, r#"{"seq":1,"batch":5}"#),
        [first(1), third(), eob(0, 3)]
    );
    assert_eq!(
        answer(&scene, None, r#"{"next_by_subj":"s.>","batch":1}"#),
        [first(1), eob(1, 1)]
    );
    assert_eq!(
        answer(&scene, None, r#"{"seq":1,"batch":5,"max_bytes":1}"#),
        [first(1), eob(1, 1)]
    );
    assert_eq!(
        answer(&scene, None, r#"{"seq":9,"batch":5}"#),
        ["404 Message Not Found"]
    );
    assert_eq!(
        answer(&scene, None, r#"{"next_by_subj":"s.0","batch":5}"#),
        [first(0), eob(0, 1)]
    );
}

#[test]
fn last_of_several_subjects() {
    let scene = Scene::new(&["a.1", "a.2", "b", "a.1"]);
    let eob = |pending: u64, last: u64, up_to: u64| {
        format!("204 EOB; Num-Pending: {pending}; Last-Sequence: {last}; UpTo-Sequence: {up_to}")
    };
    let line = |subject: &str, seq: u64, pending: u64, last: u64| {
        sent(
            subject,
            seq,
            &format!("; Num-Pending: {pending}; Last-Sequence: {last}"),
        )
    };
    for (body, expected) in [
        (
            r#"{"multi_last":["a.>"]}"#,
            vec![line("a.2", 2, 1, 0), line("a.1", 4, 0, 2), eob(0, 4, 4)],
        ),
        (
            r#"{"multi_last":["a.>"],"batch":1}"#,
            vec![line("a.2", 2, 1, 0), eob(1, 2, 4)],
        ),
        (
            r#"{"multi_last":["b","a.2",">"],"seq":3}"#,
            vec![line("b", 3, 1, 0), line("a.1", 4, 0, 3), eob(0, 4, 4)],
        ),
        (
            r#"{"multi_last":["a.>"],"up_to_seq":2}"#,
            vec![line("a.1", 1, 1, 0), line("a.2", 2, 0, 1), eob(0, 2, 2)],
        ),
        (
            r#"{"multi_last":["a.>"],"up_to_time":"1970-01-01T00:00:03Z"}"#,
            vec![line("a.1", 1, 1, 0), line("a.2", 2, 0, 1), eob(0, 2, 2)],
        ),
        (r#"{"multi_last":["q"]}"#, vec!["404 No Results".into()]),
        (
            r#"{"multi_last":["a.>"],"up_to_time":"1970-01-01T00:00:01Z"}"#,
            vec!["404 No Results".into()],
        ),
    ] {
        assert_eq!(answer(&scene, None, body), expected, "{body}");
    }
}

#[test]
fn too_many_subjects() {
    let mut scene = Scene::new(&[]);
    for seq in 1..=1025 {
        scene.publish(&format!("a.{seq}"));
    }
    assert_eq!(
        answer(&scene, None, r#"{"multi_last":["a.*"]}"#),
        ["413 Too Many Results"]
    );
    assert_eq!(
        answer(&scene, None, r#"{"multi_last":["a.*"],"up_to_seq":1024}"#).len(),
        1025
    );
}

#[test]
fn messages_that_go_meanwhile() {
    let scene = Scene::new(&["a", "b", "c"]);
    let get = parse(None, br#"{"seq":1,"batch":3}"#).unwrap();
    let mut reading = get.read(scene.stream());
    assert_eq!(reading.poll(scene.stream()), Part::Read(nth(1)));
    reading.handle_gone();
    assert_eq!(reading.poll(scene.stream()), Part::Read(nth(2)));
    // A second poll names the message again, because the caller has not read it yet.
    assert_eq!(reading.poll(scene.stream()), Part::Read(nth(2)));
    let one = parse(None, br#"{"seq":1}"#).unwrap();
    let mut reading = one.read(scene.stream());
    assert_eq!(reading.poll(scene.stream()), Part::Read(nth(1)));
    reading.handle_gone();
    assert_eq!(
        reading.poll(scene.stream()),
        Part::Status(status::MESSAGE_NOT_FOUND.to_vec())
    );
    assert_eq!(reading.poll(scene.stream()), Part::End);
}

#[test]
fn messages_that_come_meanwhile_are_counted() {
    let mut scene = Scene::new(&["a", "b"]);
    let get = parse(None, br#"{"seq":1,"batch":1}"#).unwrap();
    let mut reading = get.read(scene.stream());
    assert_eq!(reading.poll(scene.stream()), Part::Read(nth(1)));
    let message = Message {
        subject: b"a",
        headers: b"",
        payload: b"",
        time_us: 0,
    };
    reading.handle_message("S", nth(1), &message, &mut Vec::new());
    scene.publish("c");
    let eob = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 1\r\n\r\n";
    assert_eq!(reading.poll(scene.stream()), Part::Status(eob.to_vec()));
}

#[test]
fn a_message_for_an_answer_as_json() {
    let scene = Scene::new(&["a", "b", "a"]);
    let find = |body: &str| parse_json(body.as_bytes()).unwrap().find(scene.stream());
    assert_eq!(find(r#"{"seq":2}"#), Some(nth(2)));
    assert_eq!(find(r#"{"seq":4}"#), None);
    assert_eq!(find(r#"{"last_by_subj":"a"}"#), Some(nth(3)));
    assert_eq!(find(r#"{"seq":2,"next_by_subj":"a"}"#), Some(nth(3)));
    assert_eq!(
        find(r#"{"start_time":"1970-01-01T00:00:02Z"}"#),
        Some(nth(2))
    );
}
