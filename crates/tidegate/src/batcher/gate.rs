//! The bound on the bytes that wait for an actor: a sender takes credit for the bytes of an item, and the
//! actor returns the credit when it takes the item into a batch.
//!
//! Senders that find room share one counter. Threads and tasks that find no room wait in one line, first
//! come first served. They take turns in *rounds*: each waiter has one turn in a round, and the next round
//! starts after the turns of all of them. A waiter in its turn gets credit for its item, and opens its
//! share of the bound: senders outside the line may take as many bytes. Most of these bytes go to the
//! waiter itself, because it runs at that moment. So one wake-up serves several items, and no sender gets
//! far ahead of the others.
//!
//! Room gathers for the first waiter of the line, even if its item is large: no other item passes it
//! meanwhile. An item larger than the whole bound has its turn when nothing else waits. A waiter may get
//! credit and not claim it, such as a future that is never polled again. The gate passes over such a waiter
//! after a tenth of a second at most, and from then on it delays no other waiter.
//!
//! Invariants: while waiters are in line, the counter bears a mark, and senders take credit only under the
//! lock; the credit granted to a waiter counts as used until that waiter claims it, gives up, or is passed
//! over.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::block::block_until;
use super::reply::lock;
use super::timer::Alarm;

pub(super) struct Gate(Arc<Room>);

struct Room {
    limit: u64,
    /// The bytes of all items that have credit, compared with the bound, with the mark [`LINE`] while waiters
    /// are in line.
    used: AtomicU64,
    /// True if a sender has found no room for the bytes of its item since the actor last took a batch. The
    /// actor then does not wait for more items.
    pressed: AtomicBool,
    line: Mutex<Line>,
}

/// The mark that the counter of used bytes bears while waiters are in line. A waiter sets the mark and then
/// reads the counter. So it sees each release of bytes before the mark, and each later release sees the
/// mark and serves the line.
const LINE: u64 = 1 << 63;

/// The period of the alarm for waiters that do not claim their credit. The gate passes over such a waiter
/// after one to two periods.
const LATE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Line {
    /// The senders in line, ascending by ticket: those that have credit and have not claimed it yet, then
    /// those that wait for credit.
    waiters: VecDeque<Waiter>,
    /// The number of waiters, at the front of the line, that have credit and have not claimed it yet.
    granted: usize,
    /// The bytes that the waiters with credit may still take outside the line, from their shares of the
    /// bound. The gate keeps these bytes free.
    pledged: u64,
    next: u64,
    /// The ticket at which the present round ends: waiters with a lower ticket have their turn in this round,
    /// the other waiters in a later round, so that no sender gets far ahead.
    round_end: u64,
    /// The number of waiters among which the gate divides the bound on bytes in the present round, so that
    /// each gets an equal share.
    sharers: u64,
    /// The bytes that senders outside the line may take now, out of the shares that waiters opened in their
    /// turns. Most of them go to these waiters.
    open: u64,
    /// True if a waiter has found no room since the actor last took a batch, and no sender has woken the
    /// actor for this reason.
    untold: bool,
    /// The alarm that passes over late waiters. It is set while a waiter has credit and has not claimed it.
    alarm: Option<Arc<Alarm>>,
    closed: bool,
}

struct Waiter {
    ticket: u64,
    bytes: u64,
    waker: Waker,
    granted: bool,
    /// True if the waiter had unclaimed credit already when the alarm last rang.
    late: bool,
}

/// The error of a sender that waited for credit until the gate closed, because the actor accepts no more
/// items.
pub(super) struct GateClosed;

impl Gate {
    pub(super) fn new(limit: u64) -> Self {
        Self(Arc::new(Room {
            limit: limit.min(LINE - 1),
            used: AtomicU64::new(0),
            pressed: AtomicBool::new(false),
            line: Mutex::default(),
        }))
    }

    /// Returns the bytes of the items that wait for the actor, for its backlog.
    pub(super) fn used(&self) -> u64 {
        self.0.used.load(SeqCst) & !LINE
    }

    pub(super) fn try_credit(&self, bytes: u64) -> Option<Credit<'_>> {
        self.try_acquire(bytes).then(|| Credit {
            gate: self,
            bytes,
            waited: false,
        })
    }

    pub(super) fn credit(&self, bytes: u64) -> Result<Credit<'_>, GateClosed> {
        block_until(self.credit_async(bytes), None).unwrap_or(Err(GateClosed))
    }

    pub(super) async fn credit_async(&self, bytes: u64) -> Result<Credit<'_>, GateClosed> {
        let waited = !self.try_acquire(bytes);
        if waited {
            let mut place = Place {
                gate: self,
                bytes,
                ticket: None,
            };
            poll_fn(|cx| place.poll(cx.waker())).await?;
        }
        Ok(Credit {
            gate: self,
            bytes,
            waited,
        })
    }

    fn try_acquire(&self, bytes: u64) -> bool {
        loop {
            let mut has_line = false;
            let taken = self.0.used.fetch_update(SeqCst, SeqCst, |used| {
                has_line = used & LINE != 0;
                let then = used.saturating_add(bytes);
                (!has_line && (used == 0 || then <= self.0.limit)).then_some(then)
            });
            if !has_line {
                return taken.is_ok();
            }
            if let Some(taken) = self.try_open(bytes) {
                return taken;
            }
        }
    }

    /// Takes credit for `bytes` out of the bytes that a waiter in its turn opened to senders outside the
    /// line. Returns whether these bytes suffice, or `None` if no line is left.
    #[cold]
    fn try_open(&self, bytes: u64) -> Option<bool> {
        let mut line = lock(&self.0.line);
        if self.0.used.load(SeqCst) & LINE == 0 {
            return None;
        }
        if line.open < bytes || !self.has_room(bytes) {
            return Some(false);
        }
        line.open -= bytes;
        self.0.used.fetch_add(bytes, SeqCst);
        Some(true)
    }

    fn has_room(&self, bytes: u64) -> bool {
        let used = self.used();
        used == 0 || used.saturating_add(bytes) <= self.0.limit
    }

    /// Takes credit for items that the handler gave back to the actor, even without room. The actor must
    /// not wait for room, because only the actor makes room.
    pub(super) fn charge(&self, bytes: u64) {
        self.0.used.fetch_add(bytes, SeqCst);
    }

    pub(super) fn release(&self, bytes: u64) {
        if bytes > 0 && self.0.used.fetch_sub(bytes, SeqCst) & LINE != 0 {
            self.serve(lock(&self.0.line));
        }
    }

    /// Closes the gate, because the actor accepts no more items, and wakes every waiter.
    pub(super) fn close(&self) {
        let mut line = lock(&self.0.line);
        line.closed = true;
        let wakers: Vec<_> = line.waiters.iter().map(|w| w.waker.clone()).collect();
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Records that a sender found no room for an item. Returns whether the sender must wake the actor,
    /// because the actor may not know this and wait for further items.
    pub(super) fn press(&self) -> bool {
        !self.0.pressed.swap(true, SeqCst) || self.take_untold()
    }

    /// Returns whether a waiter has found no room and the actor may sleep without knowing it, so that a
    /// sender must wake the actor. Clears this record.
    fn take_untold(&self) -> bool {
        std::mem::take(&mut lock(&self.0.line).untold)
    }

    /// Returns whether a sender has found no room since the last batch. Then the actor does not wait for
    /// further items, because these items find no room.
    pub(super) fn is_pressed(&self) -> bool {
        self.0.pressed.load(SeqCst)
    }

    /// Clears the record that a sender found no room, because the actor is about to take a batch.
    pub(super) fn relieve(&self) {
        self.0.pressed.store(false, SeqCst);
    }

    /// Grants credit to the waiters that have their turn, releases the lock, and wakes these waiters.
    fn serve(&self, mut line: MutexGuard<'_, Line>) {
        let mut called = Vec::new();
        self.grant(&mut line, &mut called);
        self.unlock(line, called);
    }

    /// Grants credit to the first waiters of the round, as long as there is room for their items and for
    /// the shares that they open. Adds the wakers of these waiters to `called`.
    fn grant(&self, line: &mut Line, called: &mut Vec<Waker>) {
        while let Some(&Waiter { ticket, bytes, .. }) = line.waiters.get(line.granted) {
            if !self.has_room(bytes) {
                // The item of the first waiter without credit finds no room, so freed room gathers for this
                // waiter. The actor must not wait for further items, because they find no room before this
                // waiter's item.
                line.open = 0;
                line.untold |= !self.0.pressed.swap(true, SeqCst);
                return;
            }
            let free = self.0.limit.saturating_sub(self.used());
            let round_is_open = ticket < line.round_end;
            let pledged = line.pledged;
            // The next round starts only after all waiters of this round have claimed their credit, so that
            // no sender has two turns before them.
            if pledged > 0 && (pledged >= free || !round_is_open)
                || line.granted > 0 && !round_is_open
            {
                return;
            }
            if !round_is_open {
                line.start_round();
            }
            self.0.used.fetch_add(bytes, SeqCst);
            line.pledged += line.share(self.0.limit).saturating_sub(bytes);
            let waiter = &mut line.waiters[line.granted];
            waiter.granted = true;
            called.push(waiter.waker.clone());
            line.granted += 1;
        }
    }

    /// Releases the lock of the line. Before that, removes the mark [`LINE`] if no waiter is left, and
    /// creates the alarm if a waiter has unclaimed credit. Afterwards wakes `called`.
    fn unlock(&self, mut line: MutexGuard<'_, Line>, called: Vec<Waker>) {
        let mut alarm = None;
        if line.waiters.is_empty() {
            line.open = 0;
            self.0.used.fetch_and(!LINE, SeqCst);
        } else if line.alarm.is_none() && line.granted > 0 {
            alarm = Instant::now()
                .checked_add(LATE)
                .map(|at| Arc::new(Alarm::new(at)));
            line.alarm.clone_from(&alarm);
        }
        drop(line);
        if let Some(alarm) = alarm {
            // The alarm may ring at once and then take the lock of the line, so the gate sets the alarm
            // without that lock.
            alarm.set(&Waker::from(Arc::new(PassOver(Arc::downgrade(&self.0)))));
        }
        called.into_iter().for_each(Waker::wake);
    }

    /// Takes credit back from waiters that did not claim it in time, and removes them from the line, so that
    /// they delay no other waiter.
    fn pass_over(&self) {
        let mut line = lock(&self.0.line);
        line.alarm = None;
        let mut gone = Vec::new();
        for at in (0..line.granted).rev() {
            let waiter = &mut line.waiters[at];
            if std::mem::replace(&mut waiter.late, true) {
                self.0.used.fetch_sub(waiter.bytes, SeqCst);
                gone.extend(line.remove(at, self.0.limit));
            }
        }
        self.serve(line);
        // A waker may own its task, and the task may own a sender that takes the lock in its drop. So the
        // gate drops the wakers without the lock.
        drop(gone);
    }
}

impl Line {
    fn find(&self, ticket: u64) -> Option<usize> {
        self.waiters
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
            .ok()
    }

    /// Takes the waiter at index `at` out of the line. If the waiter has credit, also takes back the bytes
    /// that it could still open to senders outside the line.
    fn remove(&mut self, at: usize, limit: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(at)?;
        if waiter.granted {
            self.granted -= 1;
            self.pledged -= self.share(limit).saturating_sub(waiter.bytes);
        }
        Some(waiter)
    }

    /// Starts the next round of turns. No waiter of the last round has unclaimed credit any more.
    fn start_round(&mut self) {
        self.round_end = self.next + 1;
        // Waiters of the last round that run at this moment are about to join the line again, so the round
        // counts at least half as many sharers as the last one.
        self.sharers = (self.waiters.len() as u64).max(self.sharers / 2);
    }

    /// Returns the bytes, out of the bound `limit`, that each waiter may take in its turn.
    fn share(&self, limit: u64) -> u64 {
        limit / self.sharers.max(1)
    }
}

/// The waker of the gate's alarm. Its call makes the gate pass over late waiters, and wakes no task.
struct PassOver(Weak<Room>);

impl Wake for PassOver {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(room) = self.0.upgrade() {
            Gate(room).pass_over();
        }
    }
}

/// The bytes that a sender has taken for an item before it sends the item. A drop returns these bytes to
/// the gate, unless the sender kept them.
pub(super) struct Credit<'a> {
    gate: &'a Gate,
    bytes: u64,
    /// True if the sender waited in the gate's line for the credit. Only such a sender may have to wake the
    /// actor for the next waiter.
    waited: bool,
}

impl Credit<'_> {
    /// Keeps the credit of an item that was sent; the actor returns the credit later. Returns whether the
    /// sender must wake the actor: the next waiter in line found no room, so the actor must not wait for
    /// further items.
    #[must_use]
    pub(super) fn keep(mut self) -> bool {
        self.bytes = 0;
        self.waited && self.gate.take_untold()
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.gate.release(self.bytes);
    }
}

/// The place of a sender in the gate's line. Dropping the place takes the sender out of the line.
struct Place<'a> {
    gate: &'a Gate,
    bytes: u64,
    /// The ticket by which the gate finds the sender in its line. `None` before the sender joins the line,
    /// and after its turn.
    ticket: Option<u64>,
}

impl Place<'_> {
    /// Returns ready once the gate has granted credit to this place or is closed. Until then keeps the
    /// place in line, with `waker`.
    fn poll(&mut self, waker: &Waker) -> Poll<Result<(), GateClosed>> {
        let Gate(room) = self.gate;
        let mut line = lock(&room.line);
        let mut called = Vec::new();
        let mut at = self.ticket.and_then(|ticket| line.find(ticket));
        if at.is_none_or(|at| !line.waiters[at].granted) && line.closed {
            return Poll::Ready(Err(GateClosed));
        }
        if at.is_none() {
            // The sender joins the line for the first time, or the gate has passed over its old place.
            line.next += 1;
            let ticket = line.next;
            self.ticket = Some(ticket);
            at = Some(line.waiters.len());
            line.waiters.push_back(Waiter {
                ticket,
                bytes: self.bytes,
                waker: waker.clone(),
                granted: false,
                late: false,
            });
            room.used.fetch_or(LINE, SeqCst);
            self.gate.grant(&mut line, &mut called);
        }
        let mut old = None;
        let granted = match at {
            Some(at) if line.waiters[at].granted => {
                old = line.remove(at, room.limit).map(|waiter| waiter.waker);
                self.ticket = None;
                line.open = line.share(room.limit).saturating_sub(self.bytes);
                self.gate.grant(&mut line, &mut called);
                true
            }
            Some(at) if !line.waiters[at].waker.will_wake(waker) => {
                old = Some(std::mem::replace(
                    &mut line.waiters[at].waker,
                    waker.clone(),
                ));
                false
            }
            _ => false,
        };
        self.gate.unlock(line, called);
        drop(old);
        match granted {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let Gate(room) = self.gate;
        let mut line = lock(&room.line);
        let left = line.find(ticket).and_then(|at| line.remove(at, room.limit));
        if left.as_ref().is_some_and(|waiter| waiter.granted) {
            room.used.fetch_sub(self.bytes, SeqCst);
        }
        self.gate.serve(line);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Context;

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Credit<'a>, GateClosed>> + 'a>>;

    /// Returns a waiter that has joined the line for `bytes` bytes, by its first poll.
    fn stand(gate: &Gate, bytes: u64) -> Waiting<'_> {
        let mut waiting: Waiting<'_> = Box::pin(gate.credit_async(bytes));
        assert!(!comes(&mut waiting));
        waiting
    }

    /// Returns whether the waiter has its credit, and keeps that credit as a sender does after its send.
    fn comes(waiting: &mut Waiting<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        match waiting.as_mut().poll(&mut cx) {
            Poll::Ready(Ok(credit)) => {
                let _ = credit.keep();
                true
            }
            Poll::Ready(Err(GateClosed)) => panic!("the gate is closed"),
            Poll::Pending => false,
        }
    }

    #[test]
    fn an_item_above_the_bound_passes_alone() {
        let gate = Gate::new(10);
        assert!(gate.try_acquire(100));
        assert!(!gate.try_acquire(1));
        assert!(gate.try_credit(1).is_none());
        assert_eq!(gate.used(), 100, "nothing is returned that was not taken");
        gate.release(100);
        drop(gate.try_credit(7));
        assert!(gate.try_acquire(4) && gate.try_acquire(6));
        assert!(!gate.try_acquire(1));
    }

    #[test]
    fn a_waiter_gets_through_or_learns_of_the_end() {
        let gate = Gate::new(1);
        assert!(gate.try_acquire(1));
        let stands = || !lock(&gate.0.line).waiters.is_empty();
        std::thread::scope(|s| {
            let waiting = s.spawn(|| gate.credit(1).map(|credit| credit.keep()).is_ok());
            while !stands() {
                std::thread::yield_now();
            }
            gate.release(1);
            assert!(waiting.join().unwrap());
            let waiting = s.spawn(|| gate.credit(1).is_ok());
            while !stands() {
                std::thread::yield_now();
            }
            gate.close();
            assert!(!waiting.join().unwrap());
        });
        assert_eq!(gate.0.used.load(SeqCst), 1, "the line is gone");
    }

    #[test]
    fn a_large_item_is_not_passed_by_small_ones() {
        let gate = Gate::new(100);
        (0..10).for_each(|_| assert!(gate.try_acquire(10)));
        let mut large = stand(&gate, 80);
        let mut small = stand(&gate, 10);
        for _ in 0..7 {
            gate.release(10);
            assert!(!comes(&mut large) && !comes(&mut small));
            assert!(!gate.try_acquire(10), "the room gathers for the large one");
        }
        gate.release(10);
        assert!(comes(&mut large));
        assert_eq!(gate.used(), 100);
        assert!(!comes(&mut small));
        gate.release(80);
        assert!(comes(&mut small));
        assert!(gate.try_acquire(70), "the line is gone");
    }

    #[test]
    fn an_item_above_the_bound_has_its_turn_in_the_line() {
        let gate = Gate::new(10);
        assert!(gate.try_acquire(10));
        let mut huge = stand(&gate, 1000);
        let mut next = stand(&gate, 1);
        gate.release(9);
        assert!(!comes(&mut huge) && !comes(&mut next));
        gate.release(1);
        assert!(comes(&mut huge));
        assert!(!comes(&mut next));
        gate.release(1000);
        assert!(comes(&mut next));
    }

    #[test]
    fn a_waiter_in_its_turn_opens_its_share_and_the_round_waits_for_all() {
        let gate = Gate::new(90);
        assert!(gate.try_acquire(90));
        let mut waiters = [1, 2, 3].map(|_| stand(&gate, 10));
        gate.release(90);
        assert!(comes(&mut waiters[0]));
        // The waiter's share is 30, and 20 of it are left.
        assert!(gate.try_acquire(10) && gate.try_acquire(10));
        assert!(!gate.try_acquire(10));
        let mut again = stand(&gate, 10);
        assert!(comes(&mut waiters[2]), "in any order within the round");
        assert!(!comes(&mut again), "the second has not come");
        assert!(comes(&mut waiters[1]));
        assert!(comes(&mut again));
    }

    #[test]
    fn a_waiter_that_gives_up_leaves_its_credit_to_the_next() {
        let gate = Gate::new(10);
        assert!(gate.try_acquire(10));
        let first = stand(&gate, 10);
        let mut second = stand(&gate, 10);
        gate.release(10);
        drop(first);
        assert!(comes(&mut second));
        let third = stand(&gate, 10);
        drop(third);
        gate.release(10);
        assert_eq!(gate.0.used.load(SeqCst), 0);
    }

    #[test]
    fn a_waiter_that_does_not_come_is_passed_over() {
        let gate = Gate::new(10);
        assert!(gate.try_acquire(10));
        let mut first = stand(&gate, 10);
        std::thread::scope(|s| {
            let second = s.spawn(|| gate.credit(5).map(|credit| credit.keep()).is_ok());
            while lock(&gate.0.line).waiters.len() < 2 {
                std::thread::yield_now();
            }
            // The gate grants the first waiter the whole bound, and no further poll claims it.
            gate.release(10);
            assert!(second.join().unwrap());
        });
        assert!(!comes(&mut first), "it stands at the end");
        gate.release(5);
        assert!(comes(&mut first));
    }

    #[test]
    fn credit_is_never_lost_between_threads() {
        let gate = Gate::new(64);
        let taken = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for n in 1..=4 {
                let (gate, taken) = (&gate, &taken);
                s.spawn(move || {
                    for i in 0..2_000 {
                        let bytes = 1 + (n * i) % 40;
                        let credit = match i % 3 {
                            0 => gate.try_credit(bytes),
                            _ => gate.credit(bytes).ok(),
                        };
                        taken.fetch_add(usize::from(credit.is_some()), SeqCst);
                        assert!(gate.used() <= 64);
                    }
                });
            }
        });
        assert!(taken.load(SeqCst) >= 4 * 1_333);
        assert_eq!(gate.0.used.load(SeqCst), 0);
    }
}
