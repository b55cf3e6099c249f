//! A list that grows a chunk at a time, so that no single addition takes long.
//!
//! A vector copies all its items when it grows; for the ten million subjects of a large stream that takes a
//! tenth of a second. This list copies at most one chunk. Every operation takes constant time.

use std::ops::{Index, IndexMut};

/// The number of items in a full chunk of the list. Tests use small chunks, so that a short list already has
/// several chunks.
const CHUNK_LEN: usize = if cfg!(test) { 4 } else { 4096 };

/// A list of items in chunks, which never copies more than one chunk when it grows, so that the event loop
/// never waits for a large copy.
#[derive(Clone, Debug)]
pub(super) struct Chunked<T> {
    /// The chunks of the list: all but the last are full, and the last has at least one item, so that the
    /// list finds an item by a division.
    chunks: Vec<Vec<T>>,
}

impl<T> Chunked<T> {
    /// Creates an empty list. The first item allocates the first chunk, so that an empty list takes no
    /// memory.
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Returns the number of items in the list, computed from the number of chunks.
    pub(super) fn len(&self) -> usize {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_LEN;
        full + self.chunks.last().map_or(0, Vec::len)
    }

    /// Adds an item at the end of the list. If the last chunk is full, the list allocates another chunk and
    /// copies no item.
    pub(super) fn push(&mut self, item: T) {
        if self.chunks.last().is_none_or(|c| c.len() == CHUNK_LEN) {
            self.chunks.push(Vec::new());
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(item);
        }
    }

    /// Removes the last item of the list and returns the item, so that a caller can free a long list in
    /// parts.
    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let item = last.pop();
        if last.is_empty() {
            self.chunks.pop();
        }
        item
    }

    /// Iterates over the items of the list in order, from the first to the last.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Iterates over the items of the list from the last to the first, for a search that wants the newest
    /// items.
    pub(super) fn iter_back(&self) -> impl Iterator<Item = &T> {
        self.chunks
            .iter()
            .rev()
            .flat_map(|chunk| chunk.iter().rev())
    }

    /// Iterates over the items of the list in order, so that the caller can change each item.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }

    /// Returns the size of the list in memory, in bytes, without the memory that its items themselves
    /// allocate, for the stream's report of the memory that it takes.
    pub(super) fn allocation_size(&self) -> usize {
        let items: usize = self.chunks.iter().map(Vec::capacity).sum();
        items * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> FromIterator<T> for Chunked<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut list = Self::new();
        items.into_iter().for_each(|item| list.push(item));
        list
    }
}

impl<T> Index<usize> for Chunked<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK_LEN][at % CHUNK_LEN]
    }
}

impl<T> IndexMut<usize> for Chunked<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / CHUNK_LEN][at % CHUNK_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_an_ordinary_list() {
        let mut list = Chunked::new();
        for item in 0..3 * CHUNK_LEN + 1 {
            assert_eq!(list.len(), item);
            list.push(item);
            assert_eq!(list[item], item);
        }
        list[CHUNK_LEN] = 0;
        list.iter_mut().take(2).for_each(|item| *item += 7);
        let mut model: Vec<usize> = (0..3 * CHUNK_LEN + 1).collect();
        (model[0], model[1], model[CHUNK_LEN]) = (7, 8, 0);
        assert!(list.iter().eq(&model));
        assert!(list.iter_back().eq(model.iter().rev()));
        while let Some(item) = model.pop() {
            assert_eq!(list.pop(), Some(item));
            assert_eq!(list.len(), model.len());
        }
        assert_eq!(
            (list.pop(), list.allocation_size()),
            (None, size_of::<Vec<usize>>() * 4)
        );
    }
}
