//! Reads and writes little-endian integers and varints in byte slices, for all formats of the log on the
//! disk.
//!
//! A read past the end of a slice returns zeros. So a decoder cannot panic on damaged bytes, and checks the
//! length of its input in one place.

/// The alignment of records and batches: each begins at an offset that is a multiple of this many bytes. A
/// recovery must look for records only there.
pub(crate) const ALIGN: usize = 8;

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(field) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        out.copy_from_slice(field);
    }
    out
}

/// Rounds a number of bytes up to the next multiple of [`ALIGN`], at which the next record can begin.
pub(crate) const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

/// Appends a number as a varint, to save bytes for small numbers: seven bits a byte, the lowest bits first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Decodes the varint at the front of `bytes` and moves `bytes` behind it. Returns `None` if the varint is
/// cut off or exceeds 64 bits, because the bytes are damaged then.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_malformed_ones_do_not() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut rest = &out[..];
            assert_eq!(take_varint(&mut rest), Some(value));
            assert!(rest.is_empty());
            assert_eq!(take_varint(&mut &out[..out.len() - 1]), None);
        }
        assert_eq!(take_varint(&mut &[0xff; 10][..]), None, "past 64 bits");
        assert_eq!(take_varint(&mut &[0x80; 20][..]), None, "without end");
    }

    #[test]
    fn reading_past_the_end_gives_zeros() {
        assert_eq!(u32_at(&[1, 2, 3], 0), 0);
        assert_eq!(u64_at(&[1; 8], usize::MAX - 2), 0);
        assert_eq!(u32_at(&[1, 0, 0, 0], 0), 1);
    }
}
