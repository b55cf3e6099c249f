//! Fixes the bytes of the questions of a node that is behind, and of their answers.

use std::fs;

use bytes::Bytes;
use tidegate_cluster::VERSION;
use tidegate_raft::catchup::wire::{Answer, Ask, Frame, MessagesEncoder, decode, encode_state};
use tidegate_raft::replica::Index;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Encoder;

use super::hex::{self, Fields, Text};
use super::{entry, fixture};

/// Returns the name of the sample of a kind. The test does not compile until this function names a new kind,
/// and fails until the kind has a sample.
pub(crate) const fn name_of(frame: &Frame) -> &'static str {
    match frame {
        Frame::Ask(Ask::State { .. }) => "ask for a part of a checkpoint",
        Frame::Ask(Ask::Messages { .. }) => "ask for messages",
        Frame::Answer(Answer::State { .. }) => "a part of a checkpoint",
        Frame::Answer(Answer::Messages { .. }) => "messages",
    }
}

pub(crate) fn samples() -> Vec<(Bytes, Frame)> {
    let state = Ask::State {
        index: Index::ZERO,
        offset: 0,
    };
    let next = Ask::State {
        index: Index::new(74),
        offset: 1 << 20,
    };
    let messages = Ask::Messages {
        index: Index::new(74),
        stream: StreamNumber::new(3),
        first: StreamSeq::new(9),
        last: StreamSeq::new(99),
    };
    let part = Answer::State {
        index: Index::new(74),
        offset: 9,
        total: 13,
        bytes: Bytes::from_static(b"part"),
    };
    let none = Answer::State {
        index: Index::ZERO,
        offset: 0,
        total: 0,
        bytes: Bytes::new(),
    };
    let mut message = Vec::new();
    Encoder::begin(&mut message, 1_767_225_600_000_000)
        .publish(StreamNumber::new(3), b"orders.new", None, b"hello")
        .unwrap();
    let mut several = MessagesEncoder::begin(StreamNumber::new(3), StreamSeq::new(9));
    several.message(StreamSeq::new(9), &message);
    several.message(StreamSeq::new(12), &message);
    let answer = Answer::Messages {
        stream: StreamNumber::new(3),
        first: StreamSeq::new(9),
        next: StreamSeq::new(20),
        messages: [9, 12]
            .map(|seq| (StreamSeq::new(seq), Bytes::from(message.clone())))
            .to_vec(),
    };
    vec![
        (state.encode(), Frame::Ask(state)),
        (next.encode(), Frame::Ask(next)),
        (
            encode_state(Index::new(74), 9, 13, b"part"),
            Frame::Answer(part),
        ),
        (encode_state(Index::ZERO, 0, 0, b""), Frame::Answer(none)),
        (messages.encode(), Frame::Ask(messages)),
        (several.end(StreamSeq::new(20)), Frame::Answer(answer)),
    ]
}

fn describe(bytes: &[u8], text: &mut Text) {
    let mut f = Fields::new(bytes, text);
    match f.number(1, "kind") {
        1 => {
            f.number(8, "index");
            f.number(8, "offset");
        }
        2 => {
            f.number(8, "index");
            f.number(8, "offset");
            f.number(8, "total");
            f.bytes(f.rest.len() - 4, "the part");
            f.bytes(4, "CRC32C of everything before it");
        }
        3 => {
            f.number(8, "index");
            f.number(4, "stream");
            f.number(8, "first");
            f.number(8, "last");
        }
        _ => {
            f.number(4, "stream");
            f.number(8, "first");
            f.number(8, "next");
            while f.rest.len() > 4 {
                f.number(8, "message: number");
                let len = f.number(4, "length") as usize;
                let message = f.take(len);
                entry::entry(message, f.text);
            }
            f.bytes(4, "CRC32C of everything before it");
        }
    }
}

#[test]
fn questions_and_answers_are_written_as_their_version_writes_them() {
    let mut text = Text::new(
        "What a node that is behind asks, and what it is answered. Written by samples() in tests/golden/catch_up.rs.",
    );
    for (bytes, frame) in samples() {
        text.section(name_of(&frame));
        describe(&bytes, &mut text);
    }
    hex::check(&fixture("cluster", VERSION, "catch_up.hex"), &text.0);
}

#[test]
fn kept_questions_and_answers_are_read_as_they_were_meant() {
    let text = fs::read_to_string(fixture("cluster", VERSION, "catch_up.hex")).unwrap();
    let kept = hex::read(&text);
    assert_eq!(kept.len(), samples().len());
    for (section, (_, frame)) in kept.iter().zip(samples()) {
        assert_eq!(section.name, name_of(&frame));
        assert_eq!(decode(&section.bytes().into()), Ok(frame));
    }
}

/// Returns the kinds that the decoder reads, by their numbers.
pub(crate) fn kinds() -> Vec<u8> {
    let known = |kind: &u8| {
        let mut bytes = vec![*kind];
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        let read = decode(&bytes.into()).map_err(|e| e.to_string());
        !read.is_err_and(|e| e.contains("its kind is unknown"))
    };
    (0..=u8::MAX).filter(known).collect()
}

#[test]
fn every_kind_of_question_and_answer_has_a_sample() {
    let mut seen: Vec<u8> = samples().iter().map(|(bytes, _)| bytes[0]).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, kinds());
}
