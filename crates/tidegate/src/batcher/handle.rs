//! The producers' side: sending items to an actor, and ending it.
//!
//! A [`Handle`] is shared by threads and tasks alike and keeps nothing back: what it accepted is in the
//! queue. It is the counterpart of a pid. For each way of sending there is one that follows the actor's
//! [`Full`](super::Full) setting, one that never waits (`try_`) and one that does what the plain one does
//! without blocking its thread (`_async`). A send that fails gives the item back.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::block_until;
use super::error::{CallError, CastManyError, SendError, StopError};
use super::handler::StopReason;
use super::reply::{Cause, Reply, Request, pair};
use super::shared::{Entry, Shared};
use super::stats::Stats;
use crate::controller::Load;

/// Sends items to one actor. Cheap to clone; usable from threads and from tasks of any runtime at once.
///
/// # When the actor ends
///
/// An actor runs until it is told to end ([`Handle::blocking_drain`], [`Handle::blocking_stop`]), its handler says so, or **the
/// last handle is dropped: then it handles everything it accepted and ends**, as after a drain. A drop does
/// not wait for that; a program that must not lose the last batch calls `drain` before it returns from
/// `main`. What was accepted is handled or given back by `stop`; what is sent to an actor that ends is either
/// accepted or refused with the item.
///
/// # In its own handler
///
/// A handler may keep a handle to its own actor and send with it, but must not wait there for what only the
/// actor can do: [`call`](Handle::blocking_call), [`inspect`](Handle::blocking_inspect), the `_async` forms of these,
/// [`drain`](Handle::drain) and [`stop_async`](Handle::stop) never come back, nor does a
/// cast that finds no room; with a timeout or deadline they come back with the error that says so. `drain`
/// and `stop` with [`Duration::ZERO`] are the way to end an actor from within: they ask for the end, answer
/// [`StopError::TimedOut`], and take effect after the batch. A handle the handler keeps is a handle: with it
/// in its hands the actor does not end for want of others.
pub struct Handle<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    pub(super) shared: Arc<Shared<T, R, M>>,
    /// Shared by the handles only.
    _alive: Arc<Alive<T, R, M>>,
}

struct Alive<T: Send, R: Send, M: Send>(Arc<Shared<T, R, M>>);

impl<T: Send, R: Send, M: Send> Drop for Alive<T, R, M> {
    fn drop(&mut self) {
        self.0.drain(StopReason::Released);
    }
}

impl<T: Send, R: Send, M: Send> Handle<T, R, M> {
    pub(super) fn new(shared: Arc<Shared<T, R, M>>) -> Self {
        let _alive = Arc::new(Alive(Arc::clone(&shared)));
        Self { shared, _alive }
    }

    /// Sends an item nobody waits for. If there is no room, waits for it or refuses, as the actor was built
    /// ([`Builder::full`](super::Builder::full)). Never wait in a handler for room in its own actor.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    #[inline]
    pub fn blocking_cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send(item, Entry::Cast)
    }

    /// Sends an item nobody waits for, if there is room.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub fn try_cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.try_send(item, Entry::Cast)
    }

    /// Like [`Handle::blocking_cast`], waiting without blocking the thread. Dropping the future drops the item.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub async fn cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send_async(item, Entry::Cast).await
    }

    /// Sends many items, in order, each on its own: no batch grows past its limit for them. Says how many
    /// were sent. The items must come to an end, because on an error the rest of them is collected.
    ///
    /// # Errors
    /// Some were not accepted: those are given back in order.
    pub fn blocking_cast_many<I>(&self, items: I) -> Result<usize, CastManyError<T>>
    where
        I: IntoIterator<Item = T>,
    {
        let mut items = items.into_iter();
        let mut sent = 0;
        while let Some(item) = items.next() {
            if let Err(error) = self.blocking_cast(item) {
                let closed = matches!(error, SendError::Closed(_));
                let first = error.into_item();
                let rest = std::iter::once(first).chain(items).collect();
                return Err(CastManyError { sent, rest, closed });
            }
            sent += 1;
        }
        Ok(sent)
    }

    /// Sends an item and blocks until it is answered.
    ///
    /// # Errors
    /// It was not accepted, or something other than a reply came back.
    pub fn blocking_call(&self, item: T) -> Result<R, CallError<T>> {
        let request = self.blocking_send_request(item).map_err(CallError::Send)?;
        request.blocking_wait().map_err(CallError::Reply)
    }

    /// Sends an item and blocks until it is answered, at most for `timeout`, waiting for room included. After
    /// that the call is given up: unless the handler has the item already, it will not see it.
    ///
    /// # Errors
    /// It was not accepted, something other than a reply came back, or nothing came in time.
    pub fn blocking_call_timeout(&self, item: T, timeout: Duration) -> Result<R, CallError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        let Some(sent) = block_until(self.send_request(item), deadline) else {
            return Err(CallError::TimedOut);
        };
        let mut request = sent.map_err(CallError::Send)?;
        let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
        match request.blocking_wait_timeout(left) {
            Some(answer) => answer.map_err(CallError::Reply),
            None => Err(CallError::TimedOut),
        }
    }

    /// Sends an item and waits for its answer without blocking the thread. Dropping the future gives the call
    /// up.
    ///
    /// # Errors
    /// It was not accepted, or something other than a reply came back.
    pub async fn call(&self, item: T) -> Result<R, CallError<T>> {
        let request = self.send_request(item).await;
        let request = request.map_err(CallError::Send)?;
        request.await.map_err(CallError::Reply)
    }

    /// The two ends of an answer to a call that arrives now.
    fn pair(&self) -> (Reply<R>, Request<R>) {
        if let Some(arrivals) = &self.shared.arrivals {
            arrivals.note(&self.shared.clock);
        }
        pair()
    }

    /// Sends an item; the answer can be awaited, polled, waited for, or collected with others.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub fn blocking_send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .send(item, |weight, item| Entry::Call(weight, item, reply))?;
        Ok(request)
    }

    /// Like [`Handle::blocking_send_request`], if there is room.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub fn try_send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .try_send(item, |weight, item| Entry::Call(weight, item, reply))?;
        Ok(request)
    }

    /// Like [`Handle::blocking_send_request`], waiting for room without blocking the thread.
    ///
    /// # Errors
    /// The item was not accepted and is given back.
    pub async fn send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .send_async(item, |weight, item| Entry::Call(weight, item, reply))
            .await?;
        Ok(request)
    }

    /// Sends a message of another kind; the handler gets it as [`Op::Info`](super::Op::Info), in order with
    /// the items. It takes room like an item and weighs nothing.
    ///
    /// # Errors
    /// The message was not accepted and is given back.
    pub fn blocking_info(&self, message: M) -> Result<(), SendError<M>> {
        self.shared.send_info(message)
    }

    /// What waits now, in items and bytes.
    #[must_use]
    pub fn backlog(&self) -> Load {
        self.shared.backlog()
    }

    /// What the actor did so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns whether nothing more is accepted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.queue.is_closed()
    }

    /// Why the actor ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<StopReason> {
        self.shared.life.ended()
    }

    /// Accepts nothing more, has everything accepted handled, and waits for the end, at most for `within`.
    ///
    /// # Errors
    /// It takes longer: the actor goes on draining, and one may wait again, or `stop`. Or the actor ended
    /// otherwise, so that items may be left.
    pub fn blocking_drain(&self, within: Duration) -> Result<(), StopError> {
        self.shared.drain(StopReason::Drained);
        match self.shared.life.wait(within) {
            Some(reason) => drained(reason),
            None => Err(self.timed_out()),
        }
    }

    /// Like [`Handle::blocking_drain`], without blocking the thread and without a deadline: put the caller's own
    /// around it. Dropping the future leaves the actor draining.
    ///
    /// # Errors
    /// The actor ended otherwise, so that items may be left.
    pub async fn drain(&self) -> Result<(), StopError> {
        self.shared.drain(StopReason::Drained);
        drained(poll_fn(|cx| self.shared.life.poll(cx)).await)
    }

    /// Ends the actor after the batch in progress, waits for that at most for `within`, and gives back the
    /// items it had accepted and not handled, in order. Their callers get
    /// [`ReplyError::Stopped`](super::ReplyError::Stopped); infos are dropped. An actor that ended before,
    /// whatever the reason, gives back what it left.
    ///
    /// # Errors
    /// The handler did not return in time. A thread cannot be killed: it stays until the handler returns, and
    /// the items can be had then by calling again.
    pub fn blocking_stop(
        &self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        within: Duration,
    ) -> Result<Vec<T>, StopError> {
        self.ask_stop(cause.into());
        match self.shared.life.wait(within) {
            Some(_) => Ok(self.shared.life.take_leftover()),
            None => Err(self.timed_out()),
        }
    }

    /// Like [`Handle::blocking_stop`], without blocking the thread and without a deadline.
    pub async fn stop(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Vec<T> {
        self.ask_stop(cause.into());
        poll_fn(|cx| self.shared.life.poll(cx)).await;
        self.shared.life.take_leftover()
    }

    fn ask_stop(&self, cause: Box<dyn std::error::Error + Send + Sync>) {
        if self.ended().is_none() {
            self.shared.stop(StopReason::Asked(Cause::from(cause)));
        }
    }

    fn timed_out(&self) -> StopError {
        StopError::TimedOut {
            backlog: self.backlog(),
        }
    }
}

fn drained(reason: StopReason) -> Result<(), StopError> {
    match reason {
        StopReason::Drained | StopReason::Released => Ok(()),
        reason => Err(StopError::Ended(reason)),
    }
}

impl<T: Send, R: Send, M: Send> Clone for Handle<T, R, M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            _alive: Arc::clone(&self._alive),
        }
    }
}

impl<T: Send, R: Send, M: Send> fmt::Debug for Handle<T, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("backlog", &self.backlog())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
