//! The catalog: a file with the list of the log's segments. From the catalog, an opening can tell a lost
//! segment from a released one.
//!
//! ```text
//! | magic | crc | version | count | epoch | 0 | (segment, salt) * count |
//! ```
//!
//! The keeper writes the whole catalog under another name and renames it, so that a crash leaves the old
//! catalog or the new one. The keeper adds a segment, allocated and durable, before the writer writes the
//! first batch to it. The keeper removes a segment from the catalog before it deletes the segment's file or
//! uses the file again. The catalog also holds the salts, so that a repair can still read a segment with an
//! unreadable first page. And the catalog counts epochs: each opening of the log takes a new epoch before it
//! writes anything, even if the log wrote no batch in the previous epoch.

use crate::segment::FORMAT_VERSION;
use crate::wire::{u32_at, u64_at};

pub(crate) const CATALOG: &str = "catalog";
pub(crate) const CATALOG_NEW: &str = "catalog.new";
const CATALOG_MAGIC: u32 = u32::from_le_bytes(*b"TgC1");
const HEADER: usize = 24;
const ENTRY: usize = 16;

/// The decoded catalog: the number and the salt of each of the log's segments, in the order of the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// The epoch of the log's latest opening: the number of times that the log was opened. The next opening
    /// takes the next epoch, so that a recovery can tell its batches from earlier ones.
    pub(crate) epoch: u32,
    segments: Vec<(u64, u64)>,
}

/// The reasons why an opening or a repair cannot decode the catalog file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogError {
    Newer(u32),
    Damaged,
}

impl Catalog {
    /// Creates a catalog from the number and the salt of each segment, in any order, when an opening or a
    /// repair has lost the catalog file.
    pub(crate) fn new(epoch: u32, mut segments: Vec<(u64, u64)>) -> Self {
        segments.sort_unstable();
        Self { epoch, segments }
    }

    /// Returns the number and the salt of each segment that the catalog lists, in the order of the numbers,
    /// for an opening that reads the segments.
    pub(crate) fn segments(&self) -> &[(u64, u64)] {
        &self.segments
    }

    pub(crate) fn add(&mut self, segment: u64, salt: u64) {
        self.segments.push((segment, salt));
        self.segments.sort_unstable();
    }

    pub(crate) fn remove(&mut self, segment: u64) {
        self.segments.retain(|&(s, _)| s != segment);
    }

    /// Returns the length of the encoded catalog in bytes. The keeper reserves disk space by this length.
    pub(crate) const fn encoded_bytes(&self) -> u64 {
        (HEADER + ENTRY * self.segments.len()) as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out[..4].copy_from_slice(&CATALOG_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.segments.len() as u32).to_le_bytes());
        out[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        for (segment, salt) in &self.segments {
            out.extend_from_slice(&segment.to_le_bytes());
            out.extend_from_slice(&salt.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CatalogError> {
        if bytes.len() < HEADER
            || u32_at(bytes, 0) != CATALOG_MAGIC
            || u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..])
        {
            return Err(CatalogError::Damaged);
        }
        match u32_at(bytes, 8) {
            FORMAT_VERSION => {}
            version => return Err(CatalogError::Newer(version)),
        }
        let entries = &bytes[HEADER..];
        if entries.len() != u32_at(bytes, 12) as usize * ENTRY {
            return Err(CatalogError::Damaged);
        }
        let pair = |e: &[u8]| (u64_at(e, 0), u64_at(e, 8));
        let segments: Vec<_> = entries.chunks_exact(ENTRY).map(pair).collect();
        match segments.windows(2).all(|w| w[0].0 < w[1].0) {
            true => Ok(Self {
                epoch: u32_at(bytes, 16),
                segments,
            }),
            false => Err(CatalogError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_no_bit_may_differ() {
        let mut catalog = Catalog::new(5, vec![(3, 30), (1, 10)]);
        catalog.add(2, 20);
        catalog.remove(3);
        assert_eq!(catalog.segments(), [(1, 10), (2, 20)]);
        let mut bytes = catalog.encode();
        assert_eq!(Catalog::decode(&bytes), Ok(catalog));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Catalog::decode(&bytes), Err(CatalogError::Damaged));
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Catalog::decode(&bytes[..20]), Err(CatalogError::Damaged));
        assert_eq!(Catalog::decode(&[]), Err(CatalogError::Damaged));
    }
}
