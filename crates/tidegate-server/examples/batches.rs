//! Measures the bookkeeping of a publish: its answer, a fast-ingest message, a message of an atomic batch.
//! The example uses one thread and one core; it parses, proposes and sends nothing.
//!
//!     cargo run --release -p tidegate-server --example batches

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidegate::Time;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::ingest::{
    Atomic, AtomicLimits, Fast, FastLimits, Incoming, Persisted, Staged, Verdict, batch_id, control,
};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

const MESSAGES: u64 = 1_000_000;
const PAYLOAD: &[u8] = &[b'x'; 128];

fn main() {
    let config = StreamConfig {
        allow_atomic: true,
        allow_batched: true,
        ..StreamConfig::default()
    };
    for _ in 0..3 {
        report("PubAck", pub_acks());
        report("fast-ingest message, 64 a turn", fast(&config));
        report("atomic message, 100 a batch", atomic(&config));
    }
}

fn report(what: &str, took: Duration) {
    println!("{what}: {} ns", took.as_nanos() / u128::from(MESSAGES));
}

fn pub_acks() -> Duration {
    let (ack, mut out) = (PubAck::new("ORDERS", None), Vec::new());
    let start = Instant::now();
    for seq in 0..MESSAGES {
        out.clear();
        ack.stored(&mut out, StreamSeq::new(seq));
        black_box(&out);
    }
    start.elapsed()
}

fn fast(config: &StreamConfig) -> Duration {
    let op = |seq: u64| u8::from(seq > 1);
    let replies: Vec<String> = (1..=MESSAGES)
        .map(|seq| format!("_INBOX.client.batch.500.fail.{seq}.{}.$FI", op(seq)))
        .collect();
    let (mut fast, mut answers) = (Fast::new(FastLimits::default()), Vec::new());
    let (mut tickets, mut stored) = (Vec::new(), 0);
    let start = Instant::now();
    for turn in replies.chunks(64) {
        let now = Time::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        for reply in turn {
            let message = Incoming {
                subject: b"orders.new",
                reply: reply.as_bytes(),
                headers: b"",
                payload: PAYLOAD,
            };
            let Some(control) = control(reply.as_bytes()) else {
                continue;
            };
            match fast.handle_message(
                now,
                StreamNumber::FIRST,
                config,
                control,
                &message,
                &mut answers,
            ) {
                Verdict::Store(ticket) => tickets.push(ticket),
                Verdict::Done => {}
            }
        }
        for ticket in tickets.drain(..) {
            stored += 1;
            fast.handle_outcome(
                now,
                ticket,
                Persisted::Stored(StreamSeq::new(stored)),
                &mut answers,
            );
        }
        if fast.poll_acks(now, &mut answers) {
            fast.handle_acks_sent(now, 1000);
        }
        black_box(&answers);
        answers.clear();
    }
    let took = start.elapsed();
    assert_eq!(stored, MESSAGES, "every message is to be stored");
    took
}

fn atomic(config: &StreamConfig) -> Duration {
    const LEN: u64 = 100;
    let headers: Vec<String> = (1..=LEN)
        .map(|seq| {
            let commit = if seq == LEN {
                "Nats-Batch-Commit: 1\r\n"
            } else {
                ""
            };
            format!(
                "NATS/1.0\r\nNats-Batch-Id: batch\r\nNats-Batch-Sequence: {seq}\r\n{commit}\r\n"
            )
        })
        .collect();
    let (mut atomic, mut committed) = (Atomic::new(AtomicLimits::default()), 0);
    let start = Instant::now();
    for _ in 0..MESSAGES / LEN {
        for block in &headers {
            let message = Incoming {
                subject: b"orders.new",
                reply: b"",
                headers: block.as_bytes(),
                payload: PAYLOAD,
            };
            let id = batch_id(message.headers).unwrap_or_default();
            if let Staged::Commit(batch) =
                atomic.handle_message(Time::ZERO, StreamNumber::FIRST, config, id, &message)
            {
                committed += u64::from(batch.len());
                black_box(&batch);
            }
        }
    }
    let took = start.elapsed();
    assert_eq!(committed, MESSAGES, "every message is to be committed");
    took
}
