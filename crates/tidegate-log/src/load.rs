//! Reads a log's directory for an opening, an inspection or a repair: the catalog, the state of each
//! segment's file, and the records. Writes nothing.
//!
//! If the trailer and the index of a sealed segment are intact, the module reads only these two, to save
//! time. The module reads any other segment from end to end.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::BATCH_MAGIC;
use crate::catalog::{CATALOG, Catalog, CatalogError};
use crate::index::{RecordInfo, TRAILER, Trailer};
use crate::record::Seed;
use crate::recovery::{Scanned, SegmentBytes, Verdict};
use crate::segment::{FIRST_BATCH, HeaderError, SEGMENT_HEADER, SegmentHeader, name, parse_name};
use crate::storage::{Storage, StorageFile, read_all};
use crate::wire::{ALIGN, u32_at, u64_at};
use crate::{Lsn, OpenError};

/// The damage that an opening or an inspection found in a log. A damaged log does not open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// True if the catalog is gone or unreadable, so that missing segments may go unnoticed.
    pub catalog: bool,
    /// The damaged segments of the log, in the order of their numbers, with the lost positions as far as
    /// they are known.
    pub segments: Vec<SegmentDamage>,
}

/// The damage that an opening or an inspection found in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDamage {
    /// The number of the segment.
    pub segment: u64,
    /// The part of the segment that is damaged.
    pub what: DamageKind,
    /// The ranges of log positions in the segment that cannot be read; empty if they are not known. Each
    /// range covers one or more whole records and the bytes around them.
    pub lost: Vec<Range<Lsn>>,
}

/// The kinds of damage to a segment, by the part that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// The segment's file is gone.
    Missing,
    /// The header of the segment, in the first page of its file, is unreadable.
    Header,
    /// Some durable batches of the segment are unreadable.
    Batches,
    /// The segment's file is shorter than at its creation: durable batches may have stood in the missing
    /// part.
    Shortened,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.catalog {
            f.write_str("the catalog cannot be read")?;
        }
        for (n, damage) in self.segments.iter().enumerate() {
            if n > 0 || self.catalog {
                f.write_str("; ")?;
            }
            let what = match damage.what {
                DamageKind::Missing => "is missing",
                DamageKind::Header => "has an unreadable header",
                DamageKind::Batches => "has unreadable batches",
                DamageKind::Shortened => "is shorter than at its creation",
            };
            write!(f, "segment {} {what}", damage.segment)?;
            for lost in &damage.lost {
                write!(f, ", lost {}..{}", lost.start, lost.end)?;
            }
        }
        Ok(())
    }
}

/// A segment that the catalog lists, with the state of its file, by which an opening or a repair decides how
/// to treat the segment.
pub(crate) struct Found {
    pub(crate) segment: u64,
    pub(crate) salt: u64,
    pub(crate) state: State,
}

/// The state of a segment's file, as its header shows it.
pub(crate) enum State {
    Missing,
    /// The file belongs to a spare segment: the log has allocated it, and never wrote to it.
    Spare,
    BadHeader(Arc<dyn StorageFile>),
    Used(SegmentHeader, Arc<dyn StorageFile>),
}

/// The catalog of a log and the segments that the catalog lists, as a look at the log's directory found
/// them.
pub(crate) struct Files {
    pub(crate) catalog: Catalog,
    pub(crate) found: Vec<Found>,
    /// True if the catalog cannot be read. `look` then rebuilds `catalog` from the names and headers of the
    /// segments' files.
    pub(crate) rebuilt: bool,
}

impl Files {
    /// Returns the number of spare segments, to which the log never wrote, for the report of an inspection.
    pub(crate) fn spares(&self) -> usize {
        let spare = |f: &&Found| matches!(f.state, State::Spare);
        self.found.iter().filter(spare).count()
    }
}

/// Reads the catalog of a log and the header of every segment, with which an opening, an inspection or a
/// repair begins. Returns `None` if the directory has no log yet.
pub(crate) fn look(storage: &dyn Storage) -> Result<Option<Files>, OpenError> {
    let names = storage
        .list()
        .map_err(OpenError::io("listing the log's directory"))?;
    let mut segments: Vec<u64> = names.iter().filter_map(|n| parse_name(n)).collect();
    let read = match names.iter().any(|n| n == CATALOG) {
        true => read_catalog(storage)?,
        false if segments.is_empty() => return Ok(None),
        false => None,
    };
    let rebuilt = read.is_none();
    let catalog = match read {
        Some(catalog) => catalog,
        None => {
            segments.sort_unstable();
            Catalog::new(0, segments.into_iter().map(|s| (s, 0)).collect())
        }
    };
    let mut found = Vec::new();
    for &(segment, salt) in catalog.segments() {
        let state = look_at(storage, segment)?;
        let salt = match &state {
            State::Used(header, _) if rebuilt => header.salt,
            _ => salt,
        };
        found.push(Found {
            segment,
            salt,
            state,
        });
    }
    // The log uses its segments in order, so spares come last. So a file without a header before a used
    // segment is no spare segment: the file has lost its header.
    let last = found.iter().rposition(|f| !matches!(f.state, State::Spare));
    for f in &mut found[..last.unwrap_or(0)] {
        if let State::Spare = f.state {
            let file = storage
                .open(&name(f.segment))
                .map_err(OpenError::io("opening a segment"))?;
            f.state = State::BadHeader(file);
        }
    }
    Ok(Some(Files {
        catalog,
        found,
        rebuilt,
    }))
}

fn read_catalog(storage: &dyn Storage) -> Result<Option<Catalog>, OpenError> {
    let file = storage
        .open(CATALOG)
        .map_err(OpenError::io("opening the catalog"))?;
    let bytes = read_all(&*file).map_err(OpenError::io("reading the catalog"))?;
    match Catalog::decode(&bytes) {
        Ok(catalog) => Ok(Some(catalog)),
        Err(CatalogError::Damaged) => Ok(None),
        Err(CatalogError::Newer(version)) => Err(OpenError::Newer {
            name: CATALOG.to_owned(),
            version,
        }),
    }
}

fn look_at(storage: &dyn Storage, segment: u64) -> Result<State, OpenError> {
    let name = name(segment);
    let file = match storage.open(&name) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::Missing),
        Err(e) => return Err(OpenError::io("opening a segment")(e)),
    };
    let mut page = [0; SEGMENT_HEADER];
    let read = file
        .read_at(&mut page, 0)
        .map_err(OpenError::io("reading a segment"))?;
    match SegmentHeader::decode(&page[..read], segment) {
        Ok(header) => Ok(State::Used(header, file)),
        Err(HeaderError::Blank) => Ok(State::Spare),
        Err(HeaderError::Damaged) => Ok(State::BadHeader(file)),
        Err(HeaderError::Newer(version)) => Err(OpenError::Newer { name, version }),
    }
}

/// The content of a segment, as a read found it in the segment's index, or in all of the segment's bytes.
pub(crate) struct Content {
    pub(crate) end: Lsn,
    pub(crate) epoch: u32,
    pub(crate) records: u64,
    pub(crate) sealed: bool,
    pub(crate) closed: bool,
    pub(crate) verdict: Verdict,
    /// True if the read went through the segment's file from end to end; false if it used only the index.
    pub(crate) scanned: bool,
}

/// The position at which the next segment begins, as far as it is known. The present segment must end there,
/// which shows whether durable batches are missing.
#[derive(Clone, Copy)]
pub(crate) enum Follows {
    /// No later segment exists, so only the present segment's own headers show how far it was durable.
    Nothing,
    /// A later segment exists, but the log may have released segments before it. So its beginning does not
    /// show where the present segment ends.
    Something,
    /// The next segment begins at this position, so the present segment must end there.
    At(Lsn),
}

/// Reads a segment, calls `each` with every record, and judges whether durable batches of the segment are
/// lost. Reads only the segment's index if `by_index` is true and the index is intact, and otherwise all of
/// the segment.
pub(crate) fn read_segment(
    header: SegmentHeader,
    file: &dyn StorageFile,
    follows: Follows,
    by_index: bool,
    each: &mut dyn FnMut(RecordInfo),
) -> Result<Content, OpenError> {
    let io = OpenError::io;
    if let Follows::Nothing = follows {
        // The scan is about to accept bytes that a killed process wrote and did not sync. So this function
        // first syncs the file and drops the system's cache of it, so that the scan reads durable bytes from
        // the disk. Earlier segments need no sync, because the log synced them before it wrote to the next
        // one.
        file.sync().map_err(io("syncing the last segment"))?;
        file.forget_cached()
            .map_err(io("reading the last segment"))?;
    }
    let sealed = read_sealed(header, file, follows)?;
    if let (true, Some((trailer, index))) = (by_index, &sealed) {
        // `read_sealed` has decoded all entries of the index once before, so this call cannot fail halfway,
        // after some calls of `each`.
        let _ = trailer.entries(index, &mut *each);
        return Ok(Content {
            end: trailer.end,
            epoch: trailer.epoch,
            records: u64::from(trailer.records),
            sealed: true,
            closed: false,
            verdict: Verdict::Clean,
            scanned: false,
        });
    }
    let all = read_all(file).map_err(io("reading a segment"))?;
    let followed = match follows {
        Follows::At(lsn) => Some(lsn),
        // The log seals a segment only once all of it is durable, so the trailer names the segment's durable
        // end.
        Follows::Nothing | Follows::Something => sealed.map(|(trailer, _)| trailer.end),
    };
    let mut records = 0;
    let mut scanned = SegmentBytes::new(header, &all).scan(followed, |entry| {
        records += 1;
        each(entry);
    });
    if !matches!(follows, Follows::Nothing) {
        judge_sealed(&mut scanned, followed);
    }
    Ok(Content {
        end: scanned.end,
        epoch: scanned.epoch,
        records,
        sealed: false,
        closed: scanned.closed,
        verdict: scanned.verdict,
        scanned: true,
    })
}

/// Changes the verdict of a scan to damage if the scan cut off batches of a segment that a later segment
/// follows. The log synced all of the segment before it began the later one, so a crash cannot have torn
/// these batches.
fn judge_sealed(scanned: &mut Scanned, followed: Option<Lsn>) {
    let durable = match scanned.verdict {
        Verdict::Clean if followed.is_none_or(|lsn| lsn == scanned.end) => return,
        Verdict::Damaged { .. } => return,
        Verdict::Torn { to, .. } | Verdict::MaybeAcked { to, .. } => to,
        Verdict::Clean => scanned.end,
    };
    scanned.verdict = Verdict::Damaged {
        from: scanned.end,
        durable,
    };
}

/// Reads the trailer and the index of a sealed segment, which describe its records. Returns `None` if one of
/// them is missing or damaged, so that the caller reads the records themselves.
fn read_sealed(
    header: SegmentHeader,
    file: &dyn StorageFile,
    follows: Follows,
) -> Result<Option<(Trailer, Vec<u8>)>, OpenError> {
    let io = OpenError::io;
    let bytes = file.bytes().map_err(io("reading a segment's length"))?;
    let Some(at) = bytes.checked_sub(TRAILER as u64) else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER];
    let read = file
        .read_at(&mut trailer, at)
        .map_err(io("reading a segment's trailer"))?;
    let decoded = Trailer::decode(&trailer[..read], header.seed(), header.segment, header.base);
    let Some(trailer) = decoded.filter(|t| match follows {
        Follows::At(lsn) => t.end == lsn,
        Follows::Nothing | Follows::Something => true,
    }) else {
        return Ok(None);
    };
    let behind = trailer
        .index_offset
        .checked_add(u64::from(trailer.index_bytes));
    if behind.is_none_or(|end| end > at) {
        return Ok(None);
    }
    let mut index = vec![0; trailer.index_bytes as usize];
    let read = file
        .read_at(&mut index, trailer.index_offset)
        .map_err(io("reading a segment's index"))?;
    index.truncate(read);
    let whole = trailer.entries(&index, |_| ()).is_some();
    Ok(whole.then_some((trailer, index)))
}

/// Rebuilds the unreadable header of a segment, so that a repair can read the segment again. Takes the log
/// position from the first readable batch header in `bytes`, the bytes of the segment's file. Returns `None`
/// if the file has no readable batch header.
pub(crate) fn infer_header(segment: u64, salt: u64, bytes: &[u8]) -> Option<SegmentHeader> {
    let seed = Seed::new(salt, segment);
    let batches = bytes.get(FIRST_BATCH as usize..)?;
    for (n, step) in batches.chunks_exact(ALIGN).enumerate() {
        if u32_at(step, 0) != BATCH_MAGIC {
            continue;
        }
        let at = Lsn::new(u64_at(&batches[n * ALIGN..], 16));
        if crate::batch::BatchHeader::decode(&batches[n * ALIGN..], seed, at).is_some() {
            let base = at.get().checked_sub((n * ALIGN) as u64)?;
            return Some(SegmentHeader {
                segment,
                base: Lsn::new(base),
                salt,
                bytes: bytes.len() as u64,
            });
        }
    }
    None
}
