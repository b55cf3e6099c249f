//! What a store does so that its log does not grow for ever: when a checkpoint is due, which segments may go, which are copied
//! forward; and whether there is space.
//!
//! A segment goes when no message in it is needed and all of it lies before the older of the two checkpoints that are kept:
//! so a start can do with either of them. Only where there is no space one has to do.

use tidegate_log::{Lsn, SegmentInfo, compaction_candidate};

use super::checkpoint::Header;
use super::checkpoints::Parts;
use super::{LyingIn, Store};
use crate::stream::Lying;

/// A segment is copied forward when less than this share of it is needed.
const LIVE_SHARE_MAX: f64 = 0.25;
/// A checkpoint is due when the log has grown by so many times the last one's bytes.
const GROWTH: u64 = 4;
/// One part in so many of a segment is kept back for what makes space.
const RESERVED_SHARE: u64 = 4;
/// The log may pass its quota by so much before that is noticed.
const QUOTA_STEP_BYTES: u64 = 1 << 20;

/// Whether there is room for more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There is.
    Free,
    /// The disk is full, or the log is at its quota. What is left serves what makes room: deleting, purging, acknowledging.
    Low,
    /// The disk is full, and of what the log had allocated a reserve is left: it is for deleting and purging alone.
    Scarce,
}

impl Store {
    /// Whether there is room for more messages. While there is not, [`ask_for_space`](Self::ask_for_space) looks again.
    #[must_use]
    pub fn space(&self) -> Space {
        match (self.log.disk_full(), self.over_quota.0) {
            (true, _) if self.appender.room_left() < self.reserve_bytes() => Space::Scarce,
            (false, false) => Space::Free,
            _ => Space::Low,
        }
    }

    /// What is kept back of a full disk's last segment.
    const fn reserve_bytes(&self) -> u64 {
        self.options.segment_bytes / RESERVED_SHARE
    }

    /// Whether only the reserve has room for an entry that takes so many bytes of the log.
    pub(super) fn needs_reserve(&self, bytes: u64) -> bool {
        self.log.disk_full() && self.appender.room_left() < bytes + self.reserve_bytes()
    }

    /// Tries again to allocate what a full disk refused. Meant to be called now and then while there is no space.
    pub fn ask_for_space(&self) {
        self.log.ask_for_space();
    }

    /// Bytes of the log that were not released, and of checkpoints.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let kept: u64 = self.checkpoints.kept().iter().map(|k| k.bytes).sum();
        let segments = self.log.segments();
        let log: u64 = segments
            .iter()
            .map(|s| s.range.end.since(s.range.start))
            .sum();
        kept + log
    }

    /// Whether the state should be handed to [`checkpoint`](Self::checkpoint) now.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        if self.is_checkpointing() {
            return false;
        }
        let kept = self.checkpoints.kept();
        let last = kept.last().map_or(0, |k| k.bytes);
        let grown = self.applied.2.since(self.tried);
        grown >= self.options.checkpoint_bytes_min.max(GROWTH * last)
            || (grown > 0 && (self.stuck() || self.leads_nowhere() || self.starts_on_damage()))
    }

    /// Whoever took over the newest checkpoint would lack entries behind it that this member cannot send any more.
    fn leads_nowhere(&self) -> bool {
        let newest = self.checkpoints.kept().last().map_or(0, |k| k.index);
        self.options.voters.len() > 1 && self.group.first_index() > newest + 1
    }

    /// There is no space, and a checkpoint would let some segment go.
    fn stuck(&self) -> bool {
        if self.space() == Space::Free {
            return false;
        }
        let bound = self.bound();
        let waits = |s: &SegmentInfo| s.range.end > bound && s.range.end <= self.applied.2;
        let sealed = self.log.segments();
        let mut sealed = sealed.iter().filter(|s| s.sealed);
        sealed.any(|s| waits(s) && self.live.of(s.range.start.get()) == 0)
    }

    /// Has the state written that came of everything that was due so far. `parts` is called on another thread. Not while another one
    /// is being written: see [`wants_checkpoint`](Self::wants_checkpoint) and [`is_checkpointing`](Self::is_checkpointing).
    pub fn checkpoint(&mut self, parts: Parts) {
        let (index, term, next) = self.applied;
        let header = Header {
            index,
            term,
            hard_state: self.group.hard_state(),
            next,
            live: self.live.to_vec(),
        };
        self.tried = next;
        // From now on segments go whatever was fetched into them.
        self.apart.clear();
        self.checkpoints.write(header, parts);
    }

    /// Whether a checkpoint is being written, or a state taken over, so that there is none to be written of the one there was.
    #[must_use]
    pub const fn is_checkpointing(&self) -> bool {
        self.checkpoints.is_writing()
            || self.catching_up.is_installing()
            || self.catching_up.is_installed()
    }

    /// Bytes of the newest checkpoint; 0 if there is none.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        self.checkpoints.kept().last().map_or(0, |k| k.bytes)
    }

    /// What the streams are to be asked: which messages lie in a segment that is to be copied forward. The answer goes to
    /// [`handle_lying`](Self::handle_lying).
    #[must_use]
    pub fn poll_lying(&self) -> Option<LyingIn> {
        self.compaction.poll_lying()
    }

    /// Messages that lie in the segment asked about, and where to go on asking, if there is more to look through. Wakes the loop.
    pub fn handle_lying(&mut self, lying: Vec<Lying>, next: Option<(u32, u64)>) {
        self.compaction.handle_lying(lying, next);
        (self.waker)();
    }

    /// A turn of all of it.
    pub(super) fn keep_up(&mut self) {
        match self.checkpoints.poll() {
            Some(Ok(())) => {
                self.finish_install(true);
                self.review = true;
            }
            // What was there is still there. The next is tried when the log has grown again.
            Some(Err(error)) => {
                tracing::warn!("no checkpoint was written: {error}");
                self.finish_install(false);
            }
            None => {}
        }
        self.write_install();
        self.review |= self.live.poll_review(self.options.segment_bytes / 4);
        self.look_at_quota();
        loop {
            if std::mem::take(&mut self.review) {
                self.release();
                self.choose();
            }
            // When a segment is through, it may go and another one may be next.
            if !self.relocate() {
                return;
            }
            self.review = true;
        }
    }

    /// Counting takes a look at every segment: so it is done now and then, and each time while there is no room.
    fn look_at_quota(&mut self) {
        let Some(max) = self.options.max_file_store else {
            return;
        };
        let (over, at) = self.over_quota;
        let durable = self.log.durable();
        if over || self.review || durable.since(at) >= QUOTA_STEP_BYTES {
            self.over_quota = (self.used_bytes() > max, durable);
        }
    }

    /// What lies before is not needed for a start.
    fn bound(&self) -> Lsn {
        match (self.checkpoints.kept(), self.space()) {
            ([older, _], Space::Free) => older.next,
            ([.., newest], Space::Low | Space::Scarce) => newest.next,
            _ => Lsn::ZERO,
        }
    }

    fn release(&mut self) {
        if self.catching_up.holds() {
            return;
        }
        let bound = self.bound();
        for segment in self.log.segments() {
            let base = segment.range.start.get();
            let idle = segment.sealed && segment.range.end <= bound && self.live.of(base) == 0;
            if idle && self.log.release(segment.segment).is_ok() {
                self.live.forget(base);
                self.compaction.forget(base);
                // Whoever lags so far is given the state instead; a dead node keeps nobody's segments.
                self.group.handle_released(segment.range.end);
            }
        }
    }

    fn choose(&mut self) {
        if !self.compaction.is_idle() || self.catching_up.holds() {
            return;
        }
        let bound = self.bound();
        let mut segments = self.log.segments();
        segments.retain(|s| {
            let base = s.range.start.get();
            s.range.end <= bound && self.live.of(base) > 0 && !self.compaction.gave_up(base)
        });
        let live = |number| {
            let segment = segments.iter().find(|s| s.segment == number);
            segment.map_or(0, |s| self.live.of(s.range.start.get()))
        };
        if let Some(chosen) = compaction_candidate(&segments, LIVE_SHARE_MAX, live) {
            self.compaction.begin(chosen.range.clone());
        }
    }
}
