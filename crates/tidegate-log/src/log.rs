//! The handle of a log for everything but appends: the durable position, the segments, reads, and the release
//! of segments.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tidegate::Time;
use tidegate::controller::{SizeCosts, Snapshot};

use crate::read::Reader;
use crate::segment::SEGMENT_HEADER;
use crate::shared::{Shared, lock};
use crate::{Failure, Lsn, ReleaseError, SyncOf};

/// A handle to a log, for reads, waits, releases and counters. Clones are handles to the same log. The log's
/// threads end with its [`Appender`](crate::Appender), not with this handle.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log")
            .field("durable", &self.durable())
            .finish_non_exhaustive()
    }
}

/// A segment of a log, as [`Log::segments`] lists it for callers that release or compact segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The number of the segment.
    pub segment: u64,
    /// The log positions of the durable part of the segment, from the segment's beginning.
    pub range: Range<Lsn>,
    /// The number of durable records in the segment, which readers can read.
    pub records: u64,
    /// True if the segment is full and the log is durable beyond it, so that it can be released.
    pub sealed: bool,
    /// The bytes of disk space that the segment's file takes, and that a release of the segment frees: the
    /// length of the file, or less if the log was short of space when it wrote the segment.
    pub file_bytes: u64,
}

/// The counters of a log since this process opened the log, and the present state of its appends, for
/// monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of syncs since the log was opened, including those of markers and of sealed segments.
    pub syncs: u64,
    /// The number of markers that the log wrote since it was opened, while it was idle or at its close. A
    /// marker records on the disk how far the log is durable.
    pub markers: u64,
    /// The number of batches that the log wrote since it was opened.
    pub batches: u64,
    /// The number of records that the log wrote since it was opened.
    pub records: u64,
    /// The number of bytes of batches that the log wrote since it was opened, without the padding of pages.
    pub bytes: u64,
    /// The total time that writes and syncs of batches took since the log was opened, in nanoseconds.
    pub sync_ns: u64,
    /// The number of segments for which the keeper created a new file since the log was opened.
    pub allocated: u64,
    /// The number of segments to which the keeper gave the file of a released segment since the log was
    /// opened.
    pub recycled: u64,
    /// The number of bytes of batches that the log has accepted and that are not yet durable at the moment.
    pub pending_bytes: u64,
    /// The state of the controller that decides when the log syncs, as of the last sync.
    pub controller: Snapshot,
}

/// The counters of a log that a caller may read after each append, because that takes no lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The number of syncs since the log was opened, as in [`Stats::syncs`].
    pub syncs: u64,
    /// The total time of writes and syncs since the log was opened, in nanoseconds, as in
    /// [`Stats::sync_ns`].
    pub sync_ns: u64,
    /// The number of batches that the log has accepted and that are not durable yet: the length of the queue
    /// before the disk.
    pub pending_batches: usize,
}

impl Log {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the position up to which the log is durable, and up to which callers may acknowledge and
    /// read. The position never goes back.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.shared.durable()
    }

    /// Blocks until everything in the log before `lsn` is durable, but at most until `deadline`, or without
    /// a limit if `deadline` is `None`, for a caller that must not acknowledge earlier. Returns true if the
    /// log is durable up to there, and false if the deadline passed first.
    ///
    /// # Errors
    /// Returns the failure if the log failed before `lsn` became durable.
    pub fn wait_durable(&self, lsn: Lsn, deadline: Option<Instant>) -> Result<bool, Failure> {
        let shared = &self.shared;
        let done = || shared.durable() >= lsn || shared.failure().is_some();
        shared.wait_for(deadline, done);
        match (self.durable() >= lsn, self.shared.failure()) {
            (true, _) => Ok(true),
            (false, Some(failure)) => Err(failure.clone()),
            (false, None) => Ok(false),
        }
    }

    /// Returns the failed write or sync after which the log accepts nothing more; `None` if the log has not
    /// failed.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.shared.failure().cloned()
    }

    /// Returns the sync that made the record or batch at `lsn` durable, so that an operator can see why it
    /// took its time. The log remembers the newest four million syncs since its opening.
    #[must_use]
    pub fn sync_of(&self, lsn: Lsn) -> SyncOf {
        lock(&self.shared.observed).syncs.find(lsn)
    }

    /// Returns the present time of the log's clock, from which a caller computes how long ago a sync started.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.now.get()
    }

    /// Returns a reader of this log, with which the caller reads durable records by their positions.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Returns the segments of the log that hold or may hold records, oldest first, so that the caller can
    /// choose segments to release.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let durable = self.durable();
        let segments = &self.shared.segments;
        let segments = segments.read().unwrap_or_else(PoisonError::into_inner);
        let info = segments.values().map(|s| SegmentInfo {
            segment: s.header.segment,
            range: s.header.base..s.end(),
            records: s.records(),
            sealed: s.is_sealed() && s.end() < durable,
            file_bytes: s.taken(),
        });
        info.collect()
    }

    /// Returns the position at which the log begins: the beginning of the oldest segment that the log has not
    /// released.
    #[must_use]
    pub fn first(&self) -> Lsn {
        let segments = &self.shared.segments;
        let segments = segments.read().unwrap_or_else(PoisonError::into_inner);
        segments
            .keys()
            .next()
            .copied()
            .unwrap_or_else(|| self.durable())
    }

    /// Releases a sealed segment that no caller needs any more. The keeper soon deletes the segment's file or
    /// uses it again; reads of the segment fail from then on.
    ///
    /// The newest segment with durable records always stays, because the next opening continues at the
    /// positions behind it.
    ///
    /// # Errors
    /// See [`ReleaseError`]: the log has no segment of this number, the segment is not sealed, or the log is
    /// not durable behind the segment yet.
    pub fn release(&self, segment: u64) -> Result<(), ReleaseError> {
        let infos = self.segments();
        let info = infos.iter().find(|s| s.segment == segment);
        if !info.ok_or(ReleaseError::Unknown)?.sealed {
            return Err(ReleaseError::Open);
        }
        self.shared.errands.ask(|errand| {
            if !errand.release.contains(&segment) {
                errand.release.push(segment);
            }
        });
        Ok(())
    }

    /// Releases every sealed segment that ends at `lsn` or before, for a caller that needs no earlier
    /// records. Returns the number of these segments.
    pub fn release_before(&self, lsn: Lsn) -> usize {
        let segments = self.segments();
        let old = segments.iter().filter(|s| s.sealed && s.range.end <= lsn);
        old.filter(|s| self.release(s.segment).is_ok()).count()
    }

    /// Returns whether the keeper's last attempt to allocate a segment found no disk space. A caller can
    /// then stop accepting work that needs space. Appends can still use the rest of the current segment.
    #[must_use]
    pub fn disk_full(&self) -> bool {
        self.shared.disk_full.load(Ordering::Acquire)
    }

    /// Returns whether the disk had no space to reserve more of the segments, or is full. The log goes on
    /// with segments of [`reserved_bytes`](crate::Appender::reserved_bytes) bytes, and refuses a batch that
    /// is too large for them. The keeper tries to reserve more when the log begins a segment, and after
    /// [`ask_for_space`](Self::ask_for_space).
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.shared.short.load(Ordering::Acquire)
    }

    /// Asks the keeper to try again to allocate the spare segments, and to reserve the part of the segments,
    /// for which the disk had no space; the log calls the waker afterwards.
    pub fn ask_for_space(&self) {
        self.shared.errands.ask(|errand| errand.top_up = true);
    }

    /// Returns the counters of the log's syncs that a caller can read without a lock.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let counters = &self.shared.counters;
        Progress {
            syncs: counters.syncs.load(Ordering::Relaxed),
            sync_ns: counters.sync_ns.load(Ordering::Relaxed),
            pending_batches: self.shared.pending_batches.load(Ordering::Acquire),
        }
    }

    /// Returns the counters of the log since this process opened the log, for monitoring.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let c = &self.shared.counters;
        let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        Stats {
            syncs: get(&c.syncs),
            markers: get(&c.markers),
            batches: get(&c.batches),
            records: get(&c.records),
            bytes: get(&c.bytes),
            sync_ns: get(&c.sync_ns),
            allocated: get(&c.allocated),
            recycled: get(&c.recycled),
            pending_bytes: self.shared.pending_bytes.load(Ordering::Relaxed),
            controller: lock(&self.shared.observed).snapshot,
        }
    }

    /// Returns the measured costs of syncs by the bytes or records that they covered, for monitoring. They
    /// may be some syncs old: the call asks the log thread for newer ones, which it gives after its next
    /// sync.
    #[must_use]
    pub fn size_costs(&self) -> SizeCosts {
        self.shared.costs_asked.store(true, Ordering::Relaxed);
        *lock(&self.shared.size_costs)
    }
}

/// Returns the segment that a compaction should release next, after it has appended the segment's needed
/// records to the log again. A candidate is a sealed segment in which the records still needed take at most
/// the share `live_share_max` of the file. `live_bytes` returns the bytes of these records for the number of
/// a segment. The function returns the candidate with the smallest share, because it frees the most space
/// for the least copying; among equal candidates, the oldest.
///
/// A segment without any needed record comes before all other candidates, because the compaction has nothing
/// to copy from it.
pub fn compaction_candidate(
    segments: &[SegmentInfo],
    live_share_max: f64,
    mut live_bytes: impl FnMut(u64) -> u64,
) -> Option<&SegmentInfo> {
    let share = |s: &SegmentInfo, live: u64| {
        live as f64 / s.file_bytes.saturating_sub(SEGMENT_HEADER as u64).max(1) as f64
    };
    let sealed = segments.iter().filter(|s| s.sealed);
    let shares = sealed.map(|s| (share(s, live_bytes(s.segment)), s));
    shares
        .filter(|(share, _)| *share <= live_share_max)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, segment)| segment)
}
