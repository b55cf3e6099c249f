//! A map from short byte strings, such as tokens of subjects and ids of subscriptions, to values. No
//! insertion takes long, even in a large map.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::table::{self, Table};

/// A map from byte strings to values. Each operation takes constant time on average; see [`Table`]. Clients
/// choose the keys. So each process draws a random seed for the hash function, and a client cannot choose
/// many keys with the same hash.
#[derive(Clone, Debug)]
pub struct ByteMap<V> {
    items: Table<(Box<[u8]>, V)>,
    hasher: RandomState,
}

impl<V> ByteMap<V> {
    /// Creates an empty map with this hash function, so that the caller can hash a key once for several maps.
    #[must_use]
    pub const fn with_hasher(hasher: RandomState) -> Self {
        Self {
            items: Table::new(),
            hasher,
        }
    }

    /// Returns the number of keys in the map.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether the map has no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the value of `key`; `None` if the map does not have the key.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&V> {
        self.get_hashed(self.hasher.hash_one(key), key)
    }

    /// Returns the value of `key`, which has the hash `hash` by the map's hash function; `None` if the map
    /// does not have the key.
    #[must_use]
    #[inline]
    pub fn get_hashed(&self, hash: u64, key: &[u8]) -> Option<&V> {
        let found = self.items.find(hash, |(k, _)| **k == *key);
        found.map(|(_, value)| value)
    }

    /// Returns whether the map has this key.
    #[must_use]
    pub fn contains_key(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key. Returns the key's old value; `None` if the map did not have the key.
    pub fn insert(&mut self, key: Box<[u8]>, value: V) -> Option<V> {
        let before = self.remove(&key);
        let hasher = &self.hasher;
        let hash = hasher.hash_one(&*key);
        self.items
            .insert(hash, (key, value), |(key, _)| hasher.hash_one(&**key));
        before
    }

    /// Removes a key from the map. Returns the key's value; `None` if the map did not have the key.
    pub fn remove(&mut self, key: &[u8]) -> Option<V> {
        let hash = self.hasher.hash_one(key);
        let removed = self.items.remove(hash, |(k, _)| **k == *key);
        removed.map(|(_, value)| value)
    }

    /// Turns the map into an iterator over its values, in no particular order.
    #[must_use]
    pub fn into_values(self) -> IntoValues<V> {
        IntoValues(self.items.into_iter())
    }

    /// Iterates over the values of the map, in no particular order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.items.iter().map(|(_, value)| value)
    }
}

/// An iterator that takes the values out of a [`ByteMap`], and frees the map's memory part by part.
#[derive(Debug)]
pub struct IntoValues<V>(table::IntoIter<(Box<[u8]>, V)>);

impl<V> Iterator for IntoValues<V> {
    type Item = V;

    fn next(&mut self) -> Option<V> {
        self.0.next().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<V> ExactSizeIterator for IntoValues<V> {}

impl<V> Default for ByteMap<V> {
    fn default() -> Self {
        Self {
            items: Table::new(),
            hasher: RandomState::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_last_value() {
        let mut map = ByteMap::default();
        assert_eq!(map.insert((*b"a").into(), 1), None);
        assert_eq!(map.insert((*b"a").into(), 2), Some(1));
        map.insert((*b"").into(), 3);
        assert_eq!(
            (map.get(b"a"), map.get(b""), map.get(b"b")),
            (Some(&2), Some(&3), None)
        );
        assert_eq!((map.len(), map.values().sum::<i32>()), (2, 5));
        assert_eq!((map.remove(b"a"), map.remove(b"a")), (Some(2), None));
    }
}
