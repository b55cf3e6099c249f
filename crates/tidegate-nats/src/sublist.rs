//! Finds the subscriptions that match a subject, with a trie of the patterns' tokens and a cache of earlier
//! results in front of the trie.
//!
//! The sublist knows only the key of a subscription ([`SubKey`]); the caller owns the rest of the
//! subscription. Adding and removing a subscription cost the length of its pattern, independently of the
//! number of other subscriptions. Finding costs a hash and a comparison if the cache knows the subject,
//! otherwise a walk over the trie nodes that can match.
//!
//! The cache is direct-mapped: the hash of a subject chooses one cell, and a cell keeps the matching
//! subscriptions of one subject. The next subject of a cell reuses the cell's memory, so that finding
//! allocates nothing even if no subject occurs twice. A change of a literal subscription invalidates the
//! cell of its subject. A change of a subscription with a wildcard invalidates all cells, because it may
//! concern any subject.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::collections::{ByteMap, ChunkedSlab};
use super::subject::{has_wildcard, tokens};
use super::system::is_inner;

/// The number by which the caller names a subscription. The sublist keeps a table indexed by these numbers,
/// so they should be small and dense.
pub type SubKey = u32;

/// The number of cells of a cache: each cell keeps the matching subscriptions of one subject.
const CACHE_LEN: usize = 4096;
/// The greatest length of a subject in the cache, in bytes. This bound limits the memory of the cache,
/// together with [`CACHED_KEYS_MAX`], the greatest number of subscriptions in a cell.
const CACHED_SUBJECT_BYTES_MAX: usize = 256;
const CACHED_KEYS_MAX: usize = 1024;

const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

/// The subscriptions that match one subject, to which the server delivers a message of this subject.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// The subscriptions outside of queue groups: each receives a copy of the message.
    pub plain: Vec<SubKey>,
    members: Vec<SubKey>,
    firsts: Vec<SubKey>,
    ends: Vec<Ends>,
}

/// The result of a lookup that the sublist lends to the caller during a delivery: see [`Sublist::lend`].
#[derive(Debug)]
pub struct Lent {
    /// The cell of the cache from which the result comes; `None` if the result is not cached.
    slot: Option<usize>,
    /// The subscriptions that match the looked-up subject, to which the caller delivers.
    pub matches: Matches,
}

/// The ends of one queue group's subscriptions in the lists of [`Matches`]. Each list holds the
/// subscriptions of one queue group after the other, so a group begins where the previous one ends.
#[derive(Clone, Copy, Debug)]
struct Ends {
    many: u32,
    single: u32,
    firsts: u32,
}

/// The subscriptions of one queue group that match a subject. The server delivers a message to one member of
/// the group. If several patterns match the subject, the group may have members under each of them.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The subscriptions that each stand for several members of the queue group, such as the subscription of
    /// another node (see [`Sublist::insert_many`]).
    pub many: &'a [SubKey],
    /// The subscriptions that each stand for one member of the queue group.
    pub single: &'a [SubKey],
    /// The first subscription in `single` of each matching pattern under which the group has single members.
    /// The caller finds these patterns by these subscriptions.
    pub firsts: &'a [SubKey],
}

impl Matches {
    /// Iterates over the queue groups with subscriptions that match the subject, each of which gets one copy
    /// of a message.
    pub fn groups(&self) -> impl Iterator<Item = Members<'_>> {
        (0..self.ends.len()).map(|at| self.group(at))
    }

    /// Iterates over all subscriptions that match the subject: first those outside of queue groups, then the
    /// members of queue groups.
    pub fn iter(&self) -> impl Iterator<Item = SubKey> {
        self.plain.iter().chain(&self.members).copied()
    }

    /// Returns the number of subscriptions that match the subject, inside and outside of queue groups.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.plain.len() + self.members.len()
    }

    /// Returns the number of queue groups with subscriptions that match the subject, for a loop over them.
    #[must_use]
    pub const fn groups_len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the queue group with the index `at` among the groups with subscriptions that match the
    /// subject.
    #[must_use]
    pub fn group(&self, at: usize) -> Members<'_> {
        let before = at.checked_sub(1).map(|before| self.ends[before]);
        let (start, first) = before.map_or((0, 0), |ends| (ends.single, ends.firsts));
        let ends = self.ends[at];
        Members {
            many: &self.members[start as usize..ends.many as usize],
            single: &self.members[ends.many as usize..ends.single as usize],
            firsts: &self.firsts[first as usize..ends.firsts as usize],
        }
    }

    /// Returns whether no subscription matches the subject, so that a message has no receiver.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.members.is_empty()
    }

    fn clear(&mut self) {
        self.plain.clear();
        self.members.clear();
        self.firsts.clear();
        self.ends.clear();
    }

    /// Adds the queue groups that a walk has found in the trie. Queue groups with equal names under several
    /// patterns form one group, because the name alone identifies a group.
    fn add_groups(&mut self, nodes: &ChunkedSlab<TrieNode>, found: &mut [GroupPlace]) {
        let at = |place: &GroupPlace| &nodes[place.node as usize].groups[place.group as usize];
        let several = found.first().map(|f| f.node) != found.last().map(|f| f.node);
        if several {
            found.sort_unstable_by(|a, b| at(a).name.cmp(&at(b).name));
        }
        for same in found.chunk_by(|a, b| several && at(a).name == at(b).name) {
            for place in same {
                let (many, _) = at(place).parts();
                self.members.extend_from_slice(many);
            }
            let many = index(self.members.len());
            for place in same {
                let (_, single) = at(place).parts();
                self.firsts.extend(single.first());
                self.members.extend_from_slice(single);
            }
            self.ends.push(Ends {
                many,
                single: index(self.members.len()),
                firsts: index(self.firsts.len()),
            });
        }
    }
}

/// The counts of a sublist, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SublistStats {
    /// The number of subscriptions that the sublist has now.
    pub len: usize,
    /// The number of subscriptions that the sublist has ever added.
    pub inserts: u64,
    /// The number of subscriptions that the sublist has ever removed.
    pub removes: u64,
    /// The number of lookups of subjects so far, one for each delivery of a message.
    pub lookups: u64,
    /// The number of lookups that the cache has answered so far.
    pub hits: u64,
}

/// Keeps the subscriptions of one server by pattern, and finds those that match a subject; see the
/// [module](self).
#[derive(Debug)]
pub struct Sublist {
    nodes: ChunkedSlab<TrieNode>,
    /// The place of each subscription in the trie, by the subscription's key, so that a removal needs no
    /// search.
    places: Vec<Place>,
    hasher: RandomState,
    cache: Vec<Slot>,
    /// The number of changes so far to subscriptions with wildcards. A cell with a smaller number is
    /// invalid, because the sublist filled the cell before the last such change.
    generation: u64,
    /// The result of the last lookup that the cache could not hold, because the subject was too long or too
    /// many subscriptions matched.
    scratch: Matches,
    /// The buffers of a walk over the trie, kept for the next walk so that no walk allocates.
    walk: Walk,
    stats: SublistStats,
}

#[derive(Debug)]
struct TrieNode {
    parent: u32,
    token: Box<[u8]>,
    /// The child nodes by literal token; `None` for a trie node without such children, because most trie
    /// nodes have none.
    children: Option<Box<ByteMap<u32>>>,
    /// The child node for the token `*`, which matches any one token; `NONE` if no pattern continues so.
    any: u32,
    /// The child node for the token `>`, which matches all further tokens; `NONE` if no pattern continues
    /// so.
    rest: u32,
    plain: Vec<SubKey>,
    groups: Vec<Group>,
}

impl TrieNode {
    fn new(parent: u32, token: &[u8]) -> Self {
        Self {
            parent,
            token: token.into(),
            children: None,
            any: NONE,
            rest: NONE,
            plain: Vec::new(),
            groups: Vec::new(),
        }
    }

    fn child(&self, token: &[u8]) -> Option<u32> {
        match token {
            b"*" => Some(self.any).filter(|n| *n != NONE),
            b">" => Some(self.rest).filter(|n| *n != NONE),
            _ => self.literal(token),
        }
    }

    /// Sets the trie node's child for `token`; `NONE` as `child` removes it.
    fn set_child(&mut self, token: &[u8], child: u32) {
        match token {
            b"*" => self.any = child,
            b">" => self.rest = child,
            _ => {
                let children = self.children.get_or_insert_default();
                match child {
                    NONE => children.remove(token),
                    child => children.insert(token.into(), child),
                };
                if children.is_empty() {
                    self.children = None;
                }
            }
        }
    }

    /// Returns the trie node's child for a literal token; `None` if no pattern continues with the token.
    #[inline]
    fn literal(&self, token: &[u8]) -> Option<u32> {
        self.children.as_ref()?.get(token).copied()
    }

    fn is_empty(&self) -> bool {
        let childless = self.children.is_none() && self.any == NONE && self.rest == NONE;
        childless && self.plain.is_empty() && self.groups.is_empty()
    }
}

#[derive(Debug)]
struct Group {
    name: Box<[u8]>,
    members: Vec<SubKey>,
    /// The number of keys in `members` that stand for several members of the queue group. These keys come
    /// first.
    many: u32,
}

impl Group {
    /// Returns the keys that stand for several members of the queue group, and then the keys that stand for
    /// one.
    fn parts(&self) -> (&[SubKey], &[SubKey]) {
        self.members.split_at(self.many as usize)
    }
}

/// The place of a queue group in the trie: the trie node, and the group's index in that node.
#[derive(Clone, Copy, Debug)]
struct GroupPlace {
    node: u32,
    group: u32,
}

/// Walks over the trie for one subject, with buffers that the sublist keeps from one walk to the next.
#[derive(Debug, Default)]
struct Walk {
    /// The branches still to walk, each as a trie node and an index into the subject.
    branches: Vec<(u32, usize)>,
    /// The queue groups that the walk has found so far.
    groups: Vec<GroupPlace>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    node: u32,
    /// The index of the subscription's queue group in the trie node; `NONE` for a subscription outside of
    /// queue groups.
    group: u32,
    /// The index of the subscription's key in the key list of the trie node or of the queue group, so that a
    /// removal needs no search.
    at: u32,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u64,
    subject: Vec<u8>,
    matches: Matches,
}

impl Sublist {
    /// Creates an empty sublist. The seed of its hash function is random for each process, so that clients
    /// cannot choose subjects that collide.
    #[must_use]
    pub fn new() -> Self {
        Self::with_cache(CACHE_LEN)
    }

    /// Creates an empty sublist, which caches the results of at most `len` subjects, and of at least one.
    #[must_use]
    pub fn with_cache(len: usize) -> Self {
        let mut nodes = ChunkedSlab::new();
        nodes.insert(TrieNode::new(NONE, b""));
        let mut cache = Vec::new();
        cache.resize_with(len.max(1), Slot::default);
        Self {
            nodes,
            places: Vec::new(),
            hasher: RandomState::default(),
            cache,
            generation: 1,
            scratch: Matches::default(),
            walk: Walk::default(),
            stats: SublistStats::default(),
        }
    }

    /// Adds the subscription `key` to the well-formed `pattern`, in the queue group `queue`; `None` adds it
    /// outside of queue groups. The sublist must not have the key already.
    pub fn insert(&mut self, pattern: &[u8], queue: Option<&[u8]>, key: SubKey) {
        self.add(pattern, queue, key);
    }

    /// Adds a subscription like [`insert`](Self::insert). In a queue group the key stands for several
    /// members, such as those on another node; the caller knows their number. [`Members`] lists such keys
    /// apart from single members.
    pub fn insert_many(&mut self, pattern: &[u8], queue: Option<&[u8]>, key: SubKey) {
        let Place { node, group, at } = self.add(pattern, queue, key);
        if group == NONE {
            return;
        }
        let group = &mut self.nodes[node as usize].groups[group as usize];
        let to = group.many;
        group.many += 1;
        group.members.swap(at as usize, to as usize);
        self.places[group.members[at as usize] as usize].at = at;
        self.places[key as usize].at = to;
    }

    fn add(&mut self, pattern: &[u8], queue: Option<&[u8]>, key: SubKey) -> Place {
        self.forget(pattern);
        let mut at = ROOT;
        for token in tokens(pattern) {
            let child = self.nodes[at as usize].child(token);
            at = child.unwrap_or_else(|| self.add_node(at, token));
        }
        let node = &mut self.nodes[at as usize];
        let (group, list) = match queue {
            None => (NONE, &mut node.plain),
            Some(name) => {
                let found = node.groups.iter().position(|g| *g.name == *name);
                let i = found.unwrap_or_else(|| {
                    node.groups.push(Group {
                        name: name.into(),
                        members: Vec::new(),
                        many: 0,
                    });
                    node.groups.len() - 1
                });
                (index(i), &mut node.groups[i].members)
            }
        };
        let place = Place {
            node: at,
            group,
            at: index(list.len()),
        };
        list.push(key);
        let free = Place {
            node: NONE,
            group: NONE,
            at: NONE,
        };
        if self.places.len() <= key as usize {
            self.places.resize(key as usize + 1, free);
        }
        let old = std::mem::replace(&mut self.places[key as usize], place);
        assert!(old.node == NONE, "a subscription key is used twice");
        self.stats.len += 1;
        self.stats.inserts += 1;
        place
    }

    /// Removes the subscription `key` from the trie. The caller must give the `pattern` with which it added
    /// the subscription.
    pub fn remove(&mut self, pattern: &[u8], key: SubKey) {
        self.forget(pattern);
        let free = Place {
            node: NONE,
            group: NONE,
            at: NONE,
        };
        let mut place = std::mem::replace(&mut self.places[key as usize], free);
        let node = &mut self.nodes[place.node as usize];
        let list = if place.group == NONE {
            &mut node.plain
        } else {
            let group = &mut node.groups[place.group as usize];
            if place.at < group.many {
                // In `members` the keys that stand for several members come first, and this key is among
                // them. So the sublist swaps the key with the last of these keys, and then removes it like
                // the key of a single member.
                group.many -= 1;
                group.members.swap(place.at as usize, group.many as usize);
                self.places[group.members[place.at as usize] as usize].at = place.at;
                self.places[key as usize] = free;
                place.at = group.many;
            }
            &mut group.members
        };
        let removed = list.swap_remove(place.at as usize);
        assert!(removed == key, "a subscription is not where it was put");
        if let Some(moved) = list.get(place.at as usize) {
            self.places[*moved as usize].at = place.at;
        }
        if place.group != NONE && list.is_empty() {
            node.groups.swap_remove(place.group as usize);
            if let Some(moved) = node.groups.get(place.group as usize) {
                for key in &moved.members {
                    self.places[*key as usize].group = place.group;
                }
            }
        }
        self.prune(place.node);
        self.stats.len -= 1;
        self.stats.removes += 1;
    }

    /// Returns the subscriptions that match `subject`, for the delivery of a message. Treats a wildcard in
    /// `subject` as a literal token. No subscription matches a subject with an empty token.
    #[inline]
    pub fn matches(&mut self, subject: &[u8]) -> &Matches {
        match self.look_up(subject) {
            Some(at) => &self.cache[at].matches,
            None => &self.scratch,
        }
    }

    /// Lends the subscriptions that match `subject` to the caller without a borrow of the sublist, so that
    /// the caller can change its own state during a delivery. The caller returns the result with
    /// [`put_back`](Self::put_back), or keeps it with [`keep`](Self::keep). Until then the caller must not
    /// look up a subject or change a subscription.
    #[inline]
    pub fn lend(&mut self, subject: &[u8]) -> Lent {
        let slot = self.look_up(subject);
        let matches = match slot {
            Some(at) => &mut self.cache[at].matches,
            None => &mut self.scratch,
        };
        let matches = std::mem::take(matches);
        Lent { slot, matches }
    }

    /// Takes back a result that [`lend`](Self::lend) lent, so that the cache has the result again.
    #[inline]
    pub fn put_back(&mut self, Lent { slot, matches }: Lent) {
        match slot {
            Some(at) => self.cache[at].matches = matches,
            None => self.scratch = matches,
        }
    }

    /// Leaves a result that [`lend`](Self::lend) lent to the caller for good, and invalidates the result's
    /// cell of the cache.
    pub fn keep(&mut self, Lent { slot, matches }: Lent) -> Matches {
        if let Some(at) = slot {
            self.cache[at].generation = 0;
        }
        matches
    }

    /// Finds the subscriptions that match `subject`, in the cache or in the trie. Returns the cell of the
    /// cache that holds them; `None` if `scratch` holds them.
    #[inline]
    fn look_up(&mut self, subject: &[u8]) -> Option<usize> {
        self.stats.lookups += 1;
        if subject.len() > CACHED_SUBJECT_BYTES_MAX {
            self.walk.run(&self.nodes, &mut self.scratch, subject);
            return None;
        }
        let at = self.slot(subject);
        let slot = &mut self.cache[at];
        if slot.generation == self.generation && slot.subject == subject {
            self.stats.hits += 1;
            return Some(at);
        }
        self.walk.run(&self.nodes, &mut slot.matches, subject);
        if slot.matches.len() > CACHED_KEYS_MAX {
            self.scratch = std::mem::take(&mut slot.matches);
            slot.generation = 0;
            return None;
        }
        slot.generation = self.generation;
        slot.subject.clear();
        slot.subject.extend_from_slice(subject);
        Some(at)
    }

    /// Returns the subscriptions that match `subject`, without a change to the cache or the counts, for
    /// callers that only look. Puts a result that is not cached into `scratch`.
    #[must_use]
    pub fn find<'a>(&'a self, subject: &[u8], scratch: &'a mut Matches) -> &'a Matches {
        if subject.len() <= CACHED_SUBJECT_BYTES_MAX {
            let slot = &self.cache[self.slot(subject)];
            if slot.generation == self.generation && slot.subject == subject {
                return &slot.matches;
            }
        }
        Walk::default().run(&self.nodes, scratch, subject);
        scratch
    }

    /// Returns one of the subscriptions outside of queue groups that match this subject, for a caller that
    /// needs to know only whether one exists; `None` if none exists.
    #[must_use]
    pub fn first_wanting(&self, subject: &[u8]) -> Option<SubKey> {
        let mut found = Matches::default();
        Walk::default().run(&self.nodes, &mut found, subject);
        found.plain.first().copied()
    }

    /// Returns the counts of the sublist, for monitoring: its subscriptions, changes and lookups.
    #[must_use]
    pub const fn stats(&self) -> SublistStats {
        self.stats
    }

    fn slot(&self, subject: &[u8]) -> usize {
        self.hasher.hash_one(subject) as usize % self.cache.len()
    }

    fn forget(&mut self, pattern: &[u8]) {
        if has_wildcard(pattern) {
            self.generation += 1;
        } else {
            let at = self.slot(pattern);
            self.cache[at].generation = 0;
        }
    }

    fn add_node(&mut self, parent: u32, token: &[u8]) -> u32 {
        let child = index(self.nodes.insert(TrieNode::new(parent, token)));
        self.nodes[parent as usize].set_child(token, child);
        child
    }

    /// Removes the trie node `at` if it is empty, and then each ancestor that becomes empty, to free their
    /// memory.
    fn prune(&mut self, mut at: u32) {
        while at != ROOT {
            if !self.nodes[at as usize].is_empty() {
                return;
            }
            let node = self.nodes.remove(at as usize);
            self.nodes[node.parent as usize].set_child(&node.token, NONE);
            at = node.parent;
        }
    }
}

impl Default for Sublist {
    fn default() -> Self {
        Self::new()
    }
}

impl Walk {
    /// Walks the trie for `subject` and puts the matching subscriptions into `out`. The walk keeps a stack
    /// of its own with the branches still to walk, so that a subject of thousands of tokens cannot overflow
    /// the thread's stack.
    fn run(&mut self, nodes: &ChunkedSlab<TrieNode>, out: &mut Matches, subject: &[u8]) {
        self.branches.clear();
        self.groups.clear();
        out.clear();
        if tokens(subject).any(<[u8]>::is_empty) {
            return;
        }
        // A wildcard must not match the first token of the system account's inner subjects, so that no
        // client of another account receives their messages.
        let apart = is_inner(subject);
        let mut next = Some((ROOT, 0));
        while let Some((at, from)) = next {
            let node = &nodes[at as usize];
            let wild = at != ROOT || !apart;
            if from > subject.len() {
                self.take(at, node, out);
                next = self.branches.pop();
                continue;
            }
            let rest = &subject[from..];
            let token = &rest[..memchr::memchr(b'.', rest).unwrap_or(rest.len())];
            if wild && node.rest != NONE {
                self.take(node.rest, &nodes[node.rest as usize], out);
            }
            let after = from + token.len() + 1;
            let any = (wild && node.any != NONE).then_some((node.any, after));
            // A subject may contain a token that looks like a wildcard, because the session checks subjects
            // only if the client asks for that. The lookup finds no literal child for such a token.
            let literal = node.literal(token).map(|n| (n, after));
            next = match (literal, any) {
                (Some(literal), Some(any)) => {
                    self.branches.push(any);
                    Some(literal)
                }
                (literal, any) => literal.or(any).or_else(|| self.branches.pop()),
            };
        }
        out.add_groups(nodes, &mut self.groups);
    }

    /// Adds the subscriptions and queue groups of a matching trie node to the result.
    fn take(&mut self, at: u32, node: &TrieNode, out: &mut Matches) {
        out.plain.extend_from_slice(&node.plain);
        let all = (0..index(node.groups.len())).map(|group| GroupPlace { node: at, group });
        self.groups.extend(all);
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("trie nodes and subscriptions take more than a byte each")
}

#[cfg(test)]
mod tests {
    use super::super::subject::{contains, is_pattern};
    use super::*;
    use proptest::prelude::*;

    fn found(list: &mut Sublist, subject: &str) -> (Vec<SubKey>, Vec<Vec<SubKey>>) {
        let m = list.matches(subject.as_bytes());
        let sorted = |keys: &[SubKey]| {
            let mut keys = keys.to_vec();
            keys.sort_unstable();
            keys
        };
        let all = |group: Members<'_>| sorted(&[group.many, group.single].concat());
        let mut groups: Vec<_> = m.groups().map(all).collect();
        groups.sort();
        (sorted(&m.plain), groups)
    }

    #[test]
    fn wildcards_and_groups() {
        let mut list = Sublist::new();
        for (key, pattern) in [">", "a.*", "a.b", "*.b", "a.>", "*.*", "b.b"]
            .iter()
            .enumerate()
        {
            list.insert(pattern.as_bytes(), None, key as SubKey);
        }
        list.insert(b"a.b", Some(b"q"), 10);
        list.insert(b"a.b", Some(b"q"), 11);
        list.insert(b"a.*", Some(b"q"), 12);
        list.insert(b"a.*", Some(b"r"), 13);
        let all = (vec![0, 1, 2, 3, 4, 5], vec![vec![10, 11, 12], vec![13]]);
        assert_eq!(found(&mut list, "a.b"), all);
        assert_eq!(found(&mut list, "a.b"), all);
        assert_eq!(list.stats().hits, 1);
        assert_eq!(found(&mut list, "a"), (vec![0], vec![]));
        assert!(found(&mut list, "a..b").0.is_empty());
        list.remove(b"a.b", 10);
        list.remove(b"a.b", 11);
        assert_eq!(found(&mut list, "a.b").1, vec![vec![12], vec![13]]);
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(String, Option<u8>, bool),
        Remove(usize),
        Find(String),
    }

    fn act() -> impl Strategy<Value = Act> {
        let word = |choices: &'static [&'static str]| {
            prop::collection::vec(prop::sample::select(choices), 1..4).prop_map(|v| v.join("."))
        };
        prop_oneof![
            3 => (word(&["a", "b", "*", ">"]), prop::option::of(0..2_u8), any::<bool>())
                .prop_map(|(p, q, many)| Act::Insert(p, q, many)),
            2 => any::<prop::sample::Index>().prop_map(|i| Act::Remove(i.index(1000))),
            4 => word(&["a", "b", "c", "*"]).prop_map(Act::Find),
        ]
    }

    proptest! {
        /// Compares a sublist with a naive model that tests every subscription against each subject.
        #[test]
        fn as_the_naive_model(acts in prop::collection::vec(act(), 1..200)) {
            let mut list = Sublist::new();
            let mut model: Vec<Option<(String, Option<u8>, bool)>> = Vec::new();
            for act in acts {
                match act {
                    Act::Insert(p, q, many) if is_pattern(p.as_bytes()) => {
                        let name = q.map(|q| [q]);
                        let (queue, key) = (name.as_ref().map(|n| &n[..]), model.len() as SubKey);
                        match many {
                            true => list.insert_many(p.as_bytes(), queue, key),
                            false => list.insert(p.as_bytes(), queue, key),
                        }
                        model.push(Some((p, q, many)));
                    }
                    Act::Insert(..) => {}
                    Act::Remove(i) => {
                        let live: Vec<_> = (0..model.len()).filter(|k| model[*k].is_some()).collect();
                        if let Some(key) = live.get(i % live.len().max(1)) {
                            let (p, ..) = model[*key].take().unwrap();
                            list.remove(p.as_bytes(), *key as SubKey);
                        }
                    }
                    Act::Find(subject) => {
                        // The model replaces a wildcard in the subject by a plain token, because only a
                        // pattern with a wildcard at that place matches it.
                        let literal = subject.replace('*', "\u{1}");
                        let mut plain = Vec::new();
                        let mut groups = std::collections::BTreeMap::<_, Vec<SubKey>>::new();
                        for (key, sub) in model.iter().enumerate() {
                            let Some((p, q, _)) = sub else { continue };
                            if contains(p.as_bytes(), literal.as_bytes()) {
                                match q {
                                    None => plain.push(key as SubKey),
                                    Some(q) => groups.entry(*q).or_default().push(key as SubKey),
                                }
                            }
                        }
                        let mut groups: Vec<_> = groups.into_values().collect();
                        groups.sort();
                        let wanted = !plain.is_empty();
                        prop_assert_eq!(list.first_wanting(subject.as_bytes()).is_some(), wanted);
                        prop_assert_eq!(found(&mut list, &subject), (plain, groups));
                        for group in list.matches(subject.as_bytes()).groups() {
                            let many = |key: &SubKey| model[*key as usize].as_ref().is_some_and(|m| m.2);
                            prop_assert!(group.many.iter().all(many));
                            prop_assert!(!group.single.iter().any(many));
                            let pattern = |key: &SubKey| &model[*key as usize].as_ref().unwrap().0;
                            let mut firsts: Vec<_> = group.firsts.iter().map(pattern).collect();
                            firsts.sort();
                            let mut patterns: Vec<_> = group.single.iter().map(pattern).collect();
                            patterns.sort();
                            patterns.dedup();
                            prop_assert_eq!(firsts, patterns);
                        }
                    }
                }
                prop_assert_eq!(list.stats().len, model.iter().flatten().count());
            }
            for (key, sub) in model.iter().enumerate() {
                if let Some((p, ..)) = sub {
                    list.remove(p.as_bytes(), key as SubKey);
                }
            }
            prop_assert_eq!(list.nodes.len(), 1, "nothing is left behind");
        }
    }
}
