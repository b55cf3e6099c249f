//! Sums over all streams of a group. Each change of a stream updates them, so that a read of a sum costs the
//! same for any number of streams.

use std::collections::BTreeMap;

use tidegate_cluster::groups::{ALL, GroupId};

use super::super::home::Home;
use super::super::rules;
use super::super::single::Stream;
use crate::convert::saturating_u64;
use crate::schema::config::Storage;

/// Sums over all streams of a group. Before the configuration or the group of a stream changes, the caller
/// subtracts the stream from the sums, and afterwards it adds the stream again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The sum of the byte limits of streams in the log. It may exceed 64 bits, because clients choose the
    /// limits.
    file_bytes: u128,
    memory_bytes: u128,
    /// For each group, the number of streams that it keeps, or that it is to keep after a move.
    placed: BTreeMap<GroupId, usize>,
    /// The number of streams of the directory that are moving to another group.
    moving: usize,
}

impl Tally {
    /// Adds a stream to the sums.
    pub(super) fn add(&mut self, stream: &Stream) {
        let reserved = |storage| u128::from(rules::reserved(stream.config(), storage));
        self.file_bytes += reserved(Storage::File);
        self.memory_bytes += reserved(Storage::Memory);
        *self.placed.entry(group_of(stream)).or_default() += 1;
        self.moving += usize::from(stream.moving().is_some());
    }

    /// Subtracts a stream from the sums. The stream must not have changed since the caller added it.
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
    }

    /// Returns the bytes that the limits of streams of this kind of storage reserve.
    pub(super) fn reserved(&self, storage: Storage) -> u64 {
        let bytes = match storage {
            Storage::File => self.file_bytes,
            Storage::Memory => self.memory_bytes,
        };
        saturating_u64(bytes)
    }

    /// Returns how many streams the group `group` keeps, or is to keep after a move.
    pub(super) fn placed_in(&self, group: GroupId) -> usize {
        self.placed.get(&group).copied().unwrap_or(0)
    }

    /// Returns whether a stream is moving to another group.
    pub(super) const fn has_moving(&self) -> bool {
        self.moving > 0
    }
}

/// Returns the group that keeps a stream or, during a move, the group that is to keep it.
fn group_of(stream: &Stream) -> GroupId {
    match (stream.moving(), stream.home()) {
        (Some(moving), _) => moving.to,
        (None, Home::Elsewhere { group, .. }) => group,
        _ => ALL,
    }
}
