//! The seam to storage: a directory of files, and the parts of it that survive a crash.
//!
//! [`Disk`](crate::Disk) is the real one; `SimDisk` (feature `sim`) separates written from
//! durable bytes. The log holds no lock of its own in calls of these methods, which may block.

use std::io::{self, IoSlice};
use std::sync::Arc;

/// A directory for one log.
pub trait Storage: Send + Sync {
    /// Claims the directory until the storage is dropped; returns false if another process has claimed it.
    ///
    /// # Errors
    /// The system's error.
    fn lock(&self) -> io::Result<bool>;

    /// Returns the names of the directory's files, in any order.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file, to read and write.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file, or the system's error.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Creates an empty file, in place of any of that name.
    ///
    /// # Errors
    /// The system's error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Gives a file another name, in place of any that has it.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Readers that have it open can continue.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once every create, rename and remove so far is durable.
    ///
    /// # Errors
    /// The system's error; it is then unknown which of these changes are durable.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file of a [`Storage`].
pub trait StorageFile: Send + Sync {
    /// Writes all the parts, one after the other, from `at` on.
    ///
    /// # Errors
    /// The system's error; any part may have been written.
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()>;

    /// Reads into `into` from `at` on; returns the number of bytes, which is less only at the file's end.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns once everything written so far is durable (`fdatasync`).
    ///
    /// # Errors
    /// The system's error. The bytes written may then be gone, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Drops the system's cache of the file, so that later reads come from the disk and
    /// not from writes with a failed sync. Best effort, after a [`sync`](Self::sync).
    ///
    /// # Errors
    /// The system's error.
    fn forget_cached(&self) -> io::Result<()>;

    /// Makes the file exactly `bytes` long, with space for all of it: writes inside it
    /// need no more. The new part reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, or the system's error.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn bytes(&self) -> io::Result<u64>;
}

/// Returns whether the error means that there is no space, on the disk or for this user.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The most bytes lost around an unreadable part of a disk, beside the part itself.
const AROUND_BYTES: usize = 4096;

/// Reads all of a file, with zeros for unreadable parts.
pub(crate) fn read_around(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut all = vec![0; bytes];
    if file.read_at(&mut all, 0).is_err() {
        for (n, page) in all.chunks_mut(AROUND_BYTES).enumerate() {
            if file.read_at(page, (n * AROUND_BYTES) as u64).is_err() {
                page.fill(0);
            }
        }
    }
    Ok(all)
}

/// Reads all of a file.
pub(crate) fn read_all(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut all = vec![0; bytes];
    let read = file.read_at(&mut all, 0)?;
    all.truncate(read);
    Ok(all)
}
