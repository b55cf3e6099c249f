//! A collection that gives each item a small integer key, and keeps the items in chunks, so that it grows
//! without copying them. The slab gives the key of a removed item to a later item, and fills chunks with low
//! keys first, so that the keys stay small.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// The number of places in a chunk. Each place has one key and holds at most one item. A chunk is small
/// enough to allocate quickly.
const CHUNK_LEN: usize = if cfg!(test) { 4 } else { 1024 };

/// A collection that gives each item a small integer key, by which the caller finds the item in an array.
/// Adding and removing an item take time logarithmic in the number of chunks, all other operations constant
/// time.
#[derive(Clone, Debug)]
pub struct ChunkedSlab<T> {
    chunks: Vec<Chunk<T>>,
    /// The indices of the chunks that have a free key, so that an insertion finds the lowest of them.
    open: BTreeSet<usize>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// The items of the chunk by their places in it, up to the last place ever used; `None` at a place
    /// without an item. A chunk without items has an empty list, which takes no memory.
    items: Vec<Option<T>>,
    /// The free places in `items`, which the slab gives to the next items.
    free: Vec<u16>,
}

impl<T> ChunkedSlab<T> {
    /// Creates an empty slab, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            open: BTreeSet::new(),
            len: 0,
        }
    }

    /// Returns the number of items in the slab.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the slab has no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item and returns its key, with which the caller finds the item later.
    pub fn insert(&mut self, item: T) -> usize {
        let at = self.open.first().copied().unwrap_or_else(|| {
            self.chunks.push(Chunk {
                items: Vec::new(),
                free: Vec::new(),
            });
            self.open.insert(self.chunks.len() - 1);
            self.chunks.len() - 1
        });
        let chunk = &mut self.chunks[at];
        let place = match chunk.free.pop() {
            Some(place) => {
                chunk.items[usize::from(place)] = Some(item);
                usize::from(place)
            }
            None => {
                chunk.items.push(Some(item));
                chunk.items.len() - 1
            }
        };
        if chunk.free.is_empty() && chunk.items.len() == CHUNK_LEN {
            self.open.remove(&at);
        }
        self.len += 1;
        at * CHUNK_LEN + place
    }

    /// Returns the item with this key; `None` if no item has the key.
    #[must_use]
    #[inline]
    pub fn get(&self, key: usize) -> Option<&T> {
        let chunk = self.chunks.get(key / CHUNK_LEN)?;
        chunk.items.get(key % CHUNK_LEN)?.as_ref()
    }

    /// Returns the item with this key, to change it; `None` if no item has the key.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, key: usize) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(key / CHUNK_LEN)?;
        chunk.items.get_mut(key % CHUNK_LEN)?.as_mut()
    }

    /// Removes and returns the item with this key.
    ///
    /// # Panics
    /// If no item has this key.
    pub fn remove(&mut self, key: usize) -> T {
        let (at, place) = (key / CHUNK_LEN, key % CHUNK_LEN);
        let chunk = &mut self.chunks[at];
        let item = chunk.items[place].take().expect(MISSING);
        self.len -= 1;
        chunk.free.push(place as u16);
        if chunk.free.len() == chunk.items.len() {
            // The slab frees the memory of a chunk without items.
            (chunk.items, chunk.free) = (Vec::new(), Vec::new());
        }
        self.open.insert(at);
        item
    }
}

/// The text of the panic if a caller uses a key without an item, which is a bug of the caller.
const MISSING: &str = "no item has this key";

impl<T> Default for ChunkedSlab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<usize> for ChunkedSlab<T> {
    type Output = T;

    #[inline]
    fn index(&self, key: usize) -> &T {
        self.get(key).expect(MISSING)
    }
}

impl<T> IndexMut<usize> for ChunkedSlab<T> {
    #[inline]
    fn index_mut(&mut self, key: usize) -> &mut T {
        self.get_mut(key).expect(MISSING)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares a slab with an ordinary map from keys to items after each random operation.
        #[test]
        fn as_a_map(acts in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 0..200)) {
            let (mut slab, mut model) = (ChunkedSlab::new(), BTreeMap::new());
            for (n, act) in acts.into_iter().enumerate() {
                match act.filter(|_| !model.is_empty()) {
                    None => {
                        let key = slab.insert(n);
                        prop_assert!(model.insert(key, n).is_none(), "a key is used twice");
                        prop_assert!(key < 2 * model.len() + CHUNK_LEN, "keys stay small");
                    }
                    Some(at) => {
                        let key = *model.keys().nth(at.index(model.len())).unwrap();
                        prop_assert_eq!(slab.remove(key), model.remove(&key).unwrap());
                        prop_assert!(slab.get(key).is_none());
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                for (key, item) in &model {
                    prop_assert_eq!(slab[*key], *item);
                }
            }
            for key in model.into_keys() {
                slab.remove(key);
            }
            prop_assert!(slab.chunks.iter().all(|chunk| chunk.items.capacity() == 0));
        }
    }
}
