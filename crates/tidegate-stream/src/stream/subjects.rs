//! Keeps the subjects of a stream's messages. The stream stores the bytes of each subject once, with a small
//! number and the count of the subject's messages, so that a message takes little memory and a query by
//! subject little time.
//!
//! After the last message of a subject is gone, another subject may get its number; a module that keeps a
//! subject's number outside of the stream notices that by the `birth` of the number's subject. The numbers of
//! the first and the last message of a subject are bounds: these messages may be gone. A query makes the
//! bounds exact; if a removal did that, every removed message would cost a search. If a stream limits its
//! messages for each subject to more than one, this module also keeps the list of each subject's message
//! numbers ([`Subjects::set_chained`]), because each new message may remove the oldest message of its
//! subject.
//!
//! One command may remove the last messages of a million subjects. The stream counts these removals at once,
//! and frees the subjects' numbers. The names stay in the tables until [`Subjects::reclaim`] removes them,
//! part by part; no query finds them there. A new subject that gets such a number removes the old name first,
//! so the numbers of subjects do not depend on the progress of this work.

use std::collections::{BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_nats::collections::Table;

use super::chunked::Chunked;
use super::wire::RestoreError;
use super::wire::{Reader, put_bytes, put_len, put_u32};
use crate::schema::sequence::StreamSeq;

/// The bytes of a subject, which the index, effects and consumers share without copies.
pub type Name = Arc<[u8]>;

/// The number of subject names in a page. A snapshot shares whole pages with the stream, so a change of a
/// name copies at most one page.
const PAGE_LEN: usize = 256;

/// A page of subject names, in the order of the subjects' numbers; `None` where no subject has the number.
pub(super) type Page = [Option<Name>; PAGE_LEN];

/// The subjects of a stream's messages, each with a small number and a count of its messages, so that queries
/// by subject need not visit all messages.
#[derive(Debug)]
pub(super) struct Subjects {
    pages: Vec<Arc<Page>>,
    stats: Chunked<Stat>,
    by_name: Table<u32>,
    hasher: RandomState,
    /// The free numbers, which no subject of the stream has now. The next new subject gets the last of them,
    /// so that all nodes give the same numbers.
    free: Chunked<u32>,
    /// The number of entries at the beginning of `free` for which the tables no longer have the name of the
    /// last subject. [`Subjects::reclaim`] continues behind them.
    reclaimed: usize,
    births: u32,
    /// The list of the message numbers of each subject; `None` if the stream's limits do not require these
    /// lists, which then save their memory.
    chains: Option<Chains>,
}

/// The list of the message numbers of each subject, by the subject's number. The front of a list is the
/// subject's oldest message. The list of a subject with one message may be empty: the bounds of the subject
/// are this message then. So a million subjects with one message each take no memory for their lists.
pub(super) type Chains = Chunked<VecDeque<StreamSeq>>;

/// The names of a stream's subjects by number, in pages that a snapshot shares with the stream, so that it
/// copies no name.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pages: Vec<Arc<Page>>,
    /// The upper bound of the numbers of subjects: every number, in use or free, is lower. A reader of the
    /// snapshot makes as many places.
    len: usize,
    /// The free numbers, which no subject of the stream has now. The next new subject gets the last of them,
    /// also after a restore from the snapshot.
    free: Chunked<u32>,
}

impl Names {
    /// Returns the number of pages that hold the subject names. A snapshot encodes them one by one.
    pub(super) fn pages_len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        put_len(out, self.len);
        put_len(out, self.free.len());
        self.free.iter().for_each(|id| put_u32(out, *id));
    }

    /// Returns the set of the free numbers, which [`Names::encode_page`] needs to leave out the names of free
    /// numbers.
    pub(super) fn free_set(&self) -> FreeSet {
        let mut words = vec![0; self.len.div_ceil(64)];
        for id in self.free.iter() {
            words[*id as usize / 64] |= 1 << (id % 64);
        }
        FreeSet(words)
    }

    /// Writes the subject names of one page, except names that free numbers still have, because those depend
    /// on the progress of this node's work. A reader knows from the free numbers which places of the page
    /// have no name.
    pub(super) fn encode_page(&self, page: usize, free: &FreeSet, out: &mut Vec<u8>) {
        for (at, name) in self.pages[page].iter().enumerate() {
            if let Some(name) = name
                && !free.has(page * PAGE_LEN + at)
            {
                put_bytes(out, name);
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        let inconsistent = || RestoreError::Inconsistent("the subjects of a stream");
        let len = from.len(4)?;
        let mut names = Self {
            pages: Vec::with_capacity(len.div_ceil(PAGE_LEN)),
            len,
            free: Chunked::new(),
        };
        let mut is_free = vec![false; len];
        for _ in 0..from.len(4)? {
            let id = from.u32()?;
            let slot = is_free.get_mut(id as usize).ok_or_else(inconsistent)?;
            if std::mem::replace(slot, true) {
                return Err(inconsistent());
            }
            names.free.push(id);
        }
        for free in is_free.chunks(PAGE_LEN) {
            let mut page = [const { None }; PAGE_LEN];
            for (name, free) in page.iter_mut().zip(free) {
                if !free {
                    *name = Some(from.bytes()?.into());
                }
            }
            names.pages.push(Arc::new(page));
        }
        Ok(names)
    }

    /// Returns whether a subject of the stream has the number `id` now. A decoder refuses messages with other
    /// numbers.
    pub(super) fn has(&self, id: u32) -> bool {
        name_in(&self.pages, id).is_some()
    }
}

/// The numbers that no subject of a stream has at the time of a snapshot: one bit for each number, so that
/// the encoder looks a number up quickly.
#[derive(Clone, Debug)]
pub(super) struct FreeSet(Vec<u64>);

impl FreeSet {
    /// The set without numbers, before the encoding of a stream begins.
    pub(super) const NONE: Self = Self(Vec::new());

    fn has(&self, id: usize) -> bool {
        self.0[id / 64] & (1 << (id % 64)) != 0
    }
}

/// The count and the bounds of a subject's messages, which limit a search for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    /// A lower bound of the number of the subject's first message, at which a search begins.
    pub(super) first: StreamSeq,
    /// An upper bound of the number of the subject's last message, at which a search ends.
    pub(super) last: StreamSeq,
    pub(super) count: u32,
    /// A number that no earlier subject with the same subject number had, by which a filter that caches
    /// results notices that another subject has taken over the number.
    pub(super) birth: u32,
}

impl Subjects {
    pub(super) fn new() -> Self {
        Self {
            pages: Vec::new(),
            stats: Chunked::new(),
            by_name: Table::new(),
            hasher: RandomState::default(),
            free: Chunked::new(),
            reclaimed: 0,
            births: 0,
            chains: None,
        }
    }

    /// Restores the subjects and their numbers from a snapshot. The caller then counts the messages, because
    /// the snapshot has no counts.
    pub(super) fn restored(names: Names) -> Self {
        let mut all = Self {
            pages: names.pages,
            reclaimed: names.free.len(),
            free: names.free,
            ..Self::new()
        };
        for id in 0..names.len as u32 {
            all.births += 1;
            all.stats.push(Stat {
                first: StreamSeq::ZERO,
                last: StreamSeq::ZERO,
                count: 0,
                birth: all.births,
            });
            if let Some(name) = name_in(&all.pages, id) {
                let (pages, hasher) = (&all.pages, &all.hasher);
                let rehash = |id: &u32| hash_in(hasher, pages, *id);
                let hash = hasher.hash_one(&**name);
                all.by_name.insert(hash, id, rehash);
            }
        }
        all
    }

    /// Returns whether every subject that has a number has at least one message, as in each sound snapshot.
    /// Otherwise the reader refuses the snapshot.
    pub(super) fn all_used(&self) -> bool {
        self.iter().count() == self.len()
    }

    /// Returns the subjects' names by number and the free numbers for a snapshot, which shares the names with
    /// the stream and copies none.
    pub(super) fn shared(&self) -> Names {
        Names {
            pages: self.pages.clone(),
            len: self.stats.len(),
            free: self.free.clone(),
        }
    }

    /// Returns the number of subjects with messages in the stream: all numbers except the free ones.
    pub(super) fn len(&self) -> usize {
        self.stats.len() - self.free.len()
    }

    /// Returns the number of places of subjects, with the free ones, over which a query in parts goes.
    pub(super) fn places_len(&self) -> usize {
        self.stats.len()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<u32> {
        self.find_hashed(name, self.hasher.hash_one(name))
    }

    /// Returns the number of the subject `name`, which has this hash; `None` if the stream has no messages of
    /// the subject. The caller has computed the hash, which it may need again.
    #[inline]
    fn find_hashed(&self, name: &[u8], hash: u64) -> Option<u32> {
        // A free number may still have the name of its last subject, so the search also looks at the count.
        let same = |id: &u32| {
            let named = name_in(&self.pages, *id).is_some_and(|n| **n == *name);
            named && self.stats[*id as usize].count > 0
        };
        self.by_name.find(hash, same).copied()
    }

    pub(super) fn name(&self, id: u32) -> Option<&Name> {
        name_in(&self.pages, id)
    }

    pub(super) fn stat(&self, id: u32) -> &Stat {
        &self.stats[id as usize]
    }

    /// Iterates over all subjects with messages, in the order of the subjects' numbers, for queries over all
    /// subjects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Name, &Stat)> {
        let stats = self.stats.iter().zip(0..);
        let used = stats.filter(|(stat, _)| stat.count > 0);
        used.filter_map(|(stat, id)| Some((id, self.name(id)?, stat)))
    }

    /// Iterates over the numbers of the subjects that have messages, the highest first, each with an upper
    /// bound of the number of its last message. A search for the latest message begins with high subject
    /// numbers, which are often the newest.
    pub(super) fn bounds_back(&self) -> impl Iterator<Item = (u32, StreamSeq)> {
        let stats = self
            .stats
            .iter_back()
            .zip((0..self.stats.len() as u32).rev());
        let used = stats.filter(|(stat, _)| stat.count > 0);
        used.map(|(stat, id)| (id, stat.last))
    }

    /// Iterates over the numbers of the subjects that have more than `limit` messages, each with the number
    /// of messages above the limit. An update with a lower limit removes them.
    pub(super) fn above(&self, limit: u64) -> impl Iterator<Item = (u32, u64)> {
        // A subject counts its messages as `u32`, so no subject exceeds a higher limit.
        let all = self
            .stats
            .iter()
            .zip(0..)
            .take_while(move |_| limit < u32::MAX.into());
        let excess =
            move |(stat, id): (&Stat, u32)| Some((id, u64::from(stat.count).checked_sub(limit)?));
        all.filter_map(excess).filter(|(_, excess)| *excess > 0)
    }

    /// Iterates over the numbers of the subjects that have messages, each with the count of its messages, so
    /// that a purge knows how many messages match.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.above(0)
    }

    /// Iterates over the subjects that have messages and a number from `from` to `from` + `len` - 1. Also
    /// returns the number at which the next part begins; `None` after the last number. So a query over many
    /// subjects spreads over several turns.
    pub(super) fn part(
        &self,
        from: usize,
        len: usize,
    ) -> (impl Iterator<Item = (u32, &Name, &Stat)>, Option<usize>) {
        let end = from.saturating_add(len).min(self.stats.len());
        let used = (from.min(end)..end).filter(|at| self.stats[*at].count > 0);
        let part = used.filter_map(|at| {
            // The cast loses nothing, because the numbers of subjects are `u32`.
            let id = at as u32;
            Some((id, self.name(id)?, &self.stats[at]))
        });
        (part, (end < self.stats.len()).then_some(end))
    }

    /// Counts message `seq` for the subject `name`, and gives a new subject a number. Returns the number and
    /// the shared bytes of the subject, for the index and the effect.
    pub(super) fn add(&mut self, name: &[u8], seq: StreamSeq) -> (u32, Name) {
        let hash = self.hasher.hash_one(name);
        if let Some(id) = self.find_hashed(name, hash) {
            self.count_in(id, seq);
            let shared = name_in(&self.pages, id).cloned();
            return (
                id,
                shared.expect("the table finds only subjects with a name"),
            );
        }
        let shared: Name = name.into();
        let id = self.give(&shared, hash);
        self.count_in(id, seq);
        (id, shared)
    }

    /// Counts message `seq` for the subject that has the number `id`, when the stream stores the message or
    /// restores a snapshot.
    pub(super) fn count_in(&mut self, id: u32, seq: StreamSeq) {
        let stat = &mut self.stats[id as usize];
        if stat.count == 0 {
            stat.first = seq;
        }
        let first = stat.first;
        stat.last = seq;
        stat.count += 1;
        if let Some(chains) = self.chains.as_mut().filter(|_| stat.count > 1) {
            let chain = &mut chains[id as usize];
            if chain.is_empty() {
                chain.push_back(first);
            }
            chain.push_back(seq);
        }
    }

    fn give(&mut self, name: &Name, hash: u64) -> u32 {
        self.births = self.births.wrapping_add(1);
        let stat = Stat {
            first: StreamSeq::ZERO,
            last: StreamSeq::ZERO,
            count: 0,
            birth: self.births,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.reclaimed = self.reclaimed.min(self.free.len());
                self.unname(id);
                self.stats[id as usize] = stat;
                id
            }
            None => {
                self.stats.push(stat);
                if let Some(chains) = &mut self.chains {
                    chains.push(VecDeque::new());
                }
                // The cast loses nothing: a stream has fewer than 2^32 subjects, because each takes more than
                // a byte of memory.
                (self.stats.len() - 1) as u32
            }
        };
        let (page, at) = (id as usize / PAGE_LEN, id as usize % PAGE_LEN);
        if page == self.pages.len() {
            self.pages.push(Arc::new([const { None }; PAGE_LEN]));
        }
        Arc::make_mut(&mut self.pages[page])[at] = Some(Arc::clone(name));
        let (pages, hasher) = (&self.pages, &self.hasher);
        let rehash = |id: &u32| hash_in(hasher, pages, *id);
        self.by_name.insert(hash, id, rehash);
        id
    }

    /// Subtracts message `seq` from the count of the subject `id`, and frees the subject's number after its
    /// last message. Returns the shared bytes of the subject for the effect.
    pub(super) fn take(&mut self, id: u32, seq: StreamSeq) -> Name {
        let shared = self.name(id).cloned();
        let shared = shared.expect("a subject with messages has a name");
        let stat = &mut self.stats[id as usize];
        stat.count -= 1;
        if stat.first == seq {
            stat.first = seq.next();
        }
        if stat.last == seq {
            stat.last = seq.saturating_prev();
        }
        let count = stat.count;
        if let Some(chains) = &mut self.chains {
            let chain = &mut chains[id as usize];
            if chain.front() == Some(&seq) {
                chain.pop_front();
            } else if let Ok(at) = chain.binary_search(&seq) {
                chain.remove(at);
            }
            if let (Some(first), Some(last)) = (chain.front(), chain.back()) {
                (stat.first, stat.last) = (*first, *last);
            }
        }
        if count == 0 {
            self.unname(id);
            self.reclaimed += usize::from(!self.is_reclaiming());
            self.free.push(id);
        }
        shared
    }

    /// Subtracts message `seq` from the count of the subject `id`, as one of many messages that the stream
    /// removes together, in rising order. The name of a subject without messages stays until
    /// [`Subjects::reclaim`] removes it, so that the command does not take long.
    #[inline]
    pub(super) fn take_of_many(&mut self, id: u32, seq: StreamSeq) {
        let stat = &mut self.stats[id as usize];
        stat.count -= 1;
        if stat.first == seq {
            stat.first = seq.next();
        }
        if stat.last == seq {
            stat.last = seq.saturating_prev();
        }
        if let Some(chains) = &mut self.chains {
            let chain = &mut chains[id as usize];
            if chain.front() == Some(&seq) {
                chain.pop_front();
            } else if let Ok(at) = chain.binary_search(&seq) {
                chain.remove(at);
            }
            if let (Some(first), Some(last)) = (chain.front(), chain.back()) {
                (stat.first, stat.last) = (*first, *last);
            }
        }
        if stat.count == 0 {
            self.free.push(id);
        }
    }

    /// Removes the names of at most `limit` subjects that have lost their last messages together. The limit
    /// keeps one turn of the node short.
    pub(super) fn reclaim(&mut self, limit: usize) {
        let end = self.free.len().min(self.reclaimed + limit);
        for at in self.reclaimed..end {
            self.unname(self.free[at]);
        }
        self.reclaimed = end;
    }

    /// Returns whether subjects without messages still have their names in the tables, so that the node calls
    /// [`Subjects::reclaim`] again.
    pub(super) fn is_reclaiming(&self) -> bool {
        self.reclaimed < self.free.len()
    }

    /// Removes the name of the subject that had the free number `id` last, if the tables still have it, so
    /// that the number is ready for a new subject.
    fn unname(&mut self, id: u32) {
        let Some(name) = self.name(id) else {
            return;
        };
        let hash = self.hasher.hash_one(&**name);
        self.by_name.remove(hash, |other| *other == id);
        let (page, at) = (id as usize / PAGE_LEN, id as usize % PAGE_LEN);
        Arc::make_mut(&mut self.pages[page])[at] = None;
        if let Some(chains) = &mut self.chains {
            chains[id as usize] = VecDeque::new();
        }
    }

    /// Replaces the bounds of a subject's messages by the exact bounds that a search has found, so that the
    /// next search is shorter; `None` leaves a bound as it is.
    pub(super) fn tighten(&mut self, id: u32, first: Option<StreamSeq>, last: Option<StreamSeq>) {
        let stat = &mut self.stats[id as usize];
        stat.first = first.unwrap_or(stat.first);
        stat.last = last.unwrap_or(stat.last);
    }

    /// Removes all subjects. Returns their names, and the lists of their messages if this module keeps such
    /// lists. The caller frees both in parts, because they may be long. The numbers of subjects start at 0
    /// again.
    pub(super) fn clear(&mut self) -> (Vec<Arc<Page>>, Option<Chains>) {
        let births = self.births;
        let old = std::mem::replace(self, Self::new());
        self.births = births;
        self.chains = old.chains.as_ref().map(|_| Chunked::new());
        (old.pages, old.chains)
    }

    /// Returns whether this module keeps a list of the message numbers of each subject, by which the stream
    /// finds a subject's oldest message at once.
    pub(super) const fn is_chained(&self) -> bool {
        self.chains.is_some()
    }

    /// Sets whether this module keeps a list of the message numbers of each subject; `messages` yields the
    /// stream's messages in order, from which this module builds the lists. Returns the lists that it had
    /// before, which the caller frees in parts.
    pub(super) fn set_chained(
        &mut self,
        on: bool,
        messages: impl Iterator<Item = (StreamSeq, u32)>,
    ) -> Option<Chains> {
        let chains = on.then(|| self.stats.iter().map(|_| VecDeque::new()).collect());
        let old = std::mem::replace(&mut self.chains, chains);
        let Some(chains) = &mut self.chains else {
            return old;
        };
        for (seq, id) in messages {
            let stat = &mut self.stats[id as usize];
            match stat.count {
                1 => (stat.first, stat.last) = (seq, seq),
                _ => chains[id as usize].push_back(seq),
            }
        }
        for (chain, stat) in chains.iter().zip(self.stats.iter_mut()) {
            if let (Some(first), Some(last)) = (chain.front(), chain.back()) {
                (stat.first, stat.last) = (*first, *last);
            }
        }
        old
    }

    /// Returns the size of the stream's subjects in memory, in bytes, for the stream's report of the memory
    /// that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.iter().map(|(_, name, _)| name.len() + 16).sum();
        let chains = self.chains.iter().flat_map(Chunked::iter);
        let chains: usize = chains
            .map(|c| size_of_val(c) + c.capacity() * size_of::<StreamSeq>())
            .sum();
        names
            + chains
            + self.pages.len() * (size_of::<Page>() + 16)
            + self.stats.allocation_size()
            + self.by_name.allocation_size()
    }

    pub(super) fn check_invariants(&self) {
        let mut used = 0;
        for (id, name, stat) in self.iter() {
            used += 1;
            assert!(stat.count > 0, "a subject without messages has a number");
            assert!(stat.first <= stat.last);
            assert_eq!(self.find(name), Some(id));
            if let Some(chains) = &self.chains {
                let chain = &chains[id as usize];
                if chain.is_empty() {
                    assert_eq!((stat.count, stat.first), (1, stat.last));
                } else {
                    assert_eq!(chain.len(), stat.count as usize);
                    assert_eq!(chain.front(), Some(&stat.first));
                    assert_eq!(chain.back(), Some(&stat.last));
                }
            }
        }
        assert_eq!(used + self.free.len(), self.stats.len());
        let named = |id: &&u32| self.name(**id).is_some();
        let left: BTreeSet<u32> = self.free.iter().filter(named).copied().collect();
        assert_eq!(used + left.len(), self.by_name.len());
        let rest: BTreeSet<u32> = self.free.iter().skip(self.reclaimed).copied().collect();
        assert!(left.is_subset(&rest), "a name that nothing reclaims");
    }
}

fn name_in(pages: &[Arc<Page>], id: u32) -> Option<&Name> {
    pages.get(id as usize / PAGE_LEN)?[id as usize % PAGE_LEN].as_ref()
}

fn hash_in(hasher: &RandomState, pages: &[Arc<Page>], id: u32) -> u64 {
    hasher.hash_one(name_in(pages, id).map_or(&b""[..], |name| &**name))
}
