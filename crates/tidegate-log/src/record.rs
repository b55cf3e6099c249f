//! The record: the log's unit, and its bytes.
//!
//! ```text
//! 0      4      8       12     13      16      24     32        32+len   aligned to 8
//! | crc  | len  | group | kind | epoch | index | term | payload | zeros  |
//! ```
//!
//! The CRC32C covers everything after itself, up to the padding's end. Its initial value comes
//! from fields that are not written: the segment's salt and number and the record's position.
//! So bytes of another segment, or of another place in this one, never match. The epoch is the
//! lower three bytes of the batch's epoch: it separates a record of an earlier life of the
//! log, left at the same place in a batch that was cut off, from the batch written over it
//! that was itself torn. `batch` describes the header a batch adds to its records.

use bytes::Bytes;

use crate::Lsn;
use crate::wire::{ALIGN, align, u32_at, u64_at};

/// Bytes before the payload.
pub(crate) const RECORD_HEADER: usize = 32;

/// The kind of a record that stands for lost bytes: only a repair writes it, and no append may use it.
pub const KIND_LOST: u8 = 0xff;

/// The unit that the log stores. The log reads only the payload's length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The group the record belongs to, among those that share the log.
    pub group: u32,
    /// The kind of the record within its group. 255 is reserved for the log: it marks
    /// records that a repair could not save.
    pub kind: u8,
    /// The number that the group gives the record.
    pub index: u64,
    /// The term that the group gives the record.
    pub term: u64,
    /// The content of the record, for the group only.
    pub payload: Bytes,
}

impl Record {
    /// Returns the bytes that the record takes in the log: header, payload and padding.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        stored(self.payload.len()) as u64
    }
}

/// Returns the bytes a record with a payload of this length takes.
pub(crate) const fn stored(payload: usize) -> usize {
    RECORD_HEADER + align(payload)
}

/// The initial value of the CRCs of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(salt: u64, segment: u64) -> Self {
        let crc = crc32c::crc32c(&salt.to_le_bytes());
        Self(crc32c::crc32c_append(crc, &segment.to_le_bytes()))
    }

    /// Returns the initial value of the CRC of the bytes at `at`.
    pub(crate) fn at(self, at: Lsn) -> u32 {
        crc32c::crc32c_append(self.0, &at.get().to_le_bytes())
    }
}

/// A record's header as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) len: u32,
    pub(crate) group: u32,
    pub(crate) kind: u8,
    /// The lower three bytes of the batch's epoch.
    pub(crate) epoch: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// The bits of an epoch that a record stores.
pub(crate) const EPOCH_MASK: u32 = 0x00ff_ffff;

impl RecordHeader {
    pub(crate) fn of(record: &Record, epoch: u32) -> Self {
        Self {
            len: record.payload.len() as u32,
            group: record.group,
            kind: record.kind,
            epoch: epoch & EPOCH_MASK,
            index: record.index,
            term: record.term,
        }
    }

    /// Returns the header for `payload`; in the log, padding follows the payload.
    pub(crate) fn encode(&self, seed: Seed, at: Lsn, payload: &[u8]) -> [u8; RECORD_HEADER] {
        let mut out = self.unchecked();
        let crc = crc32c::crc32c_append(seed.at(at), &out[4..]);
        let crc = crc32c::crc32c_append(crc, payload);
        let padding = [0; ALIGN];
        let crc = crc32c::crc32c_append(crc, &padding[..align(payload.len()) - payload.len()]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Appends header, `payload` and padding to `out`. The header is that of [`encode`](Self::encode); the
    /// CRC takes one pass over the bytes.
    pub(crate) fn append(&self, seed: Seed, at: Lsn, payload: &[u8], out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.unchecked());
        out.extend_from_slice(payload);
        out.resize(from + self.stored(), 0);
        let crc = crc32c::crc32c_append(seed.at(at), &out[from + 4..]);
        out[from..from + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the header without its CRC.
    fn unchecked(&self) -> [u8; RECORD_HEADER] {
        let mut out = [0; RECORD_HEADER];
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..12].copy_from_slice(&self.group.to_le_bytes());
        out[12] = self.kind;
        out[13..16].copy_from_slice(&self.epoch.to_le_bytes()[..3]);
        out[16..24].copy_from_slice(&self.index.to_le_bytes());
        out[24..32].copy_from_slice(&self.term.to_le_bytes());
        out
    }

    /// Reads the header in `bytes` without checking it; `None` if they are too few.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= RECORD_HEADER).then(|| Self {
            len: u32_at(bytes, 4),
            group: u32_at(bytes, 8),
            kind: bytes[12],
            epoch: u32_at(bytes, 12) >> 8,
            index: u64_at(bytes, 16),
            term: u64_at(bytes, 24),
        })
    }

    /// Decodes the header of the record at the front of `bytes`, which stand at `at`;
    /// `None` if they are not a record.
    pub(crate) fn decode(bytes: &[u8], seed: Seed, at: Lsn) -> Option<Self> {
        let header = Self::peek(bytes)?;
        let stored = bytes.get(..header.stored())?;
        let crc = crc32c::crc32c_append(seed.at(at), &stored[4..]);
        (crc == u32_at(stored, 0)).then_some(header)
    }

    /// Returns the bytes the record takes in the log.
    pub(crate) const fn stored(&self) -> usize {
        stored(self.len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Record, Vec<u8>, Seed) {
        let record = Record {
            group: 7,
            kind: 3,
            index: 99,
            term: 4,
            payload: Bytes::from_static(b"hello"),
        };
        let seed = Seed::new(1, 2);
        let mut bytes = RecordHeader::of(&record, 1 << 24 | 9)
            .encode(seed, Lsn::new(64), &record.payload)
            .to_vec();
        bytes.extend_from_slice(b"hello\0\0\0");
        let mut appended = Vec::new();
        RecordHeader::of(&record, 1 << 24 | 9).append(seed, Lsn::new(64), b"hello", &mut appended);
        assert_eq!(appended, bytes);
        (record, bytes, seed)
    }

    #[test]
    fn a_record_comes_back_and_no_bit_may_differ() {
        let (record, mut bytes, seed) = sample();
        assert_eq!(bytes.len() as u64, record.stored_bytes());
        let header = RecordHeader::decode(&bytes, seed, Lsn::new(64));
        assert_eq!(header, Some(RecordHeader::of(&record, 1 << 24 | 9)));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                RecordHeader::decode(&bytes, seed, Lsn::new(64)),
                None,
                "bit {bit}"
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn it_counts_only_at_its_own_place_in_its_own_segment() {
        let (_, bytes, seed) = sample();
        assert_eq!(RecordHeader::decode(&bytes, seed, Lsn::new(72)), None);
        assert_eq!(
            RecordHeader::decode(&bytes, Seed::new(1, 3), Lsn::new(64)),
            None
        );
        assert_eq!(
            RecordHeader::decode(&bytes, Seed::new(2, 2), Lsn::new(64)),
            None
        );
        assert_eq!(RecordHeader::decode(&bytes[..39], seed, Lsn::new(64)), None);
    }
}
