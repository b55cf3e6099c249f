//! Inspects a closed log for tools: reports its content, and whether all of the content can be read. The
//! inspection changes nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::index::RecordInfo;
use crate::load::{Content, Damage, look, read_segment};
use crate::open::{damaged, follows, missing, used};
use crate::recovery::Verdict;
use crate::storage::Storage;
use crate::{KIND_LOST, Lsn, OpenError};

/// The report of an inspection: the content and the state of a closed log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The segments of the log with a readable header, oldest first, so that a tool can show them.
    pub segments: Vec<SegmentReport>,
    /// The number of spare segments: the log has allocated them ahead, and has not yet written to them.
    pub spares: usize,
    /// The state of the log's end: whole, torn by a crash, or damaged.
    pub verdict: Verdict,
    /// The damaged segments, with the positions that were durable and cannot be read; `None` if the log has
    /// no damage.
    pub damage: Option<Damage>,
}

/// The content of one segment of the inspected log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// The number of the segment.
    pub segment: u64,
    /// The log positions that the segment covers, from its first batch to the end of its last batch.
    pub range: Range<Lsn>,
    /// The number of readable records in the segment.
    pub records: u64,
    /// True if the segment has an intact index, so that an opening need not read all of the segment.
    pub indexed: bool,
    /// The length of the segment's file in bytes: the disk space that a release of the segment frees.
    pub file_bytes: u64,
    /// The latest epoch of the segment's batches: the number of times that the log had been opened when it
    /// last wrote to this segment.
    pub epoch: u32,
    /// The counts of the segment's records for each group, by the group's number, so that a tool can show
    /// which group keeps the segment.
    pub groups: BTreeMap<u32, GroupReport>,
    /// The number of bytes of placeholder records in the segment. A repair of the log put them in place of
    /// lost records.
    pub lost_bytes: u64,
    /// True if the segment's file is shorter than at its creation. In the last segment of a log, durable
    /// bytes may have stood in the missing part.
    pub shortened: bool,
}

/// The content of one segment for one of the groups that share the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// The number of records that the group has in the segment.
    pub records: u64,
    /// The total length of the payloads of the group's records in the segment, in bytes.
    pub bytes: u64,
    /// The index of the group's first record in the segment: the record's number within the group.
    pub first: u64,
    /// The index of the group's last record in the segment: the record's number within the group.
    pub last: u64,
}

/// Reports the content of the log in `storage`. For each segment with an intact index, reads only the index.
/// This is quick, but does not find damage to the records of these segments.
///
/// # Errors
/// Another process uses the log, a newer version of this crate wrote it, or the system cannot read it. Damage
/// is not an error: the report lists it.
pub fn inspect(storage: &dyn Storage) -> Result<Report, OpenError> {
    inspect_records(storage, |_| ())
}

/// Reports as [`inspect`] does, and calls `visit` with every record of the log, in the order in which the log
/// wrote them.
///
/// # Errors
/// The same errors as those of [`inspect`].
pub fn inspect_records(
    storage: &dyn Storage,
    mut visit: impl FnMut(&RecordInfo),
) -> Result<Report, OpenError> {
    examine(storage, true, &mut visit)
}

/// Reports the content of the log in `storage` as [`inspect`] does, but reads and checks every byte of the
/// log, to find all damage.
///
/// # Errors
/// The same errors as those of [`inspect`].
pub fn verify(storage: &dyn Storage) -> Result<Report, OpenError> {
    verify_records(storage, |_| ())
}

/// Reports as [`verify`] does, and calls `visit` with every record of the log, in the order in which the log
/// wrote them.
///
/// # Errors
/// The same errors as those of [`inspect`].
pub fn verify_records(
    storage: &dyn Storage,
    mut visit: impl FnMut(&RecordInfo),
) -> Result<Report, OpenError> {
    examine(storage, false, &mut visit)
}

fn examine(
    storage: &dyn Storage,
    by_index: bool,
    visit: &mut dyn FnMut(&RecordInfo),
) -> Result<Report, OpenError> {
    if !storage
        .lock()
        .map_err(OpenError::io("locking the log's directory"))?
    {
        return Err(OpenError::InUse);
    }
    examine_locked(storage, by_index, visit)
}

pub(crate) fn examine_locked(
    storage: &dyn Storage,
    by_index: bool,
    visit: &mut dyn FnMut(&RecordInfo),
) -> Result<Report, OpenError> {
    let mut report = Report {
        segments: Vec::new(),
        spares: 0,
        verdict: Verdict::Clean,
        damage: None,
    };
    let Some(files) = look(storage)? else {
        return Ok(report);
    };
    report.damage = missing(&files);
    let used = used(&files);
    report.spares = files.spares();
    for (n, (header, file)) in used.iter().enumerate() {
        let file_bytes = file
            .bytes()
            .map_err(OpenError::io("reading a segment's length"))?;
        let mut segment = SegmentReport {
            segment: header.segment,
            range: header.base..header.base,
            records: 0,
            indexed: false,
            file_bytes,
            epoch: 0,
            groups: BTreeMap::new(),
            lost_bytes: 0,
            shortened: file_bytes < header.bytes,
        };
        let follows = follows(&used, n);
        let content = read_segment(*header, &**file, follows, by_index, &mut |e| {
            segment.count(&e);
            visit(&e);
        })?;
        let indexed = match by_index {
            true => !content.scanned,
            // The read before ignored the index of the segment, to check every byte. This second read only
            // finds out whether the segment has an intact index, for the report.
            false => !read_segment(*header, &**file, follows, true, &mut |_| ())?.scanned,
        };
        segment.note(&content, indexed);
        report.segments.push(segment);
        report.verdict = content.verdict.clone();
        if let Verdict::Damaged { durable, .. } = content.verdict {
            let damage = report.damage.get_or_insert_with(Damage::default);
            damage.segments.push(damaged(*header, &**file, durable)?);
        }
    }
    if let Some(damage) = &mut report.damage {
        damage.segments.sort_by_key(|d| d.segment);
    }
    Ok(report)
}

impl SegmentReport {
    fn count(&mut self, entry: &RecordInfo) {
        if entry.kind == KIND_LOST {
            self.lost_bytes += entry.stored_bytes();
            return;
        }
        let group = self
            .groups
            .entry(entry.group)
            .or_insert_with(|| GroupReport {
                first: entry.index,
                ..GroupReport::default()
            });
        group.records += 1;
        group.bytes += u64::from(entry.len);
        group.last = entry.index;
    }

    fn note(&mut self, content: &Content, indexed: bool) {
        self.range.end = content.end;
        self.records = content.records;
        self.epoch = content.epoch;
        self.indexed = indexed;
    }
}
