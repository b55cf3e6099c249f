//! Reserved disk space for a group's next checkpoint: a file that the store deletes when the disk has no
//! other space. Without the reserve, other programs could fill the disk to the last byte, and the store could
//! free nothing: the log releases a segment only after a checkpoint covers it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_log::{Storage, is_full};

/// The reserve is this many times as large as the last checkpoint, because the next one may be larger. After
/// purging it is smaller.
const GROWTH: u64 = 2;

/// The reserve, shared between the loop, which decides, and the thread that writes checkpoints.
#[derive(Debug)]
pub(super) struct Reserve {
    name: String,
    bytes_min: u64,
    /// Reserved bytes, as far as known.
    bytes: AtomicU64,
    /// Set while a job that makes the reserve is queued or runs.
    asked: AtomicBool,
}

impl Reserve {
    pub(super) fn new(name: String, bytes_min: u64) -> Arc<Self> {
        Arc::new(Self {
            name,
            bytes_min,
            bytes: AtomicU64::new(0),
            asked: AtomicBool::new(false),
        })
    }

    /// Returns the bytes to reserve after a checkpoint of `last` bytes.
    fn wanted(&self, last: u64) -> u64 {
        self.bytes_min.max(GROWTH * last)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns whether the caller must call [`make`](Self::make): the reserve has not the wanted length and
    /// no such job is pending. Returning `true` marks the job as pending.
    pub(super) fn begin(&self, last: u64) -> bool {
        self.bytes() != self.wanted(last) && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Clears the pending mark, because the worker did not take the job.
    pub(super) fn cancel(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Sets the length of the file to the wanted bytes. If the disk has no space for that, the file keeps its
    /// length.
    pub(super) fn make(&self, storage: &dyn Storage, last: u64) {
        if let Err(error) = self.try_make(storage, self.wanted(last))
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
            // The log makes better use of the bytes that the file gained before the space ended.
            match had {
                0 => storage.remove(&self.name)?,
                had => file.reserve(had)?,
            }
            self.bytes.store(had, Ordering::Release);
        }
        made
    }

    /// Deletes the reserve and returns whether there was one.
    pub(super) fn give_up(&self, storage: &dyn Storage) -> io::Result<bool> {
        self.bytes.store(0, Ordering::Release);
        match storage.remove(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }
}
