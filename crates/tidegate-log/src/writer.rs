//! The writer: writes batches into segments and makes them durable, with one write and one sync for each
//! call of the driver. The writer's calls block. The driver decides when the writer writes, and which
//! batches. The writer seals a full segment and continues in the next one.
//!
//! The writer pads each write with zeros to the end of its last page, and by at least one header's length.
//! The zeros mark the log's end even in a file that a released segment used before. And because each write
//! ends with a whole page, the writer need not read a page to complete it. In a new segment a short write
//! brings more zeros (`ahead`).

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::ahead::{Used, push_zeros};
use crate::batch::{BATCH_HEADER, BatchHeader, BatchKind};
use crate::index::{IndexBuilder, RecordInfo, TRAILER, Trailer};
use crate::planner::Place;
use crate::record::RecordHeader;
use crate::segment::{FIRST_BATCH, PAGE, SegmentHeader, offset};
use crate::shared::{Segment, Shared, lock};
use crate::storage::is_full;
use crate::wire::align;
use crate::{Failure, Lsn, Record};

/// The shortest payload, in bytes, that the writer passes to a vectored write as a buffer of its own. The
/// writer copies shorter payloads into its own buffer, because a copy costs less than one more buffer.
const SHARE_BYTES: usize = 16 << 10;

/// An accepted batch that the writer must write: its records, and the place in the log that the planner gave
/// it.
pub(crate) struct Accepted {
    pub(crate) place: Place,
    pub(crate) records: Vec<Record>,
}

/// Writes accepted batches into the current segment and syncs them. Knows the segment that it fills and the
/// end of the written batches.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    current: Arc<Segment>,
    /// True if the writer has written nothing to the current segment yet, not even the segment's header.
    fresh: bool,
    /// The part of the current segment's file that is in use already.
    used: Used,
    index: IndexBuilder,
    /// The log position at the end of the last written batch. The next batch begins there.
    end: Lsn,
    /// The durable position that the last written header or marker names. If it lies before the log's end,
    /// an idle log needs a marker.
    told: Lsn,
    epoch: u32,
    buffer: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        current: Arc<Segment>,
        index: IndexBuilder,
        end: Lsn,
        epoch: u32,
    ) -> Self {
        let fresh = end == current.header.base;
        Self {
            fresh,
            used: if fresh { Used::nothing() } else { Used::all() },
            shared,
            current,
            index,
            end,
            // The writer begins as if a marker on the disk named the log's end as durable, so that it writes
            // no marker before the first append.
            told: end,
            epoch,
            buffer: Vec::new(),
        }
    }

    /// Writes the first of these batches, up to the last batch in the same segment as the first batch,
    /// because a sync covers only one file. Returns the number of written batches. The driver must sync them
    /// before it lets the writer write the next batches. After an error the driver must not let the writer
    /// write again.
    pub(crate) fn write(&mut self, batches: &[Accepted]) -> Result<usize, Failure> {
        let Some(place) = batches.first().map(|b| b.place) else {
            return Ok(0);
        };
        if place.segment != self.current.header.segment {
            self.roll(place)?;
        }
        let same = |b: &&Accepted| b.place.segment == place.segment;
        let count = batches.iter().take_while(same).count();
        self.write_run(&batches[..count])
            .map_err(|e| self.shared.fail("writing a batch", e))?;
        Ok(count)
    }

    /// Syncs the segment with the written batches, and advances the log's durable position to their end.
    /// After an error the driver must not let the writer write again.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        let synced = self.current.file.sync();
        synced.map_err(|e| self.shared.fail("syncing the log", e))?;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.current.reached(self.end, self.index.records());
        self.shared.set_durable(self.end);
        Ok(())
    }

    /// Writes consecutive batches into the current segment with one write, because each system call has a
    /// cost.
    fn write_run(&mut self, run: &[Accepted]) -> io::Result<()> {
        let header = self.current.header;
        let at = match self.fresh {
            true => 0,
            false => offset(header.base, self.end),
        };
        let mut out = std::mem::take(&mut self.buffer);
        out.clear();
        if self.fresh {
            out.extend_from_slice(&header.encode());
            out.resize(FIRST_BATCH as usize, 0);
        }
        let mut shared = Vec::new();
        for batch in run {
            self.encode(batch, &mut out, &mut shared);
        }
        let end = offset(header.base, self.end) + BATCH_HEADER as u64;
        let padded = end.next_multiple_of(PAGE).min(header.bytes);
        let zeros = padded - offset(header.base, self.end);
        out.resize(out.len() + zeros as usize, 0);
        let reserved = self.shared.allocated().reserved.min(header.bytes);
        let ahead = self.used.enter(at, padded, reserved);
        let written = write_parts(&self.current, &out, &shared, ahead, at);
        self.buffer = out;
        self.fresh = false;
        self.told = self.shared.durable();
        written
    }

    /// Appends the bytes of a batch to `out`, except its long payloads. Adds each long payload to `shared`
    /// with its place in `out`, so that a vectored write can take it without a copy.
    fn encode<'a>(
        &mut self,
        batch: &'a Accepted,
        out: &mut Vec<u8>,
        shared: &mut Vec<(usize, &'a Bytes)>,
    ) {
        let seed = self.current.seed;
        debug_assert_eq!(
            batch.place.at, self.end,
            "batches are written in the order of their places"
        );
        let body: u64 = batch.records.iter().map(Record::stored_bytes).sum();
        let header = BatchHeader {
            segment: self.current.header.segment,
            lsn: self.end,
            synced: self.shared.durable(),
            bytes: body as u32,
            records: batch.records.len() as u32,
            epoch: self.epoch,
            kind: BatchKind::Records,
        };
        out.extend_from_slice(&header.encode(seed));
        let mut at = self.end.after(BATCH_HEADER as u64);
        for record in &batch.records {
            let header = RecordHeader::of(record, self.epoch);
            self.index.push(&RecordInfo::new(at, &header));
            let len = record.payload.len();
            if len < SHARE_BYTES {
                header.append(seed, at, &record.payload, out);
            } else {
                out.extend_from_slice(&header.encode(seed, at, &record.payload));
                shared.push((out.len(), &record.payload));
                out.resize(out.len() + align(len) - len, 0);
            }
            at = at.after(record.stored_bytes());
        }
        self.end = at;
        let counters = &self.shared.counters;
        counters.batches.fetch_add(1, Ordering::Relaxed);
        counters
            .records
            .fetch_add(batch.records.len() as u64, Ordering::Relaxed);
        counters
            .bytes
            .fetch_add(body + BATCH_HEADER as u64, Ordering::Relaxed);
    }

    /// Seals the full segment, and continues in the next segment, in which `place` lies.
    fn roll(&mut self, place: Place) -> Result<(), Failure> {
        match self.seal() {
            Ok(()) => {}
            // The disk is full, and the segment's index needs space behind the segment's end. The log goes on
            // without the index, which only saves time at the next opening.
            Err(e) if is_full(&e) => {}
            Err(e) => return Err(self.shared.fail("sealing a segment", e)),
        }
        let reserved = self.shared.allocated().reserved;
        let used = offset(self.current.header.base, self.end);
        self.current.seal(used.max(reserved));
        let spare = lock(&self.shared.spares).pop_front();
        let Some(spare) = spare.filter(|s| s.segment == place.segment) else {
            let missing = io::Error::other("no segment was allocated ahead");
            return Err(self.shared.fail("beginning a segment", missing));
        };
        let header = SegmentHeader {
            segment: spare.segment,
            base: place.base,
            salt: spare.salt,
            bytes: spare.bytes,
        };
        self.current = Arc::new(Segment::new(header, spare.file));
        self.shared.insert(Arc::clone(&self.current));
        self.shared.errands.ask(|errand| errand.top_up = true);
        self.fresh = true;
        self.used = match spare.recycled {
            true => Used::all(),
            false => Used::nothing(),
        };
        self.index = IndexBuilder::new(place.base);
        self.end = place.base;
        Ok(())
    }

    /// Writes marker, index and trailer behind the last batch of the current segment and syncs them, so that
    /// the next opening need not read the whole segment.
    fn seal(&mut self) -> io::Result<()> {
        let sealed = seal_bytes(&self.current.header, self.end, self.epoch, &self.index);
        let file = &self.current.file;
        file.write_at(&[IoSlice::new(&sealed.marked_index)], sealed.index_at)?;
        file.write_at(&[IoSlice::new(&sealed.trailer)], sealed.trailer_at)?;
        file.sync()?;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the log needs a marker, because no header or marker on the disk says yet that the log
    /// is durable up to its end.
    pub(crate) fn needs_marker(&self) -> bool {
        !self.fresh && self.told < self.end
    }

    /// Writes and syncs a marker that says how far the log is durable, so that a recovery can tell damage
    /// from a torn write. If `closed` is true, the marker also says that the log was closed in order.
    pub(crate) fn mark(&mut self, closed: bool) -> Result<(), Failure> {
        if self.fresh {
            return Ok(());
        }
        let kind = if closed {
            BatchKind::Closed
        } else {
            BatchKind::Marker
        };
        let at = offset(self.current.header.base, self.end);
        let marker = marker(&self.current.header, self.end, self.epoch, kind);
        let file = &self.current.file;
        let written = file
            .write_at(&[IoSlice::new(&marker)], at)
            .and_then(|()| file.sync());
        written.map_err(|e| self.shared.fail("writing a marker", e))?;
        self.told = self.end;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.markers.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The bytes that seal a full segment. The writer writes them behind the segment's last batch, so that an
/// opening finds the segment's index.
pub(crate) struct Sealed {
    /// The bytes of a marker, followed by the bytes of the segment's index.
    pub(crate) marked_index: Vec<u8>,
    pub(crate) index_at: u64,
    pub(crate) trailer: [u8; TRAILER],
    pub(crate) trailer_at: u64,
}

/// Makes the bytes that seal a segment with its end at position `end`: marker, index and trailer. The
/// trailer takes the last 64 bytes of the file. The file grows if the index needs more space.
pub(crate) fn seal_bytes(
    header: &SegmentHeader,
    end: Lsn,
    epoch: u32,
    index: &IndexBuilder,
) -> Sealed {
    let index_at = offset(header.base, end);
    let mut marked_index = marker(header, end, epoch, BatchKind::Marker).to_vec();
    marked_index.extend_from_slice(index.bytes());
    let behind = (index_at + marked_index.len() as u64).next_multiple_of(8);
    let trailer = Trailer {
        segment: header.segment,
        base: header.base,
        end,
        index_offset: index_at + BATCH_HEADER as u64,
        index_bytes: index.bytes().len() as u32,
        records: index.records() as u32,
        epoch,
        index_crc: crc32c::crc32c(index.bytes()),
    };
    Sealed {
        marked_index,
        index_at,
        trailer: trailer.encode(header.seed()),
        trailer_at: (header.bytes - TRAILER as u64).max(behind),
    }
}

fn marker(header: &SegmentHeader, at: Lsn, epoch: u32, kind: BatchKind) -> [u8; BATCH_HEADER] {
    let marker = BatchHeader {
        segment: header.segment,
        lsn: at,
        synced: at,
        bytes: 0,
        records: 0,
        epoch,
        kind,
    };
    marker.encode(header.seed())
}

fn write_parts(
    segment: &Segment,
    out: &[u8],
    shared: &[(usize, &Bytes)],
    ahead: u64,
    at: u64,
) -> io::Result<()> {
    let mut parts = Vec::with_capacity(2 * shared.len() + 1);
    let mut from = 0;
    for (to, payload) in shared {
        parts.push(IoSlice::new(&out[from..*to]));
        parts.push(IoSlice::new(payload));
        from = *to;
    }
    parts.push(IoSlice::new(&out[from..]));
    push_zeros(&mut parts, ahead);
    segment.file.write_at(&parts, at)
}
