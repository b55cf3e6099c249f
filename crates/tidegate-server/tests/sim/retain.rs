//! Simulates streams that keep messages for their consumers: a work queue with one worker, and a stream by
//! interest with two consumers. The leader of a group delivers, acknowledges and gives up messages, deletes a
//! consumer and makes it again, and changes filters, as its clients would. The model computes from the
//! entries alone which messages every node holds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_raft::store::Store;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Encoder, Kind, Outcome, Stream, Streams};

use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::member::Member;
use crate::oracle::{Oracle, Verdict, ensure};

/// The number of the work queue, by its place in the order of creation.
pub(crate) const QUEUE: StreamNumber = StreamNumber::new(3);
/// The number of the stream with retention by interest.
pub(crate) const INTEREST: StreamNumber = StreamNumber::new(4);

/// The most messages that the stream looks at for one command of a sweep.
const SWEPT_MAX: usize = 4096;

/// The consumers: the stream, the name, and the filters among which the leader chooses.
const CONSUMERS: [(StreamNumber, &str, [&str; 2]); 4] = [
    (QUEUE, "even", ["q.0", "q.0"]),
    (QUEUE, "odd", ["q.1", "q.1"]),
    (INTEREST, "all", ["i.>", "i.>"]),
    (INTEREST, "some", ["i.0", "i.1"]),
];

/// The progress of a consumer that the log knows, as the model computes it.
#[derive(Clone, Debug, Default)]
struct Progress {
    filter: Vec<u8>,
    delivered: u64,
    consumer_seq: u64,
    pending: BTreeMap<u64, u64>,
    given_up: BTreeSet<u64>,
    /// The sequence of the last message that the consumer may pass over because of an earlier filter.
    recheck: u64,
}

impl Progress {
    fn wants(&self, subject: &[u8]) -> bool {
        tidegate_nats::subject::contains(&self.filter, subject)
    }

    fn first_needed(&self) -> u64 {
        let first = self.pending.keys().chain(&self.given_up).min();
        first.map_or(self.delivered + 1, |seq| (self.delivered + 1).min(*seq))
    }

    fn needs(&self, seq: u64) -> bool {
        seq > self.delivered || self.pending.contains_key(&seq) || self.given_up.contains(&seq)
    }
}

/// A change of a consumer's progress that the leader proposes.
#[derive(Default)]
pub(crate) struct Delta {
    delivered: (u64, u64),
    pub(crate) floor: (u64, u64),
    /// The sequence of each message that is new or pending, with the number of its delivery.
    unacked: BTreeMap<u64, u64>,
    pub(crate) settled: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
}

impl Delta {
    /// Encodes the delta for the log, with a run of its own for each message.
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![2];
        for n in [
            self.delivered.0,
            self.delivered.1,
            self.floor.0,
            self.floor.1,
        ] {
            put(&mut out, n);
        }
        put(&mut out, self.unacked.len() as u64);
        let mut end = 0;
        for (seq, consumer_seq) in &self.unacked {
            for n in [seq - end, 1, *consumer_seq, 0, 1] {
                put(&mut out, n);
            }
            end = seq + 1;
        }
        put(&mut out, 0);
        for all in [&self.settled, &self.given_up] {
            put(&mut out, all.len() as u64);
            let mut end = 0;
            for seq in all {
                put(&mut out, seq - end);
                put(&mut out, 1);
                end = seq + 1;
            }
        }
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if take(bytes)? != 2 {
            return None;
        }
        let mut delta = Self {
            delivered: (take(bytes)?, take(bytes)?),
            floor: (take(bytes)?, take(bytes)?),
            ..Self::default()
        };
        let mut end = 0;
        for _ in 0..take(bytes)? {
            let (seq, _, consumer_seq) = (end + take(bytes)?, take(bytes)?, take(bytes)?);
            let _ = (take(bytes)?, take(bytes)?);
            delta.unacked.insert(seq, consumer_seq);
            end = seq + 1;
        }
        take(bytes)?;
        for all in [&mut delta.settled, &mut delta.given_up] {
            let mut end = 0;
            for _ in 0..take(bytes)? {
                let (seq, len) = (end + take(bytes)?, take(bytes)?);
                all.extend(seq..seq + len);
                end = seq + len;
            }
        }
        Some(delta)
    }
}

/// The model's contents of both streams, computed from the entries.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    messages: BTreeMap<(StreamNumber, u64), Vec<u8>>,
    last: BTreeMap<StreamNumber, u64>,
    consumers: BTreeMap<(StreamNumber, Vec<u8>), Progress>,
    /// The range of messages in which the stream by interest has still to look for messages without a
    /// consumer.
    sweep: Option<(u64, u64)>,
    pub(crate) removed: u64,
    pub(crate) without_interest: u64,
}

impl Retained {
    /// Applies a command with its outcome to the model.
    pub(crate) fn apply(&mut self, command: &Command<'_>, outcome: &Outcome) -> Verdict {
        let stream = command.stream;
        if ![QUEUE, INTEREST].contains(&stream) {
            return Ok(());
        }
        let key = (stream, command.subject.to_vec());
        match (command.kind, outcome) {
            (Kind::Publish, Outcome::Stored { seq, .. }) => {
                self.last.insert(stream, seq.get());
                let mut of = self.consumers.iter().filter(|((s, _), _)| *s == stream);
                let needs = |c: &Progress| c.wants(command.subject) && c.needs(seq.get());
                if of.any(|(_, c)| needs(c)) || stream == QUEUE {
                    self.messages
                        .insert((stream, seq.get()), command.subject.to_vec());
                } else {
                    self.without_interest += 1;
                }
            }
            (Kind::CreateConsumer, Outcome::ConsumerCreated { .. }) => {
                let first = self.messages.range((stream, 0)..=(stream, u64::MAX)).next();
                let last = self.last.get(&stream).copied().unwrap_or(0);
                let progress = Progress {
                    filter: filter_of(command.payload)?,
                    delivered: first.map_or(last, |((_, seq), _)| seq - 1),
                    ..Progress::default()
                };
                self.consumers.insert(key, progress);
            }
            (Kind::CreateConsumer, Outcome::ConsumerUpdated { .. }) => {
                let last = self.last.get(&stream).copied().unwrap_or(0);
                let consumer = self.consumers.get_mut(&key);
                let consumer = consumer.ok_or("an unknown consumer is updated")?;
                let filter = filter_of(command.payload)?;
                if std::mem::replace(&mut consumer.filter, filter.clone()) != filter {
                    let first = consumer.first_needed();
                    if last > consumer.delivered {
                        consumer.recheck = last;
                    }
                    self.begin_sweep(stream, first, last);
                }
            }
            (Kind::DeleteConsumer, Outcome::ConsumerDeleted { .. }) => {
                let gone = self.consumers.remove(&key);
                let gone = gone.ok_or("an unknown consumer is deleted")?;
                let last = self.last.get(&stream).copied().unwrap_or(0);
                self.begin_sweep(stream, gone.first_needed(), last);
            }
            (Kind::SettlingDelta, Outcome::Done) => {
                let delta = Delta::decode(command.payload).ok_or("a delta that nobody wrote")?;
                let consumer = self.consumers.get_mut(&key);
                let consumer = consumer.ok_or("an unknown consumer changes")?;
                let (before, after) = (consumer.delivered, delta.delivered.1);
                let rechecks = consumer.recheck > before;
                (consumer.consumer_seq, consumer.delivered) = delta.delivered;
                consumer.pending.extend(&delta.unacked);
                for seq in delta.settled.iter().chain(&delta.given_up) {
                    consumer.pending.remove(seq);
                    consumer.given_up.remove(seq);
                }
                consumer.given_up.extend(&delta.given_up);
                for seq in delta.settled {
                    self.remove_unneeded(stream, seq);
                }
                if rechecks {
                    self.begin_sweep(stream, before + 1, after);
                }
            }
            (Kind::Expire, Outcome::Done) if stream == INTEREST => self.go_on_sweep(),
            _ => {}
        }
        Ok(())
    }

    fn remove_unneeded(&mut self, stream: StreamNumber, seq: u64) {
        let Some(subject) = self.messages.get(&(stream, seq)) else {
            return;
        };
        let mut of = self.consumers.iter().filter(|((s, _), _)| *s == stream);
        if !of.any(|(_, c)| c.wants(subject) && c.needs(seq)) {
            self.messages.remove(&(stream, seq));
            self.removed += 1;
        }
    }

    fn begin_sweep(&mut self, stream: StreamNumber, first: u64, last: u64) {
        if stream != INTEREST {
            return;
        }
        if self.consumers.keys().all(|(of, _)| *of != INTEREST) {
            self.sweep = None;
            self.messages.retain(|(of, _), _| *of != INTEREST);
            return;
        }
        if first > last {
            return;
        }
        let merge = |(a, b): (u64, u64)| (a.min(first), b.max(last));
        self.sweep = Some(self.sweep.map_or((first, last), merge));
        self.go_on_sweep();
    }

    fn go_on_sweep(&mut self) {
        let Some((first, last)) = self.sweep else {
            return;
        };
        let due = self.messages.range((INTEREST, first)..=(INTEREST, last));
        let due: Vec<u64> = due.map(|((_, seq), _)| *seq).take(SWEPT_MAX + 1).collect();
        self.sweep = due.get(SWEPT_MAX).map(|seq| (*seq, last));
        for seq in due.into_iter().take(SWEPT_MAX) {
            self.remove_unneeded(INTEREST, seq);
        }
    }

    /// Checks that a node's streams hold exactly the messages of the model.
    pub(crate) fn check(&self, streams: &Streams) -> Verdict {
        for number in [QUEUE, INTEREST] {
            let Some(stream) = streams.get(number) else {
                continue;
            };
            let expected = self.messages.range((number, 0)..=(number, u64::MAX));
            let expected: Vec<u64> = expected.map(|((_, seq), _)| *seq).collect();
            ensure!(
                held(stream) == expected,
                "stream {number} holds {:?}, expected {expected:?}",
                held(stream)
            );
        }
        Ok(())
    }

    /// Returns whether the stream may have dropped this message, so that a read of it may find nothing.
    pub(crate) fn may_be_gone(&self, stream: u32, seq: u64) -> bool {
        let number = StreamNumber::new(stream);
        [QUEUE, INTEREST].contains(&number) && !self.messages.contains_key(&(number, seq))
    }
}

/// Returns the sequences of the messages that a stream holds.
pub(crate) fn held(stream: &Stream) -> Vec<u64> {
    let state = stream.state();
    let all = state.first_seq.up_to(state.last_seq.next());
    all.filter(|seq| stream.contains(*seq))
        .map(StreamSeq::get)
        .collect()
}

fn filter_of(request: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(request).map_err(|e| e.to_string())?;
    let (_, rest) = text
        .split_once(r#""filter_subject":""#)
        .ok_or("no filter")?;
    let (filter, _) = rest.split_once('"').ok_or("no filter")?;
    Ok(filter.as_bytes().to_vec())
}

impl Member {
    /// Returns the sequences of the messages that this node's streams hold.
    pub(crate) fn retained(&self) -> [Vec<u64>; 2] {
        let of = |number| self.streams.get(number).map_or_else(Vec::new, held);
        [QUEUE, INTEREST].map(of)
    }

    /// Returns whether no message of these streams waits for a consumer on this node.
    pub(crate) fn retains_nothing(&self) -> bool {
        self.is_empty(QUEUE) && self.is_empty(INTEREST)
    }

    fn is_empty(&self, number: StreamNumber) -> bool {
        let stream = self.streams.get(number);
        stream.is_none_or(|s| s.state().messages == 0)
    }

    /// Makes a consumer of these streams do some work, if this node leads. With `heals`, consumers settle
    /// every message.
    pub(crate) fn work(
        &mut self,
        store: &mut Store,
        now_us: u64,
        (oracle, dice): (&Oracle, &mut Dice),
        heals: bool,
        seen: &mut Coverage,
    ) -> Verdict {
        let group = store.group(self.at);
        let (term, applied) = (group.term().get(), self.applied.index.get());
        let waits = self
            .working
            .is_some_and(|(i, of)| of == term && i > applied);
        if !group.leads_settled() || waits || self.streams.get(INTEREST).is_none() {
            return Ok(());
        }
        if heals && self.retains_nothing() {
            return Ok(());
        }
        let mut swept = Vec::new();
        if self
            .streams
            .next_expiry(now_us)
            .is_some_and(|due| due <= now_us)
        {
            seen.hit("sweeps continued");
            let mut encoder = Encoder::begin(&mut swept, now_us);
            let _ = self
                .streams
                .propose_expiry(now_us, Storage::File, &mut encoder);
            if let Ok(proposed) = store.propose(self.at, Bytes::from(swept), 1) {
                self.working = Some((proposed.index.get(), term));
            }
            return Ok(());
        }
        let (number, name, filters) = loop {
            let consumer = dice.pick(&CONSUMERS);
            // At the end of a seed, consumers work only on streams that still have messages.
            if !heals || !self.is_empty(consumer.0) {
                break consumer;
            }
        };
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, now_us);
        let there = self.streams.get(number).and_then(|s| s.consumer(name));
        let key = name.as_bytes();
        let rare = !heals && dice.chance(20);
        match there {
            Some(_) if rare && dice.chance(500) => {
                seen.hit("consumers deleted");
                let _ = encoder.command(&Command::new(Kind::DeleteConsumer, number, key, b""));
            }
            None | Some(_) if rare || there.is_none() => {
                seen.hit("consumers made or changed");
                let filter = dice.pick(&filters);
                let config = format!(
                    r#"{{"config":{{"durable_name":"{name}","name":"{name}","ack_policy":"explicit","filter_subject":"{filter}"}}}}"#
                );
                let kind = Kind::CreateConsumer;
                let _ = encoder.command(&Command::new(kind, number, key, config.as_bytes()));
            }
            _ => {
                let Some(delta) = self.next_work(store, (number, name), oracle, dice, heals)?
                else {
                    return Ok(());
                };
                let delta = delta.encode();
                let _ = encoder.command(&Command::new(Kind::SettlingDelta, number, key, &delta));
            }
        }
        // If the log has no room, the leader tries again in the next turn.
        if let Ok(proposed) = store.propose(self.at, Bytes::from(buffer), 1) {
            self.working = Some((proposed.index.get(), term));
        }
        Ok(())
    }

    /// Chooses the messages that a consumer delivers and settles next, as a delta.
    fn next_work(
        &self,
        store: &mut Store,
        (number, name): (StreamNumber, &str),
        oracle: &Oracle,
        dice: &mut Dice,
        heals: bool,
    ) -> Result<Option<Delta>, String> {
        let retained = &oracle.model.retained;
        let known = retained.consumers.get(&(number, name.as_bytes().to_vec()));
        let (Some(known), Some(stream)) = (known, self.streams.get(number)) else {
            return Ok(None);
        };
        // The oracle may be ahead of this node, so the node waits.
        let state = stream.consumer(name).map(|c| c.state().delivered());
        if state.is_none_or(|s| s.stream_seq.get() != known.delivered) {
            return Ok(None);
        }
        let mut known = known.clone();
        let mut delta = Delta::default();
        let ahead = held(stream)
            .into_iter()
            .filter(|seq| *seq > known.delivered);
        let count = if heals { 500 } else { dice.range(1, 12) } as usize;
        for seq in ahead.take(count).collect::<Vec<_>>() {
            let message = stream.message(StreamSeq::new(seq));
            let Some(message) = message.filter(|m| known.wants(&m.subject)) else {
                continue;
            };
            let Some(crc) = self.message(store, message.place)? else {
                break;
            };
            let stored = oracle.model.streams.get(&number.get());
            let stored = stored.and_then(|s| s.messages.get(&seq));
            ensure!(
                stored == Some(&crc),
                "message {seq} of stream {number} is delivered as another"
            );
            (known.delivered, known.consumer_seq) = (seq, known.consumer_seq + 1);
            known.pending.insert(seq, known.consumer_seq);
            delta.unacked.insert(seq, known.consumer_seq);
        }
        let settles = if heals { 1000 } else { dice.range(100, 900) };
        for seq in known.pending.keys().copied().collect::<Vec<_>>() {
            if dice.chance(settles) {
                known.pending.remove(&seq);
                match heals || dice.chance(900) {
                    true => delta.settled.insert(seq),
                    false => delta.given_up.insert(seq),
                };
            }
        }
        // The consumer sends a late acknowledgement of messages that it has given up.
        if heals || dice.chance(200) {
            delta.settled.extend(&known.given_up);
        }
        delta.delivered = (known.consumer_seq, known.delivered);
        let first = known.pending.first_key_value();
        delta.floor = first.map_or(delta.delivered, |(seq, c)| (c - 1, seq - 1));
        let nothing =
            delta.unacked.is_empty() && delta.settled.is_empty() && delta.given_up.is_empty();
        Ok((!nothing).then_some(delta))
    }
}

/// Writes a number as the delta's format has it: seven bits a byte, the low bits first.
fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (mut n, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
        shift += 7;
    }
}
