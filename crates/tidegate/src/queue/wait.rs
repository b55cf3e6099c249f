//! Waiting: how a thread passes the time, and who is to be woken.
//!
//! Threads and tasks wait alike, by a [`Waker`]; a thread's is a [`Parker`].

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Wait;
use super::sync::{
    self, AcqRel, AtomicBool, Mutex, Thread, ThreadId, current, lock, spin_loop, yield_now,
};

/// Spins before yielding: a cache miss or two, no more, because the other side may need this very core.
const SPINS: u32 = if cfg!(loom) { 0 } else { 16 };
/// Yields before sleeping.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 16 };

/// How often somebody looked in vain, and what to do about it.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Wait,
    step: u32,
}

/// What [`Backoff::pass`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Passed a moment: look again.
    Again,
    /// Passed a moment, and it was one of many: look around, too.
    LookAround,
    /// Nothing: sleep.
    Sleep,
}

impl Backoff {
    pub(super) const fn new(wait: Wait) -> Self {
        Self { wait, step: 0 }
    }

    /// Passes a moment as the strategy wants it.
    pub(super) fn pass(&mut self) -> Pass {
        self.step += 1;
        match self.wait {
            Wait::Park => return Pass::Sleep,
            Wait::Progressive if self.step > SPINS + YIELDS => return Pass::Sleep,
            Wait::Progressive if self.step > SPINS => yield_now(),
            Wait::Yield => yield_now(),
            Wait::Spin if self.step % 64 == 0 => yield_now(),
            Wait::Progressive | Wait::Spin => spin_loop(),
        }
        if self.step % 64 == 0 {
            Pass::LookAround
        } else {
            Pass::Again
        }
    }
}

/// A thread as a waker.
pub(super) struct Parker {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, std::sync::atomic::Ordering::Release);
        self.thread.unpark();
    }
}

impl Parker {
    /// The current thread's.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicBool::new(false),
            thread: current(),
        })
    }

    /// Whether the current thread is its thread.
    pub(super) fn is_mine(&self) -> bool {
        let id: ThreadId = self.thread.id();
        id == current().id()
    }

    /// Sleeps until woken, or for `timeout`; may return early. Says whether it was woken.
    pub(super) fn park(&self, timeout: Option<Duration>) -> bool {
        if self.woken.swap(false, AcqRel) {
            return true;
        }
        match timeout {
            None => sync::park(),
            Some(t) => sync::park_timeout(t),
        }
        self.woken.swap(false, AcqRel)
    }
}

/// Where the one consumer leaves its waker.
pub(super) struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Leaves `waker`, in place of the last one.
    pub(super) fn set(&self, waker: &Waker) {
        let mut slot = lock(&self.0);
        match &mut *slot {
            Some(old) => old.clone_from(waker),
            None => *slot = Some(waker.clone()),
        }
    }

    /// Takes the waker away.
    pub(super) fn take(&self) -> Option<Waker> {
        lock(&self.0).take()
    }
}

/// The producers that wait for room, first come first served.
pub(super) struct Waiters(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// By ticket, ascending.
    waiting: Vec<(u64, Waker)>,
    next: u64,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Line::default()))
    }

    /// Stands in line with `waker`. Who stood there before keeps its place by its ticket.
    pub(super) fn stand(&self, ticket: &mut Option<u64>, waker: &Waker) {
        let mut line = lock(&self.0);
        let ticket = *ticket.get_or_insert_with(|| {
            line.next += 1;
            line.next
        });
        match line.waiting.binary_search_by_key(&ticket, |w| w.0) {
            Ok(at) => line.waiting[at].1.clone_from(waker),
            Err(at) => line.waiting.insert(at, (ticket, waker.clone())),
        }
    }

    /// Leaves the line. False if the ticket was called: the caller then took what it was called for, or passes it on.
    pub(super) fn leave(&self, ticket: u64) -> bool {
        let mut line = lock(&self.0);
        let found = line.waiting.binary_search_by_key(&ticket, |w| w.0);
        if let Ok(at) = found {
            line.waiting.remove(at);
        }
        found.is_ok()
    }

    /// Calls the first `n`. Says whether others still wait.
    pub(super) fn call(&self, n: u64) -> bool {
        let mut line = lock(&self.0);
        let n = line
            .waiting
            .len()
            .min(usize::try_from(n).unwrap_or(usize::MAX));
        let called: Vec<_> = line.waiting.drain(..n).collect();
        let more = !line.waiting.is_empty();
        drop(line);
        for (_, waker) in called {
            waker.wake();
        }
        more
    }
}
