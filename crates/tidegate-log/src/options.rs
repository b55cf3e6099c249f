//! The options of a log at its opening. Every bound of the log is here; all of them have defaults.

use std::time::Duration;

use tidegate::boundary::DecisionLog;
use tidegate::controller::{Bounds, Controller, Knee, Objective};

use crate::batch::BATCH_HEADER;
use crate::segment::{FIRST_BATCH, PAGE, SEGMENT_BYTES_MAX};
use crate::{Lsn, OpenError};

/// The callback after every sync and whenever a caller may try a refused append again.
pub(crate) type Waker = Box<dyn Fn() + Send + Sync>;

/// Options of a log.
pub struct Options {
    pub(crate) segment_bytes: u64,
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
            pending_bytes_max: 16 << 20,
            pending_batches_max: 4096,
            sync_bytes_max: 8 << 20,
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
    /// The length of a segment's file: whole pages, at least four, at most
    /// [`SEGMENT_BYTES_MAX`]. 64 MiB if not set. Existing segments keep their length.
    #[must_use]
    pub const fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// The most bytes accepted and not yet durable; 16 MiB if not set. A single larger batch is accepted
    /// alone.
    #[must_use]
    pub const fn pending_bytes_max(mut self, bytes: u64) -> Self {
        self.pending_bytes_max = bytes;
        self
    }

    /// The most batches accepted and not yet durable; 4096 if not set.
    #[must_use]
    pub const fn pending_batches_max(mut self, batches: usize) -> Self {
        self.pending_batches_max = batches;
        self
    }

    /// The most bytes one sync covers, regardless of the controller; 8 MiB if not set.
    #[must_use]
    pub const fn sync_bytes_max(mut self, bytes: u64) -> Self {
        self.sync_bytes_max = bytes;
        self
    }

    /// The number of segments allocated ahead, at least one; one if not set. The keeper
    /// takes their space before the log accepts a batch that needs it.
    #[must_use]
    pub const fn spares(mut self, segments: usize) -> Self {
        self.spares = segments;
        self
    }

    /// The most files of released segments kept to be used again; 4 if not set. The keeper removes
    /// others, four a second while it has no other work, and may use them again until then.
    #[must_use]
    pub const fn recycled_max(mut self, files: usize) -> Self {
        self.recycled_max = files;
        self
    }

    /// The time without an append after which the log records once how far it is durable; 100 ms if not set.
    /// Until then damage to the last bytes written cannot be told from a torn write.
    #[must_use]
    pub const fn marker_after(mut self, idle: Duration) -> Self {
        self.marker_after = idle;
        self
    }

    /// Skips the records before this position when the opening visits records.
    #[must_use]
    pub const fn visit_from(mut self, lsn: Lsn) -> Self {
        self.visit_from = lsn;
        self
    }

    /// Sets whether to refuse a directory without a log instead of making one there; off
    /// if not set. For callers that know that there was a log.
    #[must_use]
    pub const fn must_be_there(mut self, must: bool) -> Self {
        self.must_be_there = must;
        self
    }

    /// Sets whether to refuse a log if the file of its last segment is shorter than at its creation; off if
    /// not set. Without this option the log opens, and [`Recovery::shortened`](crate::Recovery::shortened)
    /// reports it.
    #[must_use]
    pub const fn refuse_shortened(mut self, refuse: bool) -> Self {
        self.refuse_shortened = refuse;
        self
    }

    /// The seed of the salts; drawn from the system if not set. For simulations: the same seed writes the
    /// same bytes. An attacker who knows the salts can make payloads that look like batches to a recovery.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The controller that decides which batches one sync covers, and when. If not set it is
    /// [`Knee`], counting bytes, which waits for callers that are about to return where that pays.
    #[must_use]
    pub fn controller(mut self, controller: Box<dyn Controller>) -> Self {
        self.controller = Some(controller);
        self
    }

    /// Writes the decisions about syncs into this log, under the name `sync`.
    #[must_use]
    pub fn decisions(mut self, log: DecisionLog) -> Self {
        self.decisions = Some(log);
        self
    }

    /// The callback after each sync, after a failure, and when a refused append may be tried again. A
    /// thread of the log calls it, so it must not block: it should write to an eventfd, or unpark a thread.
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
        if self.spares == 0 || self.pending_batches_max == 0 || self.sync_bytes_max == 0 {
            return Err(OpenError::Options(
                "spares, pending_batches_max and sync_bytes_max must be at least 1",
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
            Err(_) => Err(OpenError::Options("sync_bytes_max must be bounded")),
        }
    }
}

/// Returns the bytes that the batches of a segment may take together: a marker always fits behind them.
pub(crate) const fn room(segment_bytes: u64) -> u64 {
    segment_bytes - FIRST_BATCH - BATCH_HEADER as u64
}
