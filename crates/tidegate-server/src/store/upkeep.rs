//! What a store does so that its log does not grow for ever: when a checkpoint is due, which segments may go,
//! which are copied forward; and whether there is space.
//!
//! A segment goes when no message in it is needed and all of it lies before the older of the two checkpoints
//! that are kept: so a start can do with either of them. Only where there is no space one has to do.

use tidegate_log::{Lsn, SegmentInfo, compaction_candidate};

use super::apart::Apart;
use super::checkpoint::Header;
use super::checkpoints::Parts;
use super::member::Member;
use super::{LyingIn, Store};
use crate::stream::Lying;

/// A segment is copied forward when less than this share of it is needed.
const LIVE_SHARE_MAX: f64 = 0.25;
/// A checkpoint is due when the log has grown by so many times the last one's bytes.
pub(super) const GROWTH: u64 = 4;
/// Where space could not be kept back for a checkpoint, that is tried again when the log has grown by so
/// much.
const KEEP_BACK_STEP_BYTES: u64 = 1 << 20;
/// A checkpoint that failed is tried again with each so many-th look for space: a large one takes seconds to
/// write.
const LOOKS_PER_CHECKPOINT: u32 = 8;
/// The log may pass its quota by so much before that is noticed.
const QUOTA_STEP_BYTES: u64 = 1 << 20;

/// Whether there is room for more messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// There is.
    Free,
    /// The disk is full, or the log is at its quota. What is left serves what makes room: deleting, purging,
    /// acknowledging.
    Low,
    /// The disk is full, and of what the log had allocated a reserve is left: it is for deleting and purging
    /// alone.
    Scarce,
}

impl Store {
    /// Whether there is room for more messages. While there is not, [`ask_for_space`](Self::ask_for_space)
    /// looks again.
    #[must_use]
    pub fn space(&self) -> Space {
        match (self.log.disk_full(), self.over_quota.0) {
            (true, _) if self.appender.room_left() < self.reserve_bytes() => Space::Scarce,
            (false, false) => Space::Free,
            _ => Space::Low,
        }
    }

    /// Tries again what a full disk refused: to allocate, and now and then to write a checkpoint. Meant to be
    /// called twice a second while there is no space.
    pub fn ask_for_space(&mut self) {
        self.log.ask_for_space();
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

    /// Bytes of the log that were not released, of checkpoints, and of what is kept back for the next ones.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let of = |m: &Member| {
            let kept = m.checkpoints.kept().iter().map(|k| k.bytes);
            kept.sum::<u64>() + m.checkpoints.reserve_bytes()
        };
        let kept: u64 = self.members.iter().map(of).sum();
        let segments = self.log.segments();
        let log: u64 = segments
            .iter()
            .map(|s| s.range.end.since(s.range.start))
            .sum();
        kept + log
    }

    /// Returns whether the state of a group should be handed to [`checkpoint`](Self::checkpoint) now.
    #[must_use]
    pub fn wants_checkpoint(&self, at: usize) -> bool {
        if self.is_checkpointing(at) {
            return false;
        }
        let member = &self.members[at];
        let kept = member.checkpoints.kept();
        let last = kept.last().map_or(0, |k| k.bytes);
        let grown = self.covered(at).since(member.tried);
        grown >= self.options.checkpoint_bytes_min.max(GROWTH * last)
            || (grown > 0
                && (self.stuck(at)
                    || self.leads_nowhere(at)
                    || self.starts_on_damage(at)
                    || self.lets_go(at)))
    }

    /// What stands in the log before this position is in the group's state, or does not count. Of a group at
    /// rest that is all of the log, so that it does not keep what others wrote.
    pub(super) fn covered(&self, at: usize) -> Lsn {
        let member = &self.members[at];
        // What was covered once is, though there may be entries since that are not due.
        let before = member.applied.2.max(member.tried);
        let others = self.members.len() > 1 && self.rests(at);
        let settled = || member.settled_to(self.log.durable());
        let settled = others.then(settled).flatten();
        settled.map_or(before, |settled| before.max(settled))
    }

    /// Whoever took over the newest checkpoint would lack entries behind it that this member cannot send any
    /// more.
    fn leads_nowhere(&self, at: usize) -> bool {
        let member = &self.members[at];
        let newest = member.checkpoints.kept().last().map_or(0, |k| k.index);
        !member.group.is_alone() && member.group.first_index() > newest + 1
    }

    /// There is no space, and a checkpoint would let some segment go, or be copied forward.
    fn stuck(&self, at: usize) -> bool {
        if self.space() == Space::Free {
            return false;
        }
        let (bound, covered) = (self.bound_of(&self.members[at]), self.covered(at));
        let waits = |s: &SegmentInfo| s.range.end > bound && s.range.end <= covered;
        let sealed = self.log.segments();
        let mut sealed = sealed.iter().filter(|s| s.sealed);
        sealed.any(|s| waits(s) && self.is_mostly_unneeded(s))
    }

    /// Returns whether it is worth copying forward what is needed of it.
    fn is_mostly_unneeded(&self, segment: &SegmentInfo) -> bool {
        let live = self.live_of(segment.range.start.get());
        live as f64 <= LIVE_SHARE_MAX * self.options.segment_bytes as f64
    }

    /// What is needed of the segment that begins there.
    fn live_of(&self, base: u64) -> u64 {
        self.members.iter().map(|m| m.live.of(base)).sum()
    }

    /// Has the state of a group written that came of everything that was due so far. `parts` is called on
    /// another thread. Not while another one is being written: see
    /// [`wants_checkpoint`](Self::wants_checkpoint) and [`is_checkpointing`](Self::is_checkpointing).
    pub fn checkpoint(&mut self, at: usize, parts: Parts) {
        let next = self.covered(at);
        let member = &mut self.members[at];
        let (index, term, _) = member.applied;
        let header = Header {
            index,
            term,
            hard_state: member.group.hard_state(),
            next,
            live: member.live.to_vec(),
        };
        member.tried = next;
        if member.apart.from().is_some_and(|from| from < next) {
            // From now on segments go whatever was fetched into them.
            member.apart = Apart::default();
        }
        if let Some(given_up) = &mut member.catching_up.given_up {
            given_up.asked = true;
        }
        member.checkpoints.write(header, parts);
    }

    /// Returns whether a checkpoint is being written, or a state taken over, so that there is none to be
    /// written of the one there was.
    #[must_use]
    pub fn is_checkpointing(&self, at: usize) -> bool {
        let member = &self.members[at];
        member.checkpoints.is_writing()
            || member.catching_up.is_installing()
            || member.catching_up.is_installed()
    }

    /// Bytes of the groups' newest checkpoints.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> u64 {
        let newest = self.members.iter().map(|m| m.checkpoints.kept().last());
        newest.flatten().map(|k| k.bytes).sum()
    }

    /// What the streams are to be asked: which messages lie in a segment that is to be copied forward. The
    /// answer goes to [`handle_lying`](Self::handle_lying).
    #[must_use]
    pub fn poll_lying(&self) -> Option<LyingIn> {
        self.compaction.poll_lying()
    }

    /// Messages that lie in the segment asked about, and where to go on asking, if there is more to look
    /// through. Wakes the loop.
    pub fn handle_lying(&mut self, lying: Vec<Lying>, next: Option<(u32, u64)>) {
        let groups = self.members.len();
        self.compaction.handle_lying(lying, next, groups);
        (self.waker)();
    }

    /// A turn of all of it.
    pub(super) fn keep_up(&mut self) {
        for at in 0..self.members.len() {
            match self.members[at].checkpoints.poll() {
                Some(Ok(())) => {
                    self.members[at].failed = false;
                    self.members[at].keep_back_at = Lsn::ZERO;
                    self.finish_install(at, true);
                    self.review = true;
                }
                // What was there is still there. The next is tried when the log has grown again, or there may
                // be space.
                Some(Err(error)) => {
                    tracing::warn!("no checkpoint was written: {error}");
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
            self.review |= live.poll_review(self.options.segment_bytes / 4);
        }
        self.look_at_quota();
        loop {
            if std::mem::take(&mut self.review) {
                self.release();
                self.choose();
            }
            // When a segment is through, it may go and another one may be next.
            if !self.relocate() {
                break;
            }
            self.review = true;
        }
        for at in 0..self.members.len() {
            self.end_letting_go(at);
        }
    }

    /// There may be space for what is kept back, but looking for it all the time would be in the way of what
    /// a full disk has left.
    fn keep_reserve(&mut self, at: usize) {
        let durable = self.log.durable();
        let member = &mut self.members[at];
        if durable >= member.keep_back_at && member.checkpoints.keep_reserve() {
            member.keep_back_at = durable.after(KEEP_BACK_STEP_BYTES);
        }
    }

    /// Counting takes a look at every segment: so it is done now and then, and each time while there is no
    /// room.
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
        let bounds = self.members.iter().map(|m| self.bound_of(m));
        bounds.min().unwrap_or(Lsn::ZERO)
    }

    /// The same as far as one group is concerned.
    fn bound_of(&self, member: &Member) -> Lsn {
        match (member.checkpoints.kept(), self.space()) {
            ([older, _], Space::Free) => older.next,
            ([.., newest], Space::Low | Space::Scarce) => newest.next,
            _ => Lsn::ZERO,
        }
    }

    fn release(&mut self) {
        if self.holds() {
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
                    // Whoever lags so far is given the state instead; a dead node keeps nobody's segments.
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
            let fits = !self.log.disk_full() || live < self.appender.room_left();
            s.range.end <= bound && live > 0 && fits && !self.compaction.gave_up(base)
        });
        let live = |number| {
            let segment = segments.iter().find(|s| s.segment == number);
            segment.map_or(0, |s| self.live_of(s.range.start.get()))
        };
        if let Some(chosen) = compaction_candidate(&segments, LIVE_SHARE_MAX, live) {
            self.compaction.begin(chosen.range.clone());
        }
    }
}
