//! Opening a data directory: its lock and version, the newest checkpoint, and the replay of what came after it.
//!
//! A member that is alone in its group has committed every entry it has durably written, so it applies all of them before Raft
//! begins: Raft starts with everything applied and only adds to it.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use tidegate_log::{
    Disk, KIND_LOST, Log, Lsn, Opened, ReadError, RecordInfo, Recovery, Storage,
};

use super::error::OpenError;
use super::reading::Reading;
use super::{GROUP, Store, Waker};
use crate::replica::records::{HardState, KIND_ENTRY, KIND_HARD_STATE};
use crate::replica::{Committed, Group, GroupOptions, Restored};

/// The one format of a data directory there is.
pub(super) const VERSION: u32 = 1;
const VERSION_FILE: &str = "version";
/// Entries are read again in stretches of so many bytes.
const REPLAY_BYTES: usize = 4 << 20;

/// What can be chosen when a store is opened. Nothing needs to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// A segment's length: whole pages.
    pub segment_bytes: u64,
    /// The most bytes proposed and not yet applied.
    pub uncommitted_bytes_max: u64,
    /// The most bytes of applied entries kept in memory.
    pub tail_bytes_max: u64,
    /// The most bytes read from the log kept in memory.
    pub read_bytes_max: usize,
    /// Where salts of the log's segments come from; drawn from the system if `None`. For simulations.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            uncommitted_bytes_max: 16 << 20,
            tail_bytes_max: 32 << 20,
            read_bytes_max: 32 << 20,
            seed: None,
        }
    }
}

/// What is told of the log when it is replayed, in the order it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// An entry to apply.
    Entry(Committed),
}

/// A data directory that was looked at and is not yet written to.
pub struct Opening {
    opened: Opened,
    seen: Seen,
    options: Options,
    waker: Waker,
    /// Held with its lock.
    storage: Arc<dyn Storage>,
}

impl Opening {
    /// Claims the data directory `dir`, made if there is none, and looks through it. `waker` is called from other threads
    /// whenever the store has something for its loop.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn begin(dir: &Path, options: Options, waker: Waker) -> Result<Self, OpenError> {
        let io = OpenError::io;
        let dir = dir.join("tidegate");
        let state = Disk::open(&dir).map_err(io("opening the data directory"))?;
        let log = Disk::open(dir.join("log")).map_err(io("opening the log's directory"))?;
        Self::on(Arc::new(state), Arc::new(log), options, waker)
    }

    /// As [`begin`](Self::begin), in directories of any kind: one for the checkpoints, one for the log.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn on(
        storage: Arc<dyn Storage>,
        log: Arc<dyn Storage>,
        options: Options,
        waker: Waker,
    ) -> Result<Self, OpenError> {
        let claimed = storage.lock().map_err(OpenError::io("locking the data directory"))?;
        if !claimed {
            return Err(OpenError::InUse);
        }
        check_version(&*storage)?;
        let mut seen = Seen::default();
        let wake = Arc::clone(&waker);
        let mut log_options = tidegate_log::Options::default()
            .segment_bytes(options.segment_bytes)
            .waker(move || wake());
        if let Some(seed) = options.seed {
            log_options = log_options.seed(seed);
        }
        let opened = Log::open(log, log_options, |info| seen.note(&info))?;
        Ok(Self {
            opened,
            seen,
            options,
            waker,
            storage,
        })
    }

    /// How the end of the log was found.
    #[must_use]
    pub const fn recovery(&self) -> &Recovery {
        &self.opened.recovery
    }

    /// Tells everything that came after the checkpoint, in order; then the store is ready.
    ///
    /// # Errors
    /// What was durable cannot be read any more, or a thread cannot be started.
    pub fn replay(self, mut each: impl FnMut(Replayed)) -> Result<Store, OpenError> {
        let reader = self.opened.log.reader();
        let mut from = self.opened.recovery.first;
        loop {
            let chunk = reader.scan(from, REPLAY_BYTES).map_err(unreadable)?;
            if chunk.next == from {
                break;
            }
            for (lsn, record) in chunk.records {
                let counts = record.group == GROUP && record.kind == KIND_ENTRY;
                if counts && self.seen.counts(record.index, lsn) && !record.payload.is_empty() {
                    each(Replayed::Entry(Committed {
                        index: record.index,
                        term: record.term,
                        lsn,
                        data: record.payload,
                    }));
                }
            }
            from = chunk.next;
        }
        let group = GroupOptions {
            group: GROUP,
            id: 1,
            voters: vec![1],
            uncommitted_bytes_max: self.options.uncommitted_bytes_max,
            tail_bytes_max: self.options.tail_bytes_max,
        };
        let restored = Restored {
            hard_state: self.seen.hard_state,
            last: self.seen.last,
        };
        let reading = Reading::start(reader, self.options.read_bytes_max, self.waker);
        let mut store = Store {
            group: Group::open(group, restored),
            log: self.opened.log,
            appender: self.opened.appender,
            reading: reading.map_err(OpenError::io("starting a thread"))?,
            storage: self.storage,
        };
        // The election; if the log has no room for it now, the next poll hands it over.
        let _ = store.append();
        Ok(store)
    }
}

fn unreadable(error: ReadError) -> OpenError {
    match error {
        ReadError::Io(error) => OpenError::io("reading the log")(error),
        error => OpenError::Damaged(error.to_string()),
    }
}

/// Says what the directory's format is, if nobody has; refuses any other.
fn check_version(storage: &dyn Storage) -> Result<(), OpenError> {
    let io = OpenError::io;
    let read = || match storage.open(VERSION_FILE) {
        Ok(file) => {
            let mut text = vec![0; 32];
            let bytes = file.read_at(&mut text, 0)?;
            text.truncate(bytes);
            Ok(text)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    };
    let text = read().map_err(io("reading the data directory's version"))?;
    // A crash may have left it empty: then nothing else was written yet.
    if text.is_empty() {
        let write = || {
            let file = storage.create(VERSION_FILE)?;
            file.write_at(&[IoSlice::new(format!("{VERSION}\n").as_bytes())], 0)?;
            file.sync()?;
            storage.sync_names()
        };
        return write().map_err(io("writing the data directory's version"));
    }
    let version = std::str::from_utf8(&text).ok().and_then(|t| t.trim().parse().ok());
    match version {
        Some(VERSION) => Ok(()),
        Some(version) if version > VERSION => Err(OpenError::Newer { version }),
        _ => Err(OpenError::Version),
    }
}

/// What the log holds of the group, by its index.
#[derive(Debug, Default)]
struct Seen {
    hard_state: HardState,
    /// Index and term of the last entry.
    last: (u64, u64),
    /// Where an entry took the place of others: its index and position.
    overwritten: Vec<(u64, Lsn)>,
    /// A repair put placeholders for what was lost.
    lost: bool,
}

impl Seen {
    fn note(&mut self, info: &RecordInfo) {
        match info.kind {
            KIND_LOST => self.lost = true,
            KIND_HARD_STATE if info.group == GROUP => {
                self.hard_state = HardState {
                    term: info.term,
                    vote: info.index,
                };
            }
            KIND_ENTRY if info.group == GROUP => {
                if info.index <= self.last.0 {
                    self.overwritten.push((info.index, info.lsn));
                }
                self.last = (info.index, info.term);
            }
            _ => {}
        }
    }

    /// Whether the entry that stands there still does.
    fn counts(&self, index: u64, lsn: Lsn) -> bool {
        let over = |&(from, at): &(u64, Lsn)| at > lsn && from <= index;
        !self.overwritten.iter().any(over)
    }
}
