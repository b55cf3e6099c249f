//! The state that an actor shares with its handles: the queue of entries, the bound on bytes, the life
//! cycle, the counters.
//!
//! A closed queue accepts no more entries; a close alone means that the actor drains. A stop sets a mark
//! before it closes the queue. The actor itself ends its life, once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::arrivals::Arrivals;
use super::gate::Gate;
use super::handler::StopReason;
use super::inspect::Inbox;
use super::reply::{Reply, lock, wait_timeout};
use super::retry::Retried;
use super::stats::{Counters, Stats};
use crate::controller::Load;
use crate::queue::Queue;
use crate::{Clock, Time};

/// An entry of the actor's queue: an item with its weight, a message, or a wake-up.
pub(super) enum Entry<T, R, M> {
    Cast(u32, T),
    Call(u32, T, Reply<R>),
    Info(M),
    /// An operation that the handler gave back. This entry is only in the actor's stash, never in the
    /// queue.
    Retry(Box<Retried<T, R, M>>),
    /// An entry that wakes the actor and carries no item, for an inspection or a sender without room.
    Wake,
}

/// The user's function that weighs an item, in bytes or in another unit.
pub(super) type Weigh<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

pub(super) struct Shared<T: Send, R: Send, M: Send> {
    pub(super) queue: Queue<Entry<T, R, M>>,
    pub(super) stamp: Stamp,
    pub(super) clock: Clock,
    /// The arrival times of calls, for a controller that anticipates calls; `None` if the controller does not
    /// use them.
    pub(super) arrivals: Option<Arrivals>,
    /// The weights of items and the bound on their sum; `None` if items have no weight.
    pub(super) weights: Option<Weights<T>>,
    /// True if a send without a `try_` form waits for room; false if it refuses the item.
    pub(super) waits: bool,
    pub(super) life: Life<T>,
    pub(super) inbox: Inbox,
    pub(super) counters: Counters,
}

pub(super) struct Weights<T> {
    pub(super) of: Weigh<T>,
    /// The greatest weight that an item may have, in the unit of the weight function. A send refuses a
    /// heavier item, because no batch may take it.
    pub(super) item_max: u64,
    pub(super) gate: Gate,
}

impl<T: Send, R: Send, M: Send> Shared<T, R, M> {
    /// Starts a drain of the actor: it accepts no more items, handles everything it accepted, and ends for
    /// `reason`.
    pub(super) fn drain(&self, reason: StopReason) {
        lock(&self.life.state).reason.get_or_insert(reason);
        self.close();
    }

    /// Makes the actor stop, for `reason`, after the batch in progress. The waiting items stay for
    /// `Handle::stop`.
    pub(super) fn stop(&self, reason: StopReason) {
        let mut state = lock(&self.life.state);
        if !state.ended {
            state.reason = Some(reason);
        }
        drop(state);
        self.life.stop.store(true, Ordering::Release);
        self.close();
    }

    pub(super) fn close(&self) {
        self.queue.close();
        if let Some(weights) = &self.weights {
            weights.gate.close();
        }
    }

    /// Returns the bytes of the items that wait, including those in the actor's stash, for the backlog and
    /// the statistics.
    pub(super) fn backlog_bytes(&self) -> u64 {
        self.weights.as_ref().map_or(0, |w| w.gate.used())
    }

    /// Returns the load that waits for the actor, for statistics: in the queue, in senders' buffers, in the
    /// consumer's hand and in the actor's stash.
    pub(super) fn backlog(&self) -> Load {
        let stashed = self.life.stashed.load(Ordering::Relaxed);
        let queue = self.queue.metrics();
        let items = (queue.population + queue.buffered + queue.fetched) as u64 + stashed;
        Load::new(items, self.backlog_bytes())
    }

    pub(super) fn stats(&self) -> Stats {
        self.counters.read(self.backlog())
    }
}

/// The arrival time of the first item after the actor last took such a time. It costs one reading of the
/// clock a batch, because `wanted` is the mark that asks for the time: the first producer that finds the mark
/// clears it and stores the time.
pub(super) struct Stamp {
    wanted: AtomicBool,
    /// The arrival time of the first item, in nanoseconds; 0 if no producer has stored a time since the actor
    /// last took one.
    at: AtomicU64,
}

impl Stamp {
    pub(super) const fn new() -> Self {
        Self {
            wanted: AtomicBool::new(true),
            at: AtomicU64::new(0),
        }
    }

    /// Stores the present time, if the mark asks for it, as the arrival time of the first item. A producer
    /// calls this before it sends.
    pub(super) fn touch(&self, clock: &Clock) {
        if self.wanted.load(Ordering::Relaxed) {
            self.set(|| clock.now());
        }
    }

    /// Stores the time `now` like [`touch`](Self::touch), for a producer that has already read the clock.
    pub(super) fn touch_at(&self, now: Time) {
        if self.wanted.load(Ordering::Relaxed) {
            self.set(|| now);
        }
    }

    #[cold]
    fn set(&self, now: impl FnOnce() -> Time) {
        if self.wanted.swap(false, Ordering::Relaxed) {
            self.at.store(now().as_nanos().max(1), Ordering::Relaxed);
        }
    }

    /// Takes the arrival time that a producer stored, if any, and sets the mark again, so that the producer
    /// of the next item stores its time.
    pub(super) fn take(&self) -> Option<Time> {
        match self.at.load(Ordering::Relaxed) {
            0 => None,
            ns => {
                self.at.store(0, Ordering::Relaxed);
                self.wanted.store(true, Ordering::Relaxed);
                Some(Time::from_nanos(ns))
            }
        }
    }
}

pub(super) struct Life<T> {
    stop: AtomicBool,
    /// The number of entries that the actor has taken out of the queue but not into a batch. They still count
    /// as backlog.
    pub(super) stashed: AtomicU64,
    state: Mutex<LifeState<T>>,
    changed: Condvar,
}

struct LifeState<T> {
    /// The reason why the actor must end or has ended; `None` while it runs.
    reason: Option<StopReason>,
    ended: bool,
    /// The items that the actor accepted and never handled, kept for `Handle::stop`.
    leftover: Vec<T>,
    tasks: Vec<Waker>,
}

impl<T> Life<T> {
    pub(super) const fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            stashed: AtomicU64::new(0),
            state: Mutex::new(LifeState {
                reason: None,
                ended: false,
                leftover: Vec::new(),
                tasks: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn is_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the reason why the actor must end; `None` if the actor need not end.
    pub(super) fn reason(&self) -> Option<StopReason> {
        lock(&self.state).reason.clone()
    }

    /// Returns the reason why the actor ended; `None` until the actor has ended.
    pub(super) fn ended(&self) -> Option<StopReason> {
        let state = lock(&self.state);
        state.reason.clone().filter(|_| state.ended)
    }

    /// Records the end of the actor, keeps the unhandled items, and wakes all threads and tasks that wait
    /// for the end. The actor calls this as its last step.
    pub(super) fn end(&self, reason: StopReason, leftover: Vec<T>) {
        let mut state = lock(&self.state);
        state.reason = Some(reason);
        state.ended = true;
        state.leftover.extend(leftover);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }

    pub(super) fn take_leftover(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.state).leftover)
    }

    /// Blocks the thread until the actor has ended, at most for `timeout`, for a drain or a stop. Returns
    /// `None` after the timeout.
    pub(super) fn wait(&self, timeout: Duration) -> Option<StopReason> {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = lock(&self.state);
        while !state.ended {
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            state = wait_timeout(&self.changed, state, left);
        }
        state.reason.clone()
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<StopReason> {
        let mut state = lock(&self.state);
        match &state.reason {
            Some(reason) if state.ended => Poll::Ready(reason.clone()),
            _ => {
                state.tasks.retain(|task| !task.will_wake(cx.waker()));
                state.tasks.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
