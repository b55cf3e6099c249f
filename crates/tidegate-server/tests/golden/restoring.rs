//! Fixes the bytes of the commands that restore a stream from a backup, in entries of one group, and the
//! state that they lead to.

use serde_json::json;
use tidegate_stream::backup::{Progress, Unacked};
use tidegate_stream::schema::config::{AckPolicy, ConsumerConfig, StreamConfig};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Kind, RestoreEnd, RestorePart};

use super::commands::{ALL, World, applied, entries_text};
use super::{fixture, hex, listing};

fn message(part: &mut RestorePart, seq: u64, headers: &str) {
    let time_us = 1_600_000_000_000_000 + seq * 1000;
    let subject = b"back.a".to_vec();
    part.message(
        StreamSeq::new(seq),
        time_us,
        subject,
        headers.into(),
        b"payload".to_vec(),
    );
}

fn add(world: &mut World, name: &str, stream: StreamNumber, number: u64, part: &RestorePart) {
    let payload = part.encode(number);
    let mut commands = vec![Command::new(Kind::Restore, stream, b"", &payload)];
    commands.extend(part.publishes().map(|c| Command { stream, ..c }));
    world.apply(ALL, name, &commands);
}

/// Applies the commands that restore a stream in three parts, of which one comes twice.
pub(super) fn world() -> World {
    let mut world = World::new();
    let config = json!({"name": "BACK", "subjects": ["back.*"], "num_replicas": 1});
    let config: StreamConfig = serde_json::from_value(config).unwrap();
    let config = world.groups[ALL].check_restore(&config).unwrap();
    let payload = serde_json::to_vec(&config).unwrap();
    let create = Command::new(Kind::CreateRestoring, StreamNumber::NONE, b"", &payload);
    world.good(ALL, "create stream BACK", &create);
    let stream = world.groups[ALL].by_name("BACK").unwrap();
    let mut part = RestorePart::default();
    let id = "NATS/1.0\r\nNats-Msg-Id: id\r\n\r\n";
    message(&mut part, 5, "");
    message(&mut part, 7, id);
    add(&mut world, "part 0", stream, 0, &part);
    add(&mut world, "part 0 again", stream, 0, &part);
    let mut part = RestorePart::default();
    message(&mut part, 8, "");
    part.removed(StreamSeq::new(7));
    let settings = Box::new(ConsumerConfig {
        durable_name: "c".to_owned(),
        name: "c".to_owned(),
        ack_policy: AckPolicy::Explicit,
        ack_wait: 30_000_000_000,
        ..ConsumerConfig::default()
    });
    let progress = Progress {
        delivered: (3, 8),
        ack_floor: (1, 5),
        unacked: vec![Unacked {
            seq: 8,
            delivery: 3,
            time_ns: 1_600_000_000_000_000_000,
            count: 2,
        }],
    };
    let made = ("c".to_owned(), 1_600_000_000_000_000);
    part.consumer(&config, made, settings, &progress).unwrap();
    add(&mut world, "part 1", stream, 1, &part);
    let mut part = RestorePart::default();
    part.end(RestoreEnd {
        created_us: 1_500_000_000_000_000,
        first_seq: StreamSeq::new(5),
        last_seq: StreamSeq::new(9),
        last_time_us: 1_600_000_000_100_000,
    });
    add(&mut world, "part 2, the last one", stream, 2, &part);
    let next = Command::new(Kind::Publish, stream, b"back.b", b"next");
    world.good(ALL, "publish", &next);
    world
}

#[test]
fn entries_are_written_as_their_version_writes_them() {
    let path = fixture("entries", 1, "restoring.hex");
    hex::check(&path, &entries_text(&world().samples));
}

#[test]
fn the_entries_lead_to_the_same_streams() {
    let [streams, ..] = applied("restoring.hex");
    hex::check(
        &fixture("state", 4, "restoring.txt"),
        &listing::listing(&streams),
    );
}
