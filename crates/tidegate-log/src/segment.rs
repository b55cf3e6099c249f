//! The file format of a segment: the file's name, its header, and the places of batches, index and trailer.
//!
//! ```text
//! 0            4096                                     end                     file's end - 64
//! | header 0.. | batch | batch | ... | zeros ... junk  | ... once sealed: index | trailer |
//! ```
//!
//! The header has 64 bytes: magic, crc, version, 0, segment, base (the position of the byte at 4096), salt,
//! bytes (the file's length before the log sealed the segment). A segment with a header of zeros is a spare:
//! allocated, and not yet written to. `index` describes the index and its trailer.

use crate::Lsn;
use crate::record::Seed;
use crate::wire::{u32_at, u64_at};

/// The version of the format of all files in a log's directory. Segment headers and the catalog name the
/// version, so that an older program refuses a newer log.
pub const FORMAT_VERSION: u32 = 1;
/// The offset in a segment's file at which the first batch begins, in bytes: the segment's header takes the
/// page before.
pub(crate) const FIRST_BATCH: u64 = 4096;
/// The length of a page in bytes. The log writes to a segment in whole pages, so that the system need not
/// read a page to complete it.
pub(crate) const PAGE: u64 = 4096;
/// The greatest length of a segment's file in bytes. Offsets and lengths inside such a file fit into 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
pub(crate) const SEGMENT_HEADER: usize = 64;
const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"TgS1");

/// Returns the name of a segment's file: its number, zero-padded so that the names sort.
pub(crate) fn name(segment: u64) -> String {
    format!("{segment:020}.seg")
}

/// Returns the segment's number from the name of its file; `None` if the name is not that of a segment.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// The header of a segment, at the front of the segment's file. From it, an opening learns where the segment
/// belongs in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) segment: u64,
    /// The log position of the segment's first batch. The positions of all other batches of the segment
    /// follow from it.
    pub(crate) base: Lsn,
    /// The salt: a number drawn for each use of a file. The CRCs begin with it, so that bytes from an earlier
    /// use of the file never match.
    pub(crate) salt: u64,
    /// The length in bytes that the log allocated for the segment's file when it created the file. The header
    /// keeps this length; the file can be longer once the log has sealed the segment, because the seal
    /// appends the segment's index.
    pub(crate) bytes: u64,
}

/// The reasons why an opening cannot decode a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The log never wrote a header to the segment's file.
    Blank,
    /// A newer version of this crate wrote the segment's header.
    Newer(u32),
    /// The bytes of the segment's header differ from those that the log wrote.
    Damaged,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut out = [0; SEGMENT_HEADER];
        out[..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.segment.to_le_bytes());
        out[24..32].copy_from_slice(&self.base.get().to_le_bytes());
        out[32..40].copy_from_slice(&self.salt.to_le_bytes());
        out[40..48].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the header of the segment with the number `segment` from the first bytes of its file.
    pub(crate) fn decode(bytes: &[u8], segment: u64) -> Result<Self, HeaderError> {
        let bytes = bytes.get(..SEGMENT_HEADER).ok_or(HeaderError::Damaged)?;
        if bytes.iter().all(|&b| b == 0) {
            return Err(HeaderError::Blank);
        }
        let sound =
            u32_at(bytes, 0) == SEGMENT_MAGIC && u32_at(bytes, 4) == crc32c::crc32c(&bytes[8..]);
        match u32_at(bytes, 8) {
            _ if !sound => return Err(HeaderError::Damaged),
            FORMAT_VERSION => {}
            version => return Err(HeaderError::Newer(version)),
        }
        let header = Self {
            segment: u64_at(bytes, 16),
            base: Lsn::new(u64_at(bytes, 24)),
            salt: u64_at(bytes, 32),
            bytes: u64_at(bytes, 40),
        };
        let possible = header.bytes > FIRST_BATCH && header.bytes <= SEGMENT_BYTES_MAX;
        match header.segment == segment && possible {
            true => Ok(header),
            false => Err(HeaderError::Damaged),
        }
    }

    pub(crate) fn seed(&self) -> Seed {
        Seed::new(self.salt, self.segment)
    }
}

/// Returns the offset of position `at`, in bytes, in the file of a segment that begins at position `base`.
pub(crate) const fn offset(base: Lsn, at: Lsn) -> u64 {
    FIRST_BATCH + at.since(base)
}

/// Returns the position of the byte at `offset` in the file of a segment that begins at position `base`.
pub(crate) const fn lsn_at(base: Lsn, offset: u64) -> Lsn {
    base.after(offset.saturating_sub(FIRST_BATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_foreign_ones_are_not_ours() {
        assert!(name(9) < name(10));
        assert_eq!(parse_name(&name(u64::MAX)), Some(u64::MAX));
        for foreign in [
            "7.seg",
            "catalog",
            "../0.seg",
            "0000000000000000000x.seg",
            "99999999999999999999.seg",
        ] {
            assert_eq!(parse_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_header_comes_back_a_blank_one_is_known_and_no_bit_may_differ() {
        let header = SegmentHeader {
            segment: 3,
            base: Lsn::new(77 << 20),
            salt: 11,
            bytes: 64 << 20,
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 3), Ok(header));
        assert_eq!(SegmentHeader::decode(&bytes, 4), Err(HeaderError::Damaged));
        assert_eq!(SegmentHeader::decode(&[0; 64], 3), Err(HeaderError::Blank));
        assert_eq!(
            SegmentHeader::decode(&[0; 10], 3),
            Err(HeaderError::Damaged)
        );
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&bytes, 3), Err(HeaderError::Damaged));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes, 3), Err(HeaderError::Newer(2)));
    }
}
