//! The queue groups of all patterns, by pattern and by name.
//!
//! A queue group keeps its number while it has members, so joining and leaving cost a look-up by hash,
//! independently of the number of queue groups under the pattern. The names have numbers, too, because one
//! name may occur under many patterns, and a look-up compares names under several patterns.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::{SubKey, index};
use crate::collections::{ChunkedSlab, Table};

/// The queue groups of a sublist; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: ChunkedSlab<Group>,
    /// The numbers of the queue groups in `all`, by their pattern and name.
    by_place: Table<u32>,
    names: ChunkedSlab<Name>,
    /// The numbers of the names in `names`, by their text.
    by_text: Table<u32>,
    hasher: RandomState,
    /// The count of the queue groups made so far, from which the next group gets its age.
    made: u64,
}

/// The members of one queue group under one pattern.
#[derive(Debug)]
pub(super) struct Group {
    /// The trie node of the pattern.
    node: u32,
    /// The number of the group's name.
    name: u32,
    /// The place of the group in the list of its trie node, so that a removal needs no search.
    at: u32,
    /// The count of the groups made before this one and with it. A later group may get the same number in the
    /// slab, but it has a greater age.
    age: u64,
    pub(super) members: Vec<SubKey>,
    /// The number of keys in `members` that stand for several members of the queue group. These keys come
    /// first.
    pub(super) many: u32,
}

#[derive(Debug)]
struct Name {
    text: Box<[u8]>,
    /// The number of patterns under which a queue group has this name. The name ends with the last of them.
    groups: u32,
}

impl Group {
    /// Returns the keys that stand for several members of the queue group, and then the keys that stand for
    /// one.
    pub(super) fn parts(&self) -> (&[SubKey], &[SubKey]) {
        self.members.split_at(self.many as usize)
    }

    /// Returns the number of the group's name, which groups of one name under several patterns share.
    pub(super) const fn name(&self) -> u32 {
        self.name
    }
}

impl Groups {
    /// Returns the count of the queue groups made so far.
    pub(super) const fn made(&self) -> u64 {
        self.made
    }

    /// Returns the queue group with this number if it was among the first `made` ones; `None` if that group
    /// has ended.
    #[inline]
    pub(super) fn get(&self, group: u32, made: u64) -> Option<&Group> {
        let group = self.all.get(group as usize);
        group.filter(|group| group.age <= made)
    }

    /// Returns the queue group with this number, to change its members.
    pub(super) fn get_mut(&mut self, group: u32) -> &mut Group {
        &mut self.all[group as usize]
    }

    /// Returns the number of the name of a group that exists.
    pub(super) fn name_of(&self, group: u32) -> u32 {
        self.all[group as usize].name
    }

    /// Returns the number of the queue group with this name under the pattern of `node`. Makes the group and
    /// adds it to `list`, the trie node's list, if it does not exist.
    pub(super) fn find_or_make(&mut self, node: u32, name: &[u8], list: &mut Vec<u32>) -> u32 {
        let name = self.find_or_make_name(name);
        let all = &self.all;
        let hash = self.hasher.hash_one((node, name));
        let found = self.by_place.find(hash, |group| {
            let group = &all[*group as usize];
            (group.node, group.name) == (node, name)
        });
        if let Some(group) = found {
            return *group;
        }
        self.made += 1;
        self.names[name as usize].groups += 1;
        let group = index(self.all.insert(Group {
            node,
            name,
            at: index(list.len()),
            age: self.made,
            members: Vec::new(),
            many: 0,
        }));
        list.push(group);
        let (all, hasher) = (&self.all, &self.hasher);
        self.by_place.insert(hash, group, |group| {
            let group = &all[*group as usize];
            hasher.hash_one((group.node, group.name))
        });
        group
    }

    /// Removes a queue group without members, and its place in `list`, the trie node's list.
    pub(super) fn remove(&mut self, group: u32, list: &mut Vec<u32>) {
        let Group { node, name, at, .. } = self.all.remove(group as usize);
        let hash = self.hasher.hash_one((node, name));
        self.by_place.remove(hash, |other| *other == group);
        list.swap_remove(at as usize);
        if let Some(moved) = list.get(at as usize) {
            self.all[*moved as usize].at = at;
        }
        let uses = &mut self.names[name as usize].groups;
        *uses -= 1;
        if *uses == 0 {
            let Name { text, .. } = self.names.remove(name as usize);
            let hash = self.hasher.hash_one(&*text);
            self.by_text.remove(hash, |other| *other == name);
        }
    }

    fn find_or_make_name(&mut self, text: &[u8]) -> u32 {
        let names = &self.names;
        let hash = self.hasher.hash_one(text);
        let found = self
            .by_text
            .find(hash, |name| *names[*name as usize].text == *text);
        if let Some(name) = found {
            return *name;
        }
        let name = index(self.names.insert(Name {
            text: text.into(),
            groups: 0,
        }));
        let (names, hasher) = (&self.names, &self.hasher);
        self.by_text.insert(hash, name, |name| {
            hasher.hash_one(&*names[*name as usize].text)
        });
        name
    }

    /// Returns the numbers of groups and of names, for tests.
    #[cfg(test)]
    pub(super) fn lens(&self) -> [usize; 4] {
        [
            self.all.len(),
            self.by_place.len(),
            self.names.len(),
            self.by_text.len(),
        ]
    }
}
