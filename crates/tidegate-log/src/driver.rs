//! The log thread: takes what was appended, asks [`Gather`] what to do, has the [`Writer`] do it, and tells.
//! The loop of the thread is [`Driver::run`]; all else waits for nothing, so that a simulation can take its
//! place (`steps`).
//!
//! When a sync is through, its callers are told by one store and one call of the waker, and the next write
//! begins at once: the acks are made elsewhere, while the next sync runs.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate::queue::{Consumer, RecvError};
use tidegate::{Clock, Time};

use crate::gather::{Gather, Step};
use crate::shared::{Shared, lock};
use crate::writer::{Accepted, Writer};
use crate::{Failure, Lsn};

/// What is called when a batch is durable, or will never be said to be.
pub(crate) type Done = Box<dyn FnOnce(Result<Lsn, Failure>) + Send>;

/// A batch on its way to the log thread.
pub(crate) struct Pending {
    pub(crate) batch: Accepted,
    pub(crate) bytes: u64,
    pub(crate) callers: u64,
    pub(crate) at: Time,
    pub(crate) done: Option<Done>,
}

/// What is being written: the batches one decision took, of which each segment's are written and synced in
/// turn.
struct Running {
    batches: Vec<Accepted>,
    /// So many of them were written.
    written: usize,
    bytes: u64,
    done: Vec<(Done, Lsn)>,
    since: Time,
}

/// What whoever runs a [`Driver`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sync what was written, and tell by [`Driver::handle_synced`].
    Sync,
    /// Wait until something arrives, at most until then, and [`Driver::step`].
    Wait(Option<Time>),
    /// Nothing: everything is written, and nothing can come.
    End,
}

/// What is to be written when, without waiting for anything. See the [module](self).
pub(crate) struct Driver {
    shared: Arc<Shared>,
    consumer: Consumer<Pending>,
    gather: Gather,
    writer: Writer,
    marker_after: Duration,
    waiting: VecDeque<Pending>,
    running: Option<Running>,
    /// Nothing has come since.
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
        // A hold is some microseconds; the default slack of a timed wait is 50. Nothing is lost where it
        // cannot be set.
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

    /// Takes what came and writes what is to be written now; with `ended` nothing more can come. Not while a
    /// sync is due.
    pub(crate) fn step(&mut self, now: Time, ended: bool) -> Result<Next, Failure> {
        self.receive();
        let step = self.gather.poll(now, ended);
        if step != Step::Rest {
            self.idle = None;
        }
        match step {
            Step::Take(batches) => self.begin(now, batches),
            Step::Hold(until) => Ok(Next::Wait(Some(until))),
            Step::Rest if ended => self.writer.mark(true).map(|()| Next::End),
            Step::Rest => self.rest(now),
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

    /// The sync of what was written has ended so. Whether another one is due: batches in the next segment
    /// have been written now.
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

    /// Tells what came of batches.
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

    /// Nothing waits: after a while the log writes down how far it is durable, and then sleeps until
    /// something comes.
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

    /// Tells everybody who still waits that the log failed, until nobody can come.
    fn refuse(&mut self, failure: &Failure) {
        loop {
            if !self.refuse_waiting(failure) && self.consumer.blocking_wait().is_err() {
                return;
            }
        }
    }

    /// Tells those who wait now; whether there was anybody.
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

    /// Syncs what was written.
    pub(crate) fn sync_written(&self) -> Result<(), Failure> {
        self.writer.sync()
    }
}

/// Ends the keeper with the log thread, and tells everybody if a callback's panic ended it: what was being
/// written then is as uncertain as after a failed sync.
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
