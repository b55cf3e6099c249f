//! Tests that a stream keeps exactly the messages that its consumers need: random commands change a work
//! queue or a stream by interest, and a model that keeps the needs of each consumer in plain sets. A second
//! node applies the same entries, and a restored snapshot sometimes replaces it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use crate::consumer::rules::check_queue;
use crate::schema::config::{AckPolicy, ConsumerConfig, Retention, Storage, StreamConfig};
use crate::schema::number::StreamNumber;
use crate::schema::sequence::nth;
use crate::stream::{
    AccountLimits, Command, ConsumerRequest, Effect, Encoder, Entry, Kind, Name, Outcome, Streams,
};

const ONE: StreamNumber = StreamNumber::FIRST;
const SUBJECTS: [&str; 4] = ["s.a", "s.b", "s.c", "s.d.e"];
const FILTERS: [&[&str]; 6] = [
    &[],
    &["s.a"],
    &["s.b", "s.c"],
    &["s.*"],
    &["s.d.>"],
    &["s.>"],
];
const NAMES: [&str; 4] = ["A", "B", "C", "D"];
const POLICIES: [&str; 4] = ["all", "new", "last", "last_per_subject"];

#[derive(Clone, Debug)]
enum Act {
    Publish(usize, u8),
    /// Makes the test create a consumer, or change its filters.
    Consumer(usize, usize, usize, AckPolicy),
    Delete(usize),
    /// Makes the consumer deliver this number of messages.
    Deliver(usize, u8),
    /// Makes a receiver acknowledge a delivered message, or makes the consumer give the message up.
    Settle(usize, prop::sample::Index, bool),
    /// Makes a receiver acknowledge a message that the consumer has given up. The stream then removes the
    /// message.
    SettleLate(usize),
    Delta(usize),
    Reset(usize, prop::sample::Index),
    Retention(bool),
    DeleteMessage(prop::sample::Index),
    /// Makes the leader propose the next part of the sweep this number of times.
    Sweep(u8),
    Snapshot,
}

fn ack_policy() -> impl Strategy<Value = AckPolicy> {
    prop_oneof![
        3 => Just(AckPolicy::Explicit),
        1 => Just(AckPolicy::None),
        1 => Just(AckPolicy::FlowControl),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let name = || 0..NAMES.len();
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..SUBJECTS.len(), 1..5_u8).prop_map(|(s, n)| Act::Publish(s, n)),
        4 => (name(), 0..FILTERS.len(), 0..POLICIES.len(), ack_policy())
            .prop_map(|(n, f, p, ack)| Act::Consumer(n, f, p, ack)),
        1 => name().prop_map(Act::Delete),
        6 => (name(), 1..6_u8).prop_map(|(n, count)| Act::Deliver(n, count)),
        8 => (name(), index(), prop::bool::weighted(0.2)).prop_map(|(n, i, up)| Act::Settle(n, i, up)),
        1 => name().prop_map(Act::SettleLate),
        6 => name().prop_map(Act::Delta),
        1 => (name(), index()).prop_map(|(n, i)| Act::Reset(n, i)),
        1 => any::<bool>().prop_map(Act::Retention),
        1 => index().prop_map(Act::DeleteMessage),
        4 => (0..9_u8).prop_map(Act::Sweep),
        1 => Just(Act::Snapshot),
    ]
}

/// The position of a consumer in the model: the messages that it may still deliver, or that it has delivered
/// without an acknowledgement. The consumer needs these messages.
#[derive(Clone, Debug, Default)]
struct Progress {
    delivered: u64,
    consumer_seq: u64,
    pending: BTreeMap<u64, u64>,
    given_up: BTreeSet<u64>,
    /// The number up to which the consumer delivers only the last message of each subject, as its deliver
    /// policy asks; 0 for other policies.
    resume: u64,
}

impl Progress {
    fn needs(&self, seq: u64) -> bool {
        seq > self.delivered || self.pending.contains_key(&seq) || self.given_up.contains(&seq)
    }

    fn floor(&self) -> (u64, u64) {
        let first = self.pending.first_key_value();
        first.map_or((self.consumer_seq, self.delivered), |(s, c)| (c - 1, s - 1))
    }
}

struct Consumer {
    config: ConsumerConfig,
    live: Progress,
    logged: Progress,
    settled: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
    /// The number of the last message that the consumer may have passed over under earlier filters. The
    /// stream looks at the messages up to it again.
    recheck: u64,
}

impl Consumer {
    fn wants(&self, subject: &str) -> bool {
        let matches = |f: &str| tidegate_nats::subject::contains(f.as_bytes(), subject.as_bytes());
        self.config.filters().next().is_none() || self.config.filters().any(matches)
    }

    /// Forgets the settled messages that wait for a delta, because a stream by limits does not need them.
    fn forget_settling(&mut self) {
        self.live.given_up.clear();
        self.logged.given_up.clear();
        self.given_up.clear();
        self.recheck = 0;
    }
}

struct World {
    one: Streams,
    other: Streams,
    lsn: u64,
    retention: Retention,
    last_seq: u64,
    messages: BTreeMap<u64, &'static str>,
    consumers: BTreeMap<&'static str, Consumer>,
    /// The messages that remain according to the effects. The test compares them with the stream.
    told: BTreeSet<u64>,
}

impl World {
    fn new(retention: Retention) -> Self {
        let mut world = Self {
            one: Streams::new(AccountLimits::NONE),
            other: Streams::new(AccountLimits::NONE),
            lsn: 0,
            retention,
            last_seq: 0,
            messages: BTreeMap::new(),
            consumers: BTreeMap::new(),
            told: BTreeSet::new(),
        };
        let json = world.config();
        let kind = Kind::creating(&serde_json::from_slice(&json).unwrap());
        let out = world.command(&Command::new(kind, StreamNumber::NONE, b"", &json));
        assert_eq!(out, [Outcome::Created { stream: ONE }]);
        world
    }

    fn config(&self) -> Vec<u8> {
        let config = StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            retention: self.retention,
            ..StreamConfig::default()
        };
        serde_json::to_vec(&config).unwrap()
    }

    fn command(&mut self, command: &Command<'_>) -> Vec<Outcome> {
        self.apply(|entry| {
            entry.command(command).unwrap();
        })
    }

    fn apply(&mut self, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> Vec<Outcome> {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, 1_000_000));
        let entry = Bytes::from(entry);
        self.lsn += 4096;
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        let lsn = self.lsn;
        self.one.apply(lsn, &entry, &mut out, &mut effects).unwrap();
        let mut out2 = Vec::new();
        self.other
            .apply(lsn, &entry, &mut out2, &mut Vec::new())
            .unwrap();
        assert_eq!(out, out2);
        // Only one of the nodes frees the memory of removed messages, so that the test finds any influence of
        // that work on the outcomes.
        self.one.reclaim(1);
        for effect in effects {
            match effect {
                Effect::Stored { seq, .. } => assert!(self.told.insert(seq.get())),
                Effect::Removed { seq, .. } => assert!(self.told.remove(&seq.get())),
                Effect::Purged { messages, .. } => messages
                    .iter()
                    .for_each(|(seq, ..)| assert!(self.told.remove(&seq.get()))),
                _ => {}
            }
        }
        out
    }

    fn is_needed(&self, seq: u64, subject: &str) -> bool {
        let mut all = self.consumers.values();
        all.any(|c| c.wants(subject) && c.logged.needs(seq))
    }

    /// Removes from the model the messages in this range that no consumer needs, in a stream by interest.
    fn sweep(&mut self, from: u64, to: u64) {
        if self.retention != Retention::Interest {
            return;
        }
        let within = self.messages.range(from..=to.max(from));
        let unneeded = within.filter(|(seq, subject)| !self.is_needed(**seq, subject));
        for seq in unneeded.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.messages.remove(&seq);
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Publish(subject, count) => {
                let subject = SUBJECTS[*subject];
                let out = self.apply(|entry| {
                    for _ in 0..*count {
                        entry.publish(ONE, subject.as_bytes(), None, b"x").unwrap();
                    }
                });
                for outcome in out {
                    self.last_seq += 1;
                    let seq = nth(self.last_seq);
                    assert_eq!(outcome, Outcome::Stored { stream: ONE, seq });
                    if self.is_needed(self.last_seq, subject)
                        || self.retention != Retention::Interest
                    {
                        self.messages.insert(self.last_seq, subject);
                    }
                }
            }
            Act::Consumer(name, filters, policy, ack) => {
                self.put_consumer(NAMES[*name], FILTERS[*filters], POLICIES[*policy], *ack);
            }
            Act::Delete(name) => {
                let name = NAMES[*name];
                let command = Command::new(Kind::DeleteConsumer, ONE, name.as_bytes(), b"");
                let out = self.command(&command);
                let there = self.consumers.remove(name).is_some();
                assert_eq!(out == [Outcome::ConsumerDeleted { stream: ONE }], there);
                if there {
                    self.sweep(0, u64::MAX);
                }
            }
            Act::Deliver(name, count) => self.deliver(NAMES[*name], *count),
            Act::Settle(name, index, up) => {
                if let Some(c) = self.consumers.get_mut(NAMES[*name])
                    && !c.live.pending.is_empty()
                {
                    let at = index.index(c.live.pending.len());
                    let seq = *c.live.pending.keys().nth(at).unwrap();
                    c.live.pending.remove(&seq);
                    if *up {
                        c.live.given_up.insert(seq);
                        c.given_up.insert(seq);
                    } else {
                        c.settled.insert(seq);
                    }
                }
            }
            Act::SettleLate(name) => {
                if let Some(c) = self.consumers.get_mut(NAMES[*name])
                    && let Some(seq) = c.live.given_up.pop_first()
                {
                    c.given_up.remove(&seq);
                    c.settled.insert(seq);
                }
            }
            Act::Delta(name) => self.delta(NAMES[*name]),
            Act::Reset(name, index) => self.reset(NAMES[*name], index),
            Act::Retention(interest) => self.change_retention(*interest),
            Act::DeleteMessage(index) => {
                let seq = 1 + index.index(self.last_seq as usize + 1) as u64;
                let json = format!(r#"{{"seq":{seq}}}"#);
                self.command(&Command::new(
                    Kind::DeleteMessage,
                    ONE,
                    b"",
                    json.as_bytes(),
                ));
                self.messages.remove(&seq);
            }
            Act::Sweep(times) => {
                for _ in 0..*times {
                    if !self.propose_due() {
                        break;
                    }
                }
            }
            Act::Snapshot => {
                let bytes: Vec<u8> = self.other.snapshot().chunks().flatten().collect();
                self.other = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
            }
        }
    }

    fn put_consumer(&mut self, name: &'static str, filters: &[&str], policy: &str, ack: AckPolicy) {
        let mut config: ConsumerConfig =
            serde_json::from_str(&format!(r#"{{"deliver_policy":"{policy}"}}"#)).unwrap();
        config.name = name.into();
        config.filter_subjects = filters.iter().map(|f| (*f).to_owned()).collect();
        config.ack_policy = ack;
        if let Some(there) = self.consumers.get(name) {
            (config.ack_policy, config.deliver_policy) =
                (there.config.ack_policy, there.config.deliver_policy);
        }
        let request = ConsumerRequest {
            config: config.clone(),
            ..ConsumerRequest::default()
        };
        let json = serde_json::to_vec(&request).unwrap();
        let kind = Kind::of_consumer(&config);
        let command = Command::new(kind, ONE, name.as_bytes(), &json);
        let out = self.command(&command);
        let others = self.consumers.iter().filter(|(other, _)| **other != name);
        let others = others.map(|(_, c)| &c.config);
        if self.retention == Retention::WorkQueue
            && let Err(error) = check_queue(&config, others)
        {
            assert_eq!(out, [Outcome::Refused { stream: ONE, error }]);
            return;
        }
        if let Some(consumer) = self.consumers.get_mut(name) {
            let changed = consumer.config.filter_subjects != config.filter_subjects;
            consumer.config = config;
            if changed {
                if self.retention == Retention::Interest {
                    consumer.recheck = self.last_seq;
                }
                self.sweep(0, u64::MAX);
            }
            return;
        }
        assert_eq!(out, [Outcome::ConsumerCreated { stream: ONE }]);
        // The model takes the consumer's start from the stream, because this test is about the messages that
        // stay.
        let state = self
            .one
            .get(ONE)
            .unwrap()
            .consumer(name)
            .unwrap()
            .state()
            .clone();
        let start = Progress {
            delivered: state.delivered().stream_seq.get(),
            resume: match policy {
                "last_per_subject" => self.last_seq,
                _ => 0,
            },
            ..Progress::default()
        };
        let consumer = Consumer {
            config,
            live: start.clone(),
            logged: start,
            settled: BTreeSet::new(),
            given_up: BTreeSet::new(),
            recheck: 0,
        };
        self.consumers.insert(name, consumer);
    }

    fn deliver(&mut self, name: &str, count: u8) {
        let Some(c) = self.consumers.get_mut(name) else {
            return;
        };
        // The consumer delivers from the messages that the stream still has: the sweep may not have removed
        // all messages yet that the model has removed.
        let stream = self.one.get(ONE).unwrap();
        let told = self.told.iter().copied();
        let there: BTreeMap<u64, Name> = told
            .map(|s| (s, stream.message(nth(s)).unwrap().subject))
            .collect();
        for _ in 0..count {
            let ahead = there.range(c.live.delivered + 1..);
            let last = |seq: u64, subject: &Name| {
                let mut later = there.range(seq + 1..=c.live.resume.max(seq + 1));
                seq > c.live.resume || !later.any(|(s, of)| *s <= c.live.resume && of == subject)
            };
            let wants = |name: &Name| c.wants(std::str::from_utf8(name).unwrap());
            let mut ahead = ahead.filter(|(seq, s)| wants(s) && last(**seq, s));
            let Some((&seq, _)) = ahead.next() else {
                return;
            };
            c.live.delivered = seq;
            c.live.consumer_seq += 1;
            if c.config.ack_policy == AckPolicy::None {
                c.settled.insert(seq);
            } else {
                c.live.pending.insert(seq, c.live.consumer_seq);
            }
        }
    }

    fn delta(&mut self, name: &str) {
        let Some(c) = self.consumers.get_mut(name) else {
            return;
        };
        let new = c.live.pending.range(c.logged.delivered + 1..);
        let new: Vec<(u64, u64)> = new.map(|(s, c)| (*s, *c)).collect();
        let floor = c.live.floor();
        let numbers = [c.live.consumer_seq, c.live.delivered, floor.0, floor.1];
        let bytes = encode(numbers, &new, &c.settled, &c.given_up);
        let before = c.logged.delivered;
        let settled = std::mem::take(&mut c.settled);
        c.given_up.clear();
        c.logged = c.live.clone();
        if self.retention == Retention::Limits {
            c.forget_settling();
        }
        let skipped = c.live.resume.max(c.recheck) > before;
        let after = c.logged.delivered;
        let out = self.command(&Command::new(
            Kind::SettlingDelta,
            ONE,
            name.as_bytes(),
            &bytes,
        ));
        assert_eq!(out, [Outcome::Done]);
        if self.retention == Retention::Limits {
            return;
        }
        for seq in settled {
            if let Some(subject) = self.messages.get(&seq)
                && !self.is_needed(seq, subject)
            {
                self.messages.remove(&seq);
            }
        }
        if skipped {
            self.sweep(before + 1, after);
        }
    }

    fn reset(&mut self, name: &str, index: &prop::sample::Index) {
        let Some(c) = self.consumers.get_mut(name) else {
            return;
        };
        let seq = 1 + index.index(self.last_seq as usize + 2) as u64;
        let first = c.logged.given_up.first().copied();
        let first = first
            .into_iter()
            .chain(c.logged.pending.keys().next().copied());
        let first = first.min().unwrap_or(u64::MAX).min(c.logged.delivered + 1);
        let progress = Progress {
            delivered: seq - 1,
            resume: c.logged.resume,
            ..Progress::default()
        };
        c.settled.retain(|settled| *settled < seq);
        c.given_up.clear();
        c.recheck = 0;
        (c.live, c.logged) = (progress.clone(), progress);
        let payload = seq.to_le_bytes();
        let out = self.command(&Command::new(
            Kind::ResetConsumer,
            ONE,
            name.as_bytes(),
            &payload,
        ));
        assert_eq!(out, [Outcome::Done]);
        if first < seq {
            self.sweep(first, seq - 1);
        }
    }

    fn change_retention(&mut self, interest: bool) {
        if self.retention == Retention::WorkQueue {
            return;
        }
        let (before, old) = (self.retention, self.config());
        self.retention = match interest {
            true => Retention::Interest,
            false => Retention::Limits,
        };
        let json = self.config();
        let read = |json: &[u8]| serde_json::from_slice::<StreamConfig>(json).unwrap();
        let kind = Kind::updating(&read(&old), &read(&json));
        let out = self.command(&Command::new(kind, ONE, b"", &json));
        assert_eq!(out, [Outcome::Updated { stream: ONE }]);
        if before == self.retention {
            return;
        }
        for consumer in self.consumers.values_mut() {
            match interest {
                true => consumer.recheck = self.last_seq,
                false => consumer.forget_settling(),
            }
        }
        self.sweep(0, u64::MAX);
    }

    /// Proposes and applies the next part of the sweep, as the leader does; returns whether a part was left.
    fn propose_due(&mut self) -> bool {
        if self.one.next_expiry(1_000_000).is_none_or(|due| due > 0) {
            return false;
        }
        let mut proposed = Vec::new();
        let mut encoder = Encoder::begin(&mut proposed, 1_000_000);
        let file = Storage::File;
        self.one
            .propose_expiry(1_000_000, file, &mut encoder)
            .unwrap();
        let proposed = Entry::decode(&proposed).unwrap();
        for command in proposed.commands() {
            self.command(&command.unwrap());
        }
        true
    }

    /// Compares the stream with the model. While a sweep is under way, the stream may have more messages than
    /// the model.
    fn check(&mut self) {
        self.one.check_invariants();
        self.other.check_invariants();
        let stream = self.one.get(ONE).unwrap();
        let state = stream.state();
        assert_eq!(state.last_seq.get(), self.last_seq);
        let numbers = state.first_seq.up_to(nth(self.last_seq + 1));
        let there: BTreeSet<u64> = numbers
            .filter(|s| stream.contains(*s))
            .map(|s| s.get())
            .collect();
        assert_eq!(there, self.told);
        assert!(self.messages.keys().all(|seq| there.contains(seq)));
        let surplus = there.iter().filter(|seq| !self.messages.contains_key(seq));
        let surplus: Vec<u64> = surplus.copied().collect();
        if surplus.is_empty() {
            return;
        }
        // The sweep has left these messages, because a consumer that a client created or reset during the
        // sweep needs them again. So the model gets them back.
        if stream.sweep.is_none() {
            for seq in surplus {
                let subject = stream.message(nth(seq)).unwrap().subject;
                let subject = SUBJECTS
                    .into_iter()
                    .find(|s| s.as_bytes() == &*subject)
                    .unwrap();
                let again = self.is_needed(seq, subject) || self.retention == Retention::Limits;
                assert!(again, "no consumer needs message {seq}");
                self.messages.insert(seq, subject);
            }
        }
    }
}

/// Encodes a delta as a consumer does, but with each message as a run of its own, so that the test needs no
/// code of the consumer.
fn encode(
    positions: [u64; 4],
    unacked: &[(u64, u64)],
    settled: &BTreeSet<u64>,
    given_up: &BTreeSet<u64>,
) -> Vec<u8> {
    let mut out = vec![2];
    let mut put = |mut n: u64| {
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
    };
    positions.into_iter().for_each(&mut put);
    put(unacked.len() as u64);
    let mut end = 0;
    for (seq, consumer_seq) in unacked {
        [seq - end, 1, *consumer_seq, 0, 1]
            .into_iter()
            .for_each(&mut put);
        end = seq + 1;
    }
    put(0);
    for all in [settled, given_up] {
        put(all.len() as u64);
        let mut end = 0;
        for seq in all {
            put(seq - end);
            put(1);
            end = seq + 1;
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn streams_keep_what_consumers_need(
        queue in any::<bool>(),
        acts in prop::collection::vec(act(), 1..120),
    ) {
        let mut world = World::new(if queue { Retention::WorkQueue } else { Retention::Interest });
        for act in &acts {
            world.act(act);
            world.check();
        }
        while world.propose_due() {}
        world.check();
        let bytes = |streams: &Streams| streams.snapshot().chunks().flatten().collect::<Vec<u8>>();
        prop_assert!(bytes(&world.one) == bytes(&world.other), "two nodes differ");
        let again = Streams::restore(&bytes(&world.one), AccountLimits::NONE).unwrap();
        again.check_invariants();
        prop_assert!(bytes(&again) == bytes(&world.one), "the restored streams differ");
    }
}
