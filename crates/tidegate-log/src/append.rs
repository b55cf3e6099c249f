//! The appender: gives each batch its position in the log and hands the batch to the log thread, or refuses
//! the batch and changes nothing.
//!
//! A log has one appender, which is not shared, so positions need no lock. A program with several threads
//! puts a queue or a lock before the appender.

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
use crate::duty::Duty;
use crate::growth::Growth;
use crate::options::room;
use crate::planner::{NoSegment, Place, Planner};
use crate::shared::Shared;
use crate::writer::Accepted;
use crate::{AppendError, Failure, KIND_LOST, Log, Lsn, Record};

/// A batch to append: the records, of which a crash keeps all or none, and the callback to which the log
/// thread reports the outcome.
#[derive(Default)]
pub struct Append {
    records: Vec<Record>,
    callers: u64,
    done: Option<Done>,
}

impl Append {
    /// Creates a batch to append from these records, in this order. The batch counts as one waiting caller
    /// when the controller decides about a sync.
    #[must_use]
    pub const fn new(records: Vec<Record>) -> Self {
        Self {
            records,
            callers: 1,
            done: None,
        }
    }

    /// Sets the number of callers that wait for the batch; 1 if not set. The controller that decides about
    /// syncs counts them: the more callers are about to return with the next record, the longer it may delay
    /// a sync for them.
    #[must_use]
    pub const fn callers(mut self, callers: u64) -> Self {
        self.callers = callers;
        self
    }

    /// Calls `done` on the log thread with the batch's position once the batch is durable, or with the
    /// failure after which the batch's state is unknown. The log thread calls the callbacks in the order of
    /// the batches, and starts its next sync only afterwards, so `done` must return quickly.
    #[must_use]
    pub fn then(mut self, done: impl FnOnce(Result<Lsn, Failure>) + Send + 'static) -> Self {
        self.done = Some(Box::new(done));
        self
    }
}

/// The clock from which the appender takes the arrival time of each batch, for the controller of syncs.
#[derive(Clone)]
pub(crate) enum Now {
    Clock(Clock),
    /// The clock shows a virtual time, in nanoseconds. A simulation sets this time, so that the same seed
    /// always gives the same run.
    #[cfg(feature = "sim")]
    Told(Arc<AtomicU64>),
}

impl Now {
    pub(crate) fn get(&self) -> Time {
        match self {
            Self::Clock(clock) => clock.now(),
            #[cfg(feature = "sim")]
            Self::Told(ns) => Time::from_nanos(ns.load(Ordering::Relaxed)),
        }
    }
}

/// The positions in the log that the appender gave to an accepted batch and to its records, so that the
/// caller can wait for the batch and read the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The log position at which the batch begins. The callback of the batch gets this position, too.
    pub at: Lsn,
    /// The log position at which the batch ends. The batch is durable once [`Log::durable`] has reached this
    /// position.
    pub end: Lsn,
    /// The number of the segment into which the log writes the batch. The caller needs it to learn when it
    /// may release the segment.
    pub segment: u64,
    /// The log position of each record of the batch, in the order of the records.
    /// [`Reader::read`](crate::Reader::read) takes such a position.
    pub records: Vec<Lsn>,
}

/// Accepts the batches of callers and queues them for the log thread, which makes them durable. A drop of
/// the appender closes the log once all accepted batches are durable.
pub struct Appender {
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Queue<Pending>,
    pub(crate) planner: Planner,
    pub(crate) now: Now,
    pub(crate) pending_bytes_max: u64,
    pub(crate) pending_batches_max: usize,
    /// The number of spare segments that the keeper thread keeps allocated, an option of the log. The
    /// appender asks the keeper for one segment more only while the log has at most this many spare segments.
    pub(crate) spares: usize,
    pub(crate) growth: Growth,
    /// The greatest reservation for which the appender has asked the keeper ahead of need.
    pub(crate) asked_bytes: u64,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

impl Appender {
    /// Accepts a batch, or returns the batch with the reason for the refusal. Never blocks. An accepted batch
    /// has a position but is not yet durable: its callback, or [`Log::durable`], says when it is.
    ///
    /// # Errors
    /// See [`AppendError`]; [`AppendError::Full`], [`AppendError::NotReady`] and [`AppendError::DiskFull`]
    /// are temporary: the log calls the waker when the caller may try again.
    pub fn append(&mut self, append: Append) -> Result<Appended, (Append, AppendError)> {
        let bytes = batch_bytes(&append.records);
        match self.admit(&append.records, bytes) {
            Ok(place) => Ok(self.accept(append, bytes, place)),
            Err(error) => Err((append, error)),
        }
    }

    /// Checks whether the log would accept a batch of `bytes` bytes ([`batch_bytes`]) now, for callers that
    /// want to know this before they build the batch. The answer holds until the next append, unless the log
    /// fails.
    ///
    /// # Errors
    /// Returns the error with which [`append`](Self::append) would refuse the batch.
    pub fn check(&self, bytes: u64) -> Result<(), AppendError> {
        self.place(&mut self.planner.clone(), bytes).map(drop)
    }

    /// Returns the number of bytes of batches ([`batch_bytes`]) for which the allocated segments have room.
    /// While the disk is full, the log cannot get more room. A caller that must still append on a full disk,
    /// for instance a purge that frees space, uses the number to refuse other appends early enough.
    #[must_use]
    pub fn room_left(&self) -> u64 {
        self.planner.left(self.shared.allocated())
    }

    /// Returns the number of bytes that [`room_left`](Self::room_left) will return once batches of these
    /// bytes ([`batch_bytes`]) are appended in this order, or `None` if the allocated segments cannot take
    /// all of them. A caller thus learns whether it still has room for a later batch. A batch that is too
    /// large for the rest of a segment leaves that rest unused.
    #[must_use]
    pub fn room_behind(&self, batches: impl IntoIterator<Item = u64>) -> Option<u64> {
        let allocated = self.shared.allocated();
        let mut planner = self.planner.clone();
        for bytes in batches {
            if bytes > planner.most() {
                return None;
            }
            planner.place(bytes, allocated).ok()?;
        }
        Some(planner.left(allocated))
    }

    /// Returns the number of bytes at the front of each segment for which the log has reserved disk space:
    /// the length of a segment, or less while the log is new (see the option
    /// [`first_bytes`](crate::Options::first_bytes)). A caller that keeps a share of the log's room free
    /// computes the share from this number.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.shared.allocated().reserved
    }

    /// Returns the greatest number of bytes that a batch ([`batch_bytes`]) may have in the reserved part of a
    /// segment. While the log [is short](Log::is_short) of space, it refuses larger batches as on a full
    /// disk.
    #[must_use]
    pub fn batch_bytes_reserved(&self) -> u64 {
        room(self.reserved_bytes())
    }

    /// Asks the keeper thread for more room than the option `spares` says, for a caller that is about to
    /// append a large batch and needs free room behind it: for more of each segment while the log is new, and
    /// later, or if the disk has no space for that, for one spare segment more. If the disk has no space for
    /// such a segment, [`Log::disk_full`] returns true until the disk has space or the log releases a
    /// segment. A caller that still lacks room after a release asks again. The log calls the waker after each
    /// attempt of the keeper.
    pub fn ask_for_room(&self) {
        let allocated = self.shared.allocated();
        if !allocated.short && !self.growth.is_whole(allocated.reserved) {
            self.ask_to_reserve(self.growth.after(allocated.reserved));
        } else if self.planner.ahead(allocated.ready) <= self.spares as u64 {
            self.shared.errands.ask(|errand| {
                errand.top_up = true;
                errand.one_more = true;
            });
        }
    }

    /// Leaves the rest of the present segment unused: the next batch begins the next segment, and the log
    /// seals the present one. A caller that needs few records of the present segment can so release it before
    /// the segment is full. Returns false and changes nothing if the present segment has no batch, or if the
    /// log has not allocated the next segment yet.
    pub fn leave_segment(&mut self) -> bool {
        self.planner.leave(self.shared.allocated())
    }

    fn ask_to_reserve(&self, bytes: u64) {
        self.shared.errands.ask(|errand| {
            errand.top_up = true;
            errand.reserve = errand.reserve.max(bytes);
        });
    }

    /// Asks the keeper to reserve more of the segments once the log has reached the position for the next
    /// step, so that appends do not wait for it. Asks for each step once.
    fn reserve_ahead(&mut self) {
        let reserved = self.shared.allocated().reserved;
        if self.growth.is_whole(reserved) {
            return;
        }
        let wanted = self.growth.at(self.planner.next());
        if wanted > reserved.max(self.asked_bytes) {
            self.asked_bytes = wanted;
            self.ask_to_reserve(wanted);
        }
    }

    /// Asks the log thread for the duty of writing, so that the caller can write and sync its own batches
    /// without waking another thread. With `false`, withdraws the request. The log thread offers the duty
    /// after its next sync and calls the waker; the caller then takes the duty with
    /// [`take_duty`](Self::take_duty).
    pub fn want_duty(&self, wants: bool) {
        self.shared.passing.want(wants);
    }

    /// Takes the duty of writing, if the log thread offers it. After an offer the log thread writes nothing
    /// until the caller has taken and dropped the duty, or has withdrawn its request.
    #[must_use]
    pub fn take_duty(&self) -> Option<Duty> {
        match &self.now {
            Now::Clock(clock) => Duty::take(&self.shared, *clock),
            #[cfg(feature = "sim")]
            Now::Told(_) => None,
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
        self.reserve_ahead();
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
        planner
            .place(bytes, shared.allocated())
            .map_err(|NoSegment| {
                let full = self.is_full_for(bytes);
                self.ask_to_reserve(self.growth.at(planner.next().after(bytes)));
                match full {
                    true => AppendError::DiskFull,
                    false => AppendError::NotReady,
                }
            })
    }

    /// Returns whether the disk has no space for a batch of `bytes` bytes that has no room now: no space for
    /// another segment, or for enough of a segment.
    fn is_full_for(&self, bytes: u64) -> bool {
        let shared = &self.shared;
        let too_large = bytes > self.batch_bytes_reserved();
        shared.disk_full.load(Ordering::Acquire)
            || (too_large && shared.short.load(Ordering::Acquire))
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
            // The log failed after the appender had last looked for a failure. So the appender reports the
            // failure to the callback of this batch, as the log thread does for the batches accepted
            // earlier.
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

    /// Blocks until the log may accept this batch, can never accept it, or finds the disk full, but at most
    /// until `deadline`. Returns false if the deadline passed first, and true if the caller should try to
    /// append the batch.
    #[must_use]
    pub fn wait_for_room(&self, append: &Append, deadline: Option<Instant>) -> bool {
        let bytes = batch_bytes(&append.records);
        self.shared.wait_for(deadline, || {
            let shared = &self.shared;
            let passes = shared.failure().is_none() && !self.is_full_for(bytes);
            let placed = bytes > self.planner.most()
                || self
                    .planner
                    .clone()
                    .place(bytes, shared.allocated())
                    .is_ok();
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

    /// Returns a handle to this log, for callers that read records, wait for syncs, release segments or read
    /// counters.
    #[must_use]
    pub fn log(&self) -> Log {
        Log::new(Arc::clone(&self.shared))
    }

    /// Waits until all accepted batches are durable, records that the log was closed, and ends the log's
    /// threads. Another process can open the directory once every [`Log`] and [`Reader`](crate::Reader) is
    /// dropped, too.
    ///
    /// # Errors
    /// Returns the failure if a write or a sync of the log failed, before or during the close.
    pub fn close(mut self) -> Result<(), Failure> {
        self.end();
        self.shared.failure().map_or(Ok(()), |f| Err(f.clone()))
    }

    fn end(&mut self) {
        self.want_duty(false);
        self.queue.close();
        for thread in self.threads.drain(..) {
            // If a callback panicked and so ended the log's thread, the panic hook has printed the panic
            // already. `end` runs in `drop`, which cannot return an error.
            let _ = thread.join();
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.end();
    }
}
