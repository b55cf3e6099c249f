//! The catalog: the list of the log's segments. Without it a lost file would look like a released one.
//!
//! ```text
//! | magic | crc | version | count | epoch | 0 | (segment, salt) * count |
//! ```
//!
//! The keeper writes it whole under another name and renames it, so that a crash leaves the old catalog
//! or the new one. A segment joins it, allocated and durable, before the first batch is written to it,
//! and leaves it before its file is used again or removed. The catalog also keeps the salts, so that a
//! segment with an unreadable first page can be read. And it counts epochs: each opening of the log
//! takes a new epoch before it writes anything, even if no header records the epoch before.

use crate::segment::FORMAT_VERSION;
use crate::wire::{u32_at, u64_at};

pub(crate) const CATALOG: &str = "catalog";
pub(crate) const CATALOG_NEW: &str = "catalog.new";
const CATALOG_MAGIC: u32 = u32::from_le_bytes(*b"TgC1");
const HEADER: usize = 24;
const ENTRY: usize = 16;

/// The segments of the log, by number, with their salts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// The last epoch that was given out.
    pub(crate) epoch: u32,
    segments: Vec<(u64, u64)>,
}

/// Why a catalog cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogError {
    Newer(u32),
    Damaged,
}

impl Catalog {
    /// Creates a catalog of these segments, in any order.
    pub(crate) fn new(epoch: u32, mut segments: Vec<(u64, u64)>) -> Self {
        segments.sort_unstable();
        Self { epoch, segments }
    }

    /// Returns the segments with their salts, in order of their numbers.
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

    /// Returns the length of the catalog's file in bytes.
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
