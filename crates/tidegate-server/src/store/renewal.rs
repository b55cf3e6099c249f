//! What keeps a group that commits nothing from keeping the log: its entries are written again behind what
//! others have written since.
//!
//! A group is at rest when all it has is applied; then a checkpoint covers whatever others write. Where a
//! majority is away there may be entries that nobody can say of whether they are committed, and the log has
//! to hold them.

use super::room::Room;
use super::upkeep::GROWTH;
use super::{Space, Store};

impl Store {
    /// Writes entries again that have been waiting for so long that others have written a multiple of them
    /// since.
    pub(super) fn renew(&mut self, at: usize) {
        let group = &self.members[at].group;
        let Some(from) = group.unapplied_from().filter(|_| !group.is_alone()) else {
            return;
        };
        let least = match self.space() {
            Space::Free => self.options.checkpoint_bytes_min,
            _ => self.options.segment_bytes,
        };
        let grown = self.log.durable().since(from);
        // Most often that is all.
        if grown < least {
            return;
        }
        let waiting = group.unapplied_bytes();
        let rests = self.rests(at) && !self.members[at].is_between() && !self.writes_twice();
        let worth = grown >= GROWTH * waiting;
        let room = || self.look_for_room(&[waiting], self.reserve_bytes()) == Room::Enough;
        if rests && worth && room() && self.members[at].group.renew() {
            // That there is no room passes; a failure is what the next poll tells.
            let _ = self.append_entries();
        }
    }
}
