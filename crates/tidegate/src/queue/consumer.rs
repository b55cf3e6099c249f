//! The consumer, which drains the queue, and waits for items as a thread or as a task.
//!
//! The consumer hands out items from its hand, from the ring and the overflow lane, and from the producers'
//! buffers, in an order that keeps the items of each producer in sequence. First it empties its *hand*,
//! which holds items that it has already taken out of buffers, the overflow lane or, under a lock, the
//! ring. Then it reads the ring and, at the positions where they are due, the items of the overflow lane.
//! It sweeps a producer's buffer into its hand only where the ring holds none of that producer's items.

use std::collections::VecDeque;
use std::sync::Arc as Handle;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Metrics;
use super::error::{Closed, RecvError};
use super::metrics::bump;
use super::ring::{Reader, Ring};
use super::shared::{CLOSED, GONE, IDLING, Shared};
use super::sync::{Acquire, Arc, Relaxed, SeqCst, lock};
use super::wait::Parker;
use crate::Time;
use crate::controller::Reason;

mod waiting;

use waiting::Next;

/// The consuming end of a queue. Each queue has one consumer. A drop of the consumer closes the queue and
/// drops the items left in it.
///
/// ```
/// let (queue, mut consumer) = tidegate::queue::bounded(64)?;
/// for item in 0..10 {
///     queue.try_push(item)?;
/// }
/// let mut sum = 0;
/// assert_eq!(consumer.drain(4, |item| sum += item).items, 4);
/// assert_eq!((sum, consumer.backlog()), (1 + 2 + 3, 6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Consumer<T: Send> {
    shared: Arc<Shared<T>>,
    /// The reader of the ring. `None` if producers may drop the oldest items: then producers and consumer
    /// share the reader, under a lock.
    reader: Option<Reader>,
    /// The hand: items that the consumer has taken out of buffers, the overflow lane or the ring, and that
    /// the next drain hands out first.
    hand: VecDeque<T>,
    parker: Option<(Handle<Parker>, Waker)>,
    idle: Idle,
    /// True if the last drain handed out items until the ring was empty. The consumer then pauses before its
    /// next look at the ring, so that items gather.
    caught_up: bool,
    /// True if the consumer has gone to sleep, and has drained no item since then. The next drain with items
    /// then starts a new period `awake`.
    asleep: bool,
    /// The consumer's present period without sleep: the time of the first drain in it, and the number of
    /// items drained before that drain since the queue's creation. After a long period, or many items in it,
    /// the consumer takes the flag `IDLING` down.
    awake: (Time, u64),
    swept: Time,
    /// The time since which the consumer has found no item, although producers wait in line for room; `None`
    /// if it has found an item or no producer waits. After a while, the consumer passes over the producers
    /// that it called (woke for their turn) and that pushed no item.
    line_since: Option<Time>,
    finished: bool,
}

/// The nanoseconds (1 ms) after which the consumer certainly sees an item if its push overlooked the flag
/// `IDLING`; the processor takes nanoseconds to make the item visible. The time does not depend on the safety
/// linger: a shorter time would not be safe, and a longer one would keep a task busy for longer.
const SETTLE_NS: u64 = 1_000_000;

/// The nanoseconds that producers in line may leave the room of an empty queue unused after the consumer
/// called them, that is, woke them for their turn. Then the consumer passes over them and calls the next ones
/// in line. A called thread may have to wait for a processor; a future may never be polled again.
const PATIENCE_NS: u64 = 100_000_000;

/// The consumer's knowledge of the flag `IDLING`, which makes producers with buffers look at the consumer's
/// mark after each push. See the [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// The flag `IDLING` is down: producers do not look at the consumer's mark after a push into a buffer.
    No,
    /// The consumer raised the flag `IDLING` at this time. All producers see the flag [`SETTLE_NS`] later.
    Since(Time),
    /// The flag `IDLING` is up, and all producers with buffers see it.
    Settled,
}

/// The number of items that the consumer drains without sleep before it takes the flag `IDLING` down. If each
/// of this many pushes looks at the consumer's mark, the looks cost more than raising the flag again.
const BUSY_ITEMS: u64 = 1 << 16;

/// The outcome of one drain of the queue, from which a user sees whether items wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of items that the drain handed out to its user.
    pub items: usize,
    /// The backlog after the drain: the number of items that wait in the ring, the overflow lane and the
    /// consumer's hand, but not in producers' buffers.
    pub left: usize,
    /// The reason why the batch ended: [`Reason::Drained`] if no item was left, [`Reason::Limit`] if the
    /// drain reached its limit.
    pub reason: Reason,
}

/// A receiver that takes a batch item by item and learns the end of the batch. A closure is a `Visit` that
/// ignores the end.
pub trait Visit<T> {
    /// Takes the next item of the batch that the drain hands out.
    fn item(&mut self, item: T);

    /// Receives the outcome of the drain after the last item of the batch. An empty batch causes no call.
    fn end_of_batch(&mut self, batch: Drained) {
        let _ = batch;
    }
}

impl<T, F: FnMut(T)> Visit<T> for F {
    #[inline]
    fn item(&mut self, item: T) {
        self(item);
    }
}

impl<T: Send> Consumer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, reader: Option<Reader>) -> Self {
        Self {
            shared,
            reader,
            hand: VecDeque::new(),
            parker: None,
            idle: if cfg!(loom) { Idle::Settled } else { Idle::No },
            caught_up: false,
            asleep: false,
            awake: (Time::ZERO, 0),
            swept: Time::ZERO,
            line_since: None,
            finished: false,
        }
    }

    // Methods by which the consumer's user drains the queue.

    /// Hands up to `limit` waiting items to `each`, in order, without waiting, and frees their slots in the
    /// ring afterwards. One drain hands out at most as many items as the queue's capacity.
    ///
    /// `each` may push to this very queue, but must not wait for room in it, because only this consumer
    /// makes room.
    ///
    /// If `each` panics, the item that it received is lost, and all later items remain in the queue.
    #[inline]
    pub fn drain(&mut self, limit: usize, each: impl FnMut(T)) -> Drained {
        self.run(limit, &mut Each(each))
    }

    /// Drains the queue as [`drain`](Self::drain) does, and reports the end of the batch to `visit`, except
    /// for an empty batch.
    #[inline]
    pub fn drain_to(&mut self, limit: usize, visit: &mut impl Visit<T>) -> Drained {
        let drained = self.run(limit, &mut Each(|item| visit.item(item)));
        if drained.items > 0 {
            visit.end_of_batch(drained);
        }
        drained
    }

    /// Appends up to `limit` waiting items to `out`, in order, without waiting. This is the fastest way to
    /// drain a queue.
    #[inline]
    pub fn drain_into(&mut self, out: &mut Vec<T>, limit: usize) -> Drained {
        self.run(limit, out)
    }

    /// Drains the queue as [`drain`](Self::drain) does, but blocks the thread until the first item arrives.
    ///
    /// # Errors
    /// [`RecvError::Closed`] after the consumer has handed out every item of a closed queue;
    /// [`RecvError::WouldBlock`] if the thread must not wait.
    pub fn blocking_recv(
        &mut self,
        limit: usize,
        mut each: impl FnMut(T),
    ) -> Result<Drained, RecvError> {
        self.let_gather();
        loop {
            let drained = self.drain(limit, &mut each);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.block_longer(None)?;
        }
    }

    /// Drains the queue as [`drain_into`](Self::drain_into) does, but blocks the thread until the first
    /// item arrives.
    ///
    /// # Errors
    /// The same as for [`blocking_recv`](Self::blocking_recv).
    pub fn blocking_recv_into(
        &mut self,
        out: &mut Vec<T>,
        limit: usize,
    ) -> Result<Drained, RecvError> {
        self.let_gather();
        loop {
            let drained = self.drain_into(out, limit);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.block_longer(None)?;
        }
    }

    /// Drains the queue as [`drain`](Self::drain) does, but blocks the thread until the first item arrives,
    /// at most for `timeout`. Hands out no items if none arrived.
    ///
    /// # Errors
    /// The same as for [`blocking_recv`](Self::blocking_recv).
    pub fn blocking_recv_timeout(
        &mut self,
        limit: usize,
        timeout: Duration,
        mut each: impl FnMut(T),
    ) -> Result<Drained, RecvError> {
        let deadline = Instant::now().checked_add(timeout);
        self.let_gather();
        loop {
            let drained = self.drain(limit, &mut each);
            if drained.items > 0 || limit == 0 || !self.block_longer(deadline)? {
                return Ok(drained);
            }
        }
    }

    /// Drains the queue as [`drain`](Self::drain) does, but waits for the first item as a task, on any
    /// runtime. Items leave the queue only in the poll that completes the future, so a drop of the future
    /// loses no item.
    ///
    /// # Errors
    /// [`Closed`] after the consumer has handed out every item of a closed queue.
    pub async fn recv(&mut self, limit: usize, mut each: impl FnMut(T)) -> Result<Drained, Closed> {
        loop {
            let drained = self.drain(limit, &mut each);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.wait().await?;
        }
    }

    /// Drains the queue as [`drain_into`](Self::drain_into) does, but waits for the first item as a task,
    /// on any runtime. Items leave the queue only in the poll that completes the future, so a drop of the
    /// future loses no item.
    ///
    /// # Errors
    /// The same as for [`recv`](Self::recv).
    pub async fn recv_into(&mut self, out: &mut Vec<T>, limit: usize) -> Result<Drained, Closed> {
        loop {
            let drained = self.drain_into(out, limit);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.wait().await?;
        }
    }

    // Methods by which the consumer's user ends the queue.

    /// Hands all items of a closed queue to `each`. Blocks the thread, for a millisecond at most, until the
    /// items of producers' buffers have arrived, too.
    pub(crate) fn drain_closed(&mut self, mut each: impl FnMut(T)) {
        debug_assert!(self.shared.ring.is_closed(), "more could come");
        loop {
            while self.drain(usize::MAX, &mut each).items > 0 {}
            if self.wait_longer(None).is_err() {
                return;
            }
        }
    }

    // Methods by which the consumer's user reads the state of the queue.

    /// Counts the items that wait in the ring, the overflow lane and the consumer's hand; producers' buffers
    /// do not count.
    #[must_use]
    pub fn backlog(&self) -> usize {
        let ring = &self.shared.ring;
        let lane = match &self.shared.lane {
            Some(lane) if !lane.is_empty() => lane.lens().0,
            _ => 0,
        };
        let waiting = ring.claimed().saturating_sub(self.head()) as usize;
        waiting + self.hand.len() + lane
    }

    /// Counts the items that a drain would hand out now. The [backlog](Self::backlog) also counts the
    /// positions that a producer has claimed and not yet published, and the published items behind them.
    pub(crate) fn available(&mut self) -> usize {
        let shared = &*self.shared;
        let (published, head) = match (&mut self.reader, &shared.oldest) {
            (Some(reader), _) => (reader.published(&shared.ring), reader.head()),
            (None, Some(oldest)) => {
                let mut reader = lock(oldest);
                (reader.published(&shared.ring), reader.head())
            }
            (None, None) => (0, 0),
        };
        let lane = match &shared.lane {
            Some(lane) if !lane.is_empty() => lane.due_at(head + published),
            _ => 0,
        };
        published as usize + self.hand.len() + lane
    }

    /// Returns whether the queue is closed and the consumer has handed out every item. The answer becomes
    /// true in the drain or the wait that notices the end.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Closes the queue: it refuses every later push. The consumer can still drain the items accepted
    /// before.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns the queue's counters since its creation.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Returns the capacity of the ring, in items: the bound of the queue.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.ring.capacity() as usize
    }

    // Private steps of the consumer's drain.

    #[inline]
    fn run(&mut self, limit: usize, out: &mut impl Out<T>) -> Drained {
        let limit = limit.min(self.capacity());
        let mut items = self.take(limit, out);
        if items == 0 && limit > 0 && self.look_around() {
            items = self.take(limit, out);
        }
        if items > 0 && self.shared.buffers_hint() {
            self.keep_linger();
        }
        // If the drain handed out fewer items than its limit, no more items wait. So the drain need not read
        // the cache line of the producers, which is expensive.
        let left = if items < limit && self.hand.is_empty() {
            0
        } else {
            self.backlog()
        };
        let reason = if left == 0 {
            Reason::Drained
        } else {
            Reason::Limit
        };
        if items > 0 {
            self.shared.drains.batch(items as u64, reason);
            self.caught_up = items < limit;
            self.line_since = None;
        }
        Drained {
            items,
            left,
            reason,
        }
    }

    /// Takes up to `limit` items out of the hand, the ring and the overflow lane, in the order of the queue,
    /// and passes them to `out`.
    #[inline]
    fn take(&mut self, limit: usize, out: &mut impl Out<T>) -> usize {
        let mut items = 0;
        if !self.hand.is_empty() {
            items = out.hand(&mut self.hand, limit);
            let held = &self.shared.drains.held;
            held.store(self.hand.len() as u64, Relaxed);
        }
        if self.reader.is_none() {
            return items + self.take_locked(limit - items, out);
        }
        let shared = &*self.shared;
        let part = (shared.ring.capacity() / 4).max(64);
        while items < limit {
            let Some(reader) = &mut self.reader else {
                break;
            };
            let turn = Turn { shared, reader };
            let most = ((limit - items) as u64).min(part);
            let n = match &shared.lane {
                None => out.ring(turn.reader, &shared.ring, most, || u64::MAX),
                Some(lane) => out.ring(turn.reader, &shared.ring, most, || lane.due()),
            } as usize;
            let head = turn.reader.head();
            drop(turn);
            items += n;
            if let Some(lane) = &shared.lane
                && lane.due() <= head
            {
                lane.take_due(head, limit - items, &mut self.hand);
                items += out.hand(&mut self.hand, limit - items);
            } else if (n as u64) < most {
                break;
            }
        }
        items
    }

    /// Takes up to `limit` items out of a ring that shares its reader with producers. Takes the items under
    /// the lock, and passes them to `out` after releasing it.
    fn take_locked(&mut self, limit: usize, out: &mut impl Out<T>) -> usize {
        let mut items = 0;
        loop {
            let (taken, more) = self.take_locked_run(limit - items, out);
            items += taken;
            if !more || items == limit {
                return items;
            }
        }
    }

    /// Takes items under the lock once: from the ring up to the position at which the next item of the
    /// overflow lane is due, then from the lane. Returns the number of items taken, and true if the lane gave
    /// an item, so that the ring may hold more.
    fn take_locked_run(&mut self, limit: usize, out: &mut impl Out<T>) -> (usize, bool) {
        let shared = &*self.shared;
        let Some(oldest) = &shared.oldest else {
            return (0, false);
        };
        let mut reader = lock(oldest);
        let due = || shared.lane.as_ref().map_or(u64::MAX, |lane| lane.due());
        let hand = &mut self.hand;
        let n = reader.each(&shared.ring, limit as u64, due, |item| hand.push_back(item));
        let head = reader.head();
        let wanted = reader.publish(&shared.ring);
        drop(reader);
        if wanted {
            shared.call_producers();
        }
        let mut more = false;
        if let Some(lane) = &shared.lane
            && lane.due() <= head
        {
            more = lane.take_due(head, limit - n as usize, hand) > 0;
        }
        (out.hand(hand, limit), more)
    }

    fn head(&self) -> u64 {
        match (&self.reader, &self.shared.oldest) {
            (Some(reader), _) => reader.head(),
            (None, Some(oldest)) => lock(oldest).head(),
            (None, None) => 0,
        }
    }

    /// Returns whether a drain would find an item in the hand, the ring or the overflow lane, without taking
    /// any item.
    fn ready(&mut self) -> bool {
        let shared = &*self.shared;
        if !self.hand.is_empty() {
            return true;
        }
        let (ready, head) = match (&mut self.reader, &shared.oldest) {
            (Some(reader), _) => (reader.ready(&shared.ring), reader.head()),
            (None, Some(oldest)) => {
                let mut reader = lock(oldest);
                (reader.ready(&shared.ring), reader.head())
            }
            (None, None) => (false, 0),
        };
        ready || shared.lane.as_ref().is_some_and(|lane| lane.due() <= head)
    }

    /// Moves the items in producers' buffers into the hand, so that the next drain hands them out. Returns
    /// whether any item moved.
    fn sweep(&mut self) -> bool {
        let head = self.head();
        let found = self.shared.sweep(head, &mut self.hand);
        let held = &self.shared.drains.held;
        held.store(self.hand.len() as u64, Relaxed);
        bump(&self.shared.drains.swept, found.items);
        found.items > 0
    }

    /// Acts on a drain that found no item: looks into the producers' buffers, at most once a linger, and
    /// checks whether the queue is finished. Returns whether a drain would now find an item.
    #[cold]
    fn look_around(&mut self) -> bool {
        if self.shared.buffers_hint() && self.linger_passed() && self.sweep() {
            return true;
        }
        self.watch_line(PATIENCE_NS);
        // The consumer reads the flag of a closed queue before the ring's mark of a closed queue, because the
        // mark lies on the producers' cache line, which is expensive to read. Once that mark is set, no
        // producer can claim positions.
        if self.shared.flags.load(Acquire) & CLOSED != 0
            && !self.finished
            && self.shared.ring.is_closed()
        {
            return matches!(self.settle_closed(), Next::Ready);
        }
        false
    }

    /// Keeps the safety linger while the consumer is busy: fetches the items in producers' buffers, once a
    /// linger. After a while without sleep, the consumer takes the flag `IDLING` down, so that producers no
    /// longer check after each push whether it sleeps.
    fn keep_linger(&mut self) {
        if cfg!(loom) {
            return;
        }
        let now = self.shared.clock.now();
        let linger = self.shared.linger_ns;
        if self.idle != Idle::No {
            let drained = self.shared.drains.drained.load(Relaxed);
            if std::mem::take(&mut self.asleep) {
                self.awake = (now, drained);
            }
            let (since, before) = self.awake;
            if drained - before > BUSY_ITEMS
                || now.since(since) > linger.max(SETTLE_NS).saturating_mul(16)
            {
                self.idle = Idle::No;
                self.shared.flags.fetch_and(!IDLING, Relaxed);
            }
        }
        if now.since(self.swept) >= linger {
            self.swept = now;
            self.sweep();
        }
    }

    /// Checks, if the queue is empty, whether the producers that the consumer called have left their room
    /// unused for longer than `patience_ns` nanoseconds; then passes over them. Returns the time until the
    /// next check, or `None` if no producers wait in line.
    fn watch_line(&mut self, patience_ns: u64) -> Option<Duration> {
        let shared = &*self.shared;
        // loom has no clock, so its models cannot measure how long a producer leaves its room unused. Every
        // producer that the consumer calls in these models takes its turn.
        if cfg!(loom) || !shared.ring.has_line() {
            self.line_since = None;
            return None;
        }
        let now = shared.clock.now();
        let passed = now.since(*self.line_since.get_or_insert(now));
        if passed >= patience_ns {
            shared.pass_over_called();
            self.line_since = None;
            return Some(Duration::from_nanos(patience_ns));
        }
        Some(Duration::from_nanos(patience_ns - passed))
    }

    fn linger_passed(&mut self) -> bool {
        if cfg!(loom) {
            return false;
        }
        let now = self.shared.clock.now();
        let passed = now.since(self.swept) >= self.shared.linger_ns;
        if passed {
            self.swept = now;
        }
        passed
    }
}

impl<T: Send> Drop for Consumer<T> {
    fn drop(&mut self) {
        let shared = &*self.shared;
        shared.flags.fetch_or(CLOSED | GONE, SeqCst);
        shared.close();
        shared.consumer.take();
        let buffers = std::mem::take(&mut lock(&shared.registry).buffers);
        // Before the queue is finished, the dropped consumer also drops the items in producers' buffers. In a
        // finished queue, a producer takes the items of its own buffer back, because its next push or flush
        // sees the close.
        if !self.finished {
            for buffer in &buffers {
                // The consumer drops the items without the buffer's lock, because the items may use their
                // own producer.
                let items = buffer.lock().take_all();
                drop(items);
            }
        }
        drop(buffers);
        if let Some(lane) = &shared.lane {
            drop(lane.take_all());
        }
        if let Some(reader) = &mut self.reader {
            let turn = Turn { shared, reader };
            turn.reader.each(&shared.ring, u64::MAX, || u64::MAX, drop);
        } else if let Some(oldest) = &shared.oldest {
            let mut left = Vec::new();
            lock(oldest).append(&shared.ring, u64::MAX, || u64::MAX, &mut left);
            lock(oldest).publish(&shared.ring);
        }
    }
}

impl<T: Send> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer")
            .field("backlog", &self.backlog())
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// A guard that gives the ring's slots that the consumer has read back to the producers. It does so in its
/// drop, so also if the user's code panics.
struct Turn<'a, T: Send> {
    shared: &'a Shared<T>,
    reader: &'a mut Reader,
}

impl<T: Send> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.reader.publish(&self.shared.ring) {
            self.shared.call_producers();
        }
    }
}

/// The destination of a drain's items: a closure, or a vector, into which the ring can copy whole runs of
/// items.
trait Out<T> {
    fn ring(
        &mut self,
        reader: &mut Reader,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
    ) -> u64;
    fn hand(&mut self, hand: &mut VecDeque<T>, limit: usize) -> usize;
}

struct Each<F>(F);

impl<T, F: FnMut(T)> Out<T> for Each<F> {
    #[inline]
    fn ring(
        &mut self,
        reader: &mut Reader,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
    ) -> u64 {
        reader.each(ring, limit, stop, &mut self.0)
    }

    fn hand(&mut self, hand: &mut VecDeque<T>, limit: usize) -> usize {
        let mut items = 0;
        while items < limit
            && let Some(item) = hand.pop_front()
        {
            items += 1;
            (self.0)(item);
        }
        items
    }
}

impl<T> Out<T> for Vec<T> {
    #[inline]
    fn ring(
        &mut self,
        reader: &mut Reader,
        ring: &Ring<T>,
        limit: u64,
        stop: impl Fn() -> u64,
    ) -> u64 {
        reader.append(ring, limit, stop, self)
    }

    fn hand(&mut self, hand: &mut VecDeque<T>, limit: usize) -> usize {
        let items = limit.min(hand.len());
        self.extend(hand.drain(..items));
        items
    }
}
