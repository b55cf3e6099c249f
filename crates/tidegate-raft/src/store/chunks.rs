//! A cache of stretches of the log, so that readers of old messages need fewer reads of the disk. A stretch
//! is the consecutive records that one read returned. The cache has a bound in bytes, and evicts the least
//! recently used stretch.
//!
//! The cache also decides how much a read takes: little for scattered reads, and twice as much each time a
//! reader continues at the end of a stretch, up to a bound.

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_log::{Chunk, Lsn};

/// The number of bytes of the log that the cache asks for in a read that does not continue a cached stretch.
const READ_BYTES_MIN: usize = 16 << 10;
/// The greatest number of bytes of the log that the cache asks for in one read, however long a reader goes
/// on.
const READ_BYTES_MAX: usize = 1 << 20;
/// The greatest distance in bytes between the end of a stretch and a read that still counts as its
/// continuation. A sequential reader may skip records of other streams.
const ON_BYTES: u64 = 64 << 10;

/// A request of the cache: the caller must read this stretch of the log and insert it into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) from: Lsn,
    pub(super) bytes: usize,
}

/// The result of the search for a record in the cache: the record, or the read that the caller must start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The cache has the record, with this payload. If the reader has passed half of the stretch, the result
    /// also names the next stretch, so that the caller can read ahead.
    Here(Bytes, Option<Wanted>),
    /// The cache has the stretch of the log around this position, and no record begins at the position.
    NotThere,
    /// The cache lacks the record: the caller must first read this stretch of the log.
    Unread(Wanted),
}

struct Stretch {
    next: Lsn,
    /// The number of bytes that the cache asked the caller to read for this stretch. A read that continues
    /// the stretch takes twice as many bytes.
    asked: usize,
    bytes: usize,
    records: Vec<(Lsn, Bytes)>,
    used: Cell<u64>,
}

/// Caches stretches of the log for readers of messages; see the [module](self).
pub(super) struct Chunks {
    stretches: BTreeMap<Lsn, Stretch>,
    bytes: usize,
    bytes_max: usize,
    /// The number of lookups and insertions since the cache was created, by which the cache finds the least
    /// recently used stretch.
    now: Cell<u64>,
}

impl Chunks {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self {
            stretches: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            now: Cell::new(0),
        }
    }

    /// Looks up the record at log position `lsn`. A lookup changes nothing but the order in which the cache
    /// evicts stretches.
    pub(super) fn find(&self, lsn: Lsn) -> Found {
        self.tick();
        let before = self.stretches.range(..=lsn).next_back();
        let Some((_, stretch)) = before else {
            return unread(lsn, READ_BYTES_MIN);
        };
        if lsn >= stretch.next {
            let on = lsn.since(stretch.next) <= ON_BYTES;
            return unread(
                lsn,
                if on {
                    stretch.asked * 2
                } else {
                    READ_BYTES_MIN
                },
            );
        }
        stretch.used.set(self.now.get());
        let Ok(at) = stretch.records.binary_search_by_key(&lsn, |r| r.0) else {
            return Found::NotThere;
        };
        let half = at >= stretch.records.len() / 2 && stretch.asked > READ_BYTES_MIN;
        let (payload, next, asked) = (stretch.records[at].1.clone(), stretch.next, stretch.asked);
        let on = half && !self.covers(next);
        let ahead = on.then(|| wanted(next, asked * 2));
        Found::Here(payload, ahead)
    }

    fn tick(&self) {
        self.now.set(self.now.get() + 1);
    }

    fn covers(&self, lsn: Lsn) -> bool {
        let mut before = self.stretches.range(..=lsn);
        before.next_back().is_some_and(|(_, s)| lsn < s.next)
    }

    /// Adds a stretch that the caller has read, and evicts the least recently used stretches until the cache
    /// keeps its bound of bytes.
    pub(super) fn insert(&mut self, wanted: Wanted, chunk: Chunk) {
        self.tick();
        let records: Vec<_> = chunk
            .records
            .into_iter()
            .map(|(at, r)| (at, r.payload))
            .collect();
        let stretch = Stretch {
            next: chunk.next,
            asked: wanted.bytes,
            bytes: (chunk.next.since(wanted.from) as usize).max(READ_BYTES_MIN),
            records,
            used: self.now.clone(),
        };
        self.bytes += stretch.bytes;
        let old = self.stretches.insert(wanted.from, stretch);
        self.bytes -= old.map_or(0, |s| s.bytes);
        while self.bytes > self.bytes_max && self.stretches.len() > 1 {
            let oldest = self.stretches.iter().min_by_key(|(_, s)| s.used.get());
            let gone = oldest
                .map(|(&at, _)| at)
                .and_then(|at| self.stretches.remove(&at));
            self.bytes -= gone.map_or(0, |s| s.bytes);
        }
    }
}

fn unread(from: Lsn, bytes: usize) -> Found {
    Found::Unread(wanted(from, bytes))
}

fn wanted(from: Lsn, bytes: usize) -> Wanted {
    let bytes = bytes.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
    Wanted { from, bytes }
}

#[cfg(test)]
mod tests {
    use tidegate_log::Record;

    use super::*;

    fn chunk(from: u64, records: u64) -> Chunk {
        let record = |n: u64| {
            let record = Record {
                payload: Bytes::from(vec![n as u8; 1000]),
                ..Record::default()
            };
            (Lsn::new(from + n * 1100), record)
        };
        Chunk {
            records: (0..records).map(record).collect(),
            next: Lsn::new(from + records * 1100),
        }
    }

    #[test]
    fn sequential_readers_read_ahead_more_each_time() {
        let mut chunks = Chunks::new(1 << 20);
        let first = wanted(Lsn::new(0), 0);
        assert_eq!(chunks.find(Lsn::new(0)), Found::Unread(first));
        chunks.insert(first, chunk(0, 15));
        assert!(matches!(
            chunks.find(Lsn::new(14 * 1100)),
            Found::Here(_, None)
        ));
        assert_eq!(chunks.find(Lsn::new(5)), Found::NotThere);
        let second = wanted(Lsn::new(16_548), 32 << 10);
        assert_eq!(chunks.find(second.from), Found::Unread(second));
        chunks.insert(second, chunk(16_548, 30));
        assert!(matches!(chunks.find(second.from), Found::Here(_, None)));
        let last = second.from.after(29 * 1100);
        let third = wanted(second.from.after(30 * 1100), 64 << 10);
        assert!(matches!(chunks.find(last), Found::Here(_, Some(w)) if w == third));
        chunks.insert(third, chunk(third.from.get(), 60));
        assert!(matches!(chunks.find(last), Found::Here(_, None)));
        let far = wanted(Lsn::new(10 << 20), 0);
        assert_eq!(chunks.find(far.from), Found::Unread(far));
    }

    #[test]
    fn the_longest_unused_leaves_first() {
        let mut chunks = Chunks::new(3 * READ_BYTES_MIN);
        for n in 0..3u64 {
            chunks.insert(wanted(Lsn::new(n << 20), 0), chunk(n << 20, 10));
        }
        assert!(matches!(chunks.find(Lsn::new(0)), Found::Here(..)));
        chunks.insert(wanted(Lsn::new(9 << 20), 0), chunk(9 << 20, 10));
        assert!(matches!(chunks.find(Lsn::new(0)), Found::Here(..)));
        assert!(matches!(chunks.find(Lsn::new(1 << 20)), Found::Unread(_)));
        assert_eq!(
            (chunks.bytes, chunks.stretches.len()),
            (3 * READ_BYTES_MIN, 3)
        );
    }
}
