//! The state that the producers and the consumer of a queue share, and the steps of a wait in which both take
//! part.

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

/// The flag of a consumer that has been idle lately. While it is up, a producer checks, after each push
/// into its buffer, whether the consumer waits.
pub(super) const IDLING: u32 = 1;
/// The flag of a closed queue, which refuses every push.
pub(super) const CLOSED: u32 = 2;
/// The flag of a closed queue that has no consumer any more, so that no item left in it is handed out.
pub(super) const GONE: u32 = 4;

pub(super) struct Shared<T> {
    pub(super) ring: Ring<T>,
    /// The flags `IDLING`, `CLOSED` and `GONE`. Producers read them after every push into a buffer; the
    /// flags change rarely.
    pub(super) flags: Padded<AtomicU32>,
    pub(super) lane: Option<Lane<T>>,
    pub(super) consumer: WakerSlot,
    room: Waiters,
    pub(super) registry: Mutex<Registry<T>>,
    /// The number of producers' buffers in the registry. It changes only under the registry's lock. Other
    /// threads read it without that lock, to skip the lock if no buffer exists.
    buffers: HintCount,
    /// The number of handles and producers of this queue that exist. The queue closes when the number falls
    /// to 0.
    live: AtomicUsize,
    /// The ring's reader, if producers may take items out of the ring, too ([`Full::DropOldest`]); otherwise
    /// `None`, and the consumer owns the reader.
    pub(super) oldest: Option<Mutex<Reader>>,
    pub(super) wait: Wait,
    pub(super) full: Full,
    pub(super) linger_ns: u64,
    pub(super) clock: Clock,
    pub(super) rare: Padded<Rare>,
    pub(super) drains: Padded<Drains>,
}

/// The list of the producers' buffers, in which the consumer finds the items to fetch.
pub(super) struct Registry<T> {
    pub(super) buffers: Vec<Arc<Buffer<T>>>,
    /// The batches that left the buffers which are no longer in the list, counted by reason, so that the
    /// queue's metrics keep them.
    retired: Counts,
}

impl<T> Shared<T> {
    /// Makes the shared state of a queue, and the ring's reader for the consumer. The reader is `None` with
    /// [`Full::DropOldest`], because then producers share it.
    pub(super) fn new(built: &Builder) -> (Arc<Self>, Option<Reader>) {
        let (ring, reader) = Ring::new(built.capacity);
        let (own, oldest) = match built.full {
            Full::DropOldest => (None, Some(Mutex::new(reader))),
            _ => (Some(reader), None),
        };
        // loom has no clock, so its models run with the flag `IDLING` up all the time.
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

    /// Returns the id of this queue, which is unique in the process and also identifies the actor that
    /// consumes the queue.
    pub(super) fn id(&self) -> ActorId {
        std::ptr::from_ref(self).addr()
    }

    // The methods that count the handles that can push, and close the queue after the last handle is gone.

    pub(super) fn enter(&self) {
        self.live.fetch_add(1, Relaxed);
    }

    /// Removes a handle that may push. The removal of the last handle closes the queue.
    pub(super) fn leave(&self) {
        if self.live.fetch_sub(1, AcqRel) == 1 {
            self.close();
        }
    }

    /// Returns whether no handle is left that could push, so that no further item can arrive.
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

    // The methods by which producers push items.

    /// Makes one attempt to push `item`, without waiting. A full queue refuses the item, under every [`Full`]
    /// setting.
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

    /// Appends an item to the overflow lane, and wakes the consumer if it waits.
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

    /// Wakes the consumer if it waits. A producer calls this after it put an item into a buffer or the
    /// lane, because these, unlike a claim, do not show the consumer's mark.
    pub(super) fn wake_if_waiting(&self) {
        fence(SeqCst);
        if self.ring.consumer_waits() {
            self.wake_consumer();
        }
    }

    /// Drops up to `n` of the oldest items in the ring. Does nothing unless the queue has the setting
    /// [`Full::DropOldest`].
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
            // The ring had no published item to drop. If it is still full, producers have claimed its
            // positions and not published them yet, so this thread yields its core to them.
            yield_now();
        }
    }

    // The methods by which producers wait for room in the queue.

    /// Repeats `attempt` until it returns a result, and sleeps while the queue has no room. The caller has
    /// checked that its thread may block.
    #[cold]
    pub(super) fn wait_for_room<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> R {
        add(&self.rare.producer_waits, 1);
        let mut backoff = Backoff::new(self.wait);
        // This producer must not overtake other producers that wait in line. If there is a line, it joins the
        // line at once.
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

    /// Calls producers that wait for room, that is, wakes them for their turn, because the consumer freed
    /// slots.
    #[cold]
    pub(super) fn call_producers(&self) {
        if self.room.call(self.ring.free(), self.ring.capacity()) {
            self.ring.mark_room_wanted();
        }
    }

    /// Passes over the producers that were called and still leave the ring empty, and calls the next ones in
    /// line, so that no lost producer stops the queue.
    pub(super) fn pass_over_called(&self) {
        let late = self.room.pass_over_called();
        if late > 0 {
            self.ring.line_shrank(late);
        }
        self.ring.mark_room_wanted();
        self.call_producers();
    }

    // The methods that change the list of the producers' buffers, and take items out of them.

    pub(super) fn register(&self, buffer: Arc<Buffer<T>>) {
        let mut registry = lock(&self.registry);
        registry.buffers.push(buffer);
        self.buffers.store(registry.buffers.len(), Relaxed);
    }

    /// Removes a dropped producer's buffer from the registry.
    pub(super) fn unregister(&self, buffer: &Arc<Buffer<T>>) {
        let mut registry = lock(&self.registry);
        registry.forget(buffer);
        self.buffers.store(registry.buffers.len(), Relaxed);
    }

    /// Moves the items in producers' buffers into the consumer's hand. Leaves the items of a producer if
    /// the ring or the lane holds earlier items of that producer. `head` is the reader's position in the
    /// ring.
    pub(super) fn sweep(&self, head: u64, hand: &mut VecDeque<T>) -> Sweep {
        let mut registry = lock(&self.registry);
        let mut sweep = Sweep::default();
        let mut done = 0;
        for i in 0..registry.buffers.len() {
            let mut taking = registry.buffers[i].lock();
            if taking.len() > 0 {
                // The consumer reads `due` under the buffer's lock, so it sees the items that the producer
                // of this buffer put into the lane.
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

    /// Returns whether any producer has a buffer. The answer may miss a registration that happens at the
    /// same moment.
    pub(super) fn buffers_hint(&self) -> bool {
        self.buffers.load(Relaxed) > 0
    }

    // The method that reads the counters of the queue, for its metrics.

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

/// The result of a sweep, in which the consumer fetches items out of producers' buffers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    /// The number of items moved into the consumer's hand.
    pub(super) items: u64,
    /// True if items of a producer stay in its buffer, because the ring or the lane holds earlier items of
    /// that producer. The consumer then sweeps again later.
    pub(super) later: bool,
}

impl<T> Registry<T> {
    fn forget(&mut self, buffer: &Arc<Buffer<T>>) {
        if let Some(at) = self.buffers.iter().position(|b| Arc::ptr_eq(b, buffer)) {
            let gone = self.buffers.swap_remove(at);
            sum(&mut self.retired, &gone.lock().counts);
        }
    }

    /// Removes the empty buffers of producers that are gone, so that the list does not grow for ever.
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

/// A producer's place in the line for room in the ring. A drop gives the place up.
///
/// While there is a line, the ring is closed to claims from outside it, and a waiter in its turn opens as
/// many slots as its share of the capacity. So a producer in its turn may push on, outside the line, up to
/// that share, and then joins the end of the line: one wake-up serves several items, and no producer gets
/// far ahead of the others. A waiter has its turn when it is the first, when it was called, or when it
/// belongs to the round and finds a share for each waiter before it. See [`Waiters`].
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

    /// Puts the producer into the line, and makes an attempt if the producer has its turn. `None` means
    /// that the producer must wait: the consumer or another producer will call `waker`.
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
        // The producer leaves its mark in the ring before it looks at the free slots. So if the consumer
        // frees slots after that look, the consumer sees the mark and calls the producer.
        ring.mark_room_wanted();
        let share = share(ring.capacity(), stand.len);
        let room = || ring.free() > stand.ahead.saturating_mul(share);
        let turn = stand.called || stand.ahead == 0 || stand.in_round && room() || ring.is_closed();
        if !turn {
            return None;
        }
        // A claim from outside the line may take the slots that the waiter just opened, so the waiter opens
        // them again.
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
            // The leaving producer may have been called and have left its room unused. That room belongs to
            // the next producer in line.
            ring.mark_room_wanted();
            if ring.has_room() {
                self.shared.call_producers();
            }
        }
    }
}
