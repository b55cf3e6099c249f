//! The index of a sealed segment: a list of the segment's records and their positions, so that an opening of
//! the log need not read the records themselves.
//!
//! The index stands behind the segment's last batch. The last 64 bytes of the file are the index's trailer:
//! magic, crc, segment, base, end (the position after the last batch), index offset, index bytes, records,
//! epoch, index crc, 0. The index has one entry a record, in order: a byte of flags, then, as varints, those
//! values that differ from the expected ones.
//!
//! | bit | value | if the bit is set | if it is not set |
//! | --- | --- | --- | --- |
//! | 1 | position | a batch header stands before the record | it follows the record before directly |
//! | 2 | group | the entry holds it | the group of the record before; 0 for the segment's first record |
//! | 4 | index | the entry holds it | the group's last index in this segment, plus 1; 1 for its first |
//! | 8 | term | the entry holds it | the group's last term in this segment; 0 for its first record |
//! | 16 | kind | the entry holds it | the kind of the record before; 0 for the segment's first record |
//!
//! Every entry ends with the payload's length in bytes. An entry takes about five bytes.

use std::collections::HashMap;

use crate::Lsn;
use crate::batch::BATCH_HEADER;
use crate::record::{RecordHeader, Seed};
use crate::wire::{put_varint, take_varint, u32_at, u64_at};

pub(crate) const TRAILER: usize = 64;
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"TgF1");

const BATCH: u8 = 1;
const GROUP: u8 = 2;
const INDEX: u8 = 4;
const TERM: u8 = 8;
const KIND: u8 = 16;

/// The entry of one record in the index of a segment: the record's position and header, without the payload.
/// From the entries, a user of the log learns where its records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// The log position of the record. [`Reader::read`](crate::Reader::read) takes this position.
    pub lsn: Lsn,
    /// The number of the group to which the record belongs, among the groups that share the log.
    pub group: u32,
    /// The kind of the record. The appending caller chose it, to tell the records of a group apart; 255
    /// marks a lost record.
    pub kind: u8,
    /// The record's number in its group, by which the group finds the record. The appending caller chose the
    /// number.
    pub index: u64,
    /// The Raft term in which the group made the record. The appending caller chose the term; the log only
    /// stores it.
    pub term: u64,
    /// The length of the record's payload in bytes. With it, [`Reader::read`](crate::Reader::read) needs
    /// only one read of the disk.
    pub len: u32,
}

impl RecordInfo {
    pub(crate) const fn new(lsn: Lsn, header: &RecordHeader) -> Self {
        Self {
            lsn,
            group: header.group,
            kind: header.kind,
            index: header.index,
            term: header.term,
            len: header.len,
        }
    }

    /// Returns the number of bytes that the record takes in the log: header, payload and padding. A
    /// compaction sums them up, to find segments with few needed records.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        crate::record::stored(self.len as usize) as u64
    }
}

/// The values that encoder and decoder of a segment's index both expect in the next entry. An entry stores
/// only the values that differ from the expected ones, so that the index stays small.
#[derive(Clone, Debug, Default)]
struct Expected {
    kind: u8,
    group: u32,
    /// The index and term of the entry before the next one; `others` keeps the last index and term of each
    /// other group.
    last: (u64, u64),
    others: HashMap<u32, (u64, u64)>,
}

impl Expected {
    fn of(&self, group: u32) -> (u64, u64) {
        let (index, term) = match group == self.group {
            true => self.last,
            false => self.others.get(&group).copied().unwrap_or((0, 0)),
        };
        (index.wrapping_add(1), term)
    }

    fn saw(&mut self, entry: &RecordInfo) {
        if entry.group != self.group {
            self.others.insert(self.group, self.last);
        }
        (self.group, self.kind) = (entry.group, entry.kind);
        self.last = (entry.index, entry.term);
    }
}

/// Builds the index of the segment to which the log is writing, one entry for each record, until the writer
/// seals the segment with it.
#[derive(Clone, Debug)]
pub(crate) struct IndexBuilder {
    bytes: Vec<u8>,
    records: u64,
    next: Lsn,
    expected: Expected,
}

impl IndexBuilder {
    pub(crate) fn new(base: Lsn) -> Self {
        Self {
            bytes: Vec::new(),
            records: 0,
            next: base,
            expected: Expected::default(),
        }
    }

    /// Adds the entry of the next record of the segment. The record must follow the record before it
    /// directly, or with one batch header between them, because an entry stores no position.
    pub(crate) fn push(&mut self, entry: &RecordInfo) {
        let (index, term) = self.expected.of(entry.group);
        let mut flags = 0;
        let mut flag = |differs: bool, flag| flags |= if differs { flag } else { 0 };
        flag(entry.lsn != self.next, BATCH);
        flag(entry.group != self.expected.group, GROUP);
        flag(entry.index != index, INDEX);
        flag(entry.term != term, TERM);
        flag(entry.kind != self.expected.kind, KIND);
        self.bytes.push(flags);
        for (flag, value) in [
            (GROUP, u64::from(entry.group)),
            (INDEX, entry.index),
            (TERM, entry.term),
            (KIND, u64::from(entry.kind)),
        ] {
            if flags & flag != 0 {
                put_varint(&mut self.bytes, value);
            }
        }
        put_varint(&mut self.bytes, u64::from(entry.len));
        self.records += 1;
        self.next = entry.lsn.after(entry.stored_bytes());
        self.expected.saw(entry);
    }

    pub(crate) const fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The trailer in the last bytes of a sealed segment's file. From the trailer, an opening learns where the
/// index stands, where the segment ends and how many records it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) segment: u64,
    pub(crate) base: Lsn,
    pub(crate) end: Lsn,
    pub(crate) index_offset: u64,
    pub(crate) index_bytes: u32,
    pub(crate) records: u32,
    pub(crate) epoch: u32,
    pub(crate) index_crc: u32,
}

impl Trailer {
    pub(crate) fn encode(&self, seed: Seed) -> [u8; TRAILER] {
        let mut out = [0; TRAILER];
        out[..4].copy_from_slice(&TRAILER_MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&self.segment.to_le_bytes());
        out[16..24].copy_from_slice(&self.base.get().to_le_bytes());
        out[24..32].copy_from_slice(&self.end.get().to_le_bytes());
        out[32..40].copy_from_slice(&self.index_offset.to_le_bytes());
        out[40..44].copy_from_slice(&self.index_bytes.to_le_bytes());
        out[44..48].copy_from_slice(&self.records.to_le_bytes());
        out[48..52].copy_from_slice(&self.epoch.to_le_bytes());
        out[52..56].copy_from_slice(&self.index_crc.to_le_bytes());
        let crc = crc32c::crc32c_append(seed.at(Lsn::new(self.segment)), &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8], seed: Seed, segment: u64, base: Lsn) -> Option<Self> {
        let bytes = bytes.get(..TRAILER)?;
        let crc = crc32c::crc32c_append(seed.at(Lsn::new(segment)), &bytes[8..]);
        if u32_at(bytes, 0) != TRAILER_MAGIC || u32_at(bytes, 4) != crc {
            return None;
        }
        let trailer = Self {
            segment: u64_at(bytes, 8),
            base: Lsn::new(u64_at(bytes, 16)),
            end: Lsn::new(u64_at(bytes, 24)),
            index_offset: u64_at(bytes, 32),
            index_bytes: u32_at(bytes, 40),
            records: u32_at(bytes, 44),
            epoch: u32_at(bytes, 48),
            index_crc: u32_at(bytes, 52),
        };
        (trailer.segment == segment && trailer.base == base && trailer.end >= base)
            .then_some(trailer)
    }

    /// Decodes `index`, the index that this trailer describes, and calls `each` with every entry in order,
    /// so that an opening need not read the records. Returns `None` if `index` is damaged; the function may
    /// have called `each` with some entries before it found the damage.
    pub(crate) fn entries(&self, index: &[u8], mut each: impl FnMut(RecordInfo)) -> Option<()> {
        if index.len() != self.index_bytes as usize || crc32c::crc32c(index) != self.index_crc {
            return None;
        }
        let (mut rest, mut next, mut expected) = (index, self.base, Expected::default());
        for _ in 0..self.records {
            let entry = take_info(&mut rest, next, &expected)?;
            next = entry.lsn.after(entry.stored_bytes());
            expected.saw(&entry);
            each(entry);
        }
        (rest.is_empty() && next <= self.end).then_some(())
    }
}

fn take_info(rest: &mut &[u8], next: Lsn, expected: &Expected) -> Option<RecordInfo> {
    let (&flags, after) = rest.split_first()?;
    *rest = after;
    let mut field = |flag| match flags & flag {
        0 => Some(None),
        _ => take_varint(rest).map(Some),
    };
    let group = match field(GROUP)? {
        Some(group) => u32::try_from(group).ok()?,
        None => expected.group,
    };
    let (index, term) = expected.of(group);
    let index = field(INDEX)?.unwrap_or(index);
    let term = field(TERM)?.unwrap_or(term);
    let kind = match field(KIND)? {
        Some(kind) => u8::try_from(kind).ok()?,
        None => expected.kind,
    };
    let len = u32::try_from(take_varint(rest)?).ok()?;
    let header = if flags & BATCH != 0 {
        BATCH_HEADER as u64
    } else {
        0
    };
    Some(RecordInfo {
        lsn: next.after(header),
        group,
        kind,
        index,
        term,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<RecordInfo>, IndexBuilder, Trailer) {
        let base = Lsn::new(1 << 20);
        let mut builder = IndexBuilder::new(base);
        let (mut entries, mut at) = (Vec::new(), base);
        for n in 0..200u64 {
            if n % 3 == 0 {
                at = at.after(BATCH_HEADER as u64);
            }
            let entry = RecordInfo {
                lsn: at,
                group: (n % 4) as u32,
                kind: u8::from(n % 50 == 0),
                index: if n == 100 { 1 } else { 1000 + n / 4 },
                term: n / 90,
                len: (n * 37 % 500) as u32,
            };
            at = at.after(entry.stored_bytes());
            builder.push(&entry);
            entries.push(entry);
        }
        let trailer = Trailer {
            segment: 1,
            base,
            end: at,
            index_offset: 0,
            index_bytes: builder.bytes().len() as u32,
            records: builder.records() as u32,
            epoch: 1,
            index_crc: crc32c::crc32c(builder.bytes()),
        };
        (entries, builder, trailer)
    }

    #[test]
    fn entries_come_back_in_a_few_bytes_each() {
        let (entries, builder, trailer) = sample();
        let mut back = Vec::new();
        assert_eq!(trailer.entries(builder.bytes(), |e| back.push(e)), Some(()));
        assert_eq!(back, entries);
        assert!(builder.bytes().len() < entries.len() * 6);
        let seed = Seed::new(1, 1);
        let bytes = trailer.encode(seed);
        assert_eq!(
            Trailer::decode(&bytes, seed, 1, trailer.base),
            Some(trailer)
        );
        assert_eq!(Trailer::decode(&bytes, seed, 1, Lsn::ZERO), None);
    }

    #[test]
    fn an_index_with_any_other_bit_or_without_its_end_is_refused() {
        let (_, builder, trailer) = sample();
        let mut bytes = builder.bytes().to_vec();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(trailer.entries(&bytes, |_| {}), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(trailer.entries(&bytes[..bytes.len() - 1], |_| {}), None);
    }
}
