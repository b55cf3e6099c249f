//! The log thread: takes what was appended, asks [`Gather`] what to do, has the [`Writer`] do it, and tells.
//!
//! When a sync is through, its callers are told by one store and one call of the waker, and the next write begins at once: the
//! acks are made elsewhere, while the next sync runs.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::queue::{Closed, Consumer};
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

/// See the [module](self).
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) consumer: Consumer<Pending>,
    pub(crate) gather: Gather,
    pub(crate) writer: Writer,
    pub(crate) clock: Clock,
    pub(crate) marker_after: Duration,
    pub(crate) waiting: VecDeque<Pending>,
}

impl Driver {
    /// Runs until every appender is gone and everything is durable, or until something fails.
    pub(crate) fn run(mut self) {
        let _end = End(Arc::clone(&self.shared));
        // A hold is some microseconds; the default slack of a timed wait is 50. Nothing is lost where it cannot be set.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
        let mut ended = false;
        let outcome = loop {
            self.receive();
            match self.gather.poll(self.clock.now(), ended) {
                Step::Take(batches) => match self.write(batches) {
                    Ok(()) => {}
                    Err(failure) => break Err(failure),
                },
                Step::Hold(until) => ended = self.wait(Some(until)).is_err(),
                Step::Rest if ended => break self.writer.mark(true),
                Step::Rest => match self.rest() {
                    Ok(closed) => ended = closed.is_err(),
                    Err(failure) => break Err(failure),
                },
            }
        };
        if let Err(failure) = outcome {
            self.refuse(&failure);
        }
    }

    fn receive(&mut self) {
        let (waiting, gather) = (&mut self.waiting, &mut self.gather);
        self.consumer.drain(usize::MAX, |pending| {
            gather.handle_arrived(pending.at, pending.callers, pending.bytes);
            waiting.push_back(pending);
        });
    }

    fn write(&mut self, batches: usize) -> Result<(), Failure> {
        let (mut bytes, mut done) = (0, Vec::new());
        let mut accepted = Vec::with_capacity(batches);
        for pending in self.waiting.drain(..batches) {
            bytes += pending.bytes;
            done.extend(pending.done.map(|call| (call, pending.batch.place)));
            accepted.push(pending.batch);
        }
        let start = self.clock.now();
        let outcome = self.writer.write(&accepted);
        let now = self.clock.now();
        let shared = &self.shared;
        shared.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
        shared.pending_batches.fetch_sub(batches, Ordering::AcqRel);
        shared
            .counters
            .sync_ns
            .fetch_add(now.since(start), Ordering::Relaxed);
        for (call, place) in done {
            call(outcome.as_ref().map(|_| place.at).map_err(Clone::clone));
        }
        shared.wake();
        self.receive();
        self.gather.handle_done(now, outcome.is_ok());
        *lock(&self.shared.snapshot) = self.gather.snapshot();
        outcome.map(|_| ())
    }

    /// Nothing waits: after a while the log writes down how far it is durable, and then sleeps until something comes.
    fn rest(&mut self) -> Result<Result<(), Closed>, Failure> {
        if self.writer.needs_marker() {
            let until = self.clock.now() + self.marker_after;
            match self.wait(Some(until)) {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => self.writer.mark(false)?,
                Err(closed) => return Ok(Err(closed)),
            }
        }
        Ok(self.wait(None).map(|_| ()))
    }

    /// Whether something came before `until`.
    fn wait(&mut self, until: Option<Time>) -> Result<bool, Closed> {
        match until.and_then(|at| self.clock.instant(at)) {
            Some(at) => self.consumer.wait_until(at),
            None => self.consumer.wait().map(|()| true),
        }
    }

    /// Tells everybody who still waits that the log failed.
    fn refuse(&mut self, failure: &Failure) {
        self.consumer.close();
        loop {
            self.receive();
            if self.waiting.is_empty() && self.consumer.wait().is_err() {
                return;
            }
            for pending in self.waiting.drain(..) {
                if let Some(call) = pending.done {
                    call(Err(failure.clone()));
                }
            }
        }
    }
}

/// Ends the keeper with the log thread, and tells everybody if a callback's panic ended it: what was being written then is as
/// uncertain as after a failed sync.
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
