//! The consumer, which drains the queue, and waits for items as a thread or as a task.
//!
//! The consumer hands out items from three places, in an order that keeps the items of each producer in
//! sequence. First it empties its *hand*: items it has already taken out of buffers, the lane or, under a
//! lock, the ring. Then it reads the ring and, at the positions where they are due, the items of the overflow
//! lane. It sweeps a producer's buffer into its hand only where the ring holds none of that producer's items.

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

/// The consuming end of a queue; each queue has one. Dropping it closes the queue
/// and drops the items left in it.
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
    /// The reader of the ring; `None` where producers may drop the oldest items: then the reader is shared,
    /// under a lock.
    reader: Option<Reader>,
    /// Items taken out already, which the next drain hands out first.
    hand: VecDeque<T>,
    parker: Option<(Handle<Parker>, Waker)>,
    idle: Idle,
    /// True if the last drain found items, and then an empty ring.
    caught_up: bool,
    /// True if the consumer went to sleep, and has drained nothing since.
    asleep: bool,
    /// The time of the first drain after the last sleep, and the number of items drained by then.
    awake: (Time, u64),
    swept: Time,
    /// The time since which the consumer has found nothing although producers wait in line for room.
    line_since: Option<Time>,
    finished: bool,
}

/// The time in nanoseconds after which a push that did not see the flag `IDLING` is visible: 1 ms, where the
/// processor takes nanoseconds. The time does not depend on the linger: a shorter time would not be safe, and
/// a longer one would keep a task busy all that time.
const SETTLE_NS: u64 = 1_000_000;

/// How long called waiters may leave an empty queue unused before the consumer passes over them
/// and calls the other waiters in line. A called thread may have to wait for a processor; a
/// future may never be polled again.
const PATIENCE_NS: u64 = 100_000_000;

/// The consumer's knowledge of whether producers with buffers look at its mark after each push. See the
/// [module](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    /// Producers need not look.
    No,
    /// The consumer raised the flag at this moment: [`SETTLE_NS`] later all producers see it.
    Since(Time),
    /// All producers see the flag.
    Settled,
}

/// The number of items drained without sleep after which producers stop looking for the mark: a look after
/// each of so many pushes costs more than a return to idleness does.
const BUSY_ITEMS: u64 = 1 << 16;

/// The outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Items handed out.
    pub items: usize,
    /// The backlog: items that wait now in the ring, the overflow lane and the consumer's
    /// hand (not in producers' buffers).
    pub left: usize,
    /// The reason why the batch ended: [`Reason::Drained`] if no more items were there, [`Reason::Limit`] if
    /// the limit cut it.
    pub reason: Reason,
}

/// Takes a batch item by item, and learns the end of the batch. A closure is a `Visit` that ignores the end.
pub trait Visit<T> {
    /// Takes the next item.
    fn item(&mut self, item: T);

    /// Ends the batch, which has at least one item.
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

    // Draining.

    /// Hands up to `limit` waiting items to `each`, in order, without waiting, and frees their slots
    /// afterwards. One drain hands out at most as many items as the queue's capacity.
    ///
    /// `each` may push to this very queue, but must not wait there for room: only this consumer makes room.
    ///
    /// If `each` panics, the item it received is gone, and all later items remain.
    #[inline]
    pub fn drain(&mut self, limit: usize, each: impl FnMut(T)) -> Drained {
        self.run(limit, &mut Each(each))
    }

    /// Drains as [`drain`](Self::drain) does, and reports the end of the batch to `visit`. An empty batch has
    /// no end.
    #[inline]
    pub fn drain_to(&mut self, limit: usize, visit: &mut impl Visit<T>) -> Drained {
        let drained = self.run(limit, &mut Each(|item| visit.item(item)));
        if drained.items > 0 {
            visit.end_of_batch(drained);
        }
        drained
    }

    /// Appends up to `limit` waiting items to `out`, in order, without waiting. This is the fastest way to
    /// drain.
    #[inline]
    pub fn drain_into(&mut self, out: &mut Vec<T>, limit: usize) -> Drained {
        self.run(limit, out)
    }

    /// Drains as [`drain`](Self::drain) does, but blocks the thread until the first item.
    ///
    /// # Errors
    /// [`RecvError::Closed`] once the consumer has handed out every item and no more can arrive;
    /// [`RecvError::WouldBlock`] where the thread must not wait.
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

    /// Drains as [`drain_into`](Self::drain_into) does, but blocks the thread until the first item.
    ///
    /// # Errors
    /// As for [`blocking_recv`](Self::blocking_recv).
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

    /// Drains as [`drain`](Self::drain) does, but blocks the thread up to `timeout` for the first item. Hands
    /// out no items if none arrived.
    ///
    /// # Errors
    /// As for [`blocking_recv`](Self::blocking_recv).
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

    /// Drains as [`drain`](Self::drain) does, but waits for the first item as a task, on any runtime. Items
    /// leave the queue only in the poll that completes the future: a drop of the future loses nothing.
    ///
    /// # Errors
    /// [`Closed`] once the consumer has handed out every item and no more can arrive.
    pub async fn recv(&mut self, limit: usize, mut each: impl FnMut(T)) -> Result<Drained, Closed> {
        loop {
            let drained = self.drain(limit, &mut each);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.wait().await?;
        }
    }

    /// Drains as [`drain_into`](Self::drain_into) does, but waits for the first item as a task, on any
    /// runtime. Items leave the queue only in the poll that completes the future: a drop of the future loses
    /// nothing.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub async fn recv_into(&mut self, out: &mut Vec<T>, limit: usize) -> Result<Drained, Closed> {
        loop {
            let drained = self.drain_into(out, limit);
            if drained.items > 0 || limit == 0 {
                return Ok(drained);
            }
            self.wait().await?;
        }
    }

    // Ending.

    /// Hands all items of a closed queue to `each`. It blocks for a millisecond at most, until it has the
    /// items of producers' buffers.
    pub(crate) fn drain_closed(&mut self, mut each: impl FnMut(T)) {
        debug_assert!(self.shared.ring.is_closed(), "more could come");
        loop {
            while self.drain(usize::MAX, &mut each).items > 0 {}
            if self.wait_longer(None).is_err() {
                return;
            }
        }
    }

    // Looking.

    /// Counts the items that wait in the ring, the overflow lane and the consumer's hand.
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

    /// Counts the items a drain would hand out now. The [backlog](Self::backlog) also counts the positions
    /// that a producer has claimed and not yet published, and the published items behind them.
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

    /// Returns whether the queue is closed and the consumer has handed out every item, as far as
    /// a drain or a wait has noticed.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Closes the queue: it refuses every later push, and the consumer can still drain the items it accepted.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns the queue's counters so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Returns the capacity of the ring, in items.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.ring.capacity() as usize
    }

    // Inside.

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
        // A drain that found no more items need not read the producers' cache line.
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

    /// Takes up to `limit` items out of the hand, the ring and the lane.
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

    /// Takes up to `limit` items where the reader is shared: takes them out under the lock and hands them out
    /// after it.
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

    /// Takes one run of items. Returns true if the lane ended the run, so that the ring may hold more.
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

    /// Returns whether a drain would find something without sweeping.
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

    /// Takes the items of producers' buffers into the hand. Returns whether there were any items.
    fn sweep(&mut self) -> bool {
        let head = self.head();
        let found = self.shared.sweep(head, &mut self.hand);
        let held = &self.shared.drains.held;
        held.store(self.hand.len() as u64, Relaxed);
        bump(&self.shared.drains.swept, found.items);
        found.items > 0
    }

    /// Acts on a drain that found nothing: looks into the producers' buffers, at most once a linger, and
    /// checks whether the queue is finished.
    #[cold]
    fn look_around(&mut self) -> bool {
        if self.shared.buffers_hint() && self.linger_passed() && self.sweep() {
            return true;
        }
        self.watch_line(PATIENCE_NS);
        // The consumer reads the flag before the mark, because the mark lies on the producers' cache line.
        // Once the mark is set, no producer can claim any more.
        if self.shared.flags.load(Acquire) & CLOSED != 0
            && !self.finished
            && self.shared.ring.is_closed()
        {
            return matches!(self.settle_closed(), Next::Ready);
        }
        false
    }

    /// Serves the linger while the consumer is busy: fetches the items of quiet producers once a linger.
    /// After a while without sleep the consumer takes the flag down, so that producers no longer look whether
    /// it sleeps.
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

    /// Checks, when there is nothing to drain, whether the called waiters leave their room unused for longer
    /// than `patience_ns`. Returns the time until the next check, if there is a line.
    fn watch_line(&mut self, patience_ns: u64) -> Option<Duration> {
        let shared = &*self.shared;
        // loom has no clock, and every called waiter of its models takes its turn.
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
        // Once the queue is finished, each producer takes back the items of its own buffer: it sees the close
        // next.
        if !self.finished {
            for buffer in &buffers {
                // The items drop without the lock, because they may use their own producer.
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

/// Gives the slots read back to the producers, even if the caller's code unwinds.
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

/// The destination of a drain's items.
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
