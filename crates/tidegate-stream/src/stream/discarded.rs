//! Keeps collections of removed messages that a node frees in parts: freeing a million items at once takes
//! too long for one turn of the event loop.

use std::collections::{BTreeSet, VecDeque, btree_set};

use bytes::Bytes;
use hashbrown::hash_map;

use super::content::Bodies;
use super::subjects::Chains;
use crate::schema::sequence::StreamSeq;

/// The number of items that one call of [`Discarded::free_part`] frees, so that the call does not hold up the
/// node's event loop.
const PART_LEN: usize = if cfg!(test) { 3 } else { 256 };

/// Collections that no stream needs any more, and that the node frees in parts, between other work.
#[derive(Debug, Default)]
pub(super) struct Discarded(VecDeque<Items>);

#[derive(Debug)]
enum Items {
    Chains(Chains),
    Dues(btree_set::IntoIter<(u64, StreamSeq)>),
    Bodies(hash_map::IntoIter<StreamSeq, Bytes>),
}

impl Discarded {
    /// Takes the lists of the messages of a stream's subjects, to free them in parts.
    pub(super) fn add_chains(&mut self, chains: Option<Chains>) {
        self.0.extend(chains.map(Items::Chains));
    }

    /// Takes the times at which messages of a stream would have expired, to free them in parts.
    pub(super) fn add_dues(&mut self, dues: BTreeSet<(u64, StreamSeq)>) {
        if !dues.is_empty() {
            self.0.push_back(Items::Dues(dues.into_iter()));
        }
    }

    /// Takes the bytes of the messages of a stream in memory, to free them in parts.
    pub(super) fn add_bodies(&mut self, bodies: Option<Bodies>) {
        let bodies = bodies.filter(|bodies| !bodies.is_empty());
        self.0.extend(bodies.map(|b| Items::Bodies(b.into_iter())));
    }

    /// Takes all collections of `other`, for example those of a stream that the caller drops.
    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns whether all collections are freed, so that the node need not call [`Discarded::free_part`]
    /// again.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees up to 256 items, so that the event loop can take another turn before the rest.
    pub(super) fn free_part(&mut self) {
        let Some(items) = self.0.front_mut() else {
            return;
        };
        let is_rest = match items {
            Items::Chains(chains) => {
                let freed = std::iter::from_fn(|| chains.pop());
                freed.take(PART_LEN).count() < PART_LEN
            }
            Items::Dues(dues) => dues.take(PART_LEN).count() < PART_LEN,
            Items::Bodies(bodies) => bodies.take(PART_LEN).count() < PART_LEN,
        };
        if is_rest {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_freed_part_by_part() {
        let mut all = Discarded::default();
        all.add_chains(None);
        all.add_dues(BTreeSet::new());
        all.add_bodies(Some(Bodies::default()));
        assert!(all.is_empty());
        all.add_chains(Some((0..7).map(|_| VecDeque::new()).collect()));
        let mut other = Discarded::default();
        other.add_dues((0..6).map(|n| (n, StreamSeq::new(n))).collect());
        let bodies = (0..4).map(|n| (StreamSeq::new(n), Bytes::new()));
        other.add_bodies(Some(bodies.collect()));
        all.append(other);
        let mut calls = 0;
        while !all.is_empty() {
            all.free_part();
            calls += 1;
        }
        assert_eq!(calls, 3 + 3 + 2);
    }
}
