//! A directory on the log's simulated disk, in place of the receiver's directory, for tests of crashes. It
//! adds the locks of files.
//!
//! A simulated crash tears the write that it hits at any byte, and loses any of the other unsynced sectors.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_log::{SimDisk, Storage as _, StorageFile};

use super::{Bytes, Disk, Holder};

/// The unsynced changes that a simulated power failure leaves on the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// No unsynced change survives.
    Nothing,
    /// All unsynced changes survive.
    Everything,
    /// Each change survives or not, as a random generator with this seed decides, so that a test can repeat
    /// the run.
    Any(u64),
}

/// A directory on a simulated disk. Clones share one directory, so that a test can look into it meanwhile.
#[derive(Clone, Default)]
pub(crate) struct SimFolder {
    pub(crate) disk: SimDisk,
    locked: Arc<Mutex<BTreeSet<String>>>,
    /// The names under which open files find their contents.
    open: Arc<Mutex<Vec<Arc<Mutex<String>>>>>,
}

impl SimFolder {
    fn of(disk: SimDisk) -> Self {
        Self {
            disk,
            ..Self::default()
        }
    }

    /// Returns the disk after the process is killed: every byte written stays, unsynced changes stay
    /// unsynced, and the locks are free. The write that the kill interrupts has reached the disk with its
    /// first `torn` bytes.
    pub(crate) fn kill(&self, torn: usize) -> Self {
        let disk = self.disk.killed();
        disk.tear(torn);
        Self::of(disk)
    }

    /// Returns the disk after a power failure. The write that the failure interrupts has reached the system
    /// with its first `torn` bytes.
    pub(crate) fn crash(&self, torn: usize, fate: Fate) -> Self {
        Self::of(crash(&self.disk, torn, fate))
    }

    /// Replaces the contents of the file `name` durably, as another program would.
    pub(crate) fn overwrite(&self, name: &str, bytes: &[u8]) {
        self.disk.put(name, bytes.to_vec());
    }

    /// Renames a file durably, as a rotation does. Open files keep their contents.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)?;
        self.disk.sync_names()?;
        for open in &*self.open.lock().unwrap() {
            let mut name = open.lock().unwrap();
            if *name == from {
                to.clone_into(&mut name);
            }
        }
        Ok(())
    }

    /// Returns the contents of the file `name`, if there is such a file.
    pub(crate) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let names = self.disk.list().unwrap();
        names
            .iter()
            .any(|n| n == name)
            .then(|| self.disk.content(name))
    }
}

/// Returns a disk after a power failure that leaves the changes by `fate`, as [`SimFolder::crash`] does for a
/// directory.
pub(crate) fn crash(disk: &SimDisk, torn: usize, fate: Fate) -> SimDisk {
    let killed = disk.killed();
    killed.tear(torn);
    let mut random = Random(match fate {
        Fate::Any(seed) => seed,
        _ => 0,
    });
    let mut kept = || match fate {
        Fate::Nothing => false,
        Fate::Everything => true,
        Fate::Any(_) => random.next().is_multiple_of(2),
    };
    let keeps_names = kept();
    killed.crash(keeps_names, |_, _| kept())
}

/// The random generator SplitMix64, by which a seed decides the surviving changes.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Disk for SimFolder {
    type File = SimFile;

    fn open(&self, name: &OsStr) -> io::Result<SimFile> {
        let name = name.to_str().unwrap().to_owned();
        if self.disk.open(&name).is_err() {
            self.disk.create(&name)?;
        }
        let name = Arc::new(Mutex::new(name));
        self.open.lock().unwrap().push(Arc::clone(&name));
        Ok(SimFile {
            folder: self.clone(),
            name,
            held: AtomicBool::new(false),
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        PathBuf::from(name)
    }

    fn holder(&self, name: &OsStr, file: &SimFile) -> io::Result<Holder> {
        let name = name.to_str().unwrap();
        match (file.name() == name, self.disk.open(name).is_ok()) {
            (true, true) => Ok(Holder::Same),
            (false, true) => Ok(Holder::Other),
            (_, false) => Ok(Holder::Missing),
        }
    }

    fn beside(&self, name: &OsStr) -> io::Result<Vec<OsString>> {
        let names = self.disk.list()?.into_iter();
        Ok(names
            .map(OsString::from)
            .filter(|other| other != name)
            .collect())
    }
}

/// A file of a simulated directory. It finds its contents by name, because a test may put another file in its
/// place.
pub(crate) struct SimFile {
    folder: SimFolder,
    name: Arc<Mutex<String>>,
    held: AtomicBool,
}

impl SimFile {
    fn file(&self) -> io::Result<Arc<dyn StorageFile>> {
        self.folder.disk.open(&self.name())
    }

    fn name(&self) -> String {
        self.name.lock().unwrap().clone()
    }
}

impl Bytes for SimFile {
    fn bytes(&self) -> io::Result<Option<u64>> {
        match self.file() {
            Ok(file) => file.bytes().map(Some),
            Err(_) => Ok(None),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.file()?.read_at(buffer, offset)? == buffer.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file()?.write_at(&[IoSlice::new(data)], offset)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.file()?.reserve(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file()?.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        let free = self.folder.locked.lock().unwrap().insert(self.name());
        self.held.fetch_or(free, Ordering::Relaxed);
        Ok(free)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            let name = self.name();
            self.folder.locked.lock().unwrap().remove(&name);
        }
    }
}
