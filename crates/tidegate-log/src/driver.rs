//! The log thread: takes appended batches, asks [`Gather`] for the next step, lets the
//! [`Writer`] carry it out, and reports the outcome. [`Driver::run`] is the loop of the
//! thread; no other function blocks, so that a simulation can take its place (`steps`).
//!
//! After a sync the thread tells the callers by one store and one call of the waker, and
//! begins the next write at once: other threads send the acks while the next sync runs.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::queue::{Consumer, RecvError};
use tidegate::{Clock, Time};

use crate::gather::{Gather, Turn};
use crate::shared::{Shared, lock};
use crate::writer::{Accepted, Writer};
use crate::{Failure, Lsn};

/// The callback for a batch that is durable, or has failed.
pub(crate) type Done = Box<dyn FnOnce(Result<Lsn, Failure>) + Send>;

/// A batch on its way to the log thread.
pub(crate) struct Pending {
    pub(crate) batch: Accepted,
    pub(crate) bytes: u64,
    pub(crate) callers: u64,
    pub(crate) at: Time,
    pub(crate) done: Option<Done>,
}

/// The batches that one decision took. The thread writes and syncs those of each segment in turn.
struct Running {
    batches: Vec<Accepted>,
    /// The number of these batches that the thread has written.
    written: usize,
    bytes: u64,
    done: Vec<(Done, Lsn)>,
    since: Time,
}

/// The next action of the thread, or the simulation, that runs a [`Driver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sync the written batches, and report it by [`Driver::handle_synced`].
    Sync,
    /// Wait until a batch arrives, at most until this time, and call [`Driver::step`].
    Wait(Option<Time>),
    /// End: everything is written, and no batch can arrive.
    End,
}

/// Decides which batches are written when, without waiting. See the [module](self).
pub(crate) struct Driver {
    shared: Arc<Shared>,
    consumer: Consumer<Pending>,
    gather: Gather,
    writer: Writer,
    marker_after: Duration,
    waiting: VecDeque<Pending>,
    running: Option<Running>,
    /// The time since which no batch has arrived.
    idle: Option<Time>,
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
        }
    }

    /// Runs on a thread of its own until every appender is gone and everything is durable, or until something
    /// fails.
    pub(crate) fn run(mut self, clock: Clock) {
        let _end = End(Arc::clone(&self.shared));
        // A hold takes some microseconds; by default the kernel ends a timed wait up to 50 microseconds late.
        // If the thread cannot set a shorter slack, it only waits longer.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let mut ended = false;
        let outcome = loop {
            let next = match self.step(clock.now(), ended) {
                Ok(Next::Sync) => self.sync(&clock),
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

    fn sync(&mut self, clock: &Clock) -> Result<(), Failure> {
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

    /// Takes the batches that arrived and writes those that are due. `ended` says that no more can arrive.
    /// The caller must not call this while a sync is due.
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
            done: Vec::new(),
            since: now,
        };
        for pending in self.waiting.drain(..batches) {
            running.bytes += pending.bytes;
            let place = pending.batch.place.at;
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

    /// Handles the end of the sync. Returns whether another sync is due, because the thread has now written
    /// the batches of the next segment.
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

    /// Reports the outcome of batches.
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
        shared.wake();
        self.receive();
        self.gather.handle_done(now, outcome.is_ok());
        *lock(&self.shared.snapshot) = self.gather.snapshot();
        outcome
    }

    /// Handles a log without waiting batches: after a while the log records how far it
    /// is durable, and then sleeps until a batch arrives.
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

    /// Tells all waiting callers that the log failed, until no more can arrive.
    fn refuse(&mut self, failure: &Failure) {
        loop {
            if !self.refuse_waiting(failure) && self.consumer.blocking_wait().is_err() {
                return;
            }
        }
    }

    /// Fails the batches that wait now; returns whether any batch waited.
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

    /// Syncs the written batches.
    pub(crate) fn sync_written(&self) -> Result<(), Failure> {
        self.writer.sync()
    }
}

/// Ends the keeper with the log thread. If a callback's panic ended the thread, fails the
/// log for all callers: the batches being written are as uncertain as after a failed sync.
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
