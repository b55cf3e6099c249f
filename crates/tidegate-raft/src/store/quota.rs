//! Compares the bytes of the store's files with the quota (`max_file_store`), and decides how hard the store
//! works to make the space of removed messages usable again.
//!
//! Near the quota the store begins to free space, so that publishers need not wait for it. Beyond the quota
//! streams refuse messages. Then nothing but the store's own work can free space: no message fills the log's
//! present segment, and the log releases only sealed segments. So the store leaves a present segment that
//! holds mostly removed messages, and copies messages out of segments that it would otherwise keep.

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Lsn, SegmentInfo};

use super::Store;
use super::member::Member;
use crate::replica::{Index, records};

/// The growth of the log, in bytes, after which the store compares the bytes of its files with the quota. So
/// the files may exceed the quota by this many bytes.
const STEP_BYTES: u64 = 1 << 20;
/// The divisor that gives this growth for a small quota: the store divides the quota by it.
const STEP_SHARE: u64 = 64;
/// The share of the quota, as a fraction, above which the store frees space ahead.
const NEAR_SHARE: (u64, u64) = (3, 4);
/// The greatest share of a segment's bytes that may be live when the store compacts the segment although it
/// has space. Above this share, the copies would cost too many writes for the space that they free.
const LIVE_SHARE_FREE: f64 = 0.25;
/// The same share near the quota: each freed byte costs at most one copied byte.
const LIVE_SHARE_NEAR: f64 = 0.5;
/// The same share while the store lacks space. Streams refuse messages meanwhile, so the writes of copies
/// delay no message.
const LIVE_SHARE_LOW: f64 = 0.9;
/// The divisors that give the least number of bytes of removed messages for which the store leaves the
/// present segment: the store divides the quota by the first, and the reserved part of a segment by the
/// second, and takes the smaller result. A sealed segment costs a checkpoint and a file.
const LEFT_SHARES: (u64, u64) = (16, 4);
/// The divisor that gives the most bytes of log that one group may keep from release beyond the quota: the
/// store divides the quota by it.
const HELD_SHARE: u64 = 8;
/// The divisor that gives the least length of a checkpoint that the store removes beyond the quota although
/// it is the newest but one: the store divides the quota by it.
const OLDER_SHARE: u64 = 16;
/// The divisor that gives the greatest length of all reserves for checkpoints that do not exist yet: the
/// store divides the quota by it. Otherwise a small quota would hold little but reserves.
const RESERVES_SHARE: u64 = 16;

/// The result of the last comparison of the store's files with the quota.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    /// True if the files took more bytes than the quota.
    pub(super) over: bool,
    /// True if the files took so many bytes that the store frees space ahead.
    pub(super) near: bool,
    /// The durable position of the log at the comparison.
    at: Lsn,
}

impl Store {
    /// Returns the bytes that the store's files take, for the quota: the log's segments, the checkpoints,
    /// and the reserves for the next checkpoints.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let of = |m: &Member| {
            let kept = m.checkpoints.kept().iter().map(|k| k.bytes);
            kept.sum::<u64>() + m.checkpoints.reserve_bytes()
        };
        let kept: u64 = self.members.iter().map(of).sum();
        let segments = self.log.segments();
        let log: u64 = segments.iter().map(written).sum();
        kept + log
    }

    /// Compares the bytes of the store's files with the quota. The count visits every segment, so the store
    /// counts at intervals of log growth, before each review of the segments, and in each turn while its
    /// files exceed the quota.
    pub(super) fn look_at_quota(&mut self) {
        let Some(max) = self.options.max_file_store else {
            return;
        };
        let durable = self.log.durable();
        let step = STEP_BYTES.min(max / STEP_SHARE);
        if self.quota.over || self.review || durable.since(self.quota.at) >= step {
            let used = self.used_bytes();
            let (part, whole) = NEAR_SHARE;
            self.quota = Quota {
                over: used > max,
                near: used > max / whole * part,
                at: durable,
            };
        }
    }

    /// Returns whether the store would copy the live messages of the segment forward, to release the segment:
    /// the copies must be worth the space that they free. The less space the store has, the more copies it
    /// makes.
    pub(super) fn is_worth_copies(&self, segment: &SegmentInfo) -> bool {
        let full = self.log.disk_full();
        let share = match (self.quota.over || full, self.quota.near) {
            (true, _) => LIVE_SHARE_LOW,
            (false, true) => LIVE_SHARE_NEAR,
            (false, false) => LIVE_SHARE_FREE,
        };
        // The quota counts the written bytes of a segment. The release of a segment gives the disk its whole
        // file.
        let bytes = match self.quota.near && !full {
            true => written(segment),
            false => segment.file_bytes,
        };
        self.live_of(segment.range.start.get()) as f64 <= share * bytes as f64
    }

    /// Makes the log go on in its next segment if the store's files exceed the quota, no sealed segment can
    /// be freed, and the present segment holds mostly removed messages. The log then seals that segment, and
    /// the store frees it like any other.
    pub(super) fn leave_segment(&mut self) {
        let Some(max) = self.options.max_file_store.filter(|_| self.quota.over) else {
            return;
        };
        let busy =
            !self.compaction.is_idle() || self.members.iter().any(|m| m.live.is_reclaiming());
        if busy || self.holds() || self.log.disk_full() {
            return;
        }
        let segments = self.log.segments();
        let Some((present, sealed)) = segments.split_last() else {
            return;
        };
        // The log thread has not begun the segment of the last batches yet.
        if present.sealed || present.segment != self.segment {
            return;
        }
        let is_freed = |s: &SegmentInfo| {
            let base = s.range.start.get();
            self.live_of(base) == 0 || (self.is_worth_copies(s) && !self.compaction.gave_up(base))
        };
        let removed = written(present).saturating_sub(self.live_of(present.range.start.get()));
        let (of_quota, of_segment) = LEFT_SHARES;
        let least = (max / of_quota).min(self.appender.reserved_bytes() / of_segment);
        let worth = removed >= least.max(1) && self.is_worth_copies(present);
        if !worth || sealed.iter().any(is_freed) || !self.appender.leave_segment() {
            return;
        }
        // The log begins the next segment only with a batch, and perhaps nothing else comes. This record
        // changes nothing at a start.
        let group = self.members[GroupSlot::FIRST].group.number();
        let record = records::committed(group, Index::ZERO);
        // If the log has no room now, the next batch begins the segment. If the log has failed, the next poll
        // reports the failure.
        let _ = self.append(vec![record], 1);
    }

    /// Returns whether the group keeps its newest checkpoint beside the next one, for the case that the next
    /// one is damaged. Beyond the quota a large checkpoint goes: the store may release the segments that a
    /// start from it would need.
    pub(super) fn keeps_older_checkpoint(&self, at: GroupSlot) -> bool {
        let max = self.options.max_file_store.filter(|_| self.quota.over);
        let newest = self.members[at].checkpoints.kept().last();
        let bytes = newest.map_or(0, |k| k.bytes);
        max.is_none_or(|max| bytes < max / OLDER_SHARE)
    }

    /// Returns the bytes of log that one group may keep from release: `most`, or less beyond a small quota.
    pub(super) fn bound_held_bytes(&self, most: u64) -> u64 {
        let max = self.options.max_file_store.filter(|_| self.quota.over);
        max.map_or(most, |max| most.min(max / HELD_SHARE))
    }

    /// Returns the least length of a group's reserve for its next checkpoint, `least`, or less for a small
    /// quota.
    pub(super) fn bound_reserve(&self, least: u64) -> u64 {
        let groups = self.members.len().max(1) as u64;
        let max = self.options.max_file_store;
        max.map_or(least, |max| least.min(max / RESERVES_SHARE / groups))
    }
}

/// Returns the number of bytes of batches in the segment.
fn written(segment: &SegmentInfo) -> u64 {
    segment.range.end.since(segment.range.start)
}
