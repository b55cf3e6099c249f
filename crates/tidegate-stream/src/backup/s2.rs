//! Reads and writes S2, the compression of backups: an extension of Snappy that adds the repetition of the
//! last offset.
//!
//! Compressed data is a list of chunks. The first one names the format.
//!
//! ```text
//! chunk       kind u8 | length u24 | body
//! 0xff        the name of the format: sNaPpY or S2sTwO
//! 0x00        CRC u32 of the plain bytes, then a compressed block
//! 0x01        CRC u32, then plain bytes
//! 0x80..=0xfe bytes without meaning
//! block       length of the plain bytes, variable-length | elements
//! element     the lowest two bits of its first byte tell its kind:
//!             0 literal bytes, 1, 2, 3 a copy of earlier bytes with an offset of 11, 16, 32 bits
//! ```
//!
//! In S2, a copy with an offset of 11 bits that is 0 repeats the offset of the copy before it, and the three
//! bits of its length tell how the length follows. All numbers are little-endian. [`Decoder`] reads both
//! formats; [`frame`] writes Snappy, which readers of S2 accept.

use super::{BackupError, Buffer, uvarint};

const NAME_SNAPPY: &[u8; 6] = b"sNaPpY";
const NAME_S2: &[u8; 6] = b"S2sTwO";
const COMPRESSED: u8 = 0x00;
const PLAIN: u8 = 0x01;
const NAME: u8 = 0xff;
/// The limit on the plain bytes of a block, and (`CHUNK_BYTES_MAX`) the limit on a chunk with a block. They
/// bound the decoder's memory.
const BLOCK_BYTES_MAX: usize = 4 << 20;
const CHUNK_BYTES_MAX: usize = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 6 + 64;
/// The limit on the plain bytes of a block that [`frame`] writes: the limit of the Snappy format.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 10;

/// Decompresses a backup as it arrives, in steps with a bound.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    input: Buffer,
    named: bool,
    block: Option<Block>,
    /// The number of bytes that the decoder still has to skip of a chunk without meaning.
    skip: usize,
}

/// The block that the decoder is decompressing, over several steps.
#[derive(Debug)]
struct Block {
    crc: u32,
    from: Vec<u8>,
    at: usize,
    len: usize,
    offset: usize,
    out: Vec<u8>,
}

/// The result of one step of the decoder, which tells the reader whether to call it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// The decoder has done a part of its work: the reader continues.
    On,
    /// The decoder needs more input: the reader waits for the client.
    Hungry,
}

impl Decoder {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.push(bytes);
    }

    /// Returns the number of compressed bytes that the decoder has not read yet, so that the caller can make
    /// the client wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.input.len()
    }

    /// Returns whether the decoder is between two chunks, so that the input may end here. Otherwise the
    /// backup is cut.
    #[cfg(test)]
    pub(super) fn is_between(&self) -> bool {
        self.block.is_none() && self.skip == 0 && self.input.len() == 0
    }

    /// Decompresses about `bytes_max` bytes, or takes one further chunk. Appends finished blocks to `out`,
    /// after a check of their CRC.
    pub(super) fn step(
        &mut self,
        out: &mut Buffer,
        bytes_max: usize,
    ) -> Result<Stepped, BackupError> {
        if let Some(block) = &mut self.block {
            if block.step(bytes_max)? {
                check(block.crc, &block.out)?;
                out.push(&block.out);
                self.block = None;
            }
            return Ok(Stepped::On);
        }
        if self.skip > 0 {
            let len = self.skip.min(self.input.len());
            if len == 0 {
                return Ok(Stepped::Hungry);
            }
            self.input.consume(len);
            self.skip -= len;
            return Ok(Stepped::On);
        }
        let Some([kind, len @ ..]) = self.input.as_slice().first_chunk::<4>().copied() else {
            return Ok(Stepped::Hungry);
        };
        let len = u32::from_le_bytes([len[0], len[1], len[2], 0]) as usize;
        if !self.named && kind != NAME {
            return Err(BackupError::Compression("the name of the format first"));
        }
        match kind {
            NAME | COMPRESSED | PLAIN => {
                let max = match kind {
                    NAME => NAME_S2.len(),
                    PLAIN => BLOCK_BYTES_MAX + 4,
                    _ => CHUNK_BYTES_MAX,
                };
                if len > max {
                    return Err(BackupError::Compression("a block within the limit"));
                }
                if self.input.len() < 4 + len {
                    return Ok(Stepped::Hungry);
                }
                self.input.consume(4);
                let body = self.input.take(len).unwrap_or_default();
                self.take(kind, body, out)?;
            }
            0x80..=0xfe => {
                self.input.consume(4);
                self.skip = len;
            }
            _ => return Err(BackupError::Compression("a known kind of chunk")),
        }
        Ok(Stepped::On)
    }

    fn take(&mut self, kind: u8, body: Vec<u8>, out: &mut Buffer) -> Result<(), BackupError> {
        if kind == NAME {
            self.named = body == NAME_S2 || body == NAME_SNAPPY;
            return match self.named {
                true => Ok(()),
                false => Err(BackupError::Compression("the name sNaPpY or S2sTwO")),
            };
        }
        let cut = BackupError::Compression("the checksum of a block");
        let (crc, data) = body.split_first_chunk::<4>().ok_or(cut)?;
        let crc = u32::from_le_bytes(*crc);
        if kind == PLAIN {
            check(crc, data)?;
            out.push(data);
            return Ok(());
        }
        let wrong = BackupError::Compression("the length of a block");
        let (len, used) = uvarint(data).ok().flatten().ok_or_else(|| wrong.clone())?;
        let len = usize::try_from(len).ok().filter(|l| *l <= BLOCK_BYTES_MAX);
        self.block = Some(Block {
            crc,
            len: len.ok_or(wrong)?,
            at: 4 + used,
            from: body,
            offset: 0,
            out: Vec::new(),
        });
        Ok(())
    }
}

impl Block {
    /// Decompresses about `bytes_max` bytes of the block, so that one step stays short. Returns whether the
    /// block is complete.
    fn step(&mut self, bytes_max: usize) -> Result<bool, BackupError> {
        let wrong = || BackupError::Compression("the elements of a block");
        let until = self.out.len().saturating_add(bytes_max);
        while self.at < self.from.len() {
            if self.out.len() >= until {
                return Ok(false);
            }
            let src = &self.from[self.at..];
            let le = |at: usize, len: usize| {
                let bytes = src.get(at..at + len)?;
                Some(bytes.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
            };
            let tag = src[0];
            let high = usize::from(tag >> 2);
            if tag & 3 == 0 {
                let more = high.saturating_sub(59);
                let len = match more {
                    0 => high,
                    _ => le(1, more).ok_or_else(wrong)?,
                } + 1;
                let bytes = src.get(1 + more..1 + more + len).ok_or_else(wrong)?;
                if len > self.len - self.out.len() {
                    return Err(wrong());
                }
                self.out.extend_from_slice(bytes);
                self.at += 1 + more + len;
                continue;
            }
            let (len, used) = match tag & 3 {
                1 => {
                    let low = le(1, 1).ok_or_else(wrong)?;
                    let offset = usize::from(tag & 0xe0) << 3 | low;
                    let short = high & 7;
                    if offset > 0 {
                        self.offset = offset;
                        (short + 4, 2)
                    } else {
                        // The copy repeats the offset of the last copy. The longest lengths follow in 1 to 3
                        // bytes.
                        let more = short.saturating_sub(4);
                        let base = [short, 4, 1 << 8, 1 << 16][more];
                        let rest = le(2, more).ok_or_else(wrong)?;
                        (base + rest + 4, 2 + more)
                    }
                }
                2 => {
                    self.offset = le(1, 2).ok_or_else(wrong)?;
                    (high + 1, 3)
                }
                _ => {
                    self.offset = le(1, 4).ok_or_else(wrong)?;
                    (high + 1, 5)
                }
            };
            self.at += used;
            self.copy(len).ok_or_else(wrong)?;
        }
        match self.out.len() == self.len {
            true => Ok(true),
            false => Err(wrong()),
        }
    }

    /// Appends `len` bytes that stand `offset` bytes before the end of the output. The two may overlap, which
    /// repeats a pattern.
    fn copy(&mut self, mut len: usize) -> Option<()> {
        let start = self.out.len().checked_sub(self.offset)?;
        if self.offset == 0 || len > self.len - self.out.len() {
            return None;
        }
        while len > 0 {
            let part = len.min(self.out.len() - start);
            self.out.extend_from_within(start..start + part);
            len -= part;
        }
        Some(())
    }
}

fn check(crc: u32, plain: &[u8]) -> Result<(), BackupError> {
    match masked(plain) == crc {
        true => Ok(()),
        false => Err(BackupError::Checksum("a compressed block")),
    }
}

/// Returns the CRC of these bytes as the format masks it, so that a CRC over data that contains its own CRC
/// is still useful.
fn masked(plain: &[u8]) -> u32 {
    crc32c::crc32c(plain)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// Appends the chunk that begins compressed data, by which a reader knows the format.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[NAME, NAME_SNAPPY.len() as u8, 0, 0]);
    out.extend_from_slice(NAME_SNAPPY);
}

/// Appends a chunk with these bytes, at most [`FRAME_BYTES_MAX`], compressed if that makes it smaller.
pub(super) fn frame(plain: &[u8], encoder: &mut snap::raw::Encoder, out: &mut Vec<u8>) {
    debug_assert!(plain.len() <= FRAME_BYTES_MAX);
    let crc = masked(plain);
    let compressed = encoder.compress_vec(plain).ok();
    // The chunk keeps bytes plain that hardly shrink, as the format recommends, because reading them is
    // faster.
    let compressed = compressed.filter(|c| c.len() < plain.len() - plain.len() / 8);
    let (kind, body) = match &compressed {
        Some(compressed) => (COMPRESSED, &compressed[..]),
        None => (PLAIN, plain),
    };
    let len = (body.len() + 4) as u32;
    out.push(kind);
    out.extend_from_slice(&len.to_le_bytes()[..3]);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], parts: usize, step: usize) -> Result<Vec<u8>, BackupError> {
        let mut decoder = Decoder::default();
        let mut out = Buffer::default();
        for part in bytes.chunks(parts.max(1)) {
            decoder.feed(part);
            while decoder.step(&mut out, step)? == Stepped::On {}
        }
        match decoder.is_between() {
            true => Ok(out.as_slice().to_vec()),
            false => Err(BackupError::Cut),
        }
    }

    fn chunk(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind];
        out.extend_from_slice(&(body.len() as u32).to_le_bytes()[..3]);
        out.extend_from_slice(body);
        out
    }

    fn block(plain: &[u8], elements: &[u8]) -> Vec<u8> {
        let mut body = masked(plain).to_le_bytes().to_vec();
        super::super::put_uvarint(&mut body, plain.len() as u64);
        body.extend_from_slice(elements);
        [chunk(NAME, NAME_S2), chunk(COMPRESSED, &body)].concat()
    }

    #[test]
    fn a_repeated_offset() {
        // The block has four literal bytes, a copy of four bytes at offset 4, and a copy that repeats this
        // offset, in each form of a length.
        let copy = [0x01, 4];
        let repeat = |len: usize| match len {
            4..=8 => vec![((len - 4) << 2) as u8 | 1, 0],
            9..=263 => vec![5 << 2 | 1, 0, (len - 8) as u8],
            264..=65_795 => {
                let n = len - 4 - 256;
                vec![6 << 2 | 1, 0, n as u8, (n >> 8) as u8]
            }
            _ => {
                let n = len - 4 - 65_536;
                vec![7 << 2 | 1, 0, n as u8, (n >> 8) as u8, (n >> 16) as u8]
            }
        };
        for len in [4, 8, 9, 263, 264, 65_795, 65_796, 1_000_000] {
            let plain: Vec<u8> = b"abcd".iter().copied().cycle().take(8 + len).collect();
            let elements = [&[3 << 2][..], b"abcd", &copy, &repeat(len)].concat();
            let bytes = block(&plain, &elements);
            assert_eq!(decode(&bytes, bytes.len(), 1000).unwrap(), plain, "{len}");
        }
        // The decoder refuses a repetition without an earlier copy, because it has no offset.
        let bytes = block(b"abcdabcd", &[&[3 << 2][..], b"abcd", &[0x01, 0]].concat());
        assert!(decode(&bytes, bytes.len(), 10).is_err());
    }

    #[test]
    fn chunks_without_meaning_and_unknown_ones() {
        let mut plain = masked(b"hello").to_le_bytes().to_vec();
        plain.extend_from_slice(b"hello");
        let named = chunk(NAME, NAME_S2);
        let data = chunk(PLAIN, &plain);
        let bytes = [
            &named[..],
            &chunk(0xfe, &[0; 300]),
            &chunk(0x99, b"index"),
            &data,
        ]
        .concat();
        assert_eq!(decode(&bytes, 7, 10).unwrap(), b"hello");
        assert!(decode(&data, 100, 10).is_err());
        assert!(decode(&[named.clone(), chunk(0x02, b"x")].concat(), 100, 10).is_err());
        assert!(decode(&chunk(NAME, b"sNaPpX"), 100, 10).is_err());
        let mut wrong = data.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let wrong = decode(&[&named[..], &wrong].concat(), 100, 10);
        assert_eq!(wrong, Err(BackupError::Checksum("a compressed block")));
        assert_eq!(decode(&named[..5], 100, 10), Err(BackupError::Cut));
    }

    proptest! {
        #[test]
        fn frames_come_back(
            seed in prop::collection::vec(any::<u8>(), 1..40),
            times in 0..4000_usize,
            parts in 1..70_000_usize,
            step in 1..100_000_usize,
        ) {
            let plain = seed.repeat(times);
            let mut bytes = Vec::new();
            begin(&mut bytes);
            let mut encoder = snap::raw::Encoder::new();
            for part in plain.chunks(FRAME_BYTES_MAX) {
                frame(part, &mut encoder, &mut bytes);
            }
            prop_assert_eq!(decode(&bytes, parts, step).unwrap(), plain);
        }

        #[test]
        fn any_elements_end(elements in prop::collection::vec(any::<u8>(), 0..200), len in 0..5000_usize) {
            let plain = vec![0; len];
            let _ = decode(&block(&plain, &elements), 50, 64);
        }
    }
}
