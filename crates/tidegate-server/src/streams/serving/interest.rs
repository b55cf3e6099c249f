//! Indexes the filters of a stream's consumers, so that the node finds the consumers that want a subject
//! without a look at the other consumers.
//!
//! The index finds all consumers that may want a message; each of these consumers then decides whether it
//! wants the message.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use tidegate_nats::sublist::{SubKey, Sublist};
use tidegate_stream::schema::config::ConsumerConfig;

use super::Key;

/// The number of subjects in the search cache of a stream with filtered consumers. The cache saves a hash for
/// each token of the subject in each search.
const CACHE_LEN: usize = 64;

/// The index by which the node finds the consumers that want a message of a stream, see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// The consumers without a filter, which want the messages of every subject.
    unfiltered: Vec<Key>,
    filtered: Option<Box<Filtered>>,
    /// The consumers that may still wait for acknowledgements of messages that their changed filters no
    /// longer pass. They must learn of every removed message.
    changed: Vec<Key>,
}

#[derive(Debug)]
struct Filtered {
    patterns: Sublist,
    /// The consumer to which each filter pattern belongs, so that a match leads to the consumer.
    owners: Slab<Key>,
    /// The keys in `patterns` of each consumer's filters, so that the node can remove them with the consumer.
    of: HashMap<Key, Vec<SubKey>, RandomState>,
}

impl Interest {
    /// Adds a consumer to the index, with the filters of its configuration, so that [`Interest::for_each`]
    /// finds it.
    pub(crate) fn add(&mut self, key: Key, config: &ConsumerConfig) {
        if wants_all(config) {
            self.unfiltered.push(key);
            return;
        }
        let filtered = self.filtered.get_or_insert_with(|| {
            Box::new(Filtered {
                patterns: Sublist::with_cache(CACHE_LEN),
                owners: Slab::new(),
                of: HashMap::default(),
            })
        });
        let Filtered {
            patterns,
            owners,
            of,
        } = &mut **filtered;
        let mine = of.entry(key).or_default();
        for pattern in filters(config) {
            let sub =
                SubKey::try_from(owners.insert(key)).expect("patterns take more than a byte each");
            patterns.insert(pattern.as_bytes(), None, sub);
            mine.push(sub);
        }
    }

    /// Removes a consumer from the index, because the node no longer serves it. `config` must be the
    /// configuration with which the node added the consumer.
    pub(crate) fn remove(&mut self, key: Key, config: &ConsumerConfig) {
        self.changed.retain(|k| *k != key);
        if wants_all(config) {
            self.unfiltered.retain(|k| *k != key);
            return;
        }
        let Some(filtered) = self.filtered.as_deref_mut() else {
            return;
        };
        let mine = filtered.of.remove(&key).unwrap_or_default();
        for (pattern, sub) in filters(config).zip(mine) {
            filtered.patterns.remove(pattern.as_bytes(), sub);
            filtered.owners.remove(sub as usize);
        }
        if filtered.of.is_empty() {
            self.filtered = None;
        }
    }

    /// Makes [`Interest::concerned`] return this consumer for every removed message from now on, because the
    /// consumer's filters have changed and may no longer find it.
    pub(crate) fn add_changed(&mut self, key: Key) {
        if !self.changed.contains(&key) {
            self.changed.push(key);
        }
    }

    /// Calls `f` once for each consumer that may want a message of this subject, so that the node can wake
    /// it.
    pub(crate) fn for_each(&mut self, subject: &[u8], mut f: impl FnMut(Key)) {
        self.unfiltered.iter().for_each(|key| f(*key));
        if let Some(filtered) = self.filtered.as_deref_mut() {
            // The filters of one consumer do not overlap, so the search finds no consumer twice.
            let found = &filtered.patterns.matches(subject).plain;
            found
                .iter()
                .for_each(|sub| f(filtered.owners[*sub as usize]));
        }
    }

    /// Collects in `to`, once each, the consumers that must learn that the stream removed a message of this
    /// subject, because they may wait for its acknowledgement.
    pub(crate) fn concerned(&mut self, subject: &[u8], to: &mut Vec<Key>) {
        to.clear();
        self.for_each(subject, |key| to.push(key));
        let found = to.len();
        for key in &self.changed {
            if !to[..found].contains(key) {
                to.push(*key);
            }
        }
    }
}

fn wants_all(config: &ConsumerConfig) -> bool {
    let mut filters = filters(config).peekable();
    filters.peek().is_none() || filters.any(|f| f == ">")
}

fn filters(config: &ConsumerConfig) -> impl Iterator<Item = &str> {
    let one = Some(&*config.filter_subject).filter(|f| !f.is_empty());
    one.into_iter()
        .chain(config.filter_subjects.iter().map(|f| &**f))
}

/// Returns whether two configurations of one consumer have the same filters, so that the index need not
/// change.
pub(crate) fn same_filters(a: &ConsumerConfig, b: &ConsumerConfig) -> bool {
    filters(a).eq(filters(b))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use tidegate_nats::subject;

    fn config(filters: &[&str]) -> ConsumerConfig {
        match filters {
            [one] => ConsumerConfig {
                filter_subject: (*one).to_owned(),
                ..ConsumerConfig::default()
            },
            all => ConsumerConfig {
                filter_subjects: all.iter().map(|f| (*f).to_owned()).collect(),
                ..ConsumerConfig::default()
            },
        }
    }

    fn found(interest: &mut Interest, subject: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        interest.for_each(subject.as_bytes(), |key| keys.push(key));
        keys
    }

    #[test]
    fn a_message_finds_one_among_thousands() {
        let mut interest = Interest::default();
        for key in 0..5000 {
            interest.add(key, &config(&[&format!("orders.{key}")]));
        }
        assert_eq!(found(&mut interest, "orders.17"), [17]);
        assert!(found(&mut interest, "orders.none").is_empty());
        interest.add(5000, &config(&[]));
        interest.add(5001, &config(&["orders.17", "x.>"]));
        let mut keys = found(&mut interest, "orders.17");
        keys.sort_unstable();
        assert_eq!(keys, [17, 5000, 5001]);
    }

    #[test]
    fn a_removed_message_concerns_a_consumer_with_changed_filters_once() {
        let mut interest = Interest::default();
        interest.add(1, &config(&["a"]));
        interest.add(2, &config(&["b"]));
        interest.add(3, &config(&[]));
        (0..2).for_each(|_| interest.add_changed(2));
        interest.add_changed(3);
        let mut keys = Vec::new();
        for (subject, expected) in [("a", [3, 1, 2].as_slice()), ("b", &[3, 2]), ("c", &[3, 2])] {
            interest.concerned(subject.as_bytes(), &mut keys);
            assert_eq!(keys, expected, "{subject}");
        }
        interest.remove(2, &config(&["b"]));
        interest.concerned(b"a", &mut keys);
        assert_eq!(keys, [3, 1]);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Add(Vec<&'static str>),
        Remove(usize),
        Find(&'static str),
    }

    fn act() -> impl Strategy<Value = Act> {
        // The test draws only filters that do not overlap, because the rules of consumers demand that.
        let filters = ["a", "a.b", "a.*.c", "a.b.d", "b.>", "*"];
        let subjects = ["a", "a.b", "a.x.c", "a.b.d", "b.x.y", "q", "q.r", "a.b.c"];
        prop_oneof![
            prop::sample::subsequence(filters[..5].to_vec(), 0..4).prop_map(Act::Add),
            prop::sample::select(filters.to_vec()).prop_map(|f| Act::Add(vec![f])),
            Just(Act::Add(vec![">"])),
            any::<prop::sample::Index>().prop_map(|i| Act::Remove(i.index(1000))),
            prop::sample::select(subjects.to_vec()).prop_map(Act::Find),
        ]
    }

    proptest! {
        /// Compares the consumers that the index finds with the consumers that a search through all of them
        /// finds.
        #[test]
        fn interested_consumers_are_found(acts in prop::collection::vec(act(), 1..100)) {
            let mut interest = Interest::default();
            let mut model: BTreeMap<Key, Vec<&str>> = BTreeMap::new();
            let mut next = 0;
            for act in acts {
                match act {
                    Act::Add(filters) => {
                        interest.add(next, &config(&filters));
                        model.insert(next, filters);
                        next += 1;
                    }
                    Act::Remove(i) => {
                        let at = model.keys().nth(i % model.len().max(1)).copied();
                        if let Some(key) = at {
                            let filters = model.remove(&key).unwrap();
                            interest.remove(key, &config(&filters));
                        }
                    }
                    Act::Find(name) => {
                        let mut keys = found(&mut interest, name);
                        keys.sort_unstable();
                        let wants = |filters: &Vec<&str>| {
                            let matches = |f: &&str| subject::contains(f.as_bytes(), name.as_bytes());
                            filters.is_empty() || filters.iter().any(matches)
                        };
                        let expected: Vec<Key> =
                            model.iter().filter(|(_, f)| wants(f)).map(|(k, _)| *k).collect();
                        prop_assert_eq!(keys, expected);
                    }
                }
            }
            for (key, filters) in model {
                interest.remove(key, &config(&filters));
            }
            prop_assert!(interest.unfiltered.is_empty() && interest.filtered.is_none());
        }
    }
}
