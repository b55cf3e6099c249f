//! The slots of a pipeline, in which callers wait for the outcome of their submissions.
//!
//! Invariant: the pipeline reuses a slot only after its caller has taken the outcome or dropped its future,
//! and after its last reply has arrived.

use std::sync::Arc;
use std::task::Waker;

use crate::error::Executed;
use crate::reply::Value;

/// The number of the slot in which one caller waits for the replies to one submission.
pub(crate) type SlotId = u32;

/// The slot number of an entry that has no slot, because no caller wants its replies.
pub(super) const NO_SLOT: SlotId = SlotId::MAX;

/// The outcome of one submission for its caller: its replies, or the reason why there are none.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    One(Value),
    Many(Vec<Value>),
    Failed(Failure),
}

/// The reason why the commands of a submission get no reply, from which the caller's error is made.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Lost { executed: Executed, cause: Arc<str> },
    TimedOut(Executed),
    Closed,
}

#[derive(Debug)]
enum Slot {
    Free,
    Waiting {
        waker: Option<Waker>,
        /// The replies that have arrived so far for a submission of several commands. The caller gets them
        /// together.
        gathered: Vec<Value>,
    },
    Ready(Outcome),
    /// The caller has dropped its future, so the pipeline discards the replies when they arrive.
    Abandoned,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<SlotId>,
}

impl Slots {
    pub(super) fn open(&mut self) -> SlotId {
        let state = Slot::Waiting {
            waker: None,
            gathered: Vec::new(),
        };
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = state;
            return slot;
        }
        self.slots.push(state);
        // The cast loses nothing: there are at most as many slots as commands queued, in flight and answered
        // but not yet taken, which is far below four billion.
        (self.slots.len() - 1) as SlotId
    }

    /// Takes the outcome of `slot`. If there is no outcome yet, stores `waker`, and wakes it once there is
    /// one.
    pub(super) fn take(&mut self, slot: SlotId, waker: &Waker) -> Option<Outcome> {
        let state = &mut self.slots[slot as usize];
        if let Slot::Waiting { waker: known, .. } = state {
            match known {
                Some(w) if w.will_wake(waker) => {}
                _ => *known = Some(waker.clone()),
            }
            return None;
        }
        match std::mem::replace(state, Slot::Free) {
            Slot::Ready(outcome) => {
                self.free.push(slot);
                Some(outcome)
            }
            _ => unreachable!("a slot is taken once, by its caller"),
        }
    }

    /// Gives up `slot`, because its caller dropped its future.
    pub(super) fn abandon(&mut self, slot: SlotId) {
        let state = &mut self.slots[slot as usize];
        match state {
            Slot::Ready(_) => {
                *state = Slot::Free;
                self.free.push(slot);
            }
            _ => *state = Slot::Abandoned,
        }
    }

    /// Records one reply for `slot`: the only reply, or the last of several. Returns 1 if the reply completes
    /// the outcome of a waiting caller, otherwise 0.
    pub(super) fn answer(
        &mut self,
        slot: SlotId,
        value: Value,
        only: bool,
        last: bool,
        wakers: &mut Vec<Waker>,
    ) -> u64 {
        let Some(state) = self.slots.get_mut(slot as usize) else {
            return 0;
        };
        match state {
            Slot::Waiting { waker, gathered } => {
                let outcome = if only {
                    Outcome::One(value)
                } else {
                    gathered.push(value);
                    if !last {
                        return 0;
                    }
                    Outcome::Many(std::mem::take(gathered))
                };
                wakers.extend(waker.take());
                *state = Slot::Ready(outcome);
                1
            }
            Slot::Abandoned if last => {
                *state = Slot::Free;
                self.free.push(slot);
                0
            }
            _ => 0,
        }
    }

    /// Completes `slot` with `failure`, because no reply will come, and collects the waker of its caller.
    pub(super) fn fail(&mut self, slot: SlotId, failure: Failure, wakers: &mut Vec<Waker>) {
        let Some(state) = self.slots.get_mut(slot as usize) else {
            return;
        };
        match state {
            Slot::Waiting { waker, .. } => {
                wakers.extend(waker.take());
                *state = Slot::Ready(Outcome::Failed(failure));
            }
            Slot::Abandoned => {
                *state = Slot::Free;
                self.free.push(slot);
            }
            Slot::Ready(_) | Slot::Free => {}
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }
}
