//! Answers the questions of nodes that take over a state, from this node's data, a bounded part in each turn.

use std::collections::VecDeque;

use bytes::Bytes;

use super::wire::{Ask, MessagesEncoder, encode_state};
use crate::replica::Index;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

/// The most bytes of an answer, except for a single larger message.
const ANSWER_BYTES: usize = 256 * 1024;
/// The most questions that wait. The node that asks repeats a question that gets no answer.
const ASKS_MAX: usize = 64;

/// The result of reading a message.
#[derive(Debug)]
pub enum Read {
    /// The message, in the form of an entry that holds only this message.
    Ready(Bytes),
    /// The store is reading the message: the giver asks again in the next turn.
    Pending,
    /// The stream has removed the message, or the store cannot read it.
    Gone,
}

/// The data from which a [`Giver`] answers.
pub trait Source {
    /// Reads a part of the checkpoint as of `index`, or of the newest one if `index` is
    /// [`Index::ZERO`]. Returns the checkpoint's index, its length in bytes, and the part.
    fn state(&mut self, index: Index, offset: u64, len: usize) -> Option<(Index, u64, Vec<u8>)>;

    /// Returns the first message of this stream that is numbered `from` or higher; `None` if there is none.
    fn next(&mut self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq>;

    /// Reads the message of this stream with this number.
    fn message(&mut self, stream: StreamNumber, seq: StreamSeq) -> Read;
}

/// Answers questions about a state: see [`crate::catchup`].
#[derive(Debug, Default)]
pub struct Giver {
    asks: VecDeque<(u64, Ask)>,
    /// The unfinished answer to the first question, and the number of the message with which the answer
    /// continues.
    begun: Option<(MessagesEncoder, StreamSeq)>,
}

impl Giver {
    /// Queues a question of member `from`, unless the same question waits already; `applied` is the last
    /// entry that this member has applied. Ignores a question for messages as of a later entry: the giver
    /// could not tell messages that it has not applied yet from removed ones.
    pub fn handle_ask(&mut self, applied: Index, from: u64, ask: Ask) {
        if matches!(ask, Ask::Messages { index, .. } if index > applied) {
            return;
        }
        if self.asks.len() < ASKS_MAX && !self.asks.contains(&(from, ask)) {
            self.asks.push_back((from, ask));
        }
    }

    /// Returns whether no question waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.asks.is_empty()
    }

    /// Returns the next answer and its receiver; `None` if no question waits, or if the store is still
    /// reading a message for the answer.
    pub fn poll(&mut self, source: &mut dyn Source) -> Option<(u64, Bytes)> {
        let &(to, ask) = self.asks.front()?;
        let answer = match ask {
            Ask::State { index, offset } => match source.state(index, offset, ANSWER_BYTES) {
                Some((index, total, part)) => encode_state(index, offset, total, &part),
                None => encode_state(index, offset, 0, &[]),
            },
            Ask::Messages {
                stream,
                first,
                last,
                ..
            } => self.messages(stream, first, last, source)?,
        };
        self.asks.pop_front();
        Some((to, answer))
    }

    fn messages(
        &mut self,
        stream: StreamNumber,
        first: StreamSeq,
        last: StreamSeq,
        source: &mut dyn Source,
    ) -> Option<Bytes> {
        let fresh = || (MessagesEncoder::begin(stream, first), first);
        let (mut encoder, mut at) = self.begun.take().unwrap_or_else(fresh);
        while let Some(seq) = source.next(stream, at).filter(|seq| *seq <= last) {
            match source.message(stream, seq) {
                Read::Ready(command) => encoder.message(seq, &command),
                Read::Gone => {}
                Read::Pending => {
                    self.begun = Some((encoder, at));
                    return None;
                }
            }
            at = seq.next();
            if encoder.len() >= ANSWER_BYTES {
                return Some(encoder.end(at));
            }
        }
        Some(encoder.end(last.saturating_next()))
    }
}
