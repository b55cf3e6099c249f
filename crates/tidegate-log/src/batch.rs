//! The byte format of a batch: the records of one append, which a recovery keeps or cuts off as a whole.
//!
//! ```text
//! 0       4     8         16     24       32      36        40      44      48
//! | magic | crc | segment | lsn  | synced | bytes | records | epoch | flags | records ...
//! ```
//!
//! `synced` is the highest position that the writer knew to be durable when it made the header. With
//! `synced`, a recovery tells a torn tail from damage: all bytes below the highest `synced` of a log were
//! durable, so they must be readable. `epoch` counts how often the log was opened. Epochs never fall from one
//! batch to the next, so a recovery ignores bytes of a lower epoch, which a crash left in the file. The
//! header's CRC begins with the segment's salt.
//!
//! A *marker* is a header without records. The writer writes a marker while the log is idle, to record how
//! far the log is durable. A marker takes no position: the writer writes the next batch over it.

use crate::record::Seed;
use crate::wire::{u32_at, u64_at};
use crate::{Lsn, Record};

/// The length of the header that the writer puts in front of the records of a batch, in bytes.
pub(crate) const BATCH_HEADER: usize = 48;
pub(crate) const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"TgB1");

const FLAG_MARKER: u32 = 1;
const FLAG_CLOSED: u32 = 2;

/// The kind of a batch header, from which a recovery knows whether records follow the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    Records,
    /// The header is a marker, with which the writer of an idle log records how far the log is durable. No
    /// records follow it.
    Marker,
    /// The header is a marker that the writer wrote at the close of the log. From this marker the next
    /// opening knows that the log was closed in order.
    Closed,
}

/// The header of a batch. The log stores it in front of the batch's records, so that a recovery can check
/// the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) segment: u64,
    pub(crate) lsn: Lsn,
    pub(crate) synced: Lsn,
    /// The length of the batch's records in bytes, without this header. A recovery finds the next batch by
    /// it.
    pub(crate) bytes: u32,
    pub(crate) records: u32,
    pub(crate) epoch: u32,
    pub(crate) kind: BatchKind,
}

impl BatchHeader {
    pub(crate) fn encode(&self, seed: Seed) -> [u8; BATCH_HEADER] {
        let flags = match self.kind {
            BatchKind::Records => 0,
            BatchKind::Marker => FLAG_MARKER,
            BatchKind::Closed => FLAG_MARKER | FLAG_CLOSED,
        };
        let mut out = [0; BATCH_HEADER];
        out[..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        out[8..16].copy_from_slice(&self.segment.to_le_bytes());
        out[16..24].copy_from_slice(&self.lsn.get().to_le_bytes());
        out[24..32].copy_from_slice(&self.synced.get().to_le_bytes());
        out[32..36].copy_from_slice(&self.bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.records.to_le_bytes());
        out[40..44].copy_from_slice(&self.epoch.to_le_bytes());
        out[44..48].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c::crc32c_append(seed.at(self.lsn), &out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the batch header at the front of `bytes`, which come from log position `at`. Returns `None` if
    /// `bytes` do not begin with an intact header that was written for this position.
    pub(crate) fn decode(bytes: &[u8], seed: Seed, at: Lsn) -> Option<Self> {
        let bytes = bytes.get(..BATCH_HEADER)?;
        if u32_at(bytes, 0) != BATCH_MAGIC
            || u32_at(bytes, 4) != crc32c::crc32c_append(seed.at(at), &bytes[8..])
        {
            return None;
        }
        let kind = match u32_at(bytes, 44) {
            0 => BatchKind::Records,
            FLAG_MARKER => BatchKind::Marker,
            flags if flags == FLAG_MARKER | FLAG_CLOSED => BatchKind::Closed,
            _ => return None,
        };
        let header = Self {
            segment: u64_at(bytes, 8),
            lsn: Lsn::new(u64_at(bytes, 16)),
            synced: Lsn::new(u64_at(bytes, 24)),
            bytes: u32_at(bytes, 32),
            records: u32_at(bytes, 36),
            epoch: u32_at(bytes, 40),
            kind,
        };
        (header.lsn == at).then_some(header)
    }

    /// Returns the position at which the next batch begins: the end of this batch, or the marker's own
    /// position.
    pub(crate) const fn end(&self) -> Lsn {
        match self.kind {
            BatchKind::Records => self.lsn.after(BATCH_HEADER as u64 + self.bytes as u64),
            BatchKind::Marker | BatchKind::Closed => self.lsn,
        }
    }
}

/// Returns the number of bytes that a batch of these records takes in the log, with the batch header.
/// Callers compare the number with the room of the log.
#[must_use]
pub fn batch_bytes(records: &[Record]) -> u64 {
    BATCH_HEADER as u64 + records.iter().map(Record::stored_bytes).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_bit_may_differ() {
        let seed = Seed::new(5, 6);
        for kind in [BatchKind::Records, BatchKind::Marker, BatchKind::Closed] {
            let header = BatchHeader {
                segment: 6,
                lsn: Lsn::new(1000),
                synced: Lsn::new(900),
                bytes: 64,
                records: 2,
                epoch: 3,
                kind,
            };
            let mut bytes = header.encode(seed);
            assert_eq!(
                BatchHeader::decode(&bytes, seed, Lsn::new(1000)),
                Some(header)
            );
            assert_eq!(BatchHeader::decode(&bytes, seed, Lsn::new(1008)), None);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(BatchHeader::decode(&bytes, seed, Lsn::new(1000)), None);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
