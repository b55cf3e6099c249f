//! Mounts a [`Volume`], the simulated disk, with FUSE so that processes can use it. Threads of the test serve
//! the mount.
//!
//! The kernel caches nothing of the volume: it opens files for direct I/O, and asks for names and lengths
//! each time. So after a loss of power a process reads exactly the bytes that the volume still has.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::volume::{Facts, Names, Volume};

/// The time for which the kernel may cache an answer: zero, so that it asks the volume each time.
const TTL: Duration = Duration::ZERO;
/// The handle of every open file. The volume needs no state for a handle, so all files share one.
const HANDLE: FileHandle = FileHandle(0);
const GENERATION: Generation = Generation(0);
/// The size of the disk that the mount reports to programs, in blocks of one page.
const BLOCKS: u64 = 16 << 20;
/// The time that a sync takes, so that a test can cut the power between a write and the end of its sync.
const SYNC_TAKES: Duration = Duration::from_millis(2);
/// The greatest number of syncs that wait for the running sync.
const SYNCS_MAX: usize = 64;

/// A mounted volume. The drop of this value unmounts it; the mount disappears once no process uses it.
pub(crate) struct Mounted {
    volume: Arc<Mutex<Volume>>,
    session: Option<BackgroundSession>,
    directory: tempfile::TempDir,
}

impl Mounted {
    /// Mounts an empty volume. Returns `None` if the test has no root rights or the machine has no
    /// `/dev/fuse`.
    pub(crate) fn new(names: Names) -> Option<Self> {
        Self::slow(names, SYNC_TAKES)
    }

    /// Mounts a volume as [`new`](Self::new) does, with syncs that take `sync_takes`.
    pub(crate) fn slow(names: Names, sync_takes: Duration) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let volume = Arc::new(Mutex::new(Volume::new(names)));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("tidegate-test".into())];
        let (syncs, asked) = sync_channel(SYNCS_MAX);
        let syncing = Arc::clone(&volume);
        // The thread ends once Rust has dropped every sender of requests.
        std::thread::spawn(move || do_syncs(&syncing, &asked, sync_takes));
        let served = Served {
            volume: Arc::clone(&volume),
            syncs,
        };
        match fuser::spawn_mount(served, directory.path(), &config) {
            Ok(session) => Some(Self {
                volume,
                session: Some(session),
                directory,
            }),
            Err(e) => {
                tidegate_testing::missing(&format!("mounts of FUSE (root, /dev/fuse): {e}"));
                None
            }
        }
    }

    /// Returns a directory on the volume that does not exist yet.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Locks the volume. A caller with the lock must not use a file on the mount, because the answer to such
    /// a use needs the lock.
    pub(crate) fn volume(&self) -> MutexGuard<'_, Volume> {
        lock(&self.volume)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A lazy unmount works even if a process that is ending still has a file open.
        let path = self.directory.path();
        let _ = Command::new("umount").arg("-l").arg(path).output();
        if let Some(session) = self.session.take() {
            // The session has ended, or ends once the last process with an open file ends.
            drop(session);
        }
    }
}

fn lock(volume: &Mutex<Volume>) -> MutexGuard<'_, Volume> {
    // A panic in another test fails that test, so this lock ignores the poison.
    volume.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request to sync: the inode of a file or a directory, and the reply for which the kernel waits.
type Sync = (u64, ReplyEmpty);

/// Carries out the requested syncs one after the other, on a thread of its own, so that other requests do not
/// wait.
fn do_syncs(volume: &Mutex<Volume>, asked: &Receiver<Sync>, takes: Duration) {
    for (ino, reply) in asked {
        let begun = lock(volume).begin_sync(ino);
        let done = begun.and_then(|()| {
            std::thread::sleep(takes);
            lock(volume).end_sync(ino)
        });
        empty(done, reply);
    }
}

/// Serves the kernel's requests for the mounted volume.
struct Served {
    volume: Arc<Mutex<Volume>>,
    syncs: SyncSender<Sync>,
}

impl Served {
    fn volume(&self) -> MutexGuard<'_, Volume> {
        lock(&self.volume)
    }

    fn sync(&self, ino: INodeNo, reply: ReplyEmpty) {
        if let Err(refused) = self.syncs.send((ino.0, reply)) {
            refused.0.1.error(Errno::EIO);
        }
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn attributes(facts: Facts) -> FileAttr {
    let (kind, perm) = match facts.is_directory {
        true => (FileType::Directory, 0o700),
        false => (FileType::RegularFile, 0o600),
    };
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(facts.ino),
        size: facts.bytes,
        blocks: facts.bytes.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(found: Result<Facts, rustix::io::Errno>, reply: ReplyEntry) {
    match found {
        Ok(facts) => reply.entry(&TTL, &attributes(facts), GENERATION),
        Err(e) => reply.error(errno(e)),
    }
}

fn empty(done: Result<(), rustix::io::Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.volume().look_up(parent.0, name), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.volume().facts(ino.0) {
            Ok(facts) => reply.attr(&TTL, &attributes(facts)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut volume = self.volume();
        let resized = size.map_or(Ok(()), |bytes| volume.resize(ino.0, bytes));
        match resized.and_then(|()| volume.facts(ino.0)) {
            Ok(facts) => reply.attr(&TTL, &attributes(facts)),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(self.volume().make(parent.0, name, true), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.volume().remove(parent.0, name, false), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.volume().remove(parent.0, name, true), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        empty(self.volume().rename(from, to), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.volume().opened(ino.0);
        reply.opened(HANDLE, FopenFlags::FOPEN_DIRECT_IO);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut volume = self.volume();
        match volume.make(parent.0, name, false) {
            Ok(facts) => {
                volume.opened(facts.ino);
                let attributes = attributes(facts);
                let flags = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&TTL, &attributes, GENERATION, HANDLE, flags);
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.volume().closed(ino.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The close of a file makes nothing durable, so the volume only confirms it.
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.volume().read(ino.0, offset, size as usize) {
            Ok(data) => reply.data(&data),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.volume().write(ino.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(ino, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(ino, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.volume().list(ino.0) {
            Ok(names) => names,
            Err(e) => return reply.error(errno(e)),
        };
        let all = names.into_iter().zip(1..).skip(offset as usize);
        for ((name, facts), next) in all {
            let kind = attributes(facts).kind;
            if reply.add(INodeNo(facts.ino), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let mut volume = self.volume();
        let end = offset + length;
        let done = match volume.facts(ino.0) {
            Ok(facts) if facts.bytes < end => volume.resize(ino.0, end),
            found => found.map(drop),
        };
        empty(done, reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = 1 << 20;
        reply.statfs(BLOCKS, BLOCKS, BLOCKS, files, files, 4096, 255, 4096);
    }
}
