//! The checkpoints of a group in a data directory: the last two are kept, so that one may be damaged. A
//! thread writes them, because a large one takes seconds.
//!
//! A checkpoint is written as `state-new`, or `state-<group>-new`, synced, renamed, and the directory synced;
//! before that it does not count. Where there is no space, what was kept back for it is given up (`reserve`),
//! then the older of the two, never the newer.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_log::{Lsn, Storage, StorageFile, is_full};

use super::Waker;
use super::checkpoint::{self, CheckpointError, Encoder, Header};
use super::error::OpenError;
use super::reserve::Reserve;
use super::worker::{By, Worker};
use crate::cluster::groups::ALL;

const PREFIX: &str = "state-";
const NEW: &str = "new";
const RESERVE: &str = "reserve";
/// So many are kept.
const KEPT: usize = 2;
/// The state goes to the file in writes of about so many bytes.
const WRITE_BYTES: usize = 1 << 20;

/// The state in parts, in order; made where they are written.
pub type Parts = Box<dyn Iterator<Item = Vec<u8>> + Send>;

/// A checkpoint that is there, and durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) index: u64,
    pub(super) next: Lsn,
    pub(super) bytes: u64,
    file: String,
}

/// What a group's checkpoints are called. Where a directory has one group only, by the index; otherwise by
/// the group, the index and the position: a group at rest has several of one index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) group: u32,
    /// No other group is there.
    pub(super) alone: bool,
}

impl Naming {
    fn of(self, header: &Header) -> String {
        let Self { group, alone } = self;
        let (index, next) = (header.index, header.next.get());
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

    /// The file that keeps space for the next.
    fn reserve(self) -> String {
        match self.alone {
            true => RESERVE.to_owned(),
            false => format!("{RESERVE}-{}", self.group),
        }
    }

    /// Whether a file of this name is a checkpoint of the group, finished or (`false`) not.
    fn is_finished(self, name: &str) -> Option<bool> {
        let rest = name.strip_prefix(PREFIX)?;
        let number = |text: &str| text.parse::<u64>().is_ok();
        // The first group may have been alone once.
        let parts: Vec<&str> = match rest.split('-').collect::<Vec<_>>()[..] {
            [group, ref rest @ ..] if !rest.is_empty() => {
                (group == self.group.to_string()).then(|| rest.to_vec())?
            }
            [one] => (self.group == ALL).then(|| vec![one])?,
            _ => return None,
        };
        match parts[..] {
            [NEW] => Some(false),
            [index] | [index, _] if !number(index) => None,
            [_] | [_, _] => Some(true),
            _ => None,
        }
    }
}

/// Those that are kept, and whether the new one is among them.
type Outcome = (Vec<Kept>, io::Result<()>);
type Done = Arc<Mutex<Option<Outcome>>>;

/// What the thread is asked for.
enum Job {
    Write {
        naming: Naming,
        header: Header,
        parts: Parts,
        kept: Vec<Kept>,
    },
    /// Space for one more, after a last one of so many bytes.
    Reserve(u64),
}

/// One of each kind.
const JOBS_MAX: usize = 2;

/// See the [module](self).
pub(super) struct Checkpoints {
    naming: Naming,
    /// Oldest first.
    kept: Vec<Kept>,
    writing: bool,
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
        reserve_bytes_min: u64,
        waker: Waker,
    ) -> io::Result<Self> {
        let done = Done::default();
        let told = Arc::clone(&done);
        let reserve = Reserve::new(naming.reserve(), reserve_bytes_min);
        let kept_back = Arc::clone(&reserve);
        let worker = Worker::start(by, "checkpoints", JOBS_MAX, move |job| {
            let outcome = match job {
                Job::Reserve(last) => {
                    kept_back.make(&*storage, last);
                    return waker();
                }
                Job::Write {
                    naming,
                    header,
                    parts,
                    kept,
                } => {
                    let mut out = Out {
                        storage: &*storage,
                        reserve: &kept_back,
                        at: 0,
                        waiting: Vec::new(),
                        kept,
                    };
                    let written = write(&mut out, naming, &header, parts);
                    if written.is_err() {
                        // Its space is wanted; the next start would remove it, too.
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
            done,
            worker,
            reserve,
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
        let job = Job::Write {
            naming: self.naming,
            header,
            parts,
            kept: self.kept.clone(),
        };
        self.writing = self.worker.ask(job);
    }

    /// Has space kept back for the next one, if there is too little; whether that was so.
    pub(super) fn keep_reserve(&self) -> bool {
        let last = self.kept.last().map_or(0, |k| k.bytes);
        let begins = self.reserve.begin(last);
        if begins && !self.worker.ask(Job::Reserve(last)) {
            self.reserve.cancel();
        }
        begins
    }

    /// Bytes kept back.
    pub(super) fn reserve_bytes(&self) -> u64 {
        self.reserve.bytes()
    }

    /// Writes what is asked for, where no thread does.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.worker.step()
    }

    /// The outcome of the one that was being written, once it is known.
    pub(super) fn poll(&mut self) -> Option<io::Result<()>> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, written) = done.take()?;
        drop(done);
        self.writing = false;
        self.kept = kept;
        Some(written)
    }

    /// Waits for the one that is being written.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.worker.end();
        self.poll().unwrap_or(Ok(()))
    }
}

/// Writes a checkpoint, and removes what is kept no more.
fn write(out: &mut Out<'_>, naming: Naming, header: &Header, parts: Parts) -> io::Result<()> {
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
        index: header.index,
        next: header.next,
        bytes: out.at,
        file,
    });
    while out.kept.len() > KEPT {
        out.storage.remove(&out.kept.remove(0).file)?;
    }
    Ok(())
}

/// What goes to the file that is being written.
struct Out<'a> {
    storage: &'a dyn Storage,
    reserve: &'a Reserve,
    at: u64,
    waiting: Vec<u8>,
    /// Those of before that are still there.
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

    /// Tries again as long as there is no space and something can be given up for it.
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

/// A group of which there is a checkpoint by this name, and that is not known. It may have nothing in the log
/// any more.
pub(super) fn stranger(names: &[String], known: impl Fn(u32) -> bool) -> Option<u32> {
    let group = |name: &String| {
        let (group, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let naming = Naming {
            group: group.parse().ok()?,
            alone: false,
        };
        (naming.is_finished(name) == Some(true)).then_some(naming.group)
    };
    names.iter().filter_map(group).find(|g| !known(*g))
}

/// A group's checkpoints there are that are whole, oldest first; what a crash left half written is removed.
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
                index: header.index,
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
            Err(error) => tracing::warn!("{file} is passed over: {error}"),
        }
    }
    found.sort_unstable_by_key(|k| (k.next, k.index));
    Ok(found)
}

/// The header and the state of a checkpoint that was found whole.
pub(super) fn load(storage: &dyn Storage, kept: &Kept) -> Result<(Header, Bytes), OpenError> {
    let bytes = Bytes::from(read(storage, &kept.file)?);
    match checkpoint::decode(&bytes) {
        Ok((header, state)) => Ok((header, bytes.slice_ref(state))),
        Err(error) => Err(OpenError::Damaged(error.to_string())),
    }
}

/// Removes a checkpoint.
pub(super) fn remove(storage: &dyn Storage, kept: &Kept) -> Result<(), OpenError> {
    let removed = storage.remove(&kept.file);
    let removed = removed.and_then(|()| storage.sync_names());
    removed.map_err(OpenError::io("removing a checkpoint"))
}

/// Some bytes of a checkpoint.
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

fn read(storage: &dyn Storage, file: &str) -> Result<Vec<u8>, OpenError> {
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

    #[test]
    fn each_group_knows_its_own_by_their_names_and_strangers_are_told() {
        let of = |group| Naming {
            group,
            alone: false,
        };
        let header = Header {
            index: 7,
            next: Lsn::new(900),
            ..Header::default()
        };
        let (one, two) = (of(ALL).of(&header), of(2).of(&header));
        let first = |name: &str| of(ALL).is_finished(name);
        assert_eq!((first(&one), first(&two)), (Some(true), None));
        assert_eq!(of(2).is_finished(&two), Some(true));
        assert_eq!(first(&of(ALL).unfinished()), Some(false));
        assert_eq!(of(2).is_finished(&of(ALL).unfinished()), None);
        // From when there was one group.
        let alone = Naming {
            alone: true,
            ..of(ALL)
        };
        let old = alone.of(&header);
        assert_eq!((first(&old), of(2).is_finished(&old)), (Some(true), None));
        assert_eq!(first("state-new"), Some(false));
        assert_eq!(alone.is_finished(&one), Some(true));
        for other in ["state-", "state-x", "state-1-x", "state-1-2-3-4", "version"] {
            assert_eq!(first(other), None, "{other}");
        }
        let names = [one, two, old, of(9).unfinished()];
        let stranger = |known: &[u32]| stranger(&names, |g| known.contains(&g));
        assert_eq!((stranger(&[ALL, 2]), stranger(&[ALL])), (None, Some(2)));
    }
}
