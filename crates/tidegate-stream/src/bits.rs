//! A set of 256 bits: one bit for each message that a block of a stream's index, or of a consumer's list of
//! first messages, can hold.

/// The number of bits in a set, and so of the messages in a block.
pub(crate) const LEN: usize = 256;

/// A set of 256 bits with the numbers 0 to 255, which takes 32 bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(pub(crate) [u64; 4]);

impl Bits {
    pub(crate) const fn has(&self, i: usize) -> bool {
        self.0[i / 64] & (1 << (i % 64)) != 0
    }

    pub(crate) const fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(crate) const fn clear(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }

    /// Returns the set of the bits of this set that are not in `other`, for example the messages that a
    /// removal leaves.
    pub(crate) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// Returns the set of the bits of this set from `from` to `to` - 1, for a removal that concerns only a
    /// part of a block.
    pub(crate) fn within(&self, from: usize, to: usize) -> Self {
        Self(std::array::from_fn(|word| {
            let below = |end: usize| match end.saturating_sub(word * 64) {
                n if n >= 64 => u64::MAX,
                n => (1 << n) - 1,
            };
            self.0[word] & below(to) & !below(from)
        }))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns the number of set bits below bit `i`. In a block this is the place of the message's row.
    pub(crate) fn rank(&self, i: usize) -> usize {
        let word = i / 64;
        let whole: u32 = self.0[..word].iter().map(|w| w.count_ones()).sum();
        let part = match self.0.get(word) {
            Some(w) => (w & ((1 << (i % 64)) - 1)).count_ones(),
            None => 0,
        };
        (whole + part) as usize
    }

    /// Returns the lowest set bit that is at `from` or above; `None` if the set has no such bit. A search for
    /// the next message uses it.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut rest = self.0.get(word)? & (u64::MAX << (from % 64));
        while rest == 0 {
            word += 1;
            rest = *self.0.get(word)?;
        }
        Some(word * 64 + rest.trailing_zeros() as usize)
    }

    /// Returns the highest set bit that is at `to` or below; `None` if the set has no such bit. A search for
    /// the last message uses it.
    pub(crate) fn prev(&self, to: usize) -> Option<usize> {
        let mut word = to / 64;
        let mut rest = self.0[word] & (u64::MAX >> (63 - to % 64));
        while rest == 0 {
            word = word.checked_sub(1)?;
            rest = self.0[word];
        }
        Some(word * 64 + 63 - rest.leading_zeros() as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.iter_from(0)
    }

    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = usize> + use<> {
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
            let within: Vec<_> = set.range(at..).copied().take_while(|i| *i < at + 70).collect();
            let part = bits.within(at, at + 70);
            prop_assert_eq!(part.iter().collect::<Vec<_>>(), within);
            prop_assert_eq!(bits.without(&part).count(), set.len() - part.count());
            prop_assert_eq!(bits.within(0, LEN), bits);
        }
    }
}
