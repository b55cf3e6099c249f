//! Keeps the entries of a long list that belong to one page, in order, while the list comes in parts. Pure.

/// The room for entries beyond the page before the list is cut, so that it is seldom cut.
const SPARE: usize = 1024;

/// The first entries, in the order of `T`, of a list that comes in parts and in any order.
#[derive(Debug)]
pub(super) struct Best<T> {
    /// The number of entries up to the end of the page.
    up_to: usize,
    offset: usize,
    total: usize,
    entries: Vec<T>,
}

impl<T: Ord> Best<T> {
    /// Creates an empty list for a page of at most `limit` entries after the first `offset` ones.
    pub(super) const fn new(offset: usize, limit: usize) -> Self {
        Self {
            up_to: offset.saturating_add(limit),
            offset,
            total: 0,
            entries: Vec::new(),
        }
    }

    /// Adds a part of the list.
    pub(super) fn extend(&mut self, part: Vec<T>) {
        self.total += part.len();
        self.entries.extend(part);
        if self.entries.len() >= self.up_to.saturating_mul(2).saturating_add(SPARE) {
            self.cut();
        }
    }

    /// Returns the number of entries of the whole list so far.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Returns the page.
    pub(super) fn page(mut self) -> Vec<T> {
        self.cut();
        self.entries.sort_unstable();
        self.entries.drain(..self.offset.min(self.entries.len()));
        self.entries
    }

    fn cut(&mut self) {
        if self.up_to < self.entries.len() {
            self.entries.select_nth_unstable(self.up_to);
            self.entries.truncate(self.up_to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_that_of_the_sorted_list() {
        // A permutation of the numbers below 10,007, which is prime.
        let all: Vec<u64> = (0..10_007).map(|n| n * 4321 % 10_007).collect();
        for (offset, limit) in [
            (0, 1),
            (0, 50),
            (700, 50),
            (10_000, 50),
            (20_000, 5),
            (3, 0),
        ] {
            let mut best = Best::new(offset, limit);
            for part in all.chunks(97) {
                best.extend(part.to_vec());
                assert!(best.entries.len() < 2 * (offset + limit) + SPARE + 97);
            }
            assert_eq!(best.total(), all.len());
            let wanted = (0..10_007).skip(offset).take(limit);
            assert_eq!(best.page(), wanted.collect::<Vec<_>>(), "{offset} {limit}");
        }
    }
}
