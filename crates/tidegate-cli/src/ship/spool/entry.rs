//! The entries of the spool's log, and the file `session`.
//!
//! | kind | index | term | payload |
//! | --- | --- | --- | --- |
//! | 1, state | the last record begun before | 0 | see below |
//! | 2, record | its number | pieces that follow | the record, or its first piece |
//! | 3, piece | its record's number | pieces that follow | a further piece |
//!
//! All entries belong to group 0. A record too large for a batch has several pieces, in batches of their own.
//! If a crash leaves a record without its last piece, the next record begins again under its number, and the
//! reader drops the unfinished one.
//!
//! ```text
//! state   0  session of the name      32  base, u64
//!        16  session on the wire      40  number of the oldest record, u64
//! ```
//!
//! All numbers are little-endian. `session` holds the eight bytes "TGSPOOL3". The formats 1 and 2 of 0.1 had
//! another digit there, and segments of their own beside it.

use std::io::{self, IoSlice};

use tidegate_log::{Record, Storage, batch_bytes};

/// The file with the version of the format.
pub(super) const SESSION: &str = "session";
/// The segments of the formats 1 and 2.
pub(super) const OLD_SUFFIX: &str = ".spool";

const MAGIC: &[u8; 7] = b"TGSPOOL";
const VERSION: u8 = b'3';
const STATE: u8 = 1;
const RECORD: u8 = 2;
const PIECE: u8 = 3;
const STATE_BYTES: usize = 48;

/// The state of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The session the spool was begun for.
    pub(super) name: u128,
    /// The session in which the records travel: another one after a receiver forgot the first.
    pub(super) session: u128,
    /// The offset of numbers: record n of the spool travels under the number n - base.
    pub(super) base: u64,
    /// The oldest record that the spool keeps; entries before it count no more.
    pub(super) first: u64,
}

impl State {
    /// Makes the entry that holds the state, behind the beginning of record `begun`.
    pub(super) fn entry(&self, begun: u64) -> Record {
        let mut payload = Vec::with_capacity(STATE_BYTES);
        payload.extend_from_slice(&self.name.to_le_bytes());
        payload.extend_from_slice(&self.session.to_le_bytes());
        payload.extend_from_slice(&self.base.to_le_bytes());
        payload.extend_from_slice(&self.first.to_le_bytes());
        Record {
            kind: STATE,
            index: begun,
            payload: payload.into(),
            ..Record::default()
        }
    }

    /// Reads the state from its entry.
    pub(super) fn decode(entry: &Record) -> Option<Self> {
        let mut rest = &entry.payload[..];
        let state = Self {
            name: u128::from_le_bytes(take(&mut rest)?),
            session: u128::from_le_bytes(take(&mut rest)?),
            base: u64::from_le_bytes(take(&mut rest)?),
            first: u64::from_le_bytes(take(&mut rest)?),
        };
        (Kind::of(entry.kind) == Some(Kind::State)).then_some(state)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// The kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The state of the spool.
    State,
    /// A record, or its first piece.
    Record,
    /// A further piece of a record.
    Piece,
}

impl Kind {
    /// Returns the kind of an entry of the log; `None` if the spool writes no such entries.
    pub(super) const fn of(kind: u8) -> Option<Self> {
        match kind {
            STATE => Some(Self::State),
            RECORD => Some(Self::Record),
            PIECE => Some(Self::Piece),
            _ => None,
        }
    }
}

/// Makes the entry of a piece of record `number`; `left` pieces of the record follow.
pub(super) fn piece(number: u64, is_first: bool, left: u64, payload: Record) -> Record {
    Record {
        kind: if is_first { RECORD } else { PIECE },
        index: number,
        term: left,
        ..payload
    }
}

/// Returns the bytes of a batch that has a state only.
pub(super) fn empty_batch_bytes() -> u64 {
    let state = State {
        name: 0,
        session: 0,
        base: 0,
        first: 0,
    };
    batch_bytes(&[state.entry(0)])
}

/// The contents of the file `session`, which names the version of the spool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// This program's format.
    Current,
    /// The format 1 or 2 of version 0.1.
    Old,
    /// The format of a later version.
    Later(char),
    /// The file is missing, or a crash cut its first write short.
    Nothing,
    /// The file has other bytes.
    Foreign,
}

/// Reads the version from the file `session`.
pub(super) fn version(storage: &dyn Storage) -> io::Result<Version> {
    let file = match storage.open(SESSION) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Version::Nothing),
        file => file?,
    };
    let mut bytes = [0; MAGIC.len() + 2];
    let read = file.read_at(&mut bytes, 0)?;
    let bytes = &bytes[..read];
    let has_begun = |whole: &[u8]| {
        let pairs = bytes.iter().zip(whole);
        bytes.len() <= whole.len() && pairs.into_iter().all(|(a, b)| *a == 0 || a == b)
    };
    Ok(match bytes.strip_prefix(MAGIC) {
        Some([VERSION]) => Version::Current,
        Some([b'1' | b'2', ..]) => Version::Old,
        Some([digit, ..]) if digit.is_ascii_digit() && *digit > VERSION => {
            Version::Later(char::from(*digit))
        }
        _ if has_begun(&current()) => Version::Nothing,
        _ => Version::Foreign,
    })
}

/// Writes this program's version to the file `session`, durably.
pub(super) fn write_version(storage: &dyn Storage) -> io::Result<()> {
    let file = storage.create(SESSION)?;
    file.write_at(&[IoSlice::new(&current())], 0)?;
    file.sync()?;
    storage.sync_names()
}

fn current() -> [u8; 8] {
    let mut whole = [VERSION; 8];
    whole[..MAGIC.len()].copy_from_slice(MAGIC);
    whole
}
