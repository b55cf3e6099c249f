//! Who is asked for a state: answers from what it has, a bounded part in each turn.

use std::collections::VecDeque;

use bytes::Bytes;

use super::wire::{Ask, MessagesEncoder, encode_state};

/// The most bytes of an answer, but for one message larger than that.
const ANSWER_BYTES: usize = 256 * 1024;
/// Questions that wait; whoever is not answered asks again.
const ASKS_MAX: usize = 64;

/// A message, as far as it can be read.
#[derive(Debug)]
pub enum Read {
    /// It, as an entry of its own.
    Ready(Bytes),
    /// It is being read: the next turn has it.
    Pending,
    /// It cannot be had.
    Gone,
}

/// What answers are made of.
pub trait Source {
    /// A part of the checkpoint as of `index`, of the newest for 0: as of which entry, its bytes in all, the
    /// part.
    fn state(&mut self, index: u64, offset: u64, len: usize) -> Option<(u64, u64, Vec<u8>)>;

    /// The first message of this stream that is numbered `from` or higher; `None` if there is none.
    fn next(&mut self, stream: u32, from: u64) -> Option<u64>;

    /// That message.
    fn message(&mut self, stream: u32, seq: u64) -> Read;
}

/// Answers those who ask for a state: see [`crate::catchup`].
#[derive(Debug, Default)]
pub struct Giver {
    asks: VecDeque<(u64, Ask)>,
    /// The answer that is being made: to the first question, up to here.
    begun: Option<(MessagesEncoder, u64)>,
}

impl Giver {
    /// A question of this member, when so much was applied here. The same one again is the same one; what was
    /// not applied yet cannot be told from what is gone, so nothing is said of it.
    pub fn handle_ask(&mut self, applied: u64, from: u64, ask: Ask) {
        if matches!(ask, Ask::Messages { index, .. } if index > applied) {
            return;
        }
        if self.asks.len() < ASKS_MAX && !self.asks.contains(&(from, ask)) {
            self.asks.push_back((from, ask));
        }
    }

    /// Returns whether there is something to answer.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.asks.is_empty()
    }

    /// The next answer, and to whom; `None` if there is none yet.
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
        stream: u32,
        first: u64,
        last: u64,
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
            at = seq + 1;
            if encoder.len() >= ANSWER_BYTES {
                return Some(encoder.end(at));
            }
        }
        Some(encoder.end(last.saturating_add(1)))
    }
}
