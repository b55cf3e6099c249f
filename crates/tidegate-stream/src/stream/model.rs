//! A test that applies random commands to the streams and to a model, which keeps a plain list of messages,
//! to find defects of the streams. Both must agree on every outcome, and after every command on the content
//! of the stream and on every query. A second node applies the same entries, and a restored snapshot of it
//! sometimes replaces it; in the end both have the same bytes.

mod hostile;

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use tidegate_cluster::groups::GroupId;

use super::*;
use crate::schema::config::{Discard, Storage, StreamConfig};
use crate::schema::number::StreamNumber;
use crate::schema::sequence::{StreamSeq, nth};

const ONE: StreamNumber = StreamNumber::FIRST;

const SUBJECTS: [&str; 5] = ["s.a", "s.b", "s.c.d", "s.c.e", "s.f"];
const FILTERS: [&[&str]; 6] = [
    &[],
    &["s.a"],
    &["s.c.*"],
    &["s.a", "s.c.e"],
    &["s.none"],
    &["*.b", "s.f"],
];

#[derive(Clone, Debug, Default)]
struct Headers {
    msg_id: Option<u8>,
    last_seq: Option<i8>,
    last_subject_seq: Option<(i8, Option<usize>)>,
    last_msg_id: Option<u8>,
    rollup: Option<bool>,
    ttl: Option<Option<u8>>,
    purge_marker: bool,
}

#[derive(Clone, Debug)]
enum Act {
    Publish(usize, u8, Headers),
    Flood(usize, u16),
    Batch(Vec<(usize, Headers)>),
    Purge(usize, u64, u64),
    Delete(prop::sample::Index),
    Pass(u32),
    Expire,
    Update(Box<StreamConfig>),
    Snapshot,
    Relocate(prop::sample::Index),
    /// Makes the two nodes do these numbers of parts of the work that removals have left. Each node also
    /// prepares as many parts of a coming purge, so that the two have different amounts of work left.
    Reclaim(usize, usize),
    /// Makes the nodes begin to prepare a purge by this filter, which may come later or never.
    Foresee(usize),
    /// Changes the directory entry for a stream that another group keeps, because such an entry must never
    /// get messages.
    Directory(Entered),
}

#[derive(Clone, Copy, Debug)]
enum Entered {
    Create(u32),
    Made,
    Update,
    Delete,
    Publish,
    Purge,
    Consumer,
}

fn headers() -> impl Strategy<Value = Headers> {
    let rare = |range: std::ops::Range<u8>| prop::option::weighted(0.2, range);
    (
        rare(0..4),
        prop::option::weighted(0.1, -1..1_i8),
        prop::option::weighted(0.1, (-1..1_i8, prop::option::of(0..3_usize))),
        prop::option::weighted(0.05, 0..4_u8),
        prop::option::weighted(0.1, any::<bool>()),
        prop::option::weighted(0.2, prop::option::weighted(0.8, 1..9_u8)),
        prop::bool::weighted(0.1),
    )
        .prop_map(|h| Headers {
            msg_id: h.0,
            last_seq: h.1,
            last_subject_seq: h.2,
            last_msg_id: h.3,
            rollup: h.4,
            ttl: h.5,
            purge_marker: h.6,
        })
}

fn config() -> impl Strategy<Value = StreamConfig> {
    let limit = |choices: &'static [i64]| prop::sample::select(choices);
    (
        limit(&[-1, -1, 3, 300]),
        limit(&[-1, -1, 200, 20_000]),
        limit(&[-1, -1, 1, 2, 7]),
        limit(&[0, 0, 5_000_000_000]),
        limit(&[0, 2_000_000_000]),
        any::<(bool, bool, bool)>(),
    )
        .prop_map(
            |(msgs, bytes, per_subject, age, marker, flags)| StreamConfig {
                name: "S".into(),
                subjects: vec!["s.>".into()],
                max_msgs: msgs,
                max_bytes: bytes,
                max_msgs_per_subject: per_subject,
                max_age: age,
                discard: if flags.0 { Discard::New } else { Discard::Old },
                discard_new_per_subject: flags.0 && per_subject > 0 && flags.1,
                duplicate_window: 1_000_000_000,
                allow_rollup_hdrs: true,
                allow_msg_ttl: true,
                allow_atomic: true,
                subject_delete_marker_ttl: marker,
                allow_direct: flags.2,
                ..StreamConfig::default()
            },
        )
}

fn act() -> impl Strategy<Value = Act> {
    let subject = || 0..SUBJECTS.len();
    prop_oneof![
        12 => (subject(), 0..40_u8, headers()).prop_map(|(s, n, h)| Act::Publish(s, n, h)),
        2 => (subject(), 1..300_u16).prop_map(|(s, n)| Act::Flood(s, n)),
        2 => prop::collection::vec((subject(), headers()), 1..4).prop_map(Act::Batch),
        2 => (0..FILTERS.len(), 0..40_u64, 0..4_u64).prop_map(|(f, s, k)| Act::Purge(f, s, k)),
        2 => (0..FILTERS.len()).prop_map(Act::Foresee),
        3 => any::<prop::sample::Index>().prop_map(Act::Delete),
        3 => (0..3_000_000_u32).prop_map(Act::Pass),
        2 => Just(Act::Expire),
        1 => config().prop_map(|c| Act::Update(Box::new(c))),
        1 => Just(Act::Snapshot),
        1 => any::<prop::sample::Index>().prop_map(Act::Relocate),
        2 => entered().prop_map(Act::Directory),
        2 => (0..9_usize, 0..9_usize).prop_map(|(one, other)| Act::Reclaim(one, other)),
    ]
}

fn entered() -> impl Strategy<Value = Entered> {
    use Entered::*;
    prop_oneof![
        (1..3_u32).prop_map(Create),
        prop::sample::select(&[Made, Update, Delete, Publish, Purge, Consumer][..]),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Message {
    subject: String,
    time: u64,
    bytes: u64,
    due: Option<u64>,
    never: bool,
    marker: bool,
}

/// The expected content of the stream: the rules of a stream, applied to a plain list of messages.
struct Model {
    config: StreamConfig,
    messages: BTreeMap<u64, Message>,
    last_seq: u64,
    last_time: u64,
    ids: Vec<(u8, u64, u64)>,
    last_id: Option<u8>,
    now: u64,
}

/// The result of a publish that the model expects: the number of the message, the number of an earlier
/// message that the message duplicates, or the code of an error.
type Expected = Result<u64, Result<u64, u16>>;

struct Publish<'a> {
    subject: &'a str,
    payload: usize,
    headers: &'a Headers,
    /// The header values. The test notes them when it encodes the headers, so that the nodes and the model
    /// check the same numbers.
    last_seq: Option<u64>,
    last_subject_seq: Option<(u64, &'a str)>,
    block_bytes: usize,
}

impl Model {
    fn last_of(&self, subject: &str) -> u64 {
        let found = self
            .messages
            .iter()
            .rev()
            .find(|(_, m)| m.subject == subject);
        found.map_or(0, |(seq, _)| *seq)
    }

    fn count_of(&self, subject: &str) -> u64 {
        self.messages
            .values()
            .filter(|m| m.subject == subject)
            .count() as u64
    }

    fn bytes(&self) -> u64 {
        self.messages.values().map(|m| m.bytes).sum()
    }

    fn size(p: &Publish<'_>) -> u64 {
        let frame = if p.block_bytes > 0 { 34 } else { 30 };
        (frame + p.subject.len() + p.block_bytes + p.payload) as u64
    }

    fn check(&self, p: &Publish<'_>, staged: &[&Publish<'_>], in_batch: bool) -> Expected {
        let h = p.headers;
        let c = &self.config;
        if let Some(id) = h.msg_id {
            let horizon = self.now.saturating_sub(1_000_000);
            let known = self.ids.iter().find(|(i, _, t)| *i == id && *t >= horizon);
            match known {
                Some((_, seq, _)) if !in_batch => return Err(Ok(*seq)),
                Some(_) => return Err(Err(10201)),
                None if staged.iter().any(|s| s.headers.msg_id == Some(id)) => {
                    return Err(Err(10201));
                }
                None => {}
            }
        }
        if h.last_msg_id.is_some() && h.last_msg_id != self.last_id {
            return Err(Err(10070));
        }
        if let Some(expected) = p.last_seq {
            if !staged.is_empty() {
                return Err(Err(10164));
            }
            if expected != self.last_seq {
                return Err(Err(10071));
            }
        }
        if let Some((expected, subject)) = p.last_subject_seq {
            if staged.iter().any(|s| s.subject == subject) {
                return Err(Err(10164));
            }
            if expected != self.last_of(subject) {
                return Err(Err(10071));
            }
        }
        match h.rollup {
            Some(true) if !staged.is_empty() => return Err(Err(10111)),
            Some(false) if staged.iter().any(|s| s.subject == p.subject) => {
                return Err(Err(10111));
            }
            _ => {}
        }
        if c.discard == Discard::New {
            let same = staged.iter().filter(|s| s.subject == p.subject).count() as u64;
            let full = c.max_msgs_per_subject > 0
                && self.count_of(p.subject) + same >= c.max_msgs_per_subject as u64;
            if full && c.discard_new_per_subject && h.rollup.is_none() {
                return Err(Err(10077));
            }
            let oldest = self.messages.values().find(|m| m.subject == p.subject);
            let replaced = oldest.filter(|_| full && !in_batch).map_or(0, |m| m.bytes);
            let count = (self.messages.len() + staged.len()) as u64;
            if c.max_msgs > 0 && count >= c.max_msgs as u64 && replaced == 0 {
                return Err(Err(10077));
            }
            let size = Self::size(p);
            let bytes = self.bytes() + staged.iter().map(|s| Self::size(s)).sum::<u64>() + size;
            if c.max_bytes > 0 && bytes > c.max_bytes as u64 && replaced < size {
                return Err(Err(10077));
            }
        }
        Ok(0)
    }

    fn store(&mut self, p: &Publish<'_>) -> u64 {
        let (seq, c) = (self.last_seq + 1, self.config.clone());
        self.last_seq = seq;
        self.last_time = self.now;
        self.last_id = p.headers.msg_id;
        if let Some(id) = p.headers.msg_id {
            self.ids.retain(|(i, ..)| *i != id);
            self.ids.push((id, seq, self.now));
        }
        let least = if c.max_msgs_per_subject == 1 {
            0
        } else {
            c.subject_delete_marker_ttl as u64 / 1000
        };
        let ttl = p.headers.ttl.flatten().map(|s| u64::from(s) * 1_000_000);
        let message = Message {
            subject: p.subject.to_owned(),
            time: self.now,
            bytes: Self::size(p),
            due: ttl.map(|ttl| self.now + ttl.max(least)),
            never: p.headers.ttl == Some(None),
            marker: p.headers.purge_marker,
        };
        self.messages.insert(seq, message);
        self.trim(&[p.subject]);
        match p.headers.rollup {
            Some(true) => self.messages.retain(|s, _| *s >= seq),
            Some(false) => self
                .messages
                .retain(|s, m| *s >= seq || m.subject != p.subject),
            None => {}
        }
        seq
    }

    fn trim(&mut self, subjects: &[&str]) {
        let c = self.config.clone();
        let per_subject = u64::try_from(c.max_msgs_per_subject).unwrap_or(u64::MAX);
        for subject in subjects {
            while self.count_of(subject) > per_subject {
                let mut all = self.messages.iter();
                let first = all.find(|(_, m)| m.subject == *subject).map(|(s, _)| *s);
                self.messages.remove(&first.unwrap());
            }
        }
        while (c.max_msgs > 0 && self.messages.len() > c.max_msgs as usize)
            || (c.max_bytes > 0 && self.bytes() > c.max_bytes as u64)
        {
            self.messages.pop_first();
        }
    }

    fn purge(&mut self, filter: &[&str], below: u64, keep: u64) -> Result<u64, u16> {
        if below > 0 && keep > 0 {
            return Err(10003);
        }
        if below == 1 {
            return Ok(0);
        }
        let wanted = |m: &Message| filter.first().is_none_or(|f| matches(f, &m.subject));
        let mut seqs: Vec<u64> = self
            .messages
            .iter()
            .filter(|(s, m)| wanted(m) && (below == 0 || **s < below))
            .map(|(s, _)| *s)
            .collect();
        let kept = seqs.len().saturating_sub(keep as usize);
        seqs.truncate(kept);
        seqs.iter().for_each(|s| drop(self.messages.remove(s)));
        if filter.is_empty() && below > self.last_seq + 1 {
            self.last_seq = below - 1;
        }
        Ok(seqs.len() as u64)
    }

    fn is_due(&self, m: &Message) -> bool {
        let age = self.config.max_age as u64 / 1000;
        m.due.is_some_and(|due| due <= self.now)
            || (age > 0 && !m.never && m.time + age <= self.now)
    }

    /// Removes all due messages; the last one of a subject stays if a marker must replace it, because that is
    /// another command.
    fn expire(&mut self) {
        // Messages with their own time to live go first, by that time; then the model removes the others, by
        // age. The order decides which message of a subject is the last one.
        let mut due: Vec<_> = self
            .messages
            .iter()
            .filter(|(_, m)| self.is_due(m))
            .map(|(s, m)| (m.due.filter(|d| *d <= self.now).unwrap_or(u64::MAX), *s))
            .collect();
        due.sort_unstable();
        for (_, seq) in due {
            let m = &self.messages[&seq];
            let marked = self.config.subject_delete_marker_ttl > 0;
            if !(marked && !m.marker && self.count_of(&m.subject) == 1) {
                self.messages.remove(&seq);
            }
        }
    }
}

fn matches(pattern: &str, subject: &str) -> bool {
    tidegate_nats::subject::contains(pattern.as_bytes(), subject.as_bytes())
}

/// Two nodes and the model, which the test compares after each command.
struct World {
    one: Streams,
    other: Streams,
    model: Model,
    lsn: u64,
    /// The messages that remain according to the effects, each with its place and size by number. The test
    /// compares them with the messages that the stream holds.
    live: BTreeMap<u64, (Place, u32)>,
    relocated: bool,
    /// The directory entry for a stream that another group keeps: the entry's number, that group, and whether
    /// that group created the stream. The test compares the nodes with it.
    entry: Option<(u32, u32, bool)>,
    last_id: u32,
}

impl World {
    fn new(config: StreamConfig) -> Self {
        let mut world = Self {
            one: Streams::new(AccountLimits::NONE),
            other: Streams::new(AccountLimits::NONE),
            model: Model {
                config: rules::check(&config).unwrap(),
                messages: BTreeMap::new(),
                last_seq: 0,
                last_time: 0,
                ids: Vec::new(),
                last_id: None,
                now: 1_000_000,
            },
            lsn: 0,
            live: BTreeMap::new(),
            relocated: false,
            entry: None,
            last_id: 1,
        };
        let json = serde_json::to_vec(&config).unwrap();
        let out = world.command(&Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            b"",
            &json,
        ));
        assert_eq!(out, [Outcome::Created { stream: ONE }]);
        world
    }

    fn command(&mut self, command: &Command<'_>) -> Vec<Outcome> {
        self.apply(|entry| {
            entry.command(command).unwrap();
        })
    }

    fn apply(&mut self, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> Vec<Outcome> {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, self.model.now));
        let entry = Bytes::from(entry);
        self.lsn += 4096;
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        // One of the two nodes prepares each entry, which changes no outcome.
        while !self.one.prepare(&entry, &mut 3) {}
        self.one
            .apply(self.lsn, &entry, &mut out, &mut effects)
            .unwrap();
        let (mut out2, mut effects2) = (Vec::new(), Vec::new());
        self.other
            .apply(self.lsn, &entry, &mut out2, &mut effects2)
            .unwrap();
        assert_eq!(out, out2);
        for effect in effects {
            match effect {
                Effect::Stored {
                    seq, place, bytes, ..
                } => {
                    assert_eq!(self.live.insert(seq.get(), (place, bytes)), None);
                }
                Effect::Removed {
                    seq, place, bytes, ..
                } => {
                    assert_eq!(self.live.remove(&seq.get()), Some((place, bytes)));
                }
                Effect::Purged { messages, .. } => {
                    for (seq, place, bytes) in messages.iter() {
                        assert_eq!(self.live.remove(&seq.get()), Some((place, bytes)));
                    }
                }
                _ => {}
            }
        }
        out
    }

    fn prepare<'a>(&self, subject: usize, payload: usize, headers: &'a Headers) -> Publish<'a> {
        let off = |base: u64, by: i8| base.wrapping_add_signed(i64::from(by));
        let expected = headers.last_subject_seq.map(|(by, of)| {
            let of = SUBJECTS[of.unwrap_or(subject)];
            (off(self.model.last_of(of), by), of)
        });
        let mut publish = Publish {
            subject: SUBJECTS[subject],
            payload,
            headers,
            last_seq: headers.last_seq.map(|by| off(self.model.last_seq, by)),
            last_subject_seq: expected,
            block_bytes: 0,
        };
        publish.block_bytes = block(&publish).map_or(0, |b| b.len());
        publish
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Publish(subject, payload, headers) => {
                let publish = self.prepare(*subject, (*payload).into(), headers);
                let out = self.apply(|entry| write(entry, &publish));
                let expected = self.model.check(&publish, &[], false);
                let expected = expected.map(|_| self.model.store(&publish));
                assert_eq!(told(&out[0]), expected, "{publish:?}");
            }
            Act::Flood(subject, count) => {
                let headers = Headers::default();
                let publish = self.prepare(*subject, 3, &headers);
                let out = self.apply(|entry| (0..*count).for_each(|_| write(entry, &publish)));
                for outcome in out {
                    let expected = self.model.check(&publish, &[], false);
                    let expected = expected.map(|_| self.model.store(&publish));
                    assert_eq!(told(&outcome), expected);
                }
            }
            Act::Batch(messages) => self.batch(messages),
            Act::Purge(filter, seq, keep) => {
                let filter = FILTERS[*filter];
                let request = PurgeRequest {
                    filter: filter.first().map_or(String::new(), |f| (*f).to_owned()),
                    seq: nth(*seq),
                    keep: *keep,
                };
                let json = serde_json::to_vec(&request).unwrap();
                let out = self.command(&Command::new(Kind::Purge, ONE, b"", &json));
                let expected = self.model.purge(filter, *seq, *keep);
                match &out[0] {
                    Outcome::Purged { purged, .. } => assert_eq!(Ok(*purged), expected),
                    Outcome::Refused { error, .. } => assert_eq!(Err(error.err_code), expected),
                    other => panic!("{other:?}"),
                }
            }
            Act::Delete(index) => {
                let seq = index.index(self.model.last_seq as usize + 2) as u64;
                let json = serde_json::to_vec(&DeleteRequest {
                    seq: nth(seq),
                    no_erase: true,
                })
                .unwrap();
                let out = self.command(&Command::new(Kind::DeleteMessage, ONE, b"", &json));
                let there = self.model.messages.remove(&seq).is_some();
                assert_eq!(matches!(out[0], Outcome::Removed { .. }), there);
            }
            Act::Pass(us) => self.model.now += u64::from(*us),
            Act::Expire => self.expire(),
            Act::Update(config) => {
                let json = serde_json::to_vec(config).unwrap();
                let out = self.command(&Command::new(Kind::UpdateStream, ONE, b"", &json));
                assert_eq!(out, [Outcome::Updated { stream: ONE }]);
                self.model.config = rules::check(config).unwrap();
                self.model.trim(&SUBJECTS);
            }
            Act::Snapshot => {
                let bytes: Vec<u8> = self.other.snapshot().chunks().flatten().collect();
                self.other = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
            }
            Act::Relocate(index) => {
                if self.model.messages.is_empty() {
                    return;
                }
                let at = index.index(self.model.messages.len());
                let seq = *self.model.messages.keys().nth(at).unwrap();
                let from = self.one.get(ONE).unwrap().place(nth(seq)).unwrap();
                let to = Place {
                    lsn: from.lsn + (index.index(1 << 20) as u64) * (1 << 18),
                    offset: 16,
                };
                assert!(self.one.relocate(ONE, nth(seq), from, to));
                self.live.get_mut(&seq).unwrap().0 = to;
                self.relocated = true;
            }
            Act::Directory(entered) => self.enter(*entered),
            Act::Reclaim(one, other) => {
                for (streams, parts) in [(&mut self.one, *one), (&mut self.other, *other)] {
                    streams.reclaim(parts);
                    streams.go_on_foreseeing(parts);
                }
            }
            Act::Foresee(filter) => {
                let hint = FILTERS[*filter].first().unwrap_or(&">");
                self.command(&Streams::hint(ONE, hint));
                self.model.expire();
            }
        }
    }

    /// Applies a command for a directory entry, and checks the result: only the commands for entries change
    /// it, and no message or consumer gets into it.
    fn enter(&mut self, what: Entered) {
        let config = br#"{"name":"E","subjects":["e.>"],"allow_atomic":true}"#;
        let changed = br#"{"name":"E","subjects":["e.>","f"],"allow_atomic":true}"#;
        let id = self.entry.map_or(self.last_id + 1, |(id, ..)| id);
        let kept;
        let command = match what {
            Entered::Create(group) => {
                kept = Placement::Elsewhere {
                    group: GroupId::new(group),
                }
                .encode();
                Command::new(Kind::CreateStream, StreamNumber::NONE, &kept, config)
            }
            Entered::Made => Command::new(Kind::Made, StreamNumber::new(id), b"", b""),
            Entered::Update => {
                Command::new(Kind::UpdateStream, StreamNumber::new(id), b"", changed)
            }
            Entered::Delete => Command::new(Kind::DeleteStream, StreamNumber::new(id), b"", b""),
            Entered::Publish => Command::new(Kind::Publish, StreamNumber::new(id), b"e.a", b"x"),
            Entered::Purge => Command::new(Kind::Purge, StreamNumber::new(id), b"", b"{}"),
            Entered::Consumer => Command::new(
                Kind::CreateConsumer,
                StreamNumber::new(id),
                b"C",
                br#"{"config":{"name":"C"}}"#,
            ),
        };
        let out = self.command(&command);
        let stream = id;
        match (what, self.entry) {
            (Entered::Create(group), None) => {
                assert_eq!(
                    out,
                    [Outcome::Created {
                        stream: StreamNumber::new(stream)
                    }]
                );
                (self.entry, self.last_id) = (Some((id, group, false)), id);
            }
            (Entered::Create(_), Some(_)) => {
                let same = matches!(out[0], Outcome::Exists { .. });
                let other =
                    matches!(&out[0], Outcome::Refused { error, .. } if error.err_code == 10058);
                assert!(same || other, "{out:?}");
            }
            (Entered::Made, Some((_, group, _))) => {
                assert_eq!(out, [Outcome::Done]);
                self.entry = Some((id, group, true));
            }
            (Entered::Update, Some(_)) => assert_eq!(
                out,
                [Outcome::Updated {
                    stream: StreamNumber::new(stream)
                }]
            ),
            (Entered::Delete, Some(_)) => {
                assert_eq!(
                    out,
                    [Outcome::Deleted {
                        stream: StreamNumber::new(stream)
                    }]
                );
                self.entry = None;
            }
            _ => assert!(matches!(out[0], Outcome::Refused { .. }), "{out:?}"),
        }
        for streams in [&self.one, &self.other] {
            let kept = streams.get(StreamNumber::new(id)).map(Stream::home);
            let expected = self.entry.map(|(_, group, made)| Home::Elsewhere {
                group: GroupId::new(group),
                made,
            });
            assert_eq!(kept, expected);
        }
    }

    fn batch(&mut self, messages: &[(usize, Headers)]) {
        let messages: Vec<_> = messages
            .iter()
            .map(|(subject, headers)| self.prepare(*subject, 2, headers))
            .collect();
        let out = self.apply(|entry| {
            entry.atomic(ONE, messages.len() as u32).unwrap();
            messages.iter().for_each(|m| write(entry, m));
        });
        let mut staged: Vec<&Publish<'_>> = Vec::new();
        for message in &messages {
            if let Err(error) = self.model.check(message, &staged, true) {
                assert!(
                    out.iter().all(|o| told(o) == Err(error)),
                    "{out:?} {error:?}"
                );
                return;
            }
            staged.push(message);
        }
        for (outcome, message) in out[1..].iter().zip(&messages) {
            assert_eq!(told(outcome), Ok(self.model.store(message)));
        }
    }

    /// Proposes and applies expiry until no message is due. The model does each proposed command too, so that
    /// both must agree.
    fn expire(&mut self) {
        let now = self.model.now;
        for _ in 0..100 {
            // The node knows the exact times of expiry only after it has reclaimed all removed messages.
            self.one.reclaim(usize::MAX);
            let due = self.one.next_expiry(now).is_some_and(|due| due <= now);
            assert_eq!(
                due,
                self.model.messages.values().any(|m| self.model.is_due(m))
            );
            if !due {
                return;
            }
            let mut proposed = Vec::new();
            let mut encoder = Encoder::begin(&mut proposed, now);
            self.one
                .propose_expiry(now, Storage::File, &mut encoder)
                .unwrap();
            let proposed = Entry::decode(&proposed).unwrap();
            for command in proposed.commands() {
                let command = command.unwrap();
                self.command(&command);
                if command.kind == Kind::Expire {
                    self.model.expire();
                } else {
                    self.mark(&command);
                }
            }
        }
        panic!("expiry comes to no end");
    }

    fn mark(&mut self, command: &Command<'_>) {
        let subject = std::str::from_utf8(command.subject).unwrap();
        let m = self.model.messages.get(&self.model.last_of(subject));
        let replaced = m.is_some_and(|m| self.model.is_due(m) && !m.marker);
        if !replaced || self.model.count_of(subject) != 1 {
            return;
        }
        let headers = Headers {
            rollup: Some(false),
            purge_marker: true,
            ..Headers::default()
        };
        let ttl = self.model.config.subject_delete_marker_ttl as u64 / 1000;
        let marker = Publish {
            subject,
            payload: 0,
            headers: &headers,
            last_seq: None,
            last_subject_seq: None,
            block_bytes: command.headers.unwrap().len(),
        };
        let seq = self.model.store(&marker);
        let due = Some(self.model.now + ttl);
        if let Some(m) = self.model.messages.get_mut(&seq) {
            m.due = due;
        }
    }

    fn check(&self) {
        self.one.check_invariants();
        self.other.check_invariants();
        let stream = self.one.get(ONE).unwrap();
        let model = &self.model;
        let state = stream.state();
        assert_eq!(state.messages as usize, model.messages.len());
        assert_eq!(state.bytes, model.bytes());
        assert_eq!(state.last_seq.get(), model.last_seq);
        assert_eq!(state.last_time_us, model.last_time);
        let first = model.messages.first_key_value();
        assert_eq!(
            state.first_seq.get(),
            first.map_or(model.last_seq + 1, |(s, _)| *s)
        );
        assert_eq!(state.first_time_us, first.map_or(0, |(_, m)| m.time));
        let deleted = stream.deleted(usize::MAX);
        assert_eq!(deleted.len() as u64, state.num_deleted);
        let removed = stream.removed();
        let runs = removed
            .runs()
            .flat_map(|(first, last)| first.up_to(last.next()));
        assert!(runs.eq(deleted));
        let seqs: Vec<u64> = self.live.keys().copied().collect();
        assert!(seqs.iter().eq(model.messages.keys()));
        for (seq, m) in &model.messages {
            let stored = stream.message(nth(*seq)).unwrap();
            assert_eq!(&*stored.subject, m.subject.as_bytes());
            assert_eq!((stored.time_us, u64::from(stored.bytes)), (m.time, m.bytes));
            assert_eq!(self.live[seq].0, stored.place);
        }
        for patterns in FILTERS {
            let mut filter = Filter::new(patterns);
            let wanted: Vec<u64> = model
                .messages
                .iter()
                .filter(|(_, m)| {
                    patterns.is_empty() || patterns.iter().any(|p| matches(p, &m.subject))
                })
                .map(|(s, _)| *s)
                .collect();
            for from in [
                0,
                state.first_seq.get() + 1,
                state.last_seq.get() / 2,
                state.last_seq.get() + 1,
            ] {
                let behind = wanted.partition_point(|s| *s < from);
                assert_eq!(
                    stream.next_at(nth(from), &mut filter),
                    wanted.get(behind).copied().map(nth)
                );
                assert_eq!(
                    stream.count_from(nth(from), &mut filter),
                    (wanted.len() - behind) as u64
                );
            }
            assert_eq!(
                stream.last_matching(&filter),
                wanted.last().copied().map(nth)
            );
            let mut last = BTreeMap::new();
            wanted.iter().for_each(|s| {
                last.insert(&model.messages[s].subject, nth(*s));
            });
            let mut last: Vec<_> = last.into_values().collect();
            last.sort_unstable();
            let mut lasts = Vec::new();
            let mut next = Some(0);
            while let Some(from) = next {
                let (part, after) = stream.lasts_part(&filter, from, 2, None);
                lasts.extend(part);
                next = after;
            }
            lasts.sort_unstable();
            assert_eq!(lasts, last);
            let (mut count, mut next) = (0, Some(StreamSeq::ZERO));
            while let Some(from) = next {
                let (part, after) = stream.count_part(from, 100, &mut filter);
                (count, next) = (count + part, after);
            }
            assert_eq!(count, wanted.len() as u64);
            assert_eq!(stream.subjects(&filter).count(), last.len());
        }
        for time in [0, state.first_time_us + 1, model.now, model.now + 1] {
            let first = model.messages.iter().find(|(_, m)| m.time >= time);
            let expected = first.map_or(model.last_seq + 1, |(s, _)| *s);
            assert_eq!(stream.seq_at_time(time).get(), expected);
        }
    }
}

impl std::fmt::Debug for Publish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.subject, self.headers)
    }
}

fn told(outcome: &Outcome) -> Expected {
    match outcome {
        Outcome::Stored { seq, .. } => Ok(seq.get()),
        Outcome::Duplicate { seq, .. } => Err(Ok(seq.get())),
        Outcome::Refused { error, .. } => Err(Err(error.err_code)),
        other => panic!("{other:?}"),
    }
}

fn write(entry: &mut Encoder<'_, Vec<u8>>, p: &Publish<'_>) {
    let block = block(p);
    let payload = vec![b'x'; p.payload];
    entry
        .publish(ONE, p.subject.as_bytes(), block.as_deref(), &payload)
        .unwrap();
}

fn block(p: &Publish<'_>) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    let h = p.headers;
    lines.extend(h.msg_id.map(|id| format!("Nats-Msg-Id: {id}")));
    lines.extend(
        h.last_msg_id
            .map(|id| format!("Nats-Expected-Last-Msg-Id: {id}")),
    );
    lines.extend(
        p.last_seq
            .map(|s| format!("Nats-Expected-Last-Sequence: {s}")),
    );
    if let Some((seq, of)) = p.last_subject_seq {
        lines.push(format!("Nats-Expected-Last-Subject-Sequence: {seq}"));
        lines.push(format!("Nats-Expected-Last-Subject-Sequence-Subject: {of}"));
    }
    lines.extend(
        h.rollup
            .map(|all| format!("Nats-Rollup: {}", if all { "all" } else { "sub" })),
    );
    lines.extend(h.ttl.map(|ttl| match ttl {
        Some(secs) => format!("Nats-TTL: {secs}s"),
        None => "Nats-TTL: never".to_owned(),
    }));
    if h.purge_marker {
        lines.push("KV-Operation: PURGE".to_owned());
    }
    let text = format!("NATS/1.0\r\n{}\r\n\r\n", lines.join("\r\n"));
    (!lines.is_empty()).then(|| text.into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_do_as_the_model(config in config(), acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new(config);
        for act in &acts {
            world.act(act);
            world.check();
        }
        let bytes = |streams: &Streams| streams.snapshot().chunks().flatten().collect::<Vec<u8>>();
        if !world.relocated {
            prop_assert!(bytes(&world.one) == bytes(&world.other), "two nodes differ");
        }
        let again = Streams::restore(&bytes(&world.one), AccountLimits::NONE).unwrap();
        again.check_invariants();
        prop_assert!(bytes(&world.one) == bytes(&again), "the restored streams differ");
        world.one = again;
        world.check();
    }
}
