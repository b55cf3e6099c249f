//! Reserves disk space for a group's next checkpoint in a file that the store deletes when the disk has no
//! other space. Without this reserve, other programs could fill the disk to the last byte, and the store
//! could free nothing: the log releases a segment only after a checkpoint covers the segment.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_log::{Storage, is_full};

/// The factor by which the reserve is longer than the last checkpoint, because the next checkpoint may be
/// larger.
const GROWTH: u64 = 2;

/// Returns the length in bytes that the reserve file should have: room for a checkpoint larger than the last
/// one, which has `last` bytes, and at least `least` bytes.
pub(super) fn wanted_bytes(least: u64, last: u64) -> u64 {
    least.max(GROWTH * last)
}

/// The reserve file for a group's next checkpoint. The event loop, which decides about the reserve, and the
/// checkpoint thread share this value.
#[derive(Debug)]
pub(super) struct Reserve {
    name: String,
    /// The length of the reserve file in bytes, as far as the process knows; 0 before the thread has made
    /// the file.
    bytes: AtomicU64,
    /// True while a job to make the reserve file waits or runs, so that the event loop queues no second job.
    asked: AtomicBool,
}

impl Reserve {
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            bytes: AtomicU64::new(0),
            asked: AtomicBool::new(false),
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns whether the caller must hand a job that calls [`make`](Self::make) to the checkpoint thread:
    /// the reserve does not have the `wanted` length, and no such job waits or runs. Before it returns
    /// `true`, also marks the job as waiting.
    pub(super) fn begin(&self, wanted: u64) -> bool {
        self.bytes() != wanted && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Takes back the note that a job to make the reserve waits, because the checkpoint thread did not accept
    /// the job.
    pub(super) fn cancel(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Extends or cuts the reserve file to this length. If the disk has no space for that, the file keeps its
    /// length.
    pub(super) fn make(&self, storage: &dyn Storage, wanted: u64) {
        if let Err(error) = self.try_make(storage, wanted)
            && !is_full(&error)
        {
            tracing::warn!(
                "the server cannot reserve disk space for checkpoints, and on a full disk the next checkpoint may fail: {error}"
            );
        }
        self.asked.store(false, Ordering::Release);
    }

    fn try_make(&self, storage: &dyn Storage, bytes: u64) -> io::Result<()> {
        let file = match storage.open(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => storage.create(&self.name)?,
            file => file?,
        };
        let had = file.bytes()?;
        let made = file.reserve(bytes);
        self.bytes.store(bytes, Ordering::Release);
        if made.is_err() {
            // The disk had no space for the whole reserve. So the thread gives the gained bytes back,
            // because the log can use them.
            match had {
                0 => storage.remove(&self.name)?,
                had => file.reserve(had)?,
            }
            self.bytes.store(had, Ordering::Release);
        }
        made
    }

    /// Deletes the reserve file to free its disk space, and returns whether the file existed.
    pub(super) fn give_up(&self, storage: &dyn Storage) -> io::Result<bool> {
        self.bytes.store(0, Ordering::Release);
        match storage.remove(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }
}
