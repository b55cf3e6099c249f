//! The last message of each subject at the time when a consumer started. The consumer delivers these messages
//! before all later messages.
//!
//! Owns the list of these messages. The stream chooses them.

use crate::schema::sequence::StreamSeq;

/// The messages of the list that the consumer has still to deliver, by rising number. In `seqs` the top bit
/// marks a message that the stream has removed meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Skip {
    seqs: Vec<u64>,
    at: usize,
    left: u64,
}

const REMOVED: u64 = 1 << 63;

impl Skip {
    /// Creates a list of these messages, which must have rising numbers.
    pub(super) fn new(seqs: Vec<StreamSeq>) -> Self {
        debug_assert!(seqs.is_sorted());
        Self {
            left: seqs.len() as u64,
            seqs: seqs.into_iter().map(StreamSeq::get).collect(),
            at: 0,
        }
    }

    /// Returns the number of messages that the consumer has still to deliver from the list.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next message of the list that the consumer has to deliver.
    pub(super) fn peek(&mut self) -> Option<StreamSeq> {
        while self.seqs.get(self.at).is_some_and(|s| s & REMOVED != 0) {
            self.at += 1;
        }
        let next = self.seqs.get(self.at).copied();
        if next.is_none() {
            // The list is exhausted. The code frees the list's memory, because it may have had a million
            // entries.
            self.seqs = Vec::new();
            self.at = 0;
        }
        next.map(StreamSeq::new)
    }

    /// Advances past the message that [`Skip::peek`] returned.
    pub(super) fn advance(&mut self) {
        self.at += 1;
        self.left -= 1;
    }

    /// Removes the messages that `keep` rejects.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(StreamSeq) -> bool) {
        self.seqs.drain(..self.at);
        self.seqs
            .retain(|s| *s & REMOVED == 0 && keep(StreamSeq::new(*s)));
        self.at = 0;
        self.left = self.seqs.len() as u64;
    }

    /// Removes a message from the list, because the stream no longer holds it. Returns whether the list had
    /// the message.
    pub(super) fn remove(&mut self, seq: StreamSeq) -> bool {
        let rest = &mut self.seqs[self.at..];
        let found = rest.binary_search_by_key(&seq.get(), |s| s & !REMOVED);
        let Some(entry) = found.ok().map(|i| &mut rest[i]) else {
            return false;
        };
        let there = *entry & REMOVED == 0;
        *entry |= REMOVED;
        self.left -= u64::from(there);
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_ones_are_passed_over() {
        let n = StreamSeq::new;
        let mut skip = Skip::new(vec![n(2), n(5), n(6), n(9)]);
        assert!(skip.remove(n(2)) && !skip.remove(n(2)) && !skip.remove(n(3)));
        assert_eq!((skip.peek(), skip.left()), (Some(n(5)), 3));
        skip.advance();
        assert!(!skip.remove(n(5)) && skip.remove(n(9)));
        assert_eq!((skip.peek(), skip.left()), (Some(n(6)), 1));
        skip.advance();
        assert_eq!((skip.peek(), skip.left()), (None, 0));
        assert!(!skip.remove(n(6)));
    }
}
