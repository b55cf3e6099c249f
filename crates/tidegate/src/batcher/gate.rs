//! The bound on bytes: credit is taken by whoever sends an item and returned when its batch is taken.
//!
//! One counter; a lock only for those that must wait. An item larger than the whole bound passes when nothing
//! else waits, so that none waits for ever.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use super::reply::{lock, wait};

pub(super) struct Gate {
    limit: u64,
    used: AtomicU64,
    /// Threads and tasks in line, or about to be: looked at by `release` after it changed `used`, raised by a
    /// waiter before it looks at `used` again, so that one of them sees the other.
    waiting: AtomicUsize,
    /// Somebody found no room since the actor last took a batch.
    pressed: AtomicBool,
    line: Mutex<Line>,
    freed: Condvar,
}

#[derive(Default)]
struct Line {
    /// Each task once, by its ticket.
    tasks: Vec<(u64, Waker)>,
    next: u64,
    closed: bool,
}

/// The gate was closed while somebody waited for credit.
pub(super) struct GateClosed;

impl Gate {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            pressed: AtomicBool::new(false),
            line: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Bytes that wait.
    pub(super) fn used(&self) -> u64 {
        self.used.load(SeqCst)
    }

    pub(super) fn try_credit(&self, bytes: u64) -> Option<Credit<'_>> {
        self.try_acquire(bytes).then(|| Credit(self, bytes))
    }

    pub(super) fn credit(&self, bytes: u64) -> Result<Credit<'_>, GateClosed> {
        self.acquire(bytes)?;
        Ok(Credit(self, bytes))
    }

    pub(super) async fn credit_async(&self, bytes: u64) -> Result<Credit<'_>, GateClosed> {
        self.acquire_async(bytes).await?;
        Ok(Credit(self, bytes))
    }

    fn try_acquire(&self, bytes: u64) -> bool {
        self.used
            .fetch_update(SeqCst, SeqCst, |used| {
                let then = used.saturating_add(bytes);
                (used == 0 || then <= self.limit).then_some(then)
            })
            .is_ok()
    }

    fn acquire(&self, bytes: u64) -> Result<(), GateClosed> {
        if self.try_acquire(bytes) {
            return Ok(());
        }
        let _waiting = self.enter();
        // Declared later, so unlocked before that place is given up.
        let mut line = lock(&self.line);
        loop {
            if self.try_acquire(bytes) {
                return Ok(());
            }
            if line.closed {
                return Err(GateClosed);
            }
            line = wait(&self.freed, line);
        }
    }

    async fn acquire_async(&self, bytes: u64) -> Result<(), GateClosed> {
        if self.try_acquire(bytes) {
            return Ok(());
        }
        let waiting = self.enter();
        poll_fn(|cx| {
            let mut line = lock(&self.line);
            if self.try_acquire(bytes) {
                return Poll::Ready(Ok(()));
            }
            if line.closed {
                return Poll::Ready(Err(GateClosed));
            }
            let old = line.leave(waiting.ticket);
            line.tasks.push((waiting.ticket, cx.waker().clone()));
            // A waker may own its task, and that whatever it likes: none is dropped or called under the lock.
            drop(line);
            drop(old);
            Poll::Pending
        })
        .await
    }

    /// Takes credit for items that came back to the actor, whether there is room or not: the actor must not
    /// wait for room that only the actor makes.
    pub(super) fn charge(&self, bytes: u64) {
        self.used.fetch_add(bytes, SeqCst);
    }

    pub(super) fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, SeqCst);
            if self.waiting.load(SeqCst) > 0 {
                self.wake(lock(&self.line));
            }
        }
    }

    /// Nobody waits any longer.
    pub(super) fn close(&self) {
        let mut line = lock(&self.line);
        line.closed = true;
        self.wake(line);
    }

    /// There was no room. Says whether nobody told the actor yet.
    pub(super) fn press(&self) -> bool {
        !self.pressed.swap(true, SeqCst)
    }

    /// Returns whether there is somebody for whom there was no room: then waiting for company is in vain.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(SeqCst)
    }

    /// The actor is about to take a batch.
    pub(super) fn relieve(&self) {
        self.pressed.store(false, SeqCst);
    }

    fn wake(&self, mut line: MutexGuard<'_, Line>) {
        let tasks = std::mem::take(&mut line.tasks);
        drop(line);
        self.freed.notify_all();
        for (_, task) in tasks {
            task.wake();
        }
    }

    fn enter(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, SeqCst);
        let mut line = lock(&self.line);
        line.next += 1;
        Waiting {
            gate: self,
            ticket: line.next,
        }
    }
}

impl Line {
    fn leave(&mut self, ticket: u64) -> Option<(u64, Waker)> {
        let at = self.tasks.iter().position(|task| task.0 == ticket)?;
        Some(self.tasks.swap_remove(at))
    }
}

/// Bytes taken for an item that is not sent yet: returned on drop unless kept.
pub(super) struct Credit<'a>(&'a Gate, u64);

impl Credit<'_> {
    /// The item is sent; the actor returns its bytes.
    pub(super) fn keep(mut self) {
        self.1 = 0;
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

/// A place in the line; given up when dropped.
struct Waiting<'a> {
    gate: &'a Gate,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = lock(&self.gate.line).leave(self.ticket);
        drop(left);
        self.gate.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn who_waits_gets_through_or_learns_of_the_end() {
        let gate = Gate::new(1);
        assert!(gate.try_acquire(1));
        std::thread::scope(|s| {
            let waiting = s.spawn(|| gate.acquire(1).is_ok());
            while gate.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            gate.release(1);
            assert!(waiting.join().unwrap());
            let waiting = s.spawn(|| gate.acquire(1).is_ok());
            while gate.waiting.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            gate.close();
            assert!(!waiting.join().unwrap());
        });
    }
}
