//! Keeps the streams of a group by number, and takes snapshots of them in parts while they change.
//!
//! A snapshot of a hundred thousand streams takes long, so the caller takes it in parts
//! ([`ByNumber::go_on`]). Meanwhile entries may change the streams: before this module hands out a stream for
//! a change, it copies the stream into the snapshot. So the snapshot holds all streams as they were at its
//! beginning.

use std::collections::BTreeMap;

use super::single::Stream;
use super::snapshot::{Part, Snapshot};
use crate::schema::number::StreamNumber;

/// The streams of a group by number, so that a command finds its stream, with the snapshot of the streams
/// that is not finished yet.
#[derive(Debug, Default)]
pub(super) struct ByNumber {
    streams: BTreeMap<StreamNumber, Box<Stream>>,
    /// The number of snapshots that this node has begun since it loaded the group's streams. Each stream
    /// notes the number of the last snapshot that needs no copy of it.
    begun: u64,
    taking: Option<Taking>,
}

/// A snapshot of the group's streams that the caller takes in parts and that is not finished yet, because a
/// snapshot at once takes too long for one turn.
#[derive(Debug)]
struct Taking {
    /// The number of the stream that the snapshot visits next; it has visited all streams with lower numbers.
    /// The snapshot copies a stream when it visits the stream, or earlier, before a command changes the
    /// stream.
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

    /// Returns a stream that the caller may change. An unfinished snapshot copies the stream first, so that
    /// the snapshot does not contain the change.
    #[inline]
    pub(super) fn get_mut(&mut self, id: StreamNumber) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(&id)?;
        if let Some(taking) = &mut self.taking {
            taking.copy(stream, self.begun);
        }
        Some(stream)
    }

    /// Removes a stream from the group. An unfinished snapshot copies the stream first, so that the snapshot
    /// still has the stream. The caller may add the stream again after a change.
    pub(super) fn remove(&mut self, id: StreamNumber) -> Option<Box<Stream>> {
        let mut stream = self.streams.remove(&id)?;
        if let Some(taking) = &mut self.taking {
            taking.copy(&mut stream, self.begun);
        }
        Some(stream)
    }

    /// Adds a stream to the group. An unfinished snapshot does not copy this stream: the stream is new, or
    /// the snapshot copied it at its removal.
    pub(super) fn insert(&mut self, mut stream: Box<Stream>) {
        stream.copied_for = self.begun;
        self.streams.insert(stream.id, stream);
    }

    /// Iterates over the streams in the order of their numbers, which all nodes of the group share.
    pub(super) fn values(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values().map(|stream| &**stream)
    }

    /// Iterates over the streams with number `id` or higher, in the order of their numbers, so that a caller
    /// can visit the streams in parts.
    pub(super) fn from(&self, id: StreamNumber) -> impl Iterator<Item = &Stream> {
        self.streams.range(id..).map(|(_, stream)| &**stream)
    }

    /// Returns a stream to a caller that changes only fields that snapshots do not hold. An unfinished
    /// snapshot need not copy the stream before such a change.
    pub(super) fn get_mut_unsaved(&mut self, id: StreamNumber) -> Option<&mut Stream> {
        self.streams.get_mut(&id).map(|stream| &mut **stream)
    }

    /// Iterates over the streams to a caller that changes only fields that snapshots do not hold. No snapshot
    /// copies a stream for such a change.
    pub(super) fn values_mut_unsaved(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.streams.values_mut().map(|stream| &mut **stream)
    }

    /// Begins a snapshot of all streams; `empty` holds the rest of the group's state. Drops an older
    /// unfinished snapshot, because a group takes one snapshot at a time.
    pub(super) fn begin(&mut self, empty: Snapshot) {
        self.begun += 1;
        self.taking = Some(Taking {
            next: StreamNumber::NONE,
            snapshot: empty,
        });
    }

    /// Continues the snapshot until the streams that it copies have cost `limit`. A stream costs 1 for
    /// itself, 1 for each of its consumers, and 1 for each 16,384 messages. Returns the snapshot once it is
    /// finished. The limit keeps each turn of the event loop short.
    pub(super) fn go_on(&mut self, limit: usize) -> Option<Snapshot> {
        let mut taking = self.taking.take()?;
        let mut cost = 0;
        // The group gives higher numbers to streams that it creates after the beginning of the snapshot, so
        // the loop ends before the numbers of these streams.
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
    /// Copies a stream into the snapshot with this number, unless the snapshot has a copy or the stream is
    /// younger than the snapshot.
    fn copy(&mut self, stream: &mut Stream, number: u64) {
        if std::mem::replace(&mut stream.copied_for, number) != number {
            self.snapshot.push(Part::of(stream));
        }
    }
}
