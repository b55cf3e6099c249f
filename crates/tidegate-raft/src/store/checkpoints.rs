//! Keeps the checkpoints of a group in a data directory: the last two, in case one of them is damaged. A
//! thread writes the checkpoints, because the write of a large one takes seconds.
//!
//! The thread writes a checkpoint as `state-new`, or `state-<group>-new`, syncs it, renames it and syncs the
//! directory; a start ignores the unfinished file before that. If the disk is full, the thread deletes the
//! reserve (`reserve`), then the older of the two checkpoints, never the newer.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_log::{Lsn, Storage, StorageFile, is_full};

use super::Waker;
use super::checkpoint::{self, CheckpointError, Encoder, Header};
use super::error::OpenError;
use super::reserve::{Reserve, wanted_bytes};
use super::worker::{By, Worker};
use crate::replica::Index;

const PREFIX: &str = "state-";
const NEW: &str = "new";
const RESERVE: &str = "reserve";
/// The number of checkpoints that the store keeps of each group, in case the newest is damaged. The store
/// removes older ones.
const KEPT: usize = 2;
/// The approximate number of bytes that the checkpoint thread gathers before it writes them to the file, to
/// save system calls.
const WRITE_BYTES: usize = 1 << 20;

/// The encoded state of a group, in parts and in order. The checkpoint thread makes the parts while it
/// writes them, so that the event loop need not.
pub type Parts = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// A durable checkpoint of a group in the data directory, from which a start can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) index: Index,
    pub(super) next: Lsn,
    pub(super) bytes: u64,
    file: String,
}

/// The file names of a group's checkpoints. In a directory with one group, a name holds the index of the last
/// entry. Otherwise it holds the group, this index and the log position, because a group without new entries
/// has several checkpoints of one index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) group: GroupId,
    /// True if the group is the only one in the data directory, so that file names need no group.
    pub(super) alone: bool,
}

impl Naming {
    fn of(self, header: &Header) -> String {
        let Self { group, alone } = self;
        let (index, next) = (header.entry.index, header.next.get());
        match alone {
            true => format!("{PREFIX}{index:020}"),
            false => format!("{PREFIX}{group}-{index:020}-{next:020}"),
        }
    }

    fn unfinished(self) -> String {
        match self.alone {
            true => format!("{PREFIX}{NEW}"),
            false => format!("{PREFIX}{}-{NEW}", self.group),
        }
    }

    /// Returns the name of the reserve file: it keeps disk space for the group's next checkpoint.
    fn reserve(self) -> String {
        match self.alone {
            true => RESERVE.to_owned(),
            false => format!("{RESERVE}-{}", self.group),
        }
    }

    /// Returns `true` if the file is a finished checkpoint of the group, `false` if it is an unfinished one,
    /// and `None` for all other files.
    fn is_finished(self, name: &str) -> Option<bool> {
        let (group, finished) = group_of(name)?;
        (group == self.group).then_some(finished)
    }
}

/// Returns the group of the checkpoint in the file of this name, and whether the checkpoint is finished;
/// `None` for all other files.
pub(super) fn group_of(name: &str) -> Option<(GroupId, bool)> {
    let rest = name.strip_prefix(PREFIX)?;
    let number = |text: &str| text.parse::<u64>().is_ok();
    let parts: Vec<&str> = rest.split('-').collect();
    let (group, parts) = match parts[..] {
        [group, ref rest @ ..] if !rest.is_empty() => {
            let id = GroupId::new(group.parse().ok()?);
            // The store never writes other spellings of the number, such as 01, so these files are no
            // checkpoints.
            (group == id.to_string()).then_some((id, rest))?
        }
        // The first group may have been the only group of the directory in an earlier run, so file names
        // without a group belong to the first group.
        ref one => (ALL, one),
    };
    match *parts {
        [NEW] => Some((group, false)),
        [index] | [index, _] if !number(index) => None,
        [_] | [_, _] => Some((group, true)),
        _ => None,
    }
}

/// The outcome of the write of a checkpoint, for the event loop: the group's checkpoints that exist
/// afterwards, and the result of the write.
type Outcome = (Vec<Kept>, io::Result<()>);
type Done = Arc<Mutex<Option<Outcome>>>;

/// A job that the event loop gives to the checkpoint thread, because it takes long.
enum Job {
    Write {
        naming: Naming,
        header: Header,
        parts: Parts,
        kept: Vec<Kept>,
        /// The number of checkpoints that the thread keeps, with the new one.
        keep: usize,
    },
    /// The thread must give the reserve file this length in bytes.
    Reserve(u64),
}

/// The greatest number of jobs that wait for the checkpoint thread of a group: one write of a checkpoint, and
/// one of the reserve.
const JOBS_MAX: usize = 2;

/// Keeps the checkpoints of a group and runs the thread that writes them; see the [module](self).
pub(super) struct Checkpoints {
    naming: Naming,
    /// The durable checkpoints of the group that exist, oldest first: at most two.
    kept: Vec<Kept>,
    writing: bool,
    /// The header of a begun checkpoint, until the caller hands in the state for it.
    begun: Option<Header>,
    done: Done,
    worker: Worker<Job>,
    reserve: Arc<Reserve>,
}

impl Checkpoints {
    pub(super) fn start(
        by: By,
        storage: Arc<dyn Storage>,
        naming: Naming,
        kept: Vec<Kept>,
        waker: Waker,
    ) -> io::Result<Self> {
        let done = Done::default();
        let told = Arc::clone(&done);
        let reserve = Reserve::new(naming.reserve());
        let kept_back = Arc::clone(&reserve);
        let worker = Worker::start(by, "checkpoints", JOBS_MAX, move |job| {
            let outcome = match job {
                Job::Reserve(bytes) => {
                    kept_back.make(&*storage, bytes);
                    return waker();
                }
                Job::Write {
                    naming,
                    header,
                    parts,
                    kept,
                    keep,
                } => {
                    let mut out = Out {
                        storage: &*storage,
                        reserve: &kept_back,
                        at: 0,
                        waiting: Vec::new(),
                        kept,
                    };
                    let written = write(&mut out, naming, &header, parts, keep);
                    if written.is_err() {
                        // The thread deletes the unfinished file to free its space, because the disk may be
                        // full. If the removal fails, the next start removes the file.
                        let _ = storage.remove(&naming.unfinished());
                    }
                    (out.kept, written)
                }
            };
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            waker();
        })?;
        Ok(Self {
            naming,
            kept,
            writing: false,
            begun: None,
            done,
            worker,
            reserve,
        })
    }

    /// Returns the durable checkpoints of the group that exist, oldest first, so that the store knows which
    /// records a start needs.
    pub(super) fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Returns whether a checkpoint of the group is in progress, from `begin` to the end of the write, so
    /// that no other may begin.
    pub(super) const fn is_writing(&self) -> bool {
        self.writing || self.begun.is_some()
    }

    /// Begins a checkpoint with this header. The caller hands in the state later; until then no other
    /// checkpoint of the group may begin.
    pub(super) fn begin(&mut self, header: Header) {
        assert!(!self.is_writing(), "one checkpoint at a time");
        self.begun = Some(header);
    }

    pub(super) const fn awaits_state(&self) -> bool {
        self.begun.is_some()
    }

    /// Makes the checkpoint thread write the checkpoint that the store has begun, with this state. The thread
    /// then removes all earlier ones, unless it `keeps_older`.
    pub(super) fn write_begun(&mut self, parts: Parts, keeps_older: bool) {
        let header = self.begun.take().expect("the caller began the checkpoint");
        self.write_keeping(header, parts, if keeps_older { KEPT } else { 1 });
    }

    /// Makes the checkpoint thread write a checkpoint with this header and state. No other checkpoint of the
    /// group may be in progress.
    pub(super) fn write(&mut self, header: Header, parts: Parts) {
        self.write_keeping(header, parts, KEPT);
    }

    fn write_keeping(&mut self, header: Header, parts: Parts, keep: usize) {
        assert!(!self.is_writing(), "one checkpoint at a time");
        let job = Job::Write {
            naming: self.naming,
            header,
            parts,
            kept: self.kept.clone(),
            keep,
        };
        self.writing = self.worker.ask(job);
    }

    /// Makes the checkpoint thread give the reserve file the length that the next checkpoint may need on a
    /// full disk, at least `least` bytes. Returns false if the file has this length already, or if such a job
    /// waits or runs.
    pub(super) fn keep_reserve(&self, least: u64) -> bool {
        let last = self.kept.last().map_or(0, |k| k.bytes);
        let wanted = wanted_bytes(least, last);
        let begins = self.reserve.begin(wanted);
        if begins && !self.worker.ask(Job::Reserve(wanted)) {
            self.reserve.cancel();
        }
        begins
    }

    /// Returns the length of the reserve file in bytes, for the count of used disk space.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.reserve.bytes()
    }

    /// Does one waiting job of the checkpoint thread on the calling thread, for simulations. Returns whether
    /// a job waited.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.worker.step()
    }

    /// Returns the outcome of the checkpoint write in progress, once the thread has finished the write.
    pub(super) fn poll(&mut self) -> Option<io::Result<()>> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, written) = done.take()?;
        drop(done);
        self.writing = false;
        self.kept = kept;
        Some(written)
    }

    /// Ends the thread after it has finished the checkpoint in progress, and returns the outcome of that
    /// write.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.worker.end();
        self.poll().unwrap_or(Ok(()))
    }
}

/// Writes a checkpoint file durably, and removes the oldest checkpoints beyond `keep` to free their space.
fn write(
    out: &mut Out<'_>,
    naming: Naming,
    header: &Header,
    parts: Parts,
    keep: usize,
) -> io::Result<()> {
    let unfinished = naming.unfinished();
    let new = out.freeing(|out| out.storage.create(&unfinished))?;
    let (mut encoder, first) = Encoder::begin(header);
    out.put(&*new, &first)?;
    for part in parts {
        encoder.part(&part);
        out.put(&*new, &part)?;
    }
    out.put(&*new, &encoder.end())?;
    out.flush(&*new)?;
    new.sync()?;
    let file = naming.of(header);
    out.freeing(|out| out.storage.rename(&unfinished, &file))?;
    out.storage.sync_names()?;
    out.kept.retain(|k| k.file != file);
    out.kept.push(Kept {
        index: header.entry.index,
        next: header.next,
        bytes: out.at,
        file,
    });
    while out.kept.len() > keep {
        out.storage.remove(&out.kept.remove(0).file)?;
    }
    Ok(())
}

/// Writes the checkpoint in progress to its file, and frees disk space for it if the disk is full.
struct Out<'a> {
    storage: &'a dyn Storage,
    reserve: &'a Reserve,
    at: u64,
    waiting: Vec<u8>,
    /// The earlier checkpoints of the group that still exist. The thread may delete the older of two for
    /// space.
    kept: Vec<Kept>,
}

impl Out<'_> {
    fn put(&mut self, file: &dyn StorageFile, bytes: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(bytes);
        match self.waiting.len() < WRITE_BYTES {
            true => Ok(()),
            false => self.flush(file),
        }
    }

    fn flush(&mut self, file: &dyn StorageFile) -> io::Result<()> {
        self.freeing(|out| file.write_at(&[IoSlice::new(&out.waiting)], out.at))?;
        self.at += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Repeats `attempt` as long as it fails because the disk is full, and the thread can free space by
    /// deleting the reserve file or the older checkpoint.
    fn freeing<T>(&mut self, attempt: impl Fn(&Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt(self) {
                Err(e) if is_full(&e) && self.give_up()? => {}
                done => return done,
            }
        }
    }

    fn give_up(&mut self) -> io::Result<bool> {
        if self.reserve.give_up(self.storage)? {
            return Ok(true);
        }
        if self.kept.len() < KEPT {
            return Ok(false);
        }
        self.storage.remove(&self.kept.remove(0).file)?;
        Ok(true)
    }
}

/// Returns a group that has a finished checkpoint among these file names, and that `known` does not know, so
/// that the opening can refuse the directory. The log may have no record of this group any more; then only
/// the file shows that the node was its member.
pub(super) fn stranger(names: &[String], known: impl Fn(GroupId) -> bool) -> Option<GroupId> {
    let mut finished = names.iter().filter_map(|name| match group_of(name)? {
        (group, true) => Some(group),
        (_, false) => None,
    });
    finished.find(|g| !known(*g))
}

/// Returns the group's intact checkpoints, oldest first, at a start. Removes a checkpoint file that a crash
/// left unfinished.
pub(super) fn look(storage: &dyn Storage, naming: Naming) -> Result<Vec<Kept>, OpenError> {
    let io = OpenError::io;
    let names = storage.list().map_err(io("listing the data directory"))?;
    let mut found = Vec::new();
    for file in names {
        match naming.is_finished(&file) {
            None => continue,
            Some(false) => {
                let removed = storage.remove(&file);
                removed.map_err(io("removing an unfinished checkpoint"))?;
                continue;
            }
            Some(true) => {}
        }
        let bytes = read(storage, &file)?;
        match checkpoint::decode(&bytes) {
            Ok((header, _)) => found.push(Kept {
                index: header.entry.index,
                next: header.next,
                bytes: bytes.len() as u64,
                file,
            }),
            Err(CheckpointError::Newer { version }) => {
                let reads = checkpoint::VERSION;
                return Err(OpenError::NewerFile {
                    file,
                    version,
                    reads,
                });
            }
            Err(error) => {
                tracing::warn!(
                    "the server cannot use the checkpoint file {file}, and starts from another checkpoint, or from the log alone if there is none: {error}"
                )
            }
        }
    }
    found.sort_unstable_by_key(|k| (k.next, k.index));
    Ok(found)
}

/// Reads an intact checkpoint from its file at a start, and returns its header and its state.
pub(super) fn load(storage: &dyn Storage, kept: &Kept) -> Result<(Header, Bytes), OpenError> {
    let bytes = Bytes::from(read(storage, &kept.file)?);
    match checkpoint::decode(&bytes) {
        Ok((header, state)) => Ok((header, bytes.slice_ref(state))),
        Err(error) => Err(OpenError::Damaged(error.to_string())),
    }
}

/// Durably removes a checkpoint from the data directory, because its state no longer counts.
pub(super) fn remove(storage: &dyn Storage, kept: &Kept) -> Result<(), OpenError> {
    let removed = storage.remove(&kept.file);
    let removed = removed.and_then(|()| storage.sync_names());
    removed.map_err(OpenError::io("removing a checkpoint"))
}

/// Reads at most `len` bytes of a checkpoint's file, from `offset` on, for another member that fetches it.
pub(super) fn part(
    storage: &dyn Storage,
    kept: &Kept,
    offset: u64,
    len: usize,
) -> io::Result<Vec<u8>> {
    let left = usize::try_from(kept.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(left)];
    let read = storage.open(&kept.file)?.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

pub(super) fn read(storage: &dyn Storage, file: &str) -> Result<Vec<u8>, OpenError> {
    let read = || {
        let file = storage.open(file)?;
        let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut all = vec![0; bytes];
        let read = file.read_at(&mut all, 0)?;
        all.truncate(read);
        Ok(all)
    };
    read().map_err(OpenError::io("reading a checkpoint"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::EntryId;

    #[test]
    fn each_group_knows_its_own_by_their_names_and_strangers_are_told() {
        let of = |group| Naming {
            group,
            alone: false,
        };
        let header = Header {
            entry: EntryId::new(7, 0),
            next: Lsn::new(900),
            ..Header::default()
        };
        let second = GroupId::new(2);
        let (one, two) = (of(ALL).of(&header), of(second).of(&header));
        let first = |name: &str| of(ALL).is_finished(name);
        assert_eq!((first(&one), first(&two)), (Some(true), None));
        assert_eq!(of(second).is_finished(&two), Some(true));
        assert_eq!(first(&of(ALL).unfinished()), Some(false));
        assert_eq!(of(second).is_finished(&of(ALL).unfinished()), None);
        // The store writes this file name if the directory has only one group.
        let alone = Naming {
            alone: true,
            ..of(ALL)
        };
        let old = alone.of(&header);
        assert_eq!(
            (first(&old), of(second).is_finished(&old)),
            (Some(true), None)
        );
        assert_eq!(first("state-new"), Some(false));
        assert_eq!(alone.is_finished(&one), Some(true));
        for other in ["state-", "state-x", "state-1-x", "state-1-2-3-4", "version"] {
            assert_eq!(first(other), None, "{other}");
        }
        let names = [one, two, old, of(GroupId::new(9)).unfinished()];
        let stranger = |known: &[GroupId]| stranger(&names, |g| known.contains(&g));
        assert_eq!(stranger(&[ALL, second]), None);
        assert_eq!(stranger(&[ALL]), Some(second));
    }
}
