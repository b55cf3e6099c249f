//! Indexes the consumers of a stream by the subjects that their filters pass: an index that finds the
//! consumers which want the messages of a subject, so that the stream knows whether it must keep a message.
//!
//! Only a stream that keeps messages for its consumers has an entry here for each of them. The index follows
//! from the consumers, so no snapshot holds it.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use tidegate_nats::subject;
use tidegate_nats::sublist::{Matches, Sublist};

use crate::schema::config::ConsumerConfig;

/// The names of the consumers that have a filter in common.
type Names = BTreeSet<Arc<str>>;

/// The index of the consumers' filters, by which the stream finds the consumers that want a message; see the
/// [module](self).
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// The consumers without a filter, which want the messages of every subject, so that each search includes
    /// them.
    unfiltered: Names,
    /// The consumers with this subject as a filter, which one lookup finds.
    literal: HashMap<Box<[u8]>, Names, RandomState>,
    /// The consumers that have filters with wildcards; `None` if no consumer has such filters, which saves
    /// memory.
    patterns: Option<Box<Patterns>>,
}

/// The filters with wildcards, and the names of the consumers with each filter.
#[derive(Debug)]
struct Patterns {
    /// The filters, under their numbers in `names`, so that a search for a subject finds the consumers.
    list: Sublist,
    names: Slab<Names>,
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Wanted {
    /// Adds a consumer with the filters of its configuration, so that searches find it.
    pub(super) fn add(&mut self, name: &str, config: &ConsumerConfig) {
        let name: Arc<str> = name.into();
        if config.filters().next().is_none() {
            self.unfiltered.insert(Arc::clone(&name));
        }
        for filter in config.filters().map(str::as_bytes) {
            let name = Arc::clone(&name);
            if subject::has_wildcard(filter) {
                self.patterns.get_or_insert_default().add(filter, name);
            } else {
                self.literal.entry(filter.into()).or_default().insert(name);
            }
        }
    }

    /// Removes a consumer; `config` is the configuration with which the caller added the consumer.
    pub(super) fn remove(&mut self, name: &str, config: &ConsumerConfig) {
        self.unfiltered.remove(name);
        for filter in config.filters().map(str::as_bytes) {
            if subject::has_wildcard(filter) {
                if let Some(patterns) = &mut self.patterns {
                    patterns.remove(filter, name);
                }
                self.patterns.take_if(|patterns| patterns.names.is_empty());
            } else if let Some(names) = self.literal.get_mut(filter) {
                names.remove(name);
                if names.is_empty() {
                    self.literal.remove(filter);
                }
            }
        }
    }

    /// Returns whether `f` returns true for any consumer that wants the messages of this subject. The search
    /// costs a step for each token of the subject and for each of these consumers.
    pub(super) fn any(&self, subject: &[u8], mut f: impl FnMut(&str) -> bool) -> bool {
        let literal = self.literal.get(subject).into_iter();
        let mut ordered = std::iter::once(&self.unfiltered).chain(literal).flatten();
        ordered.any(|name| f(name))
            || self
                .patterns
                .as_ref()
                .is_some_and(|patterns| patterns.any(subject, f))
    }
}

impl Patterns {
    fn add(&mut self, filter: &[u8], name: Arc<str>) {
        let names = &mut self.names;
        let (list, numbers) = (&mut self.list, &mut self.numbers);
        let number = *numbers.entry(filter.into()).or_insert_with(|| {
            let number = u32::try_from(names.insert(Names::new()));
            let number = number.expect("a stream has fewer than 2^32 consumers");
            list.insert(filter, None, number);
            number
        });
        self.names[number as usize].insert(name);
    }

    fn remove(&mut self, filter: &[u8], name: &str) {
        let Some(number) = self.numbers.get(filter).copied() else {
            return;
        };
        let names = &mut self.names[number as usize];
        names.remove(name);
        if names.is_empty() {
            self.names.remove(number as usize);
            self.numbers.remove(filter);
            self.list.remove(filter, number);
        }
    }

    fn any(&self, subject: &[u8], mut f: impl FnMut(&str) -> bool) -> bool {
        let mut scratch = Matches::default();
        let found = self.list.find(subject, &mut scratch).plain.iter();
        let mut names = found.flat_map(|number| &self.names[*number as usize]);
        names.any(|name| f(name))
    }
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            // The searches do not use the cache of the list, so the list gets the smallest one.
            list: Sublist::with_cache(1),
            names: Slab::new(),
            numbers: HashMap::default(),
        }
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        let of = |patterns: &Self, filter: &[u8]| {
            let number = patterns.numbers.get(filter);
            number.map(|number| patterns.names[*number as usize].clone())
        };
        let mut filters = self.numbers.keys();
        self.numbers.len() == other.numbers.len() && filters.all(|f| of(self, f) == of(other, f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(filters: &[&str]) -> ConsumerConfig {
        ConsumerConfig {
            filter_subjects: filters.iter().map(|f| (*f).to_owned()).collect(),
            ..ConsumerConfig::default()
        }
    }

    fn found(wanted: &Wanted, subject: &str) -> Vec<String> {
        let mut names = Vec::new();
        wanted.any(subject.as_bytes(), |name| {
            names.push(name.to_owned());
            false
        });
        names.sort();
        names
    }

    #[test]
    fn a_subject_finds_the_consumers_with_its_filters() {
        let mut wanted = Wanted::default();
        assert!(!wanted.any(b"a", |_| true));
        let all = [
            ("all", config(&[])),
            ("a", config(&["a"])),
            ("ab", config(&["a", "b.*"])),
            ("b", config(&["b.>"])),
        ];
        for (name, config) in &all {
            wanted.add(name, config);
        }
        assert_eq!(found(&wanted, "a"), ["a", "ab", "all"]);
        assert_eq!(found(&wanted, "b.x"), ["ab", "all", "b"]);
        assert_eq!(found(&wanted, "b.x.y"), ["all", "b"]);
        assert!(wanted.any(b"c", |name| name == "all"));
        for (name, config) in &all {
            wanted.remove(name, config);
        }
        assert_eq!(wanted, Wanted::default());
    }
}
