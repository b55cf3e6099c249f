//! A hash table that grows a part at a time, so that no single insertion takes long.
//!
//! An ordinary hash table rehashes all its items when it grows; for ten million subjects that takes a
//! second, in which the server answers no client. Bits of the hash divide this table into parts of at most
//! [`PART_MAX`] items, and the table splits a full part in two. The algorithm is extendible hashing (Fagin,
//! Nievergelt, Pippenger and Strong, 1979). All operations take constant time on average, and an insertion
//! rehashes at most [`PART_MAX`] items.

use hashbrown::{HashTable, hash_table};

/// The greatest number of items in a part before the table splits the part. A part exceeds this number only
/// if no further bit of the hash can split it.
const PART_MAX: usize = if cfg!(test) { 8 } else { 512 };
/// The lowest of the hash bits that choose an item's part of the table. The hash table inside a part uses
/// lower bits and the highest bits, so that an item's place inside a part does not depend on the choice of
/// the part.
const FIRST_BIT: u32 = 24;
/// The greatest number of hash bits that choose an item's part, so that the table has at most a million
/// parts.
const DEPTH_MAX: u32 = 20;

/// A set of items that the caller finds by their hash. The table splits a full part in two, so that an
/// insertion rehashes at most 512 items. Each operation takes constant time on average.
#[derive(Clone, Debug)]
pub struct Table<T> {
    parts: Vec<Part<T>>,
    /// The index in `parts` for each value of the hash bits that choose a part. The length of `directory` is
    /// a power of two, or 0 before the first item.
    directory: Vec<u32>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Part<T> {
    items: HashTable<T>,
    /// The number of hash bits in which all items of the part agree, counted from the lowest bit that
    /// chooses a part.
    depth: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// Creates an empty table, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            parts: Vec::new(),
            directory: Vec::new(),
            len: 0,
        }
    }

    /// Returns the number of items in the table.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the table has no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the items of the table, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flat_map(|part| part.items.iter())
    }

    /// Returns the item that has this hash and for which `is` returns true.
    #[must_use]
    pub fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.parts.get(self.part_of(hash)?)?.items.find(hash, is)
    }

    /// Removes and returns the item that has this hash and for which `is` returns true.
    pub fn remove(&mut self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<T> {
        let at = self.part_of(hash)?;
        let items = &mut self.parts[at].items;
        let (item, _) = items.find_entry(hash, is).ok()?.remove();
        self.len -= 1;
        if items.is_empty() {
            // The table frees the memory of a part without items.
            *items = HashTable::new();
        }
        Some(item)
    }

    /// Adds an item that the table does not have yet. `hash_of` must return the hash of an item; the table
    /// calls `hash_of` when it splits a part, to divide the part's items.
    pub fn insert(&mut self, hash: u64, item: T, hash_of: impl Fn(&T) -> u64) {
        if self.parts.is_empty() {
            self.parts.push(Part {
                items: HashTable::new(),
                depth: 0,
            });
            self.directory.push(0);
        }
        let mut at = self.directory[self.slot(hash)] as usize;
        while self.parts[at].items.len() >= PART_MAX && self.parts[at].depth < DEPTH_MAX {
            self.split(at, hash, &hash_of);
            at = self.directory[self.slot(hash)] as usize;
        }
        self.parts[at].items.insert_unique(hash, item, hash_of);
        self.len += 1;
    }

    /// Returns the memory that the table takes, in bytes, for tests and measurements.
    #[must_use]
    pub fn allocation_size(&self) -> usize {
        let items: usize = self.parts.iter().map(|p| p.items.allocation_size()).sum();
        items + self.parts.capacity() * size_of::<Part<T>>() + self.directory.capacity() * 4
    }

    fn slot(&self, hash: u64) -> usize {
        bits(hash) & (self.directory.len() - 1)
    }

    fn part_of(&self, hash: u64) -> Option<usize> {
        let last = self.directory.len().checked_sub(1)?;
        Some(self.directory[bits(hash) & last] as usize)
    }

    /// Splits the part with index `at`: moves the items that have 1 as the next bit of their hash to a new
    /// part. `hash` is the hash of any item of the part.
    fn split(&mut self, at: usize, hash: u64, hash_of: &impl Fn(&T) -> u64) {
        let depth = self.parts[at].depth;
        if 1 << depth == self.directory.len() {
            self.directory.extend_from_within(..);
        }
        let bit = 1 << depth;
        let is_moved = |item: &mut T| bits(hash_of(item)) & bit != 0;
        let part = &mut self.parts[at];
        part.depth += 1;
        let mut moved = HashTable::with_capacity(PART_MAX);
        for item in part.items.extract_if(is_moved) {
            moved.insert_unique(hash_of(&item), item, hash_of);
        }
        if moved.is_empty() {
            moved = HashTable::new();
        }
        part.items.shrink_to_fit(hash_of);
        let new = self.parts.len() as u32;
        self.parts.push(Part {
            items: moved,
            depth: depth + 1,
        });
        // The new part gets all directory entries that agree with the hashes of its items in `depth + 1`
        // bits, so that lookups find its items.
        let first = bits(hash) & (bit - 1) | bit;
        for slot in (first..self.directory.len()).step_by(2 * bit) {
            self.directory[slot] = new;
        }
    }
}

impl<T> IntoIterator for Table<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter {
            len: self.len,
            parts: self.parts.into_iter(),
            items: None,
        }
    }
}

/// An iterator over the items of a [`Table`] that takes them out of the table. The iterator frees the memory
/// of each part once it has returned the part's items, so that the end of a large table takes no long pause.
#[derive(Debug)]
pub struct IntoIter<T> {
    parts: std::vec::IntoIter<Part<T>>,
    items: Option<hash_table::IntoIter<T>>,
    len: usize,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.items.as_mut().and_then(Iterator::next) {
                self.len -= 1;
                return Some(item);
            }
            self.items = Some(self.parts.next()?.items.into_iter());
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T> ExactSizeIterator for IntoIter<T> {}

/// Returns the bits of a hash that choose a part, as a number: the lowest of these bits is bit 0.
const fn bits(hash: u64) -> usize {
    ((hash >> FIRST_BIT) & ((1 << DEPTH_MAX) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    use super::*;

    fn hash_of(item: &u64) -> u64 {
        FixedState::with_seed(7).hash_one(item)
    }

    proptest! {
        /// Compares a table with a map of the standard library after each operation, and checks the table's
        /// directory at the end.
        #[test]
        fn as_an_ordinary_map(acts in prop::collection::vec((0..300_u64, any::<bool>()), 0..1000)) {
            let (mut table, mut model) = (Table::new(), HashMap::new());
            for (item, add) in acts {
                let found = table.find(hash_of(&item), |other| *other == item).copied();
                prop_assert_eq!(found, model.get(&item).copied());
                if add && found.is_none() {
                    table.insert(hash_of(&item), item, hash_of);
                    model.insert(item, item);
                } else if !add {
                    let removed = table.remove(hash_of(&item), |other| *other == item);
                    prop_assert_eq!(removed, model.remove(&item));
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for item in model.into_keys() {
                prop_assert!(table.find(hash_of(&item), |other| *other == item).is_some());
            }
            for (slot, part) in table.directory.iter().enumerate() {
                let part = &table.parts[*part as usize];
                let mask = (1 << part.depth) - 1;
                prop_assert!(part.items.iter().all(|item| bits(hash_of(item)) & mask == slot & mask));
                prop_assert!(part.items.len() <= PART_MAX);
            }
        }
    }

    #[test]
    fn items_with_one_hash_share_a_part() {
        let mut table = Table::new();
        for item in 0..4 * PART_MAX {
            table.insert(0, item, |_| 0);
        }
        assert_eq!(table.find(0, |item| *item == 9), Some(&9));
        for item in 0..4 * PART_MAX {
            assert_eq!(table.remove(0, |other| *other == item), Some(item));
        }
        assert_eq!(table.len(), 0);
        assert!(
            table
                .parts
                .iter()
                .all(|part| part.items.allocation_size() == 0)
        );
    }
}
