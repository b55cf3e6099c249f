//! The state that both ends of the queue share, and the steps of a wait that concern both ends.

use std::collections::VecDeque;
use std::task::Waker;

use super::builder::{Builder, Full, Wait};
use super::error::PushError;
use super::lane::Lane;
use super::metrics::{Drains, Metrics, Rare, add, sum};
use super::ring::{Buffer, Reader, Refused, Ring};
use super::sync::{
    AcqRel, Acquire, Arc, AtomicU32, AtomicUsize, Mutex, Padded, Relaxed, SeqCst, fence, lock,
    yield_now,
};
use super::wait::{Backoff, Parker, Pass, Waiters, WakerSlot, share};
use crate::Clock;
use crate::blocking::ActorId;
use crate::controller::Counts;
use std::sync::atomic::AtomicUsize as HintCount;

/// The flag of a consumer that has been idle lately: a producer looks, after a push into its buffer, whether
/// the consumer waits.
pub(super) const IDLING: u32 = 1;
/// The flag of a closed queue, which refuses every push.
pub(super) const CLOSED: u32 = 2;
/// The flag of a closed queue without a consumer.
pub(super) const GONE: u32 = 4;

pub(super) struct Shared<T> {
    pub(super) ring: Ring<T>,
    /// The flags `IDLING`, `CLOSED` and `GONE`: written now and then, read after every push into a buffer.
    pub(super) flags: Padded<AtomicU32>,
    pub(super) lane: Option<Lane<T>>,
    pub(super) consumer: WakerSlot,
    room: Waiters,
    pub(super) registry: Mutex<Registry<T>>,
    /// The number of registered buffers; it changes under the registry's lock.
    buffers: HintCount,
    /// The number of handles that may push.
    live: AtomicUsize,
    /// The reader, if producers may take items out, too ([`Full::DropOldest`]).
    pub(super) oldest: Option<Mutex<Reader>>,
    pub(super) wait: Wait,
    pub(super) full: Full,
    pub(super) linger_ns: u64,
    pub(super) clock: Clock,
    pub(super) rare: Padded<Rare>,
    pub(super) drains: Padded<Drains>,
}

/// The producers' buffers.
pub(super) struct Registry<T> {
    pub(super) buffers: Vec<Arc<Buffer<T>>>,
    /// The counts of the buffers that are gone.
    retired: Counts,
}

impl<T> Shared<T> {
    /// Makes the shared part, and the reader if the consumer keeps it for itself.
    pub(super) fn new(built: &Builder) -> (Arc<Self>, Option<Reader>) {
        let (ring, reader) = Ring::new(built.capacity);
        let (own, oldest) = match built.full {
            Full::DropOldest => (None, Some(Mutex::new(reader))),
            _ => (Some(reader), None),
        };
        // loom has no clock, so its models run with the flag settled (see `consumer`).
        let flags = if cfg!(loom) { IDLING } else { 0 };
        let shared = Self {
            ring,
            flags: Padded(AtomicU32::new(flags)),
            lane: (built.overflow > 0).then(|| Lane::new(built.overflow)),
            consumer: WakerSlot::new(),
            room: Waiters::new(),
            registry: Mutex::new(Registry {
                buffers: Vec::new(),
                retired: Counts::default(),
            }),
            buffers: HintCount::new(0),
            live: AtomicUsize::new(0),
            oldest,
            wait: built.wait,
            full: built.full,
            linger_ns: built.linger_ns,
            clock: Clock::start(),
            rare: Padded::default(),
            drains: Padded::default(),
        };
        (Arc::new(shared), own)
    }

    /// Identifies the queue among those of the process, and the actor that consumes it.
    pub(super) fn id(&self) -> ActorId {
        std::ptr::from_ref(self).addr()
    }

    // Handles.

    pub(super) fn enter(&self) {
        self.live.fetch_add(1, Relaxed);
    }

    /// Drops a handle; the last one closes the queue.
    pub(super) fn leave(&self) {
        if self.live.fetch_sub(1, AcqRel) == 1 {
            self.close();
        }
    }

    /// Returns whether no handle is left that could push.
    pub(super) fn is_deserted(&self) -> bool {
        self.live.load(Acquire) == 0
    }

    pub(super) fn close(&self) {
        self.flags.fetch_or(CLOSED, SeqCst);
        if let Some(lane) = &self.lane {
            lane.close();
        }
        self.ring.close();
        self.wake_consumer();
        self.room.call_all();
    }

    // Pushing.

    /// Makes one attempt to push, under each setting for a full queue.
    #[inline(always)]
    pub(super) fn attempt(&self, item: T) -> Result<(), PushError<T>> {
        match self.ring.push(item) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.wake_consumer();
                Ok(())
            }
            Err((item, Refused::Full)) => Err(PushError::Full(item)),
            Err((item, Refused::Closed)) => Err(PushError::Closed(item)),
        }
    }

    #[cold]
    pub(super) fn wake_consumer(&self) {
        if let Some(waker) = self.consumer.take() {
            add(&self.rare.consumer_wakes, 1);
            waker.wake();
        }
    }

    /// Puts an item into the overflow lane.
    pub(super) fn push_lane(&self, item: T) -> Result<(), PushError<T>> {
        use super::lane::NoLane;
        let Some(lane) = &self.lane else {
            add(&self.rare.dropped_overflow, 1);
            return Err(PushError::Full(item));
        };
        match lane.push(&self.ring, item) {
            Ok(_) => {
                self.wake_if_waiting();
                Ok(())
            }
            Err((item, NoLane::Full)) => {
                add(&self.rare.dropped_overflow, 1);
                Err(PushError::Full(item))
            }
            Err((item, NoLane::Closed)) => Err(PushError::Closed(item)),
        }
    }

    /// Wakes the consumer if it waits. A producer calls this after it left an item in a place that does not
    /// report the consumer's mark.
    pub(super) fn wake_if_waiting(&self) {
        fence(SeqCst);
        if self.ring.consumer_waits() {
            self.wake_consumer();
        }
    }

    /// Drops up to `n` of the oldest items. The queue must have the setting [`Full::DropOldest`].
    pub(super) fn drop_oldest(&self, n: u64) {
        let Some(oldest) = &self.oldest else { return };
        let mut dropped = Vec::new();
        let mut reader = lock(oldest);
        let n = reader.append(&self.ring, n, || u64::MAX, &mut dropped);
        let wanted = reader.publish(&self.ring);
        drop(reader);
        add(&self.rare.dropped_oldest, n);
        if wanted {
            self.call_producers();
        }
        if n == 0 {
            // No item could be dropped: all items are claimed and not yet published.
            yield_now();
        }
    }

    // Waiting for room.

    /// Repeats `attempt` until it returns a result, and sleeps while there is no room. The caller has checked
    /// that its thread may block.
    #[cold]
    pub(super) fn wait_for_room<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> R {
        add(&self.rare.producer_waits, 1);
        let mut backoff = Backoff::new(self.wait);
        // While other producers wait in line, this one must not overtake them.
        while !self.ring.has_line() {
            if let Some(done) = attempt() {
                return done;
            }
            if backoff.pass() == Pass::Sleep {
                break;
            }
        }
        let parker = Parker::new();
        let waker = Waker::from(parker.clone());
        let mut place = Place::new(self);
        loop {
            if let Some(done) = place.attempt(&waker, &mut attempt) {
                return done;
            }
            parker.pass(self.wait);
        }
    }

    /// Calls waiting producers after the consumer freed slots.
    #[cold]
    pub(super) fn call_producers(&self) {
        if self.room.call(self.ring.free(), self.ring.capacity()) {
            self.ring.mark_room_wanted();
        }
    }

    /// Passes over the called producers, which leave the ring empty, and calls the next ones in line.
    pub(super) fn pass_over_called(&self) {
        let late = self.room.pass_over_called();
        if late > 0 {
            self.ring.line_shrank(late);
        }
        self.ring.mark_room_wanted();
        self.call_producers();
    }

    // Buffers.

    pub(super) fn register(&self, buffer: Arc<Buffer<T>>) {
        let mut registry = lock(&self.registry);
        registry.buffers.push(buffer);
        self.buffers.store(registry.buffers.len(), Relaxed);
    }

    /// Forgets a buffer.
    pub(super) fn unregister(&self, buffer: &Arc<Buffer<T>>) {
        let mut registry = lock(&self.registry);
        registry.forget(buffer);
        self.buffers.store(registry.buffers.len(), Relaxed);
    }

    /// Moves the items of producers' buffers into `hand`, except where the ring still holds items of the same
    /// producer. Returns whether such items were left. `head` is the reader's position.
    pub(super) fn sweep(&self, head: u64, hand: &mut VecDeque<T>) -> Sweep {
        let mut registry = lock(&self.registry);
        let mut sweep = Sweep::default();
        let mut done = 0;
        for i in 0..registry.buffers.len() {
            let mut taking = registry.buffers[i].lock();
            if taking.len() > 0 {
                // The consumer reads `due` under the buffer's lock, so it sees the items that this producer
                // put into the lane.
                let lane_first = self.lane.as_ref().is_some_and(|lane| lane.due() <= head);
                if taking.ring_end > head || lane_first {
                    sweep.later = true;
                    continue;
                }
                let n = taking.sweep_into(hand);
                taking.swept += n;
                super::metrics::count(&mut taking.counts, n, crate::controller::Reason::Linger);
                sweep.items += n;
            }
            done += usize::from(taking.orphan);
        }
        if done > 0 {
            registry.bury();
            self.buffers.store(registry.buffers.len(), Relaxed);
        }
        sweep
    }

    /// Returns whether there are buffers. The answer may miss a registration that happens at the same moment.
    pub(super) fn buffers_hint(&self) -> bool {
        self.buffers.load(Relaxed) > 0
    }

    // Metrics.

    pub(super) fn metrics(&self) -> Metrics {
        let rare = &*self.rare;
        let drains = &*self.drains;
        let (overflow, overflowed) = self.lane.as_ref().map_or((0, 0), Lane::lens);
        let (flushes, buffered, buffers) = lock(&self.registry).sums();
        let swept = drains.swept.load(Relaxed);
        let taken = self.ring.taken();
        let claimed = self.ring.claimed().max(taken);
        Metrics {
            at: self.clock.now(),
            capacity: self.ring.capacity() as usize,
            population: (claimed - taken) as usize + overflow,
            buffered: buffered as usize,
            fetched: drains.held.load(Relaxed) as usize,
            overflow,
            arrived: claimed + overflowed + swept,
            drained: drains.drained.load(Relaxed),
            drains: drains.counts(),
            flushes,
            insert_failures: rare.insert_failures.load(Relaxed),
            rejected: rare.rejected.load(Relaxed),
            dropped_newest: rare.dropped_newest.load(Relaxed),
            dropped_oldest: rare.dropped_oldest.load(Relaxed),
            dropped_overflow: rare.dropped_overflow.load(Relaxed),
            overflowed,
            swept,
            producer_waits: rare.producer_waits.load(Relaxed),
            consumer_waits: drains.waits.load(Relaxed),
            consumer_wakes: rare.consumer_wakes.load(Relaxed),
            linger_wakes: drains.linger_wakes.load(Relaxed),
            buffers,
        }
    }
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    /// The number of items moved into the hand.
    pub(super) items: u64,
    /// True if items of a producer stay in its buffer, because the ring holds earlier items of that producer.
    pub(super) later: bool,
}

impl<T> Registry<T> {
    fn forget(&mut self, buffer: &Arc<Buffer<T>>) {
        if let Some(at) = self.buffers.iter().position(|b| Arc::ptr_eq(b, buffer)) {
            let gone = self.buffers.swap_remove(at);
            sum(&mut self.retired, &gone.lock().counts);
        }
    }

    /// Forgets the emptied buffers of producers that are gone.
    fn bury(&mut self) {
        let retired = &mut self.retired;
        self.buffers.retain(|buffer| {
            let taking = buffer.lock();
            let keep = !taking.orphan || taking.len() > 0;
            if !keep {
                sum(retired, &taking.counts);
            }
            keep
        });
    }

    fn sums(&self) -> (Counts, u64, usize) {
        let mut counts = self.retired;
        let mut items = 0;
        for buffer in &self.buffers {
            let taking = buffer.lock();
            sum(&mut counts, &taking.counts);
            items += taking.len();
        }
        (counts, items, self.buffers.len())
    }
}

/// A producer's place in the line for room. A drop gives the place up.
///
/// While there is a line, the ring is closed to claims from outside it, and a waiter in its turn opens as
/// many slots as its share of the capacity. So a producer that is served may push on, without the line, up to
/// that share, and then stands at the end: one wake-up serves several items, and no producer gets far ahead
/// of the others. A waiter has its turn when it is the first, when it was called, or when it belongs to the
/// round and finds a share for each waiter before it. See [`Waiters`].
pub(super) struct Place<'a, T> {
    shared: &'a Shared<T>,
    ticket: Option<u64>,
}

impl<'a, T> Place<'a, T> {
    pub(super) const fn new(shared: &'a Shared<T>) -> Self {
        Self {
            shared,
            ticket: None,
        }
    }

    /// Puts the waiter into the line, and makes an attempt if it has its turn. `None` means that `waker` will
    /// be called.
    pub(super) fn attempt<R>(
        &mut self,
        waker: &Waker,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let ring = &self.shared.ring;
        let stand = self.shared.room.stand(&mut self.ticket, waker);
        if stand.joins {
            ring.line_grew();
        }
        // The waiter sets the mark before the look below: a publication after the look reports the mark.
        ring.mark_room_wanted();
        let share = share(ring.capacity(), stand.len);
        let room = || ring.free() > stand.ahead.saturating_mul(share);
        let turn = stand.called || stand.ahead == 0 || stand.in_round && room() || ring.is_closed();
        if !turn {
            return None;
        }
        // A claim from outside may take the slots just opened.
        while ring.open(share) {
            if let Some(done) = attempt() {
                return Some(done);
            }
        }
        None
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let ring = &self.shared.ring;
        let (others, late) = self.shared.room.leave(ticket);
        if !late {
            ring.line_shrank(1);
        }
        if others {
            // The waiter may have been called and have left room, which belongs to the next waiter.
            ring.mark_room_wanted();
            if ring.has_room() {
                self.shared.call_producers();
            }
        }
    }
}
