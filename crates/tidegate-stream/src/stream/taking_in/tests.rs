//! Tests that a stream takes in each message of its origins exactly once. Random intakes, among them repeated
//! and late ones, go into a mirror and into a stream with sources, and a model knows the messages of each
//! origin. A second node applies the same entries, and a restored snapshot sometimes replaces it.

use proptest::prelude::*;

use super::super::intake::{Origin, Row};
use super::*;
use crate::schema::number::{DirectoryNumber, StreamNumber};
use crate::stream::{AccountLimits, Encoder, Outcome, Streams};

const ONE: StreamNumber = StreamNumber::FIRST;
const KEYS: [&str; 2] = ["A > >", "B > >"];

#[derive(Clone, Debug)]
enum Act {
    /// Makes an origin store messages, and leave out this number of message numbers before the first, as if
    /// it had removed those.
    Publish(usize, u8, u8),
    /// Makes the stream take in at most this number of messages.
    TakeIn(usize, u8),
    /// Proposes an earlier intake again, which the stream must refuse.
    Repeat(prop::sample::Index),
    /// Makes a client delete an origin and create it again, so that the origin's numbers begin again.
    Anew(usize),
    /// Makes a client publish into the stream itself, if the stream has sources.
    Own,
    Purge,
    Snapshot,
}

fn act() -> impl Strategy<Value = Act> {
    let origin = || 0..KEYS.len();
    prop_oneof![
        6 => (origin(), 1..5_u8, 0..3_u8).prop_map(|(o, n, gap)| Act::Publish(o, n, gap)),
        8 => (origin(), 0..7_u8).prop_map(|(o, n)| Act::TakeIn(o, n)),
        3 => any::<prop::sample::Index>().prop_map(Act::Repeat),
        1 => origin().prop_map(Act::Anew),
        2 => Just(Act::Own),
        1 => Just(Act::Purge),
        1 => Just(Act::Snapshot),
    ]
}

struct World {
    mirror: bool,
    streams: Streams,
    other: Streams,
    lsn: u64,
    now: u64,
    /// The time of creation and the messages of each origin, according to the model.
    origins: [(u64, Vec<u64>); 2],
    progress: [Option<Progress>; 2],
    /// The messages that the stream must have, each with its number and its subject. The subject names the
    /// origin, its time of creation and the number there.
    stored: Vec<(u64, String)>,
    last_seq: u64,
    sent: Vec<(usize, Intake)>,
}

impl World {
    fn new(mirror: bool) -> Self {
        let config = match mirror {
            true => r#"{"name":"M","mirror":{"name":"A"}}"#,
            false => r#"{"name":"M","subjects":["own"],"sources":[{"name":"A"},{"name":"B"}]}"#,
        };
        let mut world = Self {
            mirror,
            streams: Streams::new(AccountLimits::NONE),
            other: Streams::new(AccountLimits::NONE),
            lsn: 0,
            now: 1_000_000,
            origins: [(1, Vec::new()), (1, Vec::new())],
            progress: [None; 2],
            stored: Vec::new(),
            last_seq: 0,
            sent: Vec::new(),
        };
        let kind = Kind::CreateWithOrigins;
        let create = Command::new(kind, StreamNumber::NONE, b"", config.as_bytes());
        assert_eq!(world.apply(&[create]), [Outcome::Created { stream: ONE }]);
        world
    }

    fn apply(&mut self, commands: &[Command<'_>]) -> Vec<Outcome> {
        self.now += 10;
        self.lsn += 100;
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, self.now);
        for command in commands {
            encoder.command(command).unwrap();
        }
        let entry = Bytes::from(entry);
        let apply = |streams: &mut Streams| {
            let (mut out, mut effects) = (Vec::new(), Vec::new());
            streams
                .apply(self.lsn, &entry, &mut out, &mut effects)
                .unwrap();
            streams.check_invariants();
            out
        };
        let out = apply(&mut self.streams);
        assert_eq!(apply(&mut self.other), out);
        out
    }

    fn send(&mut self, at: usize, intake: &Intake) -> Vec<Outcome> {
        let payload = intake.encode();
        assert_eq!(&Intake::decode(&payload).unwrap(), intake);
        let subjects: Vec<String> = intake
            .rows
            .iter()
            .map(|row| format!("{at}.{}.{}", intake.after.origin.created_us, row.seq))
            .collect();
        let take = Command::new(Kind::TakeIn, ONE, KEYS[at].as_bytes(), &payload);
        let publish = |s: &'_ String| -> Vec<u8> { s.clone().into_bytes() };
        let subjects: Vec<Vec<u8>> = subjects.iter().map(publish).collect();
        let messages = subjects
            .iter()
            .map(|s| Command::new(Kind::Publish, ONE, s, b"x"));
        let commands: Vec<_> = std::iter::once(take).chain(messages).collect();
        let out = self.apply(&commands);
        assert_eq!(out.len(), commands.len());
        let taken = out[0] == Outcome::Done;
        assert_eq!(taken, self.progress[at] == intake.before, "{out:?}");
        if taken {
            self.progress[at] = Some(intake.after);
            for (row, subject) in intake.rows.iter().zip(subjects) {
                let seq = match self.mirror {
                    true if row.seq.get() <= self.last_seq => continue,
                    true => row.seq.get(),
                    false => self.last_seq + 1,
                };
                self.last_seq = seq;
                self.stored.push((seq, String::from_utf8(subject).unwrap()));
            }
        }
        out
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Publish(at, n, gap) => {
                let messages = &mut self.origins[at].1;
                let last = messages.last().copied().unwrap_or(0) + u64::from(gap);
                messages.extend(last + 1..=last + u64::from(n));
            }
            Act::TakeIn(at, n) if at == 0 || !self.mirror => {
                let (created_us, messages) = &self.origins[at];
                let origin = Origin {
                    number: DirectoryNumber::new(7),
                    created_us: *created_us,
                };
                let before = self.progress[at];
                let same = before.filter(|before| before.origin == origin);
                // A mirror continues only with the origin with which it began, because another origin has
                // other messages under the same numbers.
                if self.mirror && before.is_some() && same.is_none() {
                    return;
                }
                let from = same.map_or(0, |before| before.seq.get());
                let next = messages.iter().filter(|seq| **seq > from).take(n.into());
                let rows: Vec<Row> = next
                    .map(|seq| Row {
                        seq: StreamSeq::new(*seq),
                        time_us: self.now,
                    })
                    .collect();
                let seq = rows
                    .last()
                    .map_or_else(|| StreamSeq::new(from), |row| row.seq);
                let after = Progress { origin, seq };
                let intake = Intake {
                    before,
                    after,
                    rows,
                };
                assert_eq!(self.send(at, &intake)[0], Outcome::Done);
                self.sent.push((at, intake));
            }
            Act::Repeat(index) if !self.sent.is_empty() => {
                let (at, intake) = self.sent[index.index(self.sent.len())].clone();
                if self.progress[at] != intake.before || !intake.rows.is_empty() {
                    let before = self.stored.len();
                    let same = self.progress[at] == intake.before;
                    self.send(at, &intake);
                    assert!(same || self.stored.len() == before);
                }
            }
            Act::Anew(at) => {
                self.origins[at] = (self.origins[at].0 + 1, Vec::new());
            }
            Act::Own if !self.mirror => {
                let publish = Command::new(Kind::Publish, ONE, b"own", b"x");
                self.last_seq += 1;
                let seq = StreamSeq::new(self.last_seq);
                assert_eq!(
                    self.apply(&[publish]),
                    [Outcome::Stored { stream: ONE, seq }]
                );
                self.stored.push((self.last_seq, "own".into()));
            }
            Act::Purge => {
                self.apply(&[Command::new(Kind::Purge, ONE, b"", b"{}")]);
                self.stored.clear();
            }
            Act::Snapshot => {
                let bytes: Vec<u8> = self.other.snapshot().chunks().flatten().collect();
                self.other = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
                let again: Vec<u8> = self.streams.snapshot().chunks().flatten().collect();
                assert_eq!(bytes, again);
            }
            _ => {}
        }
    }

    fn check(&self) {
        let stream = self.streams.get(ONE).unwrap();
        for (key, progress) in KEYS.iter().zip(self.progress) {
            assert_eq!(stream.progress(key), progress);
        }
        let state = stream.state();
        assert_eq!(state.messages, self.stored.len() as u64);
        assert_eq!(state.last_seq.get(), self.last_seq);
        for (seq, subject) in &self.stored {
            let message = stream.message(StreamSeq::new(*seq)).unwrap();
            assert_eq!(*message.subject, *subject.as_bytes());
        }
        // The stream has taken in each message once and in order if the numbers of each origin rise.
        for at in 0..KEYS.len() {
            let prefix = format!("{at}.");
            let taken = self.stored.iter().filter(|(_, s)| s.starts_with(&prefix));
            let numbers = taken.map(|(_, s)| {
                let mut parts = s.split('.').skip(1).map(|n| n.parse::<u64>().unwrap());
                (parts.next().unwrap(), parts.next().unwrap())
            });
            assert!(numbers.is_sorted_by(|a, b| a < b));
        }
    }
}

proptest! {
    #[test]
    fn each_message_is_taken_in_once(mirror in any::<bool>(), acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(mirror);
        for act in &acts {
            world.act(act);
            world.check();
        }
    }

    #[test]
    fn any_bytes_are_decoded(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(intake) = Intake::decode(&bytes) {
            prop_assert_eq!(intake.encode(), bytes);
        }
    }
}

fn progress(seq: u64) -> Progress {
    Progress {
        origin: Origin {
            number: DirectoryNumber::new(7),
            created_us: 1,
        },
        seq: StreamSeq::new(seq),
    }
}

fn intake(before: Option<u64>, rows: &[u64], to: u64) -> Intake {
    Intake {
        before: before.map(progress),
        after: progress(to),
        rows: rows
            .iter()
            .map(|seq| Row {
                seq: StreamSeq::new(*seq),
                time_us: 500,
            })
            .collect(),
    }
}

#[test]
fn a_mirror_has_the_numbers_and_times_of_its_origin() {
    let mut world = World::new(true);
    world.send(0, &intake(None, &[5, 6, 9], 12));
    let stream = world.streams.get(ONE).unwrap();
    let state = stream.state();
    assert_eq!((state.first_seq.get(), state.last_seq.get()), (5, 9));
    assert_eq!((state.num_deleted, state.first_time_us), (2, 500));
    assert_eq!(stream.progress(KEYS[0]), Some(progress(12)));
    // An update makes the mirror an ordinary stream. The stream continues behind its last message, and
    // refuses late intakes.
    let promoted = br#"{"name":"M","subjects":["m"]}"#;
    let update = Command::new(Kind::UpdateWithOrigins, ONE, b"", promoted);
    let publish = Command::new(Kind::Publish, ONE, b"m", b"x");
    let seq = StreamSeq::new(10);
    let expected = [
        Outcome::Updated { stream: ONE },
        Outcome::Stored { stream: ONE, seq },
    ];
    assert_eq!(world.apply(&[update, publish]), expected);
    assert_eq!(world.streams.get(ONE).unwrap().progress(KEYS[0]), None);
    let late = world.apply(&[Command::new(
        Kind::TakeIn,
        ONE,
        KEYS[0].as_bytes(),
        &intake(Some(12), &[], 13).encode(),
    )]);
    assert!(matches!(late[..], [Outcome::Refused { .. }]));
}

#[test]
fn a_full_stream_takes_in_the_messages_before() {
    let mut world = World::new(false);
    let full = br#"{"name":"M","subjects":["own"],"sources":[{"name":"A"},{"name":"B"}],"max_msgs":2,"discard":"new"}"#;
    world.apply(&[Command::new(Kind::UpdateWithOrigins, ONE, b"", full)]);
    let payload = intake(None, &[3, 4, 5], 5).encode();
    let mut commands = vec![Command::new(
        Kind::TakeIn,
        ONE,
        KEYS[0].as_bytes(),
        &payload,
    )];
    commands.extend(vec![Command::new(Kind::Publish, ONE, b"a", b"x"); 3]);
    let out = world.apply(&commands);
    assert!(matches!(&out[0], Outcome::Refused { error, .. } if error.err_code == 10077));
    let stream = world.streams.get(ONE).unwrap();
    assert_eq!(stream.progress(KEYS[0]), Some(progress(4)));
    assert_eq!(stream.state().messages, 2);
}
