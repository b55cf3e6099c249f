//! The keeper: allocates segments ahead, and releases old ones. Only the keeper writes the catalog. It
//! blocks, and has a thread of its own, so that neither appends nor syncs ever wait for an allocation.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::catalog::{CATALOG, CATALOG_NEW, Catalog};
use crate::segment::{FIRST_BATCH, PAGE, name, parse_name};
use crate::shared::{Errand, Shared, Spare, lock};
use crate::storage::{Storage, StorageFile, is_full};

/// The keeper's state. See the [module](self).
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Catalog,
    /// The number of the next segment to allocate.
    pub(crate) next: u64,
    /// Files of released segments, by number.
    pub(crate) recyclable: VecDeque<u64>,
    pub(crate) recycled_max: usize,
    pub(crate) spares: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) seed: u64,
    /// Segments that are released but still in the catalog, because there is no space to write another one.
    pub(crate) deferred: BTreeSet<u64>,
    /// A caller needs one spare more than usual. Until this spare is there, or a segment is released, the
    /// disk counts as full.
    pub(crate) one_more: bool,
    /// The file of the next segment. No catalog lists it, because the disk had no space for another catalog.
    /// The keeper holds the file, because its space could be lost.
    pub(crate) unlisted: Option<Arc<dyn StorageFile>>,
}

/// The interval at which the keeper removes surplus files.
const REMOVE_EVERY: Duration = Duration::from_millis(250);

/// A reserve file: the keeper gives up its space to write a catalog that releases segments.
pub(crate) const RESERVE: &str = "reserve";
const RESERVE_BYTES: u64 = 64 << 10;
/// The least bytes of a reserve: the keeper makes no smaller one, even on a full disk.
const RESERVE_BYTES_MIN: u64 = PAGE;
/// The number of catalogs for which the reserve has room: the next catalog may be a page longer.
const RESERVED_CATALOGS: u64 = 2;

impl Keeper {
    /// Carries out errands, on a thread of its own, until the log closes or fails.
    pub(crate) fn run(mut self) {
        loop {
            let surplus = self.recyclable.len() > self.recycled_max;
            let errand = self.next(surplus.then_some(REMOVE_EVERY));
            if errand.end || self.shared.failure().is_some() {
                return;
            }
            self.step(errand);
        }
    }

    /// Waits for an errand, for at most `patience` if given; returns an empty errand if there was none.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Errand {
        self.shared.errands.next(patience)
    }

    /// Carries out an errand.
    pub(crate) fn step(&mut self, errand: Errand) {
        let idle = !errand.top_up && errand.release.is_empty();
        let done = match idle {
            true => self.remove_one(),
            false => self.handle(errand),
        };
        if let Err(error) = done {
            self.shared.fail("keeping segments", error);
        }
        self.shared.wake();
    }

    /// Removes one surplus file. Only one at a time: on file systems that discard freed
    /// blocks on the disk at once, each removal delays the next sync.
    fn remove_one(&mut self) -> io::Result<()> {
        match self.recyclable.len() > self.recycled_max {
            true => match self.recyclable.pop_back() {
                Some(number) => self.shared.storage.remove(&name(number)),
                None => Ok(()),
            },
            false => Ok(()),
        }
    }

    fn handle(&mut self, errand: Errand) -> io::Result<()> {
        self.release(&errand.release)?;
        // Released segments may be room enough: a caller that still lacks room asks again. A request that
        // stayed would let the disk count as full although a spare is there.
        self.one_more = errand.release.is_empty() && (self.one_more || errand.one_more);
        self.top_up()
    }

    /// Allocates the missing segments. No space is not an error but a state, which ends when there is space.
    pub(crate) fn top_up(&mut self) -> io::Result<()> {
        let wanted = self.spares + usize::from(self.one_more);
        while lock(&self.shared.spares).len() < wanted {
            match self.allocate() {
                Ok(()) => {}
                Err(e) if is_full(&e) => {
                    self.shared.disk_full.store(true, Ordering::Release);
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        self.one_more = false;
        self.shared.disk_full.store(false, Ordering::Release);
        Ok(())
    }

    fn allocate(&mut self) -> io::Result<()> {
        let segment = self.next;
        let storage = Arc::clone(&self.shared.storage);
        let file = match self.unlisted.take() {
            Some(file) => file,
            None => self.blank(segment)?,
        };
        let salt = salt(self.seed, segment);
        self.catalog.add(segment, salt);
        if let Err(e) = force_catalog(&*storage, &self.catalog) {
            self.catalog.remove(segment);
            self.unlisted = Some(file);
            return Err(e);
        }
        keep_reserve(&*storage, &self.catalog)?;
        self.next += 1;
        lock(&self.shared.spares).push_back(Spare {
            segment,
            salt,
            bytes: self.segment_bytes,
            file,
        });
        self.shared.ready.store(segment, Ordering::Release);
        Ok(())
    }

    /// Makes the file of a segment that is in no catalog yet: durable, and blank at the
    /// places the log reads first.
    fn blank(&mut self, segment: u64) -> io::Result<Arc<dyn StorageFile>> {
        let (storage, wanted) = (Arc::clone(&self.shared.storage), name(segment));
        while let Some(&old) = self.recyclable.front() {
            let file = storage.open(&name(old))?;
            match file.reserve(self.segment_bytes) {
                Ok(()) => {
                    // Blanks the segment's header and the place of the first batch's header:
                    // the log must not read those of an earlier use.
                    let blank = vec![0; (FIRST_BATCH + PAGE) as usize];
                    file.write_at(&[IoSlice::new(&blank)], 0)?;
                    file.sync()?;
                    storage.rename(&name(old), &wanted)?;
                    self.recyclable.pop_front();
                    count(&self.shared.counters.recycled);
                    return Ok(file);
                }
                // A crash cut this file short, and the disk has no space for the rest. The files behind it
                // may be whole.
                Err(e) if is_full(&e) => {
                    storage.remove(&name(old))?;
                    self.recyclable.pop_front();
                }
                Err(e) => return Err(e),
            }
        }
        let file = storage.create(&wanted)?;
        if let Err(e) = file.reserve(self.segment_bytes).and_then(|()| file.sync()) {
            storage.remove(&wanted)?;
            return Err(e);
        }
        count(&self.shared.counters.allocated);
        Ok(file)
    }

    /// Releases segments: first out of the table, so that no new reader finds them, then
    /// durably out of the catalog. Only then the keeper uses their files again or removes them.
    pub(crate) fn release(&mut self, numbers: &[u64]) -> io::Result<()> {
        // A caller may release a segment again before the keeper has taken it out of the table.
        let there = |n: &&u64| self.catalog.segments().iter().any(|&(s, _)| s == **n);
        let numbers: Vec<u64> = numbers.iter().filter(there).copied().collect();
        self.deferred.extend(numbers);
        if self.deferred.is_empty() {
            return Ok(());
        }
        {
            let segments = &self.shared.segments;
            let mut segments = segments.write().unwrap_or_else(PoisonError::into_inner);
            segments.retain(|_, s| !self.deferred.contains(&s.header.segment));
        }
        let mut catalog = self.catalog.clone();
        self.deferred.iter().for_each(|&n| catalog.remove(n));
        let storage = Arc::clone(&self.shared.storage);
        let mut written = force_catalog(&*storage, &catalog);
        if written.as_ref().is_err_and(is_full) && self.unlisted.take().is_some() {
            // A released segment's file takes the place of the removed file once the keeper has written the
            // catalog.
            storage.remove(&name(self.next))?;
            written = force_catalog(&*storage, &catalog);
        }
        match written {
            Ok(()) => self.catalog = catalog,
            // The old catalog still names the segments, and their files exist: the next errand tries again.
            Err(e) if is_full(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
        self.recyclable.extend(std::mem::take(&mut self.deferred));
        keep_reserve(&*storage, &self.catalog)
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Writes the catalog like [`write_catalog`]; gives up the reserve if there is no space.
pub(crate) fn force_catalog(storage: &dyn Storage, catalog: &Catalog) -> io::Result<()> {
    match write_catalog(storage, catalog) {
        Err(e) if is_full(&e) => {}
        done => return done,
    }
    match storage.remove(RESERVE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => write_catalog(storage, catalog),
    }
}

/// Makes the reserve as large as the next catalog may need, or as the space allows.
pub(crate) fn keep_reserve(storage: &dyn Storage, catalog: &Catalog) -> io::Result<()> {
    let had = match storage.open(RESERVE) {
        Ok(file) => file.bytes()?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(e),
    };
    let mut bytes = RESERVE_BYTES.max(RESERVED_CATALOGS * catalog.encoded_bytes());
    while bytes > had && bytes >= RESERVE_BYTES_MIN && !make_reserve(storage, had, bytes)? {
        bytes /= 2;
    }
    Ok(())
}

/// Makes a reserve of `had` bytes larger. Returns whether there was space for that.
fn make_reserve(storage: &dyn Storage, had: u64, bytes: u64) -> io::Result<bool> {
    let made = match had {
        0 => storage.create(RESERVE),
        _ => storage.open(RESERVE),
    };
    let grown = made.and_then(|file| file.reserve(bytes));
    match (grown, had) {
        (Ok(()), _) => Ok(true),
        (Err(e), _) if !is_full(&e) => Err(e),
        // Other files can make better use of the space that this attempt got before the disk was full.
        (Err(_), 0) => match storage.remove(RESERVE) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(false),
        },
        (Err(_), had) => storage.open(RESERVE)?.reserve(had).map(|()| false),
    }
}

/// Returns the salt of a segment: the seed and the segment's number, well mixed (splitmix64).
fn salt(seed: u64, segment: u64) -> u64 {
    let mut z = seed.wrapping_add(segment.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Puts this catalog in place of the one before, durably.
pub(crate) fn write_catalog(storage: &dyn Storage, catalog: &Catalog) -> io::Result<()> {
    let bytes = catalog.encode();
    let file = storage.create(CATALOG_NEW)?;
    file.write_at(&[IoSlice::new(&bytes)], 0)?;
    file.sync()?;
    storage.rename(CATALOG_NEW, CATALOG)?;
    storage.sync_names()
}

/// Removes the leftovers of a crash: files of segments that are not in the catalog.
/// Returns those that can be used again.
pub(crate) fn tidy(
    storage: &dyn Storage,
    catalog: &Catalog,
    next: u64,
    recycled_max: usize,
) -> io::Result<VecDeque<u64>> {
    let mut recyclable = VecDeque::new();
    for file in storage.list()? {
        let Some(number) = parse_name(&file) else {
            continue;
        };
        if catalog.segments().iter().any(|&(s, _)| s == number) {
            continue;
        }
        // A later segment with this number will get a new file.
        if number < next && recyclable.len() < recycled_max {
            recyclable.push_back(number);
        } else {
            storage.remove(&file)?;
        }
    }
    Ok(recyclable)
}
