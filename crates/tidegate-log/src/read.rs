//! Reads records of the log by position. A reader checks the CRC of every record that it returns. A payload
//! is a slice of the buffer into which the reader read it, so it is not copied.

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

/// The number of bytes that a reader reads first if the caller does not know the length of a record. Most
/// records fit into them, so most reads take one system call.
const GUESS_BYTES: usize = 4096;
/// The length of a disk's sector in bytes. A disk may fail to read one sector and still read its neighbours.
const SECTOR_BYTES: usize = 512;

/// Reads records of a log by their positions. Each call blocks until the disk has returned the bytes.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// The result of a [scan](Reader::scan): consecutive records of one segment, and the place to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The records with their positions. The scan leaves out records that a repair of the log could not
    /// save.
    pub records: Vec<(Lsn, Record)>,
    /// The log position at which the next scan continues, behind these records.
    pub next: Lsn,
}

/// The result of a [check](Reader::check) of a part of the log for damage, and the place to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The log position at which the next check continues, behind the checked part.
    pub next: Lsn,
    /// The ranges of log positions that the check could not read. After a check that found damage, the list
    /// covers the whole segment, and the next check continues behind that segment.
    pub lost: Vec<Range<Lsn>>,
}

impl Reader {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads the record at `lsn`. If the caller passes the length of the payload in bytes (`len`), for
    /// instance from an index, one read of the disk is enough; otherwise a long record takes two reads.
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

    /// Reads the records at these positions, in this order, for a caller that appends them again before it
    /// releases their segment.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_many(&self, lsns: &[Lsn]) -> Result<Vec<Record>, ReadError> {
        lsns.iter().map(|&lsn| self.read(lsn, None)).collect()
    }

    /// Reads consecutive records of one segment, about `bytes` bytes of them or one longer record. `from`
    /// must be the beginning of a batch or of a record. At the log's durable end, returns no records and
    /// `from` as the next position. If the log has released `from`, continues at the first segment behind
    /// it.
    ///
    /// # Errors
    /// See [`ReadError`]. Damage is an error only if the first record is damaged; otherwise the chunk ends
    /// before the damage.
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
                // The disk may have refused the read because of a sector behind the first record, so the
                // next attempt reads only one sector, to get at least that record.
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
            // The first record does not decode. If it claims no more bytes than the buffer has, or more than
            // the segment has, it is damaged. Otherwise it is only longer than the buffer, and the next
            // attempt reads all of its bytes.
            if needed <= buffer.len() || needed > most {
                return Err(self.why_not(&segment, from));
            }
            want = needed;
        }
    }

    /// Checks about `bytes` bytes of records of one segment, from `from` on. A scrub in the background
    /// checks the log part by part, to find damage before a reader needs the records. At the beginning of
    /// each segment, this function asks the system to drop its cache of the file, so that the reads reach
    /// the disk.
    ///
    /// # Errors
    /// Fails if the log has released the segment, or if its length cannot be read. Damage is not an error,
    /// nor is a failed read: the result lists the damaged positions.
    pub fn check(&self, from: Lsn, bytes: usize) -> Result<Checked, ReadError> {
        let segment = self.shared.segment_of(from).filter(|s| from < s.end());
        let segment = segment.ok_or(ReadError::Released)?;
        if from == segment.header.base {
            // An error of this request does not matter: if the system keeps its cache, the check reads the
            // cached bytes.
            let _ = segment.file.forget_cached();
        }
        match self.scan(from, bytes) {
            Ok(chunk) => Ok(Checked {
                next: chunk.next,
                lost: Vec::new(),
            }),
            // The checked part has damage. Only a scan of the whole segment shows where the damage ends.
            Err(ReadError::Damaged { .. } | ReadError::Io(_)) => Ok(Checked {
                lost: self.scrub(segment.header.segment)?,
                next: segment.end(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Reads and checks all of a segment. Returns the ranges of positions that cannot be read; none if the
    /// segment is intact. Unlike [`check`](Self::check), takes memory for the whole segment, because the
    /// damage must be told from intact batches around it.
    ///
    /// # Errors
    /// Fails if the log has released the segment, or if its length cannot be read. Bytes that the system
    /// fails to read count as damaged.
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

    /// Returns the error for a record that the reader could not decode: either the log released the segment
    /// and the file may have another use, or the record is damaged.
    fn why_not(&self, segment: &Segment, at: Lsn) -> ReadError {
        let now = self.shared.segment_of(segment.header.base);
        match now.is_some_and(|s| s.header == segment.header) {
            true => ReadError::Damaged { at },
            false => ReadError::Released,
        }
    }
}

/// Decodes the record at position `at`, which begins at index `from` of `bytes`. Returns the record, and the
/// number of bytes that it takes in the log.
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

/// Decodes the whole records in `bytes`, which a reader read from log position `start` on. Also returns the
/// number of bytes that a buffer needs to hold the next record, too, according to that record's header.
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
