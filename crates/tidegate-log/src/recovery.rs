//! Finds the end of the log in the bytes of a segment, and whether durable bytes are lost. The code is pure:
//! its callers read the files.
//!
//! The scan reads batches from the front up to the first batch that is not whole. The bytes behind the last
//! whole batch decide the verdict, because each batch header says how far the log was durable when the
//! writer made the header:
//!
//! | behind the last whole batch | verdict |
//! | --- | --- |
//! | bytes that were durable, as a header anywhere in the segment says | [`Verdict::Damaged`] |
//! | nothing new: zeros, a marker, or bytes of an earlier use of the file | [`Verdict::Clean`] |
//! | zeros, but batches further on: their write never ended, and was never acked | [`Verdict::Torn`] |
//! | bytes that are no whole batch: torn, or damaged after an ack | [`Verdict::MaybeAcked`] |
//!
//! A segment that another segment follows was durable up to the beginning of the next one, regardless of its
//! own headers. `open` and `repair` choose the files to read, and act on the verdict.

use std::fmt;

use crate::batch::{BATCH_HEADER, BATCH_MAGIC, BatchHeader, BatchKind};
use crate::index::RecordInfo;
use crate::record::{EPOCH_MASK, RECORD_HEADER, RecordHeader, Seed};
use crate::segment::{SegmentHeader, lsn_at, offset};
use crate::wire::{ALIGN, u32_at};
use crate::{KIND_LOST, Lsn};

/// The state of a log's end, as a recovery finds it. From the verdict an operator learns whether a crash or
/// damage has cost acknowledged records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every batch of the log is whole, and no newer bytes follow the last batch, so no record is lost.
    Clean,
    /// A crash interrupted the write of the last batches, which the log never reported as durable. The
    /// recovery cuts them off.
    Torn {
        /// The log position at which the log ends after the cut.
        at: Lsn,
        /// The log position at which the cut-off part ended, as far as the recovery can see it.
        to: Lsn,
    },
    /// The log ends with bytes that are no whole batch, and the recovery cuts them off. Most likely a crash
    /// interrupted their write. But they may also be the log's last, acknowledged batches, damaged after
    /// their sync: no later header shows whether they were durable.
    MaybeAcked {
        /// The log position at which the log ends after the cut.
        from: Lsn,
        /// The log position at which the cut-off part ended, as far as the recovery can see it; `from` if it
        /// cannot see that.
        to: Lsn,
    },
    /// Bytes of the log that were durable cannot be read, so acknowledged records are lost. The log does not
    /// open.
    Damaged {
        /// The first unreadable log position: the scan stopped there.
        from: Lsn,
        /// The log position up to which the log was durable, as headers or the next segment show. Records up
        /// to there may be lost.
        durable: Lsn,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean"),
            Self::Torn { at, to } => {
                write!(f, "torn: cut at {at}; {at}..{to} was never durable")
            }
            Self::MaybeAcked { from, to } => {
                write!(f, "cut at {from}; {from}..{to} may have been acked")
            }
            Self::Damaged { from, durable } => write!(
                f,
                "damaged: the entry at {from} was durable and cannot be read; the log was durable up to {durable}"
            ),
        }
    }
}

/// A segment that a recovery reads: all bytes of the segment's file, with its header.
#[derive(Clone, Copy)]
pub(crate) struct SegmentBytes<'a> {
    pub(crate) header: SegmentHeader,
    pub(crate) seed: Seed,
    pub(crate) bytes: &'a [u8],
}

/// The result of the scan of a segment's bytes, from which an opening knows where the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The log position at which the scan stopped: the end of the last of the whole batches at the segment's
    /// front.
    pub(crate) end: Lsn,
    /// The highest epoch of all readable batch headers in the segment. The next opening must take a higher
    /// one.
    pub(crate) epoch: u32,
    /// True if a marker behind the last whole batch says that the log was closed in order.
    pub(crate) closed: bool,
    pub(crate) verdict: Verdict,
}

impl<'a> SegmentBytes<'a> {
    pub(crate) fn new(header: SegmentHeader, bytes: &'a [u8]) -> Self {
        Self {
            header,
            seed: header.seed(),
            bytes,
        }
    }

    /// Reads the segment from its front up to the first batch that is not whole, calls `each` with every
    /// record in order, and judges the rest of the segment. `followed` is the position at which the next
    /// segment begins, if there is one.
    pub(crate) fn scan(&self, followed: Option<Lsn>, mut each: impl FnMut(RecordInfo)) -> Scanned {
        let (mut end, mut epoch, mut synced) = (self.header.base, 0, Lsn::ZERO);
        let mut entries = Vec::new();
        let marker = loop {
            let Some(header) = self.header_at(end).filter(|h| h.epoch >= epoch) else {
                break None;
            };
            if header.kind != BatchKind::Records {
                break Some(header);
            }
            entries.clear();
            if !self.records(&header, |entry| entries.push(entry)) {
                break None;
            }
            (epoch, synced) = (header.epoch, synced.max(header.synced));
            entries.drain(..).for_each(&mut each);
            end = header.end();
        };
        let beyond = self.look_beyond(end, epoch);
        let durable = synced.max(beyond.synced).max(followed.unwrap_or(Lsn::ZERO));
        let verdict = if durable > end {
            Verdict::Damaged { from: end, durable }
        } else if marker.is_some() || followed == Some(end) {
            Verdict::Clean
        } else {
            self.judge_tail(end, epoch, beyond.end)
        };
        Scanned {
            end,
            epoch: beyond.epoch.max(epoch),
            closed: marker.is_some_and(|m| m.kind == BatchKind::Closed),
            verdict,
        }
    }

    fn judge_tail(&self, end: Lsn, epoch: u32, seen: Option<Lsn>) -> Verdict {
        let to = seen.unwrap_or(end);
        let at = offset(self.header.base, end);
        let slot = usize::try_from(at)
            .ok()
            .and_then(|at| self.bytes.get(at..at + BATCH_HEADER));
        let blank = slot.is_some_and(|slot| slot.iter().all(|&b| b == 0));
        let stale = self.header_at(end).is_some_and(|h| h.epoch < epoch);
        // A segment's file has its whole length before the log first writes to it, so a shorter file has
        // lost its end, and the loss may include durable batches.
        let whole = self.bytes.len() as u64 >= self.header.bytes;
        match (blank || stale) && whole {
            true if seen.is_none() => Verdict::Clean,
            true => Verdict::Torn { at: end, to },
            false => Verdict::MaybeAcked { from: end, to },
        }
    }

    /// Decodes the batch header at position `at`, without the batch's records. Returns `None` if this
    /// position has no readable header of this segment.
    fn header_at(&self, at: Lsn) -> Option<BatchHeader> {
        let from = usize::try_from(offset(self.header.base, at)).ok()?;
        let header = BatchHeader::decode(self.bytes.get(from..)?, self.seed, at)?;
        (header.segment == self.header.segment).then_some(header)
    }

    /// Calls `each` with the records of the batch that has this header. Returns whether the whole batch is
    /// intact. For a damaged batch, the function may have called `each` with some of its records.
    fn records(&self, header: &BatchHeader, mut each: impl FnMut(RecordInfo)) -> bool {
        let (mut at, mut left) = (header.lsn.after(BATCH_HEADER as u64), header.records);
        let end = header.end();
        while at < end && left > 0 {
            let record = self.record_at(at, end);
            let Some(record) = record.filter(|r| r.epoch == header.epoch & EPOCH_MASK) else {
                return false;
            };
            each(RecordInfo::new(at, &record));
            at = at.after(record.stored() as u64);
            left -= 1;
        }
        at == end && left == 0
    }

    fn record_at(&self, at: Lsn, end: Lsn) -> Option<RecordHeader> {
        let from = usize::try_from(offset(self.header.base, at)).ok()?;
        let to = usize::try_from(offset(self.header.base, end)).ok()?;
        RecordHeader::decode(self.bytes.get(from..to)?, self.seed, at)
    }

    /// Searches the segment from `end` on for batch headers of this epoch or a later one, because they show
    /// whether durable batches are missing before them. Returns the highest position that these headers name
    /// as durable, their highest epoch, and the end of the last of their batches.
    fn look_beyond(&self, end: Lsn, epoch: u32) -> Beyond {
        let mut beyond = Beyond::default();
        let mut at = end;
        while let Some(header) = self.next_header(at, epoch) {
            beyond.synced = beyond.synced.max(header.synced);
            beyond.epoch = beyond.epoch.max(header.epoch);
            if header.kind == BatchKind::Records {
                beyond.end = beyond.end.max(Some(header.end()));
            }
            at = header.lsn.after(ALIGN as u64);
        }
        beyond
    }

    /// Returns the first batch header at log position `from` or behind it that has this epoch or a later
    /// epoch. Headers of earlier epochs are leftovers of a crash.
    fn next_header(&self, from: Lsn, epoch: u32) -> Option<BatchHeader> {
        let from = usize::try_from(offset(self.header.base, from)).ok()?;
        let steps = self.bytes.get(from..)?.chunks_exact(ALIGN).enumerate();
        steps
            .filter(|(_, step)| u32_at(step, 0) == BATCH_MAGIC)
            .map(|(n, _)| lsn_at(self.header.base, (from + n * ALIGN) as u64))
            .find_map(|at| self.header_at(at).filter(|h| h.epoch >= epoch))
    }

    /// Surveys the segment up to `until` for a repair or a report of damage: lists all records that can be
    /// read, and the lost parts between them.
    pub(crate) fn survey(&self, until: Lsn) -> Survey {
        let mut survey = Survey::default();
        let until = until.min(lsn_at(self.header.base, self.header.bytes));
        let (mut at, mut epoch) = (self.header.base, 0);
        while at < until {
            let header = self.header_at(at).filter(|h| h.epoch >= epoch);
            let mut entries = Vec::new();
            match header {
                Some(h) if h.kind != BatchKind::Records => {}
                Some(h) if h.end() <= until && self.records(&h, |e| entries.push(e)) => {
                    survey.entries.append(&mut entries);
                    (at, epoch) = (h.end(), h.epoch);
                    continue;
                }
                _ => {}
            }
            // An intact batch header says where the next batch begins. Without an intact header, the survey
            // searches for the next one.
            let body = at.after(BATCH_HEADER as u64);
            let next = match header {
                Some(h) if h.kind == BatchKind::Records && h.end() <= until => h.end(),
                _ => self
                    .next_header(body, epoch)
                    .map_or(until, |h| h.lsn.min(until)),
            };
            let mut region = self.salvage(at, next.max(body.min(until)));
            region.epoch = header.map_or(epoch, |h| h.epoch);
            survey
                .entries
                .extend(region.pieces.iter().filter_map(Piece::entry));
            survey
                .lost
                .extend(region.pieces.iter().filter_map(Piece::lost));
            at = region.to;
            survey.regions.push(region);
        }
        survey
    }

    /// Finds the records that a repair can keep, and the lost parts, between `from`, the beginning of a
    /// damaged batch, and `to`, the beginning of the next batch with an intact header.
    fn salvage(&self, from: Lsn, to: Lsn) -> Region {
        let mut region = Region {
            from,
            to,
            epoch: 0,
            pieces: Vec::new(),
        };
        // Any eight bytes may look like the beginning of a record of any length. The budget, in bytes, bounds
        // the attempts to decode a record, so that hostile bytes cannot make the salvage run forever.
        let mut budget = to.since(from).saturating_mul(16);
        let (mut at, mut lost) = (from.after(BATCH_HEADER as u64), None::<Lsn>);
        // A repair writes one placeholder record in place of each lost part, so a lost part must have room
        // for a record's header.
        let roomy = |from: Lsn, to: Lsn| to.since(from) >= RECORD_HEADER as u64;
        while roomy(at, to) {
            let record = self.try_record(at, to, &mut budget);
            match record.filter(|_| lost.is_none_or(|from| roomy(from, at))) {
                Some(record) => {
                    if let Some(from) = lost.take() {
                        region.pieces.push(Piece::Lost(from, at));
                    }
                    region
                        .pieces
                        .push(Piece::Kept(RecordInfo::new(at, &record)));
                    at = at.after(record.stored() as u64);
                }
                None => {
                    lost.get_or_insert(at);
                    at = at.after(ALIGN as u64);
                }
            }
        }
        let Some(mut from) = lost.or_else(|| (at < to).then_some(at)) else {
            return region;
        };
        while !roomy(from, to) {
            match region.pieces.pop() {
                Some(Piece::Kept(entry)) => from = entry.lsn,
                Some(Piece::Lost(lost, _)) => from = lost,
                None => break,
            }
        }
        region.pieces.push(Piece::Lost(from, to));
        region
    }

    fn try_record(&self, at: Lsn, to: Lsn, budget: &mut u64) -> Option<RecordHeader> {
        let from = usize::try_from(offset(self.header.base, at)).ok()?;
        let claimed = RecordHeader::peek(self.bytes.get(from..)?)?.stored() as u64;
        if at.after(claimed) > to || claimed > *budget {
            return None;
        }
        *budget -= claimed;
        self.record_at(at, to)
    }
}

#[derive(Default)]
struct Beyond {
    synced: Lsn,
    epoch: u32,
    end: Option<Lsn>,
}

/// The result of a survey of a damaged segment: the records that can be read, and the parts that cannot.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) entries: Vec<RecordInfo>,
    /// The log positions at which each lost part begins and ends, in order, for the report of the damage.
    pub(crate) lost: Vec<(Lsn, Lsn)>,
    /// The regions of the segment in which a batch is not whole. A repair mends each of them.
    pub(crate) regions: Vec<Region>,
}

/// A region of a segment with a damaged batch: from the beginning of that batch to the beginning of the next
/// batch with an intact header.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
    /// The epoch of the damaged batch. If the batch's header cannot be read, the region has the epoch of the
    /// batch before: with a higher epoch, a recovery would take later batches for leftovers of an earlier
    /// opening.
    epoch: u32,
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a damaged region: a readable record, which a repair keeps, or a lost part between two log
/// positions.
#[derive(Debug)]
pub(crate) enum Piece {
    Kept(RecordInfo),
    Lost(Lsn, Lsn),
}

impl Piece {
    const fn entry(&self) -> Option<RecordInfo> {
        match self {
            Self::Kept(entry) => Some(*entry),
            Self::Lost(..) => None,
        }
    }

    const fn lost(&self) -> Option<(Lsn, Lsn)> {
        match self {
            Self::Lost(from, to) => Some((*from, *to)),
            Self::Kept(_) => None,
        }
    }
}

impl Region {
    /// Makes one whole batch from the region, so that the log opens again: readable records stay at their
    /// positions, and a record of the kind [`KIND_LOST`] takes the place of each lost part. Returns `None`
    /// if the region has no room for a batch; no damage to a valid log makes so small a region.
    pub(crate) fn mend(&self, segment: &SegmentBytes<'_>, synced: Lsn) -> Option<Vec<u8>> {
        let base = segment.header.base;
        let body = (self.to.since(self.from) as usize).checked_sub(BATCH_HEADER)?;
        if body < RECORD_HEADER {
            return None;
        }
        let header = BatchHeader {
            segment: segment.header.segment,
            lsn: self.from,
            synced,
            bytes: body as u32,
            records: self.pieces.len() as u32,
            epoch: self.epoch,
            kind: BatchKind::Records,
        };
        let mut out = header.encode(segment.seed).to_vec();
        for piece in &self.pieces {
            match piece {
                Piece::Kept(info) => {
                    let from = offset(base, info.lsn) as usize + RECORD_HEADER;
                    let payload = &segment.bytes[from..from + info.len as usize];
                    self.header(info)
                        .append(segment.seed, info.lsn, payload, &mut out);
                }
                Piece::Lost(from, to) => {
                    let room = (to.since(*from) as usize).checked_sub(RECORD_HEADER)?;
                    let zeros = vec![0; room];
                    let info = RecordInfo {
                        lsn: *from,
                        group: u32::MAX,
                        kind: KIND_LOST,
                        index: 0,
                        term: 0,
                        len: room as u32,
                    };
                    self.header(&info)
                        .append(segment.seed, *from, &zeros, &mut out);
                }
            }
        }
        Some(out)
    }

    /// Makes the header of a kept record in the mended batch. All records of that batch get its epoch.
    const fn header(&self, info: &RecordInfo) -> RecordHeader {
        RecordHeader {
            len: info.len,
            group: info.group,
            kind: info.kind,
            epoch: self.epoch & EPOCH_MASK,
            index: info.index,
            term: info.term,
        }
    }
}

#[cfg(test)]
mod tests;
