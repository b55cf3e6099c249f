//! Fixes the greeting of two nodes, frame by frame, and their refusal of each other if their versions differ.

use std::fs;

use tidegate_cluster::greeting::{Greeting, GreetingError, Introduction, Judge};
use tidegate_cluster::proof::{Secret, Side};
use tidegate_cluster::refusal::Refusal;
use tidegate_cluster::wire::{Frame, GREETING_BYTES_MAX, Read, read};
use tidegate_cluster::{Kind, VERSION};
use tidegate_nats::outbox::{Outbox, Pool};

use super::hex::{self, Fields, Text};
use super::{fixture, frames};

struct Node {
    me: Introduction,
    secret: Secret,
}

fn node(name: &str, id: u64, version: u16) -> Node {
    let me = Introduction {
        version,
        streams: true,
        rejoins: false,
        shards: 2,
        id,
        life: id << 32,
        digest: 0x0123_4567_89ab_cdef,
        cluster: "tide".into(),
        name: name.into(),
        client_url: format!("{name}.example:4222"),
        tags: Vec::new(),
        ..Introduction::default()
    };
    Node {
        me,
        secret: Secret::new("the cluster's secret"),
    }
}

impl Judge for Node {
    fn introduction(&self, kind: Kind) -> Introduction {
        Introduction {
            raft: kind == Kind::Raft,
            ..self.me.clone()
        }
    }
    fn secret(&self) -> &Secret {
        &self.secret
    }
    fn suits(&self, _: &Introduction) -> Result<(), Refusal> {
        Ok(())
    }
    fn admits(&self, _: Side, _: &Introduction) -> Result<(), Refusal> {
        Ok(())
    }
}

type Outcome = Option<Result<Introduction, GreetingError>>;

/// Runs the greeting of both nodes. Returns the frames, with the sender of each, and the outcome on either
/// side.
fn greet(
    dialer: &Node,
    dialled: &Node,
    kind: Kind,
) -> (Vec<(&'static str, Vec<u8>)>, [Outcome; 2]) {
    let mut outs = [Outbox::default(), Outbox::default()];
    let mut sides = [
        Greeting::dial(kind, [0xd1; 32], dialer, &mut outs[0]),
        Greeting::answer([0xa2; 32], false),
    ];
    let (mut said, mut done) = (Vec::new(), [None, None]);
    for turn in 0..6 {
        let (from, to) = (turn % 2, (turn + 1) % 2);
        let bytes = outs[from].to_vec();
        outs[from].clear(&mut Pool::default());
        if bytes.is_empty() {
            continue;
        }
        let Ok(Read::Frame(frame, used)) = read(&bytes, GREETING_BYTES_MAX) else {
            panic!("no frame: {bytes:?}");
        };
        assert_eq!(used, bytes.len());
        let judge = [dialer, dialled][to];
        if done[to].is_none() {
            done[to] = sides[to].handle(&frame, judge, &mut outs[to]).transpose();
        }
        said.push((["dialer", "dialled"][from], bytes));
    }
    (said, done)
}

fn body(kind: u8, f: &mut Fields<'_>) {
    match kind {
        1 | 2 => {
            f.bytes(8, "magic");
            f.number(2, "version");
            f.number(1, "what the channel is for");
            f.number(1, "flags");
            f.number(1, "groups of all nodes");
            f.number(8, "id");
            f.number(8, "life");
            f.bytes(8, "digest of the members");
            f.bytes(32, "nonce");
            f.counted("cluster");
            f.counted("name");
            f.counted("where clients connect");
        }
        3 | 4 => {
            f.bytes(32, "HMAC-SHA256");
        }
        _ => {}
    }
}

#[test]
fn a_greeting_is_said_as_its_version_says_it() {
    let mut text = Text::new(
        "A greeting, frame by frame, of a node `n1` that dials `n2`. Written by greet() in tests/golden/greeting.rs.",
    );
    for (kind, what) in [(Kind::Route, "route"), (Kind::Raft, "raft")] {
        let (said, done) = greet(&node("n1", 1, VERSION), &node("n2", 2, VERSION), kind);
        assert!(done.iter().all(|d| matches!(d, Some(Ok(_)))), "{done:?}");
        for (who, bytes) in said {
            text.section(&format!("{what}, {who}"));
            frames::describe(&bytes, &mut text, &body);
        }
    }
    hex::check(&fixture("cluster", VERSION, "greeting.hex"), &text.0);
}

/// Checks that a node accepts a dialer that sends the frames of the fixture.
#[test]
fn a_kept_greeting_is_answered() {
    let text = fs::read_to_string(fixture("cluster", VERSION, "greeting.hex")).unwrap();
    let kept: Vec<_> = hex::read(&text).iter().map(hex::Section::bytes).collect();
    let (n2, mut out) = (node("n2", 2, VERSION), Outbox::default());
    let mut greeting = Greeting::answer([0xa2; 32], false);
    for (said, answered, last) in [(0, 1, false), (2, 3, true)] {
        let Ok(Read::Frame(frame, _)) = read(&kept[said], GREETING_BYTES_MAX) else {
            panic!("no frame");
        };
        let done = greeting.handle(&frame, &n2, &mut out).unwrap();
        assert_eq!(done.is_some(), last);
        assert!(out.to_vec() == kept[answered]);
        out.clear(&mut Pool::default());
    }
}

fn line(outcome: &Outcome) -> String {
    match outcome {
        Some(Err(GreetingError::Refused(refusal))) => refusal.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn nodes_of_two_protocols_refuse_each_other_by_name_and_both_say_the_same() {
    let (today, later) = (node("n1", 1, VERSION), node("n2", 2, VERSION + 1));
    let (next, program) = (VERSION + 1, env!("CARGO_PKG_VERSION"));
    let says = format!(
        "`n2` speaks version {next} of the protocol between nodes, `n1` (tidegate {program}) version {VERSION}: run the same version \
         of tidegate on all nodes of a cluster, and stop them all to change it"
    );
    for (dialer, dialled) in [(&today, &later), (&later, &today)] {
        let (said, [of_dialer, of_dialled]) = greet(dialer, dialled, Kind::Route);
        assert_eq!(line(&of_dialer), says);
        assert_eq!(line(&of_dialled), says);
        // Neither node proved anything, so no peer can guess at the secret.
        assert!(said.iter().all(|(_, frame)| !matches!(frame[4], 3 | 4)));
    }
}

/// Checks that a node takes bytes after today's fields and an unreadable name for a later version.
#[test]
fn an_introduction_of_another_layout_is_refused_for_its_version() {
    let text = fs::read_to_string(fixture("cluster", VERSION, "greeting.hex")).unwrap();
    let kept = hex::read(&text)[0].bytes();
    let hello = &kept[5..kept.len() - 4];
    let mut later = hello.to_vec();
    later[8..10].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let refused = |hello: &[u8]| {
        let mut greeting = Greeting::answer([0; 32], false);
        let mut out = Outbox::default();
        let outcome = greeting.handle(&Frame::Hello(hello), &node("n2", 2, VERSION), &mut out);
        line(&outcome.transpose())
    };
    let next = VERSION + 1;
    for cut in 10..hello.len() {
        let says = refused(&later[..cut]);
        let named = says.starts_with(&format!("`n1` speaks version {next} of the protocol"));
        let nameless = says.starts_with(&format!(
            "the other node speaks version {next} of the protocol"
        ));
        assert!(named || nameless, "cut at {cut}: {says}");
    }
    later.extend(b"more");
    assert!(refused(&later).starts_with("`n1` "));
}
