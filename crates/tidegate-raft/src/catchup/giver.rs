//! The giver: answers the questions of other members that fetch this node's state. It does a bounded part of
//! the work in each turn of the event loop, so that it does not delay the other work.

use std::collections::VecDeque;

use bytes::Bytes;

use super::wire::{Ask, MessagesEncoder, encode_state};
use crate::replica::Index;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;

/// The length in bytes from which on the giver adds no further message to an answer. The last added message
/// may make the answer longer than this bound.
const ANSWER_BYTES: usize = 256 * 1024;
/// The greatest number of questions that wait at the giver, which bounds its memory. The giver drops further
/// questions, because the asking member repeats a question that gets no answer.
const ASKS_MAX: usize = 64;

/// The result of an attempt to read a message of a stream for an answer.
#[derive(Debug)]
pub enum Read {
    /// The store has read the message. The bytes have the form of an entry that holds only this message.
    Ready(Bytes),
    /// The store is still reading the message: the giver asks the store again in the next turn of the event
    /// loop.
    Pending,
    /// The stream has removed the message, or the store cannot read it from the log.
    Gone,
}

/// The data of this node from which a [`Giver`] answers other members.
pub trait Source {
    /// Reads at most `len` bytes, from `offset` on, of the checkpoint as of the entry `index`, or of the
    /// newest checkpoint if `index` is [`Index::ZERO`]. Returns the checkpoint's index, its length in bytes,
    /// and the bytes read; `None` if this node has no such checkpoint.
    fn state(&mut self, index: Index, offset: u64, len: usize) -> Option<(Index, u64, Vec<u8>)>;

    /// Returns the number of the stream's first message from the number `from` on, by which the giver goes
    /// through the messages of an answer; `None` if the stream has no such message.
    fn next(&mut self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq>;

    /// Reads the message of this stream with the number `seq`, for an answer to another member.
    fn message(&mut self, stream: StreamNumber, seq: StreamSeq) -> Read;
}

/// Queues the questions of members that fetch this node's state, and answers them: see [`crate::catchup`].
#[derive(Debug, Default)]
pub struct Giver {
    asks: VecDeque<(u64, Ask)>,
    /// The unfinished answer to the first queued question, with the number of the message with which the
    /// answer continues.
    begun: Option<(MessagesEncoder, StreamSeq)>,
}

impl Giver {
    /// Queues a question of member `from`, unless the same question waits already. `applied` is the last
    /// entry that this member has applied. Ignores a question about the messages that exist after a later
    /// entry, because this member could not tell a message that it has not applied yet from a removed one.
    pub fn handle_ask(&mut self, applied: Index, from: u64, ask: Ask) {
        if matches!(ask, Ask::Messages { index, .. } if index > applied) {
            return;
        }
        if self.asks.len() < ASKS_MAX && !self.asks.contains(&(from, ask)) {
            self.asks.push_back((from, ask));
        }
    }

    /// Returns whether no question of another member waits for an answer, so that the caller need not poll.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.asks.is_empty()
    }

    /// Returns the next answer, for the caller to send, and the member that asked for it. Returns `None` if
    /// no question waits, or if the store is still reading a message for the answer.
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
