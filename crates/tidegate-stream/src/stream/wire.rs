//! Numbers and texts of a snapshot, as bytes: little-endian, texts after their length. Reading ends in a
//! value or an error.

use super::snapshot::RestoreError;

pub(super) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// A count; no count in a snapshot reaches 2^32, since each item takes more than a byte of memory.
pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    put_u32(out, u32::try_from(len).unwrap_or(u32::MAX));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The bytes not read yet.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], RestoreError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(RestoreError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RestoreError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(RestoreError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, RestoreError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, RestoreError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, RestoreError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a count of items that take at least `each` bytes; rejects more items than the rest can hold.
    pub(super) fn len(&mut self, each: usize) -> Result<usize, RestoreError> {
        let len = self.u32()? as usize;
        if len > self.0.len() / each {
            return Err(RestoreError::Short);
        }
        Ok(len)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], RestoreError> {
        let len = self.len(1)?;
        self.take(len)
    }
}
