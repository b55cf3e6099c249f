//! Keeps the log from growing forever: decides when a checkpoint is due, which segments the log releases,
//! which segments the store compacts, and whether there is space for more messages.
//!
//! The store releases a segment once no message in it is needed and it ends before the older of the two kept
//! checkpoints, so that a start can use either checkpoint. If the disk is full or the quota is reached, a
//! segment needs to end only before the newer checkpoint. The module `quota` has the rules that depend on the
//! quota.

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Lsn, SegmentInfo, compaction_candidate};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Resident;

use super::checkpoint::Header;
use super::checkpoints::Parts;
use super::member::Member;
use super::staged::Staged;
use super::{LyingIn, Store};
use crate::replica::Index;

/// The greatest number of parts, of up to 256 removed messages each, that the store subtracts from the live
/// bytes in one turn of the event loop. A stream may remove many messages together, for instance in a purge.
const RECLAIMED_AT_ONCE: usize = 64;
/// The factor that decides when a checkpoint is due: once the log has grown by this many times the last
/// checkpoint's bytes. So the writes of checkpoints stay a fixed share of all writes.
pub(super) const GROWTH: u64 = 4;
/// The divisor that gives the least length of a group's checkpoint reserve: the store divides the part of a
/// segment by it for which the log has reserved disk space, in time the whole segment.
const KEPT_BACK_SHARE: u64 = 16;
/// The divisor that gives the removed bytes after which the store reviews the segments: the store divides the
/// part of a segment by it for which the log has reserved disk space.
const REVIEWED_SHARE: u64 = 4;
/// The divisor that gives the room for entries which leaders on other nodes may have on their way: the store
/// divides the length of a segment by it.
const ON_THE_WAY_SHARE: u64 = 2;
/// The growth of the log, in bytes, after which the store tries again to give a checkpoint's reserve its
/// wanted length.
const KEEP_BACK_STEP_BYTES: u64 = 1 << 20;
/// The number of looks for space on a full disk, two in a second, after which the store retries a failed
/// checkpoint. Retries are rarer than looks, because a large checkpoint takes seconds to write.
const LOOKS_PER_CHECKPOINT: u32 = 8;
/// The divisor that gives the live bytes of a segment that the store compacts on a full disk: the store
/// divides the room that the log has left by it. So the copies leave room for entries that free space.
const COPIED_SHARE: u64 = 2;

/// The answer of the store to the question whether it has space for more messages, by which streams accept
/// or refuse messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// The store has space for more messages, so streams accept all operations.
    #[default]
    Free,
    /// The disk is full, or the store's files are at their quota. The streams refuse new messages, and accept
    /// all other operations.
    Low,
    /// The disk is full, and of the allocated segments only the reserve is left. The store accepts only
    /// entries that free space: deletions, purges, and the entries that move streams away.
    Scarce,
}

impl Store {
    /// Returns whether the store has space for more messages. If [it lacks some](Self::lacks_space), the
    /// caller must call [`ask_for_space`](Self::ask_for_space) to make the store look for space again.
    #[must_use]
    pub fn space(&self) -> Space {
        match (self.log.disk_full(), self.quota.over) {
            (true, _) if self.appender.room_left() < self.reserve_bytes() => Space::Scarce,
            (false, false) => Space::Free,
            _ => Space::Low,
        }
    }

    /// Returns whether the log has room for the entries that leaders on other nodes may have on their way to
    /// this node. If it does not, the node should announce that it has no space, so that these leaders refuse
    /// messages in time: an entry that too few nodes can store gets no answer. A log that is
    /// [short](tidegate_log::Log::is_short) of space reaches its end sooner than an announcement reaches the
    /// leaders.
    #[must_use]
    pub fn has_room_for_leaders(&self) -> bool {
        let most = self.options.segment_bytes / ON_THE_WAY_SHARE;
        let ends = self.log.is_short() && self.appender.room_left() < most;
        self.space() == Space::Free && !ends
    }

    /// Returns whether the store lacks disk space, for more messages or only for the next step of the log's
    /// reservation. In the second case the log goes on with shorter segments.
    #[must_use]
    pub fn lacks_space(&self) -> bool {
        self.space() != Space::Free || self.log.is_short()
    }

    /// Returns whether elections, and entries that free space, have used up the reserve of a full disk, for
    /// simulations. The node then takes no entry until the disk has space.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn has_used_up_reserve(&self) -> bool {
        self.log.disk_full() && self.appender.room_left() < self.reserve_bytes() / 32
    }

    /// Retries the operations that a full disk refused: the allocation of a segment, the next step of the
    /// log's reservation, the copies out of a segment and, less often, the write of a checkpoint. The caller
    /// calls this function twice a second while the store lacks space.
    pub fn ask_for_space(&mut self) {
        self.log.ask_for_space();
        self.compaction.try_again();
        self.review = true;
        self.looks_for_space = self.looks_for_space.wrapping_add(1);
        if self.looks_for_space.is_multiple_of(LOOKS_PER_CHECKPOINT) {
            for member in &mut self.members {
                member.keep_back_at = Lsn::ZERO;
                if member.failed && !member.checkpoints.is_writing() {
                    let newest = member.checkpoints.kept().last();
                    member.tried = newest.map_or(Lsn::ZERO, |k| k.next);
                }
            }
        }
    }

    /// Returns whether a checkpoint of the group is due: the caller should then hand the group's state to
    /// [`checkpoint`](Self::checkpoint).
    #[must_use]
    pub fn wants_checkpoint(&self, at: GroupSlot) -> bool {
        let member = &self.members[at];
        // A checkpoint stores the counts of live bytes, so the store must first subtract all removed messages
        // from them.
        if self.is_checkpointing(at) || member.live.is_reclaiming() {
            return false;
        }
        let kept = member.checkpoints.kept();
        let last = kept.last().map_or(0, |k| k.bytes);
        let grown = self.covered(at).since(member.tried);
        grown >= self.options.checkpoint_bytes_min.max(GROWTH * last)
            || (member.blocks_release && grown > last)
            || (grown > 0
                && (self.stuck(at)
                    || self.leads_nowhere(at)
                    || self.starts_on_damage(at)
                    || self.lets_go(at)))
    }

    /// Returns whether the caller must poll again at once: the store still subtracts messages that streams
    /// removed together from the live bytes, or waits for the state of a checkpoint.
    #[must_use]
    pub fn has_upkeep(&self) -> bool {
        let busy = |m: &Member| m.live.is_reclaiming() || m.checkpoints.awaits_state();
        self.members.iter().any(busy)
    }

    /// Returns the log position at which a checkpoint of the present state would end: the log holds no
    /// record before it that the group's state lacks. If the group has applied all its entries, this is the
    /// end of the durable log, so that the group does not keep other groups' records from release.
    pub(super) fn covered(&self, at: GroupSlot) -> Lsn {
        let member = &self.members[at];
        // A position that was covered once stays covered, even if entries have arrived since that are not due
        // yet.
        let before = member.applied.next.max(member.tried);
        // The last records of the log may be copies of messages, and while the store lacks space no entry may
        // follow them. So the checkpoint of a single group covers them, too.
        let others = (self.members.len() > 1 || self.space() != Space::Free) && self.rests(at);
        let settled = || member.settled_to(self.log.durable());
        let settled = others.then(settled).flatten();
        settled.map_or(before, |settled| before.max(settled))
    }

    /// Returns whether a follower that takes over the newest checkpoint of this member would lack the next
    /// entries, because this member can no longer send them. Then a newer checkpoint is due.
    fn leads_nowhere(&self, at: GroupSlot) -> bool {
        let member = &self.members[at];
        let newest = member
            .checkpoints
            .kept()
            .last()
            .map_or(Index::ZERO, |k| k.index);
        !member.group.is_alone() && member.group.first_index() > newest.next()
    }

    /// Returns whether the store lacks space for messages, and a new checkpoint of the group would let it
    /// release or compact a segment.
    fn stuck(&self, at: GroupSlot) -> bool {
        self.space() != Space::Free && self.blocks_release(at)
    }

    /// Returns whether the group's checkpoints end too early for the release or the compaction of a segment
    /// that a checkpoint of the present state would cover.
    fn blocks_release(&self, at: GroupSlot) -> bool {
        let (bound, covered) = (self.bound_of(&self.members[at]), self.covered(at));
        let waits = |s: &SegmentInfo| s.range.end > bound && s.range.end <= covered;
        let sealed = self.log.segments();
        let mut sealed = sealed.iter().filter(|s| s.sealed);
        sealed.any(|s| waits(s) && self.is_worth_copies(s))
    }

    /// Returns the live bytes that all groups together have in the segment that begins at this log position.
    /// With 0, the store may release the segment.
    pub(super) fn live_of(&self, base: u64) -> u64 {
        self.members.iter().map(|m| m.live.of(base)).sum()
    }

    /// Begins a checkpoint of a group's state as it is now. The state must include every step that the store
    /// has returned so far. The caller hands in this state with [`checkpoint`](Self::checkpoint), possibly
    /// some turns later. No other checkpoint of the group may be in progress: see
    /// [`wants_checkpoint`](Self::wants_checkpoint) and [`is_checkpointing`](Self::is_checkpointing).
    pub fn begin_checkpoint(&mut self, at: GroupSlot) {
        let next = self.covered(at);
        let member = &mut self.members[at];
        member.checkpoints.begin(Header {
            entry: member.applied.entry,
            hard_state: member.group.hard_state(),
            next,
            live: member.live.counts(),
        });
        member.tried = next;
        member.blocks_release = false;
        if member.staged.from().is_some_and(|from| from < next) {
            // The log may release the segments with the fetched messages once it has the checkpoint. So the
            // member forgets these messages.
            member.staged = Staged::default();
        }
        if let Some(given_up) = &mut member.catching_up.given_up {
            given_up.asked = true;
        }
    }

    /// Makes the checkpoint thread write the checkpoint that [`begin_checkpoint`](Self::begin_checkpoint)
    /// began. `parts` are the group's state of that moment. The thread encodes them while it writes.
    pub fn checkpoint(&mut self, at: GroupSlot, parts: Parts) {
        let keeps_older = self.keeps_older_checkpoint(at);
        self.members[at].checkpoints.write_begun(parts, keeps_older);
    }

    /// Returns whether the store waits for the caller to hand in the state of a checkpoint that it has begun.
    #[must_use]
    pub fn awaits_state(&self, at: GroupSlot) -> bool {
        self.members[at].checkpoints.awaits_state()
    }

    /// Returns whether a checkpoint of the group is in progress, or the member takes over a state, so that
    /// the caller must not ask for a checkpoint of the old state.
    #[must_use]
    pub fn is_checkpointing(&self, at: GroupSlot) -> bool {
        let member = &self.members[at];
        member.checkpoints.is_writing()
            || member.catching_up.is_installing()
            || member.catching_up.is_installed()
    }

    /// Returns the total length in bytes of the newest checkpoint of each group, for monitoring.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        let newest = self.members.iter().map(|m| m.checkpoints.kept().last());
        newest.flatten().map(|k| k.bytes).sum()
    }

    /// Returns the next question to the streams: which of their messages lie in the segment that the store
    /// compacts? The caller passes the answer to [`handle_lying`](Self::handle_lying).
    #[must_use]
    pub fn poll_lying(&self) -> Option<LyingIn> {
        self.compaction.poll_lying()
    }

    /// Takes the answer to the question of [`poll_lying`](Self::poll_lying): the messages that lie in the
    /// segment which the store compacts, and the start of the next question, if the streams have more
    /// messages there. Wakes the event loop.
    pub fn handle_lying(&mut self, lying: Vec<Resident>, next: Option<(StreamNumber, StreamSeq)>) {
        let groups = self.members.len();
        self.compaction.handle_lying(lying, next, groups);
        (self.waker)();
    }

    /// Does one turn of the upkeep, so that the log does not grow forever: checkpoints, compaction,
    /// releases, reserves and quota.
    pub(super) fn keep_up(&mut self) {
        self.bound_batches();
        let step = self.appender.reserved_bytes() / REVIEWED_SHARE;
        for at in self.members.slots() {
            match self.members[at].checkpoints.poll() {
                Some(Ok(())) => {
                    self.members[at].failed = false;
                    self.members[at].keep_back_at = Lsn::ZERO;
                    self.finish_install(at, true);
                    self.review = true;
                }
                // The earlier checkpoints still exist. The store tries to write a checkpoint again after the
                // log has grown, or when the disk may have space.
                Some(Err(error)) => {
                    tracing::warn!(
                        "the server cannot write a checkpoint, keeps the earlier ones and tries again later: {error}"
                    );
                    self.members[at].failed = true;
                    self.finish_install(at, false);
                }
                None => {}
            }
            self.write_install(at);
            self.keep_reserve(at);
            self.bound_held(at);
            self.renew(at);
            let live = &mut self.members[at].live;
            let waited = live.is_reclaiming();
            live.reclaim(RECLAIMED_AT_ONCE);
            // The release waited for the end of this work.
            self.review |= waited && !live.is_reclaiming();
            self.review |= live.poll_review(step);
        }
        self.look_at_quota();
        // The less space the store has, the newer is the checkpoint that bounds the release, and the more
        // segments are worth the copies of their messages.
        let pressure = (self.space(), self.quota.near);
        self.review |= std::mem::replace(&mut self.reviewed_at, pressure) != pressure;
        loop {
            if std::mem::take(&mut self.review) {
                self.release();
                self.choose();
                self.look_for_blockers();
            }
            // The store has made the last copy for a segment, so it may now release that segment and choose
            // the next one.
            if !self.relocate() {
                break;
            }
            self.review = true;
        }
        self.leave_segment();
        for at in self.members.slots() {
            self.end_letting_go(at);
        }
    }

    /// Notes the groups with checkpoints that block the release of a segment, if the store's files are near
    /// the quota: a checkpoint of these groups is due early.
    fn look_for_blockers(&mut self) {
        for at in self.members.slots() {
            let blocks = self.quota.near && self.blocks_release(at);
            self.members[at].blocks_release = blocks;
        }
    }

    /// Bounds the batches of the groups by the part of a segment that the log has reserved by now.
    pub(super) fn bound_batches(&mut self) {
        let most = self.batch_bytes_max();
        for member in self.members.iter_mut() {
            member.group.set_batch_bytes_max(most);
        }
    }

    /// Tries to give the reserve for the next checkpoint its wanted length, at intervals of log growth:
    /// constant attempts would compete for the space that a full disk has left.
    fn keep_reserve(&mut self, at: GroupSlot) {
        let durable = self.log.durable();
        let least = self.bound_reserve(self.appender.reserved_bytes() / KEPT_BACK_SHARE);
        let member = &mut self.members[at];
        if durable >= member.keep_back_at && member.checkpoints.keep_reserve(least) {
            member.keep_back_at = durable.after(KEEP_BACK_STEP_BYTES);
        }
    }

    /// Returns the log position before which a start of the node needs no record of any group, so that the
    /// store may release segments before it.
    fn bound(&self) -> Lsn {
        let bounds = self.members.iter().map(|m| self.bound_of(m));
        bounds.min().unwrap_or(Lsn::ZERO)
    }

    /// Returns the log position before which a start of the node needs no record for this group: the end of
    /// the older kept checkpoint or, if space is short, of the newer.
    fn bound_of(&self, member: &Member) -> Lsn {
        match (member.checkpoints.kept(), self.space()) {
            ([older, _], Space::Free) => older.next,
            ([.., newest], Space::Low | Space::Scarce) => newest.next,
            _ => Lsn::ZERO,
        }
    }

    fn release(&mut self) {
        // While removed messages wait to be subtracted from their segments, the release of one segment would
        // have to subtract all of them at once. Without the release that takes a bounded time a turn.
        if self.holds() || self.members.iter().any(|m| m.live.is_reclaiming()) {
            return;
        }
        let bound = self.bound();
        for segment in self.log.segments() {
            let base = segment.range.start.get();
            let idle = segment.sealed && segment.range.end <= bound && self.live_of(base) == 0;
            if idle && self.log.release(segment.segment).is_ok() {
                self.compaction.forget(base);
                for member in &mut self.members {
                    member.live.forget(base);
                    // The group may no longer send entries from before this position. The leader gives its
                    // state to a follower that lags so far, so a dead node does not keep segments from
                    // release.
                    member.group.handle_released(segment.range.end);
                }
            }
        }
    }

    fn choose(&mut self) {
        if !self.compaction.is_idle() || self.holds() {
            return;
        }
        let bound = self.bound();
        let mut segments = self.log.segments();
        segments.retain(|s| {
            let base = s.range.start.get();
            let live = self.live_of(base);
            let fits = !self.log.disk_full() || COPIED_SHARE * live < self.appender.room_left();
            let tried = self.compaction.gave_up(base);
            s.range.end <= bound && live > 0 && fits && !tried && self.is_worth_copies(s)
        });
        let live = |number| {
            let segment = segments.iter().find(|s| s.segment == number);
            segment.map_or(0, |s| self.live_of(s.range.start.get()))
        };
        if let Some(chosen) = compaction_candidate(&segments, f64::INFINITY, live) {
            self.compaction.begin(chosen.range.clone());
        }
    }
}
