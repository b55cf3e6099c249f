//! Fixes the bytes of the commands for consumers with the ack policy `flow_control`, and for streams that
//! take in messages by such consumers, in entries of one group, the state that they lead to, and its
//! contents.

use std::fs;

use serde_json::{Value, json};
use tidegate_stream::consumer::settled_up_to;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Command, Kind, Streams};

use super::commands::{ALL, World, applied, entries_text, state};
use super::hex::{self, Text};
use super::origins::{progress, take_in};
use super::{entry, fixture, listing};

/// Applies one command of each kind to a world.
pub(super) fn world() -> World {
    let mut world = World::new();
    let queue = json!({"name": "QUEUE", "subjects": ["queue.>"], "retention": "workqueue"});
    let queue = world.create(ALL, &queue, b"");
    let mut feeds = json!({"durable_name": "feeds", "name": "feeds", "ack_policy": "flow_control",
        "max_deliver": -1, "max_ack_pending": 1000, "flow_control": true,
        "deliver_subject": "to.sourced", "idle_heartbeat": 1_000_000_000_u64});
    world.consumer(queue, "feeds", &feeds, "create", &Value::Null);
    for payload in ["one", "two", "three"] {
        let publish = Command::new(Kind::Publish, queue, b"queue.a", payload.as_bytes());
        world.good(ALL, "publish", &publish);
    }
    let by =
        json!({"name": "QUEUE", "consumer": {"name": "feeds", "deliver_subject": "to.sourced"}});
    let sourced = json!({"name": "SOURCED", "subjects": ["own"], "sources": [by]});
    let sourced = world.create(ALL, &sourced, b"");
    let key = (sourced, "QUEUE:C=feeds > >");
    take_in(&mut world, key, None, progress(9, 2), &[1, 2]);
    let consumer = world.groups[ALL].get(queue).unwrap().consumer("feeds");
    let (two, run) = (StreamSeq::new(2), StreamSeq::FIRST..=StreamSeq::new(2));
    let delta = settled_up_to(consumer.unwrap().state(), two, &[run]);
    let settled = Command::new(Kind::of_delta(&delta), queue, b"feeds", &delta);
    world.good(ALL, "consumer delta that lists settled messages", &settled);
    feeds["pause_until"] = "2100-01-01T00:00:00Z".into();
    world.consumer(queue, "feeds", &feeds, "update", &Value::Null);
    let described = json!({"description": "gathers"});
    world.update(
        ALL,
        "update stream, its description",
        sourced,
        &described,
        b"",
    );
    let mirror = json!({"name": "MIRROR", "mirror": by});
    world.create(ALL, &mirror, b"");
    world
}

#[test]
fn entries_are_written_as_their_version_writes_them() {
    let path = fixture("entries", 1, "flow.hex");
    hex::check(&path, &entries_text(&world().samples));
}

#[test]
fn the_entries_lead_to_the_same_streams() {
    let [streams, ..] = applied("flow.hex");
    let bytes = state(&streams);
    assert_eq!(bytes[0], 6);
    let mut text = Text::new("The state that the entries of flow.hex lead to.");
    text.section("group 1");
    entry::state(&bytes, &mut text);
    hex::check(&fixture("state", 6, "1.hex"), &text.0);
    hex::check(&fixture("state", 6, "1.txt"), &listing::listing(&streams));
}

#[test]
fn a_state_of_version_6_is_read() {
    let text = fs::read_to_string(fixture("state", 6, "1.hex")).unwrap();
    let kept = hex::read(&text)[0].bytes();
    let streams = Streams::restore(&kept, AccountLimits::NONE).unwrap();
    streams.check_invariants();
    hex::check(&fixture("state", 6, "1.txt"), &listing::listing(&streams));
    let mut older = kept;
    older[0] = 5;
    assert!(Streams::restore(&older, AccountLimits::NONE).is_err());
}
