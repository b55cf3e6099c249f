//! The storage of a log for `tidegate log`, which shows on the terminal how many MiB of the log the command
//! has read. Ctrl-C ends a read, unless the command has begun to change files.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_log::{Disk, Storage, StorageFile};

use crate::interrupt::Interrupted;
use crate::progress::Progress;
use crate::{face, interrupt};

/// Records whether a command has changed the data directory. Before the first change, Ctrl-C may end the
/// command.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Arc<Marks>);

#[derive(Debug, Default)]
struct Marks {
    begun: AtomicBool,
    told: AtomicBool,
}

impl Changes {
    /// Records that the command is about to change a file, so that Ctrl-C no longer ends it.
    pub(super) fn begin(&self) {
        self.0.begun.store(true, Ordering::Relaxed);
    }

    /// Returns whether the command has begun to change files.
    pub(super) fn have_begun(&self) -> bool {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// Tells the user once that the command continues, if the user pressed Ctrl-C after the first change.
    pub(super) fn tell(&self) {
        if interrupt::asked() && !self.0.told.swap(true, Ordering::Relaxed) {
            face::complain(
                "tidegate: the repair has begun to change files, so it goes on to its end; a second Ctrl-C ends it at once, and you must then repair again",
            );
        }
    }

    /// Returns an error if the user pressed Ctrl-C before the command changed a file, so that the command
    /// ends.
    fn check(&self) -> io::Result<()> {
        if interrupt::asked() && !self.have_begun() {
            // The error gets the kind `Other`: a reader would read again after the kind `Interrupted`.
            return Err(io::Error::other(Interrupted));
        }
        self.tell();
        Ok(())
    }
}

/// The directory of a log, with a count of the bytes read from it for the progress line.
pub(super) struct Watched {
    disk: Disk,
    read: Arc<Mutex<Read>>,
    changes: Changes,
}

struct Read {
    bytes: u64,
    progress: Progress,
}

impl Watched {
    /// Begins to count the bytes that the command reads from `disk`.
    pub(super) fn new(disk: Disk, changes: Changes) -> Self {
        let progress = Progress::start("MiB read");
        Self {
            disk,
            changes,
            read: Arc::new(Mutex::new(Read { bytes: 0, progress })),
        }
    }

    fn watch(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(WatchedFile {
            file,
            read: Arc::clone(&self.read),
            changes: self.changes.clone(),
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
        self.changes.begin();
        self.disk.create(name).map(|file| self.watch(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.changes.begin();
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.changes.begin();
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

struct WatchedFile {
    file: Arc<dyn StorageFile>,
    read: Arc<Mutex<Read>>,
    changes: Changes,
}

impl StorageFile for WatchedFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        self.changes.begin();
        self.file.write_at(parts, at)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.changes.check()?;
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
        self.changes.begin();
        self.file.reserve(bytes)
    }

    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        self.changes.begin();
        self.file.reserve_front(bytes, front)
    }

    fn give_back(&self, bytes: Range<u64>) -> io::Result<()> {
        self.changes.begin();
        self.file.give_back(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
}
