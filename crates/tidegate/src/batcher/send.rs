//! The steps of a send: the sender weighs the item, takes credit for its bytes, records the time, and
//! pushes the entry. A send that fails gives the item and the credit back.
//!
//! The queue bounds the number of entries: it waits for room or refuses the entry, as its builder set. This
//! file handles the bound on bytes.

use std::time::Instant;

use super::block::block_until;
use super::error::SendError;
use super::gate::{Credit, GateClosed};
use super::shared::{Entry, Shared, Weights};
use super::timer;
use crate::WouldBlock;
use crate::blocking::{self, ActorId};
use crate::queue::PushError;

impl<T: Send, R: Send, M: Send> Shared<T, R, M> {
    /// Sends an item. If the actor has no room, blocks the thread until room is free or refuses the item,
    /// as the builder of the actor set.
    #[inline]
    pub(super) fn send(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let (item, weight, credit) = match &self.weights {
            None => (item, 0, None),
            Some(weights) => self.admit(weights, item, self.waits)?,
        };
        self.stamp.touch(&self.clock);
        // Items with and without a weight share this push, so that the compiler builds the entry in its
        // place in the queue.
        let sent = self.queue.blocking_push(entry(weight, item));
        self.sent(sent, credit)
    }

    /// Sends an item without waiting: returns an error if the actor has no room.
    pub(super) fn try_send(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let (item, weight, credit) = match &self.weights {
            None => (item, 0, None),
            Some(weights) => self.admit(weights, item, false)?,
        };
        self.stamp.touch(&self.clock);
        let sent = self.queue.try_push(entry(weight, item));
        self.sent(sent, credit)
    }

    /// Sends an item. If the actor has no room, waits for room as a task or refuses the item, as the
    /// builder of the actor set.
    #[inline]
    pub(super) async fn send_async(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let (item, weight, credit) = match &self.weights {
            None => (item, 0, None),
            Some(weights) if !self.waits => self.admit(weights, item, false)?,
            Some(weights) => {
                let (item, weight) = weights.weigh(item)?;
                let credit = match self.try_credit(weights, weight) {
                    Some(credit) => Ok(credit),
                    None => {
                        if let Err(why) = blocking::check_handler(self.queue.id()) {
                            return Err(SendError::WouldBlock(item, why));
                        }
                        weights.gate.credit_async(weight.into()).await
                    }
                };
                match credit {
                    Ok(credit) => (item, weight, Some(credit)),
                    Err(GateClosed) => return Err(SendError::Closed(item)),
                }
            }
        };
        self.stamp.touch(&self.clock);
        // The compiler builds an entry that finds room in its place in the queue. A move of the entry into
        // a future would cost more than all other steps.
        let Err(error) = self.queue.push_now(entry(weight, item)) else {
            self.keep(credit);
            return Ok(());
        };
        let sent = match error {
            PushError::Full(entry) => self.queue.push(entry).await,
            error => Err(error),
        };
        self.sent(sent, credit)
    }

    /// Sends an item. If the actor has no room, waits for room as a task, at most until `deadline`, or
    /// refuses the item, as the builder of the actor set.
    pub(super) async fn send_before(
        &self,
        item: T,
        deadline: Option<Instant>,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let mut slot = Some(self.prepare(item, entry)?);
        let sending = self.send_slot(&mut slot, blocking::check_handler);
        let sent = timer::before(deadline, sending).await;
        self.ended(sent).map_err(|error| error.with(item_of(slot)))
    }

    /// Sends an item. If the actor has no room, blocks the thread until room is free, at most until
    /// `deadline`, or refuses the item, as the builder of the actor set.
    pub(super) fn blocking_send_before(
        &self,
        item: T,
        deadline: Option<Instant>,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let mut slot = Some(self.prepare(item, entry)?);
        let sending = self.send_slot(&mut slot, blocking::check);
        let sent = block_until(sending, deadline);
        self.ended(sent).map_err(|error| error.with(item_of(slot)))
    }

    /// Weighs an item and builds its queue entry, before the sender pushes the entry.
    fn prepare(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<Entry<T, R, M>, SendError<T>> {
        let (item, weight) = match &self.weights {
            None => (item, 0),
            Some(weights) => weights.weigh(item)?,
        };
        Ok(entry(weight, item))
    }

    /// Sends the entry in `slot`. After an error, and after a drop of the future, the entry is still in
    /// `slot`. Before a wait for room, `check` decides whether the thread may wait.
    async fn send_slot(
        &self,
        slot: &mut Option<Entry<T, R, M>>,
        check: fn(ActorId) -> Result<(), WouldBlock>,
    ) -> Result<(), SendError<()>> {
        let weight = match slot {
            Some(Entry::Cast(weight, _) | Entry::Call(weight, _, _)) => *weight,
            _ => 0,
        };
        let credit = match &self.weights {
            None => None,
            Some(weights) => match self.try_credit(weights, weight) {
                Some(credit) => Some(credit),
                None if self.queue.is_closed() => return Err(SendError::Closed(())),
                None if !self.waits => {
                    self.counters.rejected(1);
                    return Err(SendError::Full(()));
                }
                None => {
                    check(self.queue.id()).map_err(|why| SendError::WouldBlock((), why))?;
                    let credit = weights.gate.credit_async(weight.into()).await;
                    Some(credit.map_err(|GateClosed| SendError::Closed(()))?)
                }
            },
        };
        self.stamp.touch(&self.clock);
        let sent = self.queue.push_from(slot, check).await;
        sent.map_err(|error| self.reason(error).1)?;
        self.keep(credit);
        Ok(())
    }

    /// Converts the outcome of a send with a deadline into a result. `None` means that the deadline passed
    /// first; the send then counts as rejected.
    fn ended(&self, sent: Option<Result<(), SendError<()>>>) -> Result<(), SendError<()>> {
        sent.unwrap_or_else(|| {
            self.counters.rejected(1);
            Err(SendError::TimedOut(()))
        })
    }

    /// Weighs an item and takes credit for its bytes. Blocks the thread until credit is available, if
    /// `waits` is true.
    #[cold]
    fn admit<'a>(
        &self,
        weights: &'a Weights<T>,
        item: T,
        waits: bool,
    ) -> Result<(T, u32, Option<Credit<'a>>), SendError<T>> {
        let (item, weight) = weights.weigh(item)?;
        let credit = match self.try_credit(weights, weight) {
            None if waits => {
                if let Err(why) = blocking::check(self.queue.id()) {
                    return Err(SendError::WouldBlock(item, why));
                }
                weights.gate.credit(weight.into()).ok()
            }
            credit => credit,
        };
        if credit.is_some() {
            return Ok((item, weight, credit));
        }
        if waits || self.queue.is_closed() {
            return Err(SendError::Closed(item));
        }
        self.counters.rejected(1);
        Err(SendError::Full(item))
    }

    /// Counts an item that the actor refused because it had no room, for the statistics.
    pub(super) fn count_full(&self, error: &SendError<T>) {
        if matches!(error, SendError::Full(_)) {
            self.counters.rejected(1);
        }
    }

    /// Takes credit for the bytes of an item, if credit is available. Otherwise wakes the actor, because
    /// the actor may wait for further items that find no room.
    pub(super) fn try_credit<'a>(
        &self,
        weights: &'a Weights<T>,
        weight: u32,
    ) -> Option<Credit<'a>> {
        let credit = weights.gate.try_credit(weight.into());
        if credit.is_none() && weights.gate.press() {
            // If the queue has no room for the wake entry, the actor is awake anyway, because it has items
            // to take.
            let _ = self.queue.push_past_line(Entry::Wake);
        }
        credit
    }

    #[inline]
    pub(super) fn sent(
        &self,
        sent: Result<(), PushError<Entry<T, R, M>>>,
        credit: Option<Credit<'_>>,
    ) -> Result<(), SendError<T>> {
        if let Err(error) = sent {
            return Err(self.refused(error));
        }
        self.keep(credit);
        Ok(())
    }

    #[inline]
    fn keep(&self, credit: Option<Credit<'_>>) {
        if let Some(credit) = credit {
            self.spend(credit);
        }
    }

    /// Uses up the credit of an item that was sent. This is a separate function, so that the code of sends
    /// without weights stays short.
    #[inline(never)]
    fn spend(&self, credit: Credit<'_>) {
        if credit.keep() {
            // If the queue has no room for the wake entry, the actor is awake anyway, because it has items
            // to take.
            let _ = self.queue.push_past_line(Entry::Wake);
        }
    }

    /// Converts the error of a refused push into the error of the send, which gives the item back to the
    /// sender.
    #[cold]
    fn refused(&self, error: PushError<Entry<T, R, M>>) -> SendError<T> {
        let (entry, refused) = self.reason(error);
        refused.with(item_of(Some(entry)))
    }

    /// Splits the error of a refused push into the entry and the reason. Counts a refusal by a full queue in
    /// the statistics.
    fn reason<E>(&self, error: PushError<E>) -> (E, SendError<()>) {
        match error {
            PushError::Closed(entry) => (entry, SendError::Closed(())),
            PushError::WouldBlock(entry, why) => (entry, SendError::WouldBlock((), why)),
            PushError::Full(entry) => {
                self.counters.rejected(1);
                (entry, SendError::Full(()))
            }
        }
    }

    pub(super) fn send_info(&self, message: M) -> Result<(), SendError<M>> {
        self.stamp.touch(&self.clock);
        self.sent_info(self.queue.blocking_push(Entry::Info(message)))
    }

    pub(super) fn try_send_info(&self, message: M) -> Result<(), SendError<M>> {
        self.stamp.touch(&self.clock);
        self.sent_info(self.queue.try_push(Entry::Info(message)))
    }

    pub(super) async fn send_info_async(&self, message: M) -> Result<(), SendError<M>> {
        self.stamp.touch(&self.clock);
        self.sent_info(self.queue.push(Entry::Info(message)).await)
    }

    pub(super) async fn send_info_before(
        &self,
        message: M,
        deadline: Option<Instant>,
    ) -> Result<(), SendError<M>> {
        let mut slot = Some(Entry::Info(message));
        self.stamp.touch(&self.clock);
        let pushing = self.queue.push_from(&mut slot, blocking::check_handler);
        let sent = timer::before(deadline, pushing).await;
        self.ended_info(sent, slot)
    }

    pub(super) fn blocking_send_info_before(
        &self,
        message: M,
        deadline: Option<Instant>,
    ) -> Result<(), SendError<M>> {
        let mut slot = Some(Entry::Info(message));
        self.stamp.touch(&self.clock);
        let pushing = self.queue.push_from(&mut slot, blocking::check);
        let sent = block_until(pushing, deadline);
        self.ended_info(sent, slot)
    }

    fn ended_info(
        &self,
        sent: Option<Result<(), PushError<()>>>,
        slot: Option<Entry<T, R, M>>,
    ) -> Result<(), SendError<M>> {
        let sent = sent.map(|sent| sent.map_err(|error| self.reason(error).1));
        self.ended(sent).map_err(|error| match slot {
            Some(Entry::Info(message)) => error.with(message),
            _ => unreachable!("a queue gives back the entry pushed"),
        })
    }

    fn sent_info(&self, sent: Result<(), PushError<Entry<T, R, M>>>) -> Result<(), SendError<M>> {
        sent.map_err(|error| match self.reason(error) {
            (Entry::Info(message), refused) => refused.with(message),
            _ => unreachable!("a queue gives back the entry pushed"),
        })
    }
}

/// Returns the item of an entry that the queue refused, so that the sender gets it back, and drops the reply
/// of its call.
#[cold]
fn item_of<T, R, M>(entry: Option<Entry<T, R, M>>) -> T {
    match entry {
        Some(Entry::Cast(_, item) | Entry::Call(_, item, _)) => item,
        _ => unreachable!("a queue gives back the entry pushed"),
    }
}

/// The greatest weight that an item may have: a queue entry stores the weight in 32 bits.
const WEIGHT_MAX: u64 = u32::MAX as u64;

impl<T> Weights<T> {
    /// Weighs an item that the handler gave back. An item that now weighs more than [`WEIGHT_MAX`] counts
    /// as [`WEIGHT_MAX`].
    pub(super) fn weigh_again(&self, item: &T) -> u32 {
        u32::try_from((self.of)(item)).unwrap_or(u32::MAX)
    }

    /// Weighs an item. Returns the item with its weight, or an error if the item is too heavy.
    pub(super) fn weigh(&self, item: T) -> Result<(T, u32), SendError<T>> {
        let bytes = (self.of)(&item);
        match u32::try_from(bytes) {
            Ok(weight) if bytes <= self.item_max => Ok((item, weight)),
            _ => Err(SendError::Oversized {
                item,
                bytes,
                limit: self.item_max.min(WEIGHT_MAX),
            }),
        }
    }
}
