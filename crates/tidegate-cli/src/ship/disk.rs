//! The traits by which the receiver's files reach the file system. They have few methods, so that tests can
//! put the files on the log's simulated disk (`disk/sim.rs`). The receiver does not use the log's own trait,
//! because it appends to a user's file, which another program may lock, cut, grow or remove.
//!
//! The receiver decides when to sync: a name is durable only after [`Disk::sync_names`], and bytes only after
//! [`Bytes::sync`].

#[cfg(test)]
pub(super) mod sim;

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A directory with the receiver's files, on a real disk or, for tests of power failures, on a simulated
/// disk.
pub(super) trait Disk {
    /// A file in the directory.
    type File: Bytes;

    /// Opens the file `name` for the receiver to read and write, or creates the file if the directory does
    /// not have it.
    fn open(&self, name: &OsStr) -> io::Result<Self::File>;
    /// Makes earlier creations of files in the directory durable, so that the files survive a power failure.
    fn sync_names(&self) -> io::Result<()>;
    /// Returns the path that messages show for the file `name`.
    fn path(&self, name: &OsStr) -> PathBuf;
    /// Returns whether `file` still has the name `name`.
    fn holder(&self, name: &OsStr, file: &Self::File) -> io::Result<Holder>;
    /// Returns the names of the directory's other regular files, among which a rotated file may be.
    fn beside(&self, name: &OsStr) -> io::Result<Vec<OsString>>;
}

/// The file to which a name in the directory belongs, as seen by a receiver that has opened a file under the
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The name belongs to the opened file.
    Same,
    /// The name belongs to another file, because a rotation has renamed the opened file and created a new
    /// one.
    Other,
    /// No file has the name, because a program has renamed or removed the opened file.
    Missing,
}

/// An open file of the receiver, on a real disk or, for tests of power failures, on a simulated disk.
pub(super) trait Bytes {
    /// Returns the length of the file in bytes; `None` if the file was removed, so that writes to it will be
    /// lost.
    fn bytes(&self) -> io::Result<Option<u64>>;
    /// Fills `buffer` with the bytes of the file from `offset` on; fails if the file has fewer bytes.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` to the file at `offset`; only a later sync makes the bytes durable.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts the file to `bytes` bytes, so that the receiver can remove bytes, or extends it with zeros.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Makes earlier writes to the file durable, so that they survive a power failure.
    fn sync(&self) -> io::Result<()>;
    /// Locks the file until it is closed, so that no other receiver writes to it. Returns false if another
    /// process holds the lock.
    fn try_lock(&self) -> io::Result<bool>;
}

/// A directory of the operating system's file system.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Uses `path` as the directory, or the working directory if `path` is empty. The directory must exist
    /// only when the receiver opens the first file.
    pub(super) fn new(path: &Path) -> Self {
        Self(match path.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => path.to_owned(),
        })
    }
}

impl Disk for Folder {
    type File = File;

    fn open(&self, name: &OsStr) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.0.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        match self.0 == Path::new(".") {
            true => PathBuf::from(name),
            false => self.0.join(name),
        }
    }

    fn holder(&self, name: &OsStr, file: &File) -> io::Result<Holder> {
        let named = match std::fs::metadata(self.0.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Holder::Missing),
            named => named?,
        };
        let ours = file.metadata()?;
        match (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
            true => Ok(Holder::Same),
            false => Ok(Holder::Other),
        }
    }

    fn beside(&self, name: &OsStr) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            // Another program may remove a file meanwhile; such a file does not count.
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && entry.file_name() != name {
                names.push(entry.file_name());
            }
        }
        names.sort();
        Ok(names)
    }
}

impl Bytes for File {
    fn bytes(&self) -> io::Result<Option<u64>> {
        let metadata = self.metadata()?;
        if !metadata.is_file() {
            let error = "not a regular file: only that can be cut back after a crash";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        Ok((metadata.nlink() > 0).then_some(metadata.len()))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match flock(self, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}
