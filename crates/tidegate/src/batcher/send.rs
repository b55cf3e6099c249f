//! Sending: weigh, take credit, stamp, push. What fails on the way gives everything back.

use super::error::SendError;
use super::lane::Refused;
use super::shared::{Entry, Shared, Weights};

impl<T, R, M> Shared<T, R, M> {
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
            return self.lane.push(entry(0, item)).map_err(closed);
        };
        let (item, weight) = weights.weigh(item)?;
        let Ok(credit) = weights.gate.credit(weight.into()) else {
            return Err(SendError::Closed(item));
        };
        self.stamp.touch(&self.clock);
        self.lane.push(entry(weight, item)).map_err(closed)?;
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
            if self.lane.is_closed() {
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
            return self.lane.push_async(entry(0, item)).await.map_err(closed);
        };
        let (item, weight) = weights.weigh(item)?;
        let Ok(credit) = weights.gate.credit_async(weight.into()).await else {
            return Err(SendError::Closed(item));
        };
        self.stamp.touch(&self.clock);
        let sent = self.lane.push_async(entry(weight, item)).await;
        sent.map_err(closed)?;
        credit.keep();
        Ok(())
    }

    fn try_push(&self, entry: Entry<T, R, M>) -> Result<(), SendError<T>> {
        self.stamp.touch(&self.clock);
        self.lane.try_push(entry).map_err(|refused| match refused {
            Refused::Closed(entry) => closed(entry),
            Refused::Full(entry) => {
                self.counters.rejected(1);
                SendError::Full(item_of(entry))
            }
        })
    }

    pub(super) fn send_info(&self, message: M) -> Result<(), SendError<M>> {
        self.stamp.touch(&self.clock);
        let entry = Entry::Info(message);
        let sent = if self.waits {
            self.lane.push(entry).map_err(Refused::Closed)
        } else {
            self.lane.try_push(entry)
        };
        sent.map_err(|refused| match refused {
            Refused::Closed(Entry::Info(message)) => SendError::Closed(message),
            Refused::Full(Entry::Info(message)) => {
                self.counters.rejected(1);
                SendError::Full(message)
            }
            _ => unreachable!("the lane gives back what it was given"),
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

fn closed<T, R, M>(entry: Entry<T, R, M>) -> SendError<T> {
    SendError::Closed(item_of(entry))
}

fn item_of<T, R, M>(entry: Entry<T, R, M>) -> T {
    match entry.into_item() {
        Some(item) => item,
        None => unreachable!("the lane gives back what it was given"),
    }
}
