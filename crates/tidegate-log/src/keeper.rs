//! The keeper: a thread that allocates segments ahead and releases old ones. Only the keeper writes the
//! catalog of an open log. The keeper has a thread of its own because its calls block: neither appends nor
//! syncs ever wait for an allocation.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::catalog::{CATALOG, CATALOG_NEW, Catalog};
use crate::growth::Growth;
use crate::segment::{FIRST_BATCH, PAGE, name, parse_name};
use crate::shared::{Errand, Shared, Spare, lock};
use crate::storage::{Storage, StorageFile, is_full};

/// The keeper's state: the catalog, and the segments to allocate, to recycle and to release. See the
/// [module](self).
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Catalog,
    /// The number that the keeper gives to the next segment that it allocates.
    pub(crate) next: u64,
    /// The numbers of released segments that still have files. The keeper renames these files for new
    /// segments, or removes them.
    pub(crate) recyclable: VecDeque<u64>,
    pub(crate) recycled_max: usize,
    pub(crate) spares: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) growth: Growth,
    /// The bytes at the front of each segment that the keeper should reserve. If they are more than
    /// `Shared::reserved`, the disk had no space for them yet.
    pub(crate) reserve: u64,
    /// The segments that are not reserved whole, with their numbers and files: the present one and the
    /// spares, and earlier ones until the next step.
    pub(crate) growing: Vec<(u64, Arc<dyn StorageFile>)>,
    /// The number of the segment in which the opening found a torn end. The bytes behind that end show a
    /// later opening that the end is torn, so the keeper does not clear them.
    pub(crate) torn: Option<u64>,
    pub(crate) seed: u64,
    /// The numbers of released segments that the catalog on the disk still lists, because the disk had no
    /// space for a new catalog. The keeper removes them from the catalog in a later attempt.
    pub(crate) deferred: BTreeSet<u64>,
    /// True while a caller waits for one spare segment more than usual. While the disk has no space for that
    /// segment, the log reports a full disk.
    pub(crate) one_more: bool,
    /// The allocated file of the next segment, kept while the disk has no space for a catalog that lists the
    /// segment. The keeper uses the file in its next attempt; if it deleted the file, another program could
    /// take the space.
    pub(crate) unlisted: Option<Blank>,
}

/// The file of a new segment that no catalog lists yet.
pub(crate) struct Blank {
    file: Arc<dyn StorageFile>,
    /// True if a released segment had the file before.
    recycled: bool,
}

/// The interval between two removals of surplus files of released segments. The keeper removes only one file
/// at a time, because a removal can delay a sync.
const REMOVE_EVERY: Duration = Duration::from_millis(250);

/// The name of the reserve file. On a full disk the keeper deletes this file to get space for a catalog
/// without the released segments.
pub(crate) const RESERVE: &str = "reserve";
const RESERVE_BYTES: u64 = 64 << 10;
/// The least length of the reserve file, in bytes: room for a short catalog. If the disk lacks even this
/// space, the keeper makes no reserve file.
const RESERVE_BYTES_MIN: u64 = PAGE;
/// The number of catalogs of the present length for which the reserve file has room. The number is above 1,
/// because the next catalog may be longer.
const RESERVED_CATALOGS: u64 = 2;

impl Keeper {
    /// Runs the keeper's thread until the log closes or fails: carries out the requests of other threads,
    /// and removes surplus files between these errands.
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

    /// Waits for the next errand, a request of another thread to allocate or release segments. If the caller
    /// gives a time `patience`, waits at most for that time and then returns an empty errand, so that the
    /// keeper can remove a surplus file.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Errand {
        self.shared.errands.next(patience)
    }

    /// Carries out an errand, or, if the errand is empty, removes one surplus file.
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

    /// Removes the file of one released segment if more than `recycled_max` such files exist. The keeper
    /// removes only one file at a time, because on file systems that discard freed blocks at once, each
    /// removal delays the next sync.
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
        // A release drops the request for one more spare segment, because the released files may be room
        // enough; a caller that still lacks room asks again. If the request stayed, the log would report a
        // full disk although a spare exists.
        self.one_more = errand.release.is_empty() && (self.one_more || errand.one_more);
        // A request to reserve more stays, because a thread may block until the keeper has carried it out.
        self.reserve = self.reserve.max(errand.reserve);
        self.top_up()
    }

    /// Allocates the first spare segments of an opening. If the disk has no space for one of the reserved
    /// length, reserves less of it, so that a short log keeps its segment ahead in a restart on a full disk.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.top_up()?;
        let wanted = self.shared.allocated().reserved;
        let mut reserved = wanted;
        while lock(&self.shared.spares).is_empty()
            && !self.growth.is_whole(wanted)
            && reserved > self.growth.before(reserved)
        {
            reserved = self.growth.before(reserved);
            self.shared.reserved.store(reserved, Ordering::Release);
            self.top_up()?;
        }
        if lock(&self.shared.spares).is_empty() {
            self.shared.reserved.store(wanted, Ordering::Release);
        }
        Ok(())
    }

    /// Allocates the missing spare segments, and reserves more of the segments if a caller has asked for it.
    /// A full disk is no error: the keeper sets `disk_full` if a segment is missing, and `short` if the log
    /// lacks only the next step of the reservation, so that the appender can tell its callers. The keeper
    /// clears both in a later call that finds space.
    pub(crate) fn top_up(&mut self) -> io::Result<()> {
        let wanted = self.spares + usize::from(self.one_more);
        let mut done = Ok(());
        while done.is_ok() && lock(&self.shared.spares).len() < wanted {
            done = self.allocate();
        }
        let mut full = finds_no_space(done)?;
        let mut short = full;
        if !full {
            self.one_more = false;
            short = finds_no_space(self.grow())?;
            full = short && !self.growth.suffices(self.shared.allocated().reserved);
        }
        self.shared.short.store(short, Ordering::Release);
        self.shared.disk_full.store(full, Ordering::Release);
        Ok(())
    }

    /// Reserves as much of each segment as a caller has asked for, step by step, and tells the appender of
    /// each step only then. The keeper leaves the sync to the log thread: the sync that makes a batch durable
    /// also makes the space durable that the batch lies in, and a second thread that syncs the file could
    /// take an error from the log thread.
    fn grow(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let wanted = self.reserve.min(self.segment_bytes);
        loop {
            let reserved = shared.allocated().reserved;
            if wanted <= reserved {
                return Ok(());
            }
            let next = self.growth.after(reserved).min(wanted);
            let is_sealed = |n: u64| shared.segment_numbered(n).is_some_and(|s| s.is_sealed());
            self.growing.retain(|&(n, _)| !is_sealed(n));
            self.reserve_part(&(reserved..next))?;
            if next == self.segment_bytes {
                self.growing.clear();
            }
            shared.reserved.store(next, Ordering::Release);
        }
    }

    /// Reserves this part of each segment that grows. If the disk has space for only some of it, gives that
    /// space back, because checkpoints and other files can make better use of it. If the files of released
    /// segments have the missing space, first removes some of them.
    fn reserve_part(&mut self, part: &Range<u64>) -> io::Result<()> {
        loop {
            let mut files = self.growing.iter();
            // The segments have their whole length already.
            let full = match files.try_for_each(|(_, file)| file.reserve_front(0, part.end)) {
                Err(e) if is_full(&e) => e,
                done => return done,
            };
            for (number, file) in &self.growing {
                if self.torn != Some(*number) {
                    // The log needs no space there, so a failure to give it back is no error. If the log
                    // thread seals the segment meanwhile, its index may be lost, which only costs the next
                    // opening time.
                    let _ = file.give_back(part.clone());
                }
            }
            if self.recyclable.len() < self.growing.len() {
                return Err(full);
            }
            let Some(number) = self.recyclable.pop_back() else {
                return Err(full);
            };
            self.shared.storage.remove(&name(number))?;
        }
    }

    fn allocate(&mut self) -> io::Result<()> {
        let segment = self.next;
        let storage = Arc::clone(&self.shared.storage);
        let reserved = self.shared.allocated().reserved;
        let blank = match self.unlisted.take() {
            Some(blank) => blank,
            None => self.blank(segment, reserved)?,
        };
        if reserved < self.segment_bytes {
            // The reservation may have grown since the keeper made an unlisted file.
            if let Err(e) = blank.file.reserve_front(0, reserved) {
                self.unlisted = Some(blank);
                return Err(e);
            }
            self.growing.push((segment, Arc::clone(&blank.file)));
        }
        let salt = salt(self.seed, segment);
        self.catalog.add(segment, salt);
        if let Err(e) = force_catalog(&*storage, &self.catalog) {
            self.catalog.remove(segment);
            self.growing.retain(|&(n, _)| n != segment);
            self.unlisted = Some(blank);
            return Err(e);
        }
        keep_reserve(&*storage, &self.catalog)?;
        self.next += 1;
        lock(&self.shared.spares).push_back(Spare {
            segment,
            salt,
            bytes: self.segment_bytes,
            file: blank.file,
            recycled: blank.recycled,
        });
        self.shared.ready.store(segment, Ordering::Release);
        Ok(())
    }

    /// Makes the file of a new segment that no catalog lists yet, from the file of a released segment if
    /// there is one. The file is durable when this function returns. It begins with zeros, so that an
    /// opening takes it for a spare segment.
    fn blank(&mut self, segment: u64, reserved: u64) -> io::Result<Blank> {
        let (storage, wanted) = (Arc::clone(&self.shared.storage), name(segment));
        while let Some(&old) = self.recyclable.front() {
            let file = storage.open(&name(old))?;
            match self.lengthen(&*file, reserved) {
                Ok(()) => {
                    // The file of a released segment still has a segment header and a first batch header from
                    // its earlier use. The keeper writes zeros over both, so that the log does not read them.
                    let blank = vec![0; (FIRST_BATCH + PAGE) as usize];
                    file.write_at(&[IoSlice::new(&blank)], 0)?;
                    file.sync()?;
                    storage.rename(&name(old), &wanted)?;
                    self.recyclable.pop_front();
                    count(&self.shared.counters.recycled);
                    let recycled = true;
                    return Ok(Blank { file, recycled });
                }
                // A crash left this file shorter than a segment, and the disk has no space to extend it. The
                // keeper deletes the short file and tries the next one, because that may have its whole
                // length.
                Err(e) if is_full(&e) => {
                    storage.remove(&name(old))?;
                    self.recyclable.pop_front();
                }
                Err(e) => return Err(e),
            }
        }
        let file = storage.create(&wanted)?;
        if let Err(e) = self.lengthen(&*file, reserved).and_then(|()| file.sync()) {
            storage.remove(&wanted)?;
            return Err(e);
        }
        count(&self.shared.counters.allocated);
        let recycled = false;
        Ok(Blank { file, recycled })
    }

    /// Gives a file that no catalog lists the length of a segment, and reserves disk space for its first
    /// `reserved` bytes.
    fn lengthen(&self, file: &dyn StorageFile, reserved: u64) -> io::Result<()> {
        // The file of a released segment may be longer than a segment, because it holds an index.
        match reserved < self.segment_bytes && file.bytes()? <= self.segment_bytes {
            true => file.reserve_front(self.segment_bytes, reserved),
            false => file.reserve(self.segment_bytes),
        }
    }

    /// Releases segments: takes them first out of the table, so that no new reader finds them, and then
    /// durably out of the catalog. Only afterwards may the keeper delete their files or use the files again,
    /// because an opening counts a listed segment without a file as lost.
    pub(crate) fn release(&mut self, numbers: &[u64]) -> io::Result<()> {
        // The filter drops repeated requests: a caller may release a segment again before the keeper has
        // taken the segment out of the table.
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
            // The disk has no space for the new catalog, so the keeper deletes the unlisted file of the next
            // segment. The next segment gets the file of a released segment once the new catalog is written.
            storage.remove(&name(self.next))?;
            written = force_catalog(&*storage, &catalog);
        }
        match written {
            Ok(()) => self.catalog = catalog,
            // The disk is still full. The catalog on the disk lists the released segments, and their files
            // exist, so a start of the log finds no damage. The keeper tries again with its next errand.
            Err(e) if is_full(&e) => return Ok(()),
            Err(e) => return Err(e),
        }
        self.growing.retain(|(n, _)| !self.deferred.contains(n));
        self.recyclable.extend(std::mem::take(&mut self.deferred));
        keep_reserve(&*storage, &self.catalog)
    }
}

/// Returns whether the attempt failed because the disk has no space; another error stays an error.
fn finds_no_space(attempt: io::Result<()>) -> io::Result<bool> {
    match attempt {
        Ok(()) => Ok(false),
        Err(e) if is_full(&e) => Ok(true),
        Err(e) => Err(e),
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Writes the catalog as [`write_catalog`] does. On a full disk, first deletes the reserve file to get space
/// for the catalog.
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

/// Extends the reserve file to the length that the next catalog may need. If the disk lacks the space, tries
/// half of the length, and half again, down to the least length.
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

/// Extends the reserve file from `had` bytes to `bytes` bytes, to keep that space for a later catalog.
/// Returns whether the disk had the space.
fn make_reserve(storage: &dyn Storage, had: u64, bytes: u64) -> io::Result<bool> {
    let made = match had {
        0 => storage.create(RESERVE),
        _ => storage.open(RESERVE),
    };
    let grown = made.and_then(|file| file.reserve(bytes));
    match (grown, had) {
        (Ok(()), _) => Ok(true),
        (Err(e), _) if !is_full(&e) => Err(e),
        // The attempt to make a reserve may have taken space before the disk was full. The keeper removes the
        // file, because other files can make better use of that space.
        (Err(_), 0) => match storage.remove(RESERVE) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(false),
        },
        (Err(_), had) => storage.open(RESERVE)?.reserve(had).map(|()| false),
    }
}

/// Returns the salt of a segment, which goes into the segment's checksums: the seed and the segment's
/// number, mixed by splitmix64 so that salts look random.
fn salt(seed: u64, segment: u64) -> u64 {
    let mut z = seed.wrapping_add(segment.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Replaces the catalog file durably: writes a new file, syncs it and renames it, so that a crash leaves the
/// old catalog or the new one.
pub(crate) fn write_catalog(storage: &dyn Storage, catalog: &Catalog) -> io::Result<()> {
    let bytes = catalog.encode();
    let file = storage.create(CATALOG_NEW)?;
    file.write_at(&[IoSlice::new(&bytes)], 0)?;
    file.sync()?;
    storage.rename(CATALOG_NEW, CATALOG)?;
    storage.sync_names()
}

/// Removes the segment files that a crash left behind and that the catalog does not list. Keeps at most
/// `recycled_max` of these files for new segments, which saves allocations, and returns their numbers.
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
        // A file with a number of `next` or higher would be in the way of the new segment with that number,
        // so the keeper keeps only files with lower numbers.
        if number < next && recyclable.len() < recycled_max {
            recyclable.push_back(number);
        } else {
            storage.remove(&file)?;
        }
    }
    Ok(recyclable)
}
