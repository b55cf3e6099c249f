//! Waiting: how a thread passes the time, and who is to be woken.
//!
//! Threads and tasks wait alike, by a [`Waker`]; a thread's wakes a [`Parker`].

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Wait;
use super::sync::{Condvar, Mutex, lock, spin_loop, yield_now};

/// Looks before the first yield: few, because the other side may need this very core.
const SPINS: u32 = if cfg!(loom) { 0 } else { 4 };
/// Looks before sleeping: some 20 us, so that a busy queue need not wake anybody, and a slow one wastes
/// little.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 48 };
/// Pauses between two looks, once there were some. Each look takes a line away from whoever writes to it;
/// left alone for a microsecond, the other side gets a batch ready.
const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };

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

impl Wait {
    /// Leaves the other side's lines alone for a moment, if the strategy has such moments.
    pub(super) fn pause(self) {
        if matches!(self, Self::Spin | Self::Progressive) {
            for _ in 0..PAUSES {
                spin_loop();
            }
        }
    }
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
            Wait::Progressive if self.step > LOOKS => return Pass::Sleep,
            Wait::Yield => yield_now(),
            Wait::Spin | Wait::Progressive => {
                self.wait.pause();
                let often = if self.wait == Wait::Spin { 64 } else { 1 };
                if self.step > SPINS && self.step.is_multiple_of(often) {
                    yield_now();
                }
            }
        }
        if self.step.is_multiple_of(64) {
            Pass::LookAround
        } else {
            Pass::Again
        }
    }
}

/// Where a thread sleeps: any thread, and whoever holds the waker wakes it.
pub(super) struct Parker {
    woken: Mutex<bool>,
    change: Condvar,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *lock(&self.woken) = true;
        self.change.notify_one();
    }
}

impl Parker {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            woken: Mutex::new(false),
            change: Condvar::new(),
        })
    }

    /// Sleeps until woken, or for `timeout`; may return early. Says whether it was woken, also before it
    /// slept.
    pub(super) fn park(&self, timeout: Option<Duration>) -> bool {
        let mut woken = lock(&self.woken);
        if !*woken {
            woken = match timeout {
                None => self
                    .change
                    .wait(woken)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let slept = self.change.wait_timeout(woken, time);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        std::mem::take(&mut *woken)
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
        if slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let old = slot.replace(waker.clone());
        // A waker may own the task it wakes, and that whatever it likes: it is dropped without the lock, here
        // and below.
        drop(slot);
        drop(old);
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

    /// Stands in line with `waker`. Who stood there before keeps its place by its ticket. Says whether it was
    /// called since.
    pub(super) fn stand(&self, ticket: &mut Option<u64>, waker: &Waker) -> bool {
        let mut line = lock(&self.0);
        let stood = ticket.is_some();
        let ticket = *ticket.get_or_insert_with(|| {
            line.next += 1;
            line.next
        });
        let (called, old) = match line.waiting.binary_search_by_key(&ticket, |w| w.0) {
            Ok(at) if line.waiting[at].1.will_wake(waker) => (false, None),
            Ok(at) => {
                let place = &mut line.waiting[at].1;
                (false, Some(std::mem::replace(place, waker.clone())))
            }
            Err(at) => {
                line.waiting.insert(at, (ticket, waker.clone()));
                (stood, None)
            }
        };
        drop(line);
        drop(old);
        called
    }

    /// Leaves the line. False if the ticket was called: the caller then took what it was called for, or
    /// passes it on.
    pub(super) fn leave(&self, ticket: u64) -> bool {
        let mut line = lock(&self.0);
        let found = line.waiting.binary_search_by_key(&ticket, |w| w.0);
        let left = found.ok().map(|at| line.waiting.remove(at));
        drop(line);
        left.is_some()
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
