//! How the consumer waits: by looking again for a while, then asleep, as a thread or as a task. Why nobody
//! sleeps through an item is told in the [module](super::super).

use std::future::poll_fn;
use std::sync::Arc as Handle;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Consumer, Idle, PATIENCE_NS, SETTLE_NS};
use crate::blocking;
use crate::queue::Wait;
use crate::queue::error::{Closed, RecvError};
use crate::queue::metrics::bump;
use crate::queue::producer::Flush;
use crate::queue::shared::IDLING;
use crate::queue::sync::{Relaxed, SeqCst, fence, lock, yield_now};
use crate::queue::wait::{Backoff, Parker, Pass};

/// What to do after a look that found nothing.
pub(super) enum Next {
    Ready,
    Closed,
    /// Something comes in a moment.
    Soon,
    /// Nothing comes before a wake-up. With a timeout: look again then, in any case.
    Sleep(Option<Duration>),
}

/// How a wait was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Looks at the queue, before the thread slept if it did.
    pub(crate) looks: u32,
    pub(crate) slept: bool,
}

impl<T: Send> Consumer<T> {
    /// Blocks the thread until something can be drained.
    ///
    /// # Errors
    /// [`RecvError::Closed`] once everything was handed out and nothing can come;
    /// [`RecvError::WouldBlock`] where the thread must not wait.
    pub fn blocking_wait(&mut self) -> Result<(), RecvError> {
        self.wait_deadline(None).map(|_| ())
    }

    /// As [`blocking_wait`](Self::blocking_wait), but not past `deadline`; says whether something can be
    /// drained.
    ///
    /// # Errors
    /// As for [`blocking_wait`](Self::blocking_wait).
    pub fn blocking_wait_until(&mut self, deadline: Instant) -> Result<bool, RecvError> {
        self.wait_deadline(Some(deadline))
    }

    /// As [`blocking_wait_until`](Self::blocking_wait_until), where the thread may block. Where looking costs
    /// too much (`!may_look`), [`Wait::Progressive`] sleeps at once. Returns how the wait was passed; the end
    /// of the queue shows elsewhere.
    pub(crate) fn wait_counting(&mut self, deadline: Option<Instant>, may_look: bool) -> Passed {
        self.let_gather();
        let mut backoff = Backoff::new(match self.shared.wait {
            Wait::Progressive if !may_look => Wait::Park,
            wait => wait,
        });
        let sleeps = self.shared.drains.waits.load(Relaxed);
        if !self.ready() {
            let _ = self.wait_by(&mut backoff, deadline);
        }
        Passed {
            looks: backoff.looks(),
            slept: self.shared.drains.waits.load(Relaxed) != sleeps,
        }
    }

    /// As [`blocking_wait`](Self::blocking_wait) for a stage that is itself a producer: if it has to wait,
    /// it first flushes its `outputs`, so that what it made out of its last batch does not lie in its
    /// buffers meanwhile. A flush waits for room downstream, so stages must not form a circle.
    ///
    /// # Errors
    /// As for [`blocking_wait`](Self::blocking_wait).
    pub fn blocking_wait_flushing(
        &mut self,
        outputs: &mut [&mut dyn Flush],
    ) -> Result<(), RecvError> {
        if self.ready() {
            return Ok(());
        }
        for output in outputs {
            output.blocking_flush_before_wait();
        }
        self.blocking_wait()
    }

    /// Waits as a task until something can be drained. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`Closed`] once everything was handed out and nothing can come.
    pub async fn wait(&mut self) -> Result<(), Closed> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Returns whether something can be drained; if not, the task is woken when that changes.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if self.ready() {
            return Poll::Ready(Ok(()));
        }
        match self.settle_down(cx.waker(), SETTLE_NS) {
            Next::Ready => return Poll::Ready(Ok(())),
            Next::Closed => return Poll::Ready(Err(Closed)),
            Next::Sleep(None) => bump(&self.shared.drains.waits, 1),
            // A task has no timer of its own: it comes back again and again, for one linger after it went
            // idle.
            Next::Soon | Next::Sleep(Some(_)) => {
                if cfg!(loom) {
                    yield_now();
                }
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    // Inside.

    /// The last look, at the end of a drain, found an empty ring: another at once would find an item or two,
    /// and again, and both sides would spend their time on handing each other the same few lines.
    #[inline]
    pub(super) fn let_gather(&mut self) {
        if std::mem::take(&mut self.caught_up) {
            self.shared.wait.pause();
        }
    }

    fn wait_deadline(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        self.let_gather();
        if self.ready() {
            return Ok(true);
        }
        self.block_longer(deadline)
    }

    /// As [`wait_longer`](Self::wait_longer), unless the thread must not block.
    pub(super) fn block_longer(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        if deadline.is_none_or(|at| at > Instant::now()) {
            blocking::check_task()?;
        }
        Ok(self.wait_longer(deadline)?)
    }

    /// Waits after a look that found nothing: another at once would only take the line away from the
    /// producers.
    pub(super) fn wait_longer(&mut self, deadline: Option<Instant>) -> Result<bool, Closed> {
        self.wait_by(&mut Backoff::new(self.shared.wait), deadline)
    }

    fn wait_by(
        &mut self,
        backoff: &mut Backoff,
        deadline: Option<Instant>,
    ) -> Result<bool, Closed> {
        loop {
            let sleeps = match backoff.pass() {
                Pass::Again if self.ready() => return Ok(true),
                Pass::Again if deadline.is_some_and(|d| Instant::now() >= d) => return Ok(false),
                Pass::Again => continue,
                Pass::LookAround => false,
                Pass::Sleep => true,
            };
            if self.ready() {
                return Ok(true);
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(false);
            }
            if sleeps {
                let (parker, waker) = self.parker();
                match self.settle_down(&waker, PATIENCE_NS) {
                    Next::Ready => return Ok(true),
                    Next::Closed => return Err(Closed),
                    Next::Soon => yield_now(),
                    Next::Sleep(linger) => self.park(&parker, linger, deadline),
                }
            } else if self.look_around() {
                return Ok(true);
            } else if self.finished {
                return Err(Closed);
            }
        }
    }

    fn park(&mut self, parker: &Parker, linger: Option<Duration>, deadline: Option<Instant>) {
        let drains = &self.shared.drains;
        bump(&drains.waits, 1);
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let woken = parker.park(linger.into_iter().chain(left).min());
        if !woken && linger.is_some() {
            bump(&drains.linger_wakes, 1);
        }
    }

    /// Where the consumer's thread sleeps.
    fn parker(&mut self) -> (Handle<Parker>, Waker) {
        match &self.parker {
            Some((parker, waker)) => (parker.clone(), waker.clone()),
            None => {
                let parker = Parker::new();
                let waker = Waker::from(parker.clone());
                self.parker.insert((parker, waker)).clone()
            }
        }
    }

    /// Nothing is ready: leaves `waker` and the mark, tells producers with buffers, and looks everywhere once
    /// more.
    #[cold]
    fn settle_down(&mut self, waker: &Waker, patience_ns: u64) -> Next {
        self.shared.consumer.set(waker);
        if self.shared.ring.is_closed() {
            return self.settle_closed();
        }
        self.go_idle();
        let shared = &*self.shared;
        let marked = match (&self.reader, &shared.oldest) {
            (Some(reader), _) => reader.mark_waiting(&shared.ring),
            (None, Some(oldest)) => lock(oldest).mark_waiting(&shared.ring),
            (None, None) => false,
        };
        if !marked {
            return Next::Soon;
        }
        fence(SeqCst);
        if self.sweep() || self.ready() {
            self.unmark();
            return Next::Ready;
        }
        let line = self.watch_line(patience_ns);
        Next::Sleep(self.settled_in().into_iter().chain(line).min())
    }

    /// The queue is closed: what was taken is handed out, then it is finished.
    #[cold]
    pub(super) fn settle_closed(&mut self) -> Next {
        if self.finished {
            return Next::Closed;
        }
        if self.ready() {
            return Next::Ready;
        }
        // Before the last look: whoever is gone by now has left everything where it is found.
        let deserted = self.shared.is_deserted();
        if self.shared.ring.claimed() != self.head() {
            return Next::Soon;
        }
        self.go_idle();
        fence(SeqCst);
        if self.sweep() || self.ready() {
            return Next::Ready;
        }
        match self.settled_in() {
            Some(time) if !deserted => Next::Sleep(Some(time)),
            _ => {
                self.finished = true;
                Next::Closed
            }
        }
    }

    fn go_idle(&mut self) {
        if self.idle == Idle::No {
            self.shared.flags.fetch_or(IDLING, SeqCst);
            self.idle = Idle::Since(self.shared.clock.now());
        }
        self.asleep = true;
    }

    /// How long until every producer with a buffer knows that the consumer may sleep; `None` if they all do.
    ///
    /// Called after a sweep: a producer that was not registered then knows from its registration on.
    fn settled_in(&mut self) -> Option<Duration> {
        if let Idle::Since(since) = self.idle {
            let passed = self.shared.clock.now().since(since);
            if passed < SETTLE_NS && self.shared.buffers_hint() {
                return Some(Duration::from_nanos(SETTLE_NS - passed));
            }
            self.idle = Idle::Settled;
        }
        None
    }

    fn unmark(&self) {
        match (&self.reader, &self.shared.oldest) {
            (Some(reader), _) => reader.unmark(&self.shared.ring),
            (None, Some(oldest)) => lock(oldest).unmark(&self.shared.ring),
            (None, None) => {}
        }
    }
}
