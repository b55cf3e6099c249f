//! The budget of memory that the read buffers of all connections of a server may take together.
//!
//! Each connection has a small buffer of its own, outside of the budget. It takes the memory of a larger
//! buffer from the budget. If a message needs more than the budget has left, the budget asks the connection
//! with the largest buffer for its memory; if several have that size, the newest of them. The asked
//! connection shrinks its buffer if the buffer holds little, and ends otherwise. So a peer that makes the
//! server hold much loses first, and the messages of other peers find room. The connection that needs room
//! waits until the memory is back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The error of a connection that must end: the budget is used up, and this connection has the largest
/// buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowded;

/// The budget of bytes that the read buffers of all connections may take together, so that peers cannot fill
/// the memory.
#[derive(Debug)]
pub(super) struct Budget {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The number of the share that the budget gave to its newest connection; the next share gets the next
    /// number.
    last: u64,
    /// The shares of the budget that hold bytes, by their numbers, to find the largest share: a newer share
    /// has a higher number.
    holders: HashMap<u64, Holder>,
    /// The wakers of the connections that wait for bytes of the budget, by the numbers of their shares.
    waiters: HashMap<u64, Waker>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// True if the budget has asked this share's connection for the share's bytes. The connection gives them
    /// back as soon as its task runs.
    asked: bool,
    request: Arc<Request>,
}

/// The budget's request to a connection to give its bytes back, and the waker of the connection's task, which
/// must act on it.
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

    /// Returns whether the budget has asked the connection for its bytes. If not, the budget wakes `waker`
    /// once it asks.
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
    /// Creates a budget of `max` bytes for the connections of one server.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock of the budget, so the state is whole even under a poisoned
        // lock.
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

    /// Asks the largest shares for their bytes, until the shares asked hold at least `missing` bytes. Fails
    /// if share `for_share`, which needs the bytes, is itself the largest.
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

/// The part of the budget that one connection has. A drop of the share gives its bytes back.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    number: u64,
    bytes: usize,
    request: Arc<Request>,
}

impl Share {
    /// Creates the share of a new connection, without bytes.
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

    /// Takes `more` bytes if the budget has them and no other connection waits for bytes. Returns whether it
    /// took them.
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

    /// Takes `more` bytes of the budget. If the budget has too few left, asks the largest shares for theirs
    /// and waits until enough are back.
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

    /// Returns whether the budget asks this share for its bytes. If not, wakes the connection's task once the
    /// budget asks.
    pub(super) fn poll_asked(&self, cx: &Context<'_>) -> bool {
        self.bytes > 0 && self.request.poll(cx.waker())
    }

    /// Gives all bytes of this share back to the budget, for other connections.
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
        // The second poll of the waiting share does not ask further shares for their bytes.
        assert!(shares[3].poll_grow(&mut cx(), 10).is_pending());
        assert_eq!(asked(&shares), [false, false, true, false]);
        shares[2].release();
        assert_eq!(shares[3].poll_grow(&mut cx(), 10), Poll::Ready(Ok(())));
        assert_eq!(asked(&shares), [false; 4]);
        // The largest share that needs more is refused, so that its connection ends.
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
        // While a message waits for bytes, a share does not grow merely to make reads larger.
        drop(shares.remove(3));
        assert!(!shares[0].try_grow(1));
        drop(shares.drain(1..3));
        let waits = shares.last_mut().unwrap();
        assert_eq!(waits.poll_grow(&mut cx(), 60), Poll::Ready(Ok(())));
        assert!(budget.lock().used <= 100);
    }
}
