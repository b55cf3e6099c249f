//! The producers' side: sending items to an actor, and ending the actor.
//!
//! Threads and tasks share a [`Handle`]. A handle buffers nothing: an accepted item is in the queue. In
//! gen_batch_server terms, a handle is the counterpart of a pid. Each operation has an async form under the
//! plain name and a form that blocks the thread (`blocking_`); both follow the actor's
//! [`Full`](super::Full) setting. A `try_` form never waits. A send that fails gives the item back.

use std::fmt;
use std::future::poll_fn;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::block::block_until;
use super::error::{CallError, CastManyError, SendError, StopError};
use super::handler::StopReason;
use super::reply::{Cause, Reply, Request, pair};
use super::shared::{Entry, Shared};
use super::stats::Stats;
use super::timer;
use crate::WouldBlock;
use crate::blocking;
use crate::controller::Load;

/// Sends items to one actor. A clone costs two reference counts. Threads and tasks of any runtime may use a
/// handle at the same time.
///
/// # Threads and tasks
///
/// A task awaits the plain forms: `handle.call(item).await`. A thread calls those that begin with
/// `blocking_`. A blocking call that would have to wait at a place where the wait could never end returns
/// an error and gives the item back. There are two such places: a thread that polls a tokio task
/// ([`WouldBlock::InTask`], with the feature `tokio`), and the actor's own handler
/// ([`WouldBlock::InHandler`]). `spawn_blocking`, `block_in_place` and plain threads may block. A future in
/// `tokio::task::unconstrained` counts as a plain thread, because tokio shows no difference: a blocking
/// call there is not refused, and may hang. A cast that finds room blocks nothing and succeeds in a task,
/// too; it fails there only under load.
///
/// # End of the actor
///
/// An actor runs until a caller ends it ([`drain`](Handle::drain), [`stop`](Handle::stop)), its handler
/// stops it, or **the last handle is dropped: then the actor handles everything it accepted and ends**, as
/// after a drain. A drop does not wait for that; a program that must not lose the last batch drains before
/// it returns from `main`. The actor handles each accepted item, or `stop` gives the item back. During its
/// end, an actor either accepts a further item, or refuses it and gives it back.
///
/// # Inside the actor's own handler
///
/// A handler may keep a handle to its own actor and send with it. It must not wait for that actor: `call`,
/// `inspect`, `controller`, `drain`, `stop`, a cast that finds no room, and the wait for a [`Request`]
/// return an error ([`WouldBlock::InHandler`]), in both forms. A wait in a thread or task that the handler
/// starts and waits for is **not** detected and may never end. [`close`](Handle::close) ends the actor from
/// within, after the batch. A handle that the handler keeps counts like any other handle: as long as it
/// exists, the drop of all other handles does not end the actor.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let (out, seen) = mpsc::sync_channel(100);
/// let rows = tidegate::batcher::spawn(move |rows: &mut Vec<u32>| {
///     rows.drain(..).try_for_each(|row| out.send(row))
/// })?;
/// let other = rows.clone();
/// rows.blocking_cast(1)?; // does not wait for its batch
/// other.blocking_call(2)?; // waits for its batch
/// rows.blocking_drain(Duration::from_secs(5))?;
/// assert_eq!(seen.iter().collect::<Vec<_>>(), [1, 2]);
/// assert!(other.try_cast(3).is_err(), "the actor has ended");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle<T: Send, R: Send = (), M: Send = std::convert::Infallible> {
    pub(super) shared: Arc<Shared<T, R, M>>,
    /// The token that all handles of an actor share. Its drop, with the last handle, drains the actor,
    /// because no item can arrive any more.
    _alive: Arc<Alive<T, R, M>>,
}

/// A panic leaves the state behind a handle consistent. The state changes in single steps, or under locks
/// under which no user code runs.
impl<T: Send, R: Send, M: Send> UnwindSafe for Handle<T, R, M> {}
impl<T: Send, R: Send, M: Send> RefUnwindSafe for Handle<T, R, M> {}

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

    /// Sends an item without an answer. If the actor has no room, the send waits or refuses the item, as
    /// [`Builder::full`](super::Builder::full) says. A drop of the future drops the item.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    pub async fn cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send_async(item, Entry::Cast).await
    }

    /// Casts an item like [`cast`](Self::cast), but blocks the thread while the actor has no room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back. The error is [`SendError::WouldBlock`]
    /// if the thread must not wait.
    #[inline]
    pub fn blocking_cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.send(item, Entry::Cast)
    }

    /// Casts an item like [`cast`](Self::cast), but waits for room at most for `timeout`
    /// ([`Duration::MAX`]: for ever). Works on any runtime. With [`Full::Reject`](super::Full::Reject) the
    /// call does not wait. A drop of the future drops the item.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// use std::time::Duration;
    /// use tidegate::batcher::SendError;
    ///
    /// let rows = tidegate::batcher::spawn(|rows: &mut Vec<String>| println!("{} rows", rows.len()))?;
    /// match rows.cast_timeout("a row".to_owned(), Duration::from_millis(20)).await {
    ///     Err(SendError::TimedOut(row)) => eprintln!("no room for {row}"),
    ///     sent => sent?,
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back. The error is [`SendError::TimedOut`] if
    /// the actor had no room in time. With [`Full::Reject`](super::Full::Reject) the error is
    /// [`SendError::Full`], without a wait.
    pub async fn cast_timeout(&self, item: T, timeout: Duration) -> Result<(), SendError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        self.shared.send_before(item, deadline, Entry::Cast).await
    }

    /// Casts an item like [`cast_timeout`](Self::cast_timeout), but blocks the thread while the actor has
    /// no room.
    ///
    /// # Errors
    /// The same as for `cast_timeout`, and [`SendError::WouldBlock`] if the thread must not wait.
    pub fn blocking_cast_timeout(&self, item: T, timeout: Duration) -> Result<(), SendError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        self.shared
            .blocking_send_before(item, deadline, Entry::Cast)
    }

    /// Sends an item without an answer and without waiting: returns an error if the actor has no room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    pub fn try_cast(&self, item: T) -> Result<(), SendError<T>> {
        self.shared.try_send(item, Entry::Cast)
    }

    /// Sends many items, in order, one after the other. A call with many items does not raise the limit of
    /// a batch. Returns the number of items sent. The iterator must end, because on an error the call
    /// collects the remaining items. A drop of the future drops the items not sent yet.
    ///
    /// # Errors
    /// The actor did not accept some of the items: the error gives them back in order.
    pub async fn cast_many<I>(&self, items: I) -> Result<usize, CastManyError<T>>
    where
        I: IntoIterator<Item = T>,
    {
        let mut items = items.into_iter();
        let mut sent = 0;
        while let Some(item) = items.next() {
            if let Err(error) = self.cast(item).await {
                return Err(CastManyError::new(sent, error, items));
            }
            sent += 1;
        }
        Ok(sent)
    }

    /// Casts many items like [`cast_many`](Self::cast_many), but blocks the thread while the actor has no
    /// room.
    ///
    /// # Errors
    /// The actor did not accept some of the items: the error gives them back in order.
    pub fn blocking_cast_many<I>(&self, items: I) -> Result<usize, CastManyError<T>>
    where
        I: IntoIterator<Item = T>,
    {
        let mut items = items.into_iter();
        let mut sent = 0;
        while let Some(item) = items.next() {
            if let Err(error) = self.blocking_cast(item) {
                return Err(CastManyError::new(sent, error, items));
            }
            sent += 1;
        }
        Ok(sent)
    }

    /// Sends an item and waits for its answer, without a deadline ([`call_timeout`](Self::call_timeout)
    /// sets one). A drop of the future gives the call up: the actor skips the item unless the handler has
    /// it already.
    ///
    /// # Errors
    /// The actor did not accept the item, or it answered the call with an error.
    pub async fn call(&self, item: T) -> Result<R, CallError<T>> {
        if let Err(why) = self.not_in_handler() {
            return Err(CallError::Send(SendError::WouldBlock(item, why)));
        }
        let request = self.send_request(item).await;
        let request = request.map_err(CallError::Send)?;
        request.await.map_err(CallError::Reply)
    }

    /// Calls the actor like [`call`](Self::call), but waits at most for `timeout`, including the wait for
    /// room. Afterwards the caller gives the call up. Works on any runtime.
    ///
    /// # Errors
    /// The actor did not accept the item, the actor answered with an error, or no answer came in time.
    /// [`CallError::TimedOut`] does not give the item back, even if the call only waited for room.
    pub async fn call_timeout(&self, item: T, timeout: Duration) -> Result<R, CallError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        let answer = timer::before(deadline, self.call(item)).await;
        answer.unwrap_or(Err(CallError::TimedOut))
    }

    /// Calls the actor like [`call`](Self::call), but blocks the thread until the answer comes.
    ///
    /// # Errors
    /// The actor did not accept the item, or it answered the call with an error. If the thread must not
    /// wait, the call does not send the item and returns [`SendError::WouldBlock`].
    pub fn blocking_call(&self, item: T) -> Result<R, CallError<T>> {
        if let Err(why) = self.may_block() {
            return Err(CallError::Send(SendError::WouldBlock(item, why)));
        }
        let request = self.blocking_send_request(item);
        let request = request.map_err(CallError::Send)?;
        request.wait().map_err(CallError::Reply)
    }

    /// Calls the actor like [`call_timeout`](Self::call_timeout), but blocks the thread.
    ///
    /// # Errors
    /// The same as for [`blocking_call`](Self::blocking_call), or no answer came in time.
    pub fn blocking_call_timeout(&self, item: T, timeout: Duration) -> Result<R, CallError<T>> {
        if let Err(why) = self.may_block() {
            return Err(CallError::Send(SendError::WouldBlock(item, why)));
        }
        let deadline = Instant::now().checked_add(timeout);
        let answer = block_until(self.call(item), deadline);
        answer.unwrap_or(Err(CallError::TimedOut))
    }

    /// Creates the two ends of a call, the handler's reply and the caller's request. Records the arrival
    /// time of the call if the controller needs it.
    fn pair(&self) -> (Reply<R>, Request<R>) {
        if let Some(arrivals) = &self.shared.arrivals {
            // One reading of the clock serves both records: the arrival times of calls, and the first
            // arrival after the last batch.
            let now = self.shared.clock.now();
            arrivals.note(now);
            self.shared.stamp.touch_at(now);
        }
        let (reply, request) = pair();
        (reply, request.by(self.shared.queue.id()))
    }

    /// Sends an item and returns the request for its answer. The caller can await, poll or wait for the
    /// request, or collect it with others.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    pub async fn send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .send_async(item, |weight, item| Entry::Call(weight, item, reply))
            .await?;
        Ok(request)
    }

    /// Sends a request like [`send_request`](Self::send_request), but waits for room at most for `timeout`,
    /// on any runtime. The answer may take longer: [`Request::wait_timeout`] bounds that wait.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back. The error is [`SendError::TimedOut`] if
    /// the actor had no room in time. With [`Full::Reject`](super::Full::Reject) the error is
    /// [`SendError::Full`], without a wait.
    pub async fn send_request_timeout(
        &self,
        item: T,
        timeout: Duration,
    ) -> Result<Request<R>, SendError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        let (reply, request) = self.pair();
        let entry = |weight, item| Entry::Call(weight, item, reply);
        self.shared.send_before(item, deadline, entry).await?;
        Ok(request)
    }

    /// Sends a request like [`send_request_timeout`](Self::send_request_timeout), but blocks the thread
    /// while the actor has no room.
    ///
    /// # Errors
    /// The same as for `send_request_timeout`, and [`SendError::WouldBlock`] if the thread must not wait.
    pub fn blocking_send_request_timeout(
        &self,
        item: T,
        timeout: Duration,
    ) -> Result<Request<R>, SendError<T>> {
        let deadline = Instant::now().checked_add(timeout);
        let (reply, request) = self.pair();
        let entry = |weight, item| Entry::Call(weight, item, reply);
        self.shared.blocking_send_before(item, deadline, entry)?;
        Ok(request)
    }

    /// Sends a request like [`send_request`](Self::send_request), but blocks the thread while the actor has
    /// no room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    pub fn blocking_send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .send(item, |weight, item| Entry::Call(weight, item, reply))?;
        Ok(request)
    }

    /// Sends a request like [`send_request`](Self::send_request), but never waits: returns an error if the
    /// actor has no room.
    ///
    /// # Errors
    /// The actor did not accept the item; the error gives it back.
    pub fn try_send_request(&self, item: T) -> Result<Request<R>, SendError<T>> {
        let (reply, request) = self.pair();
        self.shared
            .try_send(item, |weight, item| Entry::Call(weight, item, reply))?;
        Ok(request)
    }

    /// Sends a message that is no item. The handler gets the message as [`Op::Info`](super::Op::Info), in
    /// order with the items. The message takes the room of one item and has no weight.
    ///
    /// # Errors
    /// The actor did not accept the message; the error gives it back.
    pub async fn info(&self, message: M) -> Result<(), SendError<M>> {
        self.shared.send_info_async(message).await
    }

    /// Sends a message like [`info`](Self::info), but blocks the thread while the actor has no room.
    ///
    /// # Errors
    /// The actor did not accept the message; the error gives it back.
    pub fn blocking_info(&self, message: M) -> Result<(), SendError<M>> {
        self.shared.send_info(message)
    }

    /// Sends a message like [`info`](Self::info), but waits for room at most for `timeout`, on any runtime.
    ///
    /// # Errors
    /// The actor did not accept the message; the error gives it back. The error is [`SendError::TimedOut`]
    /// if the actor had no room in time. With [`Full::Reject`](super::Full::Reject) the error is
    /// [`SendError::Full`], without a wait.
    pub async fn info_timeout(&self, message: M, timeout: Duration) -> Result<(), SendError<M>> {
        let deadline = Instant::now().checked_add(timeout);
        self.shared.send_info_before(message, deadline).await
    }

    /// Sends a message like [`info_timeout`](Self::info_timeout), but blocks the thread while the actor has
    /// no room.
    ///
    /// # Errors
    /// The same as for `info_timeout`, and [`SendError::WouldBlock`] if the thread must not wait.
    pub fn blocking_info_timeout(&self, message: M, timeout: Duration) -> Result<(), SendError<M>> {
        let deadline = Instant::now().checked_add(timeout);
        self.shared.blocking_send_info_before(message, deadline)
    }

    /// Sends a message like [`info`](Self::info), but never waits: returns an error if the actor has no
    /// room.
    ///
    /// # Errors
    /// The actor did not accept the message; the error gives it back.
    pub fn try_info(&self, message: M) -> Result<(), SendError<M>> {
        self.shared.try_send_info(message)
    }

    /// Checks that this thread may block until the actor acts: the thread polls no task, and does not run
    /// the actor's own handler.
    pub(super) fn may_block(&self) -> Result<(), WouldBlock> {
        blocking::check(self.shared.queue.id())
    }

    /// Checks that the caller is not the handler of this actor, because the handler would then wait for
    /// itself.
    pub(super) fn not_in_handler(&self) -> Result<(), WouldBlock> {
        blocking::check_handler(self.shared.queue.id())
    }

    /// Returns the actor's present backlog, in items and bytes. The call takes the locks of the
    /// [`Caster`](super::Caster)s' buffers in turn, as [`Queue::metrics`](crate::queue::Queue::metrics)
    /// does: call it for dashboards, not for each item.
    #[must_use]
    pub fn backlog(&self) -> Load {
        self.shared.backlog()
    }

    /// Returns the statistics of the actor since its start, without a wait for the handler. The call also
    /// reads the [`backlog`](Self::backlog), and so takes the locks of the casters' buffers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns whether the actor accepts no more items, so that each further send fails.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.queue.is_closed()
    }

    /// Returns the reason why the actor ended; `None` while the actor runs.
    #[must_use]
    pub fn ended(&self) -> Option<StopReason> {
        self.shared.life.ended()
    }

    /// Closes the actor: it accepts no more items, handles everything it accepted, and ends. The call does
    /// not wait for the end, so a handler may use it to end its own actor. [`drain`](Self::drain) closes
    /// the actor and waits.
    pub fn close(&self) {
        self.shared.drain(StopReason::Drained);
    }

    /// Closes the actor and waits until it has handled everything it accepted and has ended. The wait takes
    /// at most `within` ([`Duration::MAX`]: for ever), on any runtime. If the caller drops the future, the
    /// actor still drains.
    ///
    /// # Errors
    /// The drain takes longer than `within`: the actor drains on, and the caller may wait again, or call
    /// `stop`. Or the actor ended for another reason, so that it may have left items unhandled. Or the
    /// actor's own handler makes the call.
    pub async fn drain(&self, within: Duration) -> Result<(), StopError> {
        self.close();
        self.end(within).await.and_then(drained)
    }

    /// Drains the actor like [`drain`](Self::drain), but blocks the thread.
    ///
    /// # Errors
    /// The same as for `drain`, and [`StopError::WouldBlock`] if the thread must not wait. The actor drains
    /// in that case, too.
    pub fn blocking_drain(&self, within: Duration) -> Result<(), StopError> {
        self.close();
        self.wait_end(within).and_then(drained)
    }

    /// Ends the actor after the batch in progress, and gives back, in order, the items that it accepted and
    /// did not handle. Waits for the end at most for `within` ([`Duration::MAX`]: for ever), on any
    /// runtime. The callers of these items get [`ReplyError::Stopped`](super::ReplyError::Stopped); the
    /// actor drops messages ([`Op::Info`](super::Op::Info)). An actor that ended before, for any reason,
    /// gives back the items it left. If the caller drops the future, the actor still stops.
    ///
    /// # Errors
    /// The handler did not return in time. The call neither kills a thread nor aborts a task: the actor
    /// stays until the handler returns, and a later call of `stop` then gives the items back. Or the
    /// actor's own handler makes the call.
    pub async fn stop(
        &self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        within: Duration,
    ) -> Result<Vec<T>, StopError> {
        self.ask_stop(cause.into());
        self.end(within).await?;
        Ok(self.shared.life.take_leftover())
    }

    /// Stops the actor like [`stop`](Self::stop), but blocks the thread.
    ///
    /// # Errors
    /// The same as for `stop`, and [`StopError::WouldBlock`] if the thread must not wait. The actor stops
    /// in that case, too.
    pub fn blocking_stop(
        &self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
        within: Duration,
    ) -> Result<Vec<T>, StopError> {
        self.ask_stop(cause.into());
        self.wait_end(within)?;
        Ok(self.shared.life.take_leftover())
    }

    /// Waits, as a task, for the end of the actor, at most for `within`, for a drain or a stop.
    async fn end(&self, within: Duration) -> Result<StopReason, StopError> {
        let life = &self.shared.life;
        if let Some(reason) = life.ended() {
            return Ok(reason);
        }
        if !within.is_zero() {
            self.not_in_handler().map_err(StopError::WouldBlock)?;
        }
        let deadline = Instant::now().checked_add(within);
        let ended = timer::before(deadline, poll_fn(|cx| life.poll(cx))).await;
        ended.ok_or_else(|| self.timed_out())
    }

    fn wait_end(&self, within: Duration) -> Result<StopReason, StopError> {
        let life = &self.shared.life;
        if !within.is_zero() && life.ended().is_none() {
            self.may_block().map_err(StopError::WouldBlock)?;
        }
        life.wait(within).ok_or_else(|| self.timed_out())
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
