//! Measures how long a consumer takes to begin on a new leader, without the indexes of the node, and for a
//! message that it delivers, without the message's way to its receiver.

use tidegate_stream::consumer::{
    Advisory, Consumer, Delivery, Fetch, Identity, Lasts, Message, Progress, Ready, Record, Sink,
    Source, State,
};
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig};
use tidegate_stream::schema::sequence::StreamSeq;

use super::{Table, median, timed};

/// The number of messages that a pull asks for, over which the bench takes the mean time.
const N: usize = 1000;
/// The last message of the stream, which the consumer never reaches.
const LAST: StreamSeq = StreamSeq::new(1 << 40);

pub(super) fn measure(rounds: usize) -> Table {
    let config = ConsumerConfig {
        ack_policy: AckPolicy::None,
        max_deliver: -1,
        ..ConsumerConfig::default()
    };
    let identity = || Identity {
        stream: "S",
        consumer: "C",
        record: Record::None,
    };
    let state = State::starting_at(StreamSeq::FIRST);
    let new = || Consumer::new(1, identity(), &config, &state, &mut Endless);
    let take_up = median(rounds, N, || {
        timed(|| {
            for _ in 0..N {
                drop(std::hint::black_box(new()));
            }
        })
    });
    let mut consumer = new();
    let body = format!(r#"{{"batch":{N},"no_wait":true}}"#);
    let mut now = 1;
    let cost = median(rounds, N, || {
        now += 1;
        consumer.handle_pull(now, b"_INBOX.r", body.as_bytes(), &mut Nowhere);
        timed(|| {
            let mut budget = N;
            while budget > 0
                && consumer.deliver(now, &mut budget, &mut Endless, &mut Nowhere) == Progress::More
            {
            }
        })
    });
    vec![("TakeUp", take_up), ("Deliver", cost)]
}

/// A stream with messages without end, all of one subject.
struct Endless;

impl Source for Endless {
    fn first_seq(&self) -> StreamSeq {
        StreamSeq::FIRST
    }

    fn last_seq(&self) -> StreamSeq {
        LAST
    }

    fn next_at(&mut self, seq: StreamSeq) -> Option<StreamSeq> {
        Some(seq)
    }

    fn count_from(&mut self, seq: StreamSeq) -> u64 {
        LAST.saturating_distance(seq)
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
        seq == LAST
    }

    fn contains(&self, _: StreamSeq) -> bool {
        true
    }

    fn message(&mut self, _: StreamSeq) -> Fetch<'_> {
        Fetch::Ready(Message {
            subject: b"s.1",
            headers: b"",
            payload: b"payload",
            time_us: 1,
        })
    }
}

/// A receiver that takes everything at once.
struct Nowhere;

impl Sink for Nowhere {
    fn ready(&mut self, _: &[u8], _: Option<&[u8]>) -> Ready {
        Ready::Yes
    }

    fn message(&mut self, to: &[u8], delivery: &Delivery<'_>) -> Ready {
        std::hint::black_box((to, delivery.reply));
        Ready::Yes
    }

    fn status(&mut self, _: &[u8], _: &[u8], _: &[u8]) {}

    fn answer(&mut self, _: &[u8]) {}

    fn advisory(&mut self, _: &Advisory<'_>) {}
}
