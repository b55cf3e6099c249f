//! Collections of calls in flight, received in the order of their answers.
//!
//! The counterpart of gen_batch_server's `reqids`: requests to any number of actors, each under a
//! label of the caller's choice. A collection costs one queue of keys; each answer wakes the
//! owner of the collection at most once.

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

/// Calls in flight, each with a label. A drop of the collection gives up the calls that are left.
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
    /// The requests by key, each with its label; `None` where a key is free.
    slots: Vec<Option<(L, Request<R>)>>,
    free: Vec<usize>,
}

/// An answered request: its label, and the reply or error that came back.
pub type Answered<L, R> = (L, Result<R, ReplyError>);

impl<L, R> Requests<L, R> {
    /// Creates an empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            group: Arc::default(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Adds `request` under `label`. Two requests may have the same label.
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

    /// Returns the number of requests added and not received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether no request is left to receive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next answer if one is there.
    pub fn try_receive(&mut self) -> Option<Answered<L, R>> {
        let key = lock(&self.group.state).answered.pop_front()?;
        self.take(key)
    }

    /// Waits for the next answer. Dropping the future loses nothing.
    ///
    /// # Errors
    /// No request is left, or the handler of an actor that was asked makes the call.
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

    /// Receives an answer like [`receive`](Self::receive); waits at most for `timeout`, on any runtime.
    ///
    /// # Errors
    /// As for `receive`, or no answer came in time.
    pub async fn receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Answered<L, R>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        let received = timer::before(deadline, self.receive()).await;
        received.unwrap_or(Err(ReceiveError::TimedOut))
    }

    /// Waits until every request is answered, at most for `timeout`, and returns the answers in the order of
    /// their arrival. Requests without an answer stay in the collection.
    ///
    /// # Errors
    /// The handler of an actor that was asked makes the call, and not every answer is there: all of them stay
    /// in the collection.
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

    /// Receives an answer like [`receive`](Self::receive); blocks the thread.
    ///
    /// # Errors
    /// No request is left, or the thread must not wait.
    pub fn blocking_receive(&mut self) -> Result<Answered<L, R>, ReceiveError> {
        self.block(None)
    }

    /// Receives an answer like [`blocking_receive`](Self::blocking_receive); waits at most for `timeout`.
    ///
    /// # Errors
    /// No request is left, no answer came in time, or the thread must not wait.
    pub fn blocking_receive_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Answered<L, R>, ReceiveError> {
        self.block(Instant::now().checked_add(timeout))
    }

    /// Waits for every answer like [`wait_all`](Self::wait_all); blocks the thread.
    ///
    /// # Errors
    /// Not every answer is there, and the thread must not wait for the others; all of them stay in the
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

    /// Returns an error if the caller is the handler of an actor that was asked.
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

/// The reason why no answer was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// No request is left in the collection.
    Empty,
    /// No answer came in time; the requests are still in flight.
    TimedOut,
    /// No answer is there, and the thread must not wait for one; the requests are still in flight.
    WouldBlock(WouldBlock),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no request is left in the collection"),
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

/// The queue in which the slots of a collection announce their answers, by key. A slot announces its key once
/// for each call of `Request::join`.
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
