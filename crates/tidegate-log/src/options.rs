//! The options with which a log is opened. Every bound of the log is one of these options, and each has a
//! default.

use std::time::Duration;

use tidegate::boundary::DecisionLog;
use tidegate::controller::{Bounds, Controller, Knee, Objective};

use crate::batch::BATCH_HEADER;
use crate::segment::{FIRST_BATCH, PAGE, SEGMENT_BYTES_MAX};
use crate::{Lsn, OpenError};

/// The function that the log calls after every sync, and when a caller may try a refused append again, to
/// wake the thread that appends.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// The greatest number of bytes of batches that one sync covers, unless [`Options::sync_bytes_max`] sets
/// another.
pub const SYNC_BYTES_MAX: u64 = 8 << 20;

/// The options with which a caller opens a log; each has a default.
pub struct Options {
    pub(crate) segment_bytes: u64,
    pub(crate) first_bytes: u64,
    pub(crate) pending_bytes_max: u64,
    pub(crate) pending_batches_max: usize,
    pub(crate) sync_bytes_max: u64,
    pub(crate) spares: usize,
    pub(crate) recycled_max: usize,
    pub(crate) marker_after: Duration,
    pub(crate) visit_from: Lsn,
    pub(crate) must_be_there: bool,
    pub(crate) refuse_shortened: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) controller: Option<Box<dyn Controller>>,
    pub(crate) decisions: Option<DecisionLog>,
    pub(crate) waker: Waker,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_bytes: 1 << 20,
            pending_bytes_max: 16 << 20,
            pending_batches_max: 4096,
            sync_bytes_max: SYNC_BYTES_MAX,
            spares: 1,
            recycled_max: 4,
            marker_after: Duration::from_millis(100),
            visit_from: Lsn::ZERO,
            must_be_there: false,
            refuse_shortened: false,
            seed: None,
            controller: None,
            decisions: None,
            waker: Box::new(|| ()),
        }
    }
}

impl Options {
    /// Sets the length of a segment's file in bytes: whole pages of 4096 bytes, at least four of them, at
    /// most [`SEGMENT_BYTES_MAX`]; 64 MiB if not set. The log releases whole segments, so shorter segments
    /// free disk space earlier. Existing segments keep their length.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the disk space in bytes that the log reserves for each segment while the log is new: whole pages
    /// of 4096 bytes, at least two of them; 1 MiB if not set. The keeper doubles this space, ahead of the
    /// appends, until it reserves whole segments. A log that holds half a segment has reached that state for
    /// good. A greater number saves the first appends of a busy log these steps.
    #[must_use]
    pub const fn first_bytes(mut self, bytes: u64) -> Self {
        self.first_bytes = bytes;
        self
    }

    /// Sets the greatest number of bytes of accepted batches that are not durable yet; 16 MiB if not set.
    /// The bound limits the memory of the log's queue. The log accepts a larger batch if no other batch
    /// waits.
    #[must_use]
    pub const fn pending_bytes_max(mut self, bytes: u64) -> Self {
        self.pending_bytes_max = bytes;
        self
    }

    /// Sets the greatest number of accepted batches that are not durable yet; 4096 if not set. The number is
    /// the capacity of the log's queue.
    #[must_use]
    pub const fn pending_batches_max(mut self, batches: usize) -> Self {
        self.pending_batches_max = batches;
        self
    }

    /// Sets the greatest number of bytes of batches that one sync covers, regardless of the controller; 8
    /// MiB if not set. The bound keeps a single sync short.
    #[must_use]
    pub const fn sync_bytes_max(mut self, bytes: u64) -> Self {
        self.sync_bytes_max = bytes;
        self
    }

    /// Sets the number of spare segments that the keeper allocates ahead, at least one; one if not set. So
    /// the log has disk space for a batch before it accepts the batch.
    #[must_use]
    pub const fn spares(mut self, segments: usize) -> Self {
        self.spares = segments;
        self
    }

    /// Sets the greatest number of files of released segments that the keeper thread keeps for new segments;
    /// 4 if not set. The keeper removes the other files, at most four a second and only while it has no
    /// other work. Until the keeper has removed a file, it may use that file for a new segment, too.
    #[must_use]
    pub const fn recycled_max(mut self, files: usize) -> Self {
        self.recycled_max = files;
        self
    }

    /// Sets the time without an append after which the log writes a marker that says how far it is durable;
    /// 100 ms if not set. Until the marker is written, a recovery cannot tell damage to the last bytes from a
    /// torn write.
    #[must_use]
    pub const fn marker_after(mut self, idle: Duration) -> Self {
        self.marker_after = idle;
        self
    }

    /// Makes the opening call `visit` only with records at this log position or behind it, for a caller that
    /// already knows the earlier records. If not set, the opening visits all records.
    #[must_use]
    pub const fn visit_from(mut self, lsn: Lsn) -> Self {
        self.visit_from = lsn;
        self
    }

    /// Sets whether the opening refuses a directory without a log instead of creating a log there; off if
    /// not set. A caller that knows that the directory had a log sets this option, so that the loss of the
    /// log does not go unnoticed.
    #[must_use]
    pub const fn must_be_there(mut self, must: bool) -> Self {
        self.must_be_there = must;
        self
    }

    /// Sets whether the opening refuses a log if the file of its last segment is shorter than at its
    /// creation, because durable bytes may be missing; off if not set. Without this option the log opens,
    /// and [`Recovery::shortened`](crate::Recovery::shortened) reports the short file.
    #[must_use]
    pub const fn refuse_shortened(mut self, refuse: bool) -> Self {
        self.refuse_shortened = refuse;
        self
    }

    /// Sets the seed of the segments' salts; drawn from the system if not set. Only simulations should set
    /// the seed, so that each run writes the same bytes: an attacker who knows the salts can make payloads
    /// that a recovery takes for batches.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets the controller that decides which batches one sync covers, and when the sync starts. If not set,
    /// the log uses a [`Knee`] that counts bytes. It delays a sync if waiting for further callers raises the
    /// throughput.
    #[must_use]
    pub fn controller(mut self, controller: Box<dyn Controller>) -> Self {
        self.controller = Some(controller);
        self
    }

    /// Makes the log write the controller's decisions about syncs into this decision log, under the name
    /// `sync`, so that an operator can see why a sync came when it did.
    #[must_use]
    pub fn decisions(mut self, log: DecisionLog) -> Self {
        self.decisions = Some(log);
        self
    }

    /// Sets the function that the log calls after each sync, after a failure, and when a caller may try a
    /// refused append again. A thread of the log calls this function, so it must not block: it should write
    /// to an eventfd, or unpark a thread.
    #[must_use]
    pub fn waker(mut self, waker: impl Fn() + Send + Sync + 'static) -> Self {
        self.waker = Box::new(waker);
        self
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bytes = self.segment_bytes;
        if !bytes.is_multiple_of(PAGE) || !(4 * PAGE..=SEGMENT_BYTES_MAX).contains(&bytes) {
            return Err(OpenError::Options(
                "segment_bytes must be a multiple of 4096, at least 16384 and at most 1 GiB",
            ));
        }
        if !self.first_bytes.is_multiple_of(PAGE) || self.first_bytes < 2 * PAGE {
            return Err(OpenError::Options(
                "first_bytes must be a multiple of 4096, at least 8192",
            ));
        }
        if self.spares == 0 || self.pending_batches_max == 0 || self.sync_bytes_max == 0 {
            return Err(OpenError::Options(
                "spares, pending_batches_max and sync_bytes_max must be at least 1",
            ));
        }
        if self.pending_batches_max > tidegate::queue::CAPACITY_MAX {
            return Err(OpenError::Options(
                "pending_batches_max must be at most 2^30",
            ));
        }
        Ok(())
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            items_min: 1,
            items_max: u64::MAX,
            bytes_max: self.sync_bytes_max,
            age_max: Duration::from_secs(1),
            in_flight_max: None,
        }
    }

    pub(crate) fn take_controller(&mut self) -> Result<Box<dyn Controller>, OpenError> {
        if let Some(controller) = self.controller.take() {
            return Ok(controller);
        }
        let knee = Knee::new(Objective::Lean, self.bounds()).and_then(Knee::in_bytes);
        match knee {
            Ok(knee) => Ok(Box::new(knee.anticipating())),
            Err(_) => Err(OpenError::Options(
                "sync_bytes_max is too large: give a smaller number of bytes",
            )),
        }
    }
}

/// Returns the number of bytes that the batches of a segment may take together, so that the planner does not
/// overfill a segment. A segment of `segment_bytes` bytes also holds the page of its header, and a marker
/// behind the last batch. The same holds for the reserved front of a segment.
pub(crate) const fn room(segment_bytes: u64) -> u64 {
    segment_bytes.saturating_sub(FIRST_BATCH + BATCH_HEADER as u64)
}
