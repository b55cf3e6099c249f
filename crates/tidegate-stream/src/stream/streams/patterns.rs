//! Indexes the patterns of subjects of all streams in a group. By this index the leader finds the stream that
//! takes a message, and a group refuses a second stream with overlapping patterns.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use slab::Slab;
use tidegate_nats::sublist::{SubKey, Sublist};

use crate::overlaps::Overlaps;
use crate::schema::number::StreamNumber;

/// The patterns of subjects of all streams in a group, by which the leader finds the stream for a message.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    list: Sublist,
    /// The stream that owns each pattern, by the pattern's key in `list`, which a search of that list
    /// returns.
    owners: Slab<StreamNumber>,
    /// The keys of each stream's patterns, in the order in which its configuration lists the patterns, so
    /// that an update can remove them.
    keys: HashMap<StreamNumber, Vec<SubKey>, RandomState>,
    overlaps: Overlaps,
}

impl Patterns {
    /// Adds the patterns of a stream, so that the stream takes messages. The collection must have no pattern
    /// of the stream yet.
    pub(super) fn insert(&mut self, stream: StreamNumber, patterns: &[String]) {
        let keys = patterns.iter().map(|pattern| {
            // The cast loses nothing: a node has fewer than 2^32 patterns, because each takes more than a
            // byte of memory.
            let key = self.owners.insert(stream) as u32;
            self.list.insert(pattern.as_bytes(), None, key);
            self.overlaps.insert(pattern.as_bytes(), stream);
            key
        });
        let keys = keys.collect();
        self.keys.insert(stream, keys);
    }

    /// Removes the patterns of a stream, which then takes no more messages. The caller passes the same
    /// patterns as to [`Patterns::insert`].
    pub(super) fn remove(&mut self, stream: StreamNumber, patterns: &[String]) {
        let keys = self.keys.remove(&stream);
        let keys = keys.expect("each stream has its patterns here");
        for (key, pattern) in keys.into_iter().zip(patterns) {
            self.owners.remove(key as usize);
            self.list.remove(pattern.as_bytes(), key);
            self.overlaps.remove(pattern.as_bytes(), stream);
        }
    }

    /// Returns the number of the stream that takes messages of this subject, and caches the answer, because
    /// publishers repeat subjects.
    #[inline]
    pub(super) fn capture(&mut self, subject: &[u8]) -> Option<StreamNumber> {
        let key = *self.list.matches(subject).plain.first()?;
        self.owners.get(key as usize).copied()
    }

    /// Returns the number of the stream that takes messages of this subject, without filling the cache of
    /// subjects, for callers without exclusive access.
    pub(super) fn taker(&self, subject: &[u8]) -> Option<StreamNumber> {
        let key = self.list.first_wanting(subject)?;
        self.owners.get(key as usize).copied()
    }

    /// Returns the lowest number of a stream, other than `except`, that has a pattern overlapping one of
    /// these patterns. The group then refuses the configuration with these patterns.
    pub(super) fn overlapping(
        &mut self,
        patterns: &[String],
        except: Option<StreamNumber>,
    ) -> Option<StreamNumber> {
        let overlaps = &mut self.overlaps;
        let found = patterns
            .iter()
            .filter_map(|pattern| overlaps.find(pattern.as_bytes(), except));
        found.min()
    }

    /// Returns the cost of all searches for overlapping patterns so far: lookups, compared patterns and
    /// patterns added to new tables. Only tests call this, to check that searches stay cheap.
    #[cfg(test)]
    pub(super) const fn cost(&self) -> u64 {
        self.overlaps.cost()
    }

    /// Panics if an invariant of the patterns does not hold. Only tests call this, after each command.
    /// `streams` yields each stream of the group with its patterns.
    pub(super) fn check_invariants<'a>(
        &self,
        streams: impl Iterator<Item = (StreamNumber, &'a [String])>,
    ) {
        self.overlaps.check_invariants();
        let (mut known, mut all) = (0, 0);
        for (stream, patterns) in streams {
            let keys = &self.keys[&stream];
            assert_eq!(keys.len(), patterns.len());
            assert!(keys.iter().all(|k| self.owners[*k as usize] == stream));
            known += 1;
            all += patterns.len();
        }
        assert_eq!(known, self.keys.len());
        assert_eq!(all, self.owners.len());
        assert_eq!(all, self.overlaps.len());
        assert_eq!(all, self.list.stats().len);
    }
}
