//! The return path of a call: the handler holds a [`Reply`], and the caller holds a [`Request`].
//!
//! Both ends share one slot, one allocation a call. Either side may give its end up: a dropped [`Reply`]
//! gives its caller an error ([`ReplyError::NoReply`]), and a dropped [`Request`] lets the actor skip the
//! item. A slot is answered at most once, and read at most once. A slot can wake a waiting thread, a
//! waiting task or a collection of requests.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::requests::Group;
use super::timer;
use crate::WouldBlock;
use crate::blocking::{self, ActorId};

/// The cause of a failure or a stop, shared by all callers that the failure or the stop affects.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The handler's end of a call. The handler answers now, or keeps the reply and answers later. If the
/// handler drops the reply without an answer, the caller gets an error.
pub struct Reply<R> {
    /// The slot that the reply shares with the caller's request, for the answer; `None` after the answer.
    slot: Option<Arc<Slot<R>>>,
}

impl<R> Reply<R> {
    /// Answers the caller. Does nothing if the caller no longer waits: see [`Reply::is_wanted`].
    #[inline]
    pub fn send(mut self, value: R) {
        self.answer(Ok(value));
    }

    /// Answers the caller with an error, because its item failed: the caller gets [`ReplyError::Failed`].
    /// Many replies may share one cause.
    pub fn fail(mut self, cause: Cause) {
        self.answer(Err(ReplyError::Failed(cause)));
    }

    /// Returns whether the caller still waits, so that the answer is of use: the caller has neither dropped
    /// its [`Request`] nor run out of time.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.slot
            .as_ref()
            .is_some_and(|slot| Arc::strong_count(slot) > 1)
    }

    /// Returns a reply without a caller. It takes the place of a reply that moved elsewhere.
    pub(super) const fn answered() -> Self {
        Self { slot: None }
    }

    pub(super) fn refuse(mut self, error: ReplyError) {
        self.answer(Err(error));
    }

    #[inline]
    fn answer(&mut self, answer: Result<R, ReplyError>) {
        if let Some(slot) = self.slot.take() {
            slot.answer(answer);
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        if self.slot.is_some() {
            self.answer(Err(lost()));
        }
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("wanted", &self.is_wanted())
            .finish()
    }
}

thread_local! {
    /// The error that callers get if this thread drops their replies now, so that callers get the cause and
    /// not merely `NoReply`. `None` if no cause is known.
    static LOST: RefCell<Option<ReplyError>> = const { RefCell::new(None) };
}

/// Returns the error that a caller gets if this thread drops the reply of this caller now, without an
/// answer.
fn lost() -> ReplyError {
    let known = LOST.try_with(|lost| lost.borrow().clone());
    match known.ok().flatten() {
        Some(ReplyError::Failed(_)) | None if std::thread::panicking() => ReplyError::Panicked,
        Some(known) => known,
        None => ReplyError::NoReply,
    }
}

/// Runs `clear`, which drops operations that remain after a panic. The callers of these operations get
/// [`ReplyError::Panicked`].
pub(super) fn after_panic<V>(clear: impl FnOnce() -> V) -> V {
    lose(Some(ReplyError::Panicked), clear)
}

/// Runs `clear`, which drops operations that remain after the runtime of their actor shut down. The callers
/// of these operations get [`ReplyError::Abandoned`].
pub(super) fn abandoned<V>(clear: impl FnOnce() -> V) -> V {
    lose(Some(ReplyError::Abandoned), clear)
}

/// Runs a handler, which may return an error. If the handler drops a reply between its call of [`failing`]
/// and its return, the caller of that reply gets the cause of the error.
pub(super) fn may_fail<V>(handle: impl FnOnce() -> V) -> V {
    lose(None, handle)
}

/// Records that the handler that runs on this thread is about to return the error `cause`. Does nothing if
/// no handler runs.
pub(super) fn failing(cause: &Cause) {
    let _ = LOST.try_with(|lost| {
        let mut lost = lost.borrow_mut();
        if HANDLING.get() && matches!(*lost, None | Some(ReplyError::Failed(_))) {
            KNOWN.set(true);
            *lost = Some(ReplyError::Failed(Cause::clone(cause)));
        }
    });
}

thread_local! {
    /// True while this thread runs a handler or drops the remains of a batch, inside [`lose`]. Only then may
    /// a cause be recorded.
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// True while [`LOST`] may hold a cause. A read of this flag costs less than a read of `LOST`.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

fn lose<V>(why: Option<ReplyError>, clear: impl FnOnce() -> V) -> V {
    struct Reset {
        /// The value of [`LOST`] before this call of [`lose`]. The drop restores this value, also after a
        /// panic.
        lost: Option<ReplyError>,
        handling: bool,
    }
    impl Drop for Reset {
        fn drop(&mut self) {
            HANDLING.set(self.handling);
            if self.lost.is_some() || KNOWN.get() {
                set_lost(self.lost.take());
            }
        }
    }
    let _reset = Reset {
        lost: match why.is_some() || KNOWN.get() {
            true => set_lost(why),
            false => None,
        },
        handling: HANDLING.replace(true),
    };
    clear()
}

#[cold]
fn set_lost(why: Option<ReplyError>) -> Option<ReplyError> {
    KNOWN.set(why.is_some());
    LOST.replace(why)
}

/// The caller's end of a call in flight. The caller can await it, poll it, wait for it with or without a
/// deadline, or put it into a collection ([`Requests`](super::Requests)). A drop of the request gives the
/// call up: if the handler has not seen the item yet, the actor skips the item.
///
/// A request returns its answer once; each further read returns [`ReplyError::NoReply`]. If the handler of
/// the actor that owes the answer waits for the request, the wait returns [`ReplyError::WouldBlock`],
/// unless the answer has come.
#[must_use = "dropping a request gives its call up"]
pub struct Request<R> {
    slot: Arc<Slot<R>>,
    /// The id of the actor that owes the answer. The handler of this actor must not wait for the request.
    actor: ActorId,
}

impl<R> Request<R> {
    /// Blocks the thread until the answer comes.
    ///
    /// # Errors
    /// The error with which the actor answered. [`ReplyError::WouldBlock`] means that the thread must not
    /// wait; the wait then gives the call up.
    pub fn blocking_wait(mut self) -> Result<R, ReplyError> {
        self.block(None).unwrap_or(Err(ReplyError::NoReply))
    }

    /// Blocks the thread until the answer comes, at most for `timeout`. Returns `None` if no answer has
    /// come by then. The request stays in flight after that, and after [`ReplyError::WouldBlock`], so that
    /// the caller can wait for it again.
    pub fn blocking_wait_timeout(&mut self, timeout: Duration) -> Option<Result<R, ReplyError>> {
        // A deadline that the clock cannot express counts as no deadline.
        self.block(Instant::now().checked_add(timeout))
    }

    /// Waits for the answer, at most for `timeout`, on any runtime. Returns `None` if no answer has come by
    /// then. The request stays in flight, so that the caller can wait for it again.
    pub async fn wait_timeout(&mut self, timeout: Duration) -> Option<Result<R, ReplyError>> {
        timer::before(Instant::now().checked_add(timeout), self).await
    }

    fn block(&mut self, deadline: Option<Instant>) -> Option<Result<R, ReplyError>> {
        let mut state = self.slot.lock();
        let mut checked = false;
        loop {
            if let Some(answer) = state.take_answer() {
                return Some(answer);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                *state = State::Waiting(Waiter::Nobody);
                return None;
            }
            if !std::mem::replace(&mut checked, true)
                && let Err(why) = blocking::check(self.actor)
            {
                return Some(Err(ReplyError::WouldBlock(why)));
            }
            *state = State::Waiting(Waiter::Thread);
            state = match left {
                None => wait(&self.slot.changed, state),
                Some(left) => wait_timeout(&self.slot.changed, state, left),
            };
        }
    }

    /// Waits for the answer like [`blocking_wait`](Self::blocking_wait), without a check whether the thread
    /// may block: the caller has checked that.
    pub(super) fn wait(self) -> Result<R, ReplyError> {
        let mut state = self.slot.lock();
        loop {
            if let Some(answer) = state.take_answer() {
                return answer;
            }
            *state = State::Waiting(Waiter::Thread);
            state = wait(&self.slot.changed, state);
        }
    }

    /// Checks that the thread does not run the handler of the actor that owes the answer, because that
    /// handler would wait for itself.
    pub(super) fn not_in_handler(&self) -> Result<(), WouldBlock> {
        blocking::check_handler(self.actor)
    }

    /// Returns this request with `actor` as the actor that owes the answer, for the check of waits.
    pub(super) fn by(self, actor: ActorId) -> Self {
        Self { actor, ..self }
    }

    /// Returns the answer if it has come, without waiting.
    pub fn try_take(&mut self) -> Option<Result<R, ReplyError>> {
        self.slot.lock().take_answer()
    }

    /// Makes the slot announce its answer, when the answer comes, to the collection `group` under `key`. If
    /// the answer has already come, announces it at once.
    pub(super) fn join(&self, group: &Arc<Group>, key: usize) {
        let mut state = self.slot.lock();
        if matches!(*state, State::Waiting(_)) {
            *state = State::Waiting(Waiter::Group(Arc::clone(group), key));
        } else {
            drop(state);
            group.announce(key);
        }
    }
}

impl<R> Future for Request<R> {
    type Output = Result<R, ReplyError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        if let Some(answer) = state.take_answer() {
            return Poll::Ready(answer);
        }
        if let State::Waiting(Waiter::Task(waker)) = &*state
            && waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        if let Err(why) = blocking::check_handler(self.actor) {
            return Poll::Ready(Err(ReplyError::WouldBlock(why)));
        }
        let waiter = Waiter::Task(cx.waker().clone());
        let old = std::mem::replace(&mut *state, State::Waiting(waiter));
        // A waker may own its task, and the task may own the handler's end of this slot. So the request
        // drops the old waker without the lock.
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl<R> fmt::Debug for Request<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answered = !matches!(*self.slot.lock(), State::Waiting(_));
        f.debug_struct("Request")
            .field("answered", &answered)
            .finish()
    }
}

/// Creates the two ends of a call, the reply and the request, which share one slot.
pub(super) fn pair<R>() -> (Reply<R>, Request<R>) {
    let slot = Arc::new(Slot {
        state: Mutex::new(State::Waiting(Waiter::Nobody)),
        changed: Condvar::new(),
    });
    let reply = Reply {
        slot: Some(Arc::clone(&slot)),
    };
    (reply, Request { slot, actor: 0 })
}

struct Slot<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

enum State<R> {
    Waiting(Waiter),
    Answered(Result<R, ReplyError>),
    Taken,
}

/// The waiter that the answer in a slot wakes: a thread, a task or a collection of requests.
enum Waiter {
    Nobody,
    Thread,
    Task(Waker),
    Group(Arc<Group>, usize),
}

impl<R> Slot<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        lock(&self.state)
    }

    #[inline(always)]
    fn answer(&self, answer: Result<R, ReplyError>) {
        let before = std::mem::replace(&mut *self.lock(), State::Answered(answer));
        let State::Waiting(waiter) = before else {
            unreachable!("a reply is consumed by its answer");
        };
        match waiter {
            Waiter::Nobody => {}
            Waiter::Thread => self.changed.notify_one(),
            Waiter::Task(waker) => waker.wake(),
            Waiter::Group(group, key) => group.announce(key),
        }
    }
}

impl<R> State<R> {
    fn take_answer(&mut self) -> Option<Result<R, ReplyError>> {
        match self {
            Self::Waiting(_) => None,
            Self::Taken => Some(Err(ReplyError::NoReply)),
            Self::Answered(_) => match std::mem::replace(self, Self::Taken) {
                Self::Answered(answer) => Some(answer),
                _ => None,
            },
        }
    }
}

/// The error that a caller gets in place of a reply, with the reason why there is none.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReplyError {
    /// The handler dropped the reply without an answer.
    NoReply,
    /// The handler panicked while it had the item of the call.
    Panicked,
    /// The number of results that the handler gave for a batch differs from the number of its items, so
    /// that no result can be matched to its item.
    ResultCount {
        /// The number of items that the handler took out of the batch and did not give back: it owes one
        /// result for each of them.
        items: usize,
        /// The number of results that the handler gave for these items of the batch.
        results: usize,
    },
    /// The handler failed this item or its whole batch, with this cause. The callers of a batch share the
    /// cause.
    Failed(Cause),
    /// The actor stopped while the item waited. The handler has not seen the item, or gave it back for
    /// another try; then the handler may have handled the item in part.
    Stopped,
    /// The runtime that ran the actor shut down before the answer.
    Abandoned,
    /// The answer has not come yet, and the thread must not wait for it.
    WouldBlock(WouldBlock),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReply => f.write_str("the handler dropped the reply without answering"),
            Self::Panicked => f.write_str("the handler panicked while it had the item"),
            Self::ResultCount { items, results } => {
                write!(
                    f,
                    "the handler gave {results} results for a batch of {items} items"
                )
            }
            Self::Failed(cause) => write!(f, "the handler failed: {cause}"),
            Self::Stopped => f.write_str("the actor stopped before the item was handled"),
            Self::Abandoned => {
                f.write_str("the runtime that the actor ran on shut down before it answered")
            }
            Self::WouldBlock(why) => write!(f, "no reply yet: {why}"),
        }
    }
}

impl Error for ReplyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(cause) => Some(&**cause),
            Self::WouldBlock(why) => Some(why),
            _ => None,
        }
    }
}

/// Locks `mutex`, even if another holder of the lock panicked. No user code runs under these locks, so a
/// panic leaves their state consistent.
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wait<'a, V>(on: &Condvar, guard: MutexGuard<'a, V>) -> MutexGuard<'a, V> {
    on.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn wait_timeout<'a, V>(
    on: &Condvar,
    guard: MutexGuard<'a, V>,
    timeout: Duration,
) -> MutexGuard<'a, V> {
    on.wait_timeout(guard, timeout)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once() {
        let (reply, mut request) = pair();
        assert!(request.try_take().is_none());
        reply.send(7);
        assert_eq!(request.try_take().unwrap().unwrap(), 7);
        assert!(matches!(request.try_take(), Some(Err(ReplyError::NoReply))));
    }

    #[test]
    fn each_end_notices_that_the_other_is_gone() {
        let (reply, request) = pair::<()>();
        assert!(reply.is_wanted());
        drop(request);
        assert!(!reply.is_wanted());
        let (reply, request) = pair::<()>();
        drop(reply);
        assert!(matches!(request.blocking_wait(), Err(ReplyError::NoReply)));
    }

    #[test]
    fn a_reply_lost_in_a_panic_says_so() {
        let (reply, request) = pair::<()>();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = reply;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        assert!(matches!(request.blocking_wait(), Err(ReplyError::Panicked)));
        let (reply, request) = pair::<()>();
        after_panic(|| drop(reply));
        assert!(matches!(request.blocking_wait(), Err(ReplyError::Panicked)));
        let (reply, request) = pair::<()>();
        drop(reply);
        assert!(matches!(request.blocking_wait(), Err(ReplyError::NoReply)));
    }

    #[test]
    fn a_timeout_leaves_the_request_in_flight() {
        let (reply, mut request) = pair();
        assert!(
            request
                .blocking_wait_timeout(Duration::from_micros(1))
                .is_none()
        );
        let waiting = std::thread::spawn(move || request.blocking_wait_timeout(Duration::MAX));
        reply.send(1);
        assert_eq!(waiting.join().unwrap().unwrap().unwrap(), 1);
    }
}
