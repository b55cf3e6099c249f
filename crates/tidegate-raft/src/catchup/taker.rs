//! Takes over the state of another node: asks one question at a time, and repeats it until that node answers.

use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, Place, Streams};

use super::wire::{Answer, Ask};
use crate::replica::{EntryId, Index};

/// The silence after which the taker repeats a question.
const AGAIN: Duration = Duration::from_secs(1);
/// The most messages of the new state that the taker examines in a turn.
const TURN_MESSAGES: usize = 16 * 1024;
/// The most message numbers in one question.
const ASKED_MAX: u64 = 16 * 1024;
/// The bound of a checkpoint's bytes, which no real checkpoint reaches: 10 million messages take some 200 MB.
const STATE_BYTES_MAX: u64 = 64 << 30;

/// The messages that the taker has already.
pub trait Own {
    /// Returns the place of this message, if the taker has it.
    fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place>;

    /// Returns the first message of this stream that the taker has, with the number `from` or a higher one.
    fn next(&self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq>;
}

impl Own for Streams {
    fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place> {
        self.get(stream)?.place(seq)
    }

    fn next(&self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        self.get(stream)?.next_at(from, &mut Filter::all())
    }
}

/// The result of an answer, which the caller must handle.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The answer has no result: the caller does nothing.
    Nothing,
    /// The answer completes the checkpoint, and these are its bytes. The caller answers with
    /// [`Taker::handle_state`] or [`Taker::handle_refused`].
    State(Vec<u8>),
    /// Messages of a stream, by number. The caller appends the messages to the log, and then calls
    /// [`Taker::handle_placed`].
    Messages(StreamNumber, Vec<(StreamSeq, Bytes)>),
}

/// Asks for a state, one question at a time: see [`crate::catchup`].
#[derive(Debug)]
pub struct Taker {
    from: u64,
    phase: Phase,
    asked: Option<(Ask, Time)>,
}

#[derive(Debug)]
enum Phase {
    /// The taker fetches the checkpoint.
    State { index: Index, bytes: Vec<u8> },
    /// The taker fetches the messages of its streams.
    Messages(Box<Coming>),
}

/// A state that the taker completes with messages.
#[derive(Debug)]
struct Coming {
    /// The last entry in the state.
    entry: EntryId,
    streams: Streams,
    /// The next message to examine.
    cursor: (StreamNumber, StreamSeq),
    /// True once the taker has examined all messages of the state.
    through: bool,
    /// The number of fetched messages.
    fetched: u64,
    /// The number of fetched messages that have a place in the log.
    placed: u64,
}

impl Taker {
    /// Creates a taker that asks `from`, the leader.
    #[must_use]
    pub const fn new(from: u64) -> Self {
        Self {
            from,
            phase: Phase::State {
                index: Index::ZERO,
                bytes: Vec::new(),
            },
            asked: None,
        }
    }

    /// Sends the questions from now on to member `from`, which has the state, too.
    pub fn ask(&mut self, from: u64) {
        if std::mem::replace(&mut self.from, from) != from {
            self.asked = None;
        }
    }

    /// Returns the question that the caller must send now, and the member to which it goes. The taker asks
    /// for no messages that `own` has.
    pub fn poll(&mut self, now: Time, own: &dyn Own) -> Option<(u64, Ask)> {
        if let Some((ask, until)) = &mut self.asked {
            if *until > now {
                return None;
            }
            *until = now + AGAIN;
            return Some((self.from, *ask));
        }
        let ask = match &mut self.phase {
            Phase::State { index, bytes } => Ask::State {
                index: *index,
                offset: bytes.len() as u64,
            },
            Phase::Messages(coming) => coming.next(own)?,
        };
        self.asked = Some((ask, now + AGAIN));
        Some((self.from, ask))
    }

    /// Returns the time at which the caller must call [`Taker::poll`] again; zero if the taker has messages
    /// left to examine.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match (&self.asked, &self.phase) {
            (Some((_, until)), _) => *until,
            (None, Phase::Messages(coming)) if coming.through => Time::NEVER,
            (None, _) => Time::ZERO,
        }
    }

    /// Handles an answer. An answer to another or an earlier question has no effect.
    pub fn handle_answer(&mut self, answer: Answer) -> Taken {
        let Some((asked, _)) = self.asked else {
            return Taken::Nothing;
        };
        match (asked, answer, &mut self.phase) {
            (
                Ask::State {
                    index: of,
                    offset: at,
                },
                Answer::State {
                    index,
                    offset,
                    total,
                    bytes: part,
                },
                Phase::State {
                    index: known,
                    bytes,
                },
            ) if offset == at => {
                self.asked = None;
                if (of != Index::ZERO && of != index) || total == 0 || total > STATE_BYTES_MAX {
                    // The giver no longer has that checkpoint, or has no checkpoint yet: the taker starts
                    // again with the first part.
                    (*known, *bytes) = (Index::ZERO, Vec::new());
                    let ask = Ask::State {
                        index: Index::ZERO,
                        offset: 0,
                    };
                    self.asked = Some((ask, Time::ZERO));
                    return Taken::Nothing;
                }
                *known = index;
                bytes.extend_from_slice(&part);
                match bytes.len() as u64 >= total {
                    true => Taken::State(std::mem::take(bytes)),
                    false => Taken::Nothing,
                }
            }
            (
                Ask::Messages {
                    stream: of,
                    first: at,
                    last,
                    ..
                },
                Answer::Messages {
                    stream,
                    first,
                    next,
                    mut messages,
                },
                Phase::Messages(coming),
            ) if (stream, first) == (of, at) && next > first => {
                self.asked = None;
                coming.cursor = (stream, next.min(last.saturating_next()));
                let wanted =
                    |seq: StreamSeq| (first..=last).contains(&seq) && coming.lies(stream, seq);
                messages.retain(|(seq, _)| wanted(*seq));
                coming.give_up_missing(stream, first..coming.cursor.1, &messages);
                coming.fetched += messages.len() as u64;
                match messages.is_empty() {
                    true => Taken::Nothing,
                    false => Taken::Messages(stream, messages),
                }
            }
            _ => Taken::Nothing,
        }
    }

    /// Takes the decoded checkpoint: the last entry in its state, and its streams.
    pub fn handle_state(&mut self, entry: EntryId, streams: Streams) {
        self.asked = None;
        self.phase = Phase::Messages(Box::new(Coming {
            entry,
            streams,
            cursor: (StreamNumber::NONE, StreamSeq::ZERO),
            through: false,
            fetched: 0,
            placed: 0,
        }));
    }

    /// Drops a checkpoint that the caller could not decode. The taker asks for a checkpoint again after a
    /// while.
    pub fn handle_refused(&mut self, now: Time) {
        self.phase = Phase::State {
            index: Index::ZERO,
            bytes: Vec::new(),
        };
        let ask = Ask::State {
            index: Index::ZERO,
            offset: 0,
        };
        self.asked = Some((ask, now + AGAIN));
    }

    /// Notes the place of a fetched message in the log. Returns the message's size, as its stream counts it.
    pub fn handle_placed(&mut self, stream: StreamNumber, seq: StreamSeq, place: Place) -> u32 {
        let Phase::Messages(coming) = &mut self.phase else {
            return 0;
        };
        let bytes = coming.streams.get(stream).and_then(|s| s.message(seq));
        coming.place(stream, seq, place);
        coming.placed += 1;
        bytes.map_or(0, |m| m.bytes)
    }

    /// Returns the number of fetched messages that have a place in the log.
    #[must_use]
    pub fn placed(&self) -> u64 {
        match &self.phase {
            Phase::State { .. } => 0,
            Phase::Messages(coming) => coming.placed,
        }
    }

    /// Notes that the log has moved a message of this member's own streams from `from` to `to`.
    pub fn handle_relocated(
        &mut self,
        stream: StreamNumber,
        seq: StreamSeq,
        from: Place,
        to: Place,
    ) {
        if let Phase::Messages(coming) = &mut self.phase {
            coming.streams.relocate(stream, seq, from, to);
        }
    }

    /// Returns whether the state is complete, with all its messages.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(&self.phase, Phase::Messages(coming) if coming.through && self.asked.is_none())
    }

    /// Returns the last entry in the state, the state, and the number of fetched messages. Returns `None`
    /// before the state is complete.
    #[must_use]
    pub fn into_state(self) -> Option<(EntryId, Streams, u64)> {
        match self.phase {
            Phase::Messages(coming) if coming.through && self.asked.is_none() => {
                Some((coming.entry, coming.streams, coming.fetched))
            }
            _ => None,
        }
    }
}

impl Coming {
    fn lies(&self, stream: StreamNumber, seq: StreamSeq) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|s| s.place(seq).is_some())
    }

    fn place(&mut self, stream: StreamNumber, seq: StreamSeq, to: Place) {
        let from = self.streams.get(stream).and_then(|s| s.place(seq));
        if let Some(from) = from {
            self.streams.relocate(stream, seq, from, to);
        }
    }

    /// Notes that the messages among these numbers that the answer lacks have no place: the giver no longer
    /// has them.
    fn give_up_missing(
        &mut self,
        stream: StreamNumber,
        seqs: std::ops::Range<StreamSeq>,
        came: &[(StreamSeq, Bytes)],
    ) {
        let mut all = Filter::all();
        let mut seq = seqs.start;
        let mut came = came.iter().map(|(seq, _)| *seq).peekable();
        while let Some(next) = self
            .next_in(stream, seq, &mut all)
            .filter(|s| *s < seqs.end)
        {
            while came.next_if(|s| *s < next).is_some() {}
            if came.peek() != Some(&next) {
                self.place(stream, next, Place::default());
            }
            seq = next.next();
        }
    }

    fn next_in(
        &self,
        stream: StreamNumber,
        from: StreamSeq,
        all: &mut Filter,
    ) -> Option<StreamSeq> {
        self.streams.get(stream)?.next_at(from, all)
    }

    /// Returns the next question for messages, past all messages that `own` has. Returns `None` if the taker
    /// found no missing message in this turn, or has examined all messages.
    fn next(&mut self, own: &dyn Own) -> Option<Ask> {
        let mut all = Filter::all();
        let mut looked = 0;
        while !self.through {
            let (stream, from) = self.cursor;
            let Some(seq) = self.next_in(stream, from, &mut all) else {
                self.next_stream();
                continue;
            };
            looked += 1;
            if looked > TURN_MESSAGES {
                return None;
            }
            self.cursor = (stream, seq.next());
            match own.place(stream, seq) {
                Some(place) => self.place(stream, seq, place),
                None => {
                    self.cursor = (stream, seq);
                    return Some(Ask::Messages {
                        index: self.entry.index,
                        stream,
                        first: seq,
                        last: last_missing(stream, seq, own),
                    });
                }
            }
        }
        None
    }

    fn next_stream(&mut self) {
        let after = self.cursor.0;
        let ids = self
            .streams
            .iter()
            .filter(|s| !s.in_memory())
            .map(|s| s.id());
        match ids.filter(|id| *id > after).min() {
            Some(id) => self.cursor = (id, StreamSeq::ZERO),
            None => self.through = true,
        }
    }
}

/// Returns the last number, at most [`ASKED_MAX`] numbers from `first` on, up to which `own` has no message.
fn last_missing(stream: StreamNumber, first: StreamSeq, own: &dyn Own) -> StreamSeq {
    let end = first.after(ASKED_MAX);
    let known = own.next(stream, first.next());
    known.map_or(end, |seq| seq.min(end)).prev()
}

#[cfg(test)]
mod tests;
