//! Finds the subscriptions that match a subject, with a trie of the patterns' tokens and a cache of earlier
//! results in front of the trie.
//!
//! The sublist knows only the key of a subscription ([`SubKey`]); the caller owns the rest of the
//! subscription. Adding and removing a subscription cost the length of its pattern, independently of the
//! number of other subscriptions and of queue groups. Finding costs a hash and a comparison if the cache
//! knows the subject, otherwise a walk over the trie nodes that can match. The sublist counts the nodes and
//! queue groups that walks visit ([`SublistStats::visits`]), because they may be very many.
//!
//! The cache is direct-mapped: the hash of a subject chooses one cell, and a cell keeps the matching
//! subscriptions of one subject. The next subject of a cell reuses the cell's memory, so that finding
//! allocates nothing even if no subject occurs twice. A change of a literal subscription invalidates the
//! cell of its subject. A change of a subscription with a wildcard invalidates all cells, because it may
//! concern any subject.

mod groups;
mod matches;
#[cfg(test)]
mod tests;
mod walk;

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use self::groups::Groups;
pub use self::matches::{Matches, Members};
use self::walk::{Trie, Walk};
use super::collections::{ByteMap, ChunkedSlab};
use super::subject::{has_wildcard, tokens};

/// The number by which the caller names a subscription. The sublist keeps a table indexed by these numbers,
/// so they should be small and dense.
pub type SubKey = u32;

/// The number of cells of a cache: each cell keeps the matching subscriptions of one subject.
const CACHE_LEN: usize = 4096;
/// The greatest length of a subject in the cache, in bytes. This bound limits the memory of the cache,
/// together with [`CACHED_KEYS_MAX`], the greatest number of subscriptions in a cell.
const CACHED_SUBJECT_BYTES_MAX: usize = 256;
const CACHED_KEYS_MAX: usize = 1024;
/// The greatest number of queue groups of which a look-up gathers the members at once. The caller gathers
/// those of further groups in parts.
const GATHERED_AT_ONCE: usize = 512;

const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

/// The result of a lookup that the sublist lends to the caller during a delivery: see [`Sublist::lend`].
#[derive(Debug)]
pub struct Lent {
    /// The cell of the cache from which the result comes; `None` if the result is not cached.
    slot: Option<usize>,
    /// The subscriptions that match the looked-up subject, to which the caller delivers.
    pub matches: Matches,
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
    /// The number of trie nodes and queue groups that all other lookups have visited so far, which is about
    /// their cost.
    pub visits: u64,
}

/// Keeps the subscriptions of one server by pattern, and finds those that match a subject; see the
/// [module](self).
#[derive(Debug)]
pub struct Sublist {
    nodes: ChunkedSlab<TrieNode>,
    groups: Groups,
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
    /// The child nodes for literal tokens.
    children: Children,
    /// The child node for the token `*`, which matches any one token; `NONE` if no pattern continues so.
    any: u32,
    /// The child node for the token `>`, which matches all further tokens; `NONE` if no pattern continues
    /// so.
    rest: u32,
    plain: Vec<SubKey>,
    /// The numbers of the queue groups under the pattern that ends here.
    groups: Vec<u32>,
}

/// The child nodes of a trie node for literal tokens. Most trie nodes have none or one.
#[derive(Debug, Default)]
enum Children {
    #[default]
    None,
    /// The child node and the lower half of its token's hash, so that a walk rarely visits a child in vain.
    One { hash: u32, node: u32 },
    /// The child nodes by token.
    Many(Box<ByteMap<u32>>),
}

impl TrieNode {
    fn new(parent: u32, token: &[u8]) -> Self {
        Self {
            parent,
            token: token.into(),
            children: Children::None,
            any: NONE,
            rest: NONE,
            plain: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Returns the trie node's child for a literal token with this hash; `None` if no pattern continues with
    /// the token.
    #[inline]
    fn literal(&self, nodes: &ChunkedSlab<Self>, hash: u64, token: &[u8]) -> Option<u32> {
        match &self.children {
            Children::None => None,
            Children::One { hash: half, node } => {
                let same = *half == hash as u32 && *nodes[*node as usize].token == *token;
                same.then_some(*node)
            }
            Children::Many(children) => children.get_hashed(hash, token).copied(),
        }
    }

    fn is_empty(&self) -> bool {
        let literals = !matches!(self.children, Children::None);
        let childless = !literals && self.any == NONE && self.rest == NONE;
        childless && self.plain.is_empty() && self.groups.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    node: u32,
    /// The number of the subscription's queue group; `NONE` for a subscription outside of queue groups.
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
            groups: Groups::default(),
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
        let Place { group, at, .. } = self.add(pattern, queue, key);
        if group == NONE {
            return;
        }
        let group = self.groups.get_mut(group);
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
            let child = self.child(at, token);
            at = child.unwrap_or_else(|| self.add_node(at, token));
        }
        let node = &mut self.nodes[at as usize];
        let (group, list) = match queue {
            None => (NONE, &mut node.plain),
            Some(name) => {
                let group = self.groups.find_or_make(at, name, &mut node.groups);
                (group, &mut self.groups.get_mut(group).members)
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
            let group = self.groups.get_mut(place.group);
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
            self.groups.remove(place.group, &mut node.groups);
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
            None => {
                self.scratch.gather(&self.groups, usize::MAX);
                &self.scratch
            }
        }
    }

    /// Returns whether a queue group that matches `subject` has a key that stands for several members (see
    /// [`insert_many`](Self::insert_many)).
    pub fn matches_many(&mut self, subject: &[u8]) -> bool {
        let found = match self.look_up(subject) {
            Some(at) => &self.cache[at].matches,
            None => &self.scratch,
        };
        found.has_many(&self.groups)
    }

    /// Lends the subscriptions that match `subject` to the caller without a borrow of the sublist, so that
    /// the caller can change its own state during a delivery. The caller returns the result with
    /// [`put_back`](Self::put_back), or keeps it with [`keep`](Self::keep). Until then the caller must not
    /// look up a subject or change a subscription.
    ///
    /// If very many queue groups match, the result lacks the members of some ([`Matches::is_gathered`]), and
    /// the caller adds them with [`gather`](Self::gather).
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

    /// Adds to a result of [`lend`](Self::lend) the members of about `most` further queue groups. Leaves out
    /// the groups that have ended since.
    pub fn gather(&self, matches: &mut Matches, most: usize) {
        matches.gather(&self.groups, most);
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
            self.walk_for(subject);
            return None;
        }
        let at = self.slot(subject);
        let slot = &mut self.cache[at];
        if slot.generation == self.generation && slot.subject == subject {
            self.stats.hits += 1;
            return Some(at);
        }
        slot.generation = 0;
        // The walk uses the memory of the cell, which stays small.
        self.scratch = std::mem::take(&mut slot.matches);
        self.walk_for(subject);
        if !self.scratch.is_gathered() || self.scratch.len() > CACHED_KEYS_MAX {
            return None;
        }
        let slot = &mut self.cache[at];
        slot.matches = std::mem::take(&mut self.scratch);
        slot.generation = self.generation;
        slot.subject.clear();
        slot.subject.extend_from_slice(subject);
        Some(at)
    }

    /// Walks the trie for `subject`, with the result in `scratch`.
    fn walk_for(&mut self, subject: &[u8]) {
        let trie = Trie {
            nodes: &self.nodes,
            groups: &self.groups,
            hasher: &self.hasher,
        };
        self.stats.visits += self.walk.run(trie, &mut self.scratch, subject);
        if self.scratch.groups_found() <= GATHERED_AT_ONCE {
            self.scratch.gather(&self.groups, usize::MAX);
        }
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
        Walk::default().run(self.trie(), scratch, subject);
        scratch.gather(&self.groups, usize::MAX);
        scratch
    }

    /// Returns one of the subscriptions outside of queue groups that match this subject, for a caller that
    /// needs to know only whether one exists; `None` if none exists.
    #[must_use]
    pub fn first_wanting(&self, subject: &[u8]) -> Option<SubKey> {
        let mut found = Matches::default();
        Walk::default().run(self.trie(), &mut found, subject);
        found.plain.first().copied()
    }

    /// Returns the counts of the sublist, for monitoring: its subscriptions, changes and lookups.
    #[must_use]
    pub const fn stats(&self) -> SublistStats {
        self.stats
    }

    const fn trie(&self) -> Trie<'_> {
        Trie {
            nodes: &self.nodes,
            groups: &self.groups,
            hasher: &self.hasher,
        }
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

    fn child(&self, at: u32, token: &[u8]) -> Option<u32> {
        let node = &self.nodes[at as usize];
        match token {
            b"*" => Some(node.any).filter(|n| *n != NONE),
            b">" => Some(node.rest).filter(|n| *n != NONE),
            _ => node.literal(&self.nodes, self.hasher.hash_one(token), token),
        }
    }

    /// Adds the child node for a literal token, which the trie node `parent` does not have yet.
    fn add_literal(&mut self, parent: u32, token: &[u8], node: u32) {
        let children = std::mem::take(&mut self.nodes[parent as usize].children);
        let children = match children {
            Children::None => Children::One {
                hash: self.hasher.hash_one(token) as u32,
                node,
            },
            Children::One { node: first, .. } => {
                let mut children = ByteMap::with_hasher(self.hasher.clone());
                children.insert(self.nodes[first as usize].token.clone(), first);
                children.insert(token.into(), node);
                Children::Many(Box::new(children))
            }
            Children::Many(mut children) => {
                children.insert(token.into(), node);
                Children::Many(children)
            }
        };
        self.nodes[parent as usize].children = children;
    }

    fn add_node(&mut self, parent: u32, token: &[u8]) -> u32 {
        let child = index(self.nodes.insert(TrieNode::new(parent, token)));
        match token {
            b"*" => self.nodes[parent as usize].any = child,
            b">" => self.nodes[parent as usize].rest = child,
            _ => self.add_literal(parent, token, child),
        }
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
            let parent = &mut self.nodes[node.parent as usize];
            match &*node.token {
                b"*" => parent.any = NONE,
                b">" => parent.rest = NONE,
                token => match &mut parent.children {
                    Children::Many(children) => {
                        children.remove(token);
                        if children.is_empty() {
                            parent.children = Children::None;
                        }
                    }
                    children => *children = Children::None,
                },
            }
            at = node.parent;
        }
    }
}

impl Default for Sublist {
    fn default() -> Self {
        Self::new()
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).expect("trie nodes and subscriptions take more than a byte each")
}
