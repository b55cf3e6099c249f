//! Appending: a batch is given its place and handed to the log thread, or refused while nothing has changed.
//!
//! There is one appender a log, and it is not shared: positions need no lock. Whoever has many threads puts a
//! queue, or a lock, before it.

use std::sync::Arc;
#[cfg(feature = "sim")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use tidegate::queue::{PushError, Queue};
use tidegate::{Clock, Time};

use crate::batch::{BATCH_HEADER, batch_bytes};
use crate::driver::{Done, Pending};
use crate::planner::{NoSegment, Place, Planner};
use crate::shared::Shared;
use crate::writer::Accepted;
use crate::{AppendError, Failure, KIND_LOST, Log, Lsn, Record};

/// Records to be kept or lost together, and who is to be told.
#[derive(Default)]
pub struct Append {
    records: Vec<Record>,
    callers: u64,
    done: Option<Done>,
}

impl Append {
    /// These records, in this order, for one caller.
    #[must_use]
    pub const fn new(records: Vec<Record>) -> Self {
        Self {
            records,
            callers: 1,
            done: None,
        }
    }

    /// So many callers wait for it: the more of them are known to return, the more a sync may wait for.
    #[must_use]
    pub const fn callers(mut self, callers: u64) -> Self {
        self.callers = callers;
        self
    }

    /// Calls `done` on the log thread with the batch's position once it is durable, or with the failure after
    /// which nobody knows. In the order of the batches; the next sync waits for it, so it must be brief.
    #[must_use]
    pub fn then(mut self, done: impl FnOnce(Result<Lsn, Failure>) + Send + 'static) -> Self {
        self.done = Some(Box::new(done));
        self
    }
}

/// Where an appender has the time from.
pub(crate) enum Now {
    Clock(Clock),
    /// From whoever steps the log.
    #[cfg(feature = "sim")]
    Told(Arc<AtomicU64>),
}

impl Now {
    fn get(&self) -> Time {
        match self {
            Self::Clock(clock) => clock.now(),
            #[cfg(feature = "sim")]
            Self::Told(ns) => Time::from_nanos(ns.load(Ordering::Relaxed)),
        }
    }
}

/// Where a batch is going to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its beginning.
    pub at: Lsn,
    /// Its end: it is durable as soon as [`Log::durable`] has come this far.
    pub end: Lsn,
    /// The segment it is in.
    pub segment: u64,
    /// Where each of its records is going to be, in order.
    pub records: Vec<Lsn>,
}

/// The one place batches come in. Dropping it closes the log once everything accepted is durable.
pub struct Appender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Queue<Pending>,
    pub(crate) planner: Planner,
    pub(crate) now: Now,
    pub(crate) pending_bytes_max: u64,
    pub(crate) pending_batches_max: usize,
    /// The segments that the keeper allocates ahead.
    pub(crate) spares: usize,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

impl Appender {
    /// Accepts a batch, or gives it back with the reason. Never blocks. Accepted means: it has a place, and
    /// is told once it is durable; nothing more.
    ///
    /// # Errors
    /// See [`AppendError`]; [`AppendError::Full`], [`AppendError::NotReady`] and [`AppendError::DiskFull`]
    /// pass: the waker is called when it may be tried again.
    pub fn append(&mut self, append: Append) -> Result<Appended, (Append, AppendError)> {
        let bytes = batch_bytes(&append.records);
        match self.admit(&append.records, bytes) {
            Ok(place) => Ok(self.accept(append, bytes, place)),
            Err(error) => Err((append, error)),
        }
    }

    /// Whether a batch of so many bytes ([`batch_bytes`]) would be accepted now, for whoever has to know
    /// before there is one. It stays so until the next append, unless the log fails.
    ///
    /// # Errors
    /// Why it would not, as [`append`](Self::append) would say.
    pub fn check(&self, bytes: u64) -> Result<(), AppendError> {
        self.place(&mut self.planner.clone(), bytes).map(drop)
    }

    /// Bytes of batches ([`batch_bytes`]) there is room for in segments that are allocated. While a disk is
    /// full it is what is left: whoever must be able to append then, to make space, keeps others from the
    /// last of it.
    #[must_use]
    pub fn room_left(&self) -> u64 {
        self.planner.left(self.shared.ready.load(Ordering::Acquire))
    }

    /// Returns the bytes that [`room_left`](Self::room_left) will give once batches of these bytes
    /// ([`batch_bytes`]) are appended in this order, or `None` if the allocated segments cannot take all. A
    /// batch that is too large for the rest of a segment leaves that rest unused.
    #[must_use]
    pub fn room_behind(&self, batches: impl IntoIterator<Item = u64>) -> Option<u64> {
        let ready = self.shared.ready.load(Ordering::Acquire);
        let mut planner = self.planner.clone();
        for bytes in batches {
            if bytes > planner.most() {
                return None;
            }
            planner.place(bytes, ready).ok()?;
        }
        Some(planner.left(ready))
    }

    /// Asks for one segment more than the log allocates ahead, for callers that keep room back behind a large
    /// batch. If the disk has no space for it, [`Log::disk_full`] says so until there is space, or until a
    /// segment is released: then a caller that still lacks room asks again. The log calls the waker in each
    /// of these cases.
    pub fn ask_for_room(&self) {
        let ready = self.shared.ready.load(Ordering::Acquire);
        if self.planner.ahead(ready) <= self.spares as u64 {
            self.shared.errands.ask(|errand| {
                errand.top_up = true;
                errand.one_more = true;
            });
        }
    }

    fn admit(&mut self, records: &[Record], bytes: u64) -> Result<Place, AppendError> {
        if records.is_empty() {
            return Err(AppendError::Empty);
        }
        if records.iter().any(|r| r.kind == KIND_LOST) {
            return Err(AppendError::Kind);
        }
        let mut planner = self.planner.clone();
        let place = self.place(&mut planner, bytes)?;
        self.planner = planner;
        Ok(place)
    }

    fn place(&self, planner: &mut Planner, bytes: u64) -> Result<Place, AppendError> {
        let shared = &self.shared;
        if let Some(failure) = shared.failure() {
            return Err(AppendError::Failed(failure.clone()));
        }
        let most = planner.most();
        if bytes > most {
            return Err(AppendError::TooLarge { bytes, most });
        }
        self.room_for(bytes)?;
        let ready = shared.ready.load(Ordering::Acquire);
        planner.place(bytes, ready).map_err(|NoSegment| {
            let full = shared.disk_full.load(Ordering::Acquire);
            shared.errands.ask(|errand| errand.top_up = true);
            match full {
                true => AppendError::DiskFull,
                false => AppendError::NotReady,
            }
        })
    }

    fn accept(&mut self, append: Append, bytes: u64, place: Place) -> Appended {
        let mut at = place.at.after(BATCH_HEADER as u64);
        let mut positions = Vec::with_capacity(append.records.len());
        for record in &append.records {
            positions.push(at);
            at = at.after(record.stored_bytes());
        }
        self.shared.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.shared.pending_batches.fetch_add(1, Ordering::AcqRel);
        let pending = Pending {
            batch: Accepted {
                place,
                records: append.records,
            },
            bytes,
            callers: append.callers.max(1),
            at: self.now.get(),
            done: append.done,
        };
        match self.queue.try_push(pending) {
            Ok(()) => {}
            // The log failed a moment ago: what was accepted is answered as everything before it was.
            Err(PushError::Closed(pending)) => self.answer_failed(pending),
            Err(_) => {
                unreachable!("the ring has room for every batch the bound on batches lets in")
            }
        }
        Appended {
            at: place.at,
            end: at,
            segment: place.segment,
            records: positions,
        }
    }

    fn answer_failed(&self, pending: Pending) {
        if let (Some(done), Some(failure)) = (pending.done, self.shared.failure()) {
            done(Err(failure.clone()));
        }
    }

    /// Waits until this batch may be accepted, or can never be, or the disk is full; at most until
    /// `deadline`. Says whether it is worth trying.
    #[must_use]
    pub fn wait_for_room(&self, append: &Append, deadline: Option<Instant>) -> bool {
        let bytes = batch_bytes(&append.records);
        self.shared.wait_for(deadline, || {
            let shared = &self.shared;
            let passes = shared.failure().is_none() && !shared.disk_full.load(Ordering::Acquire);
            let ready = shared.ready.load(Ordering::Acquire);
            let placed =
                bytes > self.planner.most() || self.planner.clone().place(bytes, ready).is_ok();
            !passes || (placed && self.room_for(bytes).is_ok())
        })
    }

    fn room_for(&self, bytes: u64) -> Result<(), AppendError> {
        let pending = self.shared.pending_bytes.load(Ordering::Acquire);
        let missing_bytes = (pending + bytes).saturating_sub(self.pending_bytes_max);
        if pending > 0 && missing_bytes > 0 {
            return Err(AppendError::Full { missing_bytes });
        }
        match self.shared.pending_batches.load(Ordering::Acquire) < self.pending_batches_max {
            true => Ok(()),
            false => Err(AppendError::Full { missing_bytes: 0 }),
        }
    }

    /// A handle to everything but appending.
    #[must_use]
    pub fn log(&self) -> Log {
        Log::new(Arc::clone(&self.shared))
    }

    /// Waits until everything accepted is durable, notes that the log was closed, and ends its threads. The
    /// directory is free for others once every [`Log`] and [`Reader`](crate::Reader) is gone, too.
    ///
    /// # Errors
    /// A failure, then or before.
    pub fn close(mut self) -> Result<(), Failure> {
        self.end();
        self.shared.failure().map_or(Ok(()), |f| Err(f.clone()))
    }

    fn end(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic there has been printed; there is nobody to hand it to.
            let _ = thread.join();
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.end();
    }
}
