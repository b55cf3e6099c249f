//! The metadata of a stream or consumer: a few names with values, which clients choose and the server stores
//! with the configuration.
//!
//! A sorted list takes a tenth of the memory of a tree with one name, and a server has a hundred thousand
//! configurations with the one name that the server itself adds. A search takes logarithmic time, a change
//! linear time.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The metadata of a stream or consumer: names with values, sorted by name, so that a search is fast.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Vec<(Box<str>, Box<str>)>);

impl Metadata {
    /// Creates metadata without names, which takes no memory for a list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the number of names in the metadata.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the metadata has no names, so that the JSON can leave it out.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the names with their values, in the order of the names, in which the JSON lists them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of a name in the metadata; `None` if the metadata lacks the name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.find(name).ok()?;
        Some(&self.0[at].1)
    }

    /// Sets the value of a name in the metadata, and adds the name if the metadata lacks it.
    pub fn insert(&mut self, name: &str, value: &str) {
        match self.find(name) {
            Ok(at) => self.0[at].1 = value.into(),
            Err(at) => {
                self.0.reserve_exact(1);
                self.0.insert(at, (name.into(), value.into()));
            }
        }
    }

    /// Removes a name with its value from the metadata, if the metadata has it.
    pub fn remove(&mut self, name: &str) {
        if let Ok(at) = self.find(name) {
            self.0.remove(at);
        }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(of, _)| (**of).cmp(name))
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = map.next_entry::<Box<str>, Box<str>>()? {
                    all.push(pair);
                }
                // The later value of a name that occurs twice counts, as in other readers of JSON.
                all.reverse();
                all.sort_by(|a, b| a.0.cmp(&b.0));
                all.dedup_by(|later, first| later.0 == first.0);
                all.shrink_to_fit();
                Ok(Metadata(all))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Tests that the sorted list behaves as a tree does, also when it reads JSON in which a name occurs
        /// twice.
        #[test]
        fn the_list_is_like_a_tree(changes in prop::collection::vec(("[a-d]{0,2}", "[x-z]{0,1}", any::<bool>()), 0..30)) {
            let (mut list, mut tree) = (Metadata::new(), BTreeMap::new());
            for (name, value, adds) in &changes {
                if *adds {
                    list.insert(name, value);
                    tree.insert(name.clone(), value.clone());
                } else {
                    list.remove(name);
                    tree.remove(name);
                }
                prop_assert_eq!(list.get(name), tree.get(name).map(String::as_str));
                prop_assert_eq!((list.len(), list.is_empty()), (tree.len(), tree.is_empty()));
            }
            let json = serde_json::to_string(&list).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&tree).unwrap());
            let back: Metadata = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(back, list);
            let twice: Vec<String> = changes.iter().map(|(n, v, _)| format!("\"{n}\":\"{v}\"")).collect();
            let twice = format!("{{{}}}", twice.join(","));
            let list: Metadata = serde_json::from_str(&twice).unwrap();
            let tree: BTreeMap<String, String> = serde_json::from_str(&twice).unwrap();
            prop_assert!(list.iter().eq(tree.iter().map(|(n, v)| (n.as_str(), v.as_str()))));
        }
    }
}
