//! Writes batches into segments and makes them durable: one write and one sync for each call. It blocks,
//! and the driver decides when and how much it writes. It seals a full segment and continues in the next.
//!
//! The writer pads each write with zeros to the end of its last page, and by at least
//! one header's length: the zeros mark the log's end even in a file that was used
//! before, and the writer need not read a page to complete it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::batch::{BATCH_HEADER, BatchHeader, BatchKind};
use crate::index::{IndexBuilder, RecordInfo, TRAILER, Trailer};
use crate::planner::Place;
use crate::record::RecordHeader;
use crate::segment::{FIRST_BATCH, PAGE, SegmentHeader, offset};
use crate::shared::{Segment, Shared, lock};
use crate::storage::is_full;
use crate::wire::align;
use crate::{Failure, Lsn, Record};

/// The writer passes payloads of this length or more to the write as parts of their own. It copies shorter
/// ones, because a copy costs less than another part.
const SHARE_BYTES: usize = 16 << 10;

/// An accepted batch with its place.
pub(crate) struct Accepted {
    pub(crate) place: Place,
    pub(crate) records: Vec<Record>,
}

/// The end of the log, where writing continues.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    current: Arc<Segment>,
    /// Nothing was written to the current segment yet, not even its header.
    fresh: bool,
    index: IndexBuilder,
    /// The end of the written batches.
    end: Lsn,
    /// The durable position in the last header written.
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
        Self {
            fresh: end == current.header.base,
            shared,
            current,
            index,
            end,
            // A marker is needed only after an append.
            told: end,
            epoch,
            buffer: Vec::new(),
        }
    }

    /// Writes those batches at the front that are in one segment; returns their number. The driver must sync
    /// them before it writes the next. After an error it must not write again.
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

    /// Syncs the written batches. After an error the driver must not write again.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        let synced = self.current.file.sync();
        synced.map_err(|e| self.shared.fail("syncing the log", e))?;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.current.reached(self.end, self.index.records());
        self.shared.set_durable(self.end);
        Ok(())
    }

    /// Writes consecutive batches into the current segment, with one write.
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
        let written = write_parts(&self.current, &out, &shared, at);
        self.buffer = out;
        self.fresh = false;
        self.told = self.shared.durable();
        written
    }

    /// Appends a batch to `out`, except for the payloads in `shared`, each with its place in `out`.
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

    /// Seals the current segment and continues in the segment of `place`.
    fn roll(&mut self, place: Place) -> Result<(), Failure> {
        match self.seal() {
            Ok(()) => {}
            // An index only saves time at the next start; it may need space behind the segment's end.
            Err(e) if is_full(&e) => {}
            Err(e) => return Err(self.shared.fail("sealing a segment", e)),
        }
        self.current.seal();
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
        self.index = IndexBuilder::new(place.base);
        self.end = place.base;
        Ok(())
    }

    /// Writes marker, index and trailer behind the last batch.
    fn seal(&mut self) -> io::Result<()> {
        let sealed = seal_bytes(&self.current.header, self.end, self.epoch, &self.index);
        let file = &self.current.file;
        file.write_at(&[IoSlice::new(&sealed.marked_index)], sealed.index_at)?;
        file.write_at(&[IoSlice::new(&sealed.trailer)], sealed.trailer_at)?;
        file.sync()?;
        self.shared.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the disk does not yet record how far the log is durable.
    pub(crate) fn needs_marker(&self) -> bool {
        !self.fresh && self.told < self.end
    }

    /// Records durably how far the log is durable.
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

/// The bytes written behind the last batch of a full segment.
pub(crate) struct Sealed {
    /// A marker and the index.
    pub(crate) marked_index: Vec<u8>,
    pub(crate) index_at: u64,
    pub(crate) trailer: [u8; TRAILER],
    pub(crate) trailer_at: u64,
}

/// Returns marker, index and trailer of a segment that ends at `end`. The trailer is the
/// file's last bytes; the file grows if needed.
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
    segment.file.write_at(&parts, at)
}
