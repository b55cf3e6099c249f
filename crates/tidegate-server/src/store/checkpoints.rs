//! The checkpoints of a data directory: the last two are kept, so that one may be damaged. A thread writes them, because a large
//! one takes seconds.
//!
//! A checkpoint is written as `state-new`, synced, renamed, and the directory synced; before that it does not count. Where
//! there is no space, the older of the two is given up for the new one, never the newer.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_log::{Lsn, Storage};

use super::Waker;
use super::checkpoint::{self, CheckpointError, Encoder, Header};
use super::error::OpenError;
use super::worker::{By, Worker};

const PREFIX: &str = "state-";
const NEW: &str = "state-new";
/// So many are kept.
const KEPT: usize = 2;
/// The state goes to the file in writes of about so many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// The state in parts, in order; made where they are written.
pub type Parts = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// A checkpoint that is there, and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) index: u64,
    pub(super) next: Lsn,
    pub(super) bytes: u64,
}

type Done = Arc<Mutex<Option<io::Result<Vec<Kept>>>>>;

struct Job {
    header: Header,
    parts: Parts,
    kept: Vec<Kept>,
}

/// See the [module](self).
pub(super) struct Checkpoints {
    /// Oldest first.
    kept: Vec<Kept>,
    writing: bool,
    done: Done,
    worker: Worker<Job>,
}

impl Checkpoints {
    pub(super) fn start(
        by: By,
        storage: Arc<dyn Storage>,
        kept: Vec<Kept>,
        waker: Waker,
    ) -> io::Result<Self> {
        let done = Done::default();
        let told = Arc::clone(&done);
        let worker = Worker::start(by, "checkpoints", 1, move |job| {
            let outcome = write(&*storage, job);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            waker();
        })?;
        Ok(Self {
            kept,
            writing: false,
            done,
            worker,
        })
    }

    /// Those that are there, oldest first.
    pub(super) fn kept(&self) -> &[Kept] {
        &self.kept
    }

    pub(super) const fn is_writing(&self) -> bool {
        self.writing
    }

    /// Has one written. One at a time.
    pub(super) fn write(&mut self, header: Header, parts: Parts) {
        assert!(!self.writing, "one checkpoint at a time");
        let job = Job {
            header,
            parts,
            kept: self.kept.clone(),
        };
        self.writing = self.worker.ask(job);
    }

    /// Writes what is asked for, where no thread does.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.worker.step()
    }

    /// The outcome of the one that was being written, once it is known.
    pub(super) fn poll(&mut self) -> Option<io::Result<()>> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = done.take()?;
        drop(done);
        self.writing = false;
        Some(outcome.map(|kept| self.kept = kept))
    }

    /// Waits for the one that is being written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.worker.end();
        self.poll().unwrap_or(Ok(()))
    }
}

/// Writes a checkpoint; those that are kept from now on.
fn write(storage: &dyn Storage, job: Job) -> io::Result<Vec<Kept>> {
    let mut out = Out {
        storage,
        file: storage.create(NEW)?,
        at: 0,
        waiting: Vec::new(),
        kept: job.kept,
    };
    let (mut encoder, first) = Encoder::begin(&job.header);
    out.put(&first)?;
    for part in job.parts {
        encoder.part(&part);
        out.put(&part)?;
    }
    out.put(&encoder.end())?;
    out.flush()?;
    out.file.sync()?;
    storage.rename(NEW, &name(job.header.index))?;
    storage.sync_names()?;
    let mut kept = out.kept;
    kept.retain(|k| k.index != job.header.index);
    kept.push(Kept {
        index: job.header.index,
        next: job.header.next,
        bytes: out.at,
    });
    let too_many = kept.len().saturating_sub(KEPT);
    for old in kept.drain(..too_many) {
        storage.remove(&name(old.index))?;
    }
    Ok(kept)
}

/// The file that is being written.
struct Out<'a> {
    storage: &'a dyn Storage,
    file: Arc<dyn tidegate_log::StorageFile>,
    at: u64,
    waiting: Vec<u8>,
    /// Those of before that are still there.
    kept: Vec<Kept>,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(bytes);
        match self.waiting.len() < WRITE_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let write = |out: &Self| out.file.write_at(&[IoSlice::new(&out.waiting)], out.at);
        match write(self) {
            Err(e) if e.kind() == io::ErrorKind::StorageFull && self.kept.len() >= KEPT => {
                self.storage.remove(&name(self.kept.remove(0).index))?;
                write(self)?;
            }
            done => done?,
        }
        self.at += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

fn name(index: u64) -> String {
    format!("{PREFIX}{index:020}")
}

/// The checkpoints there are that are whole, oldest first; what a crash left half written is removed.
pub(super) fn look(storage: &dyn Storage) -> Result<Vec<Kept>, OpenError> {
    let io = OpenError::io;
    let names = storage.list().map_err(io("listing the data directory"))?;
    if names.iter().any(|n| n == NEW) {
        storage
            .remove(NEW)
            .map_err(io("removing an unfinished checkpoint"))?;
    }
    let index = |n: &String| n.strip_prefix(PREFIX)?.parse::<u64>().ok();
    let mut indices: Vec<u64> = names.iter().filter_map(index).collect();
    indices.sort_unstable();
    let mut found = Vec::new();
    for index in indices {
        let bytes = read(storage, index)?;
        match checkpoint::decode(&bytes) {
            Ok((header, _)) => found.push(Kept {
                index,
                next: header.next,
                bytes: bytes.len() as u64,
            }),
            Err(CheckpointError::Newer { version }) => return Err(OpenError::Newer { version }),
            Err(error) => tracing::warn!("{} is passed over: {error}", name(index)),
        }
    }
    Ok(found)
}

/// The header and the state of a checkpoint that was found whole.
pub(super) fn load(storage: &dyn Storage, kept: Kept) -> Result<(Header, Bytes), OpenError> {
    let bytes = Bytes::from(read(storage, kept.index)?);
    match checkpoint::decode(&bytes) {
        Ok((header, state)) => Ok((header, bytes.slice_ref(state))),
        Err(error) => Err(OpenError::Damaged(error.to_string())),
    }
}

/// Removes a checkpoint.
pub(super) fn remove(storage: &dyn Storage, kept: Kept) -> Result<(), OpenError> {
    let removed = storage.remove(&name(kept.index));
    let removed = removed.and_then(|()| storage.sync_names());
    removed.map_err(OpenError::io("removing a checkpoint"))
}

/// Some bytes of a checkpoint.
pub(super) fn part(
    storage: &dyn Storage,
    kept: Kept,
    offset: u64,
    len: usize,
) -> io::Result<Vec<u8>> {
    let left = usize::try_from(kept.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len.min(left)];
    let read = storage
        .open(&name(kept.index))?
        .read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn read(storage: &dyn Storage, index: u64) -> Result<Vec<u8>, OpenError> {
    let read = || {
        let file = storage.open(&name(index))?;
        let bytes = usize::try_from(file.bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut all = vec![0; bytes];
        let read = file.read_at(&mut all, 0)?;
        all.truncate(read);
        Ok(all)
    };
    read().map_err(OpenError::io("reading a checkpoint"))
}
