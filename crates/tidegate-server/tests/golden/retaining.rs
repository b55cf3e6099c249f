//! Fixes the bytes of the commands for streams that keep messages for their consumers, in entries of one
//! group, the state that they lead to, and its contents.

use std::fs;

use serde_json::{Value, json};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{AccountLimits, Command, Kind, Streams};

use super::commands::{ALL, World, applied, entries_text, state};
use super::hex::{self, Text};
use super::{entry, fixture, listing};

/// Encodes a consumer's delta as consumer/delta.rs describes it: positions, one run of deliveries, no removed
/// messages, then the runs of settled messages and the runs of messages that the consumer has given up. All
/// numbers are below 128.
fn delta(positions: [u8; 4], run: &[u8], settled: &[(u8, u8)], given_up: &[(u8, u8)]) -> Vec<u8> {
    let mut bytes = vec![2];
    bytes.extend(positions);
    bytes.push(u8::from(!run.is_empty()));
    bytes.extend(run);
    bytes.push(0);
    for runs in [settled, given_up] {
        bytes.push(runs.len() as u8);
        runs.iter()
            .for_each(|(gap, len)| bytes.extend([*gap, *len]));
    }
    bytes
}

fn publish(world: &mut World, stream: StreamNumber, subjects: &[&str]) {
    for subject in subjects {
        let command = Command::new(Kind::Publish, stream, subject.as_bytes(), b"work");
        world.good(ALL, &format!("publish {subject}"), &command);
    }
}

fn settle(world: &mut World, stream: StreamNumber, name: &str, consumer: &str, bytes: &[u8]) {
    let command = Command::new(Kind::SettlingDelta, stream, consumer.as_bytes(), bytes);
    world.good(ALL, &format!("consumer delta, {name}"), &command);
}

/// Applies one command of each kind, and other commands with effects that depend on the retention.
pub(super) fn world() -> World {
    let mut world = World::new();
    let explicit = |name: &str, filter: &str| json!({"durable_name": name, "name": name, "ack_policy": "explicit", "filter_subject": filter});
    let queue = json!({"name": "QUEUE", "subjects": ["queue.*"], "retention": "workqueue"});
    let queue = world.create(ALL, &queue, b"");
    publish(
        &mut world,
        queue,
        &["queue.a", "queue.b", "queue.a", "queue.a"],
    );
    world.consumer(
        queue,
        "a",
        &explicit("a", "queue.a"),
        "create",
        &Value::Null,
    );
    let delivered = delta([1, 1, 0, 0], &[1, 1, 1, 0, 1], &[], &[]);
    settle(&mut world, queue, "one delivered", "a", &delivered);
    let delivered = delta([3, 4, 0, 0], &[3, 2, 2, 0, 1], &[], &[]);
    settle(&mut world, queue, "two delivered", "a", &delivered);
    let settled = delta([3, 4, 2, 3], &[], &[(1, 1)], &[(3, 1)]);
    settle(
        &mut world,
        queue,
        "one settled, one given up",
        "a",
        &settled,
    );
    world.update(ALL, "update stream", queue, &json!({"max_msgs": 50}), b"");

    let interest = json!({"name": "INTEREST", "subjects": ["interest.*"], "retention": "interest"});
    let interest = world.create(ALL, &interest, b"");
    publish(&mut world, interest, &["interest.a"]);
    world.consumer(
        interest,
        "all",
        &explicit("all", ""),
        "create",
        &Value::Null,
    );
    world.consumer(
        interest,
        "a",
        &explicit("a", "interest.a"),
        "create",
        &Value::Null,
    );
    publish(
        &mut world,
        interest,
        &["interest.a", "interest.b", "interest.a"],
    );
    let delivered = delta([3, 4, 3, 4], &[], &[(2, 3)], &[]);
    settle(&mut world, interest, "three settled", "all", &delivered);
    let b = explicit("a", "interest.b");
    world.consumer(interest, "a", &b, "update", &Value::Null);
    publish(&mut world, interest, &["interest.b", "interest.c"]);
    let delete = Command::new(Kind::DeleteConsumer, interest, b"all", b"");
    world.good(ALL, "delete consumer", &delete);
    let reset = Command::new(
        Kind::ResetConsumer,
        interest,
        b"a",
        &[7, 0, 0, 0, 0, 0, 0, 0],
    );
    world.good(ALL, "reset consumer", &reset);
    publish(&mut world, interest, &["interest.b"]);
    let limits = json!({"retention": "limits"});
    world.update(ALL, "update stream, by limits", interest, &limits, b"");
    let back = json!({"retention": "interest"});
    world.update(ALL, "update stream, by interest", interest, &back, b"");
    let any = explicit("a", "interest.*");
    world.consumer(interest, "a", &any, "update", &Value::Null);
    world
}

#[test]
fn entries_are_written_as_their_version_writes_them() {
    let path = fixture("entries", 1, "retaining.hex");
    hex::check(&path, &entries_text(&world().samples));
}

#[test]
fn the_entries_lead_to_the_same_streams() {
    let [streams, ..] = applied("retaining.hex");
    let bytes = state(&streams);
    assert_eq!(bytes[0], 4);
    let mut text = Text::new("The state that the entries of retaining.hex lead to.");
    text.section("group 1");
    entry::state(&bytes, &mut text);
    hex::check(&fixture("state", 4, "1.hex"), &text.0);
    hex::check(&fixture("state", 4, "1.txt"), &listing::listing(&streams));
}

#[test]
fn a_state_of_version_4_is_read() {
    let text = fs::read_to_string(fixture("state", 4, "1.hex")).unwrap();
    let kept = hex::read(&text)[0].bytes();
    let streams = Streams::restore(&kept, AccountLimits::NONE).unwrap();
    streams.check_invariants();
    hex::check(&fixture("state", 4, "1.txt"), &listing::listing(&streams));
    let mut older = kept;
    older[0] = 3;
    assert!(Streams::restore(&older, AccountLimits::NONE).is_err());
}
