//! Tests that the server answers direct requests with the messages, headers and statuses of nats-server.

use std::collections::BTreeMap;

use super::*;
use crate::schema::sequence::nth;

/// A stream in memory, in place of a stream of the server. It stored message n at second n.
#[derive(Default)]
struct Stream {
    messages: BTreeMap<StreamSeq, (&'static str, &'static [u8])>,
    last: StreamSeq,
}

impl Stream {
    fn new(subjects: &[&'static str]) -> Self {
        let numbered = (1..)
            .map(StreamSeq::new)
            .zip(subjects.iter().map(|s| (*s, &b""[..])));
        Self {
            messages: numbered.collect(),
            last: StreamSeq::new(subjects.len() as u64),
        }
    }

    fn matching(&self, pattern: &[u8]) -> impl DoubleEndedIterator<Item = StreamSeq> {
        let of = |(seq, (subject, _)): (&StreamSeq, &(&str, &[u8]))| {
            subject::contains(pattern, subject.as_bytes()).then_some(*seq)
        };
        self.messages.iter().filter_map(of)
    }
}

impl Index for Stream {
    fn first_seq(&self) -> StreamSeq {
        self.messages
            .keys()
            .next()
            .copied()
            .unwrap_or_else(|| self.last.next())
    }

    fn last_seq(&self) -> StreamSeq {
        self.last
    }

    fn contains(&self, seq: StreamSeq) -> bool {
        self.messages.contains_key(&seq)
    }

    fn next_at(&mut self, seq: StreamSeq, pattern: &[u8]) -> Option<StreamSeq> {
        self.matching(pattern).find(|&s| s >= seq)
    }

    fn count_from(&mut self, seq: StreamSeq, pattern: &[u8]) -> u64 {
        self.matching(pattern).filter(|&s| s >= seq).count() as u64
    }

    fn last_of(&mut self, pattern: &[u8]) -> Option<StreamSeq> {
        self.matching(pattern).next_back()
    }

    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq {
        let seq = StreamSeq::new(time_us.div_ceil(1_000_000));
        self.next_at(seq, b">").unwrap_or_else(|| self.last.next())
    }

    fn last_per_subject(
        &mut self,
        pattern: &[u8],
        up_to: StreamSeq,
        max: usize,
    ) -> Option<Vec<StreamSeq>> {
        let numbers = self.matching(pattern).filter(|&seq| seq <= up_to);
        let last: BTreeMap<_, _> = numbers.map(|seq| (self.messages[&seq].0, seq)).collect();
        (last.len() <= max).then(|| last.into_values().collect())
    }
}

/// Returns everything that the server sends in answer to a request, with each header block on one line, for
/// comparison.
fn answer(stream: &mut Stream, subject: Option<&str>, body: &str) -> Vec<String> {
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
    let (mut reading, mut sent) = (get.read(stream), Vec::new());
    loop {
        match reading.poll(stream) {
            Part::Read(seq) => {
                let Some((subject, headers)) = stream.messages.get(&seq) else {
                    reading.handle_gone();
                    continue;
                };
                let message = Message {
                    subject: subject.as_bytes(),
                    headers,
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
    let mut stream = Stream::new(&["s.0", "s.1", "s.2", "s.0"]);
    stream.messages.remove(&nth(2));
    for (body, subject, seq) in [
        (r#"{"seq":1}"#, "s.0", 1),
        (r#"{"last_by_subj":"s.2"}"#, "s.2", 3),
        (r#"{"last_by_subj":"s.>"}"#, "s.0", 4),
        (r#"{"next_by_subj":"s.>"}"#, "s.0", 1),
        (r#"{"seq":2,"next_by_subj":"s.*"}"#, "s.2", 3),
        (r#"{"start_time":"1970-01-01T00:00:02.5Z"}"#, "s.2", 3),
    ] {
        assert_eq!(
            answer(&mut stream, None, body),
            [sent(subject, seq, "")],
            "{body}"
        );
    }
    assert_eq!(answer(&mut stream, Some("s.0"), ""), [sent("s.0", 4, "")]);
    let missing = ["404 Message Not Found"];
    for body in [
        r#"{"seq":2}"#,
        r#"{"seq":9}"#,
        r#"{"last_by_subj":"q"}"#,
        r#"{"start_time":"2030-01-01T00:00:00Z"}"#,
    ] {
        assert_eq!(answer(&mut stream, None, body), missing, "{body}");
    }
    assert_eq!(answer(&mut stream, Some("s.99"), ""), missing);
}

#[test]
fn own_headers_come_first() {
    let mut stream = Stream::new(&["s.0"]);
    stream
        .messages
        .insert(nth(1), ("s.0", b"NATS/1.0\r\nA: b\r\n\r\n"));
    assert_eq!(
        answer(&mut stream, None, r#"{"seq":1}"#),
        ["A: b; Stream: S; Subject: s.0; Sequence: 1; Time-Stamp: 1970-01-01T00:00:01Z"]
    );
    assert_eq!(
        answer(&mut stream, None, r#"{"seq":1,"no_hdr":true}"#),
        [""]
    );
}

#[test]
fn several_messages() {
    let mut stream = Stream::new(&["s.0", "s.1", "s.2"]);
    stream.messages.remove(&nth(2));
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
        answer(&mut stream, None, r#"{"seq":1,"batch":5}"#),
        [first(1), third(), eob(0, 3)]
    );
    assert_eq!(
        answer(&mut stream, None, r#"{"next_by_subj":"s.>","batch":1}"#),
        [first(1), eob(1, 1)]
    );
    assert_eq!(
        answer(&mut stream, None, r#"{"seq":1,"batch":5,"max_bytes":1}"#),
        [first(1), eob(1, 1)]
    );
    assert_eq!(
        answer(&mut stream, None, r#"{"seq":9,"batch":5}"#),
        ["404 Message Not Found"]
    );
    assert_eq!(
        answer(&mut stream, None, r#"{"next_by_subj":"s.0","batch":5}"#),
        [first(0), eob(0, 1)]
    );
}

#[test]
fn last_of_several_subjects() {
    let mut stream = Stream::new(&["a.1", "a.2", "b", "a.1"]);
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
        assert_eq!(answer(&mut stream, None, body), expected, "{body}");
    }
}

#[test]
fn too_many_subjects() {
    let mut stream = Stream::default();
    for seq in 1..=1025 {
        stream
            .messages
            .insert(nth(seq), (format!("a.{seq}").leak(), b""));
    }
    stream.last = nth(1025);
    assert_eq!(
        answer(&mut stream, None, r#"{"multi_last":["a.*"]}"#),
        ["413 Too Many Results"]
    );
    assert_eq!(
        answer(
            &mut stream,
            None,
            r#"{"multi_last":["a.*"],"up_to_seq":1024}"#
        )
        .len(),
        1025
    );
}

#[test]
fn messages_that_go_meanwhile() {
    let mut stream = Stream::new(&["a", "b", "c"]);
    let get = parse(None, br#"{"seq":1,"batch":3}"#).unwrap();
    let mut reading = get.read(&mut stream);
    assert_eq!(reading.poll(&mut stream), Part::Read(nth(1)));
    reading.handle_gone();
    assert_eq!(reading.poll(&mut stream), Part::Read(nth(2)));
    // A second poll names the message again, because the caller has not read it yet.
    assert_eq!(reading.poll(&mut stream), Part::Read(nth(2)));
    let one = parse(None, br#"{"seq":1}"#).unwrap();
    let mut reading = one.read(&mut stream);
    assert_eq!(reading.poll(&mut stream), Part::Read(nth(1)));
    reading.handle_gone();
    assert_eq!(
        reading.poll(&mut stream),
        Part::Status(status::MESSAGE_NOT_FOUND.to_vec())
    );
    assert_eq!(reading.poll(&mut stream), Part::End);
}

#[test]
fn messages_that_come_meanwhile_are_counted() {
    let mut stream = Stream::new(&["a", "b"]);
    let get = parse(None, br#"{"seq":1,"batch":1}"#).unwrap();
    let mut reading = get.read(&mut stream);
    assert_eq!(reading.poll(&mut stream), Part::Read(nth(1)));
    let message = Message {
        subject: b"a",
        headers: b"",
        payload: b"",
        time_us: 0,
    };
    reading.handle_message("S", nth(1), &message, &mut Vec::new());
    stream.messages.insert(nth(3), ("c", b""));
    stream.last = nth(3);
    let eob = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-Last-Sequence: 1\r\n\r\n";
    assert_eq!(reading.poll(&mut stream), Part::Status(eob.to_vec()));
}

#[test]
fn a_message_for_an_answer_as_json() {
    let mut stream = Stream::new(&["a", "b", "a"]);
    let mut find = |body: &str| parse_json(body.as_bytes()).unwrap().find(&mut stream);
    assert_eq!(find(r#"{"seq":2}"#), Some(nth(2)));
    assert_eq!(find(r#"{"seq":4}"#), None);
    assert_eq!(find(r#"{"last_by_subj":"a"}"#), Some(nth(3)));
    assert_eq!(find(r#"{"seq":2,"next_by_subj":"a"}"#), Some(nth(3)));
    assert_eq!(
        find(r#"{"start_time":"1970-01-01T00:00:02Z"}"#),
        Some(nth(2))
    );
}
