//! Bounds the bytes of log that a catch-up may keep from release, so that an endless catch-up cannot fill
//! the disk. Until the member has taken over a state, the store releases no segment, and fetched messages
//! stay in the log across restarts. If the node is cut off, or the group has no leader, the catch-up does
//! not progress, and the node's other groups would fill the disk. So the store bounds the bytes that other
//! groups write after the beginning of the catch-up. Beyond the bound the store gives up the catch-up,
//! writes a checkpoint of the present state so that it can release segments, and only then lets the catch-up
//! start again.

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::Lsn;

use super::Store;
use super::staged::Staged;

/// The bound on the bytes that other groups may write during a catch-up, as a multiple of a sum: the fetched
/// bytes, and the bytes of log after which a checkpoint is due. The more the member has fetched, the more a
/// restart of the catch-up costs. If other groups always write faster than this bound allows, the member
/// never completes a state.
const HELD_MAX: u64 = 8;

/// The steps that the store has done since it gave up a catch-up. The catch-up may start again after all of
/// them.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    /// True once the code that fetches the state has learned that the store gave up the catch-up.
    pub(super) heard: bool,
    /// True once the store has begun the checkpoint that lets it release the segments which the catch-up
    /// kept.
    pub(super) asked: bool,
}

impl Store {
    /// Gives up the catch-up of a group and its fetched messages, if other groups have written too many bytes
    /// since the catch-up began.
    pub(super) fn bound_held(&mut self, at: GroupSlot) {
        if !self.members[at].is_between() || self.is_checkpointing(at) {
            return;
        }
        let held = self.held_bytes(at);
        let most = match self.log.disk_full() {
            // The disk is full, so the store soon needs the space that the catch-up keeps from release.
            true => self.appender.reserved_bytes(),
            false => {
                let fetched = self.members[at].staged.bytes();
                HELD_MAX * (self.options.checkpoint_bytes_min + fetched)
            }
        };
        if held <= self.bound_held_bytes(most) {
            return;
        }
        let member = &mut self.members[at];
        tracing::warn!(
            "this node gives up the fetch of a group's state from another node, because the log can free no disk space before the fetch ends, and other groups have already written {held} bytes: the node writes a checkpoint and then starts the fetch again"
        );
        let heard = member.catching_up.begun.is_none();
        member.catching_up.forget();
        member.catching_up.given_up = Some(GivenUp {
            heard,
            asked: false,
        });
        member.staged = Staged::default();
        member.group.forget_catch_up();
        self.review = true;
    }

    /// Returns the number of bytes that other groups have written since the catch-up of this group began.
    /// After a restart of the node, the count begins at the first fetched message.
    fn held_bytes(&self, at: GroupSlot) -> u64 {
        let member = &self.members[at];
        let from = [member.catching_up.begun, member.staged.from()];
        let from = from.into_iter().flatten().min();
        let written = |from: Lsn| self.end.since(from);
        from.map_or(0, written)
            .saturating_sub(member.staged.bytes())
    }

    /// Returns whether a checkpoint of the group is due because the store gave up the group's catch-up.
    /// Without this checkpoint the store cannot release segments.
    pub(super) fn lets_go(&self, at: GroupSlot) -> bool {
        let given_up = self.members[at].catching_up.given_up;
        given_up.is_some_and(|g| !g.asked)
    }

    /// Lets a given-up catch-up start again once the store has been able to release segments: after the due
    /// checkpoint was written or failed, or if no checkpoint was due.
    pub(super) fn end_letting_go(&mut self, at: GroupSlot) {
        let Some(given_up) = self.members[at].catching_up.given_up else {
            return;
        };
        let tried = self.members[at].tried;
        let none_due = || self.covered(at) <= tried;
        if given_up.heard && !self.is_checkpointing(at) && (given_up.asked || none_due()) {
            self.members[at].catching_up.given_up = None;
        }
    }
}
