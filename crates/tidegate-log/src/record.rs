//! The byte format of a record, the log's unit.
//!
//! ```text
//! 0      4      8       12     13      16      24     32        32+len   aligned to 8
//! | crc  | len  | group | kind | epoch | index | term | payload | zeros  |
//! ```
//!
//! The CRC32C covers all bytes behind it, up to the end of the padding. Its initial value comes from data
//! that the record does not store: the segment's salt and number, and the record's position. So the recovery
//! never takes bytes of another segment, or of another place in the same segment, for a record. The epoch is
//! the lower three bytes of the batch's epoch. By the epoch, the recovery tells the records of a torn batch
//! from older records that stand where the torn write did not reach. `batch` describes the header that a
//! batch adds to its records.

use bytes::Bytes;

use crate::Lsn;
use crate::wire::{ALIGN, align, u32_at, u64_at};

/// The length of the header that the log stores in front of a record's payload, in bytes.
pub(crate) const RECORD_HEADER: usize = 32;

/// The kind of a placeholder record. A repair puts such a record in place of lost bytes, so that the records
/// behind them keep their positions. No append may use this kind.
pub const KIND_LOST: u8 = 0xff;

/// A record, the unit that the log stores. The log stores the payload without interpreting it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of the group to which the record belongs, among the groups that share the log.
    pub group: u32,
    /// The kind of the record, by which the group tells its records apart. Kind 255 is reserved for the log:
    /// it marks records that a repair could not save.
    pub kind: u8,
    /// The record's number in its group, by which the group finds the record. The appending caller chooses
    /// the number.
    pub index: u64,
    /// The Raft term in which the group made the record. The appending caller chooses the term; the log only
    /// stores it.
    pub term: u64,
    /// The content of the record. Only the group interprets the content.
    pub payload: Bytes,
}

impl Record {
    /// Returns the number of bytes that the record takes in the log: header, payload and padding. Callers
    /// sum up these numbers to know the size of a batch.
    #[must_use]
    pub const fn stored_bytes(&self) -> u64 {
        stored(self.payload.len()) as u64
    }
}

/// Returns the number of bytes that a record with a payload of this length takes in the log, with header and
/// padding.
pub(crate) const fn stored(payload: usize) -> usize {
    RECORD_HEADER + align(payload)
}

/// The part of a CRC's initial value that all records and batch headers of one segment have in common: the
/// segment's salt and number go into it, so that bytes of another segment do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(salt: u64, segment: u64) -> Self {
        let crc = crc32c::crc32c(&salt.to_le_bytes());
        Self(crc32c::crc32c_append(crc, &segment.to_le_bytes()))
    }

    /// Returns the initial value for the CRC of the record or batch header at log position `at`, so that the
    /// CRC matches only there.
    pub(crate) fn at(self, at: Lsn) -> u32 {
        crc32c::crc32c_append(self.0, &at.get().to_le_bytes())
    }
}

/// The header of a record. The log stores it in front of the record's payload, so that a reader can check
/// and identify the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) len: u32,
    pub(crate) group: u32,
    pub(crate) kind: u8,
    /// The lower three bytes of the epoch of the batch that holds the record, for the recovery of a torn
    /// batch.
    pub(crate) epoch: u32,
    pub(crate) index: u64,
    pub(crate) term: u64,
}

/// The mask of the bits of a batch's epoch that a record stores: the lower three bytes, because a record's
/// header has no room for all four.
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

    /// Encodes the header of a record with this payload, at position `at`. The CRC covers the header, the
    /// payload, and the padding that follows in the log.
    pub(crate) fn encode(&self, seed: Seed, at: Lsn, payload: &[u8]) -> [u8; RECORD_HEADER] {
        let mut out = self.unchecked();
        let crc = crc32c::crc32c_append(seed.at(at), &out[4..]);
        let crc = crc32c::crc32c_append(crc, payload);
        let padding = [0; ALIGN];
        let crc = crc32c::crc32c_append(crc, &padding[..align(payload.len()) - payload.len()]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Appends the bytes of a whole record to `out`: the header that [`encode`](Self::encode) returns,
    /// `payload` and padding. Unlike `encode`, computes the CRC in one pass over these bytes.
    pub(crate) fn append(&self, seed: Seed, at: Lsn, payload: &[u8], out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(&self.unchecked());
        out.extend_from_slice(payload);
        out.resize(from + self.stored(), 0);
        let crc = crc32c::crc32c_append(seed.at(at), &out[from + 4..]);
        out[from..from + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the bytes of the header with zeros in place of its CRC, which the caller then computes and
    /// fills in.
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

    /// Reads the record header at the front of `bytes` without checking its CRC, to learn how many bytes the
    /// record claims. Returns `None` if `bytes` are shorter than a header.
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

    /// Decodes the header of the record at the front of `bytes`, which the log has at position `at`, and
    /// checks the CRC of the whole record. Returns `None` if `bytes` hold no intact record of this position.
    pub(crate) fn decode(bytes: &[u8], seed: Seed, at: Lsn) -> Option<Self> {
        let header = Self::peek(bytes)?;
        let stored = bytes.get(..header.stored())?;
        let crc = crc32c::crc32c_append(seed.at(at), &stored[4..]);
        (crc == u32_at(stored, 0)).then_some(header)
    }

    /// Returns the number of bytes that the record with this header takes in the log: header, payload and
    /// padding.
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
