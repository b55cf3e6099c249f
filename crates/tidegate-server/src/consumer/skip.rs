//! The last message of each subject, as they were when the consumer began: what it is given before all that
//! follows.
//!
//! Owns the list. Leaves which messages are on it to the stream.

/// Messages still to be given, by rising number; one that was removed meanwhile has its top bit set.
#[derive(Clone, Debug, Default)]
pub(super) struct Skip {
    seqs: Vec<u64>,
    at: usize,
    left: u64,
}

const REMOVED: u64 = 1 << 63;

impl Skip {
    /// A list of messages by rising number.
    pub(super) fn new(seqs: Vec<u64>) -> Self {
        debug_assert!(seqs.is_sorted());
        Self {
            left: seqs.len() as u64,
            seqs,
            at: 0,
        }
    }

    /// How many are left.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// The next.
    pub(super) fn peek(&mut self) -> Option<u64> {
        while self.seqs.get(self.at).is_some_and(|s| s & REMOVED != 0) {
            self.at += 1;
        }
        let next = self.seqs.get(self.at).copied();
        if next.is_none() {
            // A list of a million is not kept for nothing.
            self.seqs = Vec::new();
            self.at = 0;
        }
        next
    }

    /// Goes on to the one after [`Skip::peek`].
    pub(super) fn advance(&mut self) {
        self.at += 1;
        self.left -= 1;
    }

    /// Takes out what is not kept.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        self.seqs.drain(..self.at);
        self.seqs.retain(|s| *s & REMOVED == 0 && keep(*s));
        self.at = 0;
        self.left = self.seqs.len() as u64;
    }

    /// Takes one out that is still to come; whether it was there.
    pub(super) fn remove(&mut self, seq: u64) -> bool {
        let rest = &mut self.seqs[self.at..];
        let found = rest.binary_search_by_key(&seq, |s| s & !REMOVED);
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
        let mut skip = Skip::new(vec![2, 5, 6, 9]);
        assert!(skip.remove(2) && !skip.remove(2) && !skip.remove(3));
        assert_eq!((skip.peek(), skip.left()), (Some(5), 3));
        skip.advance();
        assert!(!skip.remove(5) && skip.remove(9));
        assert_eq!((skip.peek(), skip.left()), (Some(6), 1));
        skip.advance();
        assert_eq!((skip.peek(), skip.left()), (None, 0));
        assert!(!skip.remove(6));
    }
}
