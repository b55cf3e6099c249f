//! The consumer's waits: it looks at the queue for a while and then sleeps, as a thread or as a task. The
//! [module](super::super) says why the consumer misses no item while it sleeps.

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

/// The consumer's next step after it looked at the queue and found no item: to look again or to sleep.
pub(super) enum Next {
    Ready,
    Closed,
    /// A producer has claimed a position in the ring and publishes its item in a moment, so the consumer does
    /// not sleep but looks at the queue again.
    Soon,
    /// The consumer may sleep, because a producer of any later item wakes it. With a timeout, the consumer
    /// looks at the queue again after that time in any case.
    Sleep(Option<Duration>),
}

/// The way in which the consumer spent a wait for items, so that an actor can judge whether looking at the
/// queue pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    /// The number of the consumer's looks at the queue in this wait, up to its sleep if it slept.
    pub(crate) looks: u32,
    pub(crate) slept: bool,
}

impl<T: Send> Consumer<T> {
    /// Blocks the thread until the consumer can drain an item.
    ///
    /// # Errors
    /// [`RecvError::Closed`] after the consumer has handed out every item of a closed queue;
    /// [`RecvError::WouldBlock`] if the thread must not wait.
    pub fn blocking_wait(&mut self) -> Result<(), RecvError> {
        self.wait_deadline(None).map(|_| ())
    }

    /// Waits as [`blocking_wait`](Self::blocking_wait) does, but not past `deadline`. Returns whether the
    /// consumer can drain an item.
    ///
    /// # Errors
    /// The same as for [`blocking_wait`](Self::blocking_wait).
    pub fn blocking_wait_until(&mut self, deadline: Instant) -> Result<bool, RecvError> {
        self.wait_deadline(Some(deadline))
    }

    /// Waits as [`blocking_wait_until`](Self::blocking_wait_until) does, on a thread that may block. Without
    /// `may_look` the thread must not spend time on looks at the queue, so [`Wait::Progressive`] sleeps at
    /// once. Returns how the consumer spent the wait, and no error at the end of the queue, which the caller
    /// checks by itself.
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

    /// Waits as [`blocking_wait`](Self::blocking_wait) does, for a stage that is the consumer of one queue
    /// and a producer of others. Before the wait, the stage flushes its `outputs`, so that the items made
    /// of its last batch do not stay in its buffers. A flush waits for room downstream, so stages must not
    /// form a circle.
    ///
    /// # Errors
    /// The same as for [`blocking_wait`](Self::blocking_wait).
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

    /// Waits as a task until the consumer can drain an item. A drop of the future loses no item.
    ///
    /// # Errors
    /// [`Closed`] after the consumer has handed out every item of a closed queue.
    pub async fn wait(&mut self) -> Result<(), Closed> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Returns ready if the consumer can drain an item. Otherwise the queue wakes the task of `cx` when an
    /// item arrives or the queue ends.
    ///
    /// # Errors
    /// The same as for [`wait`](Self::wait).
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        if self.ready() {
            return Poll::Ready(Ok(()));
        }
        match self.settle_down(cx.waker(), SETTLE_NS) {
            Next::Ready => return Poll::Ready(Ok(())),
            Next::Closed => return Poll::Ready(Err(Closed)),
            Next::Sleep(None) => bump(&self.shared.drains.waits, 1),
            // A task has no timer of its own. For a short wait (the first millisecond after it went idle, a
            // claim that is not published yet, or a producer that was woken for its turn and has not pushed),
            // it asks to be polled again and again.
            Next::Soon | Next::Sleep(Some(_)) => {
                if cfg!(loom) {
                    yield_now();
                }
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    // Private steps of the consumer's wait.

    /// Pauses after a drain that emptied the ring, so that items gather. Without the pause, each look would
    /// find an item or two, and both ends would spend their time on passing the same few cache lines.
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

    /// Waits as [`wait_longer`](Self::wait_longer) does, or fails if the thread must not block.
    pub(super) fn block_longer(&mut self, deadline: Option<Instant>) -> Result<bool, RecvError> {
        if deadline.is_none_or(|at| at > Instant::now()) {
            blocking::check_task()?;
        }
        Ok(self.wait_longer(deadline)?)
    }

    /// Waits after a look at the queue that found no item, until `deadline` at most. Another look at once
    /// would only take the cache line away from the producers.
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

    /// Returns the parker on which the consumer's thread sleeps, and the waker that producers call to wake
    /// that thread.
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

    /// Prepares the consumer's sleep after it found no item: leaves `waker` and the mark for producers,
    /// raises the flag for producers with buffers, and looks at the ring, the lane and the buffers once
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

    /// Decides the next step of a consumer of a closed queue: it hands out the items accepted, and then the
    /// queue is finished.
    #[cold]
    pub(super) fn settle_closed(&mut self) -> Next {
        if self.finished {
            return Next::Closed;
        }
        if self.ready() {
            return Next::Ready;
        }
        // The consumer checks first whether all producers are gone, and looks at the buffers afterwards. So
        // the look finds all items of producers that are gone.
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

    /// Returns the time until every producer with a buffer sees the flag that the consumer may sleep;
    /// `None` if all of them see it.
    ///
    /// The consumer calls this after a sweep of the buffers. A producer that registers its buffer later
    /// sees the flag at once.
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
