//! The buffer that a producer owns, and its present size: how items enter the buffer, when the producer
//! flushes it, and where the items go if the ring has no room.

use crate::Time;
use crate::WouldBlock;
use crate::blocking;
use crate::controller::Reason;
use crate::queue::Full;
use crate::queue::control::Control;
use crate::queue::error::{FlushError, PushError};
use crate::queue::growth::Growth;
use crate::queue::metrics::{add, count};
use crate::queue::ring::{Refused, Writer};
use crate::queue::shared::{CLOSED, IDLING, Shared};
use crate::queue::sync::{Relaxed, SeqCst, fence, light_barrier};

/// The buffer that a producer owns, with its present size and the rule that sets this size.
pub(super) struct Own<T> {
    pub(super) writer: Writer<T>,
    pub(super) limit: u64,
    /// The reports to the producer's controller. They are in a box, because they are large and most
    /// producers have no controller.
    pub(super) control: Option<Box<Control>>,
    /// The rule by which the buffer sets its own size; `None` if the buffer has another limit. The memory of
    /// such a buffer may be smaller than its limit.
    pub(super) growth: Option<Growth>,
    /// The time at which [`Producer::flush_if_due`](super::Producer::flush_if_due) first saw the items that
    /// are now in the buffer; `None` if it has not seen them. The items are due a safety linger after this
    /// time.
    pub(super) seen: Option<Time>,
}

/// The reasons why a producer's buffer has no room for one more item, though the producer tried to flush it.
pub(super) enum NoRoom {
    Dropped,
    Full,
    Closed,
    /// The ring is full, and the thread must not wait for room.
    WouldBlock(WouldBlock),
}

impl<T: Send> Own<T> {
    pub(super) fn len(&self) -> u64 {
        self.writer.buffer().lock().len()
    }

    /// Allocates memory for the whole limit of the buffer. A buffer that sets its own size puts this off
    /// until it gets an item.
    pub(super) fn unfold(&mut self) {
        if self.growth.is_some() && self.writer.slots_len() < self.limit {
            self.writer.resize(self.limit);
        }
    }

    /// Puts `item` into the buffer, which must have room, and flushes the buffer if it is now full or the
    /// consumer sleeps.
    #[inline]
    pub(super) fn put(&mut self, shared: &Shared<T>, item: T) -> Result<(), PushError<T>> {
        self.writer.push(item);
        if self.writer.is_full() {
            return self.look_up(shared);
        }
        self.look_at_flags(shared)
    }

    /// Puts all items of `items` into the buffer, and flushes the buffer each time it fills. On an error,
    /// returns the reason, and the items that it takes back: if the queue is closed, the last items in the
    /// buffer that the consumer has not swept; otherwise none. The items left in `items` follow these in
    /// order.
    #[inline]
    pub(super) fn extend(
        &mut self,
        shared: &Shared<T>,
        items: &mut impl ExactSizeIterator<Item = T>,
    ) -> Result<(), (NoRoom, Vec<T>)> {
        self.unfold();
        while items.len() > 0 {
            if self.writer.is_full()
                && let Err(out) = self.make_room(shared)
            {
                match out {
                    NoRoom::Dropped => drop(items.next()),
                    out => return Err((out, Vec::new())),
                }
                continue;
            }
            let n = self.writer.extend(items);
            light_barrier();
            let flags = shared.flags.load(Relaxed);
            if flags != 0 || self.writer.is_full() {
                let back = self.look_around(shared, flags, n);
                if !back.is_empty() {
                    return Err((NoRoom::Closed, back));
                }
            }
        }
        Ok(())
    }

    /// Checks, after a push, the flags by which the consumer reports that it is idle or that the queue is
    /// closed, so that the item is passed on at once or given back.
    #[inline(always)]
    pub(super) fn look_at_flags(&mut self, shared: &Shared<T>) -> Result<(), PushError<T>> {
        light_barrier();
        if shared.flags.load(Relaxed) == 0 {
            return Ok(());
        }
        self.look_up(shared)
    }

    /// Acts on a push that filled the buffer, or after which the consumer's flags were set: flushes the
    /// buffer if that is due. Gives the item back if the queue is closed.
    #[inline(never)]
    fn look_up(&mut self, shared: &Shared<T>) -> Result<(), PushError<T>> {
        light_barrier();
        let flags = shared.flags.load(Relaxed);
        match self.look_around(shared, flags, 1).pop() {
            Some(item) => Err(PushError::Closed(item)),
            None => Ok(()),
        }
    }

    /// Acts on the consumer's flags after `n` items went into the buffer: flushes a full buffer, or any
    /// buffer if the consumer sleeps. Returns the items that a closed queue refuses.
    #[inline]
    fn look_around(&mut self, shared: &Shared<T>, flags: u32, n: u64) -> Vec<T> {
        let outcome = if flags & CLOSED != 0 {
            Err(Refused::Closed)
        } else if self.writer.is_full() {
            let reason = self
                .control
                .as_ref()
                .map_or(Reason::Limit, |control| control.reason());
            self.flush_once(shared, reason)
        } else if flags & IDLING != 0 {
            fence(SeqCst);
            // The producer reads the flags again: between its push and the first read, the consumer may
            // have closed the queue and swept the buffers.
            if shared.flags.load(Relaxed) & CLOSED != 0 {
                Err(Refused::Closed)
            } else if shared.ring.consumer_waits() {
                self.flush_once(shared, Reason::Drained)
            } else {
                Ok(())
            }
        } else {
            Ok(())
        };
        if outcome == Err(Refused::Closed) {
            // The producer takes back only the items that the consumer has not swept. The consumer hands
            // out the swept items.
            return self.writer.take_back(n);
        }
        // Items that do not fit into the ring stay in the buffer; the producer's next push flushes them.
        Vec::new()
    }

    /// Flushes, by one claim, as many items as the ring has room for. Returns `Ok` if an item moved or the
    /// buffer was empty. Reports the flush to the controller or to the rule for the buffer's size.
    pub(super) fn flush_once(&mut self, shared: &Shared<T>, reason: Reason) -> Result<(), Refused> {
        let sample = self
            .control
            .as_ref()
            .is_some_and(|control| control.samples());
        let start = if sample {
            shared.clock.now()
        } else {
            Time::ZERO
        };
        let mut wake = false;
        let mut flushed = 0;
        let mut swept = 0;
        let mut left = 0;
        let outcome = self.writer.taking(self.limit, |taking| {
            swept = std::mem::take(&mut taking.swept);
            if taking.len() == 0 {
                return Ok(());
            }
            let pushed = taking.flush_into(&shared.ring)?;
            wake = pushed.wake;
            flushed = pushed.items;
            left = taking.len();
            count(&mut taking.counts, flushed, reason);
            Ok(())
        });
        if wake {
            shared.wake_consumer();
        }
        if outcome == Err(Refused::Full) {
            add(&shared.rare.insert_failures, 1);
        }
        if flushed + swept > 0 {
            self.seen = None;
            if let Some(control) = &mut self.control {
                // A flush that wakes the consumer is not measured, because the cost of the wake-up does not
                // depend on the size of the batch.
                let measured = (sample && !wake).then(|| (start, shared.clock.now()));
                let limit = control.told(swept, flushed, left, reason, measured);
                if limit != self.limit {
                    self.limit = limit;
                    self.writer.set_limit(limit);
                }
            } else if let Some(growth) = &mut self.growth {
                let full = reason == Reason::Limit && left == 0;
                let now = || shared.clock.now();
                let limit = growth.flushed(self.limit, flushed.max(swept), full, now);
                if limit < self.limit {
                    self.writer.resize(limit);
                }
                self.limit = limit;
            }
        }
        outcome
    }

    /// Flushes until the buffer is empty. If the ring is full, waits, drops the oldest items or fails, as
    /// the queue's [`Full`] setting says.
    pub(super) fn flush_all(
        &mut self,
        shared: &Shared<T>,
        reason: Reason,
    ) -> Result<(), FlushError> {
        loop {
            match self.flush_once(shared, reason) {
                Ok(()) if self.len() == 0 => return Ok(()),
                Ok(()) => {}
                Err(Refused::Full) => match shared.full {
                    Full::Wait => {}
                    Full::DropOldest => {
                        shared.drop_oldest(self.len());
                        continue;
                    }
                    _ => return self.report(Err(Refused::Full)),
                },
                Err(closed) => return self.report(Err(closed)),
            }
            if shared.full == Full::Wait {
                if self.len() > 0
                    && let Err(why) = blocking::check(shared.id())
                {
                    let left = self.len() as usize;
                    return Err(FlushError::WouldBlock { left, why });
                }
                let _ = shared.wait_for_room(|| match self.flush_once(shared, reason) {
                    Err(Refused::Full) => None,
                    other => Some(other),
                });
            }
        }
    }

    /// Flushes until the buffer has room for one item, without waiting. Returns `None` if the ring is full.
    #[inline]
    pub(super) fn try_room(&mut self, shared: &Shared<T>) -> Option<Result<(), Refused>> {
        self.unfold();
        let reason = self
            .control
            .as_ref()
            .map_or(Reason::Limit, |control| control.reason());
        while self.writer.is_full() {
            match self.flush_once(shared, reason) {
                Ok(()) => {}
                Err(Refused::Full) => return None,
                Err(closed) => return Some(Err(closed)),
            }
        }
        Some(Ok(()))
    }

    /// Makes room for one more item in a full buffer, as the queue's [`Full`] setting says: waits, drops
    /// items or fails.
    #[cold]
    pub(super) fn make_room(&mut self, shared: &Shared<T>) -> Result<(), NoRoom> {
        loop {
            match self.try_room(shared) {
                Some(Ok(())) => return Ok(()),
                Some(Err(_)) => return Err(NoRoom::Closed),
                None => {}
            }
            match shared.full {
                Full::Wait => {
                    blocking::check(shared.id()).map_err(NoRoom::WouldBlock)?;
                    let made = shared.wait_for_room(|| self.try_room(shared));
                    return made.map_err(|_| NoRoom::Closed);
                }
                Full::DropOldest => shared.drop_oldest(self.len()),
                Full::Reject => {
                    add(&shared.rare.rejected, 1);
                    return Err(NoRoom::Full);
                }
                Full::DropNewest => {
                    add(&shared.rare.dropped_newest, 1);
                    return Err(NoRoom::Dropped);
                }
            }
        }
    }

    /// Moves the items of the buffer into the overflow lane, as far as the lane accepts them. Returns
    /// whether the buffer then has room.
    pub(super) fn spill(&mut self, shared: &Shared<T>) -> bool {
        let Some(lane) = &shared.lane else {
            return false;
        };
        self.writer.taking(self.limit, |taking| {
            taking.spill(|item| lane.push(&shared.ring, item).map_err(|(item, _)| item));
        });
        shared.wake_if_waiting();
        !self.writer.is_full()
    }

    pub(super) fn report(&self, outcome: Result<(), Refused>) -> Result<(), FlushError> {
        let left = self.len() as usize;
        match outcome {
            Err(Refused::Closed) => Err(FlushError::Closed { left }),
            _ if left == 0 => Ok(()),
            _ => Err(FlushError::Full { left }),
        }
    }
}
