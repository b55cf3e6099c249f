//! The sender's spool: keeps the records of standard input on disk until they are acked, so that they survive
//! the sender.
//!
//! The spool is a directory with segments, each named by the number of its first record, and the file
//! `session`: it carries the lock and the manifest, which says to which session the records belong and how
//! far they are durable. The writer puts records at the end of the newest segment and syncs them, then writes
//! and syncs the manifest; only then may the reader send them. So a start tells a crash from damage: either
//! the segments hold everything the manifest covers, or `recover` refuses the spool.
//!
//! The writer removes segments with acked records only, never the newest one, and only after both slots of
//! the manifest allow it.
//!
//! [`Writer`] changes files, on one thread. [`Reader`] follows behind it, at its own pace, so that a receiver
//! that is away costs disk and not memory. [`Acks`] tells the writer which records the receiver acked. The
//! three share a list of segments, under one lock that is never held over a read, a write or a sync.

mod codec;
mod reader;
mod recover;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::disk::{Bytes, Disk};
use codec::{Extent, Manifest, Owner};
pub(super) use reader::{Read, Reader};
pub(super) use writer::Writer;

/// A segment with this many bytes gets a successor.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The least limit of a spool, in segments, so that it can remove acked ones while it has others.
const SEGMENTS_MIN: u64 = 8;
/// The bytes of one read.
const BLOCK: u64 = 256 * 1024;
/// The file with the session.
const SESSION: &str = "session";
const SUFFIX: &str = ".spool";

/// The findings of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The session that the records travel in.
    pub(super) session: u128,
    /// Record n travels in that session under the number n - base.
    pub(super) base: u64,
    /// The oldest record of the spool.
    pub(super) first: u64,
    /// The number of the next record.
    pub(super) next: u64,
    /// The bytes of an unfinished batch of a crash, which the start cut off.
    pub(super) cut_bytes: u64,
    /// True if one slot of the manifest is not whole: records newer than those found may have been durable.
    pub(super) is_doubtful: bool,
}

/// A spool that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum SpoolError {
    /// The system refused an operation.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses the spool.
    #[error("{}: another sender uses this spool: end that one, or give another directory", .0.display())]
    Locked(PathBuf),
    /// The spool belongs to another session.
    #[error("{}: the spool of another session: send under its name, or give another directory", .0.display())]
    OtherSession(PathBuf),
    /// Durable records are missing or changed.
    #[error("{}: {what}, so {lost} would be lost: bring the file back from a copy, or give up all the spool holds ({held}): \
        remove {} and send under another --session", path.display(), shown(directory))]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The damage.
        what: String,
        /// The records that are not readable.
        lost: String,
        /// The records the spool holds.
        held: String,
        /// The directory of the spool.
        directory: PathBuf,
    },
    /// The manifest of the spool is missing or changed.
    #[error("{}: missing or damaged, so the session and the numbers of the records beside it are not known: bring the file \
        back from a copy, or give the records up: remove {} and send under another --session",
        path.display(), shown(directory))]
    Unreadable {
        /// The manifest's file.
        path: PathBuf,
        /// The directory of the spool.
        directory: PathBuf,
    },
    /// A later version of this program wrote it.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The manifest's file.
        path: PathBuf,
        /// The format version of the manifest.
        version: char,
    },
    /// Another program changed a file while this one used it.
    #[error("{}: {} while it was written to: another program uses the spool", path.display(), match bytes {
        Some(bytes) => format!("came to have {bytes} bytes instead of {expected}"),
        None => "was removed".to_owned(),
    })]
    Changed {
        /// The path of the file.
        path: PathBuf,
        /// The bytes of the file; `None` if it was removed.
        bytes: Option<u64>,
        /// The bytes the writer left.
        expected: u64,
    },
    /// The receiver has records this spool never had.
    #[error(
        "the receiver has {received} records of this session, the spool only {spooled}: it is not the spool they came \
        from; send under another name"
    )]
    Behind {
        /// The number of records that the receiver has.
        received: u64,
        /// The number of records that were spooled.
        spooled: u64,
    },
    /// The receiver lacks records that the spool has already removed.
    #[error(
        "the receiver has {received} records of this session, but the spool begins after {removed} that were acknowledged: \
        the receiver lost some; send under another name"
    )]
    Ahead {
        /// The number of records that the receiver has.
        received: u64,
        /// The number of records acked and removed.
        removed: u64,
    },
    /// An earlier write failed.
    #[error("{}: not written, because an earlier write failed", .0.display())]
    Poisoned(PathBuf),
}

struct Segment<F> {
    first: u64,
    /// The number after the segment's last record.
    next: u64,
    /// The durable bytes of the segment.
    bytes: u64,
    file: Arc<F>,
}

struct Shared<F> {
    state: Mutex<State<F>>,
    /// Signals a new ack.
    acked: Condvar,
    /// Signals durable records, or the end of the spool.
    grown: Condvar,
}

struct State<F> {
    /// The segments in order, without gaps, never empty.
    segments: VecDeque<Segment<F>>,
    acked: u64,
    ended: bool,
}

impl<F> Shared<F> {
    fn lock(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> State<F> {
    fn newest(&mut self) -> &mut Segment<F> {
        self.segments.back_mut().expect("never empty")
    }

    /// Returns the records that the manifest must describe as durable.
    fn extent(&self) -> Extent {
        let (oldest, newest) = (self.segments.front(), self.segments.back());
        let (oldest, newest) = oldest.zip(newest).expect("never empty");
        Extent {
            first: oldest.first,
            segment: newest.first,
            bytes: newest.bytes,
            next: newest.next,
        }
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Formats a directory for a message; the empty path of the working directory becomes `.`.
fn shown(directory: &Path) -> std::path::Display<'_> {
    match directory.as_os_str().is_empty() {
        true => Path::new(".").display(),
        false => directory.display(),
    }
}

fn name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Opens or creates the spool in `disk`. A new spool belongs to `session`, or to `fresh` if `session` is
/// `None`; a spool with records must belong to `session`, if that is given. The spool holds no more than
/// `limit_bytes`, apart from the records of a single [`Writer::append`].
#[allow(clippy::type_complexity)] // The three ends of one thing.
pub(super) fn open<D: Disk>(
    disk: D,
    session: Option<u128>,
    fresh: u128,
    limit_bytes: u64,
) -> Result<(Writer<D>, Reader<D::File>, Acks<D::File>, Opened), SpoolError> {
    let path = disk.path(OsStr::new(SESSION));
    let on = |error| SpoolError::Io {
        path: path.clone(),
        error,
    };
    let lock = disk.open(OsStr::new(SESSION)).map_err(on)?;
    if !lock.try_lock().map_err(on)? {
        return Err(SpoolError::Locked(path));
    }
    let mut firsts = Vec::new();
    for entry in disk.names().map_err(on)? {
        let first = entry.to_str().and_then(|entry| entry.strip_suffix(SUFFIX));
        let first = first.and_then(|first| first.parse().ok());
        firsts.extend(first.filter(|first| entry == OsStr::new(&name(*first))));
    }
    firsts.sort_unstable();
    let mut file = ManifestFile {
        path: path.clone(),
        file: lock,
        generation: codec::GENERATION,
        is_doubtful: false,
    };
    let (owner, extent) = load(&mut file, session, fresh, &firsts)?;
    // The manifest must be durable before the first segment: a segment without its session is not readable.
    disk.sync_names().map_err(on)?;
    let recovered = recover::recover(&disk, firsts, &owner, extent.as_ref(), file.is_doubtful)?;
    disk.sync_names().map_err(on)?;
    let mut state = State {
        segments: recovered.segments,
        acked: 0,
        ended: false,
    };
    let extent = state.extent();
    state.acked = extent.first - 1;
    // A start reports these record numbers, so they must stay assigned.
    file.write_both(owner, extent)?;
    for first in &recovered.released {
        disk.remove(OsStr::new(&name(*first))).map_err(on)?;
    }
    if !recovered.released.is_empty() {
        disk.sync_names().map_err(on)?;
    }
    let opened = Opened {
        session: owner.session,
        base: owner.base,
        first: extent.first,
        next: extent.next,
        cut_bytes: recovered.cut_bytes,
        is_doubtful: file.is_doubtful,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        acked: Condvar::new(),
        grown: Condvar::new(),
    });
    let reader = Reader {
        directory: disk.path(OsStr::new("")),
        shared: Arc::clone(&shared),
        at: None,
        next: extent.first,
        buffer: Vec::new(),
    };
    let acks = Acks(Arc::clone(&shared));
    let writer = Writer {
        disk,
        shared,
        segment_bytes: SEGMENT_BYTES.min(limit_bytes / SEGMENTS_MIN).max(1),
        limit_bytes,
        buffer: Vec::new(),
        poisoned: false,
        owner,
        file,
    };
    Ok((writer, reader, acks, opened))
}

/// Reads the spool's session and its extent; the first format has no extent. Writes both for a new spool.
fn load<F: Bytes>(
    file: &mut ManifestFile<F>,
    session: Option<u128>,
    fresh: u128,
    firsts: &[u64],
) -> Result<(Owner, Option<Extent>), SpoolError> {
    let on = |error| SpoolError::Io {
        path: file.path.clone(),
        error,
    };
    let bytes = file.file.bytes().map_err(on)?.unwrap_or_default();
    let mut found = vec![0; bytes.min(codec::MANIFEST as u64) as usize];
    file.file.read_at(0, &mut found).map_err(on)?;
    let (owner, extent) = match codec::find(&found) {
        codec::Found::Manifest(found, both) => {
            file.generation = found.generation + 1;
            file.is_doubtful = !both;
            (found.owner, Some(found.extent))
        }
        codec::Found::Old(owner) => (owner, None),
        codec::Found::Later(version) => {
            let path = file.path.clone();
            return Err(SpoolError::Later { path, version });
        }
        // A crash cut the creation short: segments come later.
        codec::Found::Nothing if firsts.is_empty() => {
            let name = session.unwrap_or(fresh);
            let owner = Owner {
                name,
                session: name,
                base: 0,
            };
            let extent = Extent {
                first: 1,
                segment: 1,
                bytes: 0,
                next: 1,
            };
            file.write_both(owner, extent)?;
            (owner, Some(extent))
        }
        codec::Found::Nothing | codec::Found::Foreign => {
            let path = file.path.clone();
            let directory = path.parent().map(PathBuf::from).unwrap_or_default();
            return Err(SpoolError::Unreadable { path, directory });
        }
    };
    if session.is_some_and(|session| session != owner.name) {
        return Err(SpoolError::OtherSession(file.path.clone()));
    }
    Ok((owner, extent))
}

/// The file with the manifest; it carries the lock.
struct ManifestFile<F> {
    path: PathBuf,
    file: F,
    /// The generation of the next write.
    generation: u64,
    /// True if one of the slots was not whole when the spool was opened: a crash tore it, or it is damaged.
    /// It may have been the newer one.
    is_doubtful: bool,
}

impl<F: Bytes> ManifestFile<F> {
    /// Writes a manifest into one slot, durably.
    fn write(&mut self, owner: Owner, extent: Extent) -> Result<(), SpoolError> {
        let manifest = Manifest {
            generation: self.generation,
            owner,
            extent,
        };
        let on = |error| SpoolError::Io {
            path: self.path.clone(),
            error,
        };
        let written = self.file.write_at(manifest.offset(), &manifest.encode());
        written.and_then(|()| self.file.sync()).map_err(on)?;
        self.generation += 1;
        Ok(())
    }

    /// Writes the manifest into both slots, so that either slot alone is enough if the other one is damaged.
    fn write_both(&mut self, owner: Owner, extent: Extent) -> Result<(), SpoolError> {
        self.write(owner, extent)?;
        self.write(owner, extent)
    }
}

/// Reads a block from `offset` on, or more if the record there is longer; reads nothing beyond `end`.
fn read_block<'a>(
    file: &impl Bytes,
    offset: u64,
    end: u64,
    buffer: &'a mut Vec<u8>,
) -> io::Result<&'a [u8]> {
    let mut wanted = BLOCK;
    loop {
        let bytes = wanted.min(end - offset) as usize;
        buffer.resize(bytes, 0);
        file.read_at(offset, buffer)?;
        match codec::bytes(buffer) {
            Some(record) if record > wanted && bytes as u64 == wanted => wanted = record,
            _ => return Ok(buffer),
        }
    }
}

/// Tells the writer which records the receiver acked.
pub(super) struct Acks<F>(Arc<Shared<F>>);

impl<F> Acks<F> {
    /// Notes that everything up to `position` is acked. Returns whether that completes a segment, for
    /// [`Writer::release`] to remove.
    pub(super) fn acked(&self, position: u64) -> bool {
        let mut state = self.0.lock();
        state.acked = position.max(state.acked);
        self.0.acked.notify_all();
        let oldest = state.segments.front();
        state.segments.len() > 1 && oldest.is_some_and(|oldest| oldest.next <= position + 1)
    }
}
