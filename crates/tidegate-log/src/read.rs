//! Reading by position. Every byte handed out was checked against its CRC; a payload is a slice of the one
//! buffer it was read into.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{BATCH_HEADER, BatchHeader};
use crate::record::{RECORD_HEADER, RecordHeader, stored};
use crate::recovery::SegmentBytes;
use crate::segment::offset;
use crate::shared::{Segment, Shared};
use crate::storage::read_around;
use crate::{KIND_LOST, Lsn, ReadError, Record};

/// The bytes that a reader takes first for a record of unknown length.
const GUESS_BYTES: usize = 4096;
/// The unit of a disk: one sector may be unreadable while its neighbours are fine.
const SECTOR_BYTES: usize = 512;

/// Reads records of a log. Blocks for as long as the disk takes.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// Consecutive records of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The records with their positions, without those a repair could not save.
    pub records: Vec<(Lsn, Record)>,
    /// The position at which the next scan continues.
    pub next: Lsn,
}

/// The result of a [check](Reader::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The position of the next part.
    pub next: Lsn,
    /// Positions that cannot be read. If there are any, this lists all of the segment, and the next part
    /// begins behind the segment.
    pub lost: Vec<Range<Lsn>>,
}

impl Reader {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads the record at `lsn`. With its payload's length `len`, as an index has it, this takes one read.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, lsn: Lsn, len: Option<u32>) -> Result<Record, ReadError> {
        let segment = self.segment(lsn)?;
        let most = segment.end().since(lsn) as usize;
        let guess = len.map_or(GUESS_BYTES, |len| stored(len as usize));
        let mut bytes = self.bytes(&segment, lsn, guess.min(most))?;
        let claimed = RecordHeader::peek(&bytes).map_or(0, |h| h.stored());
        if claimed > bytes.len() && claimed <= most {
            bytes = self.bytes(&segment, lsn, claimed)?;
        }
        match decode(&bytes, 0, &segment, lsn) {
            Some((record, _)) if record.kind == KIND_LOST => Err(ReadError::Lost),
            Some((record, _)) => Ok(record),
            None => Err(self.why_not(&segment, lsn)),
        }
    }

    /// Reads the records at these positions, in this order: to be appended again before
    /// their segment is released.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_many(&self, lsns: &[Lsn]) -> Result<Vec<Record>, ReadError> {
        lsns.iter().map(|&lsn| self.read(lsn, None)).collect()
    }

    /// Reads the records from `from` on, the beginning of a batch or a record: about
    /// `bytes` of one segment, or one longer record. At the log's durable end it returns
    /// none, with `next` as `from`. It skips positions that were released.
    ///
    /// # Errors
    /// See [`ReadError`]. Damage is an error only when it comes first.
    pub fn scan(&self, from: Lsn, bytes: usize) -> Result<Chunk, ReadError> {
        let found = self.shared.segment_of(from).filter(|s| from < s.end());
        let Some(segment) = found.or_else(|| self.shared.segment_from(from)) else {
            return Ok(Chunk {
                next: from,
                ..Chunk::default()
            });
        };
        let (from, end) = (from.max(segment.header.base), segment.end());
        let most = end.since(from) as usize;
        let (mut want, mut refused) = (bytes.max(GUESS_BYTES), false);
        loop {
            let buffer = match self.bytes(&segment, from, want.min(most)) {
                // The unreadable part may lie behind the first record.
                Err(ReadError::Io(_)) if !refused => {
                    (want, refused) = (SECTOR_BYTES, true);
                    continue;
                }
                read => read?,
            };
            let (chunk, needed) = walk(&buffer, &segment, from);
            if chunk.next > from || most == 0 {
                return Ok(chunk);
            }
            // The record is longer than the buffer, or its length is damaged.
            if needed <= buffer.len() || needed > most {
                return Err(self.why_not(&segment, from));
            }
            want = needed;
        }
    }

    /// Checks the records from `from` on, about `bytes` of one segment: for a scrub in
    /// the background, part by part. At the beginning of each segment it asks the system
    /// to drop its cache of the file, so that the reads reach the disk.
    ///
    /// # Errors
    /// The segment was released, or its length cannot be read. Damage is not an error, nor is a failed read.
    pub fn check(&self, from: Lsn, bytes: usize) -> Result<Checked, ReadError> {
        let segment = self.shared.segment_of(from).filter(|s| from < s.end());
        let segment = segment.ok_or(ReadError::Released)?;
        if from == segment.header.base {
            // If the system keeps its cache, the check covers the cached bytes.
            let _ = segment.file.forget_cached();
        }
        match self.scan(from, bytes) {
            Ok(chunk) => Ok(Checked {
                next: chunk.next,
                lost: Vec::new(),
            }),
            // The end of the damage shows only after a scan of the whole segment.
            Err(ReadError::Damaged { .. } | ReadError::Io(_)) => Ok(Checked {
                lost: self.scrub(segment.header.segment)?,
                next: segment.end(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Reads all of a segment and checks it; returns the positions that cannot be read, none
    /// if it is intact. Takes memory for the whole segment; [`check`](Self::check) does not.
    ///
    /// # Errors
    /// The segment was released, or its length cannot be read. Bytes the system fails to
    /// read count as damaged.
    pub fn scrub(&self, segment: u64) -> Result<Vec<Range<Lsn>>, ReadError> {
        let segment = self
            .shared
            .segment_numbered(segment)
            .ok_or(ReadError::Released)?;
        let end = segment.end();
        let bytes = read_around(&*segment.file).map_err(ReadError::Io)?;
        let survey = SegmentBytes::new(segment.header, &bytes).survey(end);
        let lost: Vec<_> = survey.lost.iter().map(|&(from, to)| from..to).collect();
        match self.why_not(&segment, segment.header.base) {
            ReadError::Released if !lost.is_empty() => Err(ReadError::Released),
            _ => Ok(lost),
        }
    }

    fn segment(&self, lsn: Lsn) -> Result<Arc<Segment>, ReadError> {
        let durable = self.shared.durable();
        if lsn >= durable {
            return Err(ReadError::NotDurable { durable });
        }
        let segment = self.shared.segment_of(lsn);
        segment.filter(|s| lsn < s.end()).ok_or(ReadError::Released)
    }

    fn bytes(&self, segment: &Segment, at: Lsn, len: usize) -> Result<Bytes, ReadError> {
        let mut buffer = vec![0; len];
        let read = segment
            .file
            .read_at(&mut buffer, offset(segment.header.base, at));
        buffer.truncate(read.map_err(ReadError::Io)?);
        Ok(buffer.into())
    }

    /// Returns the error for an unreadable record: its segment was released and the file has another use, or
    /// the record is damaged.
    fn why_not(&self, segment: &Segment, at: Lsn) -> ReadError {
        let now = self.shared.segment_of(segment.header.base);
        match now.is_some_and(|s| s.header == segment.header) {
            true => ReadError::Damaged { at },
            false => ReadError::Released,
        }
    }
}

/// Decodes the record at `at`, which is `from` bytes into `bytes`; returns it and the bytes it takes.
fn decode(bytes: &Bytes, from: usize, segment: &Segment, at: Lsn) -> Option<(Record, usize)> {
    let header = RecordHeader::decode(bytes.get(from..)?, segment.seed, at)?;
    let payload = from + RECORD_HEADER;
    let record = Record {
        group: header.group,
        kind: header.kind,
        index: header.index,
        term: header.term,
        payload: bytes.slice(payload..payload + header.len as usize),
    };
    Some((record, header.stored()))
}

/// Decodes the records in `bytes`, which stand at `start`. If the first is not whole,
/// also returns how many bytes its header asks for.
fn walk(bytes: &Bytes, segment: &Segment, start: Lsn) -> (Chunk, usize) {
    let mut from = 0;
    let mut chunk = Chunk {
        records: Vec::new(),
        next: start,
    };
    let needed = loop {
        let at = start.after(from as u64);
        if BatchHeader::decode(bytes.get(from..).unwrap_or_default(), segment.seed, at).is_some() {
            from += BATCH_HEADER;
            continue;
        }
        match decode(bytes, from, segment, at) {
            Some((record, stored)) => {
                from += stored;
                if record.kind != KIND_LOST {
                    chunk.records.push((at, record));
                }
                chunk.next = start.after(from as u64);
            }
            None => {
                let rest = bytes.get(from..).unwrap_or_default();
                let stored = RecordHeader::peek(rest).map_or(RECORD_HEADER, |h| h.stored());
                break from + stored;
            }
        }
    };
    (chunk, needed)
}
