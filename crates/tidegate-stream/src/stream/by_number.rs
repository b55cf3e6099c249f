//! The streams of a group by number, and the snapshot that is being taken of them.
//!
//! A snapshot of a hundred thousand streams takes long, so the caller takes it in parts
//! ([`ByNumber::go_on`]). Meanwhile entries may change the streams: this module copies a stream for the
//! snapshot before it hands the stream out for a change. So the snapshot holds all streams as they were when
//! it began.

use std::collections::BTreeMap;

use super::single::Stream;
use super::snapshot::{Part, Snapshot};
use crate::schema::number::StreamNumber;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ByNumber {
    streams: BTreeMap<StreamNumber, Box<Stream>>,
    /// The number of snapshots that the module has begun.
    begun: u64,
    taking: Option<Taking>,
}

/// A snapshot that is being taken.
#[derive(Debug)]
struct Taking {
    /// The number of the next stream to look at. Streams from there on are copied only if they have changed.
    next: StreamNumber,
    snapshot: Snapshot,
}

impl ByNumber {
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn get(&self, id: StreamNumber) -> Option<&Stream> {
        self.streams.get(&id).map(|stream| &**stream)
    }

    /// Returns a stream for a change.
    #[inline]
    pub(super) fn get_mut(&mut self, id: StreamNumber) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(&id)?;
        if let Some(taking) = &mut self.taking {
            taking.copy(stream, self.begun);
        }
        Some(stream)
    }

    /// Removes a stream. The caller may add it again after a change.
    pub(super) fn remove(&mut self, id: StreamNumber) -> Option<Box<Stream>> {
        let mut stream = self.streams.remove(&id)?;
        if let Some(taking) = &mut self.taking {
            taking.copy(&mut stream, self.begun);
        }
        Some(stream)
    }

    /// Adds a stream. The snapshot that is being taken does not get it.
    pub(super) fn insert(&mut self, mut stream: Box<Stream>) {
        stream.copied_for = self.begun;
        self.streams.insert(stream.id, stream);
    }

    /// Iterates over the streams in the order of their numbers.
    pub(super) fn values(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values().map(|stream| &**stream)
    }

    /// Iterates over the streams from this number on, in the order of their numbers.
    pub(super) fn from(&self, id: StreamNumber) -> impl Iterator<Item = &Stream> {
        self.streams.range(id..).map(|(_, stream)| &**stream)
    }

    /// Iterates over the streams for changes that no snapshot holds.
    pub(super) fn values_mut_unsaved(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut().map(|stream| &mut **stream)
    }

    /// Begins a snapshot; `empty` holds everything but the streams. Drops a snapshot that is not finished.
    pub(super) fn begin(&mut self, empty: Snapshot) {
        self.begun += 1;
        self.taking = Some(Taking {
            next: StreamNumber::NONE,
            snapshot: empty,
        });
    }

    /// Goes on with the snapshot until the streams that it copies have cost `limit`. A stream costs 1 for
    /// itself and for each of its consumers, and 1 for each 16,384 messages. Returns the snapshot once it is
    /// finished.
    pub(super) fn go_on(&mut self, limit: usize) -> Option<Snapshot> {
        let mut taking = self.taking.take()?;
        let mut cost = 0;
        // The streams created since have higher numbers.
        let last = taking.snapshot.last_id();
        for (id, stream) in self.streams.range_mut(taking.next..=last.max(taking.next)) {
            if cost >= limit {
                taking.next = *id;
                self.taking = Some(taking);
                return None;
            }
            cost += 1 + stream.consumers.len() + stream.content.index.blocks_len() / 64;
            taking.copy(stream, self.begun);
        }
        Some(taking.snapshot)
    }
}

impl Taking {
    /// Copies a stream, unless it is copied or younger than the snapshot with this number.
    fn copy(&mut self, stream: &mut Stream, number: u64) {
        if std::mem::replace(&mut stream.copied_for, number) != number {
            self.snapshot.push(Part::of(stream));
        }
    }
}
