//! Inspects a closed log: its content, and whether all of it can be read. Changes nothing.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::index::RecordInfo;
use crate::load::{Content, Damage, look, read_segment};
use crate::open::{damaged, follows, missing, used};
use crate::recovery::Verdict;
use crate::storage::Storage;
use crate::{KIND_LOST, Lsn, OpenError};

/// The content of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The log's segments, oldest first, without those that cannot be read at all.
    pub segments: Vec<SegmentReport>,
    /// Segments allocated and not yet written to.
    pub spares: usize,
    /// The state of the log's end.
    pub verdict: Verdict,
    /// The durable positions that cannot be read.
    pub damage: Option<Damage>,
}

/// The content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentReport {
    /// The number of the segment.
    pub segment: u64,
    /// The positions that the segment has.
    pub range: Range<Lsn>,
    /// Records that can be read.
    pub records: u64,
    /// True if the segment has a sound index, so that an opening need not read all of the segment.
    pub indexed: bool,
    /// The length of the segment's file in bytes.
    pub file_bytes: u64,
    /// How often the log had been opened when it last wrote to this segment.
    pub epoch: u32,
    /// The content of each group in the segment.
    pub groups: BTreeMap<u32, GroupReport>,
    /// The bytes that a repair replaced with placeholders.
    pub lost_bytes: u64,
}

/// The content of a group in a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// The number of records of the group in the segment.
    pub records: u64,
    /// The bytes of the payloads of these records.
    pub bytes: u64,
    /// The index of the group's first record in the segment.
    pub first: u64,
    /// The index of the group's last record in the segment.
    pub last: u64,
}

/// Reports the content of the log from its indices, where it has any: quick, but damage
/// inside sealed segments goes unnoticed.
///
/// # Errors
/// The log is in use, is newer, or cannot be read. Damage is not an error: the report lists it.
pub fn inspect(storage: &dyn Storage) -> Result<Report, OpenError> {
    examine(storage, true)
}

/// Reads every byte of the log and checks it.
///
/// # Errors
/// As for [`inspect`].
pub fn verify(storage: &dyn Storage) -> Result<Report, OpenError> {
    examine(storage, false)
}

fn examine(storage: &dyn Storage, by_index: bool) -> Result<Report, OpenError> {
    if !storage
        .lock()
        .map_err(OpenError::io("locking the log's directory"))?
    {
        return Err(OpenError::InUse);
    }
    examine_locked(storage, by_index)
}

pub(crate) fn examine_locked(storage: &dyn Storage, by_index: bool) -> Result<Report, OpenError> {
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
        let mut segment = SegmentReport {
            segment: header.segment,
            range: header.base..header.base,
            records: 0,
            indexed: false,
            file_bytes: file
                .bytes()
                .map_err(OpenError::io("reading a segment's length"))?,
            epoch: 0,
            groups: BTreeMap::new(),
            lost_bytes: 0,
        };
        let follows = follows(&used, n);
        let content = read_segment(*header, &**file, follows, by_index, &mut |e| {
            segment.count(&e)
        })?;
        let indexed = match by_index {
            true => !content.scanned,
            // An index with a sound checksum is as it was written, so only its presence matters here.
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
