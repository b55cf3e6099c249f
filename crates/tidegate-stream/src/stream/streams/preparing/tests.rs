//! Tests that entries with publishes that depend on patterns have the same outcomes with and without
//! preparation, and that no part of a preparation takes long.

use proptest::prelude::*;
use serde_json::json;
use tidegate_nats::subject;

use super::super::super::{Encoder, Outcome};
use super::super::AccountLimits;
use super::*;
use crate::schema::error::ApiError;
use crate::schema::sequence::nth;

const ONE: StreamNumber = StreamNumber::FIRST;
const PATTERNS: [&str; 6] = ["s.a.*", "s.*.1", "s.>", "s.b.*", "s.*.none", "*.c.*"];

struct Scene {
    streams: Streams,
    lsn: u64,
    /// The messages that the stream must hold, with their subjects.
    model: BTreeMap<u64, String>,
    last: u64,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self {
            streams: Streams::new(AccountLimits::NONE),
            lsn: 0,
            model: BTreeMap::new(),
            last: 0,
        };
        let config = json!({"name": "S", "subjects": ["s.>"]}).to_string();
        let entry = entry(|entry| {
            let none = StreamNumber::NONE;
            let command = Command::new(Kind::CreateStream, none, b"", config.as_bytes());
            entry.command(&command).unwrap();
        });
        assert_eq!(scene.apply(&entry), [Outcome::Created { stream: ONE }]);
        scene
    }

    fn apply(&mut self, entry: &Bytes) -> Vec<Outcome> {
        let mut out = Vec::new();
        self.lsn += 64;
        let applied = self
            .streams
            .apply(self.lsn, entry, &mut out, &mut Vec::new());
        applied.unwrap();
        self.streams.check_invariants();
        out
    }

    /// Computes the outcome of a command from the model.
    fn expect(&mut self, act: &Act) -> Option<Outcome> {
        match act {
            Act::Publish(n) => Some(self.expect_stored(name(*n))),
            Act::Depend(n, pattern, number) => {
                let under = |subject: &&String| {
                    subject::contains(PATTERNS[*pattern].as_bytes(), subject.as_bytes())
                };
                let last = self.model.iter().rev().find(|(_, subject)| under(subject));
                let last = last.map_or(0, |(seq, _)| *seq);
                if last == *number {
                    return Some(self.expect_stored(name(*n)));
                }
                let error = ApiError::wrong_last_sequence(nth(last));
                Some(Outcome::Refused { stream: ONE, error })
            }
            Act::Delete(seq) => {
                self.model.remove(seq);
                None
            }
            Act::Purge => {
                self.model.clear();
                None
            }
        }
    }

    fn expect_stored(&mut self, subject: String) -> Outcome {
        self.last += 1;
        self.model.insert(self.last, subject);
        Outcome::Stored {
            stream: ONE,
            seq: nth(self.last),
        }
    }
}

fn entry(write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> Bytes {
    let mut bytes = Vec::new();
    write(&mut Encoder::begin(&mut bytes, 1_000_000));
    bytes.into()
}

fn name(n: u8) -> String {
    format!("s.{}.{}", ["a", "b", "c"][usize::from(n % 3)], n / 3)
}

#[derive(Clone, Debug)]
enum Act {
    Publish(u8),
    /// A client publishes a message that depends on the last message under a pattern, with this number.
    Depend(u8, usize, u64),
    Delete(u64),
    Purge,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (0..12_u8).prop_map(Act::Publish),
        20 => (0..12_u8, 0..PATTERNS.len(), 0..40_u64)
            .prop_map(|(n, pattern, number)| Act::Depend(n, pattern, number)),
        10 => (1..40_u64).prop_map(Act::Delete),
        1 => Just(Act::Purge),
    ]
}

fn write(entry: &mut Encoder<'_, Vec<u8>>, act: &Act) {
    let command = |entry: &mut Encoder<'_, Vec<u8>>, kind, payload: &str| {
        let command = Command::new(kind, ONE, b"", payload.as_bytes());
        entry.command(&command).unwrap();
    };
    match act {
        Act::Publish(n) => {
            entry.publish(ONE, name(*n).as_bytes(), None, b"x").unwrap();
        }
        Act::Depend(n, pattern, number) => {
            let headers = headers(PATTERNS[*pattern], *number);
            let subject = name(*n);
            entry
                .publish(ONE, subject.as_bytes(), Some(headers.as_bytes()), b"x")
                .unwrap();
        }
        Act::Delete(seq) => command(entry, Kind::DeleteMessage, &format!(r#"{{"seq":{seq}}}"#)),
        Act::Purge => command(entry, Kind::Purge, "{}"),
    }
}

fn headers(pattern: &str, number: u64) -> String {
    let name = "Nats-Expected-Last-Subject-Sequence";
    format!("NATS/1.0\r\n{name}: {number}\r\n{name}-Subject: {pattern}\r\n\r\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_entry_has_the_same_outcomes_with_and_without_preparation(
        entries in prop::collection::vec((prop::collection::vec(act(), 1..12), 0..30_usize), 1..20),
    ) {
        let (mut one, mut other) = (Scene::new(), Scene::new());
        for (acts, steps) in entries {
            let entry = entry(|entry| acts.iter().for_each(|act| write(entry, act)));
            // With 0 steps, the node applies the entry without preparation.
            if steps > 0 {
                while !one.streams.prepare(&entry, &mut steps.clone()) {}
            }
            let outcomes = one.apply(&entry);
            prop_assert_eq!(&outcomes, &other.apply(&entry));
            for (act, outcome) in acts.iter().zip(outcomes) {
                if let Some(expected) = one.expect(act) {
                    prop_assert_eq!(outcome, expected, "{:?}", act);
                }
            }
        }
    }
}

/// Counts the steps of the preparation: each part looks at its share of the subjects, and once for all
/// patterns of the entry. After it the entry looks at no subject.
#[test]
fn a_preparation_looks_at_each_subject_once() {
    let mut scene = Scene::new();
    let filled = entry(|entry| {
        for n in 0..1000 {
            let subject = format!("s.{n}.1");
            entry.publish(ONE, subject.as_bytes(), None, b"x").unwrap();
        }
    });
    scene.apply(&filled);
    let plain = entry(|entry| write(entry, &Act::Publish(1)));
    assert!(scene.streams.prepare(&plain, &mut 0), "no pattern, no work");
    let depends = entry(|entry| {
        for n in 0..100 {
            let headers = headers(&format!("s.*.none{n}"), 0);
            let headers = Some(headers.as_bytes());
            entry.publish(ONE, b"s.x.x", headers, b"x").unwrap();
        }
    });
    let (mut parts, mut steps) = (0, 0);
    loop {
        let mut left = 50;
        let is_done = scene.streams.prepare(&depends, &mut left);
        steps += 50 - left;
        if is_done {
            break;
        }
        parts += 1;
    }
    // The comparison of a subject takes three steps of the walk through the patterns, and each pattern one.
    assert!((2000..=3200).contains(&steps), "{steps}");
    assert!(parts >= 40, "{parts}");
    let stream = scene.streams.get(ONE).unwrap();
    let knows = |n: u32| {
        stream
            .content
            .knows_expected(format!("s.*.none{n}").as_bytes())
    };
    assert!((0..100).all(knows));
    let outcomes = scene.apply(&depends);
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. })));
    assert!(
        scene.streams.prepare(&depends, &mut 0),
        "the results still hold"
    );
}

/// A client removes the last message under a pattern. The next entry that depends on the pattern waits until
/// the node has looked at the subjects again.
#[test]
fn a_removed_last_message_is_looked_up_again() {
    let mut scene = Scene::new();
    let filled = entry(|entry| (0..12).for_each(|n| write(entry, &Act::Publish(n))));
    scene.apply(&filled);
    let depends = |number| entry(|entry| write(entry, &Act::Depend(1, 0, number)));
    let first = depends(10);
    while !scene.streams.prepare(&first, &mut 4) {}
    scene.apply(&first);
    let command = Command::new(Kind::Publish, ONE, b"s.b.0", b"x");
    assert!(!scene.streams.looks_up(&command));
    assert!(scene.streams.prepare(&depends(10), &mut 0));
    scene.apply(&entry(|entry| write(entry, &Act::Delete(10))));
    let second = depends(7);
    assert!(!scene.streams.prepare(&second, &mut 4));
    while !scene.streams.prepare(&second, &mut 4) {}
    let stored = Outcome::Stored {
        stream: ONE,
        seq: nth(14),
    };
    assert_eq!(scene.apply(&second), [stored]);
    // Messages that the stream has removed from its beginning leave no earlier ones.
    scene.apply(&entry(|entry| write(entry, &Act::Purge)));
    assert!(scene.streams.prepare(&depends(0), &mut 0));
}

/// Another entry takes the place of an entry that the node has begun to prepare, because the node takes over
/// another state.
#[test]
fn another_entry_begins_anew() {
    let mut scene = Scene::new();
    let filled = entry(|entry| (0..12).for_each(|n| write(entry, &Act::Publish(n))));
    scene.apply(&filled);
    let first = entry(|entry| write(entry, &Act::Depend(1, 0, 10)));
    assert!(!scene.streams.prepare(&first, &mut 4));
    let second = entry(|entry| write(entry, &Act::Depend(1, 1, 6)));
    assert!(!scene.streams.prepare(&second, &mut 4));
    while !scene.streams.prepare(&second, &mut 4) {}
    let stored = |seq| Outcome::Stored {
        stream: ONE,
        seq: nth(seq),
    };
    assert_eq!(scene.apply(&second), [stored(13)]);
    // Message 13 has the subject `s.b.0`, so message 10 is still the last one under the first pattern.
    assert_eq!(scene.apply(&first), [stored(14)]);
}
