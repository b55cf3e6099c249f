//! Sums over all streams of a group, for limits and reports. Each change of a stream updates them, so that a
//! read of a sum costs the same for any number of streams.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_cluster::groups::{ALL, GroupId};

use super::super::consumers::{HOLDER_PREFIX, is_holder};
use super::super::home::Home;
use super::super::moving::Transit;
use super::super::rules;
use super::super::single::Stream;
use crate::convert::saturating_u64;
use crate::schema::config::Storage;
use crate::schema::number::StreamNumber;

/// Sums over all streams of a group. Before the configuration or the group of a stream changes, the caller
/// subtracts the stream from the sums, and afterwards the caller adds the stream again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The sum of the byte limits of streams in the log. It may exceed 64 bits, because clients choose the
    /// limits of their streams.
    file_bytes: u128,
    memory_bytes: u128,
    /// For each group, the number of streams that it keeps, or will keep after a move. The directory gives a
    /// new stream to the group with the fewest.
    placed: BTreeMap<GroupId, usize>,
    /// The number of streams of the directory that are moving to another group. If there are none, the
    /// leaders need not look for moves.
    moving: usize,
    /// The number of streams that a backup is filling. If there are none, the leader need not look for
    /// restorations without a client.
    restoring: usize,
    /// The number of streams that the group keeps, without copies of streams that are moving to the group.
    /// Monitoring reports this number.
    kept: usize,
    /// The streams that take in messages from other streams, so that the leader finds them among many
    /// streams.
    with_origins: BTreeSet<StreamNumber>,
    /// The streams that keep messages for other streams, by a consumer for each of those streams.
    holding: BTreeSet<StreamNumber>,
    /// The number of consumers of the streams that are not moving to or from the group. Monitoring reports
    /// this number.
    consumers: usize,
}

impl Tally {
    /// Adds a stream to the sums, after the group has created or changed it.
    pub(super) fn add(&mut self, stream: &Stream) {
        let reserved = |storage| u128::from(rules::reserved(stream.config(), storage));
        self.file_bytes += reserved(Storage::File);
        self.memory_bytes += reserved(Storage::Memory);
        *self.placed.entry(group_of(stream)).or_default() += 1;
        self.moving += usize::from(stream.moving().is_some());
        self.restoring += usize::from(stream.is_restoring());
        self.kept += usize::from(is_kept(stream));
        self.consumers += consumers_of(stream);
        if stream.config().has_origins() {
            self.with_origins.insert(stream.id());
        }
        self.note_holders(stream);
    }

    fn note_holders(&mut self, stream: &Stream) {
        let mut holders = stream.consumers_after(Some(HOLDER_PREFIX));
        match holders.next().is_some_and(is_holder) {
            true => self.holding.insert(stream.id()),
            false => self.holding.remove(&stream.id()),
        };
    }

    /// Subtracts a stream from the sums. The stream must not have changed since the caller added it, because
    /// the sums would become wrong.
    pub(super) fn remove(&mut self, stream: &Stream) {
        let reserved = |storage| u128::from(rules::reserved(stream.config(), storage));
        self.file_bytes -= reserved(Storage::File);
        self.memory_bytes -= reserved(Storage::Memory);
        let group = group_of(stream);
        let placed = self.placed.entry(group).or_default();
        *placed -= 1;
        if *placed == 0 {
            self.placed.remove(&group);
        }
        self.moving -= usize::from(stream.moving().is_some());
        self.restoring -= usize::from(stream.is_restoring());
        self.kept -= usize::from(is_kept(stream));
        self.consumers -= consumers_of(stream);
        self.with_origins.remove(&stream.id());
        self.holding.remove(&stream.id());
    }

    /// Updates the number of consumers after a command has created or deleted a consumer of a stream, which
    /// had `before` consumers before it. The stream must not be moving to or from the group.
    pub(super) fn count_consumers(&mut self, before: usize, stream: &Stream) {
        self.consumers = self.consumers + consumers_of(stream) - before;
        self.note_holders(stream);
    }

    /// Iterates over the streams that keep messages for other streams, so that the leader finds them without
    /// a visit to all streams.
    pub(super) fn holding(&self) -> impl Iterator<Item = StreamNumber> {
        self.holding.iter().copied()
    }

    /// Iterates over the streams that take in messages from other streams, so that the leader finds them
    /// without a visit to all streams.
    pub(super) fn with_origins(&self) -> impl Iterator<Item = StreamNumber> {
        self.with_origins.iter().copied()
    }

    /// Returns the number of streams that the group keeps, without copies of streams that are moving to the
    /// group. Monitoring reports this number.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// Returns the number of consumers of the streams that are not moving to or from the group. Monitoring
    /// reports this number.
    pub(super) const fn consumers(&self) -> usize {
        self.consumers
    }

    /// Returns the sum of the byte limits of the streams of this kind of storage, at most `u64::MAX`, for the
    /// check of the operator's limits.
    pub(super) fn reserved(&self, storage: Storage) -> u64 {
        let bytes = match storage {
            Storage::File => self.file_bytes,
            Storage::Memory => self.memory_bytes,
        };
        saturating_u64(bytes)
    }

    /// Returns how many streams the group `group` keeps, or will keep after a move. The directory gives a new
    /// stream to the group with the fewest.
    pub(super) fn placed_in(&self, group: GroupId) -> usize {
        self.placed.get(&group).copied().unwrap_or(0)
    }

    /// Iterates over the groups that keep a stream, or will keep one after a move. The directory asks these
    /// groups for their usage.
    pub(super) fn placed(&self) -> impl Iterator<Item = GroupId> {
        self.placed.keys().copied()
    }

    /// Returns the number of streams of the directory that are moving to another group, for the monitor.
    pub(super) const fn moving(&self) -> usize {
        self.moving
    }

    /// Returns whether any stream of the directory is moving to another group, so that leaders need not look
    /// for moves if none does.
    pub(super) const fn has_moving(&self) -> bool {
        self.moving > 0
    }

    /// Returns whether a backup is filling any stream, so that the leader need not look for restorations if
    /// none is.
    pub(super) const fn has_restoring(&self) -> bool {
        self.restoring > 0
    }
}

/// Returns whether the group keeps a stream, and has all of it. Only such a stream serves clients.
fn is_kept(stream: &Stream) -> bool {
    stream.home().is_here() && !stream.is_incomplete()
}

/// Returns the number of a stream's consumers, or 0 while the stream is moving to or from the group, because
/// only one of the two groups must count them.
fn consumers_of(stream: &Stream) -> usize {
    match stream.transit() {
        Transit::None => stream.consumers_len(),
        _ => 0,
    }
}

/// Returns the group that keeps a stream or, during a move, the move's target, so that the directory counts
/// the stream there.
fn group_of(stream: &Stream) -> GroupId {
    match (stream.moving(), stream.home()) {
        (Some(moving), _) => moving.to,
        (None, Home::Elsewhere { group, .. }) => group,
        _ => ALL,
    }
}
