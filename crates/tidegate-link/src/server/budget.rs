//! The memory that the read buffers of all connections may take together.
//!
//! Each connection has a small buffer of its own, outside of the budget. It takes what its buffer has beyond
//! that from the budget. If a message needs more than is left, the connection with the largest buffer gives
//! its part back; of several the newest. It shrinks its buffer if that holds little, and ends otherwise: a
//! peer that makes the server hold much loses first, and the others' messages find room. The connection that
//! needs room waits for that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The budget is used up, and this connection has the largest buffer: it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowded;

/// The bytes that all connections may take together.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The number of the last share.
    last: u64,
    /// The shares that have something, by their numbers: a newer one has a higher number.
    holders: HashMap<u64, Holder>,
    /// The shares that wait for room.
    waiters: HashMap<u64, Waker>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// It gives its bytes back as soon as its connection looks.
    asked: bool,
    request: Arc<Request>,
}

/// A request to give bytes back, and the waker of the connection.
#[derive(Debug, Default)]
struct Request {
    made: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Request {
    fn make(&self) {
        self.made.store(true, Ordering::Release);
        let slot = self.waker.lock();
        let waker = slot.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether the request is made; it wakes `waker` once it is.
    fn poll(&self, waker: &Waker) -> bool {
        let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *slot {
            Some(old) => old.clone_from(waker),
            slot => *slot = Some(waker.clone()),
        }
        drop(slot);
        self.made.load(Ordering::Acquire)
    }
}

impl Budget {
    /// Creates a budget of `max` bytes.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, share: &mut Share, more: usize) {
        self.used += more;
        share.bytes += more;
        let holder = self.holders.entry(share.number).or_insert_with(|| Holder {
            bytes: 0,
            asked: false,
            request: Arc::clone(&share.request),
        });
        holder.bytes = share.bytes;
    }

    /// Asks the largest holders for their bytes until those that come back are enough.
    fn ask(&mut self, missing: usize, for_share: u64) -> Result<(), Crowded> {
        let asked = self.holders.values().filter(|h| h.asked);
        let mut coming: usize = asked.map(|h| h.bytes).sum();
        while coming < missing {
            let others = self.holders.iter_mut().filter(|(_, h)| !h.asked);
            let largest = others.max_by_key(|(number, h)| (h.bytes, **number));
            let (number, holder) = largest.ok_or(Crowded)?;
            if *number == for_share {
                return Err(Crowded);
            }
            holder.asked = true;
            holder.request.make();
            coming += holder.bytes;
        }
        Ok(())
    }
}

/// The part of the budget that one connection has. It gives the part back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    number: u64,
    bytes: usize,
    request: Arc<Request>,
}

impl Share {
    /// Creates an empty share.
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        let mut state = budget.lock();
        state.last += 1;
        Self {
            budget: Arc::clone(budget),
            number: state.last,
            bytes: 0,
            request: Arc::default(),
        }
    }

    /// Takes `more` bytes if no other connection waits for them.
    pub(super) fn try_grow(&mut self, more: usize) -> bool {
        let budget = Arc::clone(&self.budget);
        let mut state = budget.lock();
        let free = budget.max.saturating_sub(state.used);
        let grows = more <= free && state.waiters.is_empty();
        if grows {
            state.take(self, more);
        }
        grows
    }

    /// Takes `more` bytes, and waits until others have given back as many as that needs.
    pub(super) fn poll_grow(
        &mut self,
        cx: &mut Context<'_>,
        more: usize,
    ) -> Poll<Result<(), Crowded>> {
        let budget = Arc::clone(&self.budget);
        let mut state = budget.lock();
        let free = budget.max.saturating_sub(state.used);
        if more <= free {
            state.waiters.remove(&self.number);
            state.take(self, more);
            return Poll::Ready(Ok(()));
        }
        if let Err(crowded) = state.ask(more - free, self.number) {
            state.waiters.remove(&self.number);
            return Poll::Ready(Err(crowded));
        }
        state.waiters.insert(self.number, cx.waker().clone());
        Poll::Pending
    }

    /// Returns whether others need the bytes of this share. Wakes the task once they do.
    pub(super) fn poll_asked(&self, cx: &Context<'_>) -> bool {
        self.bytes > 0 && self.request.poll(cx.waker())
    }

    /// Gives all bytes back.
    pub(super) fn release(&mut self) {
        let mut state = self.budget.lock();
        state.used -= self.bytes;
        self.bytes = 0;
        state.holders.remove(&self.number);
        self.request.made.store(false, Ordering::Release);
        state.waiters.values().for_each(Waker::wake_by_ref);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.lock().waiters.remove(&self.number);
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn the_largest_share_is_asked_first_and_the_newest_of_equal_ones() {
        let budget = Budget::new(100);
        let mut shares: Vec<Share> = (0..4).map(|_| Share::of(&budget)).collect();
        for (share, bytes) in shares.iter_mut().zip([20, 40, 40]) {
            assert!(share.try_grow(bytes));
        }
        assert!(!shares[3].try_grow(1), "the budget is used up");
        assert!(shares[3].poll_grow(&mut cx(), 10).is_pending());
        let asked = |shares: &[Share]| -> Vec<bool> {
            shares.iter().map(|s| s.poll_asked(&cx())).collect()
        };
        assert_eq!(asked(&shares), [false, false, true, false]);
        // A second look does not ask more of them.
        assert!(shares[3].poll_grow(&mut cx(), 10).is_pending());
        assert_eq!(asked(&shares), [false, false, true, false]);
        shares[2].release();
        assert_eq!(shares[3].poll_grow(&mut cx(), 10), Poll::Ready(Ok(())));
        assert_eq!(asked(&shares), [false; 4]);
        // The largest that needs more ends itself.
        assert!(shares[0].try_grow(30));
        assert_eq!(shares[0].poll_grow(&mut cx(), 1), Poll::Ready(Err(Crowded)));
        drop(shares);
        assert_eq!(budget.lock().used, 0);
        assert!(budget.lock().holders.is_empty());
    }

    #[test]
    fn several_shares_are_asked_where_one_is_not_enough() {
        let budget = Budget::new(100);
        let mut shares: Vec<Share> = (0..5).map(|_| Share::of(&budget)).collect();
        for share in &mut shares[..4] {
            assert!(share.try_grow(25));
        }
        assert!(shares[4].poll_grow(&mut cx(), 60).is_pending());
        let asked = shares.iter().filter(|s| s.poll_asked(&cx())).count();
        assert_eq!(asked, 3);
        // Nothing is taken for company while a message waits.
        drop(shares.remove(3));
        assert!(!shares[0].try_grow(1));
        drop(shares.drain(1..3));
        let waits = shares.last_mut().unwrap();
        assert_eq!(waits.poll_grow(&mut cx(), 60), Poll::Ready(Ok(())));
        assert!(budget.lock().used <= 100);
    }
}
