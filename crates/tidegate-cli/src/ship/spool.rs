//! The sender's spool: what came from standard input, on disk until it is acked, so that it survives the
//! sender.
//!
//! A directory with segments, each named by the number of its first record, and the file `session`: it
//! carries the lock and the manifest, which says to which session the records belong and how far they are
//! durable. The writer puts records at the end of the newest segment and syncs them, then writes and syncs
//! the manifest; only then may they be sent. So a start tells a crash from damage: what the manifest covers
//! is there, or the spool is refused (`recover`).
//!
//! Segments with acked records alone are removed, never the newest one, and only after both slots of the
//! manifest say that they may go.
//!
//! [`Writer`] changes files, one thread alone. [`Reader`] follows behind it, at its own pace, so that a
//! receiver that is away costs disk and not memory. [`Acks`] tells the writer what may go. The three share a
//! list of segments, under one lock that is never held over a read, a write or a sync.

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
/// A spool's limit in segments, at least, so that acked ones can go while there are others.
const SEGMENTS_MIN: u64 = 8;
/// How much is read at once.
const BLOCK: u64 = 256 * 1024;
/// The file with the session.
const SESSION: &str = "session";
const SUFFIX: &str = ".spool";

/// What was found at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The session its records travel in.
    pub(super) session: u128,
    /// Record n travels there under the number n - base.
    pub(super) base: u64,
    /// The oldest record it has.
    pub(super) first: u64,
    /// The record that comes next.
    pub(super) next: u64,
    /// Bytes of an unfinished batch, left by a crash, that were cut off.
    pub(super) cut_bytes: u64,
    /// One of the manifest's slots was not whole: newer records than those found may have been durable.
    pub(super) is_doubtful: bool,
}

/// A spool that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum SpoolError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process uses it.
    #[error("{}: another sender uses this spool: end that one, or give another directory", .0.display())]
    Locked(PathBuf),
    /// It belongs to another session.
    #[error("{}: the spool of another session: send under its name, or give another directory", .0.display())]
    OtherSession(PathBuf),
    /// Durable records are missing or changed.
    #[error("{}: {what}, so {lost} would be lost: bring the file back from a copy, or give up all the spool holds ({held}): \
        remove {} and send under another --session", path.display(), shown(directory))]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The damage.
        what: String,
        /// The records that are not readable.
        lost: String,
        /// The records the spool holds.
        held: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// Its manifest is missing or changed.
    #[error("{}: missing or damaged, so the session and the numbers of the records beside it are not known: bring the file \
        back from a copy, or give the records up: remove {} and send under another --session",
        path.display(), shown(directory))]
    Unreadable {
        /// The manifest's file.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// A later version of this program wrote it.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The manifest's file.
        path: PathBuf,
        /// Its version.
        version: char,
    },
    /// Another program changed a file while this one used it.
    #[error("{}: {} while it was written to: another program uses the spool", path.display(), match bytes {
        Some(bytes) => format!("came to have {bytes} bytes instead of {expected}"),
        None => "was removed".to_owned(),
    })]
    Changed {
        /// Which file.
        path: PathBuf,
        /// Its bytes, if it still is there.
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
        /// What the receiver has.
        received: u64,
        /// What was spooled.
        spooled: u64,
    },
    /// The receiver lacks records this spool has no more.
    #[error(
        "the receiver has {received} records of this session, but the spool begins after {removed} that were acknowledged: \
        the receiver lost some; send under another name"
    )]
    Ahead {
        /// What the receiver has.
        received: u64,
        /// What was acked and removed.
        removed: u64,
    },
    /// An earlier write failed.
    #[error("{}: not written, because an earlier write failed", .0.display())]
    Poisoned(PathBuf),
}

struct Segment<F> {
    first: u64,
    /// The record after its last one.
    next: u64,
    /// Bytes that are durable.
    bytes: u64,
    file: Arc<F>,
}

struct Shared<F> {
    state: Mutex<State<F>>,
    /// Something was acked.
    acked: Condvar,
    /// Something became durable, or nothing more will.
    grown: Condvar,
}

struct State<F> {
    /// In order, without gaps, never empty.
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

    /// What the manifest is to say of it.
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

/// A directory in a message: the working directory has no name of its own.
fn shown(directory: &Path) -> std::path::Display<'_> {
    match directory.as_os_str().is_empty() {
        true => Path::new(".").display(),
        false => directory.display(),
    }
}

fn name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Opens or creates the spool in `disk`. A new one belongs to `session`, or to `fresh` if there is none; one
/// with records must belong to `session`, if that is given. It holds no more than `limit_bytes`, but for what
/// a single [`Writer::append`] brings.
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
    // Before the first segment: one without its session is not readable.
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
    // The numbers that are told from here on stay given.
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

/// Which session the spool belongs to, and how far it goes unless the first format says so. Written, if it is
/// new.
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
        // A crash cut its creation short: segments come later.
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
    /// The generation that is written next.
    generation: u64,
    /// One of the slots was not whole when the spool was opened: a crash tore it, or it is damaged. It may
    /// have been the newer one.
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

    /// Writes it into both slots: then each of them alone says so, if the other one is damaged.
    fn write_both(&mut self, owner: Owner, extent: Extent) -> Result<(), SpoolError> {
        self.write(owner, extent)?;
        self.write(owner, extent)
    }
}

/// A block from `offset` on, or more if the record there has more; nothing beyond `end`.
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

/// Tells the writer what was acked.
pub(super) struct Acks<F>(Arc<Shared<F>>);

impl<F> Acks<F> {
    /// Everything up to `position` may go. Says whether that completes a segment, for [`Writer::release`] to
    /// remove.
    pub(super) fn acked(&self, position: u64) -> bool {
        let mut state = self.0.lock();
        state.acked = position.max(state.acked);
        self.0.acked.notify_all();
        let oldest = state.segments.front();
        state.segments.len() > 1 && oldest.is_some_and(|oldest| oldest.next <= position + 1)
    }
}
