//! Stores the files of a log in a directory on a real disk, by the system calls `pwritev`, `fdatasync` and
//! `flock`. The other modules of the log decide when to write and to sync.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, fadvise, fallocate, fdatasync, flock, ftruncate,
};
use rustix::io::pwritev;

use crate::storage::{Storage, StorageFile};

/// The access rights of a log's directory: only the directory's owner can enter it, because the log holds
/// the payloads of users.
const MODE_DIR: u32 = 0o700;
const MODE_FILE: u32 = 0o600;
/// The greatest number of buffers that Linux accepts in one `pwritev` call (`IOV_MAX`). The disk splits a
/// write of more buffers into several calls.
const PARTS_MAX: usize = 1024;
const LOCK: &str = "lock";

/// A directory on a real disk, in which a log keeps its files.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    dir: File,
    lock: File,
}

impl Disk {
    /// Opens the directory at `path` for a log, and durably creates the directory if it does not exist.
    ///
    /// # Errors
    /// Returns the system's error if the system cannot open the directory or create its files.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_path_buf();
        make(&path)?;
        Self::at(path)
    }

    /// Opens the existing directory at `path`, for a caller that must not create a directory.
    ///
    /// # Errors
    /// Returns the system's error if the system cannot open the directory or create its files.
    pub fn existing(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::at(path.as_ref().to_path_buf())
    }

    fn at(path: PathBuf) -> io::Result<Self> {
        let dir = File::open(&path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(MODE_FILE);
        let lock = options.open(path.join(LOCK))?;
        Ok(Self { path, dir, lock })
    }

    fn file(&self, name: &str, create: bool) -> io::Result<Arc<dyn StorageFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(MODE_FILE);
        options.create(create).truncate(create);
        Ok(Arc::new(DiskFile(options.open(self.path.join(name))?)))
    }
}

/// Creates a directory and its missing parent directories so that all of them survive a crash: syncs each
/// new directory in its parent before it creates anything inside. So a directory with content is always
/// durable. An empty directory may be the leftover of a crash and not durable, so the function also syncs
/// the deepest existing directory in its parent.
fn make(path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut above = path.ancestors().filter(|p| !p.as_os_str().is_empty());
    let there = above.find(|p| {
        let is_there = p.is_dir();
        if !is_there {
            missing.push(*p);
        }
        is_there
    });
    match there.map(sync_in_parent) {
        // If the system forbids this sync, the directory belongs to another user. No earlier run of this
        // process created such a directory, so it needs no sync.
        Some(Err(e)) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
        _ => {}
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(MODE_DIR).create(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => sync_in_parent(directory)?,
        }
    }
    Ok(())
}

fn sync_in_parent(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => return Ok(()),
    };
    File::open(parent)?.sync_all()
}

impl Storage for Disk {
    fn lock(&self) -> io::Result<bool> {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            // The log's file names are ASCII. A file with a name that is not UTF-8 is no file of the log, so
            // the list leaves the file out.
            if let Some(name) = name.to_str().filter(|&n| n != LOCK) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.file(name, false)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.file(name, true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.dir.sync_all()
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl StorageFile for DiskFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut at = at;
        for parts in parts.chunks(PARTS_MAX) {
            let bytes: usize = parts.iter().map(|p| p.len()).sum();
            let mut written = rustix::io::retry_on_intr(|| pwritev(&self.0, parts, at))?;
            // In rare cases `pwritev` writes fewer bytes than asked. The disk then writes each remaining
            // part with a call of its own, until all bytes are written.
            if written < bytes {
                let mut skip = written;
                for part in parts {
                    let rest = &part[skip.min(part.len())..];
                    skip -= part.len() - rest.len();
                    self.0.write_all_at(rest, at + written as u64)?;
                    written += rest.len();
                }
            }
            at += bytes as u64;
        }
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.0.read_at(&mut into[read..], at + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(read)
    }

    fn sync(&self) -> io::Result<()> {
        // An interrupted `fdatasync` is an error, and the log does not repeat the call: the kernel may report
        // a lost write only once, so a second call could succeed although bytes are lost.
        Ok(fdatasync(&self.0)?)
    }

    fn forget_cached(&self) -> io::Result<()> {
        Ok(fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let had = self.0.metadata()?.len();
        if had > bytes {
            ftruncate(&self.0, bytes)?;
        }
        match fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // This file system cannot reserve space without a write, so `reserve` writes zeros to take the
            // space.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let zeros = vec![0; 1 << 20];
                let mut at = had.min(bytes);
                while at < bytes {
                    let n = (bytes - at).min(zeros.len() as u64);
                    self.0.write_all_at(&zeros[..n as usize], at)?;
                    at += n;
                }
                Ok(())
            }
            Err(e) => Err(e.into()),
        }
    }

    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        let had = self.0.metadata()?.len();
        match fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, front) {
            // The log lengthens a file only before it writes to the file. So no other thread can have
            // lengthened the file meanwhile, and this call does not shorten it.
            Ok(()) if had < bytes => Ok(ftruncate(&self.0, bytes)?),
            Ok(()) => Ok(()),
            // This file system cannot reserve space without a write. A write of zeros into a part that the
            // log may be writing to would destroy batches, so only a new part takes its space, all at once.
            Err(rustix::io::Errno::OPNOTSUPP) if had < bytes => self.reserve(bytes),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn give_back(&self, bytes: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.0, flags, bytes.start, bytes.end - bytes.start) {
            Err(e) if e != rustix::io::Errno::OPNOTSUPP => Err(e.into()),
            _ => Ok(()),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Disk::open(dir.path()).unwrap();
        let second = Disk::open(dir.path()).unwrap();
        assert!(first.lock().unwrap());
        assert!(!second.lock().unwrap());
        drop(first);
        assert!(second.lock().unwrap());
    }

    #[test]
    fn directories_are_made_as_far_as_they_are_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        Disk::open(&path).unwrap();
        Disk::open(&path).unwrap();
        Disk::open(dir.path().join("a/d")).unwrap();
        assert!(path.is_dir() && dir.path().join("a/d").is_dir());
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(Disk::open(dir.path().join("file/b")).is_err());
    }

    #[test]
    fn writes_in_parts_are_read_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::open(dir.path()).unwrap();
        let file = disk.create("a").unwrap();
        file.reserve(10_000).unwrap();
        // The disk must split this write of 3000 buffers, because one `pwritev` call accepts only 1024.
        let parts: Vec<_> = (0..3000).map(|_| IoSlice::new(b"ab")).collect();
        file.write_at(&parts, 5).unwrap();
        file.sync().unwrap();
        let all = crate::storage::read_all(&*file).unwrap();
        assert_eq!(all.len(), 10_000);
        assert!(all[5..6005].chunks(2).all(|c| c == b"ab"));
        assert!(all[6005..].iter().all(|&b| b == 0));
        file.reserve(100).unwrap();
        assert_eq!(file.bytes().unwrap(), 100);
        file.reserve_front(1 << 20, 8192).unwrap();
        file.reserve_front(0, 16384).unwrap();
        let all = crate::storage::read_all(&*file).unwrap();
        assert_eq!(all.len(), 1 << 20);
        assert!(all[5..100].chunks(2).all(|c| c[0] == b'a'));
        assert!(all[100..].iter().all(|&b| b == 0));
        file.write_at(&[IoSlice::new(b"junk")], 8192).unwrap();
        let taken = || fs::metadata(dir.path().join("a")).unwrap().blocks();
        let before = taken();
        file.give_back(8192..16384).unwrap();
        assert!(taken() <= before && file.bytes().unwrap() == 1 << 20);
        let all = crate::storage::read_all(&*file).unwrap();
        assert!(all[8192..16384].iter().all(|&b| b == 0));
        disk.rename("a", "b").unwrap();
        disk.sync_names().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        disk.remove("b").unwrap();
        assert!(matches!(disk.open("b"), Err(e) if e.kind() == io::ErrorKind::NotFound));
    }
}
