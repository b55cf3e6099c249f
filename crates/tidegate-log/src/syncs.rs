//! The newest syncs of a log, so that an operator can ask why a record became durable when it did: for each
//! sync its end in the log, its start and duration, its callers, the reason of its cut, and the fitted costs
//! by which the controller decided. The module is pure: the log thread passes times and positions in.
//!
//! A sync takes 16 bytes, in chunks of [`CHUNK`] syncs that the module allocates as they fill. A chunk holds
//! the position and the time at which it begins; its syncs hold distances from these. The module keeps at
//! most [`SYNCS_MAX`] syncs and then drops the oldest chunk as a whole.
//!
//! | bits | field | unit |
//! | --- | --- | --- |
//! | 31 | the end in the log, from the chunk's position | 8 bytes, by which the log aligns its records |
//! | 36 | the start, from the chunk's time | 512 ns |
//! | 14 | the duration | nanoseconds, as [`pack`] rounds them |
//! | 14 | the callers that waited | a count, exact up to 512 |
//! | 14, 14 | the fitted cost of a sync, and of a byte | nanoseconds, as [`pack`] rounds them; 0 for no fit |
//! | 5 | the reason of the cut | the place in [`Reason::ALL`] |
//!
//! The bytes of a sync follow from its end and the end before it. A sync that lies too far from the beginning
//! of its chunk, after hours without a sync, begins a new chunk.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate::controller::Reason;

use crate::Lsn;

/// The most syncs in a chunk: 64 KiB, so that the log thread seldom allocates.
const CHUNK: usize = 4096;
/// The most syncs that the module keeps: 64 MiB. As the module drops a whole chunk at once, it always keeps
/// the newest four million.
const SYNCS_MAX: usize = 1024 * CHUNK;
/// The most chunks, which bounds the memory of chunks with few syncs.
const CHUNKS_MAX: usize = 16 * 1024;

/// The unit of positions, in bytes.
const POSITION_UNIT: u64 = 8;
/// The unit of start times, in nanoseconds.
const TIME_UNIT: u64 = 512;

const POSITION_BITS: u32 = 31;
const TIME_BITS: u32 = 36;
const NUMBER_BITS: u32 = 14;
const REASON_BITS: u32 = 5;

/// The exponents of the smallest numbers that the packed fields tell from 0: 2 to this power. A cost of a
/// byte is far below a nanosecond.
const WHOLE_EXPONENT: i32 = -1;
const SMALL_EXPONENT: i32 = -24;

const _: () = assert!(POSITION_BITS + TIME_BITS + 4 * NUMBER_BITS + REASON_BITS == u128::BITS);
const _: () = assert!(Reason::ALL.len() <= 1 << REASON_BITS);

/// One sync of a log, as the controller decided it and the disk carried it out. Its numbers are rounded to
/// three digits, its start to 512 ns. Times are those of the log's clock ([`Log::now`](crate::Log::now)).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PastSync {
    /// The log position behind the batches of the sync before, at which the batches of this sync begin.
    pub begin: Lsn,
    /// The log position behind the batches of this sync.
    pub end: Lsn,
    /// The time at which the log began to write the batches.
    pub started: Time,
    /// The time that the write and the sync took, in nanoseconds.
    pub took_ns: u64,
    /// The number of callers that waited for the batches.
    pub callers: u64,
    /// The reason for which the batches went together.
    pub reason: Reason,
    /// The fitted costs at the start of the sync, in nanoseconds: of a sync, and of each of its bytes. `None`
    /// if the controller had no fit yet.
    pub fit: Option<(f64, f64)>,
}

/// The sync that covered a position of the log, or the reason why the log cannot name it; the result of
/// [`Log::sync_of`](crate::Log::sync_of).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SyncOf {
    /// This sync covered the position. The time is the end of the sync before it, if the log knows that one.
    Sync(PastSync, Option<Time>),
    /// The position was durable when this process opened the log.
    Earlier,
    /// The log has forgotten the sync. The oldest sync that it keeps started at this time.
    Forgotten(Time),
    /// No sync has covered the position yet.
    Later,
}

/// The newest syncs of a log, see the [module](self).
#[derive(Debug)]
pub(crate) struct Syncs {
    /// The position up to which the log was durable at its opening.
    opened: Lsn,
    chunks: VecDeque<Chunk>,
    /// The number of syncs in all chunks.
    len: usize,
    most: usize,
}

#[derive(Debug)]
struct Chunk {
    /// The position at which the batches of the chunk's first sync begin.
    base: Lsn,
    /// The start of the chunk's first sync.
    since: Time,
    syncs: Vec<u128>,
}

impl Syncs {
    /// Creates an empty list for a log that is durable up to `opened`.
    pub(crate) const fn new(opened: Lsn) -> Self {
        Self::with_most(opened, SYNCS_MAX)
    }

    const fn with_most(opened: Lsn, most: usize) -> Self {
        Self {
            opened,
            chunks: VecDeque::new(),
            len: 0,
            most,
        }
    }

    /// Returns the position behind the newest sync, or the durable position of the opening.
    fn end(&self) -> Lsn {
        self.chunks.back().map_or(self.opened, Chunk::end)
    }

    /// Adds a sync that began where the one before ended: `sync.begin` counts for nothing.
    pub(crate) fn append(&mut self, sync: &PastSync) {
        let last = self.chunks.back();
        let fits = last.filter(|c| c.syncs.len() < CHUNK);
        let mut bits = fits.and_then(|c| c.encode(sync));
        if bits.is_none() {
            self.begin_chunk(self.end(), sync.started);
            // The log bounds the bytes of a sync far below the 16 GiB of a chunk, so the sync fits now.
            bits = self.chunks.back().and_then(|c| c.encode(sync));
        }
        if let (Some(bits), Some(chunk)) = (bits, self.chunks.back_mut()) {
            chunk.syncs.push(bits);
            self.len += 1;
        }
    }

    /// Begins a chunk, and drops the oldest ones if the list is full.
    fn begin_chunk(&mut self, base: Lsn, since: Time) {
        let mut syncs = Vec::new();
        while self.len + CHUNK.min(self.most) > self.most || self.chunks.len() >= CHUNKS_MAX {
            let Some(oldest) = self.chunks.pop_front() else {
                break;
            };
            self.len -= oldest.syncs.len();
            // The new chunk takes over the memory of the old one.
            syncs = oldest.syncs;
            syncs.clear();
        }
        if let Some(last) = self.chunks.back_mut() {
            last.syncs.shrink_to_fit();
        }
        self.chunks.push_back(Chunk { base, since, syncs });
    }

    /// Finds the sync that covered the record or batch at position `lsn`.
    pub(crate) fn find(&self, lsn: Lsn) -> SyncOf {
        if lsn < self.opened {
            return SyncOf::Earlier;
        }
        if lsn >= self.end() {
            return SyncOf::Later;
        }
        let behind = self.chunks.partition_point(|c| c.base <= lsn);
        let Some(at) = behind.checked_sub(1) else {
            let oldest = self.chunks.front();
            return oldest.map_or(SyncOf::Later, |c| SyncOf::Forgotten(c.since));
        };
        let chunk = &self.chunks[at];
        let distance = lsn.since(chunk.base) / POSITION_UNIT;
        let place = chunk.syncs.partition_point(|s| position(*s) <= distance);
        if place == chunk.syncs.len() {
            return SyncOf::Later;
        }
        let before = match place.checked_sub(1) {
            Some(before) => Some(chunk.decode(before)),
            None => at.checked_sub(1).and_then(|at| self.chunks[at].last()),
        };
        let ended = before.map(|s| Time::from_nanos(s.started.as_nanos() + s.took_ns));
        SyncOf::Sync(chunk.decode(place), ended)
    }
}

impl Chunk {
    fn end(&self) -> Lsn {
        let last = self.syncs.last().map_or(0, |s| position(*s));
        self.base.after(last * POSITION_UNIT)
    }

    fn last(&self) -> Option<PastSync> {
        Some(self.decode(self.syncs.len().checked_sub(1)?))
    }

    /// Encodes a sync with distances from the chunk's beginning; `None` if it lies too far from there.
    fn encode(&self, sync: &PastSync) -> Option<u128> {
        let end = sync.end.since(self.base) / POSITION_UNIT;
        let start = sync.started.since(self.since) / TIME_UNIT;
        if end >> POSITION_BITS > 0 || start >> TIME_BITS > 0 {
            return None;
        }
        let (a, b) = sync.fit.unwrap_or_default();
        let mut bits = u128::from(end);
        let mut add = |value: u64, width| bits = bits << width | u128::from(value);
        add(start, TIME_BITS);
        add(pack(sync.took_ns as f64, WHOLE_EXPONENT), NUMBER_BITS);
        add(pack(sync.callers as f64, WHOLE_EXPONENT), NUMBER_BITS);
        add(pack(a, WHOLE_EXPONENT), NUMBER_BITS);
        add(pack(b, SMALL_EXPONENT), NUMBER_BITS);
        add(sync.reason as u64, REASON_BITS);
        Some(bits)
    }

    fn decode(&self, at: usize) -> PastSync {
        let mut bits = self.syncs[at];
        let mut take = |width: u32| {
            let value = (bits & ((1 << width) - 1)) as u64;
            bits >>= width;
            value
        };
        let reason = Reason::ALL.get(take(REASON_BITS) as usize);
        let b = unpack(take(NUMBER_BITS), SMALL_EXPONENT);
        let a = unpack(take(NUMBER_BITS), WHOLE_EXPONENT);
        let callers = unpack(take(NUMBER_BITS), WHOLE_EXPONENT);
        let took = unpack(take(NUMBER_BITS), WHOLE_EXPONENT);
        let start = take(TIME_BITS);
        let begin = match at.checked_sub(1) {
            Some(before) => position(self.syncs[before]),
            None => 0,
        };
        PastSync {
            begin: self.base.after(begin * POSITION_UNIT),
            end: self.base.after(position(self.syncs[at]) * POSITION_UNIT),
            started: Time::from_nanos(self.since.as_nanos() + start * TIME_UNIT),
            took_ns: took.round() as u64,
            callers: callers.round() as u64,
            reason: reason.copied().unwrap_or(Reason::Drained),
            fit: (a > 0.0 || b > 0.0).then_some((a, b)),
        }
    }
}

/// Returns the distance of a sync's end from the beginning of its chunk, in units of positions.
const fn position(sync: u128) -> u64 {
    (sync >> (u128::BITS - POSITION_BITS)) as u64
}

/// The bits of a packed number behind its binary point. They keep the error below 0.2 %.
const FRACTION_BITS: u32 = 8;
const DROPPED_BITS: u32 = f32::MANTISSA_DIGITS - 1 - FRACTION_BITS;

/// Packs a number into 14 bits as its 32-bit floating-point number with fewer bits: 6 for the exponent from
/// `exponent` on, and 8 for the fraction. A smaller number becomes 0, a greater one the greatest.
fn pack(number: f64, exponent: i32) -> u64 {
    let bits = (number as f32).max(0.0).to_bits();
    let rounded = (bits + (1 << (DROPPED_BITS - 1))) >> DROPPED_BITS;
    u64::from(rounded.saturating_sub(lowest(exponent))).min((1 << NUMBER_BITS) - 1)
}

fn unpack(packed: u64, exponent: i32) -> f64 {
    match packed as u32 {
        0 => 0.0,
        packed => f64::from(f32::from_bits((packed + lowest(exponent)) << DROPPED_BITS)),
    }
}

/// Returns the rounded bits of the number that packs to 0: 2 to the power of `exponent`.
const fn lowest(exponent: i32) -> u32 {
    ((exponent + f32::MAX_EXP - 1) as u32) << FRACTION_BITS
}

#[cfg(test)]
mod tests;
