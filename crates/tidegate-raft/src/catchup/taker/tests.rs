//! Tests a catch-up between a taker and a giver, over a simulated network that loses messages.

use std::collections::BTreeMap;

use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Outcome};

use super::*;
use crate::catchup::giver::{Giver, Read, Source};
use crate::catchup::wire::{self, Frame};

const CONFIG: &[u8] = br#"{"name":"S","subjects":["s.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":3,"duplicate_window":0}"#;
const BEFORE: u64 = 1 << 32;

/// A simulated node, as taker or giver: its streams and its log.
struct Node {
    streams: Streams,
    log: BTreeMap<u64, Bytes>,
    next: u64,
    /// The messages of the only stream that the node has fetched and that `streams` does not include yet,
    /// with their places in the log.
    staged: BTreeMap<StreamSeq, Place>,
    /// The node's checkpoint, and the index of the last entry in it.
    state: Option<(Index, Vec<u8>)>,
    /// True if each read of a message succeeds only at the second attempt, as from a slow disk.
    slow: bool,
    read: Option<StreamSeq>,
}

impl Node {
    fn new(first: u64) -> Self {
        Self {
            streams: Streams::new(AccountLimits::NONE),
            log: BTreeMap::new(),
            next: first,
            staged: BTreeMap::new(),
            state: None,
            slow: false,
            read: None,
        }
    }

    fn apply(&mut self, commands: &[Command<'_>]) {
        let mut entry = bytes::BytesMut::new();
        let mut encoder = Encoder::begin(&mut entry, 1_000_000);
        for command in commands {
            encoder.command(command).unwrap();
        }
        let (entry, mut out) = (entry.freeze(), Vec::new());
        let applied = self
            .streams
            .apply(self.next, &entry, &mut out, &mut Vec::new());
        applied.unwrap();
        assert!(
            !out.iter().any(|o| matches!(o, Outcome::Refused { .. })),
            "{out:?}"
        );
        self.log.insert(self.next, entry);
        self.next += 1000;
    }

    fn publish(&mut self, from: u32, to: u32) {
        for n in from..to {
            let text = format!("message {n}").repeat(200);
            self.apply(&[Command::new(
                Kind::Publish,
                StreamNumber::FIRST,
                b"s.a",
                text.as_bytes(),
            )]);
        }
    }

    fn checkpoint(&mut self) {
        let bytes: Vec<u8> = self.streams.snapshot().chunks().flatten().collect();
        self.state = Some((Index::new(42), bytes));
    }

    fn payload(&self, place: Place) -> Vec<u8> {
        Command::read(&self.log[&place.lsn], place.offset)
            .unwrap()
            .payload
            .to_vec()
    }
}

impl Own for Node {
    fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place> {
        let known = self.streams.place(stream, seq);
        known.or_else(|| self.staged.get(&seq).copied())
    }

    fn next(&self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        let apart = self.staged.range(from..).next().map(|(&seq, _)| seq);
        let known = Own::next(&self.streams, stream, from);
        known.into_iter().chain(apart).min()
    }
}

impl Source for Node {
    fn state(&mut self, index: Index, offset: u64, len: usize) -> Option<(Index, u64, Vec<u8>)> {
        let (of, bytes) = self.state.as_ref()?;
        (index == Index::ZERO || index == *of).then_some(())?;
        let rest = &bytes[usize::try_from(offset).unwrap()..];
        // The giver answers with small parts, so that it gives the checkpoint in several parts.
        Some((
            *of,
            bytes.len() as u64,
            rest[..rest.len().min(len).min(1000)].to_vec(),
        ))
    }

    fn next(&mut self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        self.streams.get(stream)?.next_at(from, &mut Filter::all())
    }

    fn message(&mut self, stream: StreamNumber, seq: StreamSeq) -> Read {
        if self.slow && self.read.replace(seq) != Some(seq) {
            return Read::Pending;
        }
        let place = self.streams.get(stream).unwrap().place(seq).unwrap();
        let entry = &self.log[&place.lsn];
        let command = Command::read(entry, place.offset).unwrap().encoded_bytes();
        let offset = place.offset as usize;
        Read::Ready(entry.slice(offset..offset + command))
    }
}

/// Returns whether the simulated network loses the message of this turn: about a third of the messages,
/// spread irregularly.
fn lost(turn: u64) -> bool {
    (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(3)
}

/// Lets the taker ask and the giver answer until the taker has the complete state. Returns the number of
/// messages that the taker fetched.
fn catch_up(taker: &mut Taker, own: &mut Node, giver: &mut Node, lossy: bool) -> u64 {
    let (mut now, mut turns) = (Time::ZERO, 0_u64);
    let mut answers = Giver::default();
    let mut fetched = 0;
    while !taker.is_done() {
        turns += 1;
        assert!(turns < 100_000, "it never ends: {taker:?}");
        now = now + Duration::from_millis(400);
        if let Some((to, ask)) = taker.poll(now, own) {
            assert_eq!(to, 3);
            let Ok(Frame::Ask(ask)) = wire::decode(&ask.encode()) else {
                panic!("a question");
            };
            if !(lossy && lost(turns)) {
                answers.handle_ask(Index::new(100), 1, ask);
            }
        }
        let Some((1, bytes)) = answers.poll(giver) else {
            continue;
        };
        let Ok(Frame::Answer(answer)) = wire::decode(&bytes) else {
            panic!("an answer");
        };
        if lossy && lost(turns + 100_000) {
            continue;
        }
        let again = answer.clone();
        match taker.handle_answer(answer) {
            Taken::Nothing => {}
            Taken::State(state) => {
                let streams = Streams::restore(&state, AccountLimits::NONE).unwrap();
                taker.handle_state(EntryId::new(42, 7), streams);
            }
            Taken::Messages(stream, messages) => {
                for (seq, command) in messages {
                    let lsn = own.next;
                    own.next += 1000;
                    own.log.insert(lsn, command);
                    let place = Place { lsn, offset: 0 };
                    assert!(taker.handle_placed(stream, seq, place) > 0);
                    own.staged.insert(seq, place);
                    fetched += 1;
                }
            }
        }
        assert_eq!(taker.handle_answer(again), Taken::Nothing, "twice is once");
    }
    fetched
}

fn nodes() -> (Node, Node) {
    let (mut giver, mut own) = (Node::new(16), Node::new(BEFORE));
    for node in [&mut giver, &mut own] {
        node.apply(&[Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            b"",
            CONFIG,
        )]);
        node.publish(0, 100);
    }
    giver.publish(100, 1000);
    (giver, own)
}

#[test]
fn present_messages_are_not_fetched_and_lost_answers_come_again() {
    for (lossy, slow) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut giver, mut own) = nodes();
        giver.slow = slow;
        giver.checkpoint();
        let mut taker = Taker::new(3);
        assert_eq!(catch_up(&mut taker, &mut own, &mut giver, lossy), 900);
        let (entry, streams, fetched) = taker.into_state().unwrap();
        assert_eq!((entry, fetched), (EntryId::new(42, 7), 900));
        streams.check_invariants();
        let (ours, theirs) = (
            streams.get(StreamNumber::FIRST).unwrap(),
            giver.streams.get(StreamNumber::FIRST).unwrap(),
        );
        assert_eq!(ours.state(), theirs.state());
        for seq in 1..=1000 {
            let place = ours.place(StreamSeq::new(seq)).unwrap();
            assert!(place.lsn >= BEFORE, "message {seq} lies here");
            assert_eq!(
                own.payload(place),
                giver.payload(theirs.place(StreamSeq::new(seq)).unwrap())
            );
        }
    }
}

#[test]
fn messages_fetched_before_are_not_fetched_again() {
    let (mut giver, mut own) = nodes();
    giver.checkpoint();
    catch_up(&mut Taker::new(3), &mut own, &mut giver, false);
    // The test drops some fetched messages, as if the first catch-up had broken off.
    own.staged.retain(|seq, _| seq.get() % 100 > 10);
    let mut taker = Taker::new(3);
    assert_eq!(catch_up(&mut taker, &mut own, &mut giver, false), 99);
    assert_eq!(taker.placed(), 99);
    let (_, streams, _) = taker.into_state().unwrap();
    let (ours, theirs) = (
        streams.get(StreamNumber::FIRST).unwrap(),
        giver.streams.get(StreamNumber::FIRST).unwrap(),
    );
    for seq in 1..=1000 {
        let (place, other) = (
            ours.place(StreamSeq::new(seq)).unwrap(),
            theirs.place(StreamSeq::new(seq)).unwrap(),
        );
        assert_eq!(own.payload(place), giver.payload(other));
    }
}

#[test]
fn messages_removed_since_have_no_place() {
    let (mut giver, mut own) = nodes();
    giver.checkpoint();
    giver.apply(&[Command::new(
        Kind::Purge,
        StreamNumber::FIRST,
        b"",
        br#"{"keep":10}"#,
    )]);
    let mut taker = Taker::new(3);
    assert_eq!(catch_up(&mut taker, &mut own, &mut giver, false), 10);
    let (_, streams, _) = taker.into_state().unwrap();
    let stream = streams.get(StreamNumber::FIRST).unwrap();
    assert_eq!(stream.state().messages, 1000);
    assert!(stream.place(StreamSeq::new(100)).unwrap().lsn >= BEFORE);
    assert_eq!(stream.place(StreamSeq::new(500)), Some(Place::default()));
    assert!(stream.place(StreamSeq::new(995)).unwrap().lsn >= BEFORE);
}

#[test]
fn a_checkpoint_that_is_replaced_is_fetched_from_its_beginning() {
    let (mut giver, mut own) = nodes();
    giver.checkpoint();
    let mut taker = Taker::new(3);
    let mut part = |giver: &mut Node, now| {
        let (_, ask) = taker.poll(now, &own.streams).unwrap();
        let mut answers = Giver::default();
        answers.handle_ask(Index::new(100), 1, ask);
        let (_, bytes) = answers.poll(giver).unwrap();
        let Ok(Frame::Answer(answer)) = wire::decode(&bytes) else {
            panic!("an answer");
        };
        (ask, taker.handle_answer(answer))
    };
    let offset = |ask: Ask| match ask {
        Ask::State { offset, .. } => offset,
        Ask::Messages { .. } => panic!("the checkpoint comes first"),
    };
    let (first, _) = part(&mut giver, Time::ZERO);
    let (second, _) = part(&mut giver, Time::ZERO);
    assert_eq!((offset(first), offset(second)), (0, 1000));
    giver.state.as_mut().unwrap().0 = Index::new(43);
    let (gone, taken) = part(&mut giver, Time::ZERO);
    assert_eq!((offset(gone), taken), (2000, Taken::Nothing));
    let (anew, _) = part(&mut giver, Time::ZERO + Duration::from_secs(2));
    assert_eq!(offset(anew), 0);
    let _ = &mut own;
}
