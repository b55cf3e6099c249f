//! Blocks a thread on a future up to a deadline. A future suits such a wait, because the thread gives the
//! wait up by dropping the future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// Polls `future` on this thread until it is ready, and returns its output. Returns `None`, and drops the
/// future, if it is not ready at `deadline`.
pub(super) fn block_until<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let mut future = pin!(future);
    // Most futures are ready at the first poll, and need no waker. So the first poll creates none.
    let mut noop = Context::from_waker(Waker::noop());
    if let Poll::Ready(output) = future.as_mut().poll(&mut noop) {
        return Some(output);
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        match left {
            None => thread::park(),
            Some(left) if left.is_zero() => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
