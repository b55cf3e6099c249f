//! A producer's own buffer, and its present size: how items enter the buffer, when the producer flushes it,
//! and where the items go if the ring has no room.

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

/// A buffer, and its present size.
pub(super) struct Own<T> {
    pub(super) writer: Writer<T>,
    pub(super) limit: u64,
    /// The reports to a controller. They are in a box, because they are large and most producers have none.
    pub(super) control: Option<Box<Control>>,
    /// The rule of a buffer that sets its own size; the buffer's memory may be smaller than the limit.
    pub(super) growth: Option<Growth>,
    /// The time at which [`Producer::flush_if_due`](super::Producer::flush_if_due)
    /// first saw the present items.
    pub(super) seen: Option<Time>,
}

/// The reasons why the buffer has no room for one more item.
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

    /// Allocates memory for the whole limit, if the buffer has put that off until it is needed.
    pub(super) fn unfold(&mut self) {
        if self.growth.is_some() && self.writer.slots_len() < self.limit {
            self.writer.resize(self.limit);
        }
    }

    /// Puts `item` into the buffer, which has room.
    #[inline]
    pub(super) fn put(&mut self, shared: &Shared<T>, item: T) -> Result<(), PushError<T>> {
        self.writer.push(item);
        if self.writer.is_full() {
            return self.look_up(shared);
        }
        self.look_at_flags(shared)
    }

    /// Puts all items that `items` yields into the buffer, and flushes the buffer as it fills. On an error
    /// the last items put there may come back; the items that `items` has not yielded follow them. Returns
    /// the reason for stopping.
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

    /// Checks, after a push, the flags that the consumer sets.
    #[inline(always)]
    pub(super) fn look_at_flags(&mut self, shared: &Shared<T>) -> Result<(), PushError<T>> {
        light_barrier();
        if shared.flags.load(Relaxed) == 0 {
            return Ok(());
        }
        self.look_up(shared)
    }

    /// Acts on a push that filled the buffer, or after which the consumer's flags were set.
    #[inline(never)]
    fn look_up(&mut self, shared: &Shared<T>) -> Result<(), PushError<T>> {
        light_barrier();
        let flags = shared.flags.load(Relaxed);
        match self.look_around(shared, flags, 1).pop() {
            Some(item) => Err(PushError::Closed(item)),
            None => Ok(()),
        }
    }

    /// Acts on the flags after `n` items went into the buffer. Returns the items that a closed queue refuses.
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
            // The producer looks again: the consumer may have closed the queue and swept between the item and
            // the first look.
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
            // The consumer hands out the items it took meanwhile.
            return self.writer.take_back(n);
        }
        // Items that do not fit stay in the buffer; the next push flushes them.
        Vec::new()
    }

    /// Flushes as many items as there is room for. Returns `Ok` if an item moved, or the buffer was empty.
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
                // The cost of waking the consumer does not depend on the size of the batch, so this flush is
                // not measured.
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

    /// Flushes until the buffer is empty, waiting or dropping as the queue's [`Full`] setting says.
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

    /// Flushes until the buffer has room for one item. Returns `None` if that needs waiting.
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

    /// Makes room in a full buffer for one more item.
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

    /// Moves the whole buffer into the overflow lane, as far as the lane accepts items. Returns whether there
    /// is room in the buffer now.
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
