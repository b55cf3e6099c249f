//! Tests that a stream maps subjects as nats-server does: the rules of their settings, the messages that an
//! entry marks to be published again, and snapshots.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::schema::mapping::{Republish, SubjectTransform};
use crate::schema::number::StreamNumber;
use crate::stream::{AccountLimits, Command, Effect, Encoder, Kind, Streams, rules};

const ONE: StreamNumber = StreamNumber::FIRST;
const SUBJECTS: [&str; 3] = ["s.a", "s.b", "t.a"];

fn config(transform: Option<(&str, &str)>, republish: Option<(&str, &str)>) -> StreamConfig {
    StreamConfig {
        name: "S".into(),
        subjects: vec!["s.>".into()],
        subject_transform: transform.map(|(src, dest)| SubjectTransform {
            src: src.into(),
            dest: dest.into(),
        }),
        republish: republish.map(|(src, dest)| Republish {
            src: src.into(),
            dest: dest.into(),
            headers_only: false,
        }),
        ..StreamConfig::default()
    }
}

fn refusal(transform: Option<(&str, &str)>, republish: Option<(&str, &str)>) -> (u16, String) {
    let refused = rules::check(&config(transform, republish)).unwrap_err();
    (refused.err_code, refused.description.into_owned())
}

#[test]
fn transforms_that_do_not_compile_are_refused() {
    let (code, text) = refusal(Some(("s..x", "t")), None);
    assert_eq!(
        (code, &*text),
        (10155, "stream transform source: invalid subject s..x")
    );
    let (code, text) = refusal(Some(("s.*", "t.*")), None);
    assert_eq!((code, &*text), (10156, "stream transform: invalid subject"));
    let (code, text) = refusal(Some(("s.*", "t.{{nope(1)}}")), None);
    let expected = "stream transform: invalid mapping destination: unknown function in {{nope(1)}}";
    assert_eq!((code, &*text), (10156, expected));
}

#[test]
fn rules_to_publish_again_that_do_not_compile_are_refused() {
    let (code, text) = refusal(None, Some(("s.*", "t.*")));
    let expected =
        "stream configuration for republish with transform from 's.*' to 't.*' not valid";
    assert_eq!((code, &*text), (10052, expected));
    for (src, dest) in [
        ("s.*", "s.new.$1"),
        (">", ">"),
        ("", "*.x.>"),
        ("", "s.x.>"),
    ] {
        let (code, text) = refusal(None, Some((src, dest)));
        let expected = "stream configuration for republish destination forms a cycle";
        assert_eq!((code, &*text), (10052, expected), "{src} {dest}");
    }
}

#[test]
fn missing_sources_are_filled_in() {
    let kept = rules::check(&config(Some(("", "t.>")), Some(("", "r.>")))).unwrap();
    assert_eq!(kept.republish.as_ref().unwrap().src, ">");
    assert_eq!(kept.subject_transform.as_ref().unwrap().src, "");
    assert_eq!(
        rules::check(&kept).unwrap(),
        kept,
        "kept configurations stay"
    );
    let kept = rules::check(&config(Some(("s.>", "t.>")), Some((">", ">")))).unwrap();
    let republish = kept.republish.as_ref().unwrap();
    assert_eq!((&*republish.src, &*republish.dest), ("t.>", "t.>"));
    assert_eq!(
        rules::check(&kept).unwrap(),
        kept,
        "kept configurations stay"
    );
    // A transform with an empty destination maps no subject, so the stream compiles none.
    let kept = rules::check(&config(Some(("", "")), Some(("", "")))).unwrap();
    assert_eq!(Mapping::of(&kept), None);
}

/// Streams with one stream, which publishes the messages of `s.*` again, and the model with which the tests
/// compare it.
struct World {
    streams: Streams,
    lsn: u64,
    /// The subjects of the messages in the stream, by message number, according to the model.
    messages: BTreeMap<u64, usize>,
    last: u64,
}

impl World {
    fn new(per_subject: i64) -> Self {
        let config = StreamConfig {
            max_msgs_per_subject: per_subject,
            ..config(Some(("s.x", "t.a")), Some(("s.*", "r.$1")))
        };
        let mut this = Self {
            streams: Streams::new(AccountLimits::NONE),
            lsn: 0,
            messages: BTreeMap::new(),
            last: 0,
        };
        let payload = serde_json::to_vec(&config).unwrap();
        let create = Command::new(Kind::creating(&config), StreamNumber::NONE, b"", &payload);
        this.apply(&[create]);
        this
    }

    fn apply(&mut self, commands: &[Command<'_>]) -> (Bytes, Vec<Effect>) {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, 1_000_000 + self.lsn);
        for command in commands {
            encoder.command(command).unwrap();
        }
        let entry = Bytes::from(entry);
        self.lsn += 4096;
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        let applied = self.streams.apply(self.lsn, &entry, &mut out, &mut effects);
        applied.unwrap();
        self.streams.check_invariants();
        (entry, effects)
    }

    /// Publishes to these subjects in one entry, and compares the messages that the stream marks for the
    /// leader with the model.
    fn publish(&mut self, subjects: &[usize], per_subject: i64) {
        let commands = subjects.iter().map(|subject| {
            let subject = SUBJECTS[*subject].as_bytes();
            Command::new(Kind::Publish, ONE, subject, b"x")
        });
        let commands: Vec<_> = commands.collect();
        let (entry, effects) = self.apply(&commands);
        let stored = effects.iter().filter_map(|effect| match effect {
            Effect::Stored {
                seq, republished, ..
            } => Some((*seq, *republished)),
            _ => None,
        });
        let stored: Vec<_> = stored.collect();
        assert_eq!(stored.len(), subjects.len());
        for (subject, (seq, republished)) in subjects.iter().zip(stored) {
            self.last += 1;
            let facts = republished.expect("the stream publishes messages again");
            let of = |(seq, s): (&u64, &usize)| (s == subject).then_some(*seq);
            let before: Vec<_> = self.messages.iter().filter_map(of).collect();
            assert_eq!(seq.get(), self.last);
            assert_eq!(facts.last.get(), before.last().copied().unwrap_or(0));
            let command = Command::read(&entry, facts.offset).unwrap();
            assert_eq!(command.subject, SUBJECTS[*subject].as_bytes());
            let stream = self.streams.get(ONE).unwrap();
            let to = stream.republished_subject(command.subject, 0);
            assert_eq!(to.is_some(), command.subject.starts_with(b"s."));
            self.messages.insert(self.last, *subject);
            if before.len() as i64 >= per_subject && per_subject > 0 {
                self.messages.remove(&before[0]);
            }
        }
    }

    fn purge(&mut self, subject: usize) {
        let payload = format!(r#"{{"filter":"{}"}}"#, SUBJECTS[subject]);
        self.apply(&[Command::new(Kind::Purge, ONE, b"", payload.as_bytes())]);
        self.messages.retain(|_, s| *s != subject);
    }

    /// Replaces the streams by those that the node restores from a snapshot of them, so that the test also
    /// covers snapshots.
    fn restore(&mut self) {
        let bytes: Vec<u8> = self.streams.snapshot().chunks().flatten().collect();
        self.streams = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
        self.streams.check_invariants();
        let stream = self.streams.get(ONE).unwrap();
        assert_eq!(stream.stored_subject(b"s.x", 0).unwrap(), b"t.a");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The stream marks each stored message with the number of the subject's message before, which consumers
    /// of the messages published again rely on. The mark is right also within one entry, and after purges,
    /// limits and a snapshot.
    #[test]
    fn messages_name_the_one_before(
        per_subject in prop::sample::select(&[-1_i64, 1, 2][..]),
        steps in prop::collection::vec(
            prop_oneof![
                4 => prop::collection::vec(0..3_usize, 1..6),
                1 => (0..3_usize).prop_map(|purged| vec![purged + 10]),
                1 => Just(vec![]),
            ],
            1..12,
        ),
    ) {
        let mut world = World::new(per_subject);
        for step in steps {
            match step.first() {
                None => world.restore(),
                Some(purged @ 10..) => world.purge(purged - 10),
                Some(_) => world.publish(&step, per_subject),
            }
        }
    }
}
