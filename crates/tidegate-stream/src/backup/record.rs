//! Reads the records in the message files of older backups: messages, and marks for removed messages.
//!
//! ```text
//! record  length u32, highest bit: with headers | number u64 | time i64 | subject length u16 | subject
//!         | with headers: their length u32 and the headers | payload | HighwayHash u64
//! ```
//!
//! The highest bit of a number marks a message that the stream has erased or passed over; the second highest
//! bit marks the later removal of that message. The hash covers all but the lengths, and its key is the
//! SHA-256 of the stream's name and the file's number. All numbers are little-endian.

use highway::{HighwayHash, HighwayHasher, Key};
use sha2::{Digest, Sha256};

use super::{BackupError, Item, MESSAGE_BYTES_MAX, Message, NAME_BYTES_MAX, number};
use crate::schema::sequence::StreamSeq;

const HEADER: usize = 22;
const HASH: usize = 8;
const WITH_HEADERS: u32 = 1 << 31;
const ERASED: u64 = 1 << 63;
const REMOVED: u64 = 1 << 62;
/// The limit on a record, in bytes, which bounds the reader's memory.
const RECORD_BYTES_MAX: u64 = MESSAGE_BYTES_MAX + NAME_BYTES_MAX + 64;

/// Returns the key of the hashes of a stream's file, from the name under which nats-server knows the file, so
/// that a file of another stream has wrong hashes.
pub(super) fn key(name: &str) -> Key {
    let digest = Sha256::digest(name.as_bytes());
    let word = |at: usize| {
        let bytes = digest.as_slice()[at * 8..].first_chunk::<8>();
        u64::from_le_bytes(*bytes.expect("a digest has 32 bytes"))
    };
    Key([word(0), word(1), word(2), word(3)])
}

/// Returns the hash of these parts one after the other, for comparison with the hash in the file.
pub(super) fn hash<const N: usize>(key: Key, parts: [&[u8]; N]) -> u64 {
    let mut hasher = HighwayHasher::new(key);
    for part in parts {
        hasher.append(part);
    }
    hasher.finalize64()
}

/// Reads the record at the start of `bytes`, of which `left` belong to the file. Returns the record's item,
/// if it has any, and its length; `None` if the bytes end within it and the reader must wait for more.
pub(super) fn read(
    key: Key,
    bytes: &[u8],
    left: u64,
) -> Result<Option<(Option<Item>, usize)>, BackupError> {
    const WRONG: BackupError = BackupError::Format("a record of a message");
    if left < HEADER as u64 {
        return Err(WRONG);
    }
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let u32_at = |b: &[u8]| b.first_chunk().map(|b| u32::from_le_bytes(*b));
    let u64_at = |b: &[u8]| b.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
    let stated = u32_at(header).ok_or(WRONG)?;
    let len = u64::from(stated & !WITH_HEADERS);
    let subject_len = usize::from(u16::from_le_bytes([header[20], header[21]]));
    if len > left || len < (HEADER + subject_len + HASH) as u64 {
        return Err(WRONG);
    }
    if len > RECORD_BYTES_MAX {
        return Err(BackupError::Large {
            what: "a message",
            bytes: len,
            max: RECORD_BYTES_MAX,
        });
    }
    let len = len as usize;
    let Some(record) = bytes.get(..len) else {
        return Ok(None);
    };
    let (body, sum) = record[HEADER..].split_at(len - HEADER - HASH);
    let (subject, rest) = body.split_at(subject_len);
    let (headers, payload) = match stated & WITH_HEADERS {
        0 => rest.split_at(0),
        _ => {
            let of = u32_at(rest).ok_or(WRONG)? as usize;
            rest[4..].split_at_checked(of).ok_or(WRONG)?
        }
    };
    if hash(key, [&header[4..20], subject, headers, payload]) != u64_at(sum) {
        return Err(BackupError::Checksum("a message"));
    }
    let (seq, time_ns) = (u64_at(&header[4..]), u64_at(&header[12..]) as i64);
    let item = match seq {
        0 => None,
        seq if seq & ERASED != 0 => match seq & !ERASED {
            0 => None,
            seq => Some(Item::Passed(number(seq)?, time_ns)),
        },
        seq if seq & REMOVED != 0 => {
            let seq = number(seq & !REMOVED)?;
            (seq > StreamSeq::ZERO).then_some(Item::Removed(seq, time_ns))
        }
        seq => Some(Item::Message(Message {
            seq: number(seq)?,
            time_ns,
            subject: subject.to_vec(),
            headers: headers.to_vec(),
            payload: payload.to_vec(),
        })),
    };
    Ok(Some((item, len)))
}
