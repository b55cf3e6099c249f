//! Implements, for the state machines of streams and consumers, the views of [`super::view`], from which the
//! API makes its answers.

use super::answer::Sequences;
use super::view::{ConsumerCounts, ConsumerView, StreamCounts, StreamView};
use crate::consumer::{Info, Position};
use crate::schema::config::{ConsumerConfig, StreamConfig};
use crate::schema::sequence::StreamSeq;
use crate::schema::timestamp::Timestamp;
use crate::stream::{Filter, SharedConfig, Stream, StreamConsumer};

impl StreamView for Stream {
    fn config(&self) -> &StreamConfig {
        self.config()
    }

    fn created_us(&self) -> u64 {
        self.created_us()
    }

    fn counts(&self) -> StreamCounts {
        let state = self.state();
        StreamCounts {
            messages: state.messages,
            bytes: state.bytes,
            // As clients of nats-server expect, they see 0 as the first message's number while the stream has
            // never stored a message.
            first_seq: if state.last_seq == StreamSeq::ZERO {
                StreamSeq::ZERO
            } else {
                state.first_seq
            },
            first_us: Some(state.first_time_us).filter(|_| state.messages > 0),
            last_seq: state.last_seq,
            last_us: Some(state.last_time_us).filter(|&us| us > 0),
            subjects: state.num_subjects,
            deleted: state.num_deleted,
            consumers: self.consumers_len(),
        }
    }

    fn deleted(&self, limit: usize) -> Vec<StreamSeq> {
        self.deleted(limit)
    }

    fn subjects(&self, pattern: &[u8], each: &mut dyn FnMut(&[u8], u64)) {
        let filter = Filter::new([pattern]);
        for (subject, count) in self.subjects(&filter) {
            each(subject, count);
        }
    }
}

/// The view of a consumer from which the API makes an answer: its configuration from the log, and the state
/// that only the node that serves the consumer knows.
#[derive(Clone, Copy, Debug)]
pub struct LiveConsumer<'a> {
    /// The name of the consumer, for the answer.
    pub name: &'a str,
    /// The consumer's configuration, as the log or the leader has it.
    pub config: &'a SharedConfig,
    /// The time at which the server created the consumer, in microseconds since the Unix epoch.
    pub created_us: u64,
    /// The state of the consumer's deliveries on the node that serves the consumer. No other node knows it.
    pub info: Info,
}

impl<'a> LiveConsumer<'a> {
    /// Creates the view of a consumer that the log keeps; `info` is the consumer's state on the node that
    /// serves it.
    #[must_use]
    pub fn new(name: &'a str, consumer: &'a StreamConsumer, info: Info) -> Self {
        Self {
            name,
            config: consumer.config(),
            created_us: consumer.created_us(),
            info,
        }
    }
}

impl ConsumerView for LiveConsumer<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn config(&self) -> ConsumerConfig {
        self.config.full(self.name)
    }

    fn created_us(&self) -> u64 {
        self.created_us
    }

    fn counts(&self) -> ConsumerCounts {
        let sequences = |at: Position, active: Option<u64>| Sequences {
            consumer_seq: at.consumer_seq,
            stream_seq: at.stream_seq,
            last_active: active.map(Timestamp::from_micros),
        };
        ConsumerCounts {
            delivered: sequences(self.info.delivered, self.info.last_delivery_us),
            ack_floor: sequences(self.info.ack_floor, self.info.last_ack_us),
            ack_pending: self.info.num_ack_pending,
            redelivered: self.info.num_redelivered,
            waiting: self.info.num_waiting,
            pending: self.info.num_pending,
            push_bound: self.info.push_bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::schema::number::StreamNumber;
    use crate::schema::sequence::nth;
    use crate::stream::{AccountLimits, Command, Encoder, Kind, LastPerSubject, Lasts, Streams};

    /// Creates a stream `S` of `s.>`, and publishes a message of each of these subjects to it, a second
    /// apart, so that tests know the times.
    fn streams(subjects: &[&str]) -> Streams {
        let mut streams = Streams::new(AccountLimits::NONE);
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        let mut apply = |at: u64, write: &dyn Fn(&mut Encoder<'_, Vec<u8>>)| {
            let mut entry = Vec::new();
            write(&mut Encoder::begin(&mut entry, at * 1_000_000));
            streams
                .apply(at * 64, &Bytes::from(entry), &mut out, &mut effects)
                .unwrap();
        };
        let config = br#"{"name":"S","subjects":["s.>"]}"#;
        apply(0, &|entry| {
            let command = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config);
            entry.command(&command).unwrap();
        });
        for (at, subject) in (1..).zip(subjects) {
            apply(at, &|entry| {
                entry
                    .publish(StreamNumber::FIRST, subject.as_bytes(), None, b"x")
                    .unwrap();
            });
        }
        streams
    }

    #[test]
    fn counts() {
        let empty = streams(&[]);
        let counts = empty.get(StreamNumber::FIRST).unwrap().counts();
        assert_eq!(counts, StreamCounts::default());
        let some = streams(&["s.a", "s.b", "s.a"]);
        let stream = some.get(StreamNumber::FIRST).unwrap();
        let counts = stream.counts();
        assert_eq!(
            (counts.messages, counts.first_seq, counts.last_seq),
            (3, nth(1), nth(3))
        );
        assert_eq!(
            (counts.first_us, counts.last_us),
            (Some(1_000_000), Some(3_000_000))
        );
        assert_eq!(
            (counts.subjects, counts.deleted, counts.consumers),
            (2, 0, 0)
        );
        let mut subjects = Vec::new();
        StreamView::subjects(stream, b"s.*", &mut |subject, count| {
            subjects.push((subject.to_vec(), count));
        });
        subjects.sort();
        assert_eq!(subjects, [(b"s.a".to_vec(), 2), (b"s.b".to_vec(), 1)]);
    }

    #[test]
    fn messages() {
        let streams = streams(&["s.a", "s.b", "s.a", "s.c"]);
        let stream = streams.get(StreamNumber::FIRST).unwrap();
        assert_eq!((stream.first_seq(), stream.last_seq()), (nth(1), nth(4)));
        assert!(stream.contains(nth(4)) && !stream.contains(nth(5)));
        let next = |from, pattern: &str| {
            let filter = Filter::new([pattern]);
            stream.next_part(from, &filter, &mut 100)
        };
        assert_eq!(next(nth(2), "s.a"), Ok(Some(nth(3))));
        assert_eq!(next(nth(2), "s.*"), Ok(Some(nth(2))));
        assert_eq!(next(nth(5), ">"), Ok(None));
        let count = stream.count_within(nth(2), &Filter::new(["s.a"]), &mut 100);
        assert_eq!(count, (1, None));
        assert_eq!(stream.last_of(b"s.a"), Some(nth(3)));
        assert_eq!(stream.seq_at_time(2_500_000), nth(3));
        assert_eq!(stream.seq_at_time(9_000_000), nth(5));
    }

    #[test]
    fn last_of_each_subject() {
        let streams = streams(&["s.a", "s.b", "s.a", "s.c"]);
        let stream = streams.get(StreamNumber::FIRST).unwrap();
        let last = |up_to, max| {
            let mut lasts = LastPerSubject::new(["s.>"], Some(up_to), max);
            lasts.go_on(stream, &mut 100).unwrap()
        };
        let found = |seqs: Vec<StreamSeq>, up_to| Lasts::Found { seqs, up_to };
        let all = vec![nth(2), nth(3), nth(4)];
        assert_eq!(last(nth(4), 3), found(all, nth(4)));
        assert_eq!(last(nth(4), 2), Lasts::TooMany);
        assert_eq!(last(nth(2), 2), found(vec![nth(1), nth(2)], nth(2)));
        assert_eq!(last(nth(2), 1), Lasts::TooMany);
        assert_eq!(last(nth(0), 1), found(vec![], nth(0)));
    }
}
