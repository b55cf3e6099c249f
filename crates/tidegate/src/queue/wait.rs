//! Waiting: how a thread passes the time, and the line of producers to wake.
//!
//! Threads and tasks wait alike, by a [`Waker`]; a thread's wakes a [`Parker`].

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Wait;
use super::sync::{Condvar, Mutex, lock, spin_loop, yield_now};

/// Looks before the first yield: few, because the other side may need this very core.
const SPINS: u32 = if cfg!(loom) { 0 } else { 4 };
/// Looks before sleeping: some 20 us, so that a busy queue needs no wake-up, and a slow one wastes little.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 48 };
/// Pauses between two looks, after the first few. Each look takes a cache line away from the thread that
/// writes to it; undisturbed for a microsecond, that thread gets a batch ready.
const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };

/// The number of looks in vain, and the next step after them.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Wait,
    step: u32,
}

/// The result of [`Backoff::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Passed a moment: look again.
    Again,
    /// Passed one of many moments: look around, too.
    LookAround,
    /// Passed no time: sleep.
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

    /// Returns the looks so far.
    pub(super) const fn looks(&self) -> u32 {
        match self.wait {
            Wait::Park => 0,
            _ => self.step,
        }
    }

    /// Passes a moment as the strategy says.
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

/// The place where a thread sleeps. Any thread may sleep there, and any holder of the waker wakes it.
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

    /// Waits until woken, as `wait` says: asleep, or looking again and again.
    pub(super) fn pass(&self, wait: Wait) {
        match wait {
            Wait::Park | Wait::Progressive => {
                self.park(None);
            }
            Wait::Spin | Wait::Yield => {
                let mut backoff = Backoff::new(wait);
                while !std::mem::take(&mut *lock(&self.woken)) {
                    backoff.pass();
                }
            }
        }
    }

    /// Sleeps until woken, or for `timeout`; may return early. Returns whether a waker
    /// woke it, also before it slept.
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

/// The place where the one consumer leaves its waker.
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
        // A waker may own the task it wakes, and the task may own anything. So the code drops wakers without
        // the lock, here and below.
        drop(slot);
        drop(old);
    }

    /// Takes the waker away.
    pub(super) fn take(&self) -> Option<Waker> {
        lock(&self.0).take()
    }
}

/// The threads and tasks that wait for room in one line, first come first served.
///
/// A waiter keeps its place until it is served or gives up. The consumer calls waiters as it frees room; each
/// served waiter calls the next one while there is room. Within one round, called waiters take their turns in
/// any order: a served waiter that stands in line again does not overtake the waiters that stood there before
/// it. A called waiter that does not take its turn is *late* after a while, and delays no other waiter from
/// then on. See [`Place`](super::shared::Place) for the shares.
pub(super) struct Waiters(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// By ticket, ascending.
    waiting: VecDeque<Waiter>,
    next: u64,
    /// The number of late waiters.
    late: usize,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
    /// The consumer or a served waiter called its waker since it last stood in line.
    called: bool,
    /// The waiter was called and did not take its turn for a while.
    late: bool,
}

/// A waiter's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// The waiter is new in line, or was late.
    pub(super) joins: bool,
    /// The waiter was called.
    pub(super) called: bool,
    /// The waiter belongs to the present round.
    pub(super) in_round: bool,
    /// The number of waiters before it.
    pub(super) ahead: u64,
    /// The number of waiters in line.
    pub(super) len: u64,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Line::default()))
    }

    /// Stands in line with `waker`: at its end, or at the place that `ticket` keeps.
    pub(super) fn stand(&self, ticket: &mut Option<u64>, waker: &Waker) -> Stand {
        let mut line = lock(&self.0);
        let ticket = *ticket.get_or_insert_with(|| {
            line.next += 1;
            line.next
        });
        let mut old = None;
        let (at, called, joins) = match line.place(ticket) {
            Some(at) => {
                let waiter = &mut line.waiting[at];
                if !waiter.waker.will_wake(waker) {
                    old = Some(std::mem::replace(&mut waiter.waker, waker.clone()));
                }
                let (called, late) = (waiter.called, waiter.late);
                (waiter.called, waiter.late) = (false, false);
                line.late -= usize::from(late);
                (at, called, late)
            }
            None => {
                line.waiting.push_back(Waiter {
                    ticket,
                    waker: waker.clone(),
                    called: false,
                    late: false,
                });
                (line.waiting.len() - 1, false, true)
            }
        };
        let late = line
            .waiting
            .range(..at)
            .filter(|waiter| waiter.late)
            .count();
        let stand = Stand {
            joins,
            called,
            in_round: ticket < line.round_end(),
            ahead: (at - late) as u64,
            len: line.len() as u64,
        };
        drop(line);
        // A waker may own its task, so the code drops it without the lock.
        drop(old);
        stand
    }

    /// Leaves the line. Returns whether others wait, and whether this waiter was late.
    pub(super) fn leave(&self, ticket: u64) -> (bool, bool) {
        let mut line = lock(&self.0);
        let left = line.place(ticket).and_then(|at| line.waiting.remove(at));
        let late = left.as_ref().is_some_and(|waiter| waiter.late);
        line.late -= usize::from(late);
        let others = line.len() > 0;
        drop(line);
        drop(left);
        (others, late)
    }

    /// Calls the first waiters of the round that were not called yet, while there is a share of the `free`
    /// slots for each called one. Returns whether others wait uncalled.
    pub(super) fn call(&self, free: u64, capacity: u64) -> bool {
        let mut line = lock(&self.0);
        let share = share(capacity, line.len() as u64);
        let end = line.round_end();
        let mut most = free.div_ceil(share);
        let mut wakers = Vec::new();
        let mut more = false;
        for waiter in line.waiting.iter_mut().filter(|waiter| !waiter.late) {
            let calls = most > 0 && waiter.ticket < end;
            most = most.saturating_sub(1);
            if calls && !waiter.called {
                waiter.called = true;
                wakers.push(waiter.waker.clone());
            }
            more |= !waiter.called;
        }
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
        more
    }

    /// Marks all called waiters as late. Returns how many of them were not late before.
    pub(super) fn pass_over_called(&self) -> usize {
        let mut line = lock(&self.0);
        let before = line.late;
        for waiter in &mut line.waiting {
            waiter.late |= waiter.called;
        }
        line.late = line.waiting.iter().filter(|waiter| waiter.late).count();
        line.late - before
    }

    /// Calls every waiter.
    pub(super) fn call_all(&self) {
        let mut line = lock(&self.0);
        let mut wakers = Vec::new();
        for waiter in &mut line.waiting {
            waiter.called = true;
            wakers.push(waiter.waker.clone());
        }
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Line {
    fn place(&self, ticket: u64) -> Option<usize> {
        self.waiting
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
            .ok()
    }

    fn len(&self) -> usize {
        self.waiting.len() - self.late
    }

    /// Returns the ticket after the last of the round. A round has as many tickets, from the first waiter on,
    /// as the line has waiters.
    fn round_end(&self) -> u64 {
        let first = self.waiting.iter().find(|waiter| !waiter.late);
        first.map_or(0, |first| first.ticket + self.len() as u64)
    }
}

/// Returns how many slots of `capacity` each of `len` waiters may take in its turn.
pub(super) const fn share(capacity: u64, len: u64) -> u64 {
    match capacity.checked_div(len) {
        None | Some(0) => 1,
        Some(share) => share,
    }
}
