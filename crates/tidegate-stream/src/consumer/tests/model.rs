//! Tests a consumer by random operations and a simple model, which keeps sets of message numbers and has no
//! floors, queues or deltas.
//!
//! After each step the model knows the messages that are ahead, the pending ones with their count of
//! deliveries and the time of their redelivery, and the acknowledged ones; and checks each message that the
//! consumer sends against them. A restart takes the model back to the last durable delta; a reset takes it to
//! a given message, or to the first message that is not acknowledged.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::schema::config::{AckPolicy, DeliverPolicy};

#[derive(Clone, Debug, Default)]
struct Known {
    /// The messages that the consumer has never delivered and must still deliver.
    ahead: BTreeSet<StreamSeq>,
    /// The messages that the consumer has delivered and no receiver has settled, each with its count of
    /// deliveries and the time of its redelivery.
    pending: BTreeMap<StreamSeq, (u64, u64)>,
    consumer_seq: u64,
    delivered: StreamSeq,
    /// The messages that receivers have settled, if the consumer's deltas must list them.
    settled: BTreeSet<StreamSeq>,
    given_up: BTreeSet<StreamSeq>,
}

impl Known {
    /// Ends the wait for an acknowledgement of the messages for which `ended` returns true, because a
    /// receiver settled them or the stream removed them.
    fn settle(&mut self, mut ended: impl FnMut(StreamSeq) -> bool) {
        let all = self.pending.keys().chain(&self.given_up).copied();
        let settled: Vec<StreamSeq> = all.filter(|seq| ended(*seq)).collect();
        for seq in settled {
            self.pending.remove(&seq);
            self.given_up.remove(&seq);
            self.settled.insert(seq);
        }
    }
}

struct World {
    now: u64,
    stream: Stream,
    net: Net,
    config: ConsumerConfig,
    record: Record,
    /// The messages that the durable deltas list as settled. The test compares them with the model.
    listed: BTreeSet<StreamSeq>,
    state: State,
    consumer: Consumer,
    known: Known,
    /// The deltas that are not durable yet, each with the model's state at that time. A restart takes the
    /// model back to `durable`, its state at the last durable delta.
    told: VecDeque<(Vec<u8>, Known)>,
    durable: Known,
    /// The acknowledged messages for which the receiver got an answer. The consumer must never redeliver
    /// them.
    recorded: BTreeSet<StreamSeq>,
    /// The messages of each acknowledgement with a reply subject, by that subject. The answer to it makes
    /// them recorded.
    asked: BTreeMap<String, Vec<StreamSeq>>,
    asks: u64,
    /// The subject of the flow control request that the receiver has still to answer.
    flow: Option<String>,
    floor: Position,
    /// The number of the stream's last message when the test created the consumer. A consumer of last
    /// messages looks at the messages up to it.
    resume: StreamSeq,
}

const SUBJECTS: [&str; 4] = ["a", "b", "c", "d"];

impl World {
    fn new(json: &str, record: Record, before: &[u64]) -> Self {
        let config = config(json);
        let mut stream = Stream {
            filters: filters(&config),
            ..Stream::default()
        };
        stream.counts_in_parts = before.len() % 2 == 1;
        let now = 1_000_000_000;
        for subject in before {
            put(&mut stream, now, *subject);
        }
        let state = State::new(&config, &mut stream);
        let consumer = take_up(now, &config, record, &state, &mut stream);
        let mut world = Self {
            now,
            resume: stream.last_seq,
            net: Net::default(),
            durable: Known::default(),
            known: Known::default(),
            told: VecDeque::new(),
            recorded: BTreeSet::new(),
            asked: BTreeMap::new(),
            asks: 0,
            flow: None,
            floor: state.ack_floor(),
            stream,
            config,
            record,
            listed: BTreeSet::new(),
            state,
            consumer,
        };
        let start = match world.config.deliver_policy {
            DeliverPolicy::New => world.stream.last_seq.next(),
            DeliverPolicy::Last => world
                .stream
                .last_matching()
                .unwrap_or_else(|| world.stream.last_seq.next()),
            _ => StreamSeq::FIRST,
        };
        world.known.delivered = start.prev();
        world.known.ahead = world.ahead();
        world.durable = world.known.clone();
        world
    }

    /// Computes the messages that the consumer must still deliver, from the stream's messages and the last
    /// delivered number.
    fn ahead(&mut self) -> BTreeSet<StreamSeq> {
        let delivered = self.known.delivered;
        let all = self.stream.matching(delivered.next()).map(|(seq, _)| seq);
        if self.config.deliver_policy != DeliverPolicy::LastPerSubject {
            return all.collect();
        }
        let later: Vec<StreamSeq> = all.filter(|seq| *seq > self.resume).collect();
        let last = self.stream.last_per_subject();
        let first = last
            .into_values()
            .filter(|s| *s > delivered && *s <= self.resume);
        first.chain(later).collect()
    }

    fn step(&mut self, kind: u8, x: u64) {
        match kind {
            0..=4 => {
                let seq = put(&mut self.stream, self.now, x);
                let subject = SUBJECTS[x as usize % 4];
                self.consumer.handle_stored(seq, subject.as_bytes());
                // A reset may have moved the consumer to a message that the stream has yet to store. The
                // consumer then does not want this message.
                if seq > self.known.delivered && self.stream.matches(subject) {
                    self.known.ahead.insert(seq);
                }
            }
            5..=7 => {
                let body = match x % 4 {
                    0 => format!("{}", 1 + x % 7),
                    1 => format!(r#"{{"batch":{},"no_wait":true}}"#, x % 9),
                    2 => format!(r#"{{"batch":3,"expires":{}}}"#, 1 + x % 5_000_000_000),
                    _ => format!(
                        r#"{{"batch":9,"max_bytes":{},"expires":3000000000}}"#,
                        x % 900
                    ),
                };
                let reply = format!("r{}", x % 3);
                self.consumer.handle_pull(
                    self.now,
                    reply.as_bytes(),
                    body.as_bytes(),
                    &mut self.net,
                );
            }
            9..=13 if self.is_acked_by_flow() => self.ack_by_flow(x),
            8..=13 => self.ack(kind, x),
            14..=16 => self.wait(x % 1_500_000),
            17 => {
                if let Some((seq, subject)) = self
                    .stream
                    .messages
                    .iter()
                    .nth(x as usize % 8)
                    .map(|(s, m)| (*s, m.subject.clone()))
                {
                    self.stream.messages.remove(&seq);
                    self.known.ahead.remove(&seq);
                    self.known.settle(|ended| ended == seq);
                    self.consumer
                        .handle_removed(self.now, seq, subject.as_bytes(), &mut self.net);
                }
            }
            18 if x.is_multiple_of(5) => {
                let up_to = StreamSeq::new(self.stream.last_seq.get() * (x % 7) / 7);
                self.stream.messages.retain(|seq, _| *seq > up_to);
                self.known.ahead.retain(|seq| *seq > up_to);
                self.known.settle(|ended| ended <= up_to);
                self.consumer
                    .handle_purged(self.now, up_to, &mut self.stream);
            }
            18..=20 => self.take_delta(x.is_multiple_of(2)),
            21 | 22 => self.make_durable(),
            23 if x.is_multiple_of(4) => self.restart(),
            23 if x % 4 == 1 => self.reset(x / 4),
            24 => {
                let inbox = format!("r{}", x % 3);
                if x.is_multiple_of(2) {
                    self.net.nobody.insert(inbox);
                } else if self.net.nobody.remove(&inbox) {
                    self.consumer.handle_subscribed(inbox.as_bytes());
                }
            }
            25 => self.net.room = x as usize % 4,
            _ => {}
        }
        self.deliver();
    }

    fn ack(&mut self, kind: u8, x: u64) {
        let pending: Vec<StreamSeq> = self.known.pending.keys().copied().collect();
        // The receiver mostly acknowledges a pending message, and sometimes any message, so that the test
        // covers wrong acknowledgements.
        let seq = if x.is_multiple_of(8) || pending.is_empty() {
            StreamSeq::new(x % (self.stream.last_seq.get() + 3))
        } else {
            pending[x as usize % pending.len()]
        };
        let valid =
            seq >= StreamSeq::FIRST && seq <= self.known.delivered && self.known.consumer_seq >= 1;
        let numbers = AckNumbers {
            deliveries: 1,
            stream_seq: seq,
            consumer_seq: ConsumerSeq::new(1),
            time_ns: 0,
            pending: 0,
        };
        self.asks += 1;
        let reply = if x.is_multiple_of(3) {
            format!("d{}", self.asks)
        } else {
            String::new()
        };
        let payload = match kind {
            8..=10 => "+ACK",
            11 => "+TERM",
            12 if x.is_multiple_of(2) => "-NAK",
            12 => "-NAK 700ms",
            _ => "+WPI",
        };
        if valid && matches!(self.config.ack_policy, AckPolicy::All | AckPolicy::Explicit) {
            let settled: Vec<StreamSeq> = match self.config.ack_policy {
                AckPolicy::Explicit => vec![seq],
                _ => StreamSeq::FIRST.up_to(seq.next()).collect(),
            };
            let deliveries = self.known.pending.get(&seq).map(|(n, _)| *n);
            match (payload, deliveries) {
                ("+ACK" | "+TERM", _) => {
                    self.known.settle(|ended| settled.contains(&ended));
                    if !reply.is_empty() {
                        self.asked.insert(reply.clone(), settled);
                    }
                }
                ("+WPI", Some(n)) => {
                    let due = self.now + self.wait_us(n);
                    self.known.pending.insert(seq, (n, due));
                }
                (_, Some(n)) => {
                    let delay = if payload == "-NAK" { 0 } else { 700_000 };
                    self.known.pending.insert(seq, (n, self.now + delay));
                }
                _ => {}
            }
        }
        self.consumer.handle_ack(
            self.now,
            &numbers,
            reply.as_bytes(),
            payload.as_bytes(),
            &mut self.net,
        );
    }

    fn is_acked_by_flow(&self) -> bool {
        self.config.ack_policy == AckPolicy::FlowControl
    }

    /// Answers the flow control request, mostly with a pending message and sometimes with any numbers; or
    /// lets another stream say which messages it has.
    fn ack_by_flow(&mut self, x: u64) {
        if x.is_multiple_of(5) {
            return self.tap(StreamSeq::new(x / 5 % (self.stream.last_seq.get() + 3)));
        }
        let Some(subject) = self.flow.take() else {
            return;
        };
        let pending: Vec<StreamSeq> = self.known.pending.keys().copied().collect();
        let seq = if x.is_multiple_of(7) || pending.is_empty() {
            StreamSeq::new(x % (self.stream.last_seq.get() + 3))
        } else {
            pending[x as usize % pending.len()]
        };
        let consumer_seq = match x % 11 {
            0 => x / 11 % (self.known.consumer_seq + 2),
            _ => self.known.consumer_seq,
        };
        let headers = format!(
            "NATS/1.0\r\nNats-Last-Consumer: {consumer_seq}\r\nNats-Last-Stream: {seq}\r\n\r\n"
        );
        let headers = if x.is_multiple_of(13) { "" } else { &headers };
        let valid = !headers.is_empty()
            && seq > self.floor.stream_seq
            && seq <= self.known.delivered
            && consumer_seq > self.floor.consumer_seq.get()
            && consumer_seq <= self.known.consumer_seq;
        if valid {
            self.known.settle(|ended| ended <= seq);
        }
        self.consumer
            .handle_flow(self.now, subject.as_bytes(), headers.as_bytes());
    }

    /// Another stream has all messages up to `has`, which counts as the delivery and the acknowledgement of
    /// at most three new messages.
    fn tap(&mut self, has: StreamSeq) {
        let mut reached = has.min(self.stream.last_seq);
        for settled in 0.. {
            let next = self.known.ahead.first().copied();
            let Some(next) = next.filter(|next| *next <= has) else {
                break;
            };
            if settled == 3 {
                reached = self.known.delivered;
                break;
            }
            self.known.ahead.pop_first();
            self.known.consumer_seq += 1;
            self.known.delivered = next;
            self.known.settled.insert(next);
        }
        self.known.settle(|ended| ended <= reached);
        self.consumer.handle_tapped(self.now, has, &mut self.stream);
    }

    fn wait_us(&self, deliveries: u64) -> u64 {
        if self.is_acked_by_flow() {
            // The consumer never redelivers by itself.
            return u64::MAX - self.now;
        }
        let backoff = &self.config.backoff;
        let last = backoff.len().saturating_sub(1);
        let ns = backoff.get(last.min(deliveries as usize - 1)).copied();
        ns.unwrap_or(self.config.ack_wait) as u64 / 1000
    }

    /// Lets time pass, and calls the consumer at each of its deadlines, as a server does.
    fn wait(&mut self, us: u64) {
        let until = self.now + us;
        for calls in 0.. {
            assert!(calls < 10_000, "the consumer asks to be called for ever");
            self.now = self
                .consumer
                .deadline(self.now)
                .unwrap_or(u64::MAX)
                .min(until);
            self.consumer.handle_timeouts(self.now, &mut self.net);
            self.deliver();
            if self.now == until {
                return;
            }
        }
    }

    fn take_delta(&mut self, any: bool) {
        let delta = if any {
            self.consumer.take_delta(self.now)
        } else {
            self.consumer.poll_delta(self.now)
        };
        if let Some(delta) = delta {
            self.told.push_back((delta, self.known.clone()));
        }
    }

    fn make_durable(&mut self) {
        let Some((delta, known)) = self.told.pop_front() else {
            return;
        };
        let floor = self.state.ack_floor();
        let released = self.state.release(&delta).unwrap();
        self.state.check_invariants();
        assert_eq!(lists_settled(&delta), self.record == Record::Settled);
        for run in released.settled {
            self.listed.extend(run.start().up_to(run.end().next()));
        }
        assert!(floor.max(self.state.ack_floor()) == self.state.ack_floor());
        self.durable = known;
        let told: Vec<_> = self
            .state
            .pending()
            .iter()
            .map(|u| (u.stream_seq, u64::from(u.deliveries)))
            .collect();
        let expected: Vec<_> = self
            .durable
            .pending
            .iter()
            .map(|(seq, (n, _))| (*seq, *n))
            .collect();
        assert_eq!(told, expected, "what the log knows as pending");
        if self.record == Record::Settled {
            assert_eq!(
                self.listed, self.durable.settled,
                "the messages listed as settled"
            );
            assert_eq!(self.state.given_up, self.durable.given_up);
        }
        assert_eq!(
            State::decode(&self.state.encode()).as_ref(),
            Ok(&self.state)
        );
        self.consumer.handle_delta_durable(&mut self.net);
    }

    fn restart(&mut self) {
        self.told.clear();
        self.flow = None;
        // After a restart, no receiver that waited gets an answer, because the consumer has lost their
        // subjects.
        self.asked.clear();
        self.known = self.durable.clone();
        let there = &self.stream.messages;
        self.known.settle(|ended| !there.contains_key(&ended));
        self.known.ahead = self.ahead();
        self.consumer = take_up(
            self.now,
            &self.config,
            self.record,
            &self.state,
            &mut self.stream,
        );
        self.floor = self.state.ack_floor();
    }

    /// Resets the consumer and the model, as the log does, once all deltas are durable.
    fn reset(&mut self, x: u64) {
        while !self.told.is_empty() {
            self.make_durable();
        }
        assert!(self.consumer.is_settled());
        let asked = match x % 3 {
            0 => StreamSeq::ZERO,
            _ => StreamSeq::new(1 + x % (self.stream.last_seq.get() + 3)),
        };
        let floor = self.consumer.info(self.now).ack_floor;
        let seq = match reset_to(&self.config, floor, asked, &mut self.stream) {
            Ok(seq) => seq,
            Err(error) => {
                assert!(
                    asked > StreamSeq::ZERO && self.config.deliver_policy != DeliverPolicy::All
                );
                assert_eq!(error.err_code, 10204);
                return;
            }
        };
        assert_eq!(
            seq,
            if asked == StreamSeq::ZERO {
                floor.stream_seq.next()
            } else {
                asked
            }
        );
        self.state.reset(seq);
        self.state.check_invariants();
        assert_eq!(
            State::decode(&self.state.encode()).as_ref(),
            Ok(&self.state)
        );
        self.consumer
            .handle_reset(&self.state, &mut self.stream, &mut self.net);
        // The consumer has answered all receivers that waited. Acknowledgements above the new start no longer
        // count, so the model forgets them.
        for sent in std::mem::take(&mut self.net.sent) {
            self.judge(sent);
        }
        assert!(self.asked.is_empty(), "{:?}", self.asked);
        self.recorded.retain(|recorded| *recorded < seq);
        // The consumer still lists settled messages before its new start, because it does not deliver them
        // again.
        let settled = self.known.settled.iter().copied();
        let settled = settled.filter(|s| *s < seq || self.listed.contains(s));
        self.known = Known {
            delivered: seq.prev(),
            settled: settled.collect(),
            ..Known::default()
        };
        self.known.ahead = self.ahead();
        self.durable = self.known.clone();
        self.durable.settled = self.listed.clone();
        self.floor = self.state.ack_floor();
        let info = self.consumer.info(self.now);
        assert_eq!((info.num_ack_pending, info.num_redelivered), (0, 0));
        assert_eq!((info.last_delivery_us, info.last_ack_us), (None, None));
    }

    fn deliver(&mut self) {
        let mut calls = 0;
        prepare(self.now, &mut self.consumer, &mut self.stream);
        while self
            .consumer
            .deliver(self.now, &mut 3, &mut self.stream, &mut self.net)
            == Progress::More
        {
            calls += 1;
            assert!(calls < 1000);
        }
        for sent in std::mem::take(&mut self.net.sent) {
            self.judge(sent);
        }
        self.compare();
    }

    fn judge(&mut self, sent: Sent) {
        match sent {
            Sent::Message { numbers: n, .. } => self.judge_message(&n),
            Sent::Answer(to) => self
                .recorded
                .extend(self.asked.remove(&to).unwrap_or_default()),
            Sent::Advisory(text) if text.contains("MAX_DELIVERIES") => {
                let json: serde_json::Value =
                    serde_json::from_str(text.split_once(' ').unwrap().1).unwrap();
                let seq = json["stream_seq"].as_u64().map(StreamSeq::new).unwrap();
                let (deliveries, due) = self.known.pending.remove(&seq).unwrap();
                assert!(deliveries as i64 >= self.config.max_deliver && due <= self.now);
                if self.record == Record::Settled {
                    self.known.given_up.insert(seq);
                }
            }
            Sent::Status { reply, .. } if reply.starts_with("$JS.FC.") => self.flow = Some(reply),
            Sent::Advisory(_) | Sent::Status { .. } => {}
        }
    }

    fn judge_message(&mut self, n: &AckNumbers) {
        let seq = n.stream_seq;
        assert!(
            !self.recorded.contains(&seq),
            "{seq} was acknowledged for good"
        );
        assert_eq!(n.consumer_seq.get(), self.known.consumer_seq + 1);
        self.known.consumer_seq += 1;
        let deliveries = if self.known.ahead.contains(&seq) {
            assert_eq!(
                self.known.ahead.pop_first(),
                Some(seq),
                "the first one ahead comes first"
            );
            self.known.delivered = seq;
            1
        } else {
            let (deliveries, due) = self.known.pending[&seq];
            assert!(due <= self.now, "{seq} is not due before {due}");
            deliveries + 1
        };
        assert_eq!(n.deliveries, deliveries);
        let max = self.config.max_deliver;
        assert!(max < 0 || deliveries as i64 <= max);
        assert_eq!(n.pending, self.known.ahead.len() as u64);
        if self.config.ack_policy != AckPolicy::None {
            let due = self.now + self.wait_us(deliveries);
            self.known.pending.insert(seq, (deliveries, due));
            let max = usize::try_from(self.config.max_ack_pending).unwrap_or(usize::MAX);
            assert!(deliveries > 1 || self.known.pending.len() <= max.max(1));
        } else {
            self.known.settled.insert(seq);
        }
    }

    fn compare(&mut self) {
        self.consumer.check_invariants(&mut self.stream);
        let info = self.consumer.info(self.now);
        assert_eq!(info.num_pending, self.known.ahead.len() as u64);
        let pending: Vec<StreamSeq> = self.consumer.pending.iter().map(|u| u.stream_seq).collect();
        assert_eq!(
            pending,
            self.known.pending.keys().copied().collect::<Vec<_>>()
        );
        assert_eq!(info.delivered.consumer_seq.get(), self.known.consumer_seq);
        let floor = info.ack_floor;
        assert_eq!(self.floor.max(floor), floor, "the floor went back");
        self.floor = floor;
        // No message at or below the ack floor may await an acknowledgement.
        assert!(self.known.pending.keys().all(|seq| *seq > floor.stream_seq));
    }

    /// Lets receivers take all messages and acknowledge them, and checks that the consumer then has no
    /// message left.
    fn drain(&mut self) {
        for inbox in std::mem::take(&mut self.net.nobody) {
            self.consumer.handle_subscribed(inbox.as_bytes());
        }
        self.net.room = 0;
        for _ in 0..400 {
            if self.known.ahead.is_empty() && self.known.pending.is_empty() {
                return;
            }
            self.consumer
                .handle_pull(self.now, b"last", b"1000", &mut self.net);
            self.deliver();
            self.wait(1_000_000);
            let by_flow = self.is_acked_by_flow();
            let pending = self.known.pending.keys().filter(|_| !by_flow);
            for seq in pending.copied().collect::<Vec<_>>() {
                let numbers = AckNumbers {
                    deliveries: 1,
                    stream_seq: seq,
                    consumer_seq: ConsumerSeq::new(1),
                    time_ns: 0,
                    pending: 0,
                };
                self.known.settle(|ended| ended == seq);
                self.consumer
                    .handle_ack(self.now, &numbers, b"", b"", &mut self.net);
            }
            if let Some(subject) = self.flow.take() {
                let (all, last) = (self.known.consumer_seq, self.known.delivered);
                self.known.settle(|_| true);
                let headers = format!(
                    "NATS/1.0\r\nNats-Last-Consumer: {all}\r\nNats-Last-Stream: {last}\r\n\r\n"
                );
                self.consumer
                    .handle_flow(self.now, subject.as_bytes(), headers.as_bytes());
            }
            self.take_delta(true);
            self.make_durable();
        }
        panic!("left: {:?}", self.known);
    }
}

fn put(stream: &mut Stream, now: u64, subject: u64) -> StreamSeq {
    stream.last_seq = stream.last_seq.next();
    let stored = Stored {
        subject: SUBJECTS[subject as usize % 4].to_owned(),
        headers: Vec::new(),
        payload: vec![b'x'; subject as usize % 50],
        time_us: now,
    };
    stream.messages.insert(stream.last_seq, stored);
    stream.last_seq
}

fn take_up(
    now: u64,
    config: &ConsumerConfig,
    record: Record,
    state: &State,
    stream: &mut Stream,
) -> Consumer {
    let identity = Identity {
        stream: "S",
        consumer: "C",
        record,
    };
    let mut consumer = Consumer::new(now, identity, config, state, stream);
    prepare(now, &mut consumer, stream);
    consumer
}

/// Prepares the consumer before the stream changes, because the model has no search in parts.
fn prepare(now: u64, consumer: &mut Consumer, stream: &mut Stream) {
    while !consumer.is_prepared() {
        let limit = 1 + now as usize % 3;
        consumer.prepare(now, limit, stream, &mut Net::default());
    }
}

fn configs() -> impl Strategy<Value = String> {
    let ack = prop_oneof![
        Just(r#""ack_policy":"none""#),
        Just(r#""ack_policy":"all","ack_wait":1000000000"#),
        Just(r#""ack_policy":"explicit","ack_wait":1000000000"#),
        Just(r#""ack_policy":"explicit","ack_wait":1000000000,"max_ack_pending":3"#),
        Just(r#""ack_policy":"explicit","ack_wait":1000000000,"max_deliver":2"#),
        Just(r#""ack_policy":"explicit","backoff":[300000000,2000000000],"max_deliver":3"#),
        Just(r#""ack_policy":"flow_control""#),
        Just(r#""ack_policy":"flow_control","max_ack_pending":3"#),
    ];
    let filter = prop_oneof![
        Just(r#""filter_subject":"*""#),
        Just(r#""filter_subject":"a""#),
        Just(r#""filter_subjects":["a","c"]"#),
    ];
    let start = prop_oneof![
        Just("all"),
        Just("new"),
        Just("last"),
        Just("last_per_subject"),
    ];
    let push = prop_oneof![
        3 => Just(""),
        1 => Just(r#","deliver_subject":"r1","max_ack_pending":0"#),
    ];
    (ack, filter, start, push).prop_map(|(ack, filter, start, push)| {
        let push = match ack {
            _ if ack.contains("flow_control") => r#","deliver_subject":"r1""#,
            _ if ack.contains("max_ack_pending") => "",
            _ => push,
        };
        format!(r#"{{"durable_name":"C",{ack},{filter},"deliver_policy":"{start}"{push}}}"#)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_happens(
        json in configs(),
        settled in any::<bool>(),
        before in proptest::collection::vec(any::<u64>(), 0..12),
        steps in proptest::collection::vec((0_u8..26, any::<u64>()), 0..150),
    ) {
        let record = if settled { Record::Settled } else { Record::State };
        let mut world = World::new(&json, record, &before);
        for (kind, x) in steps {
            world.step(kind, x);
        }
        world.drain();
    }
}
