//! A fuzz target for consumers. The target gives a consumer any bytes as its state, and any input of
//! receivers: pull requests, acknowledgements and their subjects. The consumer must not panic, and must keep
//! its invariants.

use tidegate_stream::consumer::{
    AckNumbers, AckSubject, Advisory, Consumer, ConsumerSeq, Delivery, Fetch, Identity, Lasts,
    Message, Ready, Record, Sink, Source, State,
};
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig};
use tidegate_stream::schema::sequence::StreamSeq;

const LAST: StreamSeq = StreamSeq::new(10);

struct Ten;

impl Source for Ten {
    fn first_seq(&self) -> StreamSeq {
        StreamSeq::FIRST
    }
    fn last_seq(&self) -> StreamSeq {
        LAST
    }
    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        (seq <= LAST).then_some(seq.max(StreamSeq::FIRST))
    }
    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        LAST.next().saturating_distance(seq.max(StreamSeq::FIRST))
    }
    fn counts_in_parts(&self) -> bool {
        false
    }
    fn count_part(&mut self, from: StreamSeq, _: u64) -> (u64, Option<StreamSeq>) {
        (self.count_from(from), None)
    }
    fn lasts(&mut self, _: usize, _: usize, _: Option<StreamSeq>) -> Option<Lasts> {
        Some((StreamSeq::FIRST.up_to(LAST.next()).collect(), None))
    }
    fn is_last(&mut self, seq: StreamSeq) -> bool {
        self.contains(seq)
    }
    fn contains(&self, seq: StreamSeq) -> bool {
        (StreamSeq::FIRST..=LAST).contains(&seq)
    }
    fn message(&mut self, _: StreamSeq) -> Fetch<'_> {
        Fetch::Ready(Message {
            subject: b"s",
            headers: b"",
            payload: b"p",
            time_us: 1,
        })
    }
}

struct Nowhere;

impl Sink for Nowhere {
    fn ready(&mut self, _: &[u8], _: Option<&[u8]>) -> Ready {
        Ready::Yes
    }
    fn message(&mut self, _: &[u8], delivery: &Delivery<'_>) -> Ready {
        assert!(AckSubject::parse(delivery.reply).is_some());
        Ready::Yes
    }
    fn status(&mut self, _: &[u8], _: &[u8], headers: &[u8]) {
        assert!(headers.starts_with(b"NATS/1.0 ") && headers.ends_with(b"\r\n\r\n"));
    }
    fn answer(&mut self, _: &[u8]) {}
    fn advisory(&mut self, advisory: &Advisory<'_>) {
        let _ = advisory.json("id", "time");
    }
}

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(input: &[u8]) {
    let _ = AckSubject::parse(input);
    let mut state = State::decode(input).unwrap_or_else(|_| State::starting_at(StreamSeq::FIRST));
    state.check_invariants();
    let mut config = ConsumerConfig {
        ack_policy: AckPolicy::Explicit,
        ack_wait: 1000,
        max_deliver: 3,
        max_ack_pending: 5,
        ..ConsumerConfig::default()
    };
    // The last byte chooses a consumer that takes acknowledgements by flow control, now and then.
    if input.last().is_some_and(|b| b % 4 == 3) {
        config.ack_policy = AckPolicy::FlowControl;
        (config.ack_wait, config.max_deliver) = (0, -1);
        (config.flow_control, config.idle_heartbeat) = (true, 3000);
        config.deliver_subject = "d".into();
    }
    // The first byte of the input chooses one of the two kinds of deltas, so that the fuzzer tests both.
    let record = match input.first() {
        Some(b) if b % 2 == 1 => Record::Settled,
        _ => Record::State,
    };
    let identity = Identity {
        stream: "S",
        consumer: "C",
        record,
    };
    if state.delivered().stream_seq > LAST {
        // The target's stream has ten messages, so no consumer of the stream can have delivered a later
        // sequence. The target replaces such an impossible state by a new one.
        state = State::starting_at(StreamSeq::FIRST);
    }
    let mut consumer = Consumer::new(1, identity, &config, &state, &mut Ten);
    for (i, line) in input.split(|b| *b == b'\n').enumerate() {
        let now = 2 + i as u64;
        consumer.handle_pull(now, b"r", line, &mut Nowhere);
        consumer.prepare(now, 20, &mut Ten, &mut Nowhere);
        consumer.deliver(now, &mut 20, &mut Ten, &mut Nowhere);
        let seq = line.first().map_or(1, |b| u64::from(b % 12));
        let numbers = AckNumbers {
            deliveries: 1,
            stream_seq: StreamSeq::new(seq),
            consumer_seq: ConsumerSeq::new(1),
            time_ns: 0,
            pending: 0,
        };
        consumer.handle_ack(now, &numbers, b"d", line, &mut Nowhere);
        consumer.handle_flow(now, format!("$JS.FC.S.C.1-{}", i % 8).as_bytes(), line);
        if line.len() % 3 == 2 {
            consumer.handle_tapped(now, StreamSeq::new(seq), &mut Ten);
        }
        consumer.handle_timeouts(now, &mut Nowhere);
        if let Some(delta) = consumer.poll_delta(now) {
            state.apply(&delta).expect("its own delta");
            state.check_invariants();
            consumer.handle_delta_durable(&mut Nowhere);
        }
        consumer.check_invariants(&mut Ten);
    }
}
