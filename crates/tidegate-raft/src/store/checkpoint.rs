//! The byte format of a checkpoint, from which a node continues after a restart: the last applied entry, and
//! the state after this entry.
//!
//! ```text
//! 0       4     8         12  16      24     32          40     48     56      64
//! | magic | crc | version | 0 | index | term | hard term | vote | next | count |
//! | segments: base, live bytes ... | state ... | end |
//! end: | bytes of the state, 8 | magic, 4 | crc of everything before it, 4 |
//! ```
//!
//! `index` and `term` are those of the last applied entry, and `next` is the log position behind its record:
//! the state includes no record from that position on. `count` is the number of segments listed. The header's
//! CRC covers bytes 8 to 63. The streams define the bytes of the state.

use thiserror::Error;
use tidegate_log::Lsn;

use crate::replica::records::HardState;
use crate::replica::{EntryId, Term};

const MAGIC: u32 = u32::from_le_bytes(*b"TgP1");
const END_MAGIC: u32 = u32::from_le_bytes(*b"TgPE");
/// The version of the format of a checkpoint, so that an older program refuses a newer checkpoint. So far
/// only one version exists.
pub(super) const VERSION: u32 = 1;
const HEADER: usize = 64;
const SEGMENT: usize = 16;
const END: usize = 16;

/// The header of a checkpoint: all fields that the store needs before it reads the state of the streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The id of the last entry that the checkpoint's state includes. A node continues behind it.
    pub entry: EntryId,
    /// The member's term and vote at the time of the checkpoint. They count if the log has released their
    /// records.
    pub hard_state: HardState,
    /// The log position behind the last record that the checkpoint's state includes. A replay continues
    /// there.
    pub next: Lsn,
    /// The segments of the log with messages that the group still holds, in order: the position at which
    /// each begins, and the bytes of these messages.
    pub live: Vec<(u64, u64)>,
}

/// The reason why the store cannot use a checkpoint's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The bytes of the checkpoint are cut off, or differ from those that the store wrote.
    #[error("the checkpoint is cut off or damaged")]
    Damaged,
    /// A newer version of this program wrote the checkpoint.
    #[error(
        "the checkpoint has version {version}, this program reads up to {VERSION}: use the program that wrote it"
    )]
    Newer {
        /// The version of the format that the checkpoint names, which this program cannot read.
        version: u32,
    },
}

/// Encodes a checkpoint part by part, so that a large state need not be in memory as a whole. The caller
/// calls [`begin`](Self::begin) first, then [`part`](Self::part) for each part of the state in order, then
/// [`end`](Self::end).
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    crc: u32,
    state_bytes: u64,
}

impl Encoder {
    /// Begins a checkpoint, and returns the bytes that the caller writes before the state.
    #[must_use]
    pub fn begin(header: &Header) -> (Self, Vec<u8>) {
        let mut out = Vec::with_capacity(HEADER + header.live.len() * SEGMENT);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for value in [
            header.entry.index.get(),
            header.entry.term.get(),
            header.hard_state.term.get(),
            header.hard_state.vote,
            header.next.get(),
            header.live.len() as u64,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        for &(base, live) in &header.live {
            out.extend_from_slice(&base.to_le_bytes());
            out.extend_from_slice(&live.to_le_bytes());
        }
        let encoder = Self {
            crc: crc32c::crc32c(&out),
            state_bytes: 0,
        };
        (encoder, out)
    }

    /// Adds the next part of the state to the checksum. The caller writes the part into the file unchanged.
    pub fn part(&mut self, bytes: &[u8]) {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.state_bytes += bytes.len() as u64;
    }

    /// Ends the checkpoint, and returns the bytes that the caller writes behind the state: the state's
    /// length and the checksum.
    #[must_use]
    pub fn end(self) -> [u8; END] {
        let mut out = [0; END];
        out[..8].copy_from_slice(&self.state_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&END_MAGIC.to_le_bytes());
        let crc = crc32c::crc32c_append(self.crc, &out[..12]);
        out[12..].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// Checks that no bit of a checkpoint has changed, and returns its header and the bytes of its state.
///
/// # Errors
/// See [`CheckpointError`].
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), CheckpointError> {
    let damaged = CheckpointError::Damaged;
    let (head, rest) = bytes.split_first_chunk::<HEADER>().ok_or(damaged)?;
    if u32_at(head, 0) != MAGIC || u32_at(head, 4) != crc32c::crc32c(&head[8..]) {
        return Err(damaged);
    }
    match u32_at(head, 8) {
        VERSION => {}
        version if version > VERSION => return Err(CheckpointError::Newer { version }),
        _ => return Err(damaged),
    }
    let (body, end) = rest.split_last_chunk::<END>().ok_or(damaged)?;
    let table = usize::try_from(u64_at(head, 56)).ok();
    let table = table
        .and_then(|count| count.checked_mul(SEGMENT))
        .ok_or(damaged)?;
    let (table, state) = body.split_at_checked(table).ok_or(damaged)?;
    let whole = &bytes[..bytes.len() - 4];
    if u64_at(end, 0) != state.len() as u64
        || u32_at(end, 8) != END_MAGIC
        || u32_at(end, 12) != crc32c::crc32c(whole)
    {
        return Err(damaged);
    }
    let header = Header {
        entry: EntryId::new(u64_at(head, 16), u64_at(head, 24)),
        hard_state: HardState {
            term: Term::new(u64_at(head, 32)),
            vote: u64_at(head, 40),
        },
        next: Lsn::new(u64_at(head, 48)),
        live: table
            .chunks_exact(SEGMENT)
            .map(|s| (u64_at(s, 0), u64_at(s, 8)))
            .collect(),
    };
    Ok((header, state))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, Vec<u8>) {
        let header = Header {
            entry: EntryId::new(9, 2),
            hard_state: HardState {
                term: Term::new(3),
                vote: 1,
            },
            next: Lsn::new(4096),
            live: vec![(0, 17), (1024, 5)],
        };
        let (mut encoder, mut bytes) = Encoder::begin(&header);
        for part in [&b"hello "[..], b"", b"world"] {
            encoder.part(part);
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&encoder.end());
        (header, bytes)
    }

    #[test]
    fn it_comes_back_and_no_bit_may_differ_and_no_byte_be_missing() {
        let (header, mut bytes) = sample();
        assert_eq!(decode(&bytes), Ok((header, &b"hello world"[..])));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Err(CheckpointError::Damaged));
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(CheckpointError::Damaged));
    }

    #[test]
    fn a_newer_one_is_named() {
        let (_, mut bytes) = sample();
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[8..HEADER]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Err(CheckpointError::Newer { version: 2 }));
    }
}
