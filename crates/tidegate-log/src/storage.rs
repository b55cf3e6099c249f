//! The interface between the log and its storage, so that tests can replace the disk. A storage is a
//! directory of files, and a crash keeps only their durable parts.
//!
//! [`Disk`](crate::Disk) is the storage on a real disk. `SimDisk` (feature `sim`) keeps written and durable
//! bytes apart. The methods may block, and the log holds none of its locks while it calls them.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

/// A directory that holds the files of one log. The log reads and writes its files only through this trait.
pub trait Storage: Send + Sync {
    /// Claims the directory until the storage is dropped, so that only one process writes the log. Returns
    /// false if another process has claimed the directory.
    ///
    /// # Errors
    /// The system's error.
    fn lock(&self) -> io::Result<bool>;

    /// Returns the names of the directory's files, in any order, so that an opening finds the segments.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file, to read and write its bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such file, or the system's error.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Creates an empty file, for instance for a new segment, and replaces a file that already has this
    /// name.
    ///
    /// # Errors
    /// The system's error.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file, and replaces a file that already has the new name. The log replaces its catalog in
    /// this way.
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, to free its disk space. Readers that have opened the file can still read it.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals of files so far durable, so that a crash cannot undo them.
    ///
    /// # Errors
    /// The system's error; it is then unknown which of these changes are durable.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file of a [`Storage`], such as a segment of the log.
pub trait StorageFile: Send + Sync {
    /// Writes all parts, one after the other, from the offset `at` on. Only a later sync makes them durable.
    ///
    /// # Errors
    /// The system's error. Any of the parts may have been written then.
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()>;

    /// Reads bytes from the offset `at` on into `into`. Returns their number, which is less than the length
    /// of `into` only at the file's end.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Makes all bytes written to the file so far durable (`fdatasync`), so that a crash cannot lose them.
    ///
    /// # Errors
    /// The system's error. The written bytes may then be lost, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Drops the system's cache of the file, so that later reads come from the disk, and not from cached
    /// writes that a failed sync lost. The system may keep the cache. The caller must call
    /// [`sync`](Self::sync) first.
    ///
    /// # Errors
    /// The system's error.
    fn forget_cached(&self) -> io::Result<()>;

    /// Sets the length of the file to `bytes`, and reserves disk space for all of it, so that later writes
    /// inside the file need no more space. The new part reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, or the system's error.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file at least `bytes` bytes long, and reserves disk space for its first `front` bytes, so
    /// that later writes there need no more space. Never shortens the file and never changes its bytes,
    /// because the log may be writing to it. The new part reads as zeros. A storage that cannot reserve space
    /// in this way reserves all of the part by which it lengthens the file.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, or the system's error. The file may then have
    /// taken the space that was left.
    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()>;

    /// Gives the disk space of these bytes back, after [`reserve_front`](Self::reserve_front) found space for
    /// only a part of them. The bytes then read as zeros. The caller has written nothing there that it still
    /// needs. A storage that cannot give space back keeps it.
    ///
    /// # Errors
    /// The system's error.
    fn give_back(&self, _bytes: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    /// Returns the length of the file in bytes, so that a reader knows how much to read.
    ///
    /// # Errors
    /// The system's error.
    fn bytes(&self) -> io::Result<u64>;
}

/// Returns whether the error of a storage means that the disk is full, or that this user's quota is used up.
/// The log goes on after such an error, because the user can free space.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// The number of bytes in each read of a file that has an unreadable part. If one of these reads fails, all
/// of its bytes count as unreadable, also those around the bad sector.
const AROUND_BYTES: usize = 4096;

/// Reads all bytes of a file, with zeros in place of the parts that the disk cannot read, so that a check
/// can go on behind a bad sector.
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

/// Reads all bytes of a file, for a caller that needs the whole file. Fails if the disk cannot read a part.
pub(crate) fn read_all(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut all = vec![0; bytes];
    let read = file.read_at(&mut all, 0)?;
    all.truncate(read);
    Ok(all)
}
