//! Writes and reads the numbers and texts of a snapshot as bytes: numbers are little-endian, and a text
//! follows its length. For any bytes, the reader returns a value or an error and never panics.

use crate::schema::sequence::StreamSeq;
use thiserror::Error;

/// The version of a snapshot in which all streams keep messages regardless of consumers and take in none.
pub(super) const VERSION: u8 = 3;
/// The version of a snapshot with a stream that keeps messages for its consumers. It also states the sweep of
/// each stream. Only such a snapshot has this version, so that programs that do not know such streams refuse
/// it and read all others.
pub(super) const VERSION_RETAINING: u8 = 4;
/// The version of a snapshot with a stream that takes in messages from other streams. It also states the
/// progress of each stream in its origins. Only such a snapshot has this version, so that programs that do
/// not know such streams refuse it and read all others.
pub(super) const VERSION_WITH_ORIGINS: u8 = 5;
/// The version of a snapshot with a consumer of the ack policy `flow_control`, or with a stream that takes in
/// messages by a consumer of the client's. Its layout is that of version 5. Only such a snapshot has this
/// version, so that programs that do not know such consumers refuse it and read all others.
pub(super) const VERSION_WITH_FLOW_ACKS: u8 = 6;
/// The first version of snapshots, which this program can still read. It does not state the home group of a
/// stream, so the reader takes the group itself.
pub(super) const VERSION_WITHOUT_KEPT: u8 = 1;
/// The second version of snapshots, which this program can still read. It does not state the moves of
/// streams, so the reader assumes none.
pub(super) const VERSION_WITHOUT_MOVING: u8 = 2;
/// The upper bound of the message numbers in a snapshot. The reader refuses higher numbers, so that there is
/// room for the numbers of further messages.
pub(super) const SEQ_MAX: StreamSeq = StreamSeq::new(1 << 63);

/// The reason why a node cannot restore streams from the bytes of a snapshot.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The bytes end before the end of the snapshot of streams. The file or the transfer was cut off.
    #[error("a snapshot of streams ends too early")]
    Short,
    /// More bytes follow after the end of the snapshot of streams, so the reader does not trust the snapshot.
    #[error("a snapshot of streams is followed by something else")]
    Long,
    /// Another version of the program wrote the snapshot; the field is the version of its layout, so that an
    /// operator can use that program.
    #[error(
        "a snapshot of streams is of version {0}, expected {VERSION_WITHOUT_KEPT} to {VERSION_WITH_FLOW_ACKS}: use the program that wrote it"
    )]
    Version(u8),
    /// The parts of the snapshot contradict each other; the text names the wrong part for the operator.
    #[error("a snapshot of streams contradicts itself: {0}")]
    Inconsistent(&'static str),
    /// The JSON of a stream's or consumer's configuration in the snapshot is not valid. A newer program may
    /// have written it.
    #[error("a snapshot of streams holds an unreadable configuration: {0}")]
    Config(#[from] serde_json::Error),
}

pub(super) fn put_u32(out: &mut Vec<u8>, n: u32) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_le_bytes());
}

/// Writes the number of the items that follow to a snapshot, as a `u32`, so that the reader knows where the
/// items end.
pub(super) fn put_len(out: &mut Vec<u8>, len: usize) {
    let len = u32::try_from(len);
    // The conversion of a count to a `u32` never fails, because each item takes more than a byte of memory,
    // so no count reaches 2^32.
    put_u32(out, len.expect("no count in a snapshot reaches 2^32"));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The bytes of a snapshot that the reader has not read yet. Each read takes bytes from the front.
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

    /// Reads the count of the items that follow; each item takes at least `each` bytes. Returns an error for
    /// a count of more items than the remaining bytes can hold, so that a damaged count allocates no memory.
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
