//! Tests that a stream loses nothing when it moves while it changes: in the end the copy equals a stream that
//! did not move.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::json;

use super::super::command::Entry;
use super::super::home::Home;
use super::super::outcome::{Effect, Outcome};
use super::super::placement::{Course, Filling, Placement, Renewal, Thaw};
use super::super::streams::{AccountLimits, Streams};
use super::*;
use crate::consumer::State;
use crate::schema::config::Storage;
use crate::schema::number::DirectoryNumber;
use crate::schema::sequence::StreamSeq;
use crate::schema::sequence::nth;

const ONE: StreamNumber = StreamNumber::FIRST;

const SECOND: u64 = 1_000_000;
const GROUP: GroupId = GroupId::new(0x1001);

/// The streams of one group, with their log, from which an export reads messages.
struct Group {
    streams: Streams,
    log: BTreeMap<u64, Bytes>,
    lsn: u64,
    /// The total size of the stored messages according to the effects, in bytes. The test compares it with
    /// the size that the streams report.
    live: i64,
}

impl Group {
    fn new() -> Self {
        Self {
            streams: Streams::new(AccountLimits::NONE),
            log: BTreeMap::new(),
            lsn: 0,
            live: 0,
        }
    }

    fn apply(&mut self, entry: Vec<u8>) -> Vec<Outcome> {
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        self.lsn += 64;
        let entry = Bytes::from(entry);
        self.log.insert(self.lsn, entry.clone());
        self.streams
            .apply(self.lsn, &entry, &mut out, &mut effects)
            .unwrap();
        self.streams.check_invariants();
        for effect in effects {
            self.live += match effect {
                Effect::Stored { bytes, .. } => i64::from(bytes),
                Effect::Removed { bytes, .. } => -i64::from(bytes),
                Effect::Purged { messages, .. } | Effect::StreamDeleted { messages, .. } => {
                    -messages.iter().map(|(.., b)| i64::from(b)).sum::<i64>()
                }
                _ => 0,
            };
        }
        let held: u64 = self.streams.iter().map(|s| s.state().bytes).sum();
        assert_eq!(self.live, held as i64);
        out
    }

    fn command(
        &mut self,
        now: u64,
        kind: Kind,
        stream: u32,
        subject: &[u8],
        body: &[u8],
    ) -> Outcome {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, now);
        encoder
            .command(&Command::new(
                kind,
                StreamNumber::new(stream),
                subject,
                body,
            ))
            .unwrap();
        self.apply(entry).remove(0)
    }

    fn stream(&self, id: u32) -> &Stream {
        self.streams.get(StreamNumber::new(id)).unwrap()
    }

    /// Exports the data after a cursor; `None` if the home group must freeze the stream first.
    fn export(&self, id: u32, from: Cursor, bytes_max: usize) -> Option<Vec<u8>> {
        let stream = self.stream(id);
        let mut export = Export::new(from, bytes_max);
        loop {
            match export.poll(stream) {
                Need::Message(seq) => {
                    let place = stream.place(seq).unwrap();
                    let command = Command::read(&self.log[&place.lsn], place.offset).unwrap();
                    export.add(stream, seq, &command);
                }
                Need::Freeze => return None,
                Need::Nothing(entry) => return Some(entry),
            }
        }
    }

    /// Applies an export to a copy, for the copy's own move; returns whether the copy took the export.
    fn import(&mut self, now: u64, id: u32, exported: &[u8]) -> bool {
        self.import_of(now, id, exported, self.stream(id).moves())
    }

    /// Applies an export to a copy, for the move with this number, which may be another move than the copy's.
    fn import_of(&mut self, now: u64, id: u32, exported: &[u8], number: MoveNumber) -> bool {
        let number = Filling::By(number).encode();
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, now);
        let mut count = 0;
        for command in Entry::decode(exported).unwrap().commands() {
            let command = command.unwrap();
            let command = Command {
                stream: StreamNumber::new(id),
                subject: match command.kind {
                    Kind::Import => &number,
                    _ => command.subject,
                },
                ..command
            };
            encoder.command(&command).unwrap();
            count += 1;
        }
        let out = self.apply(entry);
        assert_eq!(out.len(), count);
        out[0] == Outcome::Done
    }

    /// Finishes the search for messages without a consumer. The search also removes expired messages, so the
    /// test calls this for both streams that it compares.
    fn sweep(&mut self, now: u64) {
        loop {
            let swept = self.command(now, Kind::Expire, 1, b"", b"");
            assert_eq!(swept, Outcome::Done);
            if self.stream(1).sweep.is_none() {
                return;
            }
        }
    }

    fn restart(&mut self) {
        let bytes: Vec<u8> = self.streams.snapshot().chunks().flatten().collect();
        self.streams = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
        self.streams.check_invariants();
        let again: Vec<u8> = self.streams.snapshot().chunks().flatten().collect();
        assert!(bytes == again);
    }

    fn cursor(&self, id: u32) -> Option<Cursor> {
        match self.stream(id).transit() {
            Transit::Filling(cursor) => Some(cursor),
            _ => None,
        }
    }

    /// Describes all parts of a stream as text, so that the test can compare the copy with the stream that
    /// did not move.
    fn told(&self, id: u32) -> String {
        let stream = self.stream(id);
        let mut text = format!(
            "{:?} {} {:?} {:?}\n",
            stream.state(),
            stream.created_us,
            String::from_utf8_lossy(&stream.last_msg_id),
            stream.config
        );
        let mut next = stream.content.index.next(StreamSeq::ZERO);
        while let Some(seq) = next {
            let slot = stream.content.index.get(seq).unwrap();
            let command = Command::read(&self.log[&slot.place.lsn], slot.place.offset).unwrap();
            text += &format!(
                "{seq} {} {} {:?} {} {:?} {:?} {:?}\n",
                slot.time_us,
                slot.bytes,
                slot.flags,
                slot.due_us,
                command.subject,
                command.headers,
                command.payload
            );
            assert_eq!(
                **stream.content.subjects.name(slot.subject).unwrap(),
                *command.subject
            );
            next = stream.content.index.next(seq.next());
        }
        for id in stream.dedup.iter_from(0) {
            text += &format!("{id:?}\n");
        }
        text + &format!("{:?} {:?}", stream.content.held_dues(), stream.consumers)
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A stream that moves, and its twin that does not move. Both get the same commands, so the test can compare
/// them.
struct World {
    rng: Rng,
    now: u64,
    /// True if the stream keeps messages for its consumers. Then random consumers' states also settle
    /// messages.
    retains: bool,
    home: Group,
    twin: Group,
}

impl World {
    fn both(&mut self, at: (u32, u32), entry: impl Fn(u32) -> Vec<u8>) {
        let strip = |out: Vec<Outcome>| {
            let text = format!("{out:?}");
            // Each group has its own number for the stream, so the comparison of the outcomes leaves the
            // numbers out.
            let mut parts = text.split("stream: ");
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| {
                text + part.trim_start_matches(|c: char| c.is_ascii_digit())
            })
        };
        let one = strip(self.home.apply(entry(at.0)));
        let other = strip(self.twin.apply(entry(at.1)));
        assert_eq!(one, other);
    }

    /// Applies one random change to the stream and to its twin; `at` holds the numbers of the two in their
    /// groups.
    fn happen(&mut self, at: (u32, u32)) {
        self.now += self.rng.below(SECOND / 2);
        let now = self.now;
        let (what, a, b) = (self.rng.below(24), self.rng.below(6), self.rng.below(40));
        let plain = |kind: Kind, subject: String, body: String| {
            move |stream: u32| {
                let mut entry = Vec::new();
                Encoder::begin(&mut entry, now)
                    .command(&Command::new(
                        kind,
                        StreamNumber::new(stream),
                        subject.as_bytes(),
                        body.as_bytes(),
                    ))
                    .unwrap();
                entry
            }
        };
        let last = self.home.stream(at.0).last_seq().get();
        match what {
            0 => {
                let purge = json!({"filter": format!("s.{a}"), "keep": b / 10});
                self.both(at, plain(Kind::Purge, String::new(), purge.to_string()));
            }
            1 if b == 0 => {
                let purge = json!({"seq": last + 1 + a});
                self.both(at, plain(Kind::Purge, String::new(), purge.to_string()));
            }
            2..=4 => {
                let body = json!({"seq": last.saturating_sub(b)}).to_string();
                self.both(at, plain(Kind::DeleteMessage, String::new(), body));
            }
            5 => {
                let config = json!({"config": {"name": format!("C{a}"), "durable_name": format!("C{a}"), "ack_policy": "explicit"}, "action": ""});
                self.both(
                    at,
                    plain(Kind::CreateConsumer, format!("C{a}"), config.to_string()),
                );
            }
            6 => {
                let delivered = last.saturating_sub(b);
                let state = State::starting_at(StreamSeq::new(delivered));
                let mut delta = state.encode()[8..].to_vec();
                if self.retains && delivered > 9 && b % 4 > 0 {
                    // The delta settles all but two of the last eight messages, and gives up one of these
                    // two, so that the stream removes messages.
                    delta[0] = 2;
                    delta.push(1);
                    put_number(&mut delta, delivered - 8);
                    delta.extend([6, 1]);
                    put_number(&mut delta, delivered - 2);
                    delta.push(1);
                }
                self.both(at, move |stream| {
                    let mut entry = Vec::new();
                    let name = format!("C{a}");
                    Encoder::begin(&mut entry, now)
                        .command(&Command::new(
                            Kind::of_delta(&delta),
                            StreamNumber::new(stream),
                            name.as_bytes(),
                            &delta,
                        ))
                        .unwrap();
                    entry
                });
            }
            7 if (5..8).contains(&b) => {
                let seq = (1 + last.saturating_sub(b)).to_le_bytes();
                self.both(at, move |stream| {
                    let (mut entry, name) = (Vec::new(), format!("C{a}"));
                    let kind = Kind::ResetConsumer;
                    Encoder::begin(&mut entry, now)
                        .command(&Command::new(
                            kind,
                            StreamNumber::new(stream),
                            name.as_bytes(),
                            &seq,
                        ))
                        .unwrap();
                    entry
                });
            }
            7 if b < 5 => self.both(
                at,
                plain(Kind::DeleteConsumer, format!("C{a}"), String::new()),
            ),
            8 => {
                let mut entry = Vec::new();
                let mut encoder = Encoder::begin(&mut entry, now);
                let streams = &mut self.home.streams;
                let _ = streams.propose_expiry(now, Storage::File, &mut encoder);
                let entry = Bytes::from(entry);
                self.both(at, move |stream| {
                    let mut again = Vec::new();
                    let mut encoder = Encoder::begin(&mut again, now);
                    for command in Entry::decode(&entry).unwrap().commands() {
                        let command = command.unwrap();
                        encoder
                            .command(&Command {
                                stream: StreamNumber::new(stream),
                                ..command
                            })
                            .unwrap();
                    }
                    again
                });
            }
            _ => {
                let headers = match b {
                    0..6 => Some(format!(
                        "NATS/1.0\r\nNats-Msg-Id: {}\r\n\r\n",
                        self.rng.below(50)
                    )),
                    6 => Some("NATS/1.0\r\nNats-Rollup: sub\r\n\r\n".into()),
                    7 => Some("NATS/1.0\r\nNats-TTL: 3\r\n\r\n".into()),
                    8 => Some("NATS/1.0\r\nNats-TTL: never\r\nx: y\r\n\r\n".into()),
                    9 => Some("NATS/1.0\r\nNats-Rollup: all\r\n\r\n".into()),
                    _ => None,
                };
                let text = format!("{now}");
                self.both(at, move |stream| {
                    let mut entry = Vec::new();
                    let headers = headers.as_ref().map(|h| h.as_bytes());
                    Encoder::begin(&mut entry, now)
                        .publish(
                            StreamNumber::new(stream),
                            format!("s.{a}").as_bytes(),
                            headers,
                            text.as_bytes(),
                        )
                        .unwrap();
                    entry
                });
            }
        }
    }
}

fn configs() -> Vec<serde_json::Value> {
    let all = [
        json!({}),
        json!({"max_msgs": 40}),
        json!({"max_msgs_per_subject": 1}),
        json!({"max_msgs_per_subject": 5, "max_bytes": 1500}),
        json!({"max_age": 8_000_000_000_u64, "duplicate_window": 4_000_000_000_u64}),
        json!({"max_age": 6_000_000_000_u64, "subject_delete_marker_ttl": 3_000_000_000_u64}),
        json!({"discard": "new", "max_msgs": 30, "first_seq": 1000}),
        json!({"retention": "workqueue"}),
        json!({"retention": "interest", "max_msgs": 100}),
    ];
    let with = |more: &serde_json::Value| {
        let mut config = json!({"name": "S", "subjects": ["s.>"], "allow_msg_ttl": true, "allow_rollup_hdrs": true, "num_replicas": 1});
        let fields = config.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        config
    };
    all.iter().map(with).collect()
}

/// Moves a stream of this configuration from one group to another while random commands change it, and
/// compares the copy with a twin that did not move. `seed` determines the random choices.
fn move_one(seed: u64, config: &serde_json::Value) {
    let mut world = World {
        rng: Rng(seed * 2 + 1),
        now: 1000 * SECOND,
        retains: config.get("retention").is_some(),
        home: Group::new(),
        twin: Group::new(),
    };
    let json = config.to_string();
    let create = match world.retains {
        false => Kind::CreateStream,
        true => Kind::CreateRetaining,
    };
    let of = Placement::Of(DirectoryNumber::new(7)).encode();
    let (now, at) = (world.now, (1, 1));
    for group in [&mut world.home, &mut world.twin] {
        let made = group.command(now, create, 0, &of, json.as_bytes());
        assert_eq!(made, Outcome::Created { stream: ONE });
    }
    for _ in 0..world.rng.below(300) {
        world.happen(at);
    }
    let mut copy = Group::new();
    let made = copy.command(world.now, create, 0, &copy_of(7, 1), json.as_bytes());
    assert_eq!(made, Outcome::Created { stream: ONE });
    let mut freeze_at = world.rng.below(60);
    let mut steps = 0;
    let mut number = 1_u32;
    let mut old: Vec<Vec<u8>> = Vec::new();
    while let Some(cursor) = copy.cursor(1) {
        steps += 1;
        assert!(steps < 10_000, "seed {seed}: {cursor:?}");
        if steps > 1 && number < 4 && world.rng.below(30) == 0 {
            // The directory calls the move off and begins it again, as after a failure of the target group.
            let thaw = |g: &mut Group, n: u32| {
                g.command(world.now, Kind::Thaw, 1, b"", &thaw_of(n)) == Outcome::Done
            };
            let frozen = world.home.stream(1).is_frozen();
            assert!(!thaw(&mut world.home, number + 1));
            assert_eq!(thaw(&mut world.home, number), frozen, "seed {seed}");
            assert!(!thaw(&mut world.home, number));
            if frozen {
                let late = moving_to(GROUP, number).encode();
                let late = world.home.command(world.now, Kind::Freeze, 1, b"", &late);
                assert!(matches!(late, Outcome::Refused { .. }), "seed {seed}");
            }
            number += 1;
            copy = Group::new();
            let of = copy_of(7, number);
            copy.command(world.now, create, 0, &of, json.as_bytes());
            freeze_at = steps + world.rng.below(60);
            old.clear();
            continue;
        }
        if steps == freeze_at + 1 {
            let frozen = {
                let moving = moving_to(GROUP, number).encode();
                world.home.command(world.now, Kind::Freeze, 1, b"", &moving)
            };
            assert_eq!(frozen, Outcome::Done);
            for (kind, subject) in [
                (Kind::Publish, "s.1"),
                (Kind::Expire, ""),
                (Kind::Purge, ""),
            ] {
                let (now, subject) = (world.now, subject.as_bytes());
                let refused = world.home.command(now, kind, 1, subject, b"{}");
                assert!(
                    matches!(refused, Outcome::Refused { error, .. } if error == ApiError::SYSTEM_UNAVAILABLE)
                );
            }
        }
        if steps <= freeze_at {
            for _ in 0..world.rng.below(12) {
                world.happen(at);
            }
        }
        let size = 1 + world.rng.below(600) as usize;
        if world.rng.below(8) == 0 {
            copy.restart();
            world.home.restart();
        }
        // The copy refuses these commands, because only imports change a copy that is not complete.
        for kind in [
            Kind::Publish,
            Kind::Expire,
            Kind::Freeze,
            Kind::DeleteConsumer,
        ] {
            let refused = copy.command(world.now, kind, 1, b"s.x", b"");
            assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
        }
        let Some(exported) = world.home.export(1, cursor, size) else {
            assert!(steps <= freeze_at, "seed {seed}");
            continue;
        };
        if world.rng.below(4) == 0 {
            // The network loses this import on the way, so the copy stays at its cursor and asks again.
            old.push(exported);
            continue;
        }
        assert!(
            copy.import(world.now, 1, &exported),
            "seed {seed}: {cursor:?}"
        );
        // A late or repeated import changes nothing, because the copy is no longer at the import's cursor.
        let before = (copy.stream(1).transit(), copy.told(1));
        assert!(!copy.import(world.now, 1, &exported), "seed {seed}");
        for late in &old {
            let cursor = copy.cursor(1);
            if copy.import(world.now, 1, late) {
                assert_ne!(cursor, copy.cursor(1));
            } else {
                assert_eq!(before, (copy.stream(1).transit(), copy.told(1)));
            }
            if before != (copy.stream(1).transit(), copy.told(1)) {
                break;
            }
        }
    }
    if world.retains {
        copy.sweep(world.now);
        world.twin.sweep(world.now);
    }
    assert_eq!(copy.told(1), world.twin.told(1), "seed {seed}");
    copy.restart();
    world.home = copy;
    for _ in 0..200 {
        world.happen(at);
    }
    assert_eq!(world.home.told(1), world.twin.told(1), "seed {seed}");
}

#[test]
fn a_copy_is_what_the_stream_was() {
    for config in configs() {
        for seed in 1..60 {
            move_one(seed, &config);
        }
    }
}

/// Writes a number as the delta of a consumer encodes it: seven bits a byte, low bits first.
fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Creates a directory with the stream `S`, number 1, which the group that `kept` names keeps.
fn directory(kept: Placement) -> Group {
    let mut group = Group::new();
    let json = configs()[0].to_string();
    let made = group.command(1, Kind::CreateStream, 0, &kept.encode(), json.as_bytes());
    assert_eq!(made, Outcome::Created { stream: ONE });
    group
}

fn update(group: &mut Group, to: GroupId, replicas: u32) -> Outcome {
    let mut config = configs()[0].clone();
    config["num_replicas"] = replicas.into();
    let to = Course::To { group: to }.encode();
    let body = config.to_string();
    group.command(2, Kind::UpdateStream, 1, &to, body.as_bytes())
}

#[test]
fn the_directory_says_where_a_stream_is_and_where_it_is_to_be() {
    let group = GROUP;
    let another = GroupId::new(GROUP.get() + 1);
    let mut directory = directory(Placement::Here);
    let publish = |d: &mut Group| d.command(3, Kind::Publish, 1, b"s.a", b"text");
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(1)
    ));
    let refused = |o: Outcome| assert!(matches!(o, Outcome::Refused { .. }), "{o:?}");
    // A stream does not move to the group that keeps it, and does not freeze without a move, because no copy
    // would take it over.
    refused(update(&mut directory, ALL, 3));
    let freeze = |d: &mut Group, m: Moving| d.command(4, Kind::Freeze, 1, b"", &m.encode());
    refused(freeze(
        &mut directory,
        Moving {
            to: group,
            number: MoveNumber::new(0),
        },
    ));
    assert_eq!(
        update(&mut directory, group, 3),
        Outcome::Updated { stream: ONE }
    );
    let moving = Moving {
        to: group,
        number: MoveNumber::new(1),
    };
    assert_eq!(directory.stream(1).moving(), Some(moving));
    // The directory allows one move at a time, and no other change of the stream meanwhile. The home group
    // still stores messages.
    refused(update(&mut directory, another, 2));
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(2)
    ));
    // The directory refuses to end the move, because the home group has not frozen the stream yet.
    let moved = |d: &mut Group, m: Moving| d.command(4, Kind::Moved, 1, b"", &m.encode());
    refused(moved(&mut directory, moving));
    refused(freeze(
        &mut directory,
        Moving {
            to: group,
            number: MoveNumber::new(2),
        },
    ));
    assert_eq!(freeze(&mut directory, moving), Outcome::Done);
    refused(publish(&mut directory));
    refused(moved(
        &mut directory,
        Moving {
            number: MoveNumber::new(2),
            ..moving
        },
    ));
    refused(moved(
        &mut directory,
        Moving {
            to: another,
            ..moving
        },
    ));
    directory.restart();
    assert_eq!(moved(&mut directory, moving), Outcome::Done);
    assert_eq!(
        directory.stream(1).home(),
        Home::Elsewhere { group, made: true }
    );
    assert_eq!(directory.stream(1).state().messages, 0);
    directory.restart();
    refused(moved(&mut directory, moving));
    // The stream moves back. The copy must refuse an import of the first move, so the directory counts moves.
    assert_eq!(
        update(&mut directory, ALL, 3),
        Outcome::Updated { stream: ONE }
    );
    assert!(directory.stream(1).is_filling());
    refused(moved(&mut directory, moving));
    directory.restart();
    let mut home = Group::new();
    let json = configs()[0].to_string();
    home.command(
        5,
        Kind::CreateStream,
        0,
        &Placement::Of(DirectoryNumber::new(1)).encode(),
        json.as_bytes(),
    );
    home.command(5, Kind::Publish, 1, b"s.b", b"more");
    freeze(&mut home, moving_to(ALL, 2));
    while let Some(cursor) = directory.cursor(1) {
        let exported = home.export(1, cursor, 10).unwrap();
        assert!(directory.import(6, 1, &exported));
    }
    assert_eq!(directory.stream(1).home(), Home::Here);
    assert_eq!(directory.stream(1).moving(), None);
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(2)
    ));
    assert_eq!(
        update(&mut directory, group, 1),
        Outcome::Updated { stream: ONE }
    );
    assert_eq!(
        directory.stream(1).moving(),
        Some(Moving {
            to: group,
            number: MoveNumber::new(3)
        })
    );
    let deleted = directory.command(7, Kind::DeleteStream, 1, b"", b"");
    assert_eq!(deleted, Outcome::Deleted { stream: ONE });
}

#[test]
fn a_move_that_is_called_off_leaves_nothing_and_is_not_done_after_all() {
    let refused = |o: Outcome| assert!(matches!(o, Outcome::Refused { .. }), "{o:?}");
    let publish = |g: &mut Group| g.command(3, Kind::Publish, 1, b"s.a", b"text");
    let freeze = |g: &mut Group, m: Moving| g.command(4, Kind::Freeze, 1, b"", &m.encode());
    let moved = |g: &mut Group, m: Moving| g.command(4, Kind::Moved, 1, b"", &m.encode());
    let instead = |g: &mut Group, to: Option<GroupId>, number: u32, replicas: u32| {
        let mut config = configs()[0].clone();
        config["num_replicas"] = replicas.into();
        let r#move = MoveNumber::new(number);
        let to = Course::Instead { group: to, r#move }.encode();
        let body = config.to_string();
        g.command(5, Kind::UpdateStream, 1, &to, body.as_bytes())
    };
    let first = Moving {
        to: GROUP,
        number: MoveNumber::new(1),
    };
    let mut directory = directory(Placement::Here);
    refused(instead(&mut directory, None, 0, 3));
    update(&mut directory, GROUP, 3);
    publish(&mut directory);
    assert_eq!(freeze(&mut directory, first), Outcome::Done);
    refused(instead(&mut directory, None, 2, 1));
    assert_eq!(
        instead(&mut directory, None, 1, 1),
        Outcome::Updated { stream: ONE }
    );
    directory.restart();
    assert_eq!(directory.stream(1).moving(), None);
    refused(moved(&mut directory, first));
    refused(freeze(&mut directory, first));
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(2)
    ));
    // The directory moves the stream to another group instead. The move fails once, so it takes two attempts.
    update(&mut directory, GROUP, 3);
    let [second, third, fourth] = [2, 3, 4].map(|number| moving_to(GROUP, number));
    assert_eq!(freeze(&mut directory, second), Outcome::Done);
    assert_eq!(
        instead(&mut directory, Some(GROUP), 2, 2),
        Outcome::Updated { stream: ONE }
    );
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(3)
    ));
    refused(moved(&mut directory, second));
    assert_eq!(freeze(&mut directory, third), Outcome::Done);
    let renew = |g: &mut Group, m: Moving, to: GroupId| {
        g.command(6, Kind::Renew, 1, b"", &Renewal { of: m, to }.encode())
    };
    refused(renew(&mut directory, second, GROUP));
    refused(renew(&mut directory, third, ALL));
    assert_eq!(renew(&mut directory, third, GROUP), Outcome::Done);
    refused(renew(&mut directory, third, GROUP));
    refused(moved(&mut directory, third));
    assert!(matches!(
        publish(&mut directory),
        Outcome::Stored { seq, .. } if seq == nth(4)
    ));
    directory.restart();
    assert_eq!(freeze(&mut directory, fourth), Outcome::Done);
    assert_eq!(moved(&mut directory, fourth), Outcome::Done);
    // The stream moves back. The copy must refuse an import from before the directory called the move off,
    // because the import lacks later changes.
    update(&mut directory, ALL, 3);
    let fifth = moving_to(ALL, 5);
    let mut home = Group::new();
    let (json, of) = (
        configs()[0].to_string(),
        Placement::Of(DirectoryNumber::new(1)).encode(),
    );
    home.command(5, Kind::CreateStream, 0, &of, json.as_bytes());
    publish(&mut home);
    assert_eq!(freeze(&mut home, fifth), Outcome::Done);
    let all = home.export(1, Cursor::START, 1 << 20).unwrap();
    assert!(directory.import_of(6, 1, &all, MoveNumber::new(5)));
    assert_eq!(directory.stream(1).state().messages, 1);
    assert_eq!(renew(&mut directory, fifth, ALL), Outcome::Done);
    assert_eq!(directory.stream(1).state().messages, 0);
    directory.restart();
    home.command(5, Kind::Thaw, 1, b"", &thaw_of(5));
    publish(&mut home);
    assert!(!directory.import_of(6, 1, &all, MoveNumber::new(5)));
    let sixth = moving_to(ALL, 6);
    assert_eq!(freeze(&mut home, sixth), Outcome::Done);
    while let Some(cursor) = directory.cursor(1) {
        let exported = home.export(1, cursor, 10).unwrap();
        assert!(directory.import_of(6, 1, &exported, MoveNumber::new(6)));
    }
    assert_eq!(directory.stream(1).state().messages, 2);
    assert_eq!(directory.stream(1).home(), Home::Here);
    refused(instead(&mut directory, None, 6, 1));
}

#[test]
fn a_group_with_a_slow_clock_goes_on() {
    let mut home = directory(Placement::Of(DirectoryNumber::new(7)));
    let publish = |group: &mut Group, now: u64, id: u64| {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        let mut entry = Vec::new();
        Encoder::begin(&mut entry, now)
            .publish(ONE, b"s.a", Some(headers.as_bytes()), b"text")
            .unwrap();
        group.apply(entry).remove(0)
    };
    for id in 1..=5 {
        publish(&mut home, 1000 * SECOND + id, id);
    }
    let moving = Moving {
        to: GROUP,
        number: MoveNumber::new(1),
    };
    home.command(1001 * SECOND, Kind::Freeze, 1, b"", &moving.encode());
    let json = configs()[0].to_string();
    let mut copy = Group::new();
    let of = copy_of(7, 1);
    copy.command(1, Kind::CreateStream, 0, &of, json.as_bytes());
    while let Some(cursor) = copy.cursor(1) {
        let exported = home.export(1, cursor, 100).unwrap();
        assert!(copy.import(2, 1, &exported));
    }
    copy.restart();
    for id in 4..=8 {
        let seq = publish(&mut copy, 900 * SECOND + id, id);
        match id {
            4 | 5 => assert_eq!(
                seq,
                Outcome::Duplicate {
                    stream: ONE,
                    seq: nth(id)
                }
            ),
            _ => assert_eq!(
                seq,
                Outcome::Stored {
                    stream: ONE,
                    seq: nth(id)
                }
            ),
        }
        copy.restart();
    }
    publish(&mut copy, 2000 * SECOND, 9);
    assert_eq!(
        publish(&mut copy, 2000 * SECOND, 1),
        Outcome::Stored {
            stream: ONE,
            seq: nth(10)
        }
    );
    copy.restart();
}

#[test]
fn nonsense_is_refused() {
    let mut home = directory(Placement::Of(DirectoryNumber::new(7)));
    for _ in 0..5 {
        home.command(2, Kind::Publish, 1, b"s.a", b"text");
    }
    let exported = home.export(1, Cursor::START, 1 << 20).unwrap();
    let json = configs()[0].to_string();
    let mut rng = Rng(99);
    for _ in 0..3000 {
        let mut copy = Group::new();
        copy.command(1, Kind::CreateStream, 0, &copy_of(7, 1), json.as_bytes());
        let mut bytes = exported.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64 - 20) as usize + 20;
            bytes[at] = rng.below(256) as u8;
        }
        let Ok(entry) = Entry::decode(&bytes) else {
            continue;
        };
        let whole = entry
            .commands()
            .all(|c| c.is_ok_and(|c| matches!(c.kind, Kind::Publish | Kind::Import)));
        if whole {
            let mut entry = Vec::new();
            let mut encoder = Encoder::begin(&mut entry, 3);
            for command in Entry::decode(&bytes).unwrap().commands() {
                let command = command.unwrap();
                encoder
                    .command(&Command {
                        stream: ONE,
                        ..command
                    })
                    .unwrap();
            }
            copy.apply(entry);
            copy.restart();
        }
    }
}

/// A cursor of another node may lie behind all data of the stream. The export of each stage is then empty,
/// and leads to a later stage, so that the move goes on.
#[test]
fn a_cursor_behind_everything_ends_its_stage() {
    let mut home = directory(Placement::Of(DirectoryNumber::new(7)));
    for id in 1..=3 {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
        let mut entry = Vec::new();
        Encoder::begin(&mut entry, 2)
            .publish(ONE, b"s.a", Some(headers.as_bytes()), b"text")
            .unwrap();
        home.apply(entry);
    }
    let config = json!({"durable_name": "c", "ack_policy": "explicit"});
    let consumer = json!({"config": config}).to_string();
    let made = home.command(2, Kind::CreateConsumer, 1, b"c", consumer.as_bytes());
    assert!(!matches!(made, Outcome::Refused { .. }), "{made:?}");
    let moving = moving_to(GROUP, 1).encode();
    let frozen = home.command(2, Kind::Freeze, 1, b"", &moving);
    assert_eq!(frozen, Outcome::Done);
    for at in [1 << 20, u64::MAX - 1, u64::MAX] {
        for (n, stage) in Stage::ALL[..5].iter().enumerate() {
            for bytes_max in [0, 1 << 20] {
                let exported = home.export(1, Cursor::new(*stage, at), bytes_max).unwrap();
                let mut commands = Entry::decode(&exported).unwrap().commands();
                let import = Import::read(commands.next().unwrap().unwrap().payload).unwrap();
                assert_eq!(
                    import.to,
                    Cursor::new(Stage::ALL[n + 1], 0),
                    "{stage:?} {at}"
                );
                assert!(commands.next().is_none());
            }
        }
    }
}

fn moving_to(to: GroupId, number: u32) -> Moving {
    let number = MoveNumber::new(number);
    Moving { to, number }
}

fn copy_of(of: u32, number: u32) -> Vec<u8> {
    let of = DirectoryNumber::new(of);
    let r#move = MoveNumber::new(number);
    Placement::Copy { of, r#move }.encode()
}

fn thaw_of(number: u32) -> Vec<u8> {
    let r#move = MoveNumber::new(number);
    Thaw { r#move }.encode()
}
