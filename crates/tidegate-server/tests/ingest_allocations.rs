//! Checks that the path of a message of a fast-ingest batch allocates nothing from its arrival to its
//! storage. Only answers allocate, and one answer covers many messages.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::alloc::System;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::Time;
use tidegate_stream::api::puback::PubAck;
use tidegate_stream::ingest::{Fast, FastLimits, Incoming, Persisted, Verdict, What, control};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The two checks are one test, because the allocator counts for the whole process.
#[test]
fn nothing_is_allocated_for_a_message_or_its_acknowledgement() {
    none_a_message();
    none_an_ack();
}

fn none_a_message() {
    const TURN: u64 = 64;
    let config = StreamConfig {
        allow_batched: true,
        ..StreamConfig::default()
    };
    let replies: Vec<String> = (1..=20_000)
        .map(|seq| {
            format!(
                "_INBOX.client.batch.1000.fail.{seq}.{}.$FI",
                u8::from(seq > 1)
            )
        })
        .collect();
    let (mut fast, mut answers) = (Fast::new(FastLimits::default()), Vec::with_capacity(100));
    let (mut now, mut seq, mut acks) = (Time::ZERO, 0, 0);
    let mut tickets = Vec::with_capacity(100);
    let region = Region::new(ALLOCATOR);
    for turn in replies.chunks(usize::try_from(TURN).unwrap()) {
        now = now + Duration::from_micros(100);
        for reply in turn {
            let message = Incoming {
                subject: b"s",
                reply: reply.as_bytes(),
                headers: b"",
                payload: b"0123456789abcdef",
            };
            let control = control(reply.as_bytes()).unwrap();
            match fast.handle_message(
                now,
                StreamNumber::FIRST,
                &config,
                control,
                &message,
                &mut answers,
            ) {
                Verdict::Store(ticket) => tickets.push(ticket),
                Verdict::Done => panic!("{reply} is not to be stored"),
            }
        }
        for ticket in tickets.drain(..) {
            seq += 1;
            fast.handle_outcome(
                now,
                ticket,
                Persisted::Stored(StreamSeq::new(seq)),
                &mut answers,
            );
        }
        if fast.poll_acks(now, &mut answers) {
            fast.handle_acks_sent(now, 2_000);
        }
        for answer in answers.drain(..) {
            assert!(matches!(answer.what, What::Flow { .. }));
            acks += 1;
        }
    }
    let change = region.change();
    println!(
        "{acks} acknowledgements of {seq} messages, {} allocations",
        change.allocations
    );
    assert!(acks > 1 && acks < seq / 10, "{acks}");
    // The node allocates once for an answer's subject, and a few times for the batch itself.
    assert!(change.allocations < acks as usize + 100, "{change:?}");
}

fn none_an_ack() {
    let (ack, mut out) = (PubAck::new("S", None), Vec::with_capacity(100));
    let region = Region::new(ALLOCATOR);
    for seq in 0..1000 {
        out.clear();
        ack.stored(&mut out, StreamSeq::new(seq));
        ack.duplicate(&mut out, StreamSeq::new(seq));
    }
    assert_eq!(region.change().allocations, 0);
}
