//! Encodes the entries of the spool's log, and the file `session`, which names the version of the format.
//!
//! | kind | index | term | payload |
//! | --- | --- | --- | --- |
//! | 1, state | the number of the last record that the writer had begun | 0 | see below |
//! | 2, record | the record's number | the number of pieces that follow | the record, or its first piece |
//! | 3, piece | its record's number | the number of pieces that follow | a further piece of the record |
//!
//! All entries belong to group 0. The writer cuts a record too large for a batch into pieces, in batches of
//! their own. If a crash leaves a record without its last piece, the writer gives its number to the next
//! record, and the reader drops the unfinished record.
//!
//! ```text
//! state   0  id of the first session     32  base, u64: the records before the present session
//!        16  id of the present session   40  number of the oldest record, u64
//! ```
//!
//! The sender created the spool for the first session. It ships the records under the present session, which
//! differs from the first session only after a receiver forgot a session. All numbers are little-endian. The
//! file `session` holds the eight bytes "TGSPOOL3". The formats 1 and 2 of version 0.1 had another digit in
//! this file, and segments of another form beside it.

use std::io::{self, IoSlice};

use tidegate_log::{Record, Storage, batch_bytes};

/// The name of the file that holds the version of the spool's format, so that each program knows if it can
/// read the spool.
pub(super) const SESSION: &str = "session";
/// The suffix of the segment files of the formats 1 and 2, by which a start recognises an old spool.
pub(super) const OLD_SUFFIX: &str = ".spool";

const MAGIC: &[u8; 7] = b"TGSPOOL";
const VERSION: u8 = b'3';
const STATE: u8 = 1;
const RECORD: u8 = 2;
const PIECE: u8 = 3;
const STATE_BYTES: usize = 48;

/// The state of a spool. Each batch of its log begins with the state, so that every segment names its
/// session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The id of the session for which the sender created the spool.
    pub(super) name: u128,
    /// The id of the session under which the sender ships the records. It differs from `name` if a receiver
    /// forgot a session.
    pub(super) session: u128,
    /// The number of records that the spool has before the session's first record: record n of the spool
    /// travels in the session under the number n - base.
    pub(super) base: u64,
    /// The number of the oldest record that the sender still needs; the spool ignores entries of earlier
    /// records.
    pub(super) first: u64,
}

impl State {
    /// Makes the log entry that holds the state. `begun` is the number of the last record that the writer
    /// began before this entry.
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

    /// Decodes the state from its log entry; `None` if the payload is no state.
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

/// The kinds of entries in the spool's log, by which the reader decodes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The state of the spool, which the writer puts at the front of each batch for the next start.
    State,
    /// A whole record, or the first piece of a record that the writer cut into several because of its length.
    Record,
    /// A further piece of a record that the writer cut into several because of its length.
    Piece,
}

impl Kind {
    /// Returns the kind of an entry of the log; `None` if the spool writes no entries with this number.
    pub(super) const fn of(kind: u8) -> Option<Self> {
        match kind {
            STATE => Some(Self::State),
            RECORD => Some(Self::Record),
            PIECE => Some(Self::Piece),
            _ => None,
        }
    }
}

/// Makes the log entry of a piece of record `number`; `left` pieces of the record follow.
pub(super) fn piece(number: u64, is_first: bool, left: u64, payload: Record) -> Record {
    Record {
        kind: if is_first { RECORD } else { PIECE },
        index: number,
        term: left,
        ..payload
    }
}

/// Returns the number of bytes of a batch that holds only a state, to size the batches and segments.
pub(super) fn empty_batch_bytes() -> u64 {
    let state = State {
        name: 0,
        session: 0,
        base: 0,
        first: 0,
    };
    batch_bytes(&[state.entry(0)])
}

/// The contents of the file `session`, which names the version of the spool's format, as a start finds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The file names the format that this program writes, so the program may open the spool.
    Current,
    /// The file names the format 1 or 2, which version 0.1 of this program wrote.
    Old,
    /// The file names the format of a later version of this program; holds the format's digit.
    Later(char),
    /// The file `session` is missing, or a crash interrupted its first write.
    Nothing,
    /// The file has bytes that no version of this program writes, so the spool is damaged or no spool.
    Foreign,
}

/// Reads the version of the spool's format from the file `session`, before a start reads any other file.
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

/// Writes the version of this program's format to the file `session`, durably.
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
