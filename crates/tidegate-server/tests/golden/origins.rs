//! Fixes the bytes of the commands for streams that take in messages from other streams, in entries of one
//! group, the state that they lead to, and its contents.

use std::fs;

use serde_json::json;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    AccountLimits, Command, Intake, Kind, Origin, Outcome, Progress, Row, Streams,
};

use super::commands::{ALL, World, applied, entries_text, state};
use super::hex::{self, Text};
use super::{entry, fixture, listing};

pub(super) fn progress(number: u32, seq: u64) -> Progress {
    Progress {
        origin: Origin {
            number: DirectoryNumber::new(number),
            created_us: 1_700_000_000_000_000,
        },
        seq: StreamSeq::new(seq),
    }
}

/// Applies an intake of messages with these sequences, up to sequence `to` of the origin.
pub(super) fn take_in(
    world: &mut World,
    (stream, key): (StreamNumber, &str),
    before: Option<Progress>,
    after: Progress,
    numbers: &[u64],
) {
    let row = |seq: &u64| Row {
        seq: StreamSeq::new(*seq),
        time_us: 1_700_000_001_000_000 + seq,
    };
    let intake = Intake {
        before,
        after,
        rows: numbers.iter().map(row).collect(),
    };
    let payload = intake.encode();
    let mut commands = vec![Command::new(Kind::TakeIn, stream, key.as_bytes(), &payload)];
    let message = Command {
        headers: Some(b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n"),
        ..Command::new(Kind::Publish, stream, b"origin.a", b"taken in")
    };
    commands.extend(numbers.iter().map(|_| message));
    let name = format!("take in, {key}, to {}", after.seq);
    let outcomes = world.apply(ALL, &name, &commands);
    assert!(outcomes.iter().all(|o| *o == Outcome::Done), "{outcomes:?}");
}

/// Applies one command of each kind to a world.
pub(super) fn world() -> World {
    let mut world = World::new();
    let mirror =
        json!({"name": "MIRROR", "mirror": {"name": "ORIGIN", "filter_subject": "origin.*"}});
    let mirror = world.create(ALL, &mirror, b"");
    let key = (mirror, "ORIGIN origin.* >");
    take_in(&mut world, key, None, progress(9, 0), &[]);
    take_in(
        &mut world,
        key,
        Some(progress(9, 0)),
        progress(9, 12),
        &[3, 4, 9],
    );
    let sourced = json!({"name": "SOURCED", "subjects": ["own"],
        "sources": [{"name": "ORIGIN"}, {"name": "OTHER", "opt_start_seq": 5}]});
    let sourced = world.create(ALL, &sourced, b"");
    let (one, other) = ((sourced, "ORIGIN > >"), (sourced, "OTHER > >"));
    take_in(&mut world, one, None, progress(9, 4), &[3, 4]);
    take_in(&mut world, other, None, progress(11, 5), &[5]);
    let publish = Command::new(Kind::Publish, sourced, b"own", b"its own");
    world.good(ALL, "publish", &publish);
    take_in(&mut world, one, Some(progress(9, 4)), progress(12, 1), &[1]);
    let fewer = json!({"sources": [{"name": "ORIGIN"}]});
    world.update(ALL, "update stream, a source less", sourced, &fewer, b"");
    world
}

#[test]
fn entries_are_written_as_their_version_writes_them() {
    let path = fixture("entries", 1, "origins.hex");
    hex::check(&path, &entries_text(&world().samples));
}

#[test]
fn the_entries_lead_to_the_same_streams() {
    let [streams, ..] = applied("origins.hex");
    let bytes = state(&streams);
    assert_eq!(bytes[0], 5);
    let mut text = Text::new("The state that the entries of origins.hex lead to.");
    text.section("group 1");
    entry::state(&bytes, &mut text);
    hex::check(&fixture("state", 5, "1.hex"), &text.0);
    hex::check(&fixture("state", 5, "1.txt"), &listing::listing(&streams));
}

#[test]
fn a_state_of_version_5_is_read() {
    let text = fs::read_to_string(fixture("state", 5, "1.hex")).unwrap();
    let kept = hex::read(&text)[0].bytes();
    let streams = Streams::restore(&kept, AccountLimits::NONE).unwrap();
    streams.check_invariants();
    hex::check(&fixture("state", 5, "1.txt"), &listing::listing(&streams));
    let mut older = kept;
    older[0] = 4;
    assert!(Streams::restore(&older, AccountLimits::NONE).is_err());
}
