//! The ways in which threads and tasks wait for the other end of the queue, and the line of producers that
//! wait for room.
//!
//! Threads and tasks wait alike, by a [`Waker`]; the waker of a thread wakes a [`Parker`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::Wait;
use super::sync::{Condvar, Mutex, lock, spin_loop, yield_now};

/// The number of looks at the queue before a waiting thread first yields its core: few, because the other
/// end of the queue may need this very core.
const SPINS: u32 = if cfg!(loom) { 0 } else { 4 };
/// The number of looks at the queue before a waiting thread sleeps. They take some 20 us, so that a busy
/// queue needs no wake-up, and a slow one wastes little time.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 48 };
/// The number of pauses (spin-loop hints) between two looks at the queue. Each look takes a cache line away
/// from the thread that writes to it. The pauses leave that thread undisturbed for about a microsecond, which
/// is long enough for it to prepare a batch.
const PAUSES: u32 = if cfg!(loom) { 0 } else { 64 };

/// The progress of a thread's wait: the number of looks at the queue that found nothing. It decides the
/// next step of the wait.
#[derive(Debug)]
pub(super) struct Backoff {
    wait: Wait,
    step: u32,
}

/// The next step of a thread that waits for the other end of the queue, as [`Backoff::pass`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The thread has paused or yielded its core, and now looks at the queue again.
    Again,
    /// The thread has paused or yielded its core 64 times since it last looked into the producers' buffers.
    /// Now it looks at the queue and into these buffers.
    LookAround,
    /// The thread must sleep now, because its setting is [`Wait::Park`] or it has looked at the queue often
    /// enough.
    Sleep,
}

impl Wait {
    /// Pauses for a moment between two looks at the queue, so that the other end of the queue can use its
    /// cache lines. Does nothing if the thread only yields or sleeps.
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

    /// Returns the number of looks at the queue in this wait so far.
    pub(super) const fn looks(&self) -> u32 {
        match self.wait {
            Wait::Park => 0,
            _ => self.step,
        }
    }

    /// Pauses or yields the core, as the [`Wait`] setting says, and returns the thread's next step. Does
    /// neither if that step is [`Pass::Sleep`].
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

/// A place where a thread sleeps. Any thread may sleep there, and any holder of the parker's waker wakes
/// it.
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

    /// Waits until the parker's waker is called: asleep or by repeated looks, as `wait` says.
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

    /// Sleeps until the parker's waker is called, at most for `timeout`; may return early. Returns whether
    /// the waker was called, even before the sleep.
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

/// The place where the consumer leaves its waker for the producers.
pub(super) struct WakerSlot(Mutex<Option<Waker>>);

impl WakerSlot {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Stores `waker` in place of the consumer's last waker, for the next producer that wakes the consumer.
    pub(super) fn set(&self, waker: &Waker) {
        let mut slot = lock(&self.0);
        if slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let old = slot.replace(waker.clone());
        // A waker may own the task that it wakes, and the task may own an end of this queue, which takes
        // locks in its drop. So the code drops wakers without the lock.
        drop(slot);
        drop(old);
    }

    /// Takes the consumer's waker out, to wake it.
    pub(super) fn take(&self) -> Option<Waker> {
        lock(&self.0).take()
    }
}

/// The threads and tasks that wait for room in one line, first come first served.
///
/// A waiter keeps its place until it has pushed its items or gives up. The consumer calls waiters as it frees
/// room, that is, wakes them for their turn; each waiter that leaves calls the next one while there is room.
/// Within one round, called waiters take their turns in any order. But a waiter that has had its turn and
/// joins the line again does not overtake the waiters that stood there before it. A called waiter that does
/// not take its turn is *late* after a while, and delays no other waiter from then on. See
/// [`Place`](super::shared::Place) for the shares.
pub(super) struct Waiters(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// All waiters in line except the late ones, ascending by ticket, so that the first waiter has its turn
    /// first.
    waiting: VecDeque<Waiter>,
    /// The late waiters by ticket. They were called and did not take their turn in time, so they delay no
    /// other waiter.
    late: BTreeMap<u64, Waker>,
    /// The tickets of those waiters in `waiting` that have not been called since they last stood in line: the
    /// waiters to call next.
    uncalled: BTreeSet<u64>,
    next: u64,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
}

/// The position of a waiter in the line for room, which decides whether the waiter has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// True if this call put the waiter into the line, because the waiter is new or was late. The ring then
    /// counts one more producer in line.
    pub(super) joins: bool,
    /// True if the waiter was called in line, so that it has its turn.
    pub(super) called: bool,
    /// True if the waiter belongs to the present round, in which each waiter has one turn.
    pub(super) in_round: bool,
    /// The number of waiters that stand before this waiter in line, each of which has its share first.
    pub(super) ahead: u64,
    /// The number of waiters in line, including this waiter, among which the ring is shared.
    pub(super) len: u64,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Line::default()))
    }

    /// Puts a waiter into the line with `waker`: at the place that `ticket` keeps, or at the end if
    /// `ticket` is `None`.
    pub(super) fn stand(&self, ticket: &mut Option<u64>, waker: &Waker) -> Stand {
        let mut line = lock(&self.0);
        let ticket = *ticket.get_or_insert_with(|| {
            line.next += 1;
            line.next
        });
        let (at, called, joins, old) = match line.place(ticket) {
            Ok(at) => {
                let called = line.uncalled.insert(ticket);
                let known = &mut line.waiting[at].waker;
                let old = match known.will_wake(waker) {
                    true => None,
                    false => Some(std::mem::replace(known, waker.clone())),
                };
                (at, called, false, old)
            }
            Err(at) => {
                let old = line.late.remove(&ticket);
                line.join(at, ticket, waker.clone());
                (at, old.is_some(), true, old)
            }
        };
        let stand = Stand {
            joins,
            called,
            in_round: ticket < line.round_end(),
            ahead: at as u64,
            len: line.waiting.len() as u64,
        };
        drop(line);
        // A waker may own its task, and the task may own an end of this queue, so the code drops the waker
        // without the lock.
        drop(old);
        stand
    }

    /// Takes a waiter out of the line. Returns whether other waiters are in line, and whether this waiter
    /// was late.
    pub(super) fn leave(&self, ticket: u64) -> (bool, bool) {
        let mut line = lock(&self.0);
        let (left, late) = match line.place(ticket) {
            Ok(at) => (line.remove(at), false),
            Err(_) => {
                let waker = line.late.remove(&ticket);
                let late = waker.is_some();
                (waker, late)
            }
        };
        let others = !line.waiting.is_empty();
        drop(line);
        drop(left);
        (others, late)
    }

    /// Calls the first waiters of the round that were not called yet, as long as the `free` slots of the
    /// ring hold one share for each of them and for the waiters before them. Returns whether uncalled
    /// waiters are left. Costs O(log n) for each waiter that it calls, with n waiters in line.
    pub(super) fn call(&self, free: u64, capacity: u64) -> bool {
        let mut line = lock(&self.0);
        let share = share(capacity, line.waiting.len() as u64);
        let most = usize::try_from(free.div_ceil(share)).unwrap_or(usize::MAX);
        let end = line.round_end();
        let mut wakers = Vec::new();
        while let Some(ticket) = line.uncalled.first().copied()
            && ticket < end
            && let Ok(at) = line.place(ticket)
            && at < most
        {
            line.uncalled.remove(&ticket);
            wakers.push(line.waiting[at].waker.clone());
        }
        let more = !line.uncalled.is_empty();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
        more
    }

    /// Marks all called waiters as late, because they did not take their turn. Returns how many waiters
    /// became late.
    pub(super) fn pass_over_called(&self) -> usize {
        let mut line = lock(&self.0);
        let passed = line.waiting.len() - line.uncalled.len();
        if passed > 0 {
            for waiter in std::mem::take(&mut line.waiting) {
                match line.uncalled.contains(&waiter.ticket) {
                    true => line.waiting.push_back(waiter),
                    false => drop(line.late.insert(waiter.ticket, waiter.waker)),
                }
            }
        }
        passed
    }

    /// Calls every waiter, because the queue is closed.
    pub(super) fn call_all(&self) {
        let mut line = lock(&self.0);
        line.uncalled.clear();
        let waiting = line.waiting.iter().map(|waiter| &waiter.waker);
        let wakers: Vec<Waker> = waiting.chain(line.late.values()).cloned().collect();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Line {
    /// Returns the index at which the waiter with this ticket stands in `waiting`, or the index at which it
    /// would stand if it joined.
    fn place(&self, ticket: u64) -> Result<usize, usize> {
        self.waiting
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
    }

    fn join(&mut self, at: usize, ticket: u64, waker: Waker) {
        self.waiting.insert(at, Waiter { ticket, waker });
        self.uncalled.insert(ticket);
    }

    fn remove(&mut self, at: usize) -> Option<Waker> {
        let left = self.waiting.remove(at)?;
        self.uncalled.remove(&left.ticket);
        Some(left.waker)
    }

    /// Returns the first ticket after the present round. A round has as many tickets as the line has
    /// waiters, counted from the first waiter on.
    fn round_end(&self) -> u64 {
        let first = self.waiting.front();
        first.map_or(0, |first| first.ticket + self.waiting.len() as u64)
    }
}

/// Returns how many slots of `capacity` each of `len` waiters may take in its turn. With more waiters than
/// slots, each waiter may take one slot.
pub(super) const fn share(capacity: u64, len: u64) -> u64 {
    match capacity.checked_div(len) {
        None | Some(0) => 1,
        Some(share) => share,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;

    /// A model of the line for room, which the tests compare with the line: a list that every operation
    /// searches.
    #[derive(Default)]
    struct Model {
        /// For each waiter in line: its ticket, true if it was called, and true if it is late.
        waiting: Vec<(u64, bool, bool)>,
        next: u64,
    }

    impl Model {
        fn prompt(&self) -> impl Iterator<Item = &(u64, bool, bool)> {
            self.waiting.iter().filter(|(.., late)| !late)
        }

        fn len(&self) -> u64 {
            self.prompt().count() as u64
        }

        fn round_end(&self) -> u64 {
            let first = self.prompt().next();
            first.map_or(0, |(ticket, ..)| ticket + self.len())
        }

        fn stand(&mut self, ticket: &mut Option<u64>) -> Stand {
            let ticket = *ticket.get_or_insert_with(|| {
                self.next += 1;
                self.next
            });
            let known = self.waiting.iter_mut().find(|(t, ..)| *t == ticket);
            let (called, joins) = match known {
                Some((_, called, late)) => (std::mem::take(called), std::mem::take(late)),
                None => {
                    self.waiting.push((ticket, false, false));
                    (false, true)
                }
            };
            Stand {
                joins,
                called,
                in_round: ticket < self.round_end(),
                ahead: self.prompt().filter(|(t, ..)| *t < ticket).count() as u64,
                len: self.len(),
            }
        }

        fn leave(&mut self, ticket: u64) -> (bool, bool) {
            let at = self.waiting.iter().position(|(t, ..)| *t == ticket);
            let late = at.is_some_and(|at| self.waiting.remove(at).2);
            (self.len() > 0, late)
        }

        /// Calls waiters like [`Waiters::call`]. Also returns the tickets of the called waiters.
        fn call(&mut self, free: u64, capacity: u64) -> (bool, Vec<u64>) {
            let most = free.div_ceil(share(capacity, self.len())) as usize;
            let end = self.round_end();
            let mut all = Vec::new();
            let prompt = self.waiting.iter_mut().filter(|(.., late)| !late);
            for (ticket, called, _) in prompt.take(most) {
                if *ticket < end && !std::mem::replace(called, true) {
                    all.push(*ticket);
                }
            }
            (self.prompt().any(|(_, called, _)| !called), all)
        }

        fn pass_over_called(&mut self) -> usize {
            let mut passed = 0;
            for (_, called, late) in &mut self.waiting {
                passed += usize::from(*called && !*late);
                *late |= *called;
            }
            passed
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Stand(usize),
        Leave(usize),
        Call(u64),
        PassOver,
        CallAll,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..12_usize).prop_map(Op::Stand),
            3 => (0..12_usize).prop_map(Op::Leave),
            5 => (0..20_u64).prop_map(Op::Call),
            1 => Just(Op::PassOver),
            1 => Just(Op::CallAll),
        ]
    }

    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    proptest! {
        #[test]
        fn the_line_acts_like_a_list(ops in prop::collection::vec(op(), 1..200)) {
            const CAPACITY: u64 = 16;
            let (line, mut model) = (Waiters::new(), Model::default());
            let mut tickets = [[None; 2]; 12];
            let counts = [(); 12].map(|()| Arc::new(Counts(AtomicUsize::new(0))));
            let mut wakes = [0; 12];
            for op in ops {
                match op {
                    Op::Stand(who) => {
                        let waker = Waker::from(Arc::clone(&counts[who]));
                        let [ours, models] = &mut tickets[who];
                        prop_assert_eq!(line.stand(ours, &waker), model.stand(models));
                        prop_assert_eq!(*ours, *models);
                    }
                    Op::Leave(who) => {
                        if let [Some(ours), Some(models)] = std::mem::take(&mut tickets[who]) {
                            prop_assert_eq!(line.leave(ours), model.leave(models));
                        }
                    }
                    Op::Call(free) => {
                        let (more, called) = model.call(free, CAPACITY);
                        prop_assert_eq!(line.call(free, CAPACITY), more);
                        for (who, [ours, _]) in tickets.iter().enumerate() {
                            let is_called = ours.is_some_and(|ticket| called.contains(&ticket));
                            wakes[who] += usize::from(is_called);
                        }
                    }
                    Op::PassOver => {
                        prop_assert_eq!(line.pass_over_called(), model.pass_over_called());
                    }
                    Op::CallAll => {
                        line.call_all();
                        for (ticket, called, _) in &mut model.waiting {
                            *called = true;
                            let holds = |[ours, _]: &[Option<u64>; 2]| *ours == Some(*ticket);
                            wakes[tickets.iter().position(holds).unwrap()] += 1;
                        }
                    }
                }
                let woken = counts.each_ref().map(|count| count.0.load(Relaxed));
                prop_assert_eq!(woken, wakes);
            }
        }
    }
}
