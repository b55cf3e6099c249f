//! The seam to storage: a directory of files, and what of it survives a crash.
//!
//! [`Disk`](crate::Disk) is the real one; `SimDisk` (feature `sim`) keeps what was written apart from what is
//! durable. Every method is called without any lock of the log's held, but may block.

use std::io::{self, IoSlice};
use std::sync::Arc;

/// A directory for one log.
pub trait Storage: Send + Sync {
    /// Claims the directory until the storage is dropped; false if somebody else has it.
    ///
    /// # Errors
    /// What the system says.
    fn lock(&self) -> io::Result<bool>;

    /// The names of the files in it, in any order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// An existing file, to read and write.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none, or what the system says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// A new, empty file in place of any of that name.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;

    /// Gives a file another name, in place of any that has it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Whoever has it open can go on reading.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once every create, rename and remove so far is durable.
    ///
    /// # Errors
    /// What the system says; nothing is then known about them.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file of a [`Storage`].
pub trait StorageFile: Send + Sync {
    /// Writes all the parts, one after the other, from `at` on.
    ///
    /// # Errors
    /// What the system says; any part may have been written.
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()>;

    /// Reads into `into` from `at` on; says how much, which is less only at the file's end.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Returns once everything written so far is durable (`fdatasync`).
    ///
    /// # Errors
    /// What the system says. What was written may then be gone, even if a later sync succeeds.
    fn sync(&self) -> io::Result<()>;

    /// Has later reads come from the disk itself, not from what the system remembers of writes whose sync
    /// failed. Best effort, after a [`sync`](Self::sync).
    ///
    /// # Errors
    /// What the system says.
    fn forget_cached(&self) -> io::Result<()>;

    /// Makes the file exactly `bytes` long, with space for all of it: writes inside it need no more. What is
    /// new reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is no space, or what the system says.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Its length.
    ///
    /// # Errors
    /// What the system says.
    fn bytes(&self) -> io::Result<u64>;
}

/// Returns whether the error says that there is no space, on the disk or for this user.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A part of a disk that cannot be read leaves out no more than this, beside itself.
const AROUND_BYTES: usize = 4096;

/// All of a file, with zeros for what cannot be read.
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

/// All of a file.
pub(crate) fn read_all(file: &dyn StorageFile) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut all = vec![0; bytes];
    let read = file.read_at(&mut all, 0)?;
    all.truncate(read);
    Ok(all)
}
