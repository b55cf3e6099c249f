//! A simulated disk with a file system, in memory. The volume knows for every byte and every name if a sync
//! has covered it. It is pure; `mounted` mounts it for processes.
//!
//! A loss of power can destroy every 4 KiB page that a program wrote and did not sync since, also each file's
//! length and names in directories. It can destroy all of them. Or it draws for each page if the old page
//! stays, the new page stays, or a mixture of their 512-byte sectors.
//!
//! POSIX promises for names only that a sync of the directory makes them durable; a sync of a file does not.
//! [`Names::OfDirectory`] follows this rule, which is harsher than ext4. On ext4 (`data=ordered`, the
//! default) a sync of any file commits the journal, and with it all earlier changes of names:
//! [`Names::WithAnySync`]. Both rules keep the order of changes in a directory, and a rename within it as a
//! whole, as the journal does. Under both rules names and pages never become durable by themselves in time; a
//! test makes them durable.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use rustix::io::Errno;

mod inode;
#[cfg(test)]
mod tests;

use inode::{Directory, Draw, File, Inode};
pub(crate) use inode::{Loss, Lost};

/// The number of the root directory's inode.
pub(crate) const ROOT: u64 = 1;

/// The rule by which names of files become durable; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    OfDirectory,
    WithAnySync,
}

/// A simulated disk with its file system; see the module.
#[derive(Debug)]
pub(crate) struct Volume {
    names: Names,
    /// True if the disk lies about syncs: they succeed and make nothing durable.
    ignores_syncs: bool,
    /// The number of changes and syncs after which the power goes; `None` if the power stays on.
    power_left: Option<u64>,
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// The number of open handles of each open inode.
    open: BTreeMap<u64, u64>,
}

/// The attributes of a file or a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) ino: u64,
    pub(crate) bytes: u64,
    pub(crate) is_directory: bool,
}

impl Volume {
    /// Creates an empty volume.
    pub(crate) fn new(names: Names) -> Self {
        Self {
            names,
            ignores_syncs: false,
            power_left: None,
            inodes: BTreeMap::from([(ROOT, Inode::Directory(Directory::default()))]),
            next: ROOT + 1,
            open: BTreeMap::new(),
        }
    }

    /// Makes all later syncs succeed without an effect, so that the tests can check their own checks.
    pub(crate) const fn ignore_syncs(&mut self) {
        self.ignores_syncs = true;
    }

    /// Cuts the power after this many further changes and syncs. Every later call then fails.
    pub(crate) const fn cut_after(&mut self, calls: u64) {
        self.power_left = Some(calls);
    }

    /// Returns whether the power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.power_left == Some(0)
    }

    fn powered(&self) -> Result<(), Errno> {
        match self.is_off() {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Counts a change or a sync of the disk. Returns an error if the power is off.
    fn spend(&mut self) -> Result<(), Errno> {
        self.powered()?;
        self.power_left = self.power_left.map(|left| left - 1);
        Ok(())
    }

    fn file(&mut self, ino: u64) -> Result<&mut File, Errno> {
        match self.inodes.get_mut(&ino) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Directory(_)) => Err(Errno::ISDIR),
            None => Err(Errno::STALE),
        }
    }

    fn directory(&mut self, ino: u64) -> Result<&mut Directory, Errno> {
        match self.inodes.get_mut(&ino) {
            Some(Inode::Directory(directory)) => Ok(directory),
            Some(Inode::File(_)) => Err(Errno::NOTDIR),
            None => Err(Errno::STALE),
        }
    }

    pub(crate) fn facts(&self, ino: u64) -> Result<Facts, Errno> {
        self.powered()?;
        let (bytes, is_directory) = match self.inodes.get(&ino).ok_or(Errno::STALE)? {
            Inode::File(file) => (file.bytes, false),
            Inode::Directory(_) => (0, true),
        };
        Ok(Facts {
            ino,
            bytes,
            is_directory,
        })
    }

    pub(crate) fn look_up(&mut self, parent: u64, name: &OsStr) -> Result<Facts, Errno> {
        let found = self.directory(parent)?.entries.get(name).copied();
        self.facts(found.ok_or(Errno::NOENT)?)
    }

    pub(crate) fn list(&mut self, ino: u64) -> Result<Vec<(OsString, Facts)>, Errno> {
        let entries = self.directory(ino)?.entries.clone();
        let all = entries.into_iter();
        all.map(|(name, ino)| Ok((name, self.facts(ino)?)))
            .collect()
    }

    /// Creates a file or a directory.
    pub(crate) fn make(
        &mut self,
        parent: u64,
        name: &OsStr,
        is_directory: bool,
    ) -> Result<Facts, Errno> {
        if self.directory(parent)?.entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        self.spend()?;
        let ino = self.next;
        self.next += 1;
        let inode = match is_directory {
            true => Inode::Directory(Directory::default()),
            false => Inode::File(File::default()),
        };
        self.inodes.insert(ino, inode);
        let parent = self.directory(parent)?;
        parent.change(vec![(name.into(), Some(ino))]);
        Ok(Facts {
            ino,
            bytes: 0,
            is_directory,
        })
    }

    /// Removes a name.
    pub(crate) fn remove(
        &mut self,
        parent: u64,
        name: &OsStr,
        is_directory: bool,
    ) -> Result<(), Errno> {
        let found = self.look_up(parent, name)?;
        match (found.is_directory, is_directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if !self.directory(found.ino)?.entries.is_empty() => {
                return Err(Errno::NOTEMPTY);
            }
            _ => {}
        }
        self.spend()?;
        self.directory(parent)?.change(vec![(name.into(), None)]);
        Ok(())
    }

    /// Renames a file, and replaces a file that has the new name. A rename between two directories is two
    /// changes, and a loss of power may undo one of them.
    pub(crate) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Errno> {
        let found = self.look_up(from.0, from.1)?;
        self.directory(to.0)?;
        self.spend()?;
        let (gone, new) = ((from.1.into(), None), (to.1.into(), Some(found.ino)));
        if from.0 == to.0 {
            self.directory(from.0)?.change(vec![gone, new]);
        } else {
            self.directory(to.0)?.change(vec![new]);
            self.directory(from.0)?.change(vec![gone]);
        }
        Ok(())
    }

    pub(crate) fn opened(&mut self, ino: u64) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(crate) fn closed(&mut self, ino: u64) {
        if let Entry::Occupied(mut open) = self.open.entry(ino) {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }

    pub(crate) fn read(&mut self, ino: u64, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        self.powered()?;
        Ok(self.file(ino)?.read(offset, len))
    }

    pub(crate) fn write(&mut self, ino: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.file(ino)?;
        self.spend()?;
        self.file(ino)?.write(offset, data);
        Ok(())
    }

    /// Sets the length of a file. If the file grows, the new bytes are zeros.
    pub(crate) fn resize(&mut self, ino: u64, bytes: u64) -> Result<(), Errno> {
        self.file(ino)?;
        self.spend()?;
        self.file(ino)?.resize(bytes);
        Ok(())
    }

    /// Begins a sync of a file's bytes or of a directory's names, as they are now. Only one sync runs at a
    /// time.
    pub(crate) fn begin_sync(&mut self, ino: u64) -> Result<(), Errno> {
        self.spend()?;
        match self.inodes.get_mut(&ino) {
            Some(Inode::File(file)) => file.begin_sync(),
            Some(Inode::Directory(directory)) => directory.begin_sync(),
            None => return Err(Errno::STALE),
        }
        Ok(())
    }

    /// Ends the sync if the power has stayed on: the bytes or names that the sync covers are then durable.
    pub(crate) fn end_sync(&mut self, ino: u64) -> Result<(), Errno> {
        self.powered()?;
        if self.ignores_syncs {
            return Ok(());
        }
        match self.inodes.get_mut(&ino) {
            Some(Inode::File(file)) => file.end_sync(),
            Some(Inode::Directory(directory)) => directory.end_sync(),
            None => return Err(Errno::STALE),
        }
        if self.names == Names::WithAnySync {
            for directory in self.inodes.values_mut().filter_map(Inode::as_directory) {
                directory.begin_sync();
                directory.end_sync();
            }
        }
        self.forget_unreachable();
        Ok(())
    }

    /// Makes everything on the disk durable, as most systems do half a minute after a write.
    #[cfg(feature = "lab")]
    pub(crate) fn settle(&mut self) {
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::File(file) => {
                    file.begin_sync();
                    file.end_sync();
                }
                Inode::Directory(directory) => {
                    directory.begin_sync();
                    directory.end_sync();
                }
            }
        }
    }

    /// Cuts the power and restores it. The processes with open files must have ended before.
    pub(crate) fn lose_power(&mut self, loss: Loss) -> Lost {
        self.power_left = None;
        self.ignores_syncs = false;
        let mut lost = Lost::default();
        let mut draw = Draw::new(loss);
        for inode in self.inodes.values_mut() {
            lost += match inode {
                Inode::File(file) => file.lose(&mut draw),
                Inode::Directory(directory) => directory.lose(&mut draw),
            };
        }
        self.forget_unreachable();
        lost
    }

    /// Drops the inodes that no name reaches, neither now nor after a loss of power.
    fn forget_unreachable(&mut self) {
        let mut reached: BTreeSet<u64> = self.open.keys().copied().collect();
        let mut ahead = vec![ROOT];
        while let Some(ino) = ahead.pop() {
            reached.insert(ino);
            if let Some(Inode::Directory(directory)) = self.inodes.get(&ino) {
                ahead.extend(directory.named());
            }
        }
        self.inodes.retain(|ino, _| reached.contains(ino));
    }
}
