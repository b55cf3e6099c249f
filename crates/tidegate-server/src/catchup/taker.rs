//! Who takes over a state: asks for one thing at a time, and goes on asking until it is answered.

use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;

use super::wire::{Answer, Ask};
use crate::stream::{Filter, Place, Streams};

/// Silence after which a question is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// Messages looked at in a turn.
const TURN_MESSAGES: usize = 16 * 1024;
/// The most numbers one question names.
const ASKED_MAX: u64 = 16 * 1024;
/// A checkpoint larger than this is none: 10 million messages take some 200 MB.
const STATE_BYTES_MAX: u64 = 64 << 30;

/// What the asker has already.
pub trait Own {
    /// Where it has this message.
    fn place(&self, stream: u32, seq: u64) -> Option<Place>;

    /// The first message of the stream it has that is numbered `from` or higher.
    fn next(&self, stream: u32, from: u64) -> Option<u64>;
}

impl Own for Streams {
    fn place(&self, stream: u32, seq: u64) -> Option<Place> {
        self.get(stream)?.place(seq)
    }

    fn next(&self, stream: u32, from: u64) -> Option<u64> {
        self.get(stream)?.next_at(from, &mut Filter::all())
    }
}

/// What an answer came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing yet.
    Nothing,
    /// This is the checkpoint: [`Taker::handle_state`] is to follow, or [`Taker::handle_refused`].
    State(Vec<u8>),
    /// These messages of a stream, by number, are to be appended: [`Taker::handle_placed`] is to follow.
    Messages(u32, Vec<(u64, Bytes)>),
}

/// Asks for a state, one thing at a time: see [`crate::catchup`].
#[derive(Debug)]
pub struct Taker {
    from: u64,
    phase: Phase,
    asked: Option<(Ask, Time)>,
}

#[derive(Debug)]
enum Phase {
    /// The checkpoint comes in.
    State { index: u64, bytes: Vec<u8> },
    /// The messages of its streams come in.
    Messages(Box<Coming>),
}

/// A state whose messages come in.
#[derive(Debug)]
struct Coming {
    index: u64,
    term: u64,
    streams: Streams,
    /// The next message to look at.
    cursor: (u32, u64),
    /// All were looked at.
    through: bool,
    /// How many came.
    fetched: u64,
    /// How many of these are placed.
    placed: u64,
}

impl Taker {
    /// Asks `from`: whoever leads.
    #[must_use]
    pub const fn new(from: u64) -> Self {
        Self {
            from,
            phase: Phase::State {
                index: 0,
                bytes: Vec::new(),
            },
            asked: None,
        }
    }

    /// Another member has it, too: it is asked from now on.
    pub fn ask(&mut self, from: u64) {
        if std::mem::replace(&mut self.from, from) != from {
            self.asked = None;
        }
    }

    /// The question to ask now, and whom. Messages that `own` has are not asked for.
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

    /// When to poll next; at once if there is more to look at.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match (&self.asked, &self.phase) {
            (Some((_, until)), _) => *until,
            (None, Phase::Messages(coming)) if coming.through => Time::NEVER,
            (None, _) => Time::ZERO,
        }
    }

    /// An answer; one to what was not asked, or asked before, changes nothing.
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
                if (of != 0 && of != index) || total == 0 || total > STATE_BYTES_MAX {
                    // That one is gone, or none is there yet: from the beginning, after a while.
                    (*known, *bytes) = (0, Vec::new());
                    let ask = Ask::State {
                        index: 0,
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
                coming.cursor = (stream, next.min(last.saturating_add(1)));
                let wanted = |seq: u64| (first..=last).contains(&seq) && coming.lies(stream, seq);
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

    /// The checkpoint was read: these are its streams, as of this entry.
    pub fn handle_state(&mut self, index: u64, term: u64, streams: Streams) {
        self.asked = None;
        self.phase = Phase::Messages(Box::new(Coming {
            index,
            term,
            streams,
            cursor: (0, 0),
            through: false,
            fetched: 0,
            placed: 0,
        }));
    }

    /// The checkpoint was none: it is asked for again.
    pub fn handle_refused(&mut self, now: Time) {
        self.phase = Phase::State {
            index: 0,
            bytes: Vec::new(),
        };
        let ask = Ask::State {
            index: 0,
            offset: 0,
        };
        self.asked = Some((ask, now + AGAIN));
    }

    /// A message that came in lies there now; what it counts.
    pub fn handle_placed(&mut self, stream: u32, seq: u64, place: Place) -> u32 {
        let Phase::Messages(coming) = &mut self.phase else {
            return 0;
        };
        let bytes = coming.streams.get(stream).and_then(|s| s.message(seq));
        coming.place(stream, seq, place);
        coming.placed += 1;
        bytes.map_or(0, |m| m.bytes)
    }

    /// How many messages came and have their place.
    #[must_use]
    pub fn placed(&self) -> u64 {
        match &self.phase {
            Phase::State { .. } => 0,
            Phase::Messages(coming) => coming.placed,
        }
    }

    /// A message of the own streams lies elsewhere now.
    pub fn handle_relocated(&mut self, stream: u32, seq: u64, from: Place, to: Place) {
        if let Phase::Messages(coming) = &mut self.phase {
            coming.streams.relocate(stream, seq, from, to);
        }
    }

    /// Returns whether everything is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(&self.phase, Phase::Messages(coming) if coming.through && self.asked.is_none())
    }

    /// The state: as of which entry and its term, and how many messages were fetched. `None` before it is
    /// whole.
    #[must_use]
    pub fn into_state(self) -> Option<(u64, u64, Streams, u64)> {
        match self.phase {
            Phase::Messages(coming) if coming.through && self.asked.is_none() => {
                Some((coming.index, coming.term, coming.streams, coming.fetched))
            }
            _ => None,
        }
    }
}

impl Coming {
    fn lies(&self, stream: u32, seq: u64) -> bool {
        self.streams
            .get(stream)
            .is_some_and(|s| s.place(seq).is_some())
    }

    fn place(&mut self, stream: u32, seq: u64, to: Place) {
        let from = self.streams.get(stream).and_then(|s| s.place(seq));
        if let Some(from) = from {
            self.streams.relocate(stream, seq, from, to);
        }
    }

    /// Those of these numbers that did not come are not to be had any more.
    fn give_up_missing(&mut self, stream: u32, seqs: std::ops::Range<u64>, came: &[(u64, Bytes)]) {
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
            seq = next + 1;
        }
    }

    fn next_in(&self, stream: u32, from: u64, all: &mut Filter) -> Option<u64> {
        self.streams.get(stream)?.next_at(from, all)
    }

    /// The next question, past all that `own` has; `None` if there is none yet, or no more.
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
            self.cursor = (stream, seq + 1);
            match own.place(stream, seq) {
                Some(place) => self.place(stream, seq, place),
                None => {
                    self.cursor = (stream, seq);
                    return Some(Ask::Messages {
                        index: self.index,
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
            Some(id) => self.cursor = (id, 0),
            None => self.through = true,
        }
    }
}

/// The last number, not far from `first`, up to which there is nothing that `own` has.
fn last_missing(stream: u32, first: u64, own: &dyn Own) -> u64 {
    let end = first + ASKED_MAX;
    let known = own.next(stream, first + 1);
    known.map_or(end, |seq| seq.min(end)) - 1
}

#[cfg(test)]
mod tests;
