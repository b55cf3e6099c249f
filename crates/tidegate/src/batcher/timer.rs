//! Deadlines for futures, which work on any runtime, also on a runtime without a timer.
//!
//! One thread of the process wakes each future at its deadline. The first deadline starts the thread; the
//! thread ends after a second without a deadline. A future that is ready at its first poll sets no
//! deadline. The thread keeps one entry for each future that waits with a deadline.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Condvar, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::reply::{lock, wait_timeout};

/// Waits for `future` and returns its output. Returns `None`, and drops the future, if it is not ready at
/// `deadline`. Without a deadline the wait has no bound.
pub(super) async fn before<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let Some(at) = deadline else {
        return Some(future.await);
    };
    let mut alarm = None;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if at <= Instant::now() {
            return Poll::Ready(None);
        }
        alarm.get_or_insert_with(|| Alarm::new(at)).set(cx.waker());
        Poll::Pending
    })
    .await
}

/// A deadline at which the timer's thread wakes a task. A drop cancels the alarm.
pub(super) struct Alarm {
    key: (Instant, u64),
}

struct Alarms {
    next: u64,
    wakers: BTreeMap<(Instant, u64), Waker>,
    /// True while the timer's thread runs, so that a new deadline starts no second thread.
    attended: bool,
    /// The time until which the timer's thread sleeps; `None` while it is awake. A thread with an earlier
    /// deadline wakes it.
    sleeps_until: Option<Instant>,
}

static ALARMS: Mutex<Alarms> = Mutex::new(Alarms {
    next: 0,
    wakers: BTreeMap::new(),
    attended: false,
    sleeps_until: None,
});
static CHANGED: Condvar = Condvar::new();

impl Alarm {
    /// Creates an alarm for the time `at`. The alarm wakes no task before the call of [`set`](Self::set).
    pub(super) fn new(at: Instant) -> Self {
        let mut alarms = lock(&ALARMS);
        alarms.next += 1;
        Self {
            key: (at, alarms.next),
        }
    }

    /// Makes the timer's thread wake `waker` at the deadline, unless the alarm is dropped before.
    pub(super) fn set(&self, waker: &Waker) {
        let mut alarms = lock(&ALARMS);
        let old = alarms.wakers.insert(self.key, waker.clone());
        // The thread may sleep until the deadline of an alarm that was dropped meanwhile. So the new
        // deadline is compared with the time until which the thread sleeps, and not with the first alarm.
        let sooner = alarms.sleeps_until.is_some_and(|at| self.key.0 < at);
        if sooner {
            alarms.sleeps_until = Some(self.key.0);
        }
        let starts = !std::mem::replace(&mut alarms.attended, true);
        drop(alarms);
        drop(old);
        if starts {
            let started = thread::Builder::new()
                .name("deadlines".into())
                .spawn(attend);
            if started.is_err() {
                // The operating system started no thread for the deadlines. So the future polls itself again
                // and again, and each poll checks the time.
                lock(&ALARMS).attended = false;
                waker.wake_by_ref();
            }
        } else if sooner {
            CHANGED.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let old = lock(&ALARMS).wakers.remove(&self.key);
        drop(old);
    }
}

/// Runs the timer's thread: wakes each future at its deadline, and ends after a second without a deadline, so
/// that an idle process has no such thread.
fn attend() {
    let mut alarms = lock(&ALARMS);
    let mut idle = false;
    loop {
        let now = Instant::now();
        let later = alarms.wakers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut alarms.wakers, later);
        if !due.is_empty() {
            drop(alarms);
            due.into_values().for_each(Waker::wake);
            alarms = lock(&ALARMS);
            continue;
        }
        let left = match alarms.wakers.first_key_value() {
            Some((first, _)) => first.0.saturating_duration_since(now),
            None if idle => {
                alarms.attended = false;
                return;
            }
            None => Duration::from_secs(1),
        };
        idle = alarms.wakers.is_empty();
        alarms.sleeps_until = now.checked_add(left);
        alarms = wait_timeout(&CHANGED, alarms, left);
        alarms.sleeps_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::block_until;
    use super::*;
    use std::future::{pending, ready};

    fn block_on<F: Future>(future: F) -> F::Output {
        block_until(future, None).unwrap()
    }

    #[test]
    fn a_future_comes_before_its_deadline_or_is_given_up() {
        let past = Some(Instant::now());
        assert_eq!(block_on(before(past, ready(1))), Some(1));
        assert_eq!(block_on(before(past, pending::<()>())), None);
        let soon = Instant::now().checked_add(Duration::from_millis(1));
        assert_eq!(block_on(before(soon, pending::<()>())), None);
        assert_eq!(block_on(before(None, ready(2))), Some(2));
    }

    #[test]
    fn each_of_many_deadlines_ends_its_own_future() {
        thread::scope(|s| {
            for ms in [5, 1, 9, 3] {
                s.spawn(move || {
                    let at = Instant::now().checked_add(Duration::from_millis(ms));
                    assert_eq!(block_on(before(at, pending::<()>())), None);
                    assert!(Instant::now() >= at.unwrap());
                });
            }
        });
    }
}
