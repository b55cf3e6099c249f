//! The state that the threads of a log share: the table of segments, the durable position, and the failure.
//!
//! The log thread sets the durable position and the segments' ends, and adds segments to the table. The
//! keeper removes released segments from the table. The keeper makes spare segments, and the log thread
//! takes them. The appender counts pending batches up, and the log thread counts them down.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tidegate::controller::{SizeCosts, Snapshot};

use crate::append::Now;
use crate::duty::Passing;
use crate::options::Waker;
use crate::planner::Allocated;
use crate::record::Seed;
use crate::segment::SegmentHeader;
use crate::storage::{Storage, StorageFile};
use crate::syncs::Syncs;
use crate::{Failure, Lsn};

/// A segment in the log's table of segments that hold batches, or get the next batch. Readers find the
/// segment's file here.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) seed: Seed,
    pub(crate) file: Arc<dyn StorageFile>,
    /// The log position at which the durable part of the segment ends: readers must not read beyond it.
    end: AtomicU64,
    records: AtomicU64,
    sealed: AtomicBool,
    /// The bytes of disk space that the segment's file takes once the segment is sealed: less than its length
    /// if the log was short of space.
    taken: AtomicU64,
}

impl Segment {
    pub(crate) fn new(header: SegmentHeader, file: Arc<dyn StorageFile>) -> Self {
        Self {
            header,
            seed: header.seed(),
            file,
            end: AtomicU64::new(header.base.get()),
            records: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            taken: AtomicU64::new(header.bytes),
        }
    }

    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.end.load(Ordering::Acquire))
    }

    pub(crate) fn reached(&self, end: Lsn, records: u64) {
        self.records.store(records, Ordering::Relaxed);
        self.end.store(end.get(), Ordering::Release);
    }

    /// Marks the segment as sealed, with `taken` bytes of disk space.
    pub(crate) fn seal(&self, taken: u64) {
        self.taken
            .store(taken.min(self.header.bytes), Ordering::Relaxed);
        self.sealed.store(true, Ordering::Release);
    }

    /// Returns the bytes of disk space that a release of the segment frees.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

/// A spare segment: the keeper has allocated its file and listed it in the catalog, and the log has not yet
/// written to it.
pub(crate) struct Spare {
    pub(crate) segment: u64,
    pub(crate) salt: u64,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<dyn StorageFile>,
    /// True if a released segment had the file before.
    pub(crate) recycled: bool,
}

/// The counters of a log's work since this process opened the log, for monitoring.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) syncs: AtomicU64,
    pub(crate) markers: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) allocated: AtomicU64,
    pub(crate) recycled: AtomicU64,
}

/// The facts about syncs that readers may ask for. The holder of the duty takes their lock once a sync.
pub(crate) struct Observed {
    /// The state of the controller of syncs as of the last sync.
    pub(crate) snapshot: Snapshot,
    pub(crate) syncs: Syncs,
}

pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    /// The table of the log's segments, by the log position at which each begins, so that a reader finds the
    /// segment of a position.
    pub(crate) segments: RwLock<BTreeMap<Lsn, Arc<Segment>>>,
    pub(crate) spares: Mutex<VecDeque<Spare>>,
    /// The highest number of an allocated segment: the appender may place batches into segments up to this
    /// number.
    pub(crate) ready: AtomicU64,
    /// The number of bytes at the front of each segment, from the present one on, for which the keeper has
    /// reserved disk space. It only grows, up to the length of a segment.
    pub(crate) reserved: AtomicU64,
    /// True if the keeper's last attempt to allocate a segment found no disk space, so that the appender can
    /// tell its callers.
    pub(crate) disk_full: AtomicBool,
    /// True if the keeper's last attempt to allocate a segment, or to reserve more of the segments, found no
    /// disk space: the log goes on with segments of the present step, as far as it has them.
    pub(crate) short: AtomicBool,
    pub(crate) pending_bytes: AtomicU64,
    pub(crate) pending_batches: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) observed: Mutex<Observed>,
    /// The clock of the log, by which it notes when syncs start.
    pub(crate) now: Now,
    /// The controller's costs by size. The log thread copies them after a sync if `costs_asked` is true, and
    /// every 64 syncs otherwise, because they are larger than the snapshot.
    pub(crate) size_costs: Mutex<SizeCosts>,
    pub(crate) costs_asked: AtomicBool,
    pub(crate) errands: Errands,
    /// The state through which the log thread and the appending thread pass the duty of writing to each
    /// other.
    pub(crate) passing: Passing,
    durable: AtomicU64,
    failed: OnceLock<Failure>,
    waiters: AtomicUsize,
    waiting: Mutex<()>,
    changed: Condvar,
    waker: Waker,
}

impl Shared {
    pub(crate) fn new(storage: Arc<dyn Storage>, durable: Lsn, now: Now, waker: Waker) -> Self {
        Self {
            storage,
            segments: RwLock::default(),
            spares: Mutex::default(),
            ready: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            disk_full: AtomicBool::new(false),
            short: AtomicBool::new(false),
            pending_bytes: AtomicU64::new(0),
            pending_batches: AtomicUsize::new(0),
            counters: Counters::default(),
            observed: Mutex::new(Observed {
                snapshot: Snapshot::default(),
                syncs: Syncs::new(durable),
            }),
            now,
            size_costs: Mutex::default(),
            costs_asked: AtomicBool::new(true),
            errands: Errands::default(),
            passing: Passing::default(),
            durable: AtomicU64::new(durable.get()),
            failed: OnceLock::new(),
            waiters: AtomicUsize::new(0),
            waiting: Mutex::new(()),
            changed: Condvar::new(),
            waker,
        }
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    /// Sets the durable position: everything in the log before `lsn` is durable, and readers may read it.
    pub(crate) fn set_durable(&self, lsn: Lsn) {
        self.durable.store(lsn.get(), Ordering::Release);
    }

    /// Returns the disk space that the planner may use at this moment.
    pub(crate) fn allocated(&self) -> Allocated {
        Allocated {
            ready: self.ready.load(Ordering::Acquire),
            reserved: self.reserved.load(Ordering::Acquire),
            short: self.short.load(Ordering::Acquire),
        }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failed.get()
    }

    /// Marks the log as failed, so that it accepts no more batches, and returns the failure. After a second
    /// failure, the log still reports the first one.
    pub(crate) fn fail(&self, doing: &'static str, error: io::Error) -> Failure {
        let failure = Failure {
            doing,
            error: Arc::new(error),
            durable: self.durable(),
        };
        self.failed.get_or_init(|| failure).clone()
    }

    /// Wakes the threads that wait for a change of the log's state, and calls the waker that the caller has
    /// set.
    pub(crate) fn wake(&self) {
        self.wake_waiters();
        (self.waker)();
    }

    /// Wakes the threads that wait for a change of the log's state, without calling the waker.
    pub(crate) fn wake_waiters(&self) {
        // A waiting thread counts itself in `waiters` before it reads the state. This thread has stored the
        // state before it reads `waiters`. The fences keep this order, so that no thread misses its wake-up.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.waiting));
            self.changed.notify_all();
        }
    }

    /// Blocks until `done` returns true for the log's state, or the deadline passes, for callers that wait
    /// for a sync or for room. Returns false if the deadline passed first.
    pub(crate) fn wait_for(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> bool {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut guard = lock(&self.waiting);
        let outcome = loop {
            if done() {
                break true;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            guard = match left {
                Some(left) if left.is_zero() => break false,
                Some(left) => {
                    let woken = self.changed.wait_timeout(guard, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.changed.wait(guard);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Returns the segment in which a reader must look for log position `lsn`: the last segment that begins
    /// there or before.
    pub(crate) fn segment_of(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments
            .range(..=lsn)
            .next_back()
            .map(|(_, s)| Arc::clone(s))
    }

    /// Returns the first segment that begins at log position `lsn` or behind it, for a reader of released
    /// positions.
    pub(crate) fn segment_from(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.range(lsn..).next().map(|(_, s)| Arc::clone(s))
    }

    pub(crate) fn segment_numbered(&self, number: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let found = segments.values().find(|s| s.header.segment == number);
        found.map(Arc::clone)
    }

    pub(crate) fn insert(&self, segment: Arc<Segment>) {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.insert(segment.header.base, segment);
    }
}

/// The requests that wait for the keeper thread, merged into one errand. An errand never names more segments
/// than the log has, so its size is bounded.
#[derive(Default)]
pub(crate) struct Errands {
    state: Mutex<Errand>,
    changed: Condvar,
}

/// An errand: the segments that callers and the log thread have asked the keeper thread to allocate or
/// release.
#[derive(Default)]
pub(crate) struct Errand {
    /// True if the keeper must check for missing spare segments and allocate them.
    pub(crate) top_up: bool,
    /// True if the keeper must allocate one spare segment more than usual, because a caller needs more room.
    pub(crate) one_more: bool,
    /// The number of bytes at the front of each segment that the keeper must reserve at least; 0 if no caller
    /// needs more than is reserved.
    pub(crate) reserve: u64,
    /// The numbers of the segments that the keeper must release, because no caller needs them any more.
    pub(crate) release: Vec<u64>,
    /// True if the keeper must end, because the log is closing.
    pub(crate) end: bool,
}

impl Errands {
    pub(crate) fn ask(&self, change: impl FnOnce(&mut Errand)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Waits for the keeper's next errand. If the keeper gives a time `patience`, waits at most for that
    /// time. Returns an empty errand once `patience` is over, so that the keeper can remove surplus files.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Errand {
        let mut state = lock(&self.state);
        while !state.top_up && !state.end && state.release.is_empty() {
            let Some(patience) = patience else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if patience.is_zero() {
                // The keeper must not wait at all: a timed wait of zero still sleeps for as long as the
                // system rounds its timers up to.
                break;
            }
            let woken = self.changed.wait_timeout(state, patience);
            let (woken, over) = woken.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if over.timed_out() {
                break;
            }
        }
        let end = state.end;
        let errand = std::mem::take(&mut *state);
        state.end = end;
        errand
    }
}

/// Locks a mutex of the log, even if a thread panicked while it held the lock: the holders leave consistent
/// state then, too.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
