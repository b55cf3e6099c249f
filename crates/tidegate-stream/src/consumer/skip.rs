//! The last message of each subject when the consumer began: it delivers them before all later messages.
//!
//! Owns the list. Leaves the choice of its messages to the stream.

use crate::schema::sequence::StreamSeq;

/// The messages still to be delivered, by rising number; a message removed meanwhile has its top bit set.
#[derive(Clone, Debug, Default)]
pub(super) struct Skip {
    seqs: Vec<u64>,
    at: usize,
    left: u64,
}

const REMOVED: u64 = 1 << 63;

impl Skip {
    /// A list of messages by rising number.
    pub(super) fn new(seqs: Vec<StreamSeq>) -> Self {
        debug_assert!(seqs.is_sorted());
        Self {
            left: seqs.len() as u64,
            seqs: seqs.into_iter().map(StreamSeq::get).collect(),
            at: 0,
        }
    }

    /// The number of messages left.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// The next message.
    pub(super) fn peek(&mut self) -> Option<StreamSeq> {
        while self.seqs.get(self.at).is_some_and(|s| s & REMOVED != 0) {
            self.at += 1;
        }
        let next = self.seqs.get(self.at).copied();
        if next.is_none() {
            // An exhausted list of a million entries gives its memory back.
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

    /// Removes a message that is still to be delivered; returns whether the list had it.
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
