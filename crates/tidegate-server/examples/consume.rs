//! Measures the cost of a consumer's own code for a message: pulls of 500 messages of 1 KiB, acknowledged one
//! by one, all at once, or not at all; beside equal messages that the example hands from a stream to a
//! connection without a consumer between.
//!
//! `cargo run --release -p tidegate-server --example consume`

use std::time::{Duration, Instant};

use tidegate_stream::consumer::{
    AckSubject, Advisory, Consumer, Delivery, Fetch, Identity, Lasts, Message, Ready, Record, Sink,
    Source, State,
};
use tidegate_stream::schema::config::ConsumerConfig;
use tidegate_stream::schema::sequence::StreamSeq;

/// A stream of equal messages, from which the consumer delivers.
struct Equal {
    last: u64,
    payload: Vec<u8>,
}

impl Source for Equal {
    fn first_seq(&self) -> StreamSeq {
        StreamSeq::FIRST
    }
    fn last_seq(&self) -> StreamSeq {
        StreamSeq::new(self.last)
    }
    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        (seq.get() <= self.last).then_some(seq)
    }
    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        (self.last + 1).saturating_sub(seq.get())
    }
    fn counts_in_parts(&self) -> bool {
        false
    }
    fn count_part(&mut self, from: StreamSeq, _: u64) -> (u64, Option<StreamSeq>) {
        (self.count_from(from), None)
    }
    fn lasts(&mut self, _: usize, _: usize, _: Option<StreamSeq>) -> Option<Lasts> {
        None
    }
    fn is_last(&mut self, seq: StreamSeq) -> bool {
        self.contains(seq)
    }
    fn contains(&self, seq: StreamSeq) -> bool {
        (1..=self.last).contains(&seq.get())
    }
    fn message(&mut self, seq: StreamSeq) -> Fetch<'_> {
        Fetch::Ready(Message {
            subject: b"orders.new",
            headers: b"",
            payload: &self.payload,
            time_us: 1_700_000_000_000_000 + seq.get(),
        })
    }
}

/// A connection that copies the messages that it gets, and keeps the subjects for acknowledgements.
#[derive(Default)]
struct Connection {
    out: Vec<u8>,
    acks: Vec<u8>,
}

impl Sink for Connection {
    fn ready(&mut self, _: &[u8], _: Option<&[u8]>) -> Ready {
        Ready::Yes
    }
    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready {
        for part in [
            delivery.subject,
            to,
            delivery.reply,
            delivery.headers,
            delivery.payload,
        ] {
            self.out.extend_from_slice(part);
        }
        self.acks.extend_from_slice(delivery.reply);
        self.acks.push(b'\n');
        Ready::Yes
    }
    fn status(&mut self, _: &[u8], _: &[u8], headers: &[u8]) {
        self.out.extend_from_slice(headers);
    }
    fn answer(&mut self, to: &[u8]) {
        self.out.extend_from_slice(to);
    }
    fn advisory(&mut self, _: &Advisory<'_>) {}
}

const BATCH: u64 = 500;
const MESSAGES: u64 = 500_000;

fn main() {
    let bare = median(|| {
        let (mut stream, mut net) = (stream(), Connection::default());
        for seq in 1..=MESSAGES {
            if let Fetch::Ready(m) = stream.message(StreamSeq::new(seq)) {
                let delivery = Delivery {
                    subject: m.subject,
                    reply: b"$JS.ACK.ORDERS.worker.1.100000.100000.1700000000000000000.400000",
                    headers: m.headers,
                    payload: m.payload,
                };
                net.message(b"_INBOX.abcdefghijklmnop.1", &delivery);
            }
            if seq % BATCH == 0 {
                std::hint::black_box(&net.out);
                net.out.clear();
                net.acks.clear();
            }
        }
    });
    println!("no consumer between: {bare:.0} ns a message");
    for (name, json) in [
        ("no acknowledgements", r#"{"ack_policy":"none"}"#),
        (
            "explicit, each acknowledged",
            r#"{"ack_policy":"explicit","ack_wait":30000000000}"#,
        ),
        (
            "all, the last of a batch acknowledged",
            r#"{"ack_policy":"all","ack_wait":30000000000}"#,
        ),
    ] {
        let config: ConsumerConfig = serde_json::from_str(json).expect("a configuration");
        let ns = median(|| consume(&config));
        println!(
            "{name}: {ns:.0} ns a message, {:.0} of them the consumer's",
            ns - bare
        );
    }
}

fn stream() -> Equal {
    Equal {
        last: MESSAGES,
        payload: vec![b'x'; 1024],
    }
}

/// Measures a consumer from which one receiver pulls everything; the example takes deltas when they are due.
fn consume(config: &ConsumerConfig) {
    let (mut stream, mut net) = (stream(), Connection::default());
    let identity = Identity {
        stream: "ORDERS",
        consumer: "worker",
        record: Record::State,
    };
    let mut now = 1_700_000_000_000_000;
    let mut state = State::starting_at(StreamSeq::FIRST);
    let mut consumer = Consumer::new(now, identity, config, &state, &mut stream);
    let mut acks = Vec::new();
    for _ in 0..MESSAGES / BATCH {
        now += 1000;
        consumer.handle_pull(
            now,
            b"_INBOX.abcdefghijklmnop.1",
            br#"{"batch":500,"expires":30000000000}"#,
            &mut net,
        );
        consumer.deliver(now, &mut 1000, &mut stream, &mut net);
        std::mem::swap(&mut acks, &mut net.acks);
        net.out.clear();
        net.acks.clear();
        let ack = |consumer: &mut Consumer, net: &mut Connection, subject: &[u8]| {
            let numbers = AckSubject::parse(subject)
                .expect("an acknowledgement")
                .numbers;
            consumer.handle_ack(now, &numbers, b"", b"+ACK", net);
        };
        let mut subjects = acks.split(|b| *b == b'\n').filter(|s| !s.is_empty());
        match config.ack_policy {
            // Such a consumer gets acknowledgements as answers to flow control, which this measurement does
            // not send.
            tidegate_stream::schema::config::AckPolicy::FlowControl
            | tidegate_stream::schema::config::AckPolicy::None => {}
            tidegate_stream::schema::config::AckPolicy::Explicit => {
                subjects.for_each(|s| ack(&mut consumer, &mut net, s));
            }
            tidegate_stream::schema::config::AckPolicy::All => {
                ack(
                    &mut consumer,
                    &mut net,
                    subjects.next_back().expect("a batch"),
                );
            }
        }
        if let Some(delta) = consumer.poll_delta(now) {
            state.apply(&delta).expect("its own delta");
            consumer.handle_delta_durable(&mut net);
        }
    }
    assert_eq!(consumer.info(now).delivered.stream_seq.get(), MESSAGES);
}

/// Returns the median of some rounds, in nanoseconds a message.
fn median(mut f: impl FnMut()) -> f64 {
    let mut rounds: Vec<Duration> = (0..7)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed()
        })
        .collect();
    rounds.sort();
    rounds[3].as_nanos() as f64 / MESSAGES as f64
}
