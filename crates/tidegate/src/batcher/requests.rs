//! Collections of calls in flight. The caller receives the answers in the order in which they come.
//!
//! A collection is the counterpart of gen_batch_server's `reqids`: it holds requests to any number of
//! actors, each under a label of the caller's choice. A collection costs one queue of keys. Each answer
//! wakes the owner of the collection at most once.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::reply::{ReplyError, Request, lock, wait, wait_timeout};
use super::timer;
use crate::WouldBlock;
use crate::blocking;

/// A collection of calls in flight, each with a label. A drop of the collection gives up the calls in it.
///
/// ```
/// use std::time::Duration;
/// use tidegate::batcher::{Builder, Requests, map_batch};
///
/// let lengths = Builder::new().spawn(map_batch(|words: &mut Vec<&str>| {
///     words.iter().map(|word| word.len()).collect()
/// }))?;
/// let mut requests = Requests::new();
/// for word in ["tide", "gate", "queue"] {
///     requests.add(word, lengths.blocking_send_request(word)?);
/// }
/// let mut answers = requests.blocking_wait_all(Duration::from_secs(5))?;
/// answers.sort_by_key(|(word, _)| *word);
/// assert!(matches!(answers[..], [("gate", Ok(4)), ("queue", Ok(5)), ("tide", Ok(4))]));
/// assert!(requests.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Requests<L, R> {
    group: Arc<Group>,
    /// The requests in the collection, each with its label. The index of a request is its key, by which its
    /// answer is announced. `None` at a key that is free for a new request.
    slots: Vec<Option<(L, Request<R>)>>,
    free: Vec<usize>,
}

/// An answered request, as the collection returns it: the label of the request, and the reply or the error
/// that the caller gets.
pub type Answered<L, R> = (L, Result<R, ReplyError>);

impl<L, R> Requests<L, R> {
    /// Creates a collection without requests, to which the caller then adds some.
    #[must_use]
    pub fn new() -> Self {
        Self {
            group: Arc::default(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds `request` under `label`, which its answer then bears. Several requests may have equal labels.
    pub fn add(&mut self, label: L, request: Request<R>) {
        let key = self.free.pop().unwrap_or(self.slots.len());
        request.join(&self.group, key);
        let slot = Some((label, request));
        if key == self.slots.len() {
            self.slots.push(slot);
        } else {
            self.slots[key] = slot;
        }
    }

    /// Returns the number of requests in the collection: those that the caller added and got no answer from
    /// yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether the collection holds no request, so that no answer can come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next answer out of the collection if one has come, without waiting.
    pub fn try_receive(&mut self) -> Option<Answered<L, R>> {
        let key = lock(&self.group.state).answered.pop_front()?;
        self.take(key)
    }

    /// Waits for the next answer. A drop of the future loses no answer.
    ///
    /// # Errors
    /// The collection holds no request, or the handler of an actor that owes one of the answers makes the
    /// call.
    pub async fn receive(&mut self) -> Result<Answered<L, R>, ReceiveError> {
        if self.is_empty() {
            return Err(ReceiveError::Empty);
        }
        let key = poll_fn(|cx| match self.group.poll(cx) {
            Poll::Ready(key) => Poll::Ready(Ok(key)),
            Poll::Pending => match self.not_in_handler() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        });
        let key = key.await?;
        self.take(key).ok_or(ReceiveError::Empty)
    }

    /// Receives an answer like [`receive`](Self::receive), but waits at most for `timeout`, on any runtime.
    ///
    /// # Errors
    /// The same as for `receive`, or no answer came in time.
    pub async fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Answered<L, R>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let received = timer::before(deadline, self.receive()).await;
        received.unwrap_or(Err(ReceiveError::TimedOut))
    }

    /// Waits until every request is answered, at most for `timeout`, and returns the answers in the order
    /// in which they came. Requests without an answer stay in the collection.
    ///
    /// # Errors
    /// Some answers have not come, and the handler of an actor that owes one of the answers makes the call.
    /// All requests stay in the collection.
    pub async fn wait_all(
        &mut self,
        timeout: Duration,
    ) -> Result<Vec<Answered<L, R>>, ReceiveError> {
        if self.is_incomplete() {
            self.not_in_handler()?;
        }
        let deadline = Instant::now().checked_add(timeout);
        let mut all = Vec::with_capacity(self.len());
        while let Some(Ok(answered)) = timer::before(deadline, self.receive()).await {
            all.push(answered);
        }
        Ok(all)
    }

    /// Receives an answer like [`receive`](Self::receive), but blocks the thread.
    ///
    /// # Errors
    /// The collection holds no request, or the thread must not wait.
    pub fn blocking_receive(&mut self) -> Result<Answered<L, R>, ReceiveError> {
        self.block(None)
    }

    /// Receives an answer like [`blocking_receive`](Self::blocking_receive), but waits at most for
    /// `timeout`.
    ///
    /// # Errors
    /// The collection holds no request, no answer came in time, or the thread must not wait.
    pub fn blocking_receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Answered<L, R>, ReceiveError> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Waits for every answer like [`wait_all`](Self::wait_all), but blocks the thread.
    ///
    /// # Errors
    /// Some answers have not come, and the thread must not wait for them. All requests stay in the
    /// collection.
    pub fn blocking_wait_all(
        &mut self,
        timeout: Duration,
    ) -> Result<Vec<Answered<L, R>>, ReceiveError> {
        if self.is_incomplete() {
            self.may_block()?;
        }
        let deadline = Instant::now().checked_add(timeout);
        let mut all = Vec::with_capacity(self.len());
        while let Ok(answered) = self.block(deadline) {
            all.push(answered);
        }
        Ok(all)
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<Answered<L, R>, ReceiveError> {
        if self.is_empty() {
            return Err(ReceiveError::Empty);
        }
        let mut key = lock(&self.group.state).answered.pop_front();
        if key.is_none() {
            if deadline.is_none_or(|at| at > Instant::now()) {
                self.may_block()?;
            }
            key = self.group.wait(deadline);
        }
        let key = key.ok_or(ReceiveError::TimedOut)?;
        self.take(key).ok_or(ReceiveError::Empty)
    }

    fn is_incomplete(&self) -> bool {
        lock(&self.group.state).answered.len() < self.len()
    }

    fn may_block(&self) -> Result<(), ReceiveError> {
        self.not_in_handler()?;
        blocking::check_task().map_err(ReceiveError::WouldBlock)
    }

    /// Returns an error if the thread runs the handler of an actor that owes one of the answers, because that
    /// handler would wait for itself.
    fn not_in_handler(&self) -> Result<(), ReceiveError> {
        for (_, request) in self.slots.iter().flatten() {
            request.not_in_handler().map_err(ReceiveError::WouldBlock)?;
        }
        Ok(())
    }

    fn take(&mut self, key: usize) -> Option<Answered<L, R>> {
        let (label, mut request) = self.slots.get_mut(key)?.take()?;
        self.free.push(key);
        Some((label, request.try_take()?))
    }
}

impl<L, R> Default for Requests<L, R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L, R> fmt::Debug for Requests<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests")
            .field("len", &self.len())
            .finish()
    }
}

/// The error of a caller that received no answer from its collection of requests, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The collection holds no request.
    Empty,
    /// No answer came in time. The requests are still in flight.
    TimedOut,
    /// No answer has come, and the thread must not wait for one. The requests are still in flight.
    WouldBlock(WouldBlock),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the collection holds no request, so no answer can come"),
            Self::TimedOut => f.write_str("no answer came in time"),
            Self::WouldBlock(why) => write!(f, "no answer yet: {why}"),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::WouldBlock(why) => Some(why),
            _ => None,
        }
    }
}

/// The queue in which the slots of a collection's requests announce their answers, by key. A slot announces
/// its key once for each call of `Request::join`.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<Announced>,
    changed: Condvar,
}

#[derive(Default)]
struct Announced {
    answered: VecDeque<usize>,
    task: Option<Waker>,
}

impl Group {
    pub(super) fn announce(&self, key: usize) {
        let mut state = lock(&self.state);
        state.answered.push_back(key);
        let task = state.task.take();
        drop(state);
        self.changed.notify_one();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if let Some(key) = state.answered.pop_front() {
                return Some(key);
            }
            state = match deadline {
                None => wait(&self.changed, state),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    wait_timeout(&self.changed, state, left)
                }
            };
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut state = lock(&self.state);
        match state.answered.pop_front() {
            Some(key) => Poll::Ready(key),
            None => {
                state.task = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::pair;
    use super::*;

    #[test]
    fn answers_come_in_their_own_order_with_their_labels() {
        let mut all = Requests::new();
        let (first, request) = pair();
        all.add("first", request);
        let (second, request) = pair();
        all.add("second", request);
        assert!(all.try_receive().is_none());
        second.send(2);
        let (label, answer) = all.blocking_receive().unwrap();
        assert_eq!((label, answer.unwrap()), ("second", 2));
        assert_eq!(
            all.blocking_receive_timeout(Duration::ZERO).unwrap_err(),
            ReceiveError::TimedOut
        );
        let (third, request) = pair();
        third.send(3);
        all.add("third", request);
        drop(first);
        let answers = all.blocking_wait_all(Duration::MAX).unwrap();
        assert!(matches!(answers[0], ("third", Ok(3))));
        assert!(matches!(answers[1], ("first", Err(ReplyError::NoReply))));
        assert_eq!(all.blocking_receive().unwrap_err(), ReceiveError::Empty);
        assert_eq!(
            all.blocking_receive_timeout(Duration::MAX).unwrap_err(),
            ReceiveError::Empty
        );
    }

    #[test]
    fn dropping_the_collection_gives_its_calls_up() {
        let mut all = Requests::new();
        let (reply, request) = pair::<()>();
        all.add((), request);
        assert!(reply.is_wanted());
        drop(all);
        assert!(!reply.is_wanted());
    }
}
