//! A set of 256 bits. A block of an index uses it for the messages that the block holds.

/// The number of bits of a set.
pub(super) const LEN: usize = 256;

/// A set of bits numbered from 0 to 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(pub(super) [u64; 4]);

impl Bits {
    pub(super) const fn has(&self, i: usize) -> bool {
        self.0[i / 64] & (1 << (i % 64)) != 0
    }

    pub(super) const fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(super) const fn clear(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns how many bits below `i` are set.
    pub(super) fn rank(&self, i: usize) -> usize {
        let word = i / 64;
        let whole: u32 = self.0[..word].iter().map(|w| w.count_ones()).sum();
        let part = match self.0.get(word) {
            Some(w) => (w & ((1 << (i % 64)) - 1)).count_ones(),
            None => 0,
        };
        (whole + part) as usize
    }

    /// Returns the first bit set at `from` or above.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut rest = self.0.get(word)? & (u64::MAX << (from % 64));
        while rest == 0 {
            word += 1;
            rest = *self.0.get(word)?;
        }
        Some(word * 64 + rest.trailing_zeros() as usize)
    }

    /// Returns the last bit set at `to` or below.
    pub(super) fn prev(&self, to: usize) -> Option<usize> {
        let mut word = to / 64;
        let mut rest = self.0[word] & (u64::MAX >> (63 - to % 64));
        while rest == 0 {
            word = word.checked_sub(1)?;
            rest = self.0[word];
        }
        Some(word * 64 + 63 - rest.leading_zeros() as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.iter_from(0)
    }

    pub(super) fn iter_from(&self, from: usize) -> impl Iterator<Item = usize> + use<> {
        let bits = *self;
        let mut at = bits.next(from);
        std::iter::from_fn(move || {
            let now = at?;
            at = bits.next(now + 1);
            Some(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_set(set in prop::collection::btree_set(0..LEN, 0..40), at in 0..LEN) {
            let mut bits = Bits::default();
            set.iter().for_each(|i| bits.set(*i));
            prop_assert_eq!(bits.count(), set.len());
            prop_assert_eq!(bits.has(at), set.contains(&at));
            prop_assert_eq!(bits.rank(at), set.range(..at).count());
            prop_assert_eq!(bits.rank(LEN), set.len());
            prop_assert_eq!(bits.next(at), set.range(at..).next().copied());
            prop_assert_eq!(bits.prev(at), set.range(..=at).next_back().copied());
            prop_assert_eq!(bits.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(bits.next(LEN), None);
        }
    }
}
