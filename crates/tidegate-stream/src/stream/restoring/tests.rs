//! Tests of streams that the parts of a backup fill: numbers, times, limits and consumers, and parts that
//! contradict the stream.

use bytes::Bytes;

use super::super::{AccountLimits, Command, Effect, Encoder, Kind, Outcome, Placement, Streams};
use super::*;
use crate::consumer::restored::{Progress, Unacked};
use crate::schema::config::{AckPolicy, ConsumerConfig, Retention};
use crate::schema::number::StreamNumber;

/// The time of the tests' entries, in microseconds since 1970, with which the tests compare the times of
/// messages.
const NOW: u64 = 1_700_000_000_000_000;

struct World {
    streams: Streams,
    effects: Vec<Effect>,
}

impl World {
    fn new() -> Self {
        Self {
            streams: Streams::new(AccountLimits::NONE),
            effects: Vec::new(),
        }
    }

    fn apply(&mut self, commands: &[Command<'_>]) -> Vec<Outcome> {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, NOW);
        for command in commands {
            encoder.command(command).unwrap();
        }
        let mut outcomes = Vec::new();
        let applied = self
            .streams
            .apply(64, &Bytes::from(entry), &mut outcomes, &mut self.effects);
        applied.unwrap();
        for stream in self.streams.iter() {
            stream.check_invariants();
        }
        outcomes
    }

    fn create(&mut self, config: &StreamConfig) -> Outcome {
        let payload = serde_json::to_vec(config).unwrap();
        let subject = Placement::Here.encode();
        let create = Command::new(
            Kind::CreateRestoring,
            StreamNumber::NONE,
            &subject,
            &payload,
        );
        self.apply(&[create]).remove(0)
    }

    fn part(&mut self, number: u64, part: &RestorePart) -> Outcome {
        let payload = part.encode(number);
        let id = StreamNumber::FIRST;
        let mut commands = vec![Command::new(Kind::Restore, id, b"", &payload)];
        commands.extend(part.publishes().map(|c| Command { stream: id, ..c }));
        let mut outcomes = self.apply(&commands);
        assert_eq!(outcomes.len(), commands.len());
        outcomes.remove(0)
    }

    fn stream(&self) -> &Stream {
        self.streams.get(StreamNumber::FIRST).unwrap()
    }
}

fn config() -> StreamConfig {
    StreamConfig {
        name: "S".into(),
        subjects: vec!["s.>".into()],
        allow_msg_ttl: true,
        num_replicas: 1,
        ..StreamConfig::default()
    }
}

fn message(seq: u64, time_us: u64, subject: &str, headers: &str) -> Message {
    Message {
        seq: StreamSeq::new(seq),
        time_us,
        subject: subject.into(),
        headers: headers.into(),
        payload: b"payload".to_vec(),
    }
}

fn add(part: &mut RestorePart, message: Message) {
    let Message {
        seq,
        time_us,
        subject,
        headers,
        payload,
    } = message;
    part.message(seq, time_us, subject, headers, payload);
}

fn end(first: u64, last: u64) -> RestoreEnd {
    RestoreEnd {
        created_us: NOW - 1_000_000,
        first_seq: StreamSeq::new(first),
        last_seq: StreamSeq::new(last),
        last_time_us: NOW - 5,
    }
}

#[test]
fn a_stream_comes_back_with_its_numbers_and_times() {
    let mut world = World::new();
    let id = StreamNumber::FIRST;
    assert_eq!(world.create(&config()), Outcome::Created { stream: id });
    assert!(world.stream().is_restoring());
    // While the backup fills the stream, no other stream gets its name and subjects, and no client changes
    // it.
    let taken = Outcome::Refused {
        stream: StreamNumber::NONE,
        error: ApiError::STREAM_NAME_EXISTS_RESTORE,
    };
    assert_eq!(world.create(&config()), taken);
    assert_eq!(
        world.streams.check_create(&config()),
        Err(ApiError::STREAM_NAME_EXISTS)
    );
    let publish = Command::new(Kind::Publish, id, b"s.x", b"");
    assert!(matches!(
        world.apply(&[publish])[0],
        Outcome::Refused { .. }
    ));

    let mut part = RestorePart::default();
    add(&mut part, message(5, NOW - 100, "s.a", ""));
    add(
        &mut part,
        message(7, NOW - 50, "s.b", "NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"),
    );
    add(
        &mut part,
        message(8, NOW - 50, "s.c", "NATS/1.0\r\nNats-TTL: 60\r\n\r\n"),
    );
    assert_eq!(world.part(0, &part), Outcome::Done);
    // The stream refuses a repeated part and a part out of turn, so that no message is there twice or
    // missing.
    assert!(matches!(world.part(0, &part), Outcome::Refused { .. }));
    assert!(matches!(world.part(2, &part), Outcome::Refused { .. }));
    let mut part = RestorePart::default();
    add(&mut part, message(10, NOW - 40, "s.a", ""));
    part.removed(StreamSeq::new(7));
    let created_us = 17;
    let settings = Box::new(ConsumerConfig {
        durable_name: "C".into(),
        name: "C".into(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: 30_000_000_000,
        num_replicas: 3,
        ..ConsumerConfig::default()
    });
    let progress = Progress {
        delivered: (4, 8),
        ack_floor: (2, 5),
        unacked: vec![Unacked {
            seq: 8,
            delivery: 4,
            time_ns: (NOW as i64 - 1_000_000) * 1000,
            count: 3,
        }],
    };
    part.consumer(&config(), ("C".into(), created_us), settings, &progress)
        .unwrap();
    part.end(end(5, 12));
    // The test restores the group from a snapshot between the parts, and the restoration must continue.
    let bytes: Vec<u8> = world.streams.snapshot().chunks().flatten().collect();
    world.streams = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
    assert_eq!(world.part(1, &part), Outcome::Done);
    let stream = world.stream();
    let state = stream.state();
    assert!(!stream.is_restoring());
    assert_eq!((state.messages, state.num_deleted), (3, 5));
    assert_eq!((state.first_seq.get(), state.last_seq.get()), (5, 12));
    assert_eq!(
        (state.first_time_us, state.last_time_us),
        (NOW - 100, NOW - 5)
    );
    assert_eq!(stream.created_us(), NOW - 1_000_000);
    let seqs = stream.deleted(10).into_iter().map(StreamSeq::get);
    assert_eq!(seqs.collect::<Vec<_>>(), [6, 7, 9, 11, 12]);
    let consumer = stream.consumer("C").unwrap();
    assert_eq!(
        (
            consumer.created_us(),
            consumer.config().nameless().num_replicas
        ),
        (17, 0)
    );
    let pending = consumer.state().pending().first().unwrap();
    assert_eq!(
        (pending.stream_seq.get(), pending.deliveries, pending.due_us),
        (8, 3, NOW + 29_000_000)
    );
    assert!(matches!(
        world.effects.last(),
        Some(Effect::StreamFilled { .. })
    ));
    // The restored stream continues as the old one would: it recognises the ids of recent messages, and gives
    // the next number.
    let headers = Some(&b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"[..]);
    let again = Command {
        headers,
        ..Command::new(Kind::Publish, id, b"s.b", b"")
    };
    let next = Command::new(Kind::Publish, id, b"s.b", b"");
    let outcomes = world.apply(&[again, next]);
    assert!(matches!(outcomes[0], Outcome::Duplicate { seq, .. } if seq.get() == 7));
    assert!(matches!(outcomes[1], Outcome::Stored { seq, .. } if seq.get() == 13));
}

#[test]
fn an_empty_stream_keeps_its_numbers_and_a_smaller_limit_counts() {
    let mut world = World::new();
    world.create(&config());
    let mut part = RestorePart::default();
    part.end(end(13, 12));
    assert_eq!(world.part(0, &part), Outcome::Done);
    let state = world.stream().state();
    assert_eq!((state.first_seq.get(), state.last_seq.get()), (13, 12));

    let mut world = World::new();
    world.create(&StreamConfig {
        max_msgs: 2,
        first_seq: StreamSeq::new(100),
        ..config()
    });
    let mut part = RestorePart::default();
    for seq in 1..=5 {
        add(&mut part, message(seq, NOW, "s.a", ""));
    }
    part.end(end(1, 5));
    assert_eq!(world.part(0, &part), Outcome::Done);
    let state = world.stream().state();
    assert_eq!((state.first_seq.get(), state.messages), (4, 2));
}

#[test]
fn a_stream_by_interest_keeps_what_its_consumers_need() {
    let mut world = World::new();
    let config = StreamConfig {
        retention: Retention::Interest,
        ..config()
    };
    world.create(&config);
    let mut part = RestorePart::default();
    let created_us = NOW;
    let settings = Box::new(ConsumerConfig {
        durable_name: "C".into(),
        name: "C".into(),
        ack_policy: AckPolicy::Explicit,
        ..ConsumerConfig::default()
    });
    let progress = Progress {
        delivered: (2, 2),
        ack_floor: (2, 2),
        unacked: Vec::new(),
    };
    part.consumer(&config, ("C".into(), created_us), settings, &progress)
        .unwrap();
    for seq in 1..=4 {
        add(&mut part, message(seq, NOW, "s.a", ""));
    }
    part.end(end(1, 4));
    assert_eq!(world.part(0, &part), Outcome::Done);
    // The sweep looks at a bounded number of messages with each command, so the test proposes several
    // commands.
    for _ in 0..4 {
        world.apply(&[Command::new(Kind::Expire, StreamNumber::FIRST, b"", b"")]);
    }
    let state = world.stream().state();
    assert_eq!((state.first_seq.get(), state.messages), (3, 2));
}

#[test]
fn a_part_that_contradicts_the_stream_is_refused() {
    let mut world = World::new();
    world.create(&config());
    let mut falling = RestorePart::default();
    add(&mut falling, message(2, NOW, "s.a", ""));
    add(&mut falling, message(2, NOW, "s.a", ""));
    assert!(matches!(world.part(0, &falling), Outcome::Refused { .. }));
    let mut ends = RestorePart::default();
    ends.end(end(14, 12));
    assert!(matches!(world.part(0, &ends), Outcome::Refused { .. }));
    for payload in [&b""[..], &[0; 12], &[0; 21], &[9; 40]] {
        let id = StreamNumber::FIRST;
        let outcomes = world.apply(&[Command::new(Kind::Restore, id, b"", payload)]);
        let done = payload.len() == 21;
        assert_eq!(outcomes[0] == Outcome::Done, done, "{payload:?}");
    }
}
