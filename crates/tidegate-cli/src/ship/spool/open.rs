//! Opens the sender's spool, checks its files, and finds where the sender continues.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_log::{Log, Lsn, Options, RecordInfo, Storage, Verdict};

use super::entry::{self, Kind, OLD_SUFFIX, SESSION, State, Version};
use super::shared::{Held, Inner, Shared, Signal};
use super::{Acks, Reader, SpoolError, Writer};

/// The greatest length of a segment of the spool's log, in bytes, so that acks free space in small steps.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;
/// The least length of a segment of the spool's log, in bytes: the log allows no shorter segments.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// The number of bytes of a page, because the log allows only segments of whole pages.
const PAGE: u64 = 4096;
/// The number of segments into which the spool divides its limit of bytes, so that it can release them one by
/// one.
const SEGMENTS: u64 = 8;
/// The number of segments beside the segments with records: one segment allocated ahead, one file that the
/// log uses again, and the segment of the next batch.
const SEGMENTS_AHEAD: u64 = 3;
/// The number of batches for which a segment has room, so that a large batch leaves only a small rest unused.
const BATCHES: u64 = 4;
/// The time without a batch after which the log marks its end as durable. After a crash, a start may mistake
/// damage for a torn batch only in bytes that the log wrote within this time before the crash.
const MARKER_AFTER: Duration = Duration::from_millis(10);

/// The facts that a start finds in the spool, from which the sender continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ship) struct Opened {
    /// The session under which the sender ships the spool's records.
    pub(in crate::ship) session: u128,
    /// The number of records that the spool has before the session's first record: record n of the spool
    /// travels in the session under the number n - base.
    pub(in crate::ship) base: u64,
    /// The number of the spool's oldest record, which the receiver has not acked.
    pub(in crate::ship) first: u64,
    /// The number that the spool's next record gets.
    pub(in crate::ship) next: u64,
    /// The number of bytes that the program cut off at its start, because a crash left their batch
    /// unfinished.
    pub(in crate::ship) cut_bytes: u64,
    /// True if the bytes cut off may once have been durable and damaged since, so that records may be
    /// missing.
    pub(in crate::ship) is_doubtful: bool,
}

/// Opens or creates the spool in `storage`. A new spool belongs to `session`, or to `fresh` if `session` is
/// `None`. If `session` is given, a spool with records must belong to it. The spool's segments take no more
/// than `limit_bytes`, apart from the rest of a single record. Error messages name the storage `directory`.
pub(in crate::ship) fn open(
    storage: Arc<dyn Storage>,
    directory: &Path,
    session: Option<u128>,
    fresh: u128,
    limit_bytes: u64,
) -> Result<(Writer, Reader, Acks, Opened), SpoolError> {
    check_version(&*storage, directory)?;
    let segment_bytes = limit_bytes / SEGMENTS / PAGE * PAGE;
    let segment_bytes = segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    let signal = Arc::new(Signal::default());
    let waker = Arc::clone(&signal);
    let options = Options::default()
        .segment_bytes(segment_bytes)
        .recycled_max(1)
        .marker_after(MARKER_AFTER)
        .refuse_shortened(true)
        .waker(move || waker.raise());
    let mut found = Found::default();
    let log = Log::open(storage, options, |entry| found.visit(entry))
        .map_err(|error| SpoolError::open(directory, error, found.lost()))?;
    if let Some((first, last)) = found.gap {
        return Err(SpoolError::Damaged {
            what: format!("{}: lacks records", directory.display()),
            lost: format!("records {first} to {last}"),
            directory: directory.to_owned(),
        });
    }
    let state = match found.state {
        Some(at) => state_at(&log.log, directory, at)?,
        None => {
            let name = session.unwrap_or(fresh);
            State {
                name,
                session: name,
                base: 0,
                first: 1,
            }
        }
    };
    if session.is_some_and(|session| session != state.name) {
        return Err(SpoolError::OtherSession(directory.to_owned()));
    }
    let next = found.complete + 1;
    let state = State {
        first: state.first.max(found.removed + 1),
        ..state
    };
    let (cut_bytes, is_doubtful) = match log.recovery.verdict {
        Verdict::Torn { at, to } => (to.since(at), false),
        Verdict::MaybeAcked { from, to } => (to.since(from), true),
        _ => (0, false),
    };
    let opened = Opened {
        session: state.session,
        base: state.base,
        first: state.first,
        next,
        cut_bytes: cut_bytes + found.unfinished_bytes,
        is_doubtful,
    };
    let shared = Arc::new(Shared {
        directory: directory.to_owned(),
        held_max: (limit_bytes / segment_bytes)
            .saturating_sub(SEGMENTS_AHEAD)
            .max(1) as usize,
        state: Mutex::new(Inner {
            held: held(&log.log, directory)?.into(),
            appender: Some(log.appender),
            state,
            begun: found.begun,
            next,
            acked: state.first - 1,
            end: log.recovery.end,
            ended: false,
        }),
        log: log.log,
        signal,
    });
    if found.state.is_none() {
        // This append makes the session durable before the records that belong to it.
        let end = shared.append(&[])?;
        shared.wait_durable(end)?;
    }
    let reader = Reader {
        log: shared.log.reader(),
        at: shared.log.first(),
        next: state.first,
        pieces: Vec::new(),
        shared: Arc::clone(&shared),
    };
    let acks = Acks(Arc::clone(&shared));
    let writer = Writer {
        shared,
        next,
        batch_bytes: (segment_bytes - PAGE) / BATCHES - entry::empty_batch_bytes(),
    };
    Ok((writer, reader, acks, opened))
}

/// Refuses a spool of another version, and marks a new spool with this program's version. Changes no file if
/// it refuses the spool.
fn check_version(storage: &dyn Storage, directory: &Path) -> Result<(), SpoolError> {
    let path = directory.join(SESSION);
    let on = |error| SpoolError::Io {
        path: path.clone(),
        error,
    };
    let names = storage.list().map_err(on)?;
    let has_log = names
        .iter()
        .any(|name| name == "catalog" || name.ends_with(".seg"));
    let has_old = names.iter().any(|name| name.ends_with(OLD_SUFFIX));
    match entry::version(storage).map_err(on)? {
        Version::Later(version) => Err(SpoolError::Later {
            path,
            version: version.to_string(),
        }),
        Version::Current if has_log => Ok(()),
        // The spool has the file `session` and no log yet. An earlier process may have ended before it synced
        // this file, so this process writes it again.
        Version::Current => entry::write_version(storage).map_err(on),
        Version::Old if !has_log => Err(SpoolError::Old(directory.to_owned())),
        _ if has_old => Err(SpoolError::Old(directory.to_owned())),
        // A crash interrupted the creation of the spool, so this process writes the file `session` again. The
        // opening of the log then completes the spool.
        Version::Nothing if !has_log => entry::write_version(storage).map_err(on),
        _ => Err(SpoolError::Unreadable {
            path,
            directory: directory.to_owned(),
        }),
    }
}

fn state_at(log: &Log, directory: &Path, at: Lsn) -> Result<State, SpoolError> {
    let entry = log.reader().read(at, None);
    let entry = entry.map_err(|error| SpoolError::read(directory, error, 1))?;
    State::decode(&entry).ok_or_else(|| SpoolError::Unreadable {
        path: directory.join(SESSION),
        directory: directory.to_owned(),
    })
}

/// Lists the log's segments that have entries, so that acks can release them. The first entry of each segment
/// is a state.
fn held(log: &Log, directory: &Path) -> Result<Vec<Held>, SpoolError> {
    let mut held = Vec::new();
    for segment in log.segments() {
        let base = segment.range.start;
        if segment.records == 0 {
            continue;
        }
        let chunk = log.reader().scan(base, 0);
        let chunk = chunk.map_err(|error| SpoolError::read(directory, error, 1))?;
        held.extend(chunk.records.first().map(|(_, state)| Held {
            segment: segment.segment,
            base,
            begun: state.index,
        }));
    }
    Ok(held)
}

/// The facts that a start gathers from the log's entries, one entry after the other.
#[derive(Default)]
struct Found {
    /// The position in the log of the newest state, which the start then reads.
    state: Option<Lsn>,
    /// The number of records before the oldest entry, which the spool has already removed.
    removed: u64,
    /// The number of the last record of which the log has any entry, to know later which records each segment
    /// of the log holds.
    begun: u64,
    /// The number of the last record of which the log has all pieces, so that the sender can ship it.
    complete: u64,
    /// The bytes of the record pieces behind the last whole record, which belong to an unfinished record.
    unfinished_bytes: u64,
    /// The first gap in the numbers of the log's records, as its first and last missing number; `None` if the
    /// entries so far have no gap.
    gap: Option<(u64, u64)>,
}

impl Found {
    fn visit(&mut self, entry: RecordInfo) {
        match Kind::of(entry.kind) {
            Some(Kind::State) => {
                if self.state.is_none() {
                    (self.removed, self.begun, self.complete) =
                        (entry.index, entry.index, entry.index);
                }
                self.state = Some(entry.lsn);
                // A crash may have left the last record unfinished, and the next record then gets its number.
                // So this number counts as begun.
                self.begun = self.begun.max(entry.index);
            }
            Some(_) => {
                let expected = self.complete + 1;
                if entry.index > expected && self.gap.is_none() {
                    self.gap = Some((expected, entry.index - 1));
                }
                self.begun = entry.index;
                self.unfinished_bytes += u64::from(entry.len);
                if entry.term == 0 {
                    self.complete = entry.index.max(self.complete);
                    self.unfinished_bytes = 0;
                }
            }
            None => {}
        }
    }

    /// Names the records that a damaged log lacks, for the error, as far as the visited entries show.
    fn lost(&self) -> String {
        match (self.gap, self.state) {
            (Some((first, last)), _) => format!("records {first} to {last}"),
            (None, Some(_)) => format!("records from {} on", self.complete + 1),
            (None, None) => "records".into(),
        }
    }
}
