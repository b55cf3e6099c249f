//! The log thread: takes appended batches from the queue, asks [`Gather`] for the next step, lets the
//! [`Writer`] carry out the step, and reports the outcome. [`Driver::run`] is the loop of the thread. No
//! other function of the driver waits for batches, so that a simulation can call the other functions in
//! place of the thread (`steps`).
//!
//! After a sync the log thread notifies the callers by one store of the durable position and one call of the
//! waker, and begins the next write at once: other threads send the acknowledgements while the next sync
//! runs.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::queue::{Consumer, RecvError};
use tidegate::{Clock, Time};

use crate::gather::{Gather, Turn};
use crate::shared::{Shared, lock};
use crate::syncs::PastSync;
use crate::writer::{Accepted, Writer};
use crate::{Failure, Lsn};

/// The number of syncs after which the log thread copies the controller's costs by size for readers of
/// statistics that have not asked for them yet. The copy takes 1.5 KiB, so it is not made after each sync.
const COSTS_EVERY: u64 = 64;

/// The callback that reports the outcome of an appended batch to the caller. The log thread calls it once:
/// with the batch's position when the batch is durable, or with the failure of the log.
pub(crate) type Done = Box<dyn FnOnce(Result<Lsn, Failure>) + Send>;

/// An accepted batch on its way from the appender to the log thread, with its size, its callers, its arrival
/// time and its callback.
pub(crate) struct Pending {
    pub(crate) batch: Accepted,
    pub(crate) bytes: u64,
    pub(crate) callers: u64,
    pub(crate) at: Time,
    pub(crate) done: Option<Done>,
}

/// The batches that the log thread writes and syncs because of one decision of the controller. If the
/// batches lie in several segments, the thread handles one segment after the other, because a sync covers
/// one file.
struct Running {
    batches: Vec<Accepted>,
    /// The number of batches, counted from the front of `batches`, that the log thread has written. The
    /// thread writes the other batches, which lie in later segments, after the next sync.
    written: usize,
    bytes: u64,
    callers: u64,
    /// The log positions at which the first batch begins and the last one ends.
    range: Range<Lsn>,
    done: Vec<(Done, Lsn)>,
    since: Time,
}

/// The action that the driver asks of the log thread, or of a simulation that runs the [`Driver`] in its
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The log thread must sync the written batches, and pass the result to [`Driver::handle_synced`].
    Sync,
    /// The log thread must wait until a batch arrives, and then call [`Driver::step`]. If this is a time,
    /// the thread waits at most until then.
    Wait(Option<Time>),
    /// The log thread must end: all batches are durable, and no more can arrive.
    End,
}

/// The logic of the log thread: takes batches, writes them when the controller decides so, and reports their
/// outcomes. See the [module](self).
pub(crate) struct Driver {
    shared: Arc<Shared>,
    consumer: Consumer<Pending>,
    gather: Gather,
    writer: Writer,
    marker_after: Duration,
    waiting: VecDeque<Pending>,
    running: Option<Running>,
    /// The time at which the log became idle while its end was not yet recorded as durable by a header or
    /// marker. The log thread writes a marker `marker_after` later, so that a recovery can tell damage from
    /// a torn write. The arrival of a batch sets the field to `None`.
    idle: Option<Time>,
    /// True if the driver calls the log's waker at the end of a sync. False while the appending thread has
    /// the duty, because that thread is awake already.
    waking: bool,
}

impl Driver {
    pub(crate) const fn new(
        shared: Arc<Shared>,
        consumer: Consumer<Pending>,
        gather: Gather,
        writer: Writer,
        marker_after: Duration,
    ) -> Self {
        Self {
            shared,
            consumer,
            gather,
            writer,
            marker_after,
            waiting: VecDeque::new(),
            running: None,
            idle: None,
            waking: true,
        }
    }

    /// Sets whether the driver calls the log's waker at the end of a sync. A thread that has taken the duty
    /// needs no waking.
    pub(crate) const fn set_waking(&mut self, waking: bool) {
        self.waking = waking;
    }

    /// Returns the time after which the holder of the duty must call [`step`](Self::step) again: zero if
    /// batches wait already, and otherwise the time until the log must write a marker. The holder calls this
    /// function after a sync.
    pub(crate) fn next_step(&mut self, now: Time) -> Duration {
        if !self.waiting.is_empty() {
            return Duration::ZERO;
        }
        self.idle = Some(now);
        self.marker_after
    }

    /// Runs the log thread until the appender is dropped and all batches are durable, or until a write or a
    /// sync fails. After a failure the thread reports the failure for all batches that still arrive. After
    /// each sync the thread passes the duty of writing to the caller, if the caller wants it
    /// ([`Duty`](crate::Duty)).
    pub(crate) fn run(mut self: Box<Self>, clock: Clock) {
        let _end = End(Arc::clone(&self.shared));
        // The controller may hold a batch for only some microseconds, but by default the kernel ends a timed
        // wait up to 50 microseconds late. So the log thread asks for a slack of 1 microsecond. If the kernel
        // refuses that, the thread only waits longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let mut ended = false;
        let outcome = loop {
            if let Some(failure) = self.shared.failure() {
                // The appending thread had the duty, and its write or sync failed, so the log thread must
                // end, too.
                break Err(failure.clone());
            }
            let next = match self.step(clock.now(), ended) {
                Ok(Next::Sync) => {
                    let synced = self.sync(&clock);
                    if synced.is_ok() && self.shared.passing.is_wanted() {
                        let shared = Arc::clone(&self.shared);
                        self = shared.passing.offer(self, || shared.wake());
                    }
                    synced
                }
                Ok(Next::Wait(until)) => {
                    let at = until.and_then(|at| clock.instant(at));
                    ended = self.wait(at).is_err();
                    Ok(())
                }
                Ok(Next::End) => break Ok(()),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = next {
                break Err(failure);
            }
        };
        if let Err(failure) = outcome {
            self.refuse(&failure);
        }
    }

    /// Syncs the written batches. If the controller's decision took batches in later segments, writes and
    /// syncs those, too.
    pub(crate) fn sync(&mut self, clock: &Clock) -> Result<(), Failure> {
        loop {
            let synced = self.sync_written();
            if !self.handle_synced(clock.now(), synced)? {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), RecvError> {
        match until {
            Some(at) => self.consumer.blocking_wait_until(at).map(drop),
            None => self.consumer.blocking_wait(),
        }
    }

    /// Takes the arrived batches from the queue. If the controller starts a sync now, writes the batches that
    /// this sync covers. `ended` is true if no more batches can arrive. After a [`Next::Sync`], the caller
    /// must not call this function before that sync has ended.
    pub(crate) fn step(&mut self, now: Time, ended: bool) -> Result<Next, Failure> {
        self.receive();
        let step = self.gather.poll(now, ended);
        if step != Turn::Rest {
            self.idle = None;
        }
        match step {
            Turn::Take(batches) => self.begin(now, batches),
            Turn::Hold(until) => Ok(Next::Wait(Some(until))),
            Turn::Rest if ended => self.writer.mark(true).map(|()| Next::End),
            Turn::Rest => self.rest(now),
        }
    }

    fn receive(&mut self) {
        let (waiting, gather) = (&mut self.waiting, &mut self.gather);
        self.consumer.drain(usize::MAX, |pending| {
            gather.handle_arrived(pending.at, pending.callers, pending.bytes);
            waiting.push_back(pending);
        });
    }

    fn begin(&mut self, now: Time, batches: usize) -> Result<Next, Failure> {
        let mut running = Running {
            batches: Vec::with_capacity(batches),
            written: 0,
            bytes: 0,
            callers: 0,
            range: Lsn::ZERO..Lsn::ZERO,
            done: Vec::new(),
            since: now,
        };
        for pending in self.waiting.drain(..batches) {
            let place = pending.batch.place.at;
            if running.batches.is_empty() {
                running.range.start = place;
            }
            running.range.end = place.after(pending.bytes);
            running.bytes += pending.bytes;
            running.callers += pending.callers;
            running.done.extend(pending.done.map(|call| (call, place)));
            running.batches.push(pending.batch);
        }
        match self.writer.write(&running.batches) {
            Ok(written) => {
                running.written = written;
                self.running = Some(running);
                Ok(Next::Sync)
            }
            Err(failure) => self.finish(now, running, Err(failure)).map(|()| Next::Sync),
        }
    }

    /// Handles the end of a sync, which covers only the batches in one segment. If the controller's decision
    /// took further batches, which lie in the next segment, writes those batches and returns true, because
    /// the caller must then sync again.
    pub(crate) fn handle_synced(
        &mut self,
        now: Time,
        synced: Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let Some(mut running) = self.running.take() else {
            return Ok(false);
        };
        let left = &running.batches[running.written..];
        let more = match synced {
            Ok(()) if !left.is_empty() => self.writer.write(left),
            Ok(()) => Ok(0),
            Err(failure) => Err(failure),
        };
        match more {
            Ok(0) => self.finish(now, running, Ok(())).map(|()| false),
            Ok(written) => {
                running.written += written;
                self.running = Some(running);
                Ok(true)
            }
            Err(failure) => self.finish(now, running, Err(failure)).map(|()| false),
        }
    }

    /// Ends the batches of one decision of the controller: reports their outcome to their callers and to the
    /// controller, and wakes the threads that wait for the log.
    fn finish(
        &mut self,
        now: Time,
        running: Running,
        outcome: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let shared = &self.shared;
        let batches = running.batches.len();
        shared
            .pending_bytes
            .fetch_sub(running.bytes, Ordering::AcqRel);
        shared.pending_batches.fetch_sub(batches, Ordering::AcqRel);
        shared
            .counters
            .sync_ns
            .fetch_add(now.since(running.since), Ordering::Relaxed);
        for (call, place) in running.done {
            call(outcome.as_ref().map(|()| place).map_err(Clone::clone));
        }
        match self.waking {
            true => shared.wake(),
            false => shared.wake_waiters(),
        }
        self.receive();
        self.gather.handle_done(now, outcome.is_ok());
        let snapshot = self.gather.snapshot();
        let mut observed = lock(&self.shared.observed);
        // The snapshot of the sync before has the fit by which the controller decided this one.
        let fit = std::mem::replace(&mut observed.snapshot, snapshot).model;
        if outcome.is_ok() {
            observed.syncs.append(&PastSync {
                begin: running.range.start,
                end: running.range.end,
                started: running.since,
                took_ns: now.since(running.since),
                callers: running.callers,
                reason: self.gather.reason(),
                fit: fit.map(|m| (m.a_ns, m.b_ns)),
            });
        }
        drop(observed);
        let due = snapshot.counts.batches().is_multiple_of(COSTS_EVERY);
        if due || self.shared.costs_asked.load(Ordering::Relaxed) {
            self.shared.costs_asked.store(false, Ordering::Relaxed);
            *lock(&self.shared.size_costs) = self.gather.size_costs();
        }
        outcome
    }

    /// Handles an idle log: after `marker_after` without a batch, writes a marker that says how far the log
    /// is durable. The log thread then sleeps until a batch arrives.
    fn rest(&mut self, now: Time) -> Result<Next, Failure> {
        if !self.writer.needs_marker() {
            return Ok(Next::Wait(None));
        }
        let until = *self.idle.get_or_insert(now) + self.marker_after;
        if now < until {
            return Ok(Next::Wait(Some(until)));
        }
        self.writer.mark(false)?;
        Ok(Next::Wait(None))
    }

    /// Reports this failure of the log for every batch that waits in the queue or still arrives, until the
    /// appender is dropped, so that no caller waits forever.
    fn refuse(&mut self, failure: &Failure) {
        loop {
            if !self.refuse_waiting(failure) && self.consumer.blocking_wait().is_err() {
                return;
            }
        }
    }

    /// Closes the queue between the appender and the log thread, and reports this failure of the log for all
    /// batches in the queue. Returns whether the queue held any batch.
    pub(crate) fn refuse_waiting(&mut self, failure: &Failure) -> bool {
        self.consumer.close();
        self.receive();
        let any = !self.waiting.is_empty();
        for pending in self.waiting.drain(..) {
            if let Some(call) = pending.done {
                call(Err(failure.clone()));
            }
        }
        any
    }

    /// Syncs the batches that the writer has written to the current segment, and so makes them durable.
    pub(crate) fn sync_written(&self) -> Result<(), Failure> {
        self.writer.sync()
    }
}

/// The guard of the log thread. Its drop ends the keeper together with the log thread. If a callback
/// panicked and so ended the log thread, the drop also marks the log as failed, because nothing shows then
/// whether the batches in progress are durable.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .fail("the log thread", io::Error::other("a callback panicked"));
        }
        self.0.errands.ask(|errand| errand.end = true);
        self.0.wake();
    }
}
