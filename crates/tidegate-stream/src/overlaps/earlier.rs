//! Compares each pattern of a list with the patterns before it.

use tidegate_nats::subject;

use super::Overlaps;
use crate::schema::number::StreamNumber;

/// The number of patterns up to which the list compares them one by one, because that costs less than an
/// index.
const FEW: usize = 16;

/// The patterns of a list so far, none of which overlaps another. A pattern's place in the list is its owner
/// in the index.
#[derive(Debug, Default)]
pub(crate) struct Earlier<'a> {
    patterns: Vec<&'a [u8]>,
    index: Option<Overlaps>,
}

impl<'a> Earlier<'a> {
    /// Returns the place of the first earlier pattern that overlaps this one, so that the caller can refuse
    /// the list. The time is about the logarithm of the list for each shape of patterns in it.
    pub(crate) fn overlapping(&mut self, pattern: &[u8]) -> Option<usize> {
        match &mut self.index {
            None => {
                let mut earlier = self.patterns.iter();
                earlier.position(|other| subject::overlaps(other, pattern))
            }
            Some(index) => index.find(pattern, None).map(|place| place.get() as usize),
        }
    }

    /// Adds a pattern to the end of the list.
    pub(crate) fn push(&mut self, pattern: &'a [u8]) {
        self.patterns.push(pattern);
        let first = match &mut self.index {
            None if self.patterns.len() <= FEW => return,
            None => 0,
            Some(_) => self.patterns.len() - 1,
        };
        let index = self.index.get_or_insert_default();
        for (place, pattern) in self.patterns.iter().enumerate().skip(first) {
            index.insert(pattern, StreamNumber::new(place as u32));
        }
    }
    /// Returns the cost of the index's searches so far; see [`Overlaps::cost`].
    #[cfg(test)]
    pub(super) fn cost(&self) -> u64 {
        self.index.as_ref().map_or(0, Overlaps::cost)
    }
}
