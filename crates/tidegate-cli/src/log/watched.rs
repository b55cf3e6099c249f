//! The storage of a log that shows on the terminal how many MiB of the log a command has read. Ctrl-C ends a
//! read, unless the command has begun to change files.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_log::{Disk, Storage, StorageFile};

use crate::progress::Progress;

/// The directory, and the count of the bytes read.
pub(super) struct Watched {
    disk: Disk,
    read: Arc<Mutex<Read>>,
}

struct Read {
    bytes: u64,
    progress: Progress,
}

impl Watched {
    /// Watches this directory from now on.
    pub(super) fn new(disk: Disk) -> Self {
        let progress = Progress::start("MiB read");
        Self {
            disk,
            read: Arc::new(Mutex::new(Read { bytes: 0, progress })),
        }
    }

    fn watch(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(WatchedFile {
            file,
            read: Arc::clone(&self.read),
        })
    }
}

impl Storage for Watched {
    fn lock(&self) -> io::Result<bool> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.watch(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(name).map(|file| self.watch(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

struct WatchedFile {
    file: Arc<dyn StorageFile>,
    read: Arc<Mutex<Read>>,
}

impl StorageFile for WatchedFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.file.write_at(parts, at)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let read = self.file.read_at(into, at)?;
        let mut seen = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        seen.bytes += read as u64;
        let mib = seen.bytes >> 20;
        seen.progress.show(mib);
        Ok(read)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
}
