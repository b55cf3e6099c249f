//! The producer of a queue, with the methods that its user calls. The module `own` holds the producer's
//! buffer and the rules for flushing it.

mod own;

use std::future::poll_fn;
use std::task::Poll;

use self::own::{NoRoom, Own};
use super::control::Control;
use super::error::{FlushError, PushError, QueueError};
use super::growth::Growth;
use super::metrics::add;
use super::ring::Refused;
use super::shared::{GONE, Place};
use super::sync::SeqCst;
use super::{Full, Queue};
use crate::Time;
use crate::blocking;
use crate::controller::{Controller, Reason, Snapshot};

/// A producer of a queue, in most cases with its own buffer: all items of a flush enter the ring by one
/// claim.
///
/// [`Queue::producer`] makes a producer without a buffer, [`Queue::buffered`] one with a buffer that finds
/// its own size, [`Queue::fixed`] one with a constant limit, and [`Queue::controlled`] one with a
/// controller that sets the limit. The queue has accepted every item in the buffer: the consumer hands it
/// out, in order, even if the producer is dropped.
///
/// The producer flushes its buffer when the buffer holds as many items as the limit says, at each flush
/// call, at once if the consumer is waiting, and when it is dropped. Items that do not fit stay in the
/// buffer, in front of later ones. A consumer that finds the ring empty fetches the items in producers'
/// buffers itself, and a busy consumer does so once a linger.
///
/// The drop of a producer never waits: if the ring is full, the buffer and its items stay until the
/// consumer fetches them. A program that makes and drops many producers while the consumer stands still
/// should call [`blocking_flush`](Self::blocking_flush) before each drop, or the buffers add up.
///
/// ```
/// let (queue, mut consumer) = tidegate::queue::bounded(64)?;
/// let mut producer = queue.fixed(10)?;
/// for item in 0..25 {
///     producer.try_push(item)?;
/// }
/// assert_eq!(producer.buffered(), 5); // two flushes of ten items
/// producer.try_flush()?;
/// let mut items = Vec::new();
/// consumer.drain_into(&mut items, 64);
/// assert_eq!(items, Vec::from_iter(0..25));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Producer<T: Send> {
    queue: Queue<T>,
    own: Option<Own<T>>,
}

/// The trait of producers that can flush their buffer, for any item type, so that a stage can flush several
/// outputs of different types before it waits for input: see
/// [`Consumer::blocking_wait_flushing`](super::Consumer::blocking_wait_flushing).
pub trait Flush {
    /// Flushes the buffered items, and waits for room if the queue's setting says so. Items that a closed
    /// queue refuses stay in the buffer; the producer's next push returns the error.
    fn blocking_flush_before_wait(&mut self);
}

impl<T: Send> Flush for Producer<T> {
    fn blocking_flush_before_wait(&mut self) {
        let _ = self.flush_because(Reason::Blocking);
    }
}

impl<T: Send> Producer<T> {
    pub(super) fn direct(queue: Queue<T>) -> Self {
        Self { queue, own: None }
    }

    pub(super) fn with_buffer(
        queue: Queue<T>,
        slots: usize,
        controller: Option<Box<dyn Controller>>,
    ) -> Result<Self, QueueError> {
        if slots == 0 {
            return Err(QueueError::ZeroLimit);
        }
        if slots > super::CAPACITY_MAX {
            return Err(QueueError::LimitTooLarge { limit: slots });
        }
        let (buffer, mut writer) = super::ring::Buffer::new(slots);
        let mut limit = slots as u64;
        let control = controller.map(|controller| {
            let control = Control::new(controller, limit, queue.shared.clock.now());
            limit = control.limit;
            Box::new(control)
        });
        writer.set_limit(limit);
        queue.shared.register(buffer);
        let own = Own {
            writer,
            limit,
            control,
            growth: None,
            seen: None,
        };
        Ok(Self {
            queue,
            own: Some(own),
        })
    }

    pub(super) fn growing(queue: Queue<T>) -> Self {
        let growth = Growth::new(queue.shared.ring.capacity());
        // The buffer has memory for one item at first. The first push allocates the memory for the limit.
        let (buffer, writer) = super::ring::Buffer::new(1);
        queue.shared.register(buffer);
        let own = Own {
            writer,
            limit: growth.least(),
            control: None,
            growth: Some(growth),
            seen: None,
        };
        Self {
            queue,
            own: Some(own),
        }
    }

    /// Pushes `item`. A push into a buffer with room takes about 2 ns; each flushed batch costs one claim.
    ///
    /// If buffer and queue are full, the push acts as the queue's [`Full`] setting says; by default it
    /// blocks the thread until there is room.
    ///
    /// # Errors
    /// [`PushError::Closed`] if the queue is closed; [`PushError::Full`] with [`Full::Reject`];
    /// [`PushError::WouldBlock`] if the thread must not wait. Each error gives the item back.
    #[inline(always)]
    pub fn blocking_push(&mut self, item: T) -> Result<(), PushError<T>> {
        let item = match &mut self.own {
            Some(own) => match own.writer.push_early(item) {
                Ok(()) => return own.look_at_flags(&self.queue.shared),
                Err(item) => item,
            },
            None => item,
        };
        self.push_last(item)
    }

    /// Pushes an item on the slow path: an item that fills the buffer or finds it full, and every item of a
    /// producer without a buffer.
    #[inline(never)]
    fn push_last(&mut self, item: T) -> Result<(), PushError<T>> {
        let Some(own) = &mut self.own else {
            return self.queue.blocking_push(item);
        };
        own.unfold();
        if own.writer.is_full()
            && let Err(out) = own.make_room(&self.queue.shared)
        {
            return match out {
                NoRoom::Dropped => Ok(()),
                NoRoom::Full => Err(PushError::Full(item)),
                NoRoom::Closed => Err(PushError::Closed(item)),
                NoRoom::WouldBlock(why) => Err(PushError::WouldBlock(item, why)),
            };
        }
        own.put(&self.queue.shared, item)
    }

    /// Pushes `item` without waiting, and never drops another item for it.
    ///
    /// # Errors
    /// [`PushError::Full`] if buffer and queue have no room; [`PushError::Closed`] if the queue is closed.
    /// Each error gives the item back.
    #[inline]
    pub fn try_push(&mut self, item: T) -> Result<(), PushError<T>> {
        let Some(own) = &mut self.own else {
            return self.queue.try_push(item);
        };
        let shared = &*self.queue.shared;
        match own.try_room(shared) {
            Some(Ok(())) => own.put(shared, item),
            Some(Err(_)) => Err(PushError::Closed(item)),
            None => {
                add(&shared.rare.rejected, 1);
                Err(PushError::Full(item))
            }
        }
    }

    /// Pushes all of `items`, in order, as [`blocking_push`](Self::blocking_push) does. After an error, the
    /// items not accepted stay in `items`, in order.
    ///
    /// # Errors
    /// [`FlushError::Closed`] if the queue is closed; [`FlushError::Full`] with [`Full::Reject`];
    /// [`FlushError::WouldBlock`] if the thread must not wait. The error says how many items stay.
    pub fn blocking_push_many(&mut self, items: &mut Vec<T>) -> Result<(), FlushError> {
        let Some(own) = &mut self.own else {
            return self.queue.blocking_push_many(items);
        };
        let mut rest = std::mem::take(items).into_iter();
        let outcome = own.extend(&self.queue.shared, &mut rest);
        outcome.map_err(|(out, back)| {
            items.extend(back);
            items.extend(rest);
            self.no_room(&out, items.len())
        })
    }

    /// Pushes copies of all `items`, in order, as [`blocking_push_many`](Self::blocking_push_many) does.
    ///
    /// # Errors
    /// The same as for [`blocking_push_many`](Self::blocking_push_many). The error says how many items at
    /// the end of `items` the queue did not accept.
    pub fn blocking_push_slice(&mut self, items: &[T]) -> Result<(), FlushError>
    where
        T: Copy,
    {
        let Some(own) = &mut self.own else {
            return self.queue.blocking_push_slice(items);
        };
        let mut rest = items.iter().copied();
        let outcome = own.extend(&self.queue.shared, &mut rest);
        outcome.map_err(|(out, back)| self.no_room(&out, back.len() + rest.len()))
    }

    /// Pushes `item` without waiting: into the buffer or, if buffer and ring are full, by moving the
    /// buffered items into the overflow lane first. The items keep their order.
    ///
    /// # Errors
    /// [`PushError::Full`] gives the item back if the lane is full, too, or the queue has no lane.
    pub fn push_or_overflow(&mut self, item: T) -> Result<(), PushError<T>> {
        let Some(own) = &mut self.own else {
            return self.queue.push_or_overflow(item);
        };
        let shared = &*self.queue.shared;
        match own.try_room(shared) {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(PushError::Closed(item)),
            None if own.spill(shared) => {}
            None => {
                add(&shared.rare.dropped_overflow, 1);
                return Err(PushError::Full(item));
            }
        }
        own.put(shared, item)
    }

    /// Pushes `item`. If buffer and queue are full and the queue's setting is [`Full::Wait`], waits for
    /// room as a task. If the future is dropped before the push is done, the item is dropped, too.
    ///
    /// # Errors
    /// The same as for [`blocking_push`](Self::blocking_push), but [`PushError::WouldBlock`] only in the
    /// handler of the actor that reads this queue.
    pub async fn push(&mut self, item: T) -> Result<(), PushError<T>> {
        if let Some(own) = &mut self.own {
            let shared = &*self.queue.shared;
            own.unfold();
            if own.writer.is_full() && shared.full == Full::Wait {
                if own.try_room(shared).is_none()
                    && let Err(why) = blocking::check_handler(shared.id())
                {
                    return Err(PushError::WouldBlock(item, why));
                }
                let mut place = Place::new(shared);
                let made = poll_fn(|cx| {
                    own.try_room(shared)
                        .or_else(|| place.attempt(cx.waker(), || own.try_room(shared)))
                        .map_or(Poll::Pending, Poll::Ready)
                })
                .await;
                if made.is_err() {
                    return Err(PushError::Closed(item));
                }
            }
            return self.blocking_push(item);
        }
        self.queue.push(item).await
    }

    /// Flushes all buffered items into the queue. If the queue is full, the flush waits, or acts as the
    /// queue's [`Full`] setting says. With [`Full::DropNewest`] the items stay in the buffer, because the
    /// queue has accepted them.
    ///
    /// # Errors
    /// The error says how many items stay in the buffer and why: [`FlushError::Closed`] if the queue is
    /// closed; [`FlushError::Full`] with [`Full::Reject`] or [`Full::DropNewest`];
    /// [`FlushError::WouldBlock`] if the thread must not wait. The consumer still hands these items out, in
    /// order, unless the consumer is gone.
    pub fn blocking_flush(&mut self) -> Result<(), FlushError> {
        self.flush_because(Reason::Asked)
    }

    /// Flushes as many buffered items as the queue has room for, without waiting.
    ///
    /// # Errors
    /// Some items stay in the buffer. The error says how many.
    pub fn try_flush(&mut self) -> Result<(), FlushError> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        let outcome = own.flush_once(&self.queue.shared, Reason::Asked);
        own.report(outcome)
    }

    /// Flushes all buffered items, and waits for room as a task. The flush waits under every [`Full`]
    /// setting, unlike [`blocking_flush`](Self::blocking_flush). After a drop of the future at any moment,
    /// the items not flushed are still in the buffer.
    ///
    /// # Errors
    /// [`FlushError::Closed`] if the queue is closed; [`FlushError::WouldBlock`] in the handler of the
    /// actor that reads this queue. The error says how many items stay.
    pub async fn flush(&mut self) -> Result<(), FlushError> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        let shared = &*self.queue.shared;
        if own.flush_once(shared, Reason::Asked) == Err(Refused::Full)
            && let Err(why) = blocking::check_handler(shared.id())
        {
            let left = own.len() as usize;
            return Err(FlushError::WouldBlock { left, why });
        }
        let mut place = Place::new(shared);
        poll_fn(|cx| {
            let all = |own: &mut Own<T>| match own.flush_once(shared, Reason::Asked) {
                Ok(()) if own.len() == 0 => Some(Ok(())),
                Ok(()) | Err(Refused::Full) => None,
                Err(Refused::Closed) => Some(own.report(Err(Refused::Closed))),
            };
            all(own)
                .or_else(|| place.attempt(cx.waker(), || all(own)))
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Flushes the buffer if an earlier call saw its present items at least one safety linger ago. If the
    /// user calls this every `d`, no item waits in the buffer for longer than the linger and `d` together.
    ///
    /// The call is optional. It suits producers that have a clock at hand and want to pass their own items
    /// on before the consumer fetches them.
    ///
    /// # Errors
    /// The flush left items in the buffer, as for [`try_flush`](Self::try_flush).
    pub fn flush_if_due(&mut self, now: Time) -> Result<(), FlushError> {
        let linger = self.queue.shared.linger_ns;
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        if own.len() == 0 {
            own.seen = None;
            return Ok(());
        }
        match own.seen {
            Some(seen) if now.since(seen) >= linger => {
                let outcome = own.flush_once(&self.queue.shared, Reason::Linger);
                own.report(outcome)
            }
            Some(_) => Ok(()),
            None => {
                own.seen = Some(now);
                Ok(())
            }
        }
    }

    /// Returns the number of items in the producer's buffer, which have not entered the ring yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.own.as_ref().map_or(0, |own| own.len() as usize)
    }

    /// Returns the number of items at which the producer flushes its buffer at present; 1 without a buffer.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.own.as_ref().map_or(1, |own| own.limit as usize)
    }

    /// Returns the state of the producer's controller, if it has one.
    #[must_use]
    pub fn controller(&self) -> Option<Snapshot> {
        let control = self.own.as_ref()?.control.as_ref()?;
        Some(control.snapshot())
    }

    /// Returns the queue into which this producer pushes, for example to read its metrics.
    #[must_use]
    pub const fn queue(&self) -> &Queue<T> {
        &self.queue
    }

    /// Ends the producer, and gives back the buffered items that neither a flush nor the consumer has
    /// taken, in order.
    #[must_use]
    pub fn into_unflushed(mut self) -> Vec<T> {
        self.own.take().map_or_else(Vec::new, |own| {
            let left = own.writer.buffer().lock().take_all();
            self.queue.shared.unregister(own.writer.buffer());
            left
        })
    }

    /// Returns the error for `left` items that the queue did not accept. If the error is `Full`, also counts
    /// these items as rejected in the metrics, except the first of them, which is counted already.
    fn no_room(&self, out: &NoRoom, left: usize) -> FlushError {
        match *out {
            NoRoom::Closed => return FlushError::Closed { left },
            NoRoom::WouldBlock(why) => return FlushError::WouldBlock { left, why },
            NoRoom::Dropped | NoRoom::Full => {}
        }
        add(
            &self.queue.shared.rare.rejected,
            (left as u64).saturating_sub(1),
        );
        FlushError::Full { left }
    }

    fn flush_because(&mut self, reason: Reason) -> Result<(), FlushError> {
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        own.flush_all(&self.queue.shared, reason)
    }
}

impl<T: Send> Drop for Producer<T> {
    fn drop(&mut self) {
        let Some(own) = &mut self.own else { return };
        let shared = &*self.queue.shared;
        let _ = own.flush_once(shared, Reason::Closing);
        let buffer = own.writer.buffer();
        let mut taking = buffer.lock();
        // Items that did not fit into the ring stay in the buffer. The consumer, if it still exists, fetches
        // them and then forgets this orphaned buffer.
        taking.orphan = true;
        let left = taking.len() > 0 && shared.flags.load(SeqCst) & GONE == 0;
        drop(taking);
        if left {
            shared.wake_if_waiting();
        } else {
            shared.unregister(buffer);
        }
    }
}

impl<T: Send> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("limit", &self.limit())
            .field("buffered", &self.buffered())
            .finish_non_exhaustive()
    }
}
