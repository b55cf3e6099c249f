//! The items in the queues of the count topology: the reader sends lines to splitters, and these send words
//! to counters.
//!
//! A line is a range of a shared block. A word of up to 16 bytes is stored inline, so that most words cost
//! neither an allocation nor a shared count. The bytes behind the word are zero, so that a comparison of two
//! words is a comparison of two numbers.

use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use super::samples::Ticket;

/// A line of text with its line end, or a part of a line too long to read at once, which a splitter cuts.
pub(crate) struct Line {
    block: Arc<[u8]>,
    range: Range<usize>,
    /// The ticket under which the topology measures the line's latency; [`Ticket::NONE`] if it does not
    /// measure this line.
    pub(crate) ticket: Ticket,
}

impl Line {
    /// Creates the line that the bytes `range` of `block` form.
    pub(crate) fn new(block: &Arc<[u8]>, range: Range<usize>, ticket: Ticket) -> Self {
        Self {
            block: Arc::clone(block),
            range,
            ticket,
        }
    }

    /// Returns the bytes of the line.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block[self.range.clone()]
    }

    /// Returns the word that the bytes `word` of the line form, with its hash.
    #[inline]
    pub(crate) fn word(&self, word: Range<usize>, seed: &foldhash::fast::RandomState) -> Word {
        let range = self.range.start + word.start..self.range.start + word.end;
        Word::new(&self.block, range, self.ticket, seed)
    }
}

/// The greatest length of a word that is stored inline, in bytes.
const SHORT_MAX: usize = 16;

/// A word with its hash. The hash chooses the counter of the word and the entry in that counter's table.
pub(crate) enum Word {
    /// A word of at most 16 bytes, in little-endian order, with zeros beyond `len`.
    Short {
        len: u8,
        ticket: Ticket,
        hash: u64,
        bytes: [u8; SHORT_MAX],
    },
    /// A word of more than 16 bytes, in an allocation of its own.
    Long {
        ticket: Ticket,
        hash: u64,
        bytes: Box<[u8]>,
    },
}

// A word takes 32 bytes, so that two words fit into a cache line of 64 bytes.
const _: () = assert!(size_of::<Word>() == 32);

impl Word {
    /// Creates the word in the bytes `range` of `text`; the range is never empty.
    #[inline]
    pub(crate) fn new(
        text: &[u8],
        range: Range<usize>,
        ticket: Ticket,
        seed: &foldhash::fast::RandomState,
    ) -> Self {
        let len = range.len();
        if len > SHORT_MAX {
            let bytes = Box::from(&text[range]);
            return Self::Long {
                ticket,
                hash: seed.hash_one(&bytes),
                bytes,
            };
        }
        let number = match text.get(range.start..range.start + SHORT_MAX) {
            // One load of 16 bytes, with a mask that clears the bytes behind the word, is cheaper than a copy
            // of unknown length.
            Some(whole) => {
                let whole: [u8; SHORT_MAX] = whole.try_into().unwrap_or_default();
                u128::from_le_bytes(whole) & (u128::MAX >> (8 * (SHORT_MAX - len)))
            }
            None => {
                let mut bytes = [0; SHORT_MAX];
                bytes[..len].copy_from_slice(&text[range]);
                u128::from_le_bytes(bytes)
            }
        };
        // The word has at most 16 bytes, so its length fits into a `u8`.
        let len = len as u8;
        let hash = seed.hash_one((number, len));
        Self::Short {
            len,
            ticket,
            hash,
            bytes: number.to_le_bytes(),
        }
    }

    /// Returns the bytes of the word.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes, .. } => &bytes[..usize::from(*len)],
            Self::Long { bytes, .. } => bytes,
        }
    }

    /// Returns the hash of the word, by which counters find the word's entry.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        match self {
            Self::Short { hash, .. } | Self::Long { hash, .. } => *hash,
        }
    }

    /// Returns the ticket of the line that contains the word; [`Ticket::NONE`] if the line is not sampled.
    #[inline]
    pub(crate) const fn ticket(&self) -> Ticket {
        match self {
            Self::Short { ticket, .. } | Self::Long { ticket, .. } => *ticket,
        }
    }

    /// Returns the number of the counter that counts the word (field grouping: equal words go to the same
    /// counter). Takes bits of the hash that the counters' tables hardly use, so that the tables stay
    /// balanced.
    #[inline]
    pub(crate) const fn counter(&self, counters: usize) -> usize {
        let bits = (self.hash() >> 20) & 0xFFFF_FFFF;
        ((bits * counters as u64) >> 32) as usize
    }
}

impl PartialEq for Word {
    /// Returns whether both have the same bytes; their lines may have different tickets.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Short {
                    len: a, bytes: x, ..
                },
                Self::Short {
                    len: b, bytes: y, ..
                },
            ) => a == b && x == y,
            (Self::Long { bytes: x, .. }, Self::Long { bytes: y, .. }) => x == y,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_is_its_bytes(before in 0usize..20, word in proptest::collection::vec(any::<u8>(), 1..40), after in 0usize..20) {
            let seed = foldhash::fast::RandomState::default();
            let mut text = vec![0xAA; before];
            text.extend_from_slice(&word);
            text.resize(text.len() + after, 0xBB);
            let here = Word::new(&text, before..before + word.len(), Ticket::NONE, &seed);
            let alone = Word::new(&word, 0..word.len(), Ticket::NONE, &seed);
            prop_assert_eq!(here.bytes(), &word[..]);
            prop_assert!(here == alone);
            prop_assert_eq!(here.hash(), alone.hash());
            prop_assert!(here.counter(3) < 3);
        }
    }

    #[test]
    fn zero_bytes_count() {
        let seed = foldhash::fast::RandomState::default();
        let short = Word::new(b"a", 0..1, Ticket::NONE, &seed);
        let longer = Word::new(b"a\0", 0..2, Ticket::NONE, &seed);
        assert!(short != longer);
        assert_ne!(short.hash(), longer.hash());
    }
}
