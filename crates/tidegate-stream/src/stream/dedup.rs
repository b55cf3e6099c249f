//! Remembers the ids of a stream's recent messages, so that the stream stores a message only once if its
//! publisher sends the message twice.
//!
//! The stream remembers ids for a window of time, by the times of entries. The ids lie in pages, oldest
//! first, which a snapshot shares with the stream, so that it copies no ids. A hash table finds an id.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tidegate_nats::collections::Table;

use super::wire::RestoreError;
use super::wire::{Reader, put_bytes, put_len, put_u64};
use crate::schema::sequence::StreamSeq;

/// The number of message ids in a full page. The stream and a snapshot share a full page, so that the
/// snapshot copies no ids.
const PAGE_LEN: usize = 256;

/// The ids of a stream's recent messages, by which the stream recognises duplicates.
#[derive(Debug)]
pub(super) struct Dedup {
    /// The number of the first id in the first page. Ids get successive numbers as they arrive. So a number
    /// gives the page and the row of an id.
    base: u64,
    /// `oldest` is the number of the oldest message id that the stream remembers, and `next` is the number
    /// that the stream gives to the next id.
    oldest: u64,
    next: u64,
    pages: VecDeque<Arc<Page>>,
    by_id: Table<u64>,
    hasher: RandomState,
}

/// A page of message ids, in the order in which the stream stored their messages.
#[derive(Clone, Debug, Default)]
struct Page {
    ids: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    end: usize,
    seq: StreamSeq,
    time_us: u64,
}

impl Page {
    fn get(&self, at: usize) -> Option<(&[u8], StreamSeq, u64)> {
        let row = self.rows.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.rows[before].end);
        Some((&self.ids[start..row.end], row.seq, row.time_us))
    }
}

impl Dedup {
    pub(super) fn new() -> Self {
        Self {
            base: 0,
            oldest: 0,
            next: 0,
            pages: VecDeque::new(),
            by_id: Table::new(),
            hasher: RandomState::default(),
        }
    }

    /// Returns the number of the message that the stream stored with this id, so that the publisher of a
    /// duplicate learns that number; `None` if the stream does not remember the id.
    pub(super) fn find(&self, id: &[u8]) -> Option<StreamSeq> {
        let same = |n: &u64| self.get(*n).is_some_and(|(other, ..)| other == id);
        let found = self.by_id.find(self.hasher.hash_one(id), same)?;
        self.get(*found).map(|(_, seq, _)| seq)
    }

    /// Adds the id of message `seq`, which the stream stored at `time_us`. The stream must not remember this
    /// id yet, because a lookup finds only one message for an id.
    pub(super) fn add(&mut self, id: &[u8], seq: StreamSeq, time_us: u64) {
        let full = self.pages.back().is_none_or(|p| p.rows.len() == PAGE_LEN);
        if full {
            self.pages.push_back(Arc::default());
        }
        if let Some(page) = self.pages.back_mut() {
            let page = Arc::make_mut(page);
            page.ids.extend_from_slice(id);
            page.rows.push(Row {
                end: page.ids.len(),
                seq,
                time_us,
            });
        }
        let (pages, base, hasher) = (&self.pages, self.base, &self.hasher);
        let rehash = |n: &u64| hasher.hash_one(get(pages, base, *n).map_or(&b""[..], |e| e.0));
        self.by_id.insert(hasher.hash_one(id), self.next, rehash);
        self.next += 1;
    }

    /// Forgets the ids of messages that the stream stored before `time_us`, in microseconds since 1970,
    /// because the window for duplicates no longer contains them.
    pub(super) fn forget_before(&mut self, time_us: u64) {
        while let Some((id, _, time)) = get(&self.pages, self.base, self.oldest) {
            if time >= time_us {
                return;
            }
            let (hash, oldest) = (self.hasher.hash_one(id), self.oldest);
            self.by_id.remove(hash, |n| *n == oldest);
            self.oldest += 1;
            if self.oldest - self.base == PAGE_LEN as u64 {
                self.pages.pop_front();
                self.base = self.oldest;
            }
        }
    }

    /// Returns the time of the message with the last remembered id, in microseconds since 1970; 0 if the
    /// stream remembers no id. The stream adds ids only with rising times.
    pub(super) fn last_us(&self) -> u64 {
        let last = self.next.checked_sub(1).and_then(|n| self.get(n));
        last.map_or(0, |(.., time_us)| time_us)
    }

    /// Iterates over the remembered ids except the `skip` oldest ones, each with the number and the time of
    /// its message, so that a move can copy the ids in parts.
    pub(super) fn iter_from(&self, skip: u64) -> impl Iterator<Item = (&[u8], StreamSeq, u64)> {
        let from = self.oldest.saturating_add(skip);
        (from..self.next).map_while(|n| self.get(n))
    }

    /// Returns the number of message ids that the stream remembers, so that a snapshot can state that number
    /// before the ids.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the remembered ids for a snapshot, which shares their pages with the stream and so copies no
    /// id.
    pub(super) fn shared(&self) -> Ids {
        Ids {
            pages: self.pages.clone(),
            skip: (self.oldest - self.base) as usize,
            len: self.len(),
        }
    }

    fn get(&self, n: u64) -> Option<(&[u8], StreamSeq, u64)> {
        get(&self.pages, self.base, n)
    }
}

/// The remembered ids of a stream's messages in order, in pages that a snapshot shares with the stream and
/// then encodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    pages: VecDeque<Arc<Page>>,
    /// The number of message ids in the first page that the stream has already forgotten. The snapshot leaves
    /// these ids out.
    skip: usize,
    len: usize,
}

impl Ids {
    pub(super) fn pages_len(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn encode_head(&self, out: &mut Vec<u8>) {
        put_len(out, self.len);
    }

    pub(super) fn encode_page(&self, page: usize, out: &mut Vec<u8>) {
        let skip = if page == 0 { self.skip } else { 0 };
        let page = &self.pages[page];
        for (id, seq, time_us) in (skip..page.rows.len()).filter_map(|at| page.get(at)) {
            put_bytes(out, id);
            put_u64(out, seq.get());
            put_u64(out, time_us);
        }
    }

    /// Restores the remembered ids of a stream's messages from a snapshot, so that the stream recognises
    /// duplicates after a restart too.
    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Dedup, RestoreError> {
        let mut dedup = Dedup::new();
        let mut last = 0;
        for _ in 0..from.len(20)? {
            let (id, seq, time_us) = (from.bytes()?, StreamSeq::new(from.u64()?), from.u64()?);
            if time_us < last || dedup.find(id).is_some() {
                return Err(RestoreError::Inconsistent("the ids of a stream's messages"));
            }
            last = time_us;
            dedup.add(id, seq, time_us);
        }
        Ok(dedup)
    }
}

fn get(pages: &VecDeque<Arc<Page>>, base: u64, n: u64) -> Option<(&[u8], StreamSeq, u64)> {
    let at = usize::try_from(n.checked_sub(base)?).ok()?;
    pages.get(at / PAGE_LEN)?.get(at % PAGE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_with_time() {
        let mut dedup = Dedup::new();
        for n in 0..1000_u64 {
            dedup.add(format!("id-{n}").as_bytes(), StreamSeq::new(n + 1), n);
        }
        assert_eq!(dedup.find(b"id-0"), Some(StreamSeq::FIRST));
        dedup.forget_before(700);
        assert_eq!(dedup.len(), 300);
        assert_eq!(
            (dedup.find(b"id-699"), dedup.find(b"id-700")),
            (None, Some(StreamSeq::new(701)))
        );
        let ids = dedup.shared();
        let mut bytes = Vec::new();
        ids.encode_head(&mut bytes);
        (0..ids.pages_len()).for_each(|page| ids.encode_page(page, &mut bytes));
        let again = Ids::decode(&mut Reader(&bytes)).unwrap();
        assert_eq!(again.find(b"id-700"), Some(StreamSeq::new(701)));
        assert_eq!(again.len(), 300);
        dedup.forget_before(2000);
        assert_eq!(dedup.len(), 0);
        dedup.add(b"id-5", StreamSeq::new(2000), 2000);
        assert_eq!(dedup.find(b"id-5"), Some(StreamSeq::new(2000)));
    }
}
