//! Lets the log release old segments although a group commits nothing: the store writes the group's
//! uncommitted entries again, behind the records that other groups have written since.
//!
//! Once a group has applied all its entries, a checkpoint of the group also covers all records of other
//! groups, and so lets the log release them. If a majority of the group's members is away, the group may have
//! entries that it can neither commit nor discard, and the log has to keep them with all records behind them.

use tidegate_cluster::slots::GroupSlot;

use super::room::Room;
use super::upkeep::GROWTH;
use super::{Space, Store};

impl Store {
    /// Writes a group's uncommitted entries to the log again, so that the log can release their old
    /// segments. The store does so only if the log has grown enough since the first of them was written: by
    /// several times their bytes, and by the least growth for a checkpoint.
    pub(super) fn renew(&mut self, at: GroupSlot) {
        let group = &self.members[at].group;
        let Some(from) = group.unapplied_from().filter(|_| !group.is_alone()) else {
            return;
        };
        let least = match self.space() {
            Space::Free => self.options.checkpoint_bytes_min,
            _ => self.bound_held_bytes(self.appender.reserved_bytes()),
        };
        let grown = self.log.durable().since(from);
        // In the common case the log has grown too little since the group's first unapplied entry, so the
        // store skips the further checks.
        if grown < least {
            return;
        }
        let waiting = group.unapplied_bytes();
        let rests = self.rests(at) && !self.members[at].is_between() && !self.writes_twice();
        let worth = grown >= GROWTH * waiting;
        let room = || self.look_for_room(&[waiting], self.reserve_bytes()) == Room::Enough;
        if rests && worth && room() && self.members[at].group.renew() {
            // If the log has no room now, a later poll appends the group's entries. If the log has failed,
            // the next poll reports the failure.
            let _ = self.append_entries();
        }
    }
}
