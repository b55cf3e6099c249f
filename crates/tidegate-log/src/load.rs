//! Reads a log's directory: its files, the state of each, and their content. Changes nothing.
//!
//! A sealed segment is trusted by its trailer and index. A segment without an index, and
//! the last one, are read from end to end.

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

/// The damage to a log that cannot be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The list of segments cannot be read, or is gone.
    pub catalog: bool,
    /// The damaged segments, in order.
    pub segments: Vec<SegmentDamage>,
}

/// The damage to a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDamage {
    /// The number of the segment.
    pub segment: u64,
    /// The kind of the damage.
    pub what: DamageKind,
    /// The positions that cannot be read, as far as they are known. Each range covers one or more whole
    /// records and the bytes around them.
    pub lost: Vec<Range<Lsn>>,
}

/// The kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// The segment's file is gone.
    Missing,
    /// The first page of the file cannot be read.
    Header,
    /// Batches cannot be read.
    Batches,
    /// The file is shorter than at its creation: durable batches may have stood in the missing part.
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
                DamageKind::Shortened => "is shorter than it was made",
            };
            write!(f, "segment {} {what}", damage.segment)?;
            for lost in &damage.lost {
                write!(f, ", lost {}..{}", lost.start, lost.end)?;
            }
        }
        Ok(())
    }
}

/// The file of a segment that the catalog lists.
pub(crate) struct Found {
    pub(crate) segment: u64,
    pub(crate) salt: u64,
    pub(crate) state: State,
}

/// The state of a segment's file.
pub(crate) enum State {
    Missing,
    /// The log never wrote to the file.
    Spare,
    BadHeader(Arc<dyn StorageFile>),
    Used(SegmentHeader, Arc<dyn StorageFile>),
}

/// The files of a log.
pub(crate) struct Files {
    pub(crate) catalog: Catalog,
    pub(crate) found: Vec<Found>,
    /// The catalog cannot be read; this one is rebuilt from the files.
    pub(crate) rebuilt: bool,
}

impl Files {
    /// Returns the number of segments to which the log never wrote.
    pub(crate) fn spares(&self) -> usize {
        let spare = |f: &&Found| matches!(f.state, State::Spare);
        self.found.iter().filter(spare).count()
    }
}

/// Reads the state of every file of the log; `None` if there is no log yet.
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
    // Spares come last. A blank file before a used segment is no spare: it has lost its header.
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

/// The content of a segment.
pub(crate) struct Content {
    pub(crate) end: Lsn,
    pub(crate) epoch: u32,
    pub(crate) records: u64,
    pub(crate) sealed: bool,
    pub(crate) closed: bool,
    pub(crate) verdict: Verdict,
    /// All of the segment was read.
    pub(crate) scanned: bool,
}

/// The beginning of the segment after another one.
#[derive(Clone, Copy)]
pub(crate) enum Follows {
    /// No segment follows.
    Nothing,
    /// A segment follows, not necessarily the next that was written.
    Something,
    /// The next segment begins here, directly behind this one.
    At(Lsn),
}

/// Reads a segment: its index if it has one and `by_index` is set, all of it otherwise.
pub(crate) fn read_segment(
    header: SegmentHeader,
    file: &dyn StorageFile,
    follows: Follows,
    by_index: bool,
    each: &mut dyn FnMut(RecordInfo),
) -> Result<Content, OpenError> {
    let io = OpenError::io;
    if let Follows::Nothing = follows {
        // The scan is about to accept bytes that a killed process wrote and did not
        // sync: they must be durable, and must be read from the disk. The log synced
        // earlier segments before it wrote to the next.
        file.sync().map_err(io("syncing the last segment"))?;
        file.forget_cached()
            .map_err(io("reading the last segment"))?;
    }
    let sealed = read_sealed(header, file, follows)?;
    if let (true, Some((trailer, index))) = (by_index, &sealed) {
        // The entries were checked before: a visit cannot be undone.
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
        // The log seals a segment when all of it is durable.
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

/// Judges a segment that another follows: all of it was durable, so anything cut off there is damage.
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

/// Reads the trailer and the index of a segment that has both intact.
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

/// Makes the header of a segment with an unreadable one from its first readable batch.
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
