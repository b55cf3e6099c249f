//! A disk in memory that crashes: a process sees the live bytes, and only the durable bytes survive a crash.
//!
//! The disk counts every call that changes it; the call at which it crashes fails, and so do all later calls.
//! A crash leaves the durable bytes, plus any part of the unsynced changes that a disk might have written,
//! each write torn anywhere: [`Image::crash`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Bytes, Disk};

/// Decides which unsynced changes survive.
pub(crate) trait Fate {
    /// Returns how many bytes of an unsynced write of `bytes` bytes survive.
    fn torn(&mut self, bytes: usize) -> usize;
    /// Returns whether an unsynced change of a file's end, or of a name, survives.
    fn kept(&mut self) -> bool;
}

/// No unsynced change survives.
pub(crate) struct Nothing;

impl Fate for Nothing {
    fn torn(&mut self, _: usize) -> usize {
        0
    }
    fn kept(&mut self) -> bool {
        false
    }
}

/// Every unsynced change survives.
pub(crate) struct Everything;

impl Fate for Everything {
    fn torn(&mut self, bytes: usize) -> usize {
        bytes
    }
    fn kept(&mut self) -> bool {
        true
    }
}

/// Any part survives, by a seeded generator.
pub(crate) struct Any(pub(crate) u64);

impl Any {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Fate for Any {
    fn torn(&mut self, bytes: usize) -> usize {
        match self.next() % 3 {
            0 => 0,
            1 => bytes,
            _ => (self.next() % (bytes as u64 + 1)) as usize,
        }
    }
    fn kept(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }
}

/// The disk. A clone is the same disk.
#[derive(Clone, Default)]
pub(crate) struct Image(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    files: Vec<Contents>,
    live: BTreeMap<OsString, usize>,
    durable: BTreeMap<OsString, usize>,
    /// The number of changes so far.
    changes: usize,
    crash_at: Option<usize>,
    /// The change that crashed, if it was a write: (file, offset, bytes).
    last_write: Option<(usize, u64, Vec<u8>)>,
    fail_syncs: bool,
}

#[derive(Clone, Default)]
struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    locked: bool,
}

#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    End(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, fate: &mut dyn Fate) {
        match self {
            Self::Write(offset, data) => {
                let torn = fate.torn(data.len());
                write(bytes, *offset, &data[..torn]);
            }
            Self::End(end) => {
                if fate.kept() {
                    bytes.resize(*end as usize, 0);
                }
            }
        }
    }
}

fn write(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + data.len());
    if !data.is_empty() && bytes.len() < end {
        bytes.resize(end, 0);
    }
    if !data.is_empty() {
        bytes[start..end].copy_from_slice(data);
    }
}

fn crashed() -> io::Error {
    io::Error::other("crashed")
}

impl Inner {
    fn change(&mut self) -> io::Result<()> {
        let now = self.changes;
        self.changes += 1;
        match self.crash_at {
            Some(at) if now >= at => Err(crashed()),
            _ => Ok(()),
        }
    }
}

impl Image {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Returns the number of changes so far.
    pub(crate) fn changes(&self) -> usize {
        self.lock().changes
    }

    /// Makes the change with this number fail, and every later one.
    pub(crate) fn crash_at(&self, change: usize) {
        self.lock().crash_at = Some(change);
    }

    /// Makes all later syncs fail.
    pub(crate) fn fail_syncs(&self) {
        self.lock().fail_syncs = true;
    }

    /// Returns the length of the write that crashed, if the crash hit a write.
    pub(crate) fn crashed_write(&self) -> Option<usize> {
        self.lock().last_write.as_ref().map(|write| write.2.len())
    }

    /// Returns the disk after the process is killed: every live byte stays, none of it synced, and the locks
    /// are free. `torn` bytes of the write that crashed are there.
    pub(crate) fn kill(&self, torn: usize) -> Self {
        let inner = self.lock();
        let mut files = inner.files.clone();
        if let Some((file, offset, data)) = &inner.last_write {
            let change = Change::Write(*offset, data[..torn.min(data.len())].to_vec());
            change.apply(&mut files[*file].live, &mut Everything);
            files[*file].pending.push(change);
        }
        files.iter_mut().for_each(|file| file.locked = false);
        Self(Arc::new(Mutex::new(Inner {
            files,
            live: inner.live.clone(),
            durable: inner.durable.clone(),
            ..Inner::default()
        })))
    }

    /// Returns the disk after a power failure: `fate` decides which unsynced changes survive. `torn` bytes of
    /// the write that crashed had reached the system.
    pub(crate) fn crash(&self, torn: usize, fate: &mut dyn Fate) -> Self {
        let killed = self.kill(torn);
        {
            let mut inner = killed.lock();
            for file in &mut inner.files {
                let mut bytes = std::mem::take(&mut file.durable);
                for change in file.pending.drain(..) {
                    change.apply(&mut bytes, fate);
                }
                file.live.clone_from(&bytes);
                file.durable = bytes;
            }
            let names: std::collections::BTreeSet<_> = inner
                .live
                .keys()
                .chain(inner.durable.keys())
                .cloned()
                .collect();
            let mut left = BTreeMap::new();
            for name in names {
                let (live, durable) = (inner.live.get(&name), inner.durable.get(&name));
                let chosen = if live == durable || !fate.kept() {
                    durable
                } else {
                    live
                };
                if let Some(file) = chosen {
                    left.insert(name, *file);
                }
            }
            inner.live.clone_from(&left);
            inner.durable = left;
        }
        killed
    }

    /// Returns the live contents of `name`.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let inner = self.lock();
        let file = *inner.live.get(OsStr::new(name))?;
        Some(inner.files[file].live.clone())
    }

    /// Replaces `name` durably, as another program would.
    pub(crate) fn overwrite(&self, name: &str, bytes: &[u8]) {
        let mut inner = self.lock();
        let contents = Contents {
            live: bytes.to_vec(),
            durable: bytes.to_vec(),
            ..Contents::default()
        };
        match inner.live.get(OsStr::new(name)).copied() {
            Some(file) => inner.files[file] = contents,
            None => {
                inner.files.push(contents);
                let file = inner.files.len() - 1;
                inner.live.insert(name.into(), file);
                inner.durable.insert(name.into(), file);
            }
        }
    }

    /// Removes `name` durably, as another program would.
    pub(crate) fn unlink(&self, name: &str) {
        let mut inner = self.lock();
        inner.live.remove(OsStr::new(name));
        inner.durable.remove(OsStr::new(name));
    }
}

impl Disk for Image {
    type File = ImageFile;

    fn open(&self, name: &OsStr) -> io::Result<ImageFile> {
        let mut inner = self.lock();
        let file = match inner.live.get(name) {
            Some(file) => *file,
            None => {
                inner.change()?;
                inner.files.push(Contents::default());
                let file = inner.files.len() - 1;
                inner.live.insert(name.to_owned(), file);
                file
            }
        };
        Ok(ImageFile {
            disk: self.clone(),
            file,
            held: AtomicBool::new(false),
        })
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        Ok(self.lock().live.keys().cloned().collect())
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        let mut inner = self.lock();
        inner.change()?;
        let removed = inner.live.remove(name);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.change()?;
        if inner.fail_syncs {
            return Err(io::Error::other("cannot sync"));
        }
        inner.durable = inner.live.clone();
        Ok(())
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        PathBuf::from(name)
    }
}

/// A file of the image.
pub(crate) struct ImageFile {
    disk: Image,
    file: usize,
    held: AtomicBool,
}

impl Bytes for ImageFile {
    fn bytes(&self) -> io::Result<Option<u64>> {
        let inner = self.disk.lock();
        let linked = inner.live.values().any(|file| *file == self.file);
        Ok(linked.then(|| inner.files[self.file].live.len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let inner = self.disk.lock();
        let start = offset as usize;
        let bytes = inner.files[self.file].live.get(start..start + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if let Err(e) = inner.change() {
            if inner.crash_at == Some(inner.changes - 1) {
                inner.last_write = Some((self.file, offset, data.to_vec()));
            }
            return Err(e);
        }
        let file = &mut inner.files[self.file];
        write(&mut file.live, offset, data);
        file.pending.push(Change::Write(offset, data.to_vec()));
        Ok(())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        inner.change()?;
        let file = &mut inner.files[self.file];
        file.live.resize(bytes as usize, 0);
        file.pending.push(Change::End(bytes));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        inner.change()?;
        if inner.fail_syncs {
            return Err(io::Error::other("cannot sync"));
        }
        let file = &mut inner.files[self.file];
        file.pending.clear();
        file.durable.clone_from(&file.live);
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut inner = self.disk.lock();
        let file = &mut inner.files[self.file];
        let free = !file.locked || self.held.load(Ordering::Relaxed);
        file.locked = true;
        self.held.fetch_or(free, Ordering::Relaxed);
        Ok(free)
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            self.disk.lock().files[self.file].locked = false;
        }
    }
}
