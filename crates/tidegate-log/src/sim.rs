//! A simulated disk for tests. The simulated disk keeps written and durable bytes apart, and fails in the
//! ways in which a real disk fails.
//!
//! Files have sectors of 512 bytes. A write changes only the cache. A sync makes the sectors of a file
//! durable that the log has written since the file's last sync. A crash keeps the durable sectors, and of
//! the other sectors those that the test chooses. File names behave in the same way, with `sync_names` as
//! their sync. Time is virtual: each write and sync adds its cost. Tests can flip bits, cut files, make
//! syncs fail or hang, and limit the space.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::storage::{Storage, StorageFile};

/// The length of a sector of the simulated disk in bytes. A crash keeps or loses the bytes of a sector
/// together.
pub const SECTOR: usize = 512;

/// A simulated disk with one directory, on which a test can cause crashes and failures. Clones share the
/// disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    locked: bool,
    capacity: Option<u64>,
    fail_syncs_from: Option<u64>,
    fail_writes_from: Option<u64>,
    hang_from: Option<u64>,
    hanging: u64,
    cost: Cost,
    counts: SimCounts,
    now_ns: u64,
    /// The number of changes that the simulated disk has counted since its creation. The simulated crash
    /// comes just before the change with the number `crash_at`.
    changes: u64,
    crash_at: Option<u64>,
    /// The write that the simulated crash interrupted, so that a test can let a part of it reach the disk;
    /// `None` if the crash hit no write.
    crashed: Option<CrashedWrite>,
}

/// A write that a simulated crash interrupted: its file, its offset and its bytes, of which a test may let
/// some reach the disk.
#[derive(Clone)]
struct CrashedWrite {
    inode: usize,
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Default)]
struct Inode {
    cached: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The ranges of the file's bytes that a test has damaged: every read of such a byte fails.
    spoiled: Vec<Range<usize>>,
    /// The sectors of the file without disk space: neither a reservation nor a write has given them any.
    holes: BTreeSet<usize>,
    /// The holes as a crash leaves them: a reservation is durable after the next sync of the file.
    durable_holes: BTreeSet<usize>,
}

/// The cost of the simulated disk's work, in nanoseconds of its virtual time, so that a simulation can
/// imitate slow and fast disks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The virtual time that each sync of a file takes, in nanoseconds.
    pub sync_ns: u64,
    /// The virtual time that each KiB of a write takes, in nanoseconds.
    pub kib_ns: u64,
}

/// The counters of a simulated disk since its creation, so that a test can check how often the log wrote and
/// synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    /// The number of writes to files of the simulated disk. A write of several parts counts as one.
    pub writes: u64,
    /// The total number of bytes that the log has written to files of the simulated disk.
    pub bytes: u64,
    /// The number of syncs that made the content of a file durable.
    pub syncs: u64,
    /// The number of syncs that made changes of file names durable.
    pub name_syncs: u64,
}

impl SimDisk {
    /// Creates an empty simulated disk for a test. The disk has no bound on its space.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of the simulated disk since its creation, for a test to compare.
    #[must_use]
    pub fn counts(&self) -> SimCounts {
        self.state().counts
    }

    /// Returns the simulated disk's virtual time in nanoseconds: the total cost of its writes and syncs so
    /// far.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Sets the greatest number of bytes that all files together may take, to simulate a full disk: beyond
    /// this bound, writes fail. `None` removes the bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Returns the bytes of disk space that all files take together: less than their lengths if the log has
    /// reserved only the fronts of some.
    #[must_use]
    pub fn space(&self) -> u64 {
        let state = self.state();
        let used = state.names.values().map(|&at| state.files[at].space());
        used.sum::<usize>() as u64
    }

    /// Simulates a failing disk: lets this many more syncs of files succeed, and makes all later ones fail.
    /// A failed sync loses the bytes that it should have made durable.
    pub fn fail_syncs_after(&self, more: u64) {
        let mut state = self.state();
        state.fail_syncs_from = Some(state.counts.syncs + more);
    }

    /// Simulates a failing disk: lets this many more writes to files succeed, and makes all later ones fail.
    /// A failed write still writes the first half of its bytes.
    pub fn fail_writes_after(&self, more: u64) {
        let mut state = self.state();
        state.fail_writes_from = Some(state.counts.writes + more);
    }

    /// Cancels the failures that a test planned: from now on, syncs and writes succeed.
    pub fn fail_no_more(&self) {
        let mut state = self.state();
        (state.fail_syncs_from, state.fail_writes_from) = (None, None);
    }

    /// Returns the number of changes of the disk since its creation: writes, syncs, reservations, and
    /// changes of file names. A test can then simulate a crash before each of them.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Simulates the end of the process or of the machine just before the change of the disk with this
    /// number: this change and all later changes fail.
    pub fn crash_at(&self, change: u64) {
        self.state().crash_at = Some(change);
    }

    /// Returns the length in bytes of the write that the simulated crash interrupted; `None` if
    /// [`crash_at`](Self::crash_at) hit no write.
    #[must_use]
    pub fn crashed_write(&self) -> Option<usize> {
        self.state().crashed.as_ref().map(|write| write.bytes.len())
    }

    /// Simulates a torn write: lets the first `bytes` bytes of the write that the crash interrupted reach the
    /// cache. A copy made by [`killed`](Self::killed) keeps the interrupted write, so a test can tear it in
    /// the copy, too.
    pub fn tear(&self, bytes: usize) {
        let mut state = self.state();
        if let Some(write) = state.crashed.take() {
            let torn = &write.bytes[..bytes.min(write.bytes.len())];
            if !torn.is_empty() {
                state.files[write.inode].write(torn, write.at);
            }
        }
    }

    /// Lets this many more syncs of files end, and makes all later ones hang without making anything
    /// durable. The syncs hang until a call of [`go_on`](Self::go_on), or until a further call of this
    /// method permits more syncs.
    pub fn hang_syncs_after(&self, more: u64) {
        let mut state = self.state();
        state.hang_from = Some(state.counts.syncs + more);
        self.shared.changed.notify_all();
    }

    /// Lets all hanging and later syncs of the simulated disk continue, after
    /// [`hang_syncs_after`](Self::hang_syncs_after).
    pub fn go_on(&self) {
        self.state().hang_from = None;
        self.shared.changed.notify_all();
    }

    /// Blocks until a sync of another thread hangs, after [`hang_syncs_after`](Self::hang_syncs_after).
    pub fn wait_until_hanging(&self) {
        let mut state = self.state();
        while state.hanging == 0 || !state.hangs() {
            let woken = self.shared.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the sectors that a crash might lose, by file name and sector number: sectors that were written
    /// and are not durable, and that differ from their durable content.
    #[must_use]
    pub fn unsynced(&self) -> Vec<(String, usize)> {
        let state = self.state();
        let mut all = Vec::new();
        for (name, &at) in &state.names {
            let inode = &state.files[at];
            let differs = |s: &&usize| inode.sector(**s, false) != inode.sector(**s, true);
            all.extend(
                inode
                    .dirty
                    .iter()
                    .filter(differs)
                    .map(|&s| (name.clone(), s)),
            );
        }
        all
    }

    /// Returns a copy of the disk as a crash leaves it. The copy lacks the bytes of sectors that were not
    /// durable, except sectors for which `kept` returns true for the file's name and the sector's number.
    /// The copy lacks file names that were not durable, unless `keep_names` is true.
    #[must_use]
    pub fn crash(&self, keep_names: bool, mut kept: impl FnMut(&str, usize) -> bool) -> Self {
        let state = self.state();
        let names = match keep_names {
            true => &state.names,
            false => &state.durable_names,
        };
        let mut after = State::default();
        for (name, &at) in names {
            let mut inode = state.files[at].clone();
            for sector in std::mem::take(&mut inode.dirty) {
                if kept(name, sector) {
                    inode.persist(sector);
                    match inode.holes.contains(&sector) {
                        true => inode.durable_holes.insert(sector),
                        false => inode.durable_holes.remove(&sector),
                    };
                }
            }
            // The length of a file survives the crash, because a file system keeps the length in its journal.
            // A sector that survives has its space. The space of other sectors survives if a sync covered its
            // reservation.
            inode.holes = std::mem::take(&mut inode.durable_holes);
            inode.durable.resize(inode.cached.len(), 0);
            inode.cached.clone_from(&inode.durable);
            after.names.insert(name.clone(), after.files.len());
            after.files.push(inode);
        }
        after.durable_names = after.names.clone();
        Self::with(after)
    }

    /// Returns a copy of the disk as the sudden end of a process leaves it, while the machine runs on. The
    /// copy has all written bytes, and bytes that were not durable are still not durable.
    #[must_use]
    pub fn killed(&self) -> Self {
        let state = self.state();
        Self::with(State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            crashed: state.crashed.clone(),
            ..State::default()
        })
    }

    /// Returns a copy of the simulated disk with the same content, all of it durable, on which a test can
    /// try a change.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.crash(true, |_, _| true)
    }

    fn with(state: State) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
        }
    }

    /// Returns the bytes of the file with this name, for a test that examines them; none if there is no such
    /// file.
    #[must_use]
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        let inode = state.names.get(name).map(|&at| &state.files[at]);
        inode.map_or_else(Vec::new, |inode| inode.cached.clone())
    }

    /// Durably creates a file with these bytes, or replaces the file, for a test that forges content.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let inode = Inode {
            cached: bytes.clone(),
            durable: bytes,
            dirty: BTreeSet::new(),
            spoiled: Vec::new(),
            holes: BTreeSet::new(),
            durable_holes: BTreeSet::new(),
        };
        let at = state.files.len();
        state.files.push(inode);
        state.names.insert(name.to_owned(), at);
        state.durable_names.insert(name.to_owned(), at);
    }

    /// Durably removes the file with this name, to simulate its loss.
    pub fn unlink(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    /// Durably flips one bit of a file, to simulate damage. Does nothing if the bit lies behind the file's
    /// end.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut bytes = self.content(name);
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
            self.put(name, bytes);
        }
    }

    /// Makes all reads of these bytes of a file fail from now on, to simulate a bad sector.
    pub fn spoil(&self, name: &str, bytes: Range<usize>) {
        let mut state = self.state();
        if let Some(&at) = state.names.get(name) {
            state.files[at].spoiled.push(bytes);
        }
    }

    /// Durably truncates a file to `bytes` bytes, to simulate the loss of its end.
    pub fn cut(&self, name: &str, bytes: usize) {
        let mut content = self.content(name);
        content.truncate(bytes);
        self.put(name, content);
    }
}

impl Inode {
    fn sector(&self, n: usize, durable: bool) -> &[u8] {
        let bytes = if durable { &self.durable } else { &self.cached };
        let end = bytes.len().min((n + 1) * SECTOR);
        &bytes[end.min(n * SECTOR)..end]
    }

    fn persist(&mut self, n: usize) {
        self.durable
            .resize(self.cached.len().max(self.durable.len()), 0);
        let (from, to) = (n * SECTOR, self.cached.len().min((n + 1) * SECTOR));
        if from < to {
            self.durable[from..to].copy_from_slice(&self.cached[from..to]);
        }
    }

    /// Replaces the cached bytes of a sector with its durable bytes, as a read from the disk does after the
    /// system has dropped its cache.
    fn recall(&mut self, n: usize) {
        let len = self.cached.len();
        self.durable.resize(len.max(self.durable.len()), 0);
        let (from, to) = (n * SECTOR, len.min((n + 1) * SECTOR));
        self.cached[from..to].copy_from_slice(&self.durable[from..to]);
    }

    fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[at..end].copy_from_slice(bytes);
        let sectors = at / SECTOR..end.div_ceil(SECTOR);
        self.fill(sectors.clone());
        self.dirty.extend(sectors);
    }

    /// Gives these sectors disk space.
    fn fill(&mut self, sectors: Range<usize>) {
        let filled: Vec<usize> = self.holes.range(sectors).copied().collect();
        for sector in filled {
            self.holes.remove(&sector);
        }
    }

    /// Returns the bytes of disk space that the file lacks in these sectors.
    fn missing(&self, sectors: Range<usize>) -> usize {
        self.holes.range(sectors).count() * SECTOR
    }

    /// Returns the bytes of disk space that the file takes.
    fn space(&self) -> usize {
        self.cached.len().saturating_sub(self.holes.len() * SECTOR)
    }
}

impl State {
    fn hangs(&self) -> bool {
        self.hang_from.is_some_and(|n| self.counts.syncs >= n)
    }

    /// Counts a change of the simulated disk. Fails if the simulated crash comes before this change, because
    /// the disk then takes no more changes.
    fn change(&mut self) -> io::Result<()> {
        let change = self.changes;
        self.changes += 1;
        match self.crash_at {
            Some(at) if change >= at => Err(io::Error::other("simulated crash")),
            _ => Ok(()),
        }
    }

    fn room_for(&self, more: usize) -> io::Result<()> {
        match more > self.left() {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Returns the bytes that are left of the capacity.
    fn left(&self) -> usize {
        let Some(capacity) = self.capacity else {
            return usize::MAX;
        };
        let used: usize = self.names.values().map(|&at| self.files[at].space()).sum();
        (capacity as usize).saturating_sub(used)
    }
}

impl Storage for SimDisk {
    fn lock(&self) -> io::Result<bool> {
        Ok(!std::mem::replace(&mut self.state().locked, true))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let inode = self.state().names.get(name).copied();
        let inode = inode.ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut state = self.state();
        state.change()?;
        let inode = state.files.len();
        state.files.push(Inode::default());
        state.names.insert(name.to_owned(), inode);
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let removed = state.names.remove(name);
        removed
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.counts.name_syncs += 1;
        state.durable_names = state.names.clone();
        Ok(())
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl StorageFile for SimFile {
    fn write_at(&self, parts: &[IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let mut state = self.disk.state();
        let failed = state
            .fail_writes_from
            .is_some_and(|n| state.counts.writes >= n);
        let end = at as usize + bytes.len();
        let inode = &state.files[self.inode];
        let grown = end.saturating_sub(inode.cached.len());
        let filled = inode.missing(at as usize / SECTOR..end.div_ceil(SECTOR));
        state.room_for(grown + filled)?;
        if let Err(e) = state.change() {
            if state.crash_at == Some(state.changes - 1) {
                state.crashed = Some(CrashedWrite {
                    inode: self.inode,
                    at: at as usize,
                    bytes,
                });
            }
            return Err(e);
        }
        state.counts.writes += 1;
        state.counts.bytes += bytes.len() as u64;
        state.now_ns += state.cost.kib_ns * bytes.len() as u64 / 1024;
        if failed {
            bytes.truncate(bytes.len() / 2);
        }
        state.files[self.inode].write(&bytes, at as usize);
        match failed {
            true => Err(io::Error::other("simulated write error")),
            false => Ok(()),
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let inode = &state.files[self.inode];
        let bytes = &inode.cached;
        let from = bytes.len().min(at as usize);
        let to = bytes.len().min(from + into.len());
        let spoiled = |bad: &Range<usize>| bad.start < to && from < bad.end;
        if inode.spoiled.iter().any(spoiled) {
            return Err(io::Error::other("the sector cannot be read"));
        }
        into[..to - from].copy_from_slice(&bytes[from..to]);
        Ok(to - from)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.hanging += 1;
        self.disk.shared.changed.notify_all();
        while state.hangs() {
            let woken = self.disk.shared.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.hanging -= 1;
        state.change()?;
        let failed = state
            .fail_syncs_from
            .is_some_and(|n| state.counts.syncs >= n);
        state.counts.syncs += 1;
        state.now_ns += state.cost.sync_ns;
        let inode = &mut state.files[self.inode];
        let dirty = std::mem::take(&mut inode.dirty);
        if failed {
            // After a failed sync, the simulated system marks the sectors as clean although they are not
            // durable, as Linux does on ext4, XFS and Btrfs. So the next sync does not write them.
            return Err(io::Error::other("simulated sync error"));
        }
        dirty.into_iter().for_each(|sector| inode.persist(sector));
        inode.durable_holes = inode.holes.clone();
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = &mut state.files[self.inode];
        for sector in 0..inode.cached.len().div_ceil(SECTOR) {
            if !inode.dirty.contains(&sector) {
                inode.recall(sector);
            }
        }
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = &state.files[self.inode];
        let grown = (bytes as usize).saturating_sub(inode.cached.len());
        let filled = inode.missing(0..(bytes as usize).div_ceil(SECTOR));
        state.room_for(grown + filled)?;
        state.change()?;
        let inode = &mut state.files[self.inode];
        inode.cached.resize(bytes as usize, 0);
        inode.durable.resize(bytes as usize, 0);
        inode.holes.clear();
        Ok(())
    }

    fn reserve_front(&self, bytes: u64, front: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let inode = &state.files[self.inode];
        let had = inode.cached.len();
        let bytes = had.max(bytes as usize);
        let front = 0..(front as usize).min(bytes).div_ceil(SECTOR);
        let holes = had.div_ceil(SECTOR)..bytes.div_ceil(SECTOR);
        let new = front.end.saturating_sub(holes.start) * SECTOR;
        let room = state.room_for(inode.missing(front.clone()) + new);
        state.change()?;
        if let Err(full) = room {
            // The disk takes the space that is left and then fails, as ext4 does.
            let left = state.left() / SECTOR;
            let inode = &mut state.files[self.inode];
            let first: Vec<usize> = inode.holes.range(front).take(left).copied().collect();
            for sector in first {
                inode.holes.remove(&sector);
            }
            return Err(full);
        }
        let inode = &mut state.files[self.inode];
        inode.cached.resize(bytes, 0);
        inode.durable.resize(bytes, 0);
        inode.holes.extend(holes.clone());
        inode.durable_holes.extend(holes);
        inode.fill(front);
        Ok(())
    }

    fn give_back(&self, bytes: Range<u64>) -> io::Result<()> {
        let mut state = self.disk.state();
        state.change()?;
        let inode = &mut state.files[self.inode];
        let end = inode.cached.len().min(bytes.end as usize) / SECTOR;
        let sectors = (bytes.start as usize).div_ceil(SECTOR)..end;
        if !sectors.is_empty() {
            inode.cached[sectors.start * SECTOR..end * SECTOR].fill(0);
            // Until the next sync, a crash brings the bytes and their space back.
            inode.dirty.extend(sectors.clone());
            inode.holes.extend(sectors);
        }
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.inode].cached.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::is_full;

    #[test]
    fn space_that_is_reserved_in_steps_is_lost_in_a_crash_before_the_next_sync() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        let sector = SECTOR as u64;
        file.reserve_front(8 * sector, 2 * sector).unwrap();
        file.sync().unwrap();
        disk.sync_names().unwrap();
        assert_eq!(
            (disk.space(), file.bytes().unwrap()),
            (2 * sector, 8 * sector)
        );
        disk.set_capacity(Some(3 * sector));
        assert!(file.reserve_front(0, 4 * sector).is_err());
        assert_eq!(disk.space(), 3 * sector, "the part that fits is taken");
        file.give_back(2 * sector..4 * sector).unwrap();
        assert_eq!(disk.space(), 2 * sector);
        file.reserve_front(0, 3 * sector).unwrap();
        file.write_at(&[IoSlice::new(&[1; SECTOR])], 2 * sector)
            .unwrap();
        let behind = file.write_at(&[IoSlice::new(&[1; SECTOR])], 4 * sector);
        assert!(is_full(&behind.unwrap_err()));
        assert_eq!(disk.crash(true, |_, _| false).space(), 2 * sector);
        assert_eq!(disk.crash(true, |_, _| true).space(), 3 * sector);
        file.sync().unwrap();
        assert_eq!(disk.crash(true, |_, _| false).space(), 3 * sector);
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_what_is_chosen() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        file.reserve(4 * SECTOR as u64).unwrap();
        disk.sync_names().unwrap();
        file.write_at(&[IoSlice::new(&[1; SECTOR])], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[IoSlice::new(&[2; 2 * SECTOR])], SECTOR as u64)
            .unwrap();
        assert_eq!(disk.unsynced(), [("a".to_owned(), 1), ("a".to_owned(), 2)]);
        let after = disk.crash(false, |_, sector| sector == 2).content("a");
        let firsts: Vec<_> = after.chunks(SECTOR).map(|s| s[0]).collect();
        assert_eq!(firsts, [1, 0, 2, 0]);
    }

    #[test]
    fn names_are_lost_too_and_a_failed_sync_loses_what_it_was_for() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        assert!(disk.crash(false, |_, _| true).list().unwrap().is_empty());
        disk.sync_names().unwrap();
        file.write_at(&[IoSlice::new(b"x")], 0).unwrap();
        disk.fail_syncs_after(0);
        assert!(file.sync().is_err());
        assert_eq!(disk.crash(false, |_, _| true).content("a"), [0]);
    }

    #[test]
    fn a_crash_at_a_change_tears_that_write_and_fails_all_behind_it() {
        let disk = SimDisk::new();
        let file = disk.create("a").unwrap();
        disk.sync_names().unwrap();
        file.write_at(&[IoSlice::new(b"one")], 0).unwrap();
        assert_eq!(disk.changes(), 3);
        disk.crash_at(3);
        assert!(file.write_at(&[IoSlice::new(b"two")], 3).is_err());
        assert!(file.sync().is_err() && disk.sync_names().is_err());
        assert_eq!(disk.crashed_write(), Some(3));
        for torn in 0..=3 {
            let after = disk.killed();
            after.tear(torn);
            assert_eq!(after.content("a"), &b"onetwo"[..3 + torn]);
        }
        assert_eq!(disk.crash(true, |_, _| true).content("a"), b"one");
    }
}
