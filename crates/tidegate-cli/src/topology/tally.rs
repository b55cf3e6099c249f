//! Counts how often each word occurs, in one table for each counter. No word is in two tables.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::items::Word;

/// The words that one counter has counted, with their counts: a part of the topology's result.
#[derive(Default)]
pub struct Tally {
    table: HashTable<(Word, u64)>,
    total: u64,
}

impl Tally {
    /// Counts one occurrence of a word, for the counter that owns the tally.
    #[inline]
    pub(crate) fn add(&mut self, word: Word) {
        self.total += 1;
        let hash = word.hash();
        match self
            .table
            .entry(hash, |(seen, _)| *seen == word, |(seen, _)| seen.hash())
        {
            Entry::Occupied(mut seen) => seen.get_mut().1 += 1,
            Entry::Vacant(slot) => {
                slot.insert((word, 1));
            }
        }
    }

    /// Returns the number of words that the counter has counted, with repetitions.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of different words in the tally.
    pub fn distinct(&self) -> usize {
        self.table.len()
    }

    /// Returns the words of the tally with their counts, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.table
            .iter()
            .map(|(word, count)| (word.bytes(), *count))
    }
}

/// Returns the `k` most frequent words of several tallies for the output, the most frequent first. Words of
/// the same count are in the order of their bytes.
pub fn top(tallies: &[Tally], k: usize) -> Vec<(&[u8], u64)> {
    let mut all: Vec<_> = tallies.iter().flat_map(Tally::iter).collect();
    let order = |a: &(&[u8], u64), b: &(&[u8], u64)| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0));
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::samples::Ticket;
    use crate::topology::words::words;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn as_a_plain_count(text in proptest::collection::vec(prop_oneof![2 => Just(b' '), 3 => 97u8..100, 1 => any::<u8>()], 0..600), k in 1usize..20) {
            let seed = foldhash::fast::RandomState::default();
            let mut tallies = [Tally::default(), Tally::default(), Tally::default()];
            let mut plain: BTreeMap<&[u8], u64> = BTreeMap::new();
            for word in words(&text) {
                *plain.entry(&text[word.clone()]).or_default() += 1;
                let word = Word::new(&text, word, Ticket::NONE, &seed);
                tallies[word.counter(3)].add(word);
            }
            prop_assert_eq!(tallies.iter().map(Tally::total).sum::<u64>(), plain.values().sum::<u64>());
            prop_assert_eq!(tallies.iter().map(Tally::distinct).sum::<usize>(), plain.len());
            let mut plain: Vec<_> = plain.into_iter().collect();
            // The sort is stable, so that words of the same count stay in the order of their bytes.
            plain.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
            plain.truncate(k);
            prop_assert_eq!(top(&tallies, k), plain);
        }
    }
}
