//! Tests that the cost to create, change and delete a stream does not grow with the number of streams, and
//! that snapshots in parts are right.

use bytes::{Bytes, BytesMut};

use super::super::snapshot::Snapshot;
use super::*;

/// Creates streams as a leader does: it checks a configuration first, and then applies the command, so that
/// the cost of both counts.
struct World {
    streams: Streams,
    lsn: u64,
}

impl World {
    fn new() -> Self {
        Self {
            streams: Streams::new(AccountLimits::NONE),
            lsn: 0,
        }
    }

    fn apply(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> Outcome {
        let mut bytes = BytesMut::new();
        let mut entry = Encoder::begin(&mut bytes, 1);
        entry
            .command(&Command::new(kind, StreamNumber::new(stream), b"", payload))
            .unwrap();
        let entry: Bytes = bytes.freeze();
        let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
        self.lsn += 1;
        self.streams
            .apply(self.lsn, &entry, &mut outcomes, &mut effects)
            .unwrap();
        outcomes.pop().unwrap()
    }

    fn create(&mut self, config: &StreamConfig) -> Result<u32, ApiError> {
        let config = self.streams.check_create(config)?;
        let payload = serde_json::to_vec(&config).unwrap();
        match self.apply(Kind::CreateStream, 0, &payload) {
            Outcome::Created { stream } => Ok(stream.get()),
            Outcome::Refused { error, .. } => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

fn config(n: u32) -> StreamConfig {
    // Every fourth stream has a wildcard within its subject, and every fifth has two subjects, so that the
    // patterns have several shapes.
    let first = match n % 4 {
        0 => format!("wide.*.{n}"),
        _ => format!("orders.{n}.>"),
    };
    let second = n.is_multiple_of(5).then(|| format!("more.{n}.*.*"));
    StreamConfig {
        name: format!("S{n}"),
        subjects: std::iter::once(first).chain(second).collect(),
        max_bytes: 1 << 20,
        ..StreamConfig::default()
    }
}

#[test]
fn the_second_ten_thousand_streams_cost_as_much_as_the_first() {
    let mut world = World::new();
    let mut costs = Vec::new();
    for half in 0..2 {
        let before = world.streams.patterns.cost();
        for n in half * 10_000..(half + 1) * 10_000 {
            let id = world.create(&config(n)).unwrap();
            let mut changed = config(n);
            changed.max_msgs = 7;
            let changed = world.streams.check_update(&changed).unwrap();
            let payload = serde_json::to_vec(&changed).unwrap();
            let updated = world.apply(Kind::UpdateStream, id, &payload);
            assert_eq!(
                updated,
                Outcome::Updated {
                    stream: StreamNumber::new(id)
                }
            );
        }
        costs.push(world.streams.patterns.cost() - before);
    }
    // The first searches meet fewer shapes of patterns and cost a little less, so the comparison allows a
    // small difference.
    assert!(
        costs[1] <= costs[0] + 100 && costs[1] < 200_000,
        "{costs:?}"
    );
    world.streams.check_invariants();
    let overlapping = StreamConfig {
        name: "T".into(),
        subjects: vec!["orders.19999.x".into()],
        ..StreamConfig::default()
    };
    let refused = world.create(&overlapping).unwrap_err();
    assert_eq!(refused, ApiError::SUBJECT_OVERLAP);
    let id = world.streams.by_name("S19999").unwrap();
    world.apply(Kind::DeleteStream, id.get(), b"");
    world.create(&overlapping).unwrap();
    world.streams.check_invariants();
}

/// Takes snapshots in parts of every length, with creations, changes and deletions between the parts, and
/// compares each with a snapshot taken at once. Changes during a snapshot must not show in it.
#[test]
fn a_snapshot_in_parts_is_the_state_at_its_beginning() {
    for part in 1..=12 {
        let mut world = World::new();
        for n in 1..=10 {
            world.create(&config(n)).unwrap();
        }
        let bytes = |snapshot: Snapshot| snapshot.chunks().flatten().collect::<Vec<_>>();
        let expected = bytes(world.streams.snapshot());
        world.streams.begin_snapshot();
        let mut n = 10;
        let taken = loop {
            if let Some(taken) = world.streams.go_on_snapshot(part) {
                break taken;
            }
            n += 1;
            world.create(&config(n)).unwrap();
            let (changed, deleted) = (11 - (n - 10).min(10), n - 10);
            let update = StreamConfig {
                max_msgs: 7,
                ..config(changed)
            };
            let update = serde_json::to_vec(&update).unwrap();
            let _ = world.apply(Kind::UpdateStream, changed, &update);
            let _ = world.apply(Kind::DeleteStream, deleted, b"");
        };
        assert!(bytes(taken) == expected, "parts of {part}");
        assert!(world.streams.go_on_snapshot(part).is_none());
        world.streams.check_invariants();
    }
}

#[test]
fn a_snapshot_that_begins_anew_forgets_the_one_before() {
    let mut world = World::new();
    for n in 1..=5 {
        world.create(&config(n)).unwrap();
    }
    world.streams.begin_snapshot();
    assert!(world.streams.go_on_snapshot(3).is_none());
    world.apply(Kind::DeleteStream, 1, b"");
    world.streams.begin_snapshot();
    let taken = world.streams.go_on_snapshot(usize::MAX).unwrap();
    let expected = world.streams.snapshot().chunks().flatten();
    assert!(taken.chunks().flatten().eq(expected));
}
