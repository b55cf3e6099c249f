//! Sums over all streams, updated with each change of a stream, so that a read of a sum costs the same for
//! any number of streams.

use std::collections::BTreeMap;

use tidegate_cluster::groups::{ALL, GroupId};

use super::super::home::Home;
use super::super::rules;
use super::super::single::Stream;
use crate::convert::saturating_u64;
use crate::schema::config::Storage;

/// The sums over all streams. The caller removes a stream before its configuration or its group changes, and
/// adds it again afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The number of bytes that the limits of streams reserve in the log. The sum may exceed 64 bits.
    file_bytes: u128,
    memory_bytes: u128,
    /// The number of streams that each group keeps, or is to keep.
    placed: BTreeMap<GroupId, usize>,
    /// The number of streams that are moving to another group.
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

    /// Subtracts a stream, which must not have changed since the caller added it.
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

    /// Returns how many streams `group` keeps, or is to keep.
    pub(super) fn placed_in(&self, group: GroupId) -> usize {
        self.placed.get(&group).copied().unwrap_or(0)
    }

    /// Returns whether a stream is moving to another group.
    pub(super) const fn has_moving(&self) -> bool {
        self.moving > 0
    }
}

/// Returns the group that keeps a stream of the directory, or is to keep it.
fn group_of(stream: &Stream) -> GroupId {
    match (stream.moving(), stream.home()) {
        (Some(moving), _) => moving.to,
        (None, Home::Elsewhere { group, .. }) => group,
        _ => ALL,
    }
}
