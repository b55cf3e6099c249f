//! Repairs a damaged, closed log: it keeps every readable record at its position,
//! replaces the rest with placeholders, and first copies each file aside unchanged. The
//! report lists the lost positions; their records cannot be restored.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;

use crate::catalog::Catalog;
use crate::examine::examine_locked;
use crate::index::IndexBuilder;
use crate::keeper::write_catalog;
use crate::load::{
    Damage, DamageKind, Files, Follows, Found, State, infer_header, look, read_segment,
};
use crate::recovery::{SegmentBytes, Verdict};
use crate::segment::{PAGE, SegmentHeader, name, offset};
use crate::storage::{Storage, StorageFile, read_all};
use crate::writer::seal_bytes;
use crate::{Lsn, OpenError};

/// The number of passes. Each pass mends the parts that the pass before made readable:
/// catalog, then headers, then batches.
const PASSES: usize = 4;

/// The most openings that a repair assumes since the last readable header was written.
const EPOCHS_UNSEEN: u32 = 1 << 10;

/// The report of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// The damage, in the order it was mended.
    pub damage: Vec<Damage>,
    /// Positions of lost records, in order. If a whole segment is lost, its range is
    /// known only from its neighbours.
    pub lost: Vec<Range<Lsn>>,
    /// Files copied aside unchanged.
    pub quarantined: Vec<String>,
    /// Segments removed from the log because no record in them could be read.
    pub removed: Vec<u64>,
}

/// The reasons why a repair failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepairError {
    /// The log cannot be inspected.
    Open(OpenError),
    /// The system reported an error.
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The log is still damaged after the repair.
    Unrepaired(Box<Damage>),
}

impl RepairError {
    fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

impl From<OpenError> for RepairError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Io { doing, error } => write!(f, "{doing}: {error}; run the repair again"),
            Self::Unrepaired(damage) => write!(
                f,
                "still damaged after the repair ({damage}): restore the files from a copy"
            ),
        }
    }
}

impl std::error::Error for RepairError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Io { error, .. } => Some(error),
            Self::Unrepaired(_) => None,
        }
    }
}

/// Mends the log so that it opens. Damaged files are copied to `quarantine` before anything is changed.
///
/// # Errors
/// See [`RepairError`]. A repair that was interrupted can be run again.
pub fn repair(storage: &dyn Storage, quarantine: &dyn Storage) -> Result<Repaired, RepairError> {
    let io = RepairError::io;
    if !storage.lock().map_err(io("locking the log's directory"))? {
        return Err(OpenError::InUse.into());
    }
    let mut done = Repaired::default();
    for _ in 0..PASSES {
        let report = examine_locked(storage, false)?;
        let Some(damage) = report.damage else {
            done.lost.sort_by_key(|lost| lost.start);
            return Ok(done);
        };
        let Some(files) = look(storage)? else {
            break;
        };
        let mut mending = Mending {
            storage,
            quarantine,
            done: &mut done,
            catalog: files.catalog.clone(),
            epoch: report.segments.iter().map(|s| s.epoch).max().unwrap_or(0) + EPOCHS_UNSEEN,
        };
        mending.mend(&files, &damage)?;
        done.damage.push(damage);
    }
    let left = examine_locked(storage, false)?.damage;
    match left {
        Some(damage) => Err(RepairError::Unrepaired(Box::new(damage))),
        None => Ok(done),
    }
}

struct Mending<'a> {
    storage: &'a dyn Storage,
    quarantine: &'a dyn Storage,
    done: &'a mut Repaired,
    catalog: Catalog,
    /// The epoch from which a rebuilt catalog counts on.
    epoch: u32,
}

impl Mending<'_> {
    fn mend(&mut self, files: &Files, damage: &Damage) -> Result<(), RepairError> {
        if damage.catalog {
            // The headers' salts are the known ones now; a segment without a readable
            // header cannot be read at all.
            let known = files
                .found
                .iter()
                .filter(|f| matches!(f.state, State::Used(..)));
            self.catalog = Catalog::new(self.epoch, known.map(|f| (f.segment, f.salt)).collect());
        }
        let whole = |kind| damage.catalog || !matches!(kind, DamageKind::Batches);
        let first_pass = damage.segments.iter().any(|d| whole(d.what));
        for wrong in &damage.segments {
            let found = files.found.iter().position(|f| f.segment == wrong.segment);
            let Some(n) = found else {
                continue;
            };
            match (&files.found[n].state, wrong.what) {
                (State::Missing, _) => self.give_up(files, n),
                (State::BadHeader(file), _) => self.mend_header(files, n, &**file)?,
                // Where segments are missing, the beginning of the next one is not known yet.
                (State::Used(header, file), _) if !first_pass => {
                    self.mend_batches(*header, &**file, files.found.get(n + 1))?;
                }
                _ => {}
            }
        }
        write_catalog(self.storage, &self.catalog).map_err(RepairError::io("writing the catalog"))
    }

    /// Removes a segment of which no record can be read.
    fn give_up(&mut self, files: &Files, n: usize) {
        let number = files.found[n].segment;
        self.catalog.remove(number);
        self.done.removed.push(number);
        let base = |f: &Found| match &f.state {
            State::Used(header, _) => Some(header.base),
            _ => None,
        };
        let before = files.found[..n].iter().rev().find_map(base);
        let after = files.found[n + 1..].iter().find_map(base);
        self.done
            .lost
            .extend(after.map(|to| before.unwrap_or(to)..to));
    }

    fn mend_header(
        &mut self,
        files: &Files,
        n: usize,
        file: &dyn StorageFile,
    ) -> Result<(), RepairError> {
        let found = &files.found[n];
        let all = self.set_aside(found.segment, file)?;
        match infer_header(found.segment, found.salt, &all) {
            Some(header) if !files.rebuilt => {
                let mut page = header.encode().to_vec();
                page.resize(PAGE as usize, 0);
                write(file, &page, 0)
            }
            _ => {
                self.give_up(files, n);
                self.storage
                    .remove(&name(found.segment))
                    .map_err(RepairError::io("removing an unreadable segment"))
            }
        }
    }

    fn mend_batches(
        &mut self,
        header: SegmentHeader,
        file: &dyn StorageFile,
        next: Option<&Found>,
    ) -> Result<(), RepairError> {
        let all = self.set_aside(header.segment, file)?;
        let segment = SegmentBytes::new(header, &all);
        let followed = next.and_then(|f| match &f.state {
            State::Used(next, _) => Some(next.base),
            _ => None,
        });
        let follows = match followed {
            Some(base) if next.is_some_and(|f| f.segment == header.segment + 1) => {
                Follows::At(base)
            }
            Some(_) => Follows::Something,
            None => Follows::Nothing,
        };
        let content = read_segment(header, file, follows, false, &mut |_| ())?;
        let Verdict::Damaged { durable, .. } = content.verdict else {
            return Ok(());
        };
        let survey = segment.survey(durable);
        if (all.len() as u64) < header.bytes {
            file.reserve(header.bytes)
                .map_err(RepairError::io("making a segment whole again"))?;
        }
        for region in &survey.regions {
            let Some(bytes) = region.mend(&segment, durable) else {
                continue;
            };
            write(file, &bytes, offset(header.base, region.from))?;
        }
        let lost = survey.lost.iter().map(|&(from, to)| from..to);
        self.done.lost.extend(lost);
        match followed {
            Some(_) => reseal(header, file, durable),
            None => Ok(()),
        }
    }

    /// Copies a file aside unchanged.
    fn set_aside(&mut self, segment: u64, file: &dyn StorageFile) -> Result<Vec<u8>, RepairError> {
        let io = RepairError::io;
        let all = read_all(file).map_err(io("reading a damaged segment"))?;
        let name = name(segment);
        if !self.done.quarantined.contains(&name) {
            let copy = self
                .quarantine
                .create(&name)
                .map_err(io("making a copy in quarantine"))?;
            write(&*copy, &all, 0)?;
            let synced = self.quarantine.sync_names();
            synced.map_err(io("syncing the quarantine"))?;
            self.done.quarantined.push(name);
        }
        Ok(all)
    }
}

/// Writes the index of a segment that is whole again and has a successor.
fn reseal(header: SegmentHeader, file: &dyn StorageFile, end: Lsn) -> Result<(), RepairError> {
    let all = read_all(file).map_err(RepairError::io("reading a mended segment"))?;
    let mut index = IndexBuilder::new(header.base);
    let scanned = SegmentBytes::new(header, &all).scan(Some(end), |entry| index.push(&entry));
    if scanned.verdict != Verdict::Clean {
        return Ok(());
    }
    let sealed = seal_bytes(&header, end, scanned.epoch, &index);
    write(file, &sealed.marked_index, sealed.index_at)?;
    write(file, &sealed.trailer, sealed.trailer_at)
}

fn write(file: &dyn StorageFile, bytes: &[u8], at: u64) -> Result<(), RepairError> {
    let written = file
        .write_at(&[IoSlice::new(bytes)], at)
        .and_then(|()| file.sync());
    written.map_err(RepairError::io("writing a mended file"))
}
