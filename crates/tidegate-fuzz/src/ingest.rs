//! A fuzz target for the publishing of message batches: atomic ones, and fast ones with flow
//! acknowledgements. The target sends any messages, and lets the stream decide any number of them at a time.
//! Acknowledgements must name only decided messages and never go back. After the end of the stream, no state
//! of a batch may remain.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tidegate::Time;
use tidegate_stream::ingest::{
    Atomic, AtomicLimits, Fast, FastLimits, Incoming, Persisted, Verdict, What, batch_id, control,
};
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let limits = AtomicLimits {
        messages_max: 3,
        per_stream_max: 2,
        bytes_max: 4096,
        ..AtomicLimits::default()
    };
    let mut atomic = Atomic::new(limits);
    let mut fast = Fast::new(FastLimits {
        per_stream_max: 3,
        held_bytes_max: 1024,
        ..FastLimits::default()
    });
    let config = StreamConfig {
        allow_atomic: true,
        allow_batched: true,
        ..StreamConfig::default()
    };
    let (mut log, mut answers, mut gone) = (VecDeque::new(), Vec::new(), Vec::new());
    let (mut acked, mut stored) = (HashMap::new(), 0);
    let mut now = Time::from_nanos(0);
    for line in data.split(|b| *b == 0) {
        let Some((&first, reply)) = line.split_first() else {
            continue;
        };
        now = now + Duration::from_millis(u64::from(first) * 20);
        let headers: &[u8] = if first % 3 == 0 { reply } else { b"" };
        let message = Incoming {
            subject: b"s",
            reply,
            headers,
            payload: b"x",
        };
        if let Some(id) = batch_id(headers) {
            atomic.handle_message(now, StreamNumber::FIRST, &config, id, &message);
        } else if let Some(control) = control(reply)
            && let Verdict::Store(ticket) = fast.handle_message(
                now,
                StreamNumber::FIRST,
                &config,
                control,
                &message,
                &mut answers,
            )
        {
            log.push_back(ticket);
        }
        for _ in 0..first % 4 {
            let Some(ticket) = log.pop_front() else { break };
            stored += 1;
            let outcome = match first % 7 {
                0 => Persisted::Refused(&ApiError::SUBJECT_OVERLAP),
                1 => Persisted::Duplicate(StreamSeq::new(stored)),
                _ => Persisted::Stored(StreamSeq::new(stored)),
            };
            fast.handle_outcome(now, ticket, outcome, &mut answers);
            while let Some(held) = fast.poll_released() {
                log.push_back(held.ticket);
            }
        }
        if fast.poll_acks(now, &mut answers) {
            fast.handle_acks_sent(now, u64::from(first) * 1000);
        }
        fast.handle_timeouts(now);
        atomic.handle_timeouts(now, &mut gone);
        for answer in answers.drain(..) {
            let id = control(&answer.to)
                .and_then(Result::ok)
                .map(|c| c.id.to_vec());
            match answer.what {
                What::Flow { seq: 0, .. } => drop(acked.insert(id, 0)),
                What::Flow { seq, msgs } => {
                    let before = acked.insert(id, seq).unwrap_or(0);
                    assert!(seq >= before && msgs > 0);
                }
                _ => {}
            }
        }
    }
    fast.handle_stream_gone(StreamNumber::FIRST);
    atomic.handle_stream_gone(StreamNumber::FIRST);
    assert_eq!(
        (fast.open_count(), atomic.open(), atomic.bytes()),
        (0, 0, 0)
    );
}
