//! The taker: fetches the state of another member, for a member that no log can bring up to date. The taker
//! asks one question at a time, and repeats the question until the other member answers.

use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Filter, Place, Streams};

use super::wire::{Answer, Ask};
use crate::replica::{EntryId, Index};

/// The time for which the taker waits for an answer. Afterwards the taker repeats the question, because the
/// network may have lost it.
const AGAIN: Duration = Duration::from_secs(1);
/// The greatest number of messages of the new state that the taker examines in one turn of the event loop,
/// so that it does not delay the other work.
const TURN_MESSAGES: usize = 16 * 1024;
/// The greatest number of consecutive message numbers for which the taker asks in one question, so that the
/// giver's work for it is bounded.
const ASKED_MAX: u64 = 16 * 1024;
/// The greatest length of a checkpoint in bytes that the taker accepts. No real checkpoint reaches this
/// length: 10 million messages take some 200 MB.
const STATE_BYTES_MAX: u64 = 64 << 30;

/// The messages that this member's log has already, so that the taker does not fetch them.
pub trait Own {
    /// Returns the place of this message in this member's log; `None` if the log lacks the message.
    fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place>;

    /// Returns the number of the first message from the number `from` on that this member's log has of the
    /// stream. The taker's question ends before that message.
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

/// The content of an answer that the taker hands to the caller, because only the caller can decode or append
/// it.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// The caller has nothing to do: the answer is one part of the checkpoint, or does not match the
    /// question.
    Nothing,
    /// The answer completed the checkpoint. The caller decodes these bytes of the checkpoint, and calls
    /// [`Taker::handle_state`], or [`Taker::handle_refused`] if it cannot decode them.
    State(Vec<u8>),
    /// The answer holds messages of a stream, each with its number. The caller appends the messages to the
    /// log, and then calls [`Taker::handle_placed`].
    Messages(StreamNumber, Vec<(StreamSeq, Bytes)>),
}

/// Asks another member for its state, one question at a time: see [`crate::catchup`].
#[derive(Debug)]
pub struct Taker {
    from: u64,
    phase: Phase,
    asked: Option<(Ask, Time)>,
}

#[derive(Debug)]
enum Phase {
    /// The taker is fetching a checkpoint. It has the index of the checkpoint's last entry, and the
    /// checkpoint's first bytes.
    State { index: Index, bytes: Vec<u8> },
    /// The taker has a checkpoint, and is fetching the messages of the checkpoint's streams.
    Messages(Box<Coming>),
}

/// The state in a fetched checkpoint, for which the taker fetches the messages that this member's log lacks.
#[derive(Debug)]
struct Coming {
    /// The last entry that the fetched state includes. The member continues behind it.
    entry: EntryId,
    streams: Streams,
    /// The stream and the number of the message that the taker examines next: it asks for the message if
    /// this member's log lacks it.
    cursor: (StreamNumber, StreamSeq),
    /// True once the taker has examined all messages of the fetched state, so that none is missing any more.
    through: bool,
    /// The number of messages that the taker has fetched for this state, for the report of the catch-up.
    fetched: u64,
    /// The number of fetched messages that already have a place in this member's log.
    placed: u64,
}

impl Taker {
    /// Creates a taker that fetches the state from member `from`, the leader.
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

    /// Makes the taker send all further questions to member `from`, another member with the state, for
    /// instance after a change of leader.
    pub fn ask(&mut self, from: u64) {
        if std::mem::replace(&mut self.from, from) != from {
            self.asked = None;
        }
    }

    /// Returns the question that the caller must send now, and the member to which it goes. Returns `None`
    /// while the taker waits for an answer, and if no message of the state is missing. The taker asks for no
    /// message that `own` has.
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

    /// Returns the time at which the caller must call [`Taker::poll`] again. If the taker has messages left
    /// to examine, the time is now.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match (&self.asked, &self.phase) {
            (Some((_, until)), _) => *until,
            (None, Phase::Messages(coming)) if coming.through => Time::NEVER,
            (None, _) => Time::ZERO,
        }
    }

    /// Handles an answer of the asked member. An answer that does not match the question in flight has no
    /// effect, because it may be late or repeated.
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
                    // The asked member no longer has the checkpoint that the taker was fetching, or has no
                    // usable checkpoint. So the taker starts again with the first part of the newest
                    // checkpoint.
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

    /// Takes the decoded checkpoint: the last entry in its state, and its streams. The taker then fetches the
    /// missing messages.
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

    /// Drops a fetched checkpoint that the caller could not decode. The taker asks for a checkpoint again
    /// after the time for which it would wait for an answer.
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

    /// Notes the place of a fetched message in this member's log, so that the new state refers to that
    /// place. Returns the message's size in bytes, as its stream counts it.
    pub fn handle_placed(&mut self, stream: StreamNumber, seq: StreamSeq, place: Place) -> u32 {
        let Phase::Messages(coming) = &mut self.phase else {
            return 0;
        };
        let bytes = coming.streams.get(stream).and_then(|s| s.message(seq));
        coming.place(stream, seq, place);
        coming.placed += 1;
        bytes.map_or(0, |m| m.bytes)
    }

    /// Returns the number of messages fetched for this state that already have a place in this member's log,
    /// for the caller's progress.
    #[must_use]
    pub fn placed(&self) -> u64 {
        match &self.phase {
            Phase::State { .. } => 0,
            Phase::Messages(coming) => coming.placed,
        }
    }

    /// Returns whether the fetched state is complete, so that the member can take it over: the taker has
    /// examined all messages of the state, and waits for no answer.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(&self.phase, Phase::Messages(coming) if coming.through && self.asked.is_none())
    }

    /// Ends the taker and returns the last entry in the fetched state, the state, and the number of fetched
    /// messages. Returns `None` if the state is not complete.
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

    /// Finds the messages of the state with numbers in `seqs` that the answer lacks. The asked member no
    /// longer has these messages, so they get no place in this member's log.
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

    /// Returns the next question for messages: for the first message of the state that `own` lacks, and the
    /// numbers behind it. Returns `None` if the taker found no missing message in this turn, or has examined
    /// all messages.
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

/// Returns the last number of a run of missing messages that starts at `first`: the number before the next
/// message that `own` has. The run has at most [`ASKED_MAX`] numbers, so that one question can ask for it.
fn last_missing(stream: StreamNumber, first: StreamSeq, own: &dyn Own) -> StreamSeq {
    let end = first.after(ASKED_MAX);
    let known = own.next(stream, first.next());
    known.map_or(end, |seq| seq.min(end)).prev()
}

#[cfg(test)]
mod tests;
