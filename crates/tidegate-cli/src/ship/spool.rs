//! The sender's spool: what came from standard input, on disk until it is acked, so that it survives the sender.
//!
//! A directory with the session it belongs to (`session`, which also carries the lock) and segments, each named by the number
//! of its first record. Records are written at the end of the newest, and synced, before anything of them is sent; segments
//! whose records are all acked are removed, the oldest first, and never the newest: its name is what remembers the numbering.
//!
//! [`Writer`] changes files, one thread alone. [`Reader`] follows behind it, at its own pace, so that a receiver that is
//! away costs disk and not memory. [`Acks`] tells the writer what may go. The three share a list of segments, under one lock
//! that is never held over a read, a write or a sync.

mod codec;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::disk::{Bytes, Disk};
use codec::Owner;

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
    /// It is not as it was written.
    #[error("{}: damaged {place}, so that records would be lost: bring it back, or remove the spool", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where.
        place: String,
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

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

fn name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// Opens or creates the spool in `disk`. A new one belongs to `session`, or to `fresh` if there is none; one with records
/// must belong to `session`, if that is given. It holds no more than `limit_bytes`, but for what a single
/// [`Writer::append`] brings.
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
        firsts.extend(first.and_then(|first| first.parse::<u64>().ok()));
    }
    firsts.sort_unstable();
    let owner = owner(&lock, session, fresh, firsts.is_empty(), &path)?;
    // Before the first segment: one without its session is not readable.
    disk.sync_names().map_err(on)?;
    if firsts.is_empty() {
        firsts.push(1);
    }
    let segments = recover(&disk, &firsts)?;
    disk.sync_names().map_err(on)?;
    let opened = Opened {
        session: owner.session,
        base: owner.base,
        first: firsts[0],
        next: segments.back().map_or(1, |segment| segment.next),
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            segments,
            acked: firsts[0] - 1,
            ended: false,
        }),
        acked: Condvar::new(),
        grown: Condvar::new(),
    });
    let reader = Reader {
        path: path.clone(),
        shared: Arc::clone(&shared),
        at: None,
        next: firsts[0],
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
        file: lock,
    };
    Ok((writer, reader, acks, opened))
}

/// Whose the spool is; written, if it is new.
fn owner(
    file: &impl Bytes,
    session: Option<u128>,
    fresh: u128,
    empty: bool,
    path: &Path,
) -> Result<Owner, SpoolError> {
    let on = |error| SpoolError::Io {
        path: path.to_owned(),
        error,
    };
    let bytes = file.bytes().map_err(on)?.unwrap_or_default();
    let mut found = vec![0; bytes.min(2 * codec::OWNER as u64) as usize];
    file.read_at(0, &mut found).map_err(on)?;
    let owner = match Owner::find(&found) {
        Some(owner) if session.is_none_or(|session| session == owner.name) => owner,
        Some(_) => return Err(SpoolError::OtherSession(path.to_owned())),
        // Its creation was cut short: segments come later.
        None if empty => {
            let name = session.unwrap_or(fresh);
            let owner = Owner {
                generation: 0,
                name,
                session: name,
                base: 0,
            };
            file.write_at(owner.offset(), &owner.encode()).map_err(on)?;
            owner
        }
        None => {
            return Err(SpoolError::Damaged {
                path: path.to_owned(),
                place: "throughout".into(),
            });
        }
    };
    file.sync().map_err(on)?;
    Ok(owner)
}

/// Opens every segment and cuts the newest behind its last whole record. What is left is durable.
fn recover<D: Disk>(disk: &D, firsts: &[u64]) -> Result<VecDeque<Segment<D::File>>, SpoolError> {
    let mut segments = VecDeque::<Segment<D::File>>::new();
    for (at, &first) in firsts.iter().enumerate() {
        let name = name(first);
        let path = disk.path(OsStr::new(&name));
        let on = |error| SpoolError::Io {
            path: path.clone(),
            error,
        };
        let damaged = |place: String| SpoolError::Damaged {
            path: path.clone(),
            place,
        };
        let file = Arc::new(disk.open(OsStr::new(&name)).map_err(on)?);
        let bytes = file.bytes().map_err(on)?.unwrap_or_default();
        if segments.back().is_some_and(|before| before.next != first) {
            return Err(damaged("or the segment before it is missing".into()));
        }
        let (mut next, mut offset, mut buffer) = (first, 0, Vec::new());
        while offset < bytes {
            let block = read_block(&*file, offset, bytes, &mut buffer).map_err(on)?;
            let mut rest = block;
            while let Some((_, left)) = codec::decode(next, rest) {
                next += 1;
                rest = left;
            }
            if rest.len() == block.len() {
                break;
            }
            offset += (block.len() - rest.len()) as u64;
        }
        if offset < bytes {
            // Segments are synced before they get a successor.
            if at + 1 < firsts.len() {
                return Err(damaged(format!("at byte {offset}")));
            }
            file.set_bytes(offset).map_err(on)?;
        }
        file.sync().map_err(on)?;
        segments.push_back(Segment {
            first,
            next,
            bytes: offset,
            file,
        });
    }
    Ok(segments)
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

/// Writes records, and removes what was acked. See the module.
pub(super) struct Writer<D: Disk> {
    disk: D,
    shared: Arc<Shared<D::File>>,
    segment_bytes: u64,
    limit_bytes: u64,
    buffer: Vec<u8>,
    /// A write failed: what is on the disk is not known any more.
    poisoned: bool,
    owner: Owner,
    /// Where that is written; it carries the lock.
    file: D::File,
}

impl<D: Disk> Writer<D> {
    /// Appends records and returns when they are durable. Waits while there is no room, until something is acked.
    pub(super) fn append<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SpoolError> {
        self.guarded(|writer| {
            writer.buffer.clear();
            let first = writer.shared.lock().newest().next;
            let mut next = first;
            for record in records {
                codec::encode(next, record, &mut writer.buffer);
                next += 1;
            }
            let bytes = writer.buffer.len() as u64;
            writer.make_room(bytes)?;
            let (file, offset) = {
                let mut state = writer.shared.lock();
                let newest = state.newest();
                (Arc::clone(&newest.file), newest.bytes)
            };
            let written = file.write_at(offset, &writer.buffer);
            written
                .and_then(|()| file.sync())
                .map_err(|error| writer.io(first, error))?;
            writer.buffer.shrink_to(4 * BLOCK as usize);
            let mut state = writer.shared.lock();
            let newest = state.newest();
            newest.next = next;
            newest.bytes += bytes;
            writer.shared.grown.notify_all();
            Ok(())
        })
    }

    /// From now on records travel in another session, that of record `base` + 1 as its first: the receiver forgot the one
    /// there was.
    pub(super) fn restart(&mut self, session: u128, base: u64) -> Result<(), SpoolError> {
        self.guarded(|writer| {
            let owner = Owner {
                generation: writer.owner.generation + 1,
                session,
                base,
                ..writer.owner
            };
            let written = writer.file.write_at(owner.offset(), &owner.encode());
            let synced = written.and_then(|()| writer.file.sync());
            let path = writer.disk.path(OsStr::new(SESSION));
            synced.map_err(|error| SpoolError::Io { path, error })?;
            writer.owner = owner;
            Ok(())
        })
    }

    /// Removes the segments that were acked whole.
    pub(super) fn release(&mut self) -> Result<(), SpoolError> {
        self.guarded(Self::remove_acked)
    }

    /// Nothing more comes: the reader ends when it has read everything. If all of it was acked, as good as nothing stays
    /// on the disk.
    pub(super) fn end(&mut self) -> Result<(), SpoolError> {
        self.shared.lock().ended = true;
        self.shared.grown.notify_all();
        self.guarded(|writer| {
            if writer.all_acked() {
                writer.rotate()?;
            }
            writer.remove_acked()
        })
    }

    fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), SpoolError>,
    ) -> Result<(), SpoolError> {
        if self.poisoned {
            return Err(SpoolError::Poisoned(self.disk.path(OsStr::new(SESSION))));
        }
        let outcome = work(self);
        self.poisoned = outcome.is_err();
        outcome
    }

    /// Comes back when `bytes` more may be written.
    fn make_room(&mut self, bytes: u64) -> Result<(), SpoolError> {
        loop {
            // What is acked after this is looked at again.
            let acked = self.shared.lock().acked;
            if self.shared.lock().newest().bytes >= self.segment_bytes {
                self.rotate()?;
            }
            self.remove_acked()?;
            let used = self.shared.lock().bytes();
            if used == 0 || used + bytes <= self.limit_bytes {
                return Ok(());
            }
            if self.all_acked() {
                self.rotate()?;
                continue;
            }
            let mut state = self.shared.lock();
            while state.acked == acked {
                let woken = self.shared.acked.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Whether there is something, and nothing of it needed, in the newest segment.
    fn all_acked(&self) -> bool {
        let mut state = self.shared.lock();
        let acked = state.acked;
        let newest = state.newest();
        newest.bytes > 0 && acked + 1 >= newest.next
    }

    /// Begins a new segment.
    fn rotate(&mut self) -> Result<(), SpoolError> {
        let first = self.shared.lock().newest().next;
        let opened = self.disk.open(OsStr::new(&name(first)));
        let file = opened.map_err(|error| self.io(first, error))?;
        let synced = self.disk.sync_names();
        synced.map_err(|error| self.io(first, error))?;
        self.shared.lock().segments.push_back(Segment {
            first,
            next: first,
            bytes: 0,
            file: Arc::new(file),
        });
        Ok(())
    }

    /// In order, each for good before the next, so that there never is a gap.
    fn remove_acked(&mut self) -> Result<(), SpoolError> {
        loop {
            let first = {
                let state = self.shared.lock();
                match (state.segments.front(), state.segments.len()) {
                    (Some(oldest), 2..) if oldest.next <= state.acked + 1 => oldest.first,
                    _ => return Ok(()),
                }
            };
            let removed = self.disk.remove(OsStr::new(&name(first)));
            removed
                .and_then(|()| self.disk.sync_names())
                .map_err(|error| self.io(first, error))?;
            self.shared.lock().segments.pop_front();
        }
    }

    fn io(&self, first: u64, error: io::Error) -> SpoolError {
        let path = self.disk.path(OsStr::new(&name(first)));
        SpoolError::Io { path, error }
    }
}

/// A thread that ends, however it does, leaves nobody waiting for it.
impl<D: Disk> Drop for Writer<D> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.grown.notify_all();
    }
}

/// Tells the writer what was acked.
pub(super) struct Acks<F>(Arc<Shared<F>>);

impl<F> Acks<F> {
    /// Everything up to `position` may go. Says whether that completes a segment, for [`Writer::release`] to remove.
    pub(super) fn acked(&self, position: u64) -> bool {
        let mut state = self.0.lock();
        state.acked = position.max(state.acked);
        self.0.acked.notify_all();
        let oldest = state.segments.front();
        state.segments.len() > 1 && oldest.is_some_and(|oldest| oldest.next <= position + 1)
    }
}

/// Reads what is durable, in order. See the module.
pub(super) struct Reader<F> {
    path: PathBuf,
    shared: Arc<Shared<F>>,
    /// The segment it is in, by its first record, and how far.
    at: Option<(u64, u64)>,
    /// The record that comes next.
    next: u64,
    buffer: Vec<u8>,
}

/// What a reader found.
pub(super) enum Read<'a> {
    /// The next records.
    Records(Payloads<'a>),
    /// Nothing more will come.
    Ended,
}

/// The payloads of some records.
pub(super) struct Payloads<'a> {
    next: u64,
    rest: &'a [u8],
}

impl<'a> Iterator for Payloads<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (payload, rest) = codec::decode(self.next, self.rest)?;
        self.next += 1;
        self.rest = rest;
        Some(payload)
    }
}

impl<F: Bytes> Reader<F> {
    /// The receiver has everything up to `position`: that is passed over.
    pub(super) fn start_after(&mut self, position: u64) -> Result<(), SpoolError> {
        let state = self.shared.lock();
        let spooled = state.segments.back().map_or(0, |newest| newest.next - 1);
        let removed = state.segments.front().map_or(0, |oldest| oldest.first - 1);
        drop(state);
        if position > spooled {
            let received = position;
            return Err(SpoolError::Behind { received, spooled });
        }
        if position < removed {
            let received = position;
            return Err(SpoolError::Ahead { received, removed });
        }
        self.at = None;
        self.next = position + 1;
        Ok(())
    }

    /// The next records, some hundred kilobytes at a time; waits until there are some.
    pub(super) fn read(&mut self) -> Result<Read<'_>, SpoolError> {
        let mut wanted = self.next;
        loop {
            let Some((file, segment, offset, end)) = self.wait() else {
                return Ok(Read::Ended);
            };
            if self.at.is_none_or(|at| at.0 != segment) {
                self.next = segment;
                wanted = wanted.max(segment);
            }
            let on = |error| SpoolError::Io {
                path: self.path.clone(),
                error,
            };
            let block = read_block(&*file, offset, end, &mut self.buffer).map_err(on)?;
            let (bytes, mut skipped, mut first) = (block.len(), 0, self.next);
            let mut rest = block;
            while let Some((_, left)) = codec::decode(self.next, rest) {
                self.next += 1;
                rest = left;
                if self.next <= wanted {
                    first = self.next;
                    skipped = bytes - rest.len();
                }
            }
            let taken = bytes - rest.len();
            if taken == 0 {
                return Err(SpoolError::Damaged {
                    path: self.path.clone(),
                    place: format!("at record {}", self.next),
                });
            }
            self.at = Some((segment, offset + taken as u64));
            if self.next > wanted {
                return Ok(Read::Records(Payloads {
                    next: first,
                    rest: &self.buffer[skipped..taken],
                }));
            }
        }
    }

    /// Where to read next: a file, its first record, from where and how far.
    fn wait(&self) -> Option<(Arc<F>, u64, u64, u64)> {
        let mut state = self.shared.lock();
        loop {
            for segment in &state.segments {
                let offset = match self.at {
                    Some((at, offset)) if at == segment.first => offset,
                    _ => 0,
                };
                if segment.next > self.next && offset < segment.bytes {
                    let file = Arc::clone(&segment.file);
                    return Some((file, segment.first, offset, segment.bytes));
                }
            }
            if state.ended {
                return None;
            }
            let woken = self.shared.grown.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
