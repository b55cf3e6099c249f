//! Repairs a damaged, closed log: keeps every readable record at its position, and replaces the other bytes
//! with placeholders. The repair first copies each damaged file unchanged into a quarantine. The report
//! lists the lost positions; the repair cannot restore the records there.

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

/// The greatest number of passes that a repair makes over the log. Each pass mends the part that the pass
/// before made readable: first the catalog, then the segment headers, then the batches.
const PASSES: usize = 4;

/// The number of epochs that a repair skips after the newest epoch in a readable batch header. An unreadable
/// header may have a later epoch, and the epoch of the rebuilt catalog must be higher than that.
const EPOCHS_UNSEEN: u32 = 1 << 10;

/// The report of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// The damage that the repair found in the log, one entry for each pass of the repair.
    pub damage: Vec<Damage>,
    /// The ranges of log positions of lost records, in order. If a segment is lost as a whole, the repair
    /// takes its range from the segments before and behind it.
    pub lost: Vec<Range<Lsn>>,
    /// The names of the damaged files of the log that the repair copied unchanged to the quarantine, where
    /// an operator can examine them.
    pub quarantined: Vec<String>,
    /// The numbers of the segments that the repair removed from the log, because no record in them could be
    /// read.
    pub removed: Vec<u64>,
}

/// The reasons why a repair failed, so that the log still does not open.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepairError {
    /// The repair cannot inspect the log to find the damage.
    Open(OpenError),
    /// The system reported an error when the repair read or wrote a file.
    Io {
        /// The operation of the repair that failed, such as `writing the catalog`.
        doing: &'static str,
        /// The error that the system reported for the operation.
        error: io::Error,
    },
    /// The log still has this damage after all passes of the repair.
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

/// Repairs the damaged log in `storage` so that it opens. Copies each damaged file to `quarantine` before it
/// changes anything in that file.
///
/// # Errors
/// See [`RepairError`]. After an interruption, the caller can run the repair again.
pub fn repair(storage: &dyn Storage, quarantine: &dyn Storage) -> Result<Repaired, RepairError> {
    let io = RepairError::io;
    if !storage.lock().map_err(io("locking the log's directory"))? {
        return Err(OpenError::InUse.into());
    }
    let mut done = Repaired::default();
    for _ in 0..PASSES {
        let report = examine_locked(storage, false, &mut |_| ())?;
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
    let left = examine_locked(storage, false, &mut |_| ())?.damage;
    match left {
        Some(damage) => Err(RepairError::Unrepaired(Box::new(damage))),
        None => {
            done.lost.sort_by_key(|lost| lost.start);
            Ok(done)
        }
    }
}

struct Mending<'a> {
    storage: &'a dyn Storage,
    quarantine: &'a dyn Storage,
    done: &'a mut Repaired,
    catalog: Catalog,
    /// The epoch that a rebuilt catalog names, higher than that of all readable batches. Later openings take
    /// higher epochs, so that a recovery can tell their batches from old ones.
    epoch: u32,
}

impl Mending<'_> {
    fn mend(&mut self, files: &Files, damage: &Damage) -> Result<(), RepairError> {
        if damage.catalog {
            // The catalog is lost, so only the salts in the segments' headers are known. So the repair
            // leaves out segments without a readable header: without its salt, a segment cannot be read.
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
                // A later pass mends the batches. In this pass, missing segments may still hide the position
                // at which a segment ends.
                (State::Used(header, file), _) if !first_pass => {
                    self.mend_batches(*header, &**file, files.found.get(n + 1))?;
                }
                _ => {}
            }
        }
        write_catalog(self.storage, &self.catalog).map_err(RepairError::io("writing the catalog"))
    }

    /// Removes a segment from the catalog, because no record of it can be read, and lists its positions as
    /// lost.
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

    /// Copies the file of a segment to the quarantine before the repair changes it, unless an earlier pass
    /// did so. Returns the file's bytes.
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

/// Writes the index and the trailer of a mended segment that another segment follows, so that the next
/// opening need not read all of it. Does nothing if the segment is still damaged.
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
