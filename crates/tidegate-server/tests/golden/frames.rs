//! Fixes the bytes of one of each kind of frame between nodes.

use std::collections::BTreeSet;
use std::fs;

use tidegate_cluster::VERSION;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_cluster::interest::InterestUpdate;
use tidegate_cluster::members::{Member, Members};
use tidegate_cluster::wire::{FRAME_BYTES_MAX, Frame, Read, Routed, WireError, read};
use tidegate_nats::outbox::Outbox;
use tidegate_nats::parse::Publish;

use super::fixture;
use super::hex::{self, Fields, Text};

/// Returns the name of the sample of a kind. The test does not compile until this function names a new kind,
/// and fails until the kind has a sample.
pub(crate) const fn name_of(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Hello(_) => "Hello",
        Frame::Challenge(_) => "Challenge",
        Frame::Proof(_) => "Proof",
        Frame::Welcome(_) => "Welcome",
        Frame::Refused { .. } => "Refused",
        Frame::Ping => "Ping",
        Frame::Pong => "Pong",
        Frame::Members(_) => "Members",
        Frame::Vouch { .. } => "Vouch",
        Frame::Interest(_) => "Interest",
        Frame::InterestEnd { .. } => "InterestEnd",
        Frame::InterestMembers { .. } => "InterestMembers",
        Frame::Message(_) => "Message",
        Frame::Raft { .. } => "Raft",
        Frame::Fetch { .. } => "Fetch",
    }
}

/// Returns the numbers of the kinds on the wire: the kinds with a body, empty or of zeros, that the reader
/// accepts or refuses as a body.
pub(crate) fn kinds() -> Vec<u8> {
    let known =
        |kind: &u8| read(&framed(*kind, &[]), FRAME_BYTES_MAX) != Err(WireError::Kind(*kind));
    (0..=u8::MAX).filter(known).collect()
}

/// Encodes a frame of any kind, also of a kind that nodes do not send.
fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 1).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(body);
    let sum = crc32c::crc32c(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

pub(crate) fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Outbox::default();
    frame.write(&mut out);
    out.to_vec()
}

/// Passes each sample, with the part of it that is special, to `each`.
fn samples(each: &mut dyn FnMut(&str, Frame<'_>)) {
    each(
        "opaque here: see greeting.hex",
        Frame::Hello(b"introduction"),
    );
    each(
        "opaque here: see greeting.hex",
        Frame::Challenge(b"introduction"),
    );
    each("", Frame::Proof(&[3; 32]));
    each("", Frame::Welcome(&[4; 32]));
    let text = b"a cluster has at most 32 nodes";
    each("", Frame::Refused { code: 12, text });
    each("", Frame::Ping);
    each("", Frame::Pong);
    let member = |name: &str, id| Member {
        name: name.into(),
        id,
    };
    let all = [
        member("n1", 0x1111),
        member("n2", 0x2222),
        member("n3", u64::MAX),
    ];
    let mut members = Vec::new();
    Members::new(all.to_vec()).unwrap().encode(&mut members);
    each("three", Frame::Members(&members));
    each("", Frame::Vouch { term: 7 });
    let told = InterestUpdate {
        id: 5,
        members: 1,
        pattern: b"orders.>",
        queue: None,
    };
    each("plain", Frame::Interest(told));
    let told = InterestUpdate {
        queue: Some(b"workers"),
        members: 3,
        pattern: b"work.*",
        id: 6,
    };
    each("of a queue group", Frame::Interest(told));
    for pattern in [
        "$TG.GROUP.1",
        "$TG.STREAM.ORDERS",
        "$TG.FULL.0000000000001111",
    ] {
        let told = InterestUpdate {
            id: 7,
            members: 1,
            pattern: pattern.as_bytes(),
            queue: None,
        };
        each("of a leader", Frame::Interest(told));
    }
    each("", Frame::InterestEnd { id: 5 });
    each("", Frame::InterestMembers { id: 6, members: 2 });
    let message = Publish {
        subject: b"orders.new",
        reply: None,
        headers: None,
        payload: b"hello",
    };
    let plain = Routed {
        plain: true,
        groups: &[],
        asks: false,
        handed: false,
        passed: 0,
        to: None,
        message,
    };
    each("plain", Frame::Message(plain));
    let full = Publish {
        reply: Some(b"_INBOX.1"),
        headers: Some(b"NATS/1.0\r\nA: b\r\n\r\n"),
        ..message
    };
    each(
        "with a reply and headers",
        Frame::Message(Routed {
            message: full,
            ..plain
        }),
    );
    let groups = [6_u64, 9].map(u64::to_le_bytes).concat();
    let grouped = Routed {
        plain: false,
        groups: &groups,
        asks: true,
        passed: 2,
        ..plain
    };
    each("for queue groups, passed on, asks", Frame::Message(grouped));
    let handed = Routed {
        handed: true,
        to: Some(b"$JS.API.INFO"),
        message: full,
        ..grouped
    };
    each(
        "handed, matched by another subject",
        Frame::Message(Routed {
            groups: &[],
            ..handed
        }),
    );
    each(
        "opaque here: see raft",
        Frame::Raft {
            group: GroupId::new(0x1001),
            payload: b"message",
        },
    );
    each(
        "opaque here: see catch_up.hex",
        Frame::Fetch {
            group: ALL,
            payload: b"question",
        },
    );
}

/// Writes a frame's fields as text.
pub(crate) fn describe(bytes: &[u8], text: &mut Text, body: &dyn Fn(u8, &mut Fields<'_>)) {
    let mut f = Fields::new(bytes, text);
    let len = f.number(4, "frame: length of kind and body") as usize;
    let kind = f.number(1, "kind") as u8;
    let (inside, sum) = f.rest.split_at(len - 1);
    let mut inner = Fields::new(inside, f.text);
    body(kind, &mut inner);
    inner.rest("body");
    f.rest = sum;
    f.bytes(4, "CRC32C of all before it");
}

fn body(kind: u8, f: &mut Fields<'_>) {
    match kind {
        5 => {
            f.number(2, "code");
            f.rest("text");
        }
        10 => {
            while !f.rest.is_empty() {
                f.number(8, "member: id");
                f.counted("name");
            }
        }
        11 => {
            f.number(8, "term");
        }
        16 => {
            f.number(8, "id");
            f.number(4, "how many listen");
            f.counted("pattern");
            f.rest("queue group");
        }
        17 => {
            f.number(8, "id");
        }
        18 => {
            let flags = f.number(1, "flags");
            f.number(1, "how many nodes have passed it on");
            for _ in 0..f.number(4, "queue groups") {
                f.number(8, "queue group");
            }
            f.counted("subject");
            for (flag, what) in [(8, "matched by"), (2, "reply"), (4, "headers")] {
                if flags & flag != 0 {
                    f.counted(what);
                }
            }
            f.rest("payload");
        }
        19 => {
            f.number(8, "id");
            f.number(4, "how many listen");
        }
        32 | 33 => {
            f.number(4, "group");
            f.rest("payload");
        }
        _ => {}
    }
}

#[test]
fn frames_are_written_as_their_version_writes_them() {
    let mut text = Text::new(
        "One of each kind of frame between nodes. Written by samples() in tests/golden/frames.rs.",
    );
    samples(&mut |what, frame| {
        text.section(format!("{} {what}", name_of(&frame)).trim());
        describe(&written(&frame), &mut text, &body);
    });
    hex::check(&fixture("cluster", VERSION, "frames.hex"), &text.0);
}

#[test]
fn kept_frames_are_read_as_they_were_meant() {
    let text = fs::read_to_string(fixture("cluster", VERSION, "frames.hex")).unwrap();
    let mut kept = hex::read(&text).into_iter();
    samples(&mut |what, frame| {
        let section = kept.next().unwrap();
        let bytes = section.bytes();
        assert_eq!(section.name, format!("{} {what}", name_of(&frame)).trim());
        assert_eq!(
            read(&bytes, FRAME_BYTES_MAX),
            Ok(Read::Frame(frame, bytes.len()))
        );
    });
    assert_eq!(kept.next(), None);
}

#[test]
fn every_kind_of_frame_has_a_sample() {
    let mut seen = BTreeSet::new();
    samples(&mut |_, frame| {
        seen.insert(written(&frame)[4]);
    });
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), kinds());
}

#[test]
fn a_frame_of_an_unknown_kind_is_refused_by_name() {
    for kind in (0..=u8::MAX).filter(|kind| !kinds().contains(kind)) {
        let refused = read(&framed(kind, b"body"), FRAME_BYTES_MAX).unwrap_err();
        assert_eq!(refused, WireError::Kind(kind));
        assert_eq!(
            refused.to_string(),
            format!("a frame of kind {kind}: use versions that know each other")
        );
    }
}
