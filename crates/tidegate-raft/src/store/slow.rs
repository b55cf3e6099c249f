//! A simulated slow disk: each sync takes longer by a fixed time. Measurements use it to find the gain of a
//! log that delays syncs for callers, on a disk with slow syncs; a serving node never uses it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_log::{Storage, StorageFile};

/// The delay below which the thread waits awake.
const AWAKE_BELOW: Duration = Duration::from_millis(1);

/// A storage with slower syncs; see the [module](self).
pub(super) struct Slow<S> {
    inner: S,
    delay: Duration,
}

impl<S: Storage> Slow<S> {
    pub(super) const fn new(inner: S, delay: Duration) -> Self {
        Self { inner, delay }
    }

    fn slowed(&self, inner: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        slowed(inner, self.delay)
    }
}

/// Wraps a file, so that each of its syncs takes longer by `delay`.
pub(super) fn slowed(inner: Arc<dyn StorageFile>, delay: Duration) -> Arc<dyn StorageFile> {
    match delay.is_zero() {
        true => inner,
        false => Arc::new(SlowFile { inner, delay }),
    }
}

struct SlowFile {
    inner: Arc<dyn StorageFile>,
    delay: Duration,
}

impl<S: Storage> Storage for Slow<S> {
    fn lock(&self) -> io::Result<bool> {
        self.inner.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.slowed(self.inner.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.slowed(self.inner.create(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }
}

impl StorageFile for SlowFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.inner.write_at(parts, at)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.inner.read_at(into, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()?;
        let begun = Instant::now();
        // A sleep of some microseconds takes much longer than asked, so the thread waits awake.
        if self.delay < AWAKE_BELOW {
            while begun.elapsed() < self.delay {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(self.delay);
        }
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.inner.forget_cached()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)
    }

    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        self.inner.reserve_front(bytes, front)
    }

    fn give_back(&self, bytes: Range<u64>) -> io::Result<()> {
        self.inner.give_back(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }
}
