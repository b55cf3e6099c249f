//! The handle of a queue: it pushes single items straight into the queue, creates producers (which gather
//! items in a buffer of their own first), reads metrics and closes the queue.

use std::future::poll_fn;
use std::task::Poll;

use super::error::{FlushError, PushError, QueueError};
use super::metrics::add;
use super::ring::Refused;
use super::shared::{Place, Shared};
use super::sync::Arc;
use super::{Full, Metrics, Producer};
use crate::WouldBlock;
use crate::blocking;
use crate::controller::{Controller, IntoController};

/// The producers' side of a queue. Every clone of a `Queue` may push, from any thread or task.
///
/// Each push claims a position in the ring, which takes some 10 ns; a [`Producer`] with a buffer makes one
/// claim for a batch. The drop of the last `Queue` or [`Producer`] of a queue closes the queue.
///
/// ```
/// let (queue, mut consumer) = tidegate::queue::bounded(4)?;
/// let other = queue.clone();
/// std::thread::spawn(move || other.try_push("b")).join().expect("no panic")?;
/// queue.try_push("a")?;
/// drop(queue);
/// let mut items = Vec::new();
/// assert_eq!(consumer.drain_into(&mut items, 10).items, 2);
/// assert_eq!(items, ["b", "a"]);
/// assert!(consumer.blocking_recv(1, drop).is_err(), "the queue is closed and empty");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<T: Send> {
    pub(super) shared: Arc<Shared<T>>,
}

impl<T: Send> Queue<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        shared.enter();
        Self { shared }
    }

    /// Makes a producer without a buffer, each push of which enters the ring at once.
    #[must_use]
    pub fn producer(&self) -> Producer<T> {
        Producer::direct(self.clone())
    }

    /// Makes a producer with a buffer that sets its own size, up to 256 items. The rule for the size costs
    /// next to nothing: the buffer doubles when it is full, and halves if no flush takes more than a
    /// quarter of it for a second. The buffer allocates its memory at the first item.
    #[must_use]
    pub fn buffered(&self) -> Producer<T> {
        Producer::growing(self.clone())
    }

    /// Makes a producer that flushes its buffer each time it holds `limit` items.
    ///
    /// # Errors
    /// The limit is 0 or above [`CAPACITY_MAX`](super::CAPACITY_MAX).
    pub fn fixed(&self, limit: usize) -> Result<Producer<T>, QueueError> {
        Producer::with_buffer(self.clone(), limit, None)
    }

    /// Makes a producer that flushes its buffer at the number of items that `controller` decides, at most
    /// `limit_max`. The buffer has memory for `limit_max` items.
    ///
    /// The producer asks the controller once a flush, never for an item. It reports each batch
    /// ([`Event::Started`]), the cost of a claim for the first 64 batches and then for one in 13
    /// ([`Event::Done`]), and that a batch could start ([`Event::Ready`]). The producer obeys the
    /// controller's limit in items. Let `limit_max` be at least the controller's own ceiling: to a rule
    /// with a higher ceiling, a batch of `limit_max` does not look full. The producer ignores a wait of the
    /// controller, because the safety linger bounds the delay.
    ///
    /// [`Event::Started`]: crate::controller::Event::Started
    /// [`Event::Done`]: crate::controller::Event::Done
    /// [`Event::Ready`]: crate::controller::Event::Ready
    ///
    /// # Errors
    /// The `limit_max` is 0 or above [`CAPACITY_MAX`](super::CAPACITY_MAX).
    pub fn controlled(
        &self,
        limit_max: usize,
        controller: impl IntoController<Controller: Controller + 'static>,
    ) -> Result<Producer<T>, QueueError> {
        Producer::with_buffer(
            self.clone(),
            limit_max,
            Some(Box::new(controller.into_controller())),
        )
    }

    /// Pushes `item` by one claim. If the queue is full, the push acts as the queue's [`Full`] setting
    /// says; by default it blocks the thread until there is room.
    ///
    /// # Errors
    /// [`PushError::Closed`] if the queue is closed; [`PushError::Full`] with [`Full::Reject`];
    /// [`PushError::WouldBlock`] if the thread must not wait. Each error gives the item back.
    #[inline(always)]
    pub fn blocking_push(&self, item: T) -> Result<(), PushError<T>> {
        match self.shared.attempt(item) {
            Err(PushError::Full(item)) => self.push_full(item),
            done => done,
        }
    }

    /// Pushes `item` without waiting, and never drops another item for it.
    ///
    /// # Errors
    /// [`PushError::Full`] if the queue has no room; [`PushError::Closed`] if it is closed. Each error
    /// gives the item back.
    #[inline]
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        let outcome = self.shared.attempt(item);
        if matches!(outcome, Err(PushError::Full(_))) {
            self.failed();
            add(&self.shared.rare.rejected, 1);
        }
        outcome
    }

    /// Pushes `item` as [`try_push`](Self::try_push) does, but does not count a refusal in the metrics,
    /// because the caller then waits for room.
    #[inline]
    pub(crate) fn push_now(&self, item: T) -> Result<(), PushError<T>> {
        self.shared.attempt(item)
    }

    /// Pushes `item` if the ring has any free slot, even if the slot belongs to producers that wait in
    /// line. So a refusal means that the consumer has items to drain.
    pub(crate) fn push_past_line(&self, item: T) -> Result<(), PushError<T>> {
        let mut item = item;
        loop {
            match self.shared.attempt(item) {
                Err(PushError::Full(back)) if self.shared.ring.open(1) => item = back,
                done => return done,
            }
        }
    }

    /// Pushes `item` as a producer that the scheduler stops between its claim and the publication, and runs
    /// `between` at that moment, so that a test can look at the queue then.
    #[cfg(test)]
    pub(crate) fn push_stopped(&self, item: T, between: impl FnOnce()) {
        assert!(self.shared.ring.push_stopped(item, between), "no room");
    }

    /// Pushes all of `items`, in order, by as few claims as the room allows; items of other producers may
    /// come in between. If the queue is full, the push acts as the queue's [`Full`] setting says. After an
    /// error, the items not accepted stay in `items`, in order.
    ///
    /// # Errors
    /// [`FlushError::Closed`] if the queue is closed; [`FlushError::Full`] with [`Full::Reject`];
    /// [`FlushError::WouldBlock`] if the thread must not wait. The error says how many items stay.
    #[inline]
    pub fn blocking_push_many(&self, items: &mut Vec<T>) -> Result<(), FlushError> {
        if self.shove(items) == Ok(()) && items.is_empty() {
            return Ok(());
        }
        self.push_rest(items)
    }

    /// Pushes copies of all `items`, in order, as [`blocking_push_many`](Self::blocking_push_many) does.
    ///
    /// # Errors
    /// The same as for [`blocking_push_many`](Self::blocking_push_many). The error says how many items at
    /// the end of `items` the queue did not accept.
    #[inline]
    pub fn blocking_push_slice(&self, items: &[T]) -> Result<(), FlushError>
    where
        T: Copy,
    {
        if items.is_empty() {
            return Ok(());
        }
        match self.shared.ring.push_copies(items) {
            Ok(pushed) => {
                if pushed.wake {
                    self.shared.wake_consumer();
                }
                match &items[pushed.items as usize..] {
                    [] => Ok(()),
                    rest => self.blocking_push_many(&mut rest.to_vec()),
                }
            }
            Err(_) => self.blocking_push_many(&mut items.to_vec()),
        }
    }

    /// Pushes items from the front of `items`, without waiting, until the queue is full. The other items
    /// stay in `items`, in order.
    ///
    /// # Errors
    /// The queue is full or closed. The error says how many items stay.
    pub fn try_push_many(&self, items: &mut Vec<T>) -> Result<(), FlushError> {
        let outcome = self.shove(items);
        let left = items.len();
        match outcome {
            Err(Refused::Closed) => Err(FlushError::Closed { left }),
            _ if left == 0 => Ok(()),
            _ => {
                self.failed();
                add(&self.shared.rare.rejected, left as u64);
                Err(FlushError::Full { left })
            }
        }
    }

    /// Pushes `item` without waiting: into the ring or, if the ring is full, into the overflow lane. The
    /// consumer hands out the items of one producer in order, even if some went through the lane.
    ///
    /// # Errors
    /// [`PushError::Full`] gives the item back if the lane is full, too, or the queue has no lane. The
    /// metrics count the item as [`dropped_overflow`](Metrics::dropped_overflow).
    pub fn push_or_overflow(&self, item: T) -> Result<(), PushError<T>> {
        match self.shared.attempt(item) {
            Err(PushError::Full(item)) => {
                self.failed();
                self.shared.push_lane(item)
            }
            done => done,
        }
    }

    /// Pushes `item`. If the queue is full and its setting is [`Full::Wait`], waits for room as a task. If
    /// the future is dropped before the push is done, the item is dropped, too.
    ///
    /// # Errors
    /// The same as for [`blocking_push`](Self::blocking_push), but [`PushError::WouldBlock`] only in the
    /// handler of the actor that reads this queue.
    pub async fn push(&self, item: T) -> Result<(), PushError<T>> {
        let item = match self.shared.attempt(item) {
            Err(PushError::Full(item)) if self.shared.full == Full::Wait => item,
            Err(PushError::Full(item)) => return self.push_full(item),
            done => return done,
        };
        self.failed();
        if let Err(why) = blocking::check_handler(self.shared.id()) {
            return Err(PushError::WouldBlock(item, why));
        }
        let mut item = Some(item);
        self.push_waiting(&mut item).await
    }

    /// Pushes the item in `slot`. If the queue is full, its setting is [`Full::Wait`] and `check` allows a
    /// wait, waits for room as a task. After an error, and after a drop of the future before the push is
    /// done, the item is still in `slot`.
    ///
    /// # Errors
    /// The same as for [`blocking_push`](Self::blocking_push).
    pub(crate) async fn push_from(
        &self,
        slot: &mut Option<T>,
        check: fn(blocking::ActorId) -> Result<(), WouldBlock>,
    ) -> Result<(), PushError<()>> {
        let mut outcome = match slot.take() {
            Some(item) => self.shared.attempt(item),
            None => return Ok(()),
        };
        if let Err(PushError::Full(item)) = outcome {
            outcome = if self.shared.full != Full::Wait {
                self.push_full(item)
            } else if let Err(why) = check(self.shared.id()) {
                self.failed();
                Err(PushError::WouldBlock(item, why))
            } else {
                self.failed();
                *slot = Some(item);
                self.push_waiting(slot).await
            };
        }
        outcome.map_err(|error| {
            let (item, error) = error.split();
            *slot = Some(item);
            error
        })
    }

    /// Waits in line until the queue has room, and pushes the item in `slot`. Until then the item stays in
    /// `slot`.
    async fn push_waiting(&self, slot: &mut Option<T>) -> Result<(), PushError<T>> {
        add(&self.shared.rare.producer_waits, 1);
        let mut place = Place::new(&self.shared);
        poll_fn(|cx| {
            let done = place.attempt(cx.waker(), || match self.shared.attempt(slot.take()?) {
                Err(PushError::Full(back)) => {
                    *slot = Some(back);
                    None
                }
                done => Some(done),
            });
            done.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Pushes all of `items`, in order, as [`blocking_push_many`](Self::blocking_push_many) does, but waits
    /// for room as a task, if the queue's setting is [`Full::Wait`]. After a drop of the future, the items
    /// not accepted are still in `items`.
    ///
    /// # Errors
    /// The same as for [`blocking_push_many`](Self::blocking_push_many), but [`FlushError::WouldBlock`]
    /// only in the handler of the actor that reads this queue. The items not accepted stay in `items`, in
    /// order.
    pub async fn push_many(&self, items: &mut Vec<T>) -> Result<(), FlushError> {
        let shared = &*self.shared;
        if shared.full != Full::Wait {
            return self.blocking_push_many(items);
        }
        let mut place = None;
        loop {
            match self.shove(items) {
                Ok(()) if items.is_empty() => return Ok(()),
                Ok(()) => continue,
                Err(Refused::Closed) => return Err(FlushError::Closed { left: items.len() }),
                Err(Refused::Full) => self.failed(),
            }
            if let Err(why) = blocking::check_handler(shared.id()) {
                let left = items.len();
                return Err(FlushError::WouldBlock { left, why });
            }
            add(&shared.rare.producer_waits, 1);
            let place = place.get_or_insert_with(|| Place::new(shared));
            poll_fn(|cx| {
                // A closed queue also ends the wait for room. The next pass of the loop then returns the
                // error.
                let moved = || (self.shove(items) != Err(Refused::Full)).then_some(());
                let done = place.attempt(cx.waker(), moved);
                done.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            if items.is_empty() {
                return Ok(());
            }
        }
    }

    /// Closes the queue: it refuses every later push. The consumer still hands out the items accepted
    /// before, and then finds the queue finished.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns whether the queue is closed, so that every push fails.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.ring.is_closed()
    }

    /// Returns the queue's counters since its creation. The call takes the lock of the list of producers'
    /// buffers, and under it the lock of each buffer in turn. The consumer takes the same locks when it
    /// fetches buffered items, and may wait for this call meanwhile: call it for dashboards, not for each
    /// item. The queue has no `len`: [`Metrics::population`] counts the items that wait.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Returns the id of the actor that reads this queue. [`blocking`] uses the id to detect a handler that
    /// would wait for its own actor.
    pub(crate) fn id(&self) -> blocking::ActorId {
        self.shared.id()
    }

    /// Returns the capacity of the ring, in items: the bound of the queue.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.ring.capacity() as usize
    }

    fn failed(&self) {
        add(&self.shared.rare.insert_failures, 1);
    }

    /// Pushes as many items from the front of `items` as the ring has room for, by one claim. The other items
    /// stay in `items`.
    #[inline]
    fn shove(&self, items: &mut Vec<T>) -> Result<(), Refused> {
        if items.is_empty() {
            return Ok(());
        }
        let pushed = self.shared.ring.push_front_of(items)?;
        if pushed.wake {
            self.shared.wake_consumer();
        }
        Ok(())
    }

    #[cold]
    fn push_full(&self, item: T) -> Result<(), PushError<T>> {
        self.failed();
        let shared = &*self.shared;
        match shared.full {
            Full::Reject => {
                add(&shared.rare.rejected, 1);
                Err(PushError::Full(item))
            }
            Full::DropNewest => {
                add(&shared.rare.dropped_newest, 1);
                drop(item);
                Ok(())
            }
            Full::DropOldest => {
                let mut item = item;
                loop {
                    shared.drop_oldest(1);
                    match shared.attempt(item) {
                        Err(PushError::Full(back)) => item = back,
                        done => return done,
                    }
                }
            }
            Full::Wait => {
                if let Err(why) = blocking::check(shared.id()) {
                    return Err(PushError::WouldBlock(item, why));
                }
                let mut item = Some(item);
                shared.wait_for_room(|| match shared.attempt(item.take()?) {
                    Err(PushError::Full(back)) => {
                        item = Some(back);
                        None
                    }
                    done => Some(done),
                })
            }
        }
    }

    #[cold]
    fn push_rest(&self, items: &mut Vec<T>) -> Result<(), FlushError> {
        let shared = &*self.shared;
        while !items.is_empty() {
            match self.shove(items) {
                Ok(()) => continue,
                Err(Refused::Closed) => return Err(FlushError::Closed { left: items.len() }),
                Err(Refused::Full) => self.failed(),
            }
            match shared.full {
                Full::Reject => {
                    add(&shared.rare.rejected, items.len() as u64);
                    return Err(FlushError::Full { left: items.len() });
                }
                Full::DropNewest => {
                    add(&shared.rare.dropped_newest, items.len() as u64);
                    items.clear();
                }
                Full::DropOldest => shared.drop_oldest(items.len() as u64),
                Full::Wait => {
                    if let Err(why) = blocking::check(shared.id()) {
                        let left = items.len();
                        return Err(FlushError::WouldBlock { left, why });
                    }
                    // A closed queue also ends the wait for room. The next pass of the loop then returns
                    // the error.
                    shared
                        .wait_for_room(|| (self.shove(items) != Err(Refused::Full)).then_some(()));
                }
            }
        }
        Ok(())
    }
}

impl<T: Send> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

impl<T: Send> Drop for Queue<T> {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl<T: Send> std::fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("capacity", &self.capacity())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
