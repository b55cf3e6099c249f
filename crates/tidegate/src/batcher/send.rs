//! Sending: weigh, take credit, stamp, push. What fails on the way gives everything back.

use super::error::SendError;
use super::shared::{Entry, Shared, Weights};
use crate::queue::PushError;

impl<T: Send, R: Send, M: Send> Shared<T, R, M> {
    /// Waits for room or refuses, as the actor was built.
    pub(super) fn send(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        if !self.waits {
            return self.try_send(item, entry);
        }
        let Some(weights) = &self.weights else {
            self.stamp.touch(&self.clock);
            return self.queue.push(entry(0, item)).map_err(refused);
        };
        let (item, weight) = weights.weigh(item)?;
        let Ok(credit) = weights.gate.credit(weight.into()) else {
            return Err(SendError::Closed(item));
        };
        self.stamp.touch(&self.clock);
        self.queue.push(entry(weight, item)).map_err(refused)?;
        credit.keep();
        Ok(())
    }

    /// Never waits.
    pub(super) fn try_send(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let Some(weights) = &self.weights else {
            return self.try_push(entry(0, item));
        };
        let (item, weight) = weights.weigh(item)?;
        let Some(credit) = weights.gate.try_credit(weight.into()) else {
            if self.queue.is_closed() {
                return Err(SendError::Closed(item));
            }
            self.counters.rejected(1);
            return Err(SendError::Full(item));
        };
        self.try_push(entry(weight, item))?;
        credit.keep();
        Ok(())
    }

    /// Waits for room as a task.
    pub(super) async fn send_async(
        &self,
        item: T,
        entry: impl FnOnce(u32, T) -> Entry<T, R, M>,
    ) -> Result<(), SendError<T>> {
        let Some(weights) = &self.weights else {
            self.stamp.touch(&self.clock);
            return self.queue.push_async(entry(0, item)).await.map_err(refused);
        };
        let (item, weight) = weights.weigh(item)?;
        let Ok(credit) = weights.gate.credit_async(weight.into()).await else {
            return Err(SendError::Closed(item));
        };
        self.stamp.touch(&self.clock);
        let sent = self.queue.push_async(entry(weight, item)).await;
        sent.map_err(refused)?;
        credit.keep();
        Ok(())
    }

    fn try_push(&self, entry: Entry<T, R, M>) -> Result<(), SendError<T>> {
        self.stamp.touch(&self.clock);
        self.queue.try_push(entry).map_err(|error| {
            if !error.is_closed() {
                self.counters.rejected(1);
            }
            refused(error)
        })
    }

    pub(super) fn send_info(&self, message: M) -> Result<(), SendError<M>> {
        self.stamp.touch(&self.clock);
        let entry = Entry::Info(message);
        let sent = if self.waits {
            self.queue.push(entry)
        } else {
            self.queue.try_push(entry)
        };
        sent.map_err(|error| match error {
            PushError::Full(Entry::Info(message)) => {
                self.counters.rejected(1);
                SendError::Full(message)
            }
            PushError::Closed(Entry::Info(message)) => SendError::Closed(message),
            _ => unreachable!("a queue gives back what it was given"),
        })
    }
}

impl<T> Weights<T> {
    /// The item with its weight, unless it is too heavy.
    pub(super) fn weigh(&self, item: T) -> Result<(T, u32), SendError<T>> {
        let bytes = (self.of)(&item);
        if bytes > self.item_max {
            return Err(SendError::Oversized {
                item,
                bytes,
                limit: self.item_max,
            });
        }
        // Four gigabytes in one item count as that.
        Ok((item, u32::try_from(bytes).unwrap_or(u32::MAX)))
    }
}

/// The item out of an entry that was not taken; a caller's reply is dropped.
pub(super) fn refused<T, R, M>(error: PushError<Entry<T, R, M>>) -> SendError<T> {
    let closed = error.is_closed();
    match error.into_item() {
        Entry::Cast(_, item) | Entry::Call(_, item, _) if closed => SendError::Closed(item),
        Entry::Cast(_, item) | Entry::Call(_, item, _) => SendError::Full(item),
        Entry::Info(_) | Entry::Wake => unreachable!("a queue gives back what it was given"),
    }
}
