//! Tests a consumer with a stream and connections in memory, in virtual time: by transcripts, and by
//! comparison with a model.

mod away;
mod deadlines;
mod model;
mod preparing;
mod script;
mod transcripts;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_nats::subject;

use super::*;
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::sequence::StreamSeq;

/// A stream in memory, seen through a consumer's filters, in place of a stream of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) messages: BTreeMap<StreamSeq, Stored>,
    last_seq: StreamSeq,
    pub(super) filters: Vec<String>,
    /// The subjects in the order of their first messages, which is the order of a search over subjects.
    places: Vec<String>,
    /// The messages that the stream is still reading, so that the consumer must wait for them.
    reading: BTreeSet<StreamSeq>,
    /// The messages that the stream cannot read, so that the consumer skips them.
    damaged: BTreeSet<StreamSeq>,
    one_a_subject: bool,
    counts_in_parts: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Stored {
    subject: String,
    headers: Vec<u8>,
    payload: Vec<u8>,
    time_us: u64,
}

impl Stream {
    fn matches(&self, name: &str) -> bool {
        let contains = |f: &String| subject::contains(f.as_bytes(), name.as_bytes());
        self.filters.is_empty() || self.filters.iter().any(contains)
    }

    fn last_per_subject(&self) -> BTreeMap<String, StreamSeq> {
        let all = self.matching(StreamSeq::ZERO);
        all.map(|(seq, m)| (m.subject.clone(), seq)).collect()
    }

    fn store(&mut self, subject: &str, time_us: u64) -> StreamSeq {
        self.last_seq = self.last_seq.next();
        let stored = Stored {
            subject: subject.to_owned(),
            headers: Vec::new(),
            payload: Vec::new(),
            time_us,
        };
        self.messages.insert(self.last_seq, stored);
        self.last_seq
    }

    fn matching(&self, from: StreamSeq) -> impl Iterator<Item = (StreamSeq, &Stored)> {
        let messages = self.messages.range(from..).map(|(seq, m)| (*seq, m));
        messages.filter(|(_, m)| self.matches(&m.subject))
    }
}

/// Creates a stream with one message for each of these subjects, in this order.
pub(super) fn with_messages(subjects: &[&str]) -> Stream {
    let mut stream = Stream::default();
    for subject in subjects {
        stream.store(subject, 1);
    }
    stream
}

impl View for Stream {
    fn first_seq(&self) -> StreamSeq {
        let first = self.messages.first_key_value().map(|(seq, _)| *seq);
        first.unwrap_or_else(|| self.last_seq.next())
    }

    fn last_seq(&self) -> StreamSeq {
        self.last_seq
    }

    fn last_matching(&mut self) -> Option<StreamSeq> {
        self.matching(StreamSeq::ZERO).last().map(|(seq, _)| seq)
    }

    fn seq_at_time(&mut self, time_us: u64) -> StreamSeq {
        let mut messages = self.messages.iter();
        messages
            .find(|(_, m)| m.time_us >= time_us)
            .map_or_else(|| self.last_seq.next(), |(seq, _)| *seq)
    }
}

impl Source for Stream {
    fn first_seq(&self) -> StreamSeq {
        View::first_seq(self)
    }

    fn last_seq(&self) -> StreamSeq {
        self.last_seq
    }

    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        self.matching(seq).next().map(|(seq, _)| seq)
    }

    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        self.matching(seq).count() as u64
    }

    fn counts_in_parts(&self) -> bool {
        self.counts_in_parts
    }

    fn count_part(&mut self, from: StreamSeq, len: u64) -> (u64, Option<StreamSeq>) {
        let end = from.saturating_after(len);
        let count = self
            .matching(from)
            .take_while(|(seq, _)| *seq < end)
            .count();
        (count as u64, (end <= self.last_seq).then_some(end))
    }

    fn lasts(&mut self, from: usize, len: usize, up_to: Option<StreamSeq>) -> Option<Lasts> {
        // The place of a subject is its rank in the order of first messages, so it stays while the stream
        // changes.
        for message in self.messages.values() {
            if !self.places.contains(&message.subject) {
                self.places.push(message.subject.clone());
            }
        }
        let up_to = up_to.unwrap_or(StreamSeq::MAX);
        let all = self.matching(StreamSeq::ZERO);
        let all = all.filter(|(seq, _)| *seq <= up_to);
        let lasts: BTreeMap<&str, StreamSeq> = all.map(|(seq, m)| (&*m.subject, seq)).collect();
        let part = self.places.iter().skip(from).take(len);
        let seqs = part.filter_map(|subject| lasts.get(&**subject).copied());
        let next = from + len;
        let part = (seqs.collect(), (next < self.places.len()).then_some(next));
        (!self.one_a_subject).then_some(part)
    }

    fn is_last(&mut self, seq: StreamSeq) -> bool {
        self.last_per_subject().values().any(|last| *last == seq)
    }

    fn contains(&self, seq: StreamSeq) -> bool {
        self.messages.contains_key(&seq)
    }

    fn message(&mut self, seq: StreamSeq) -> Fetch<'_> {
        match self.messages.get(&seq) {
            _ if self.reading.contains(&seq) => Fetch::Pending,
            Some(m) if !self.damaged.contains(&seq) => Fetch::Ready(Message {
                subject: m.subject.as_bytes(),
                headers: &m.headers,
                payload: &m.payload,
                time_us: m.time_us,
            }),
            _ => Fetch::Gone,
        }
    }
}

/// A message, status, answer or advisory that the consumer sent, for comparison with the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sent {
    Message {
        to: String,
        subject: String,
        numbers: AckNumbers,
        headers: String,
        payload: String,
    },
    Status {
        to: String,
        reply: String,
        headers: String,
    },
    Answer(String),
    Advisory(String),
}

/// The connections of clients in memory, which record all that the consumer sends.
#[derive(Clone, Debug, Default)]
struct Net {
    sent: Vec<Sent>,
    nobody: BTreeSet<String>,
    behind: BTreeSet<String>,
    /// The number of messages that a receiver takes before its connection is behind; 0 for any number.
    room: usize,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl Sink for Net {
    fn ready(&mut self, to: &[u8], group: Option<&[u8]>) -> Ready {
        let to = group.map_or_else(|| text(to), |g| format!("{}@{}", text(to), text(g)));
        if self.nobody.contains(&to) {
            Ready::Nobody
        } else if self.behind.contains(&to) {
            Ready::Behind
        } else {
            Ready::Yes
        }
    }

    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready {
        assert_eq!(self.ready(to, None), Ready::Yes, "nobody asked first");
        let ack = AckSubject::parse(delivery.reply).unwrap();
        assert_eq!((ack.stream, ack.consumer), (&b"S"[..], &b"C"[..]));
        self.sent.push(Sent::Message {
            to: text(to),
            subject: text(delivery.subject),
            numbers: ack.numbers,
            headers: text(delivery.headers),
            payload: text(delivery.payload),
        });
        let of = |s: &&Sent| matches!(s, Sent::Message { to: t, .. } if t.as_bytes() == to);
        if self.room > 0 && self.sent.iter().filter(of).count() >= self.room {
            return Ready::Behind;
        }
        Ready::Yes
    }

    fn status(&mut self, to: &[u8], reply: &[u8], headers: &[u8]) {
        self.sent.push(Sent::Status {
            to: text(to),
            reply: text(reply),
            headers: text(headers),
        });
    }

    fn answer(&mut self, to: &[u8]) {
        self.sent.push(Sent::Answer(text(to)));
    }

    fn advisory(&mut self, advisory: &Advisory<'_>) {
        let json = text(&advisory.json("id", "now"));
        self.sent
            .push(Sent::Advisory(format!("{} {json}", advisory.subject())));
    }
}

/// Returns the configuration of the stream against which the tests check the configurations of consumers.
fn stream_config() -> StreamConfig {
    StreamConfig {
        name: "S".into(),
        subjects: ["a", "b", "c", "d", "e", "f", "g", "*.*"]
            .map(Into::into)
            .into(),
        num_replicas: 1,
        ..StreamConfig::default()
    }
}

/// Returns a consumer's configuration from JSON, checked and with defaults, as a client's request makes it.
fn config(json: &str) -> ConsumerConfig {
    let mut config: ConsumerConfig = serde_json::from_str(json).expect(json);
    rules::set_defaults(&mut config, &stream_config());
    rules::check(&config, &stream_config()).expect(json);
    config
}

fn filters(config: &ConsumerConfig) -> Vec<String> {
    let one = Some(&config.filter_subject).filter(|f| !f.is_empty());
    one.into_iter()
        .chain(&config.filter_subjects)
        .cloned()
        .collect()
}
