//! The messages that a stream takes in from its origins: as a mirror, or by sources. This module holds the
//! encoding of commands and progress; [`super::taking_in`] applies them.
//!
//! For each origin the replicated state holds the stream's [`Progress`]: which stream the origin is, and the
//! number up to which this stream has taken in all wanted messages of the origin. An [`Intake`] is a command
//! with the next messages. It names the progress to which it belongs, and the stream refuses it at any other
//! progress. The command that stores the messages also moves the progress. So no message is lost or stored
//! twice, however often leaders change, and a lost, late or repeated command does no harm.
//!
//! A mirror stores the messages under the numbers and times that they have in the origin, and leaves out the
//! numbers between. A source gives them new numbers and the time of the entry. If the stream refuses a
//! message (it is full, or the message too large), it has taken in the messages before, and its progress says
//! so.
//!
//! ```text
//! intake  progress before: origin number u32, origin's creation u64, number u64 (zeros before the first)
//!         | progress afterwards, likewise
//!         | of each message: number in the origin u64, time u64
//!         the messages follow as publishes
//! ```

use super::wire::{Reader, RestoreError, SEQ_MAX, put_u32, put_u64};
use crate::schema::number::DirectoryNumber;
use crate::schema::sequence::StreamSeq;

/// The length of an encoded progress, in bytes. A snapshot and the payload of an intake contain such
/// encodings.
pub(super) const PROGRESS_BYTES: usize = 20;
const ROW_BYTES: usize = 16;

/// The identity of an origin. A stream that is deleted and created again is another origin, so the stream
/// takes in its messages from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Origin {
    /// The number of the origin in the directory, by which the leader finds the origin's group.
    pub number: DirectoryNumber,
    /// The time at which a group created the origin, in microseconds since 1970. It tells the origin from an
    /// older stream of its name.
    pub created_us: u64,
}

/// The point up to which a stream has taken in the messages of an origin, so that a new leader continues
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// The origin from which the stream takes in messages.
    pub origin: Origin,
    /// The number of the origin's message up to which the stream has taken in every message that it wants.
    pub seq: StreamSeq,
}

impl Origin {
    /// The identity that no origin has. The encoding uses it where a stream has no progress yet.
    const NONE: Self = Self {
        number: DirectoryNumber::new(0),
        created_us: 0,
    };
}

impl Progress {
    /// The progress that the encoding uses for a stream that has taken in nothing.
    const NONE: Self = Self {
        origin: Origin::NONE,
        seq: StreamSeq::ZERO,
    };

    pub(super) fn put(self, out: &mut Vec<u8>) {
        put_u32(out, self.origin.number.get());
        put_u64(out, self.origin.created_us);
        put_u64(out, self.seq.get());
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, RestoreError> {
        let origin = Origin {
            number: DirectoryNumber::new(from.u32()?),
            created_us: from.u64()?,
        };
        let seq = StreamSeq::new(from.u64()?);
        match seq < SEQ_MAX {
            true => Ok(Self { origin, seq }),
            false => Err(RestoreError::Inconsistent(
                "how far a stream is in its origin",
            )),
        }
    }
}

/// The number of a message in the origin, and the time at which the origin stored it. A mirror stores the
/// message with both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the message in the origin, which a mirror gives to its copy.
    pub seq: StreamSeq,
    /// The time at which the origin stored the message, in microseconds since 1970, which a mirror gives to
    /// its copy.
    pub time_us: u64,
}

/// The next messages of an origin for a stream, and the progress that the stream makes with them: the payload
/// of a [`super::Kind::TakeIn`]. The leader proposes them to the group, and the messages follow in the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intake {
    /// The progress that the stream must have before the intake, or else it refuses the intake; `None` if the
    /// stream has taken in nothing from the origin.
    pub before: Option<Progress>,
    /// The progress that the stream has after the intake, even if it wants none of the messages.
    pub after: Progress,
    /// The origin's messages that the stream stores, by rising number.
    pub rows: Vec<Row>,
}

impl Intake {
    /// Encodes the intake as the payload of a [`super::Kind::TakeIn`], which the leader proposes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * PROGRESS_BYTES + self.rows.len() * ROW_BYTES);
        self.before.unwrap_or(Progress::NONE).put(&mut out);
        self.after.put(&mut out);
        for row in &self.rows {
            put_u64(&mut out, row.seq.get());
            put_u64(&mut out, row.time_us);
        }
        out
    }

    /// Decodes the payload of a [`super::Kind::TakeIn`], so that a node can apply it.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are no intake or contradict themselves, so that the stream refuses the
    /// command.
    pub fn decode(payload: &[u8]) -> Result<Self, RestoreError> {
        let from = &mut Reader(payload);
        let (before, after) = (Progress::read(from)?, Progress::read(from)?);
        let before = Some(before).filter(|before| *before != Progress::NONE);
        let known = before.filter(|before| before.origin == after.origin);
        let mut last = known.map_or(StreamSeq::ZERO, |before| before.seq);
        let wrong = RestoreError::Inconsistent("the messages of an origin");
        if after.seq < last || after.origin == Origin::NONE {
            return Err(wrong);
        }
        let mut rows = Vec::with_capacity(from.0.len() / ROW_BYTES);
        while !from.0.is_empty() {
            let row = Row {
                seq: StreamSeq::new(from.u64()?),
                time_us: from.u64()?,
            };
            if row.seq <= last || row.seq > after.seq {
                return Err(wrong);
            }
            last = row.seq;
            rows.push(row);
        }
        Ok(Self {
            before,
            after,
            rows,
        })
    }
}

/// Returns the number of publishes that follow an intake with this payload in the entry, so that the node
/// knows where the next command begins.
pub(super) fn messages_len(payload: &[u8]) -> usize {
    payload.len().saturating_sub(2 * PROGRESS_BYTES) / ROW_BYTES
}
