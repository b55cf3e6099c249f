//! Space kept back for a group's next checkpoint: a file that is given up where there is no other space.
//! Without it a disk that others filled to the last byte could not be emptied any more, for nothing in the
//! log may go before a checkpoint says so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_log::{Storage, is_full};

/// The next checkpoint may be so many times as large as the last one; after purging it is smaller.
const GROWTH: u64 = 2;

/// Shared between who decides and who writes.
#[derive(Debug)]
pub(super) struct Reserve {
    name: String,
    bytes_min: u64,
    /// What there is, as far as it is known.
    bytes: AtomicU64,
    /// Somebody is about to make it.
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

    /// What there should be after a checkpoint of so many bytes.
    fn wanted(&self, last: u64) -> u64 {
        self.bytes_min.max(GROWTH * last)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns whether [`make`](Self::make) is to be called: as many as are wanted are not there, and nobody
    /// was asked before. Once it is said it counts as asked.
    pub(super) fn begin(&self, last: u64) -> bool {
        self.bytes() != self.wanted(last) && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// It was not asked after all.
    pub(super) fn cancel(&self) {
        self.asked.store(false, Ordering::Release);
    }

    /// Makes the file as long as is wanted. If there is no space for that, what there is stays.
    pub(super) fn make(&self, storage: &dyn Storage, last: u64) {
        if let Err(error) = self.try_make(storage, self.wanted(last))
            && !is_full(&error)
        {
            tracing::warn!("no space was kept back for checkpoints: {error}");
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
            // What it got beyond that before space ended is of more use to the log.
            match had {
                0 => storage.remove(&self.name)?,
                had => file.reserve(had)?,
            }
            self.bytes.store(had, Ordering::Release);
        }
        made
    }

    /// Gives the space back; whether there was any.
    pub(super) fn give_up(&self, storage: &dyn Storage) -> io::Result<bool> {
        self.bytes.store(0, Ordering::Release);
        match storage.remove(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }
}
