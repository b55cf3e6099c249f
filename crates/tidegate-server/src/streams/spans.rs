//! Follows single publishes from the socket to the acknowledgement, for programs that export traces. Pure.
//!
//! A publish is followed if its headers name a trace that the client records, or if it is the next one by
//! count. Everything is off by default; a publish then costs one comparison more. The event loop takes the
//! spans of a turn once it has written the acknowledgements ([`crate::event_loop::spans`]).

use tidegate::Time;
use tidegate_nats::headers::{TraceParent, trace_parent};
use tidegate_nats::parse::Publish;
use tidegate_stream::stream::Outcome;

use crate::config::SpanSampling;

/// The most finished spans that wait for the event loop, which takes them each turn. Further ones are dropped
/// and counted.
const ENDED_MAX: usize = 256;

/// The result of a publish that the server has followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// The stream has stored the message under this number.
    Stored(u64),
    /// The stream has the message already, under this number.
    Duplicate(u64),
    /// The stream has refused the message, for the reason that the publisher reads.
    Refused(String),
}

/// The steps of one publish, by the event loop's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishSpan {
    /// The place in a trace that the message names; `None` for a publish that begins a trace.
    pub parent: Option<TraceParent>,
    /// The name of the stream; empty if the stream was deleted meanwhile.
    pub stream: String,
    /// The subject to which the client published.
    pub subject: Box<[u8]>,
    /// The bytes of headers and payload.
    pub bytes: usize,
    /// The time at which the event loop took the message from its connection.
    pub received: Time,
    /// The time at which the log accepted the entry with the message, and (`durable`) the time at which the
    /// loop learned that a quorum has synced it, and applied it. For a stream in memory both are the time at
    /// which the stream stored the message.
    pub proposed: Time,
    /// The time at which the entry was durable; see `proposed`.
    pub durable: Time,
    /// The number of commands in the entry: the batch in which the message travelled.
    pub commands: usize,
    /// The bytes of the entry.
    pub entry_bytes: usize,
    /// The result, which the publisher got as its acknowledgement.
    pub result: Published,
}

/// The facts about an entry that its spans show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfEntry {
    pub(super) commands: usize,
    pub(super) bytes: usize,
    /// The time at which the log accepted the entry; [`Time::ZERO`] before that, and for streams in memory.
    pub(super) proposed: Time,
}

/// A publish that the server follows, until its outcome is known.
#[derive(Debug)]
pub(super) struct Begun {
    parent: Option<TraceParent>,
    subject: Box<[u8]>,
    bytes: usize,
    received: Time,
}

/// The publishes of one group that this node follows.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// `None` follows nothing.
    sampling: Option<SpanSampling>,
    /// The publishes without a trace since the server last followed such a publish.
    passed: u64,
    ended: Vec<PublishSpan>,
    dropped: u64,
}

impl Spans {
    pub(super) fn new(sampling: Option<SpanSampling>) -> Self {
        Self {
            sampling,
            ..Self::default()
        }
    }

    /// Begins to follow a publish if the rule chooses it.
    pub(super) fn begin(&mut self, now: Time, message: &Publish<'_>) -> Option<Box<Begun>> {
        let sampling = self.sampling?;
        let parent = message.headers.and_then(trace_parent);
        let is_chosen = match (&parent, sampling.one_in) {
            (Some(parent), _) => parent.is_sampled,
            (None, None) => false,
            (None, Some(one_in)) => {
                self.passed += 1;
                let is_next = self.passed >= one_in.get();
                if is_next {
                    self.passed = 0;
                }
                is_next
            }
        };
        is_chosen.then(|| {
            Box::new(Begun {
                parent,
                subject: message.subject.into(),
                bytes: message.size(),
                received: now,
            })
        })
    }

    /// Ends a span with the outcome of its publish in the entry. `stream` is the name of the stream.
    pub(super) fn end(
        &mut self,
        now: Time,
        begun: Begun,
        entry: OfEntry,
        stream: &str,
        outcome: &Outcome,
    ) {
        let result = match outcome {
            Outcome::Stored { seq, .. } => Published::Stored(seq.get()),
            Outcome::Duplicate { seq, .. } => Published::Duplicate(seq.get()),
            Outcome::Refused { error, .. } => Published::Refused(error.to_string()),
            // A publish has no other outcome.
            _ => return,
        };
        if self.ended.len() >= ENDED_MAX {
            self.dropped += 1;
            return;
        }
        self.ended.push(PublishSpan {
            parent: begun.parent,
            stream: stream.to_owned(),
            subject: begun.subject,
            bytes: begun.bytes,
            received: begun.received,
            proposed: match entry.proposed == Time::ZERO {
                true => now,
                false => entry.proposed,
            },
            // The loop may propose an entry and see it synced in one turn, which began before both.
            durable: now.max(entry.proposed),
            commands: entry.commands,
            entry_bytes: entry.bytes,
            result,
        });
    }

    /// Takes the finished spans, and the number of those dropped since the last call.
    pub(super) fn take(&mut self) -> (Vec<PublishSpan>, u64) {
        let ended = std::mem::take(&mut self.ended);
        (ended, std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use tidegate_stream::schema::number::StreamNumber;
    use tidegate_stream::schema::sequence::StreamSeq;

    const NOW: Time = Time::from_nanos(7);

    fn message(headers: Option<&[u8]>) -> Publish<'_> {
        Publish {
            subject: b"a",
            reply: Some(b"r"),
            headers,
            payload: b"xyz",
        }
    }

    fn sampling(one_in: u64) -> Option<SpanSampling> {
        let one_in = NonZeroU64::new(one_in);
        Some(SpanSampling { one_in })
    }

    #[test]
    fn the_rule_chooses_by_trace_or_by_count() {
        let header = |flags: &str| {
            let id = "1".repeat(32);
            format!(
                "NATS/1.0\r\ntraceparent: 00-{id}-{}-{flags}\r\n\r\n",
                &id[..16]
            )
        };
        let (recorded, other) = (header("01"), header("00"));
        let mut off = Spans::new(None);
        assert!(
            off.begin(NOW, &message(Some(recorded.as_bytes())))
                .is_none()
        );
        let mut spans = Spans::new(sampling(0));
        assert!(
            spans
                .begin(NOW, &message(Some(recorded.as_bytes())))
                .is_some()
        );
        assert!(spans.begin(NOW, &message(Some(other.as_bytes()))).is_none());
        assert!(spans.begin(NOW, &message(None)).is_none());
        let mut spans = Spans::new(sampling(3));
        let chosen = (0..7).map(|_| spans.begin(NOW, &message(None)).is_some());
        let chosen: Vec<bool> = chosen.collect();
        assert_eq!(chosen, [false, false, true, false, false, true, false]);
    }

    #[test]
    fn spans_that_nothing_takes_are_dropped_and_counted() {
        let mut spans = Spans::new(sampling(1));
        let stored = Outcome::Stored {
            stream: StreamNumber::FIRST,
            seq: StreamSeq::new(9),
        };
        for _ in 0..ENDED_MAX + 5 {
            let begun = spans.begin(NOW, &message(None)).unwrap();
            spans.end(NOW, *begun, OfEntry::default(), "S", &stored);
        }
        let (ended, dropped) = spans.take();
        assert_eq!((ended.len(), dropped), (ENDED_MAX, 5));
        assert_eq!(ended[0].result, Published::Stored(9));
        assert_eq!((ended[0].bytes, ended[0].proposed), (3, NOW));
        assert_eq!(spans.take(), (Vec::new(), 0));
    }
}
