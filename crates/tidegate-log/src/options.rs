//! What can be chosen when a log is opened. Every bound the log has is here; nothing needs to be set.

use std::time::Duration;

use tidegate::controller::{Bounds, Controller, Knee, Objective};

use crate::batch::BATCH_HEADER;
use crate::segment::{FIRST_BATCH, PAGE, SEGMENT_BYTES_MAX};
use crate::{Lsn, OpenError};

/// Called after every sync and whenever a refused append may be tried again.
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
    pub(crate) seed: Option<u64>,
    pub(crate) controller: Option<Box<dyn Controller>>,
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
            seed: None,
            controller: None,
            waker: Box::new(|| ()),
        }
    }
}

impl Options {
    /// A file's length: whole pages, at least four, at most [`SEGMENT_BYTES_MAX`]. 64 MiB if not set. What is
    /// there already keeps its own.
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

    /// The most bytes one sync covers, whatever the controller would like; 8 MiB if not set.
    #[must_use]
    pub const fn sync_bytes_max(mut self, bytes: u64) -> Self {
        self.sync_bytes_max = bytes;
        self
    }

    /// Segments allocated ahead, at least one, which it is if not set. Their space is taken before anything
    /// is accepted that needs it.
    #[must_use]
    pub const fn spares(mut self, segments: usize) -> Self {
        self.spares = segments;
        self
    }

    /// The most files of released segments kept to be used again; 4 if not set. Others are removed, four a
    /// second while nothing else is to be done, and used again until then.
    #[must_use]
    pub const fn recycled_max(mut self, files: usize) -> Self {
        self.recycled_max = files;
        self
    }

    /// After so long without an append the log writes down how far it is durable, once; 100 ms if not set.
    /// Until then damage to what was written last cannot be told from a torn write.
    #[must_use]
    pub const fn marker_after(mut self, idle: Duration) -> Self {
        self.marker_after = idle;
        self
    }

    /// The records before this position need not be told when the log is opened.
    #[must_use]
    pub const fn visit_from(mut self, lsn: Lsn) -> Self {
        self.visit_from = lsn;
        self
    }

    /// Whether a directory without a log is refused, and not given a new one; it is given one if not set. For
    /// whoever knows that there was one.
    #[must_use]
    pub const fn must_be_there(mut self, must: bool) -> Self {
        self.must_be_there = must;
        self
    }

    /// Where salts come from; drawn from the system if not set. For simulations: with the same seed the same
    /// bytes are written. Whoever knows the salts can make payloads that look like batches to a recovery.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Decides what one sync covers, and when. If not set it is [`Knee`], counting bytes, waiting for callers
    /// that are about to return where that pays.
    #[must_use]
    pub fn controller(mut self, controller: Box<dyn Controller>) -> Self {
        self.controller = Some(controller);
        self
    }

    /// Called on a thread of the log's after each sync, after a failure, and when an append that was refused
    /// may be tried again. It must not block: it is meant to write to an eventfd, or to unpark a thread.
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

/// What the batches of a segment of so many bytes may take together: a marker always fits behind them.
pub(crate) const fn room(segment_bytes: u64) -> u64 {
    segment_bytes - FIRST_BATCH - BATCH_HEADER as u64
}
