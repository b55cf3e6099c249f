//! The decisions of an actor, as pure code: the driver (a thread or task that runs the actor) passes the
//! time, and the core sees no item, queue or thread.
//!
//! A driver calls [`Core::poll`] with the backlog, performs the [`DriverStep`] that it returns, and reports
//! back: `handle_batch` after the driver took a batch, `handle_done` after that batch is finished. A stop
//! comes before every other step, and a call of `handle_continue` before any further batch. With an empty
//! backlog the core returns the idle step once, and then the rest step. An actor that drains never waits
//! for further items, and no actor ends while a batch runs. The [`Boundary`] holds the controller and the
//! running batches; this file adds the life of an actor.
//!
//! Invariants: no batch is empty; no limit exceeds the bounds; after the end step the core returns only the
//! end step; between two batches the core returns the idle step at most once, and only while no batch runs.

use crate::Time;
use crate::boundary::{self, Boundary, BoundaryError, Cut};
use crate::controller::{BatchId, Load, Reason, SizeCosts, Snapshot};

/// The decisions of one actor: a boundary with its controller, and the state of the actor's life. See the
/// [module](self).
pub(super) struct Core {
    boundary: Boundary,
    life: Life,
    /// True if the handler asked the actor to call `handle_continue` before the next batch.
    continuing: bool,
    /// True if the core has told the driver, since the last batch, to call the handler's `idle`, which the
    /// driver calls at most once between two batches.
    idle: bool,
    /// True if the core cuts the wait before the next batch short, because senders find no room and no item
    /// can arrive.
    pressed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// The actor accepts no more items. It handles the items in the queue and those still in senders'
    /// buffers, and then ends.
    Draining,
    /// The actor drains, its queue is closed, and no item waits. The actor ends once no batch runs, unless a
    /// running batch gives items back.
    Drained,
    Stopped,
}

/// The next action of a driver, as the core of its actor decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverStep {
    /// The driver calls the handler's `handle_continue`, because the handler asked for the call.
    Continue,
    /// The driver takes a batch within these limits and passes it to the handler.
    Take(Load),
    /// The driver waits until more than `items` items wait, or until the time `until`, then polls the core
    /// again.
    Hold { items: u64, until: Time },
    /// The driver waits until a running batch is done, or until the time `until`: no other batch may start
    /// before.
    Busy { until: Time },
    /// The driver calls the handler's `idle`, because no item waits.
    Idle,
    /// The driver has nothing to do now, so it waits for the next event, such as the arrival of an item.
    Rest,
    /// The driver terminates the handler, because the actor has drained and no item waits, or because the
    /// actor was stopped and gives the waiting items back.
    End,
}

/// The step of a driver that can start another batch only after a running batch ends.
pub(super) const BUSY: DriverStep = DriverStep::Busy { until: Time::NEVER };

impl Core {
    pub(super) const fn new(boundary: Boundary) -> Self {
        Self {
            boundary,
            life: Life::Running,
            continuing: false,
            idle: false,
            pressed: false,
        }
    }

    /// Returns the next step of the driver at time `now`, with the waiting load `backlog`. The oldest
    /// waiting item arrived at time `oldest`.
    pub(super) fn poll(&mut self, now: Time, backlog: Load, oldest: Time) -> DriverStep {
        if self.life == Life::Stopped {
            return match self.boundary.running() {
                0 => DriverStep::End,
                _ => BUSY,
            };
        }
        if std::mem::take(&mut self.continuing) {
            return DriverStep::Continue;
        }
        if backlog.items == 0 {
            return self.poll_empty();
        }
        self.pressed = false;
        let now = self.boundary.at(now);
        let step = self.boundary.poll(now, backlog, oldest);
        match step.unwrap_or_else(impossible) {
            boundary::Step::Take(limit) => DriverStep::Take(limit),
            boundary::Step::Hold { .. } if self.life != Life::Running => {
                DriverStep::Take(self.boundary.limit())
            }
            boundary::Step::Hold { items, until } => DriverStep::Hold { items, until },
            boundary::Step::Busy { until } => DriverStep::Busy { until },
            boundary::Step::Rest => DriverStep::Rest,
        }
    }

    /// Starts a batch in place of the hold that `poll` just returned, because the items for which the actor
    /// would wait find no room.
    pub(super) fn take_now(&mut self) -> DriverStep {
        self.pressed = true;
        DriverStep::Take(self.boundary.limit())
    }

    /// Starts a batch in place of the hold that `poll` just returned, because the driver has stopped
    /// waiting for more items.
    pub(super) const fn take_held(&self) -> DriverStep {
        DriverStep::Take(self.boundary.limit())
    }

    fn poll_empty(&mut self) -> DriverStep {
        let runs = self.boundary.running() > 0;
        if self.life == Life::Drained {
            if runs {
                return BUSY;
            }
            self.life = Life::Stopped;
            return DriverStep::End;
        }
        if runs || std::mem::replace(&mut self.idle, true) {
            DriverStep::Rest
        } else {
            DriverStep::Idle
        }
    }

    /// Reports that the driver took the load `batch` and left the load `left` in the backlog. Returns the
    /// id of the batch and the reason of its cut. Returns `None` if the batch is empty because all its
    /// callers gave up.
    pub(super) fn handle_batch(
        &mut self,
        now: Time,
        batch: Load,
        left: Load,
        cut: Cut,
    ) -> Option<(BatchId, Reason)> {
        if batch.items == 0 {
            return None;
        }
        let cut = match cut {
            Cut::Drained if self.life != Life::Running => Cut::Forced(Reason::Closing),
            Cut::Drained if self.pressed => Cut::Forced(Reason::Memory),
            cut => cut,
        };
        self.idle = false;
        let reason = self.boundary.reason_for(cut);
        let now = self.boundary.at(now);
        let id = self.boundary.started(now, batch, left, cut);
        Some((id.unwrap_or_else(impossible), reason))
    }

    /// Reports that `calls` calls arrived at time `at`, for a controller that anticipates calls.
    pub(super) fn handle_arrived(&mut self, at: Time, calls: u64) {
        let at = self.boundary.at(at);
        let told = self.boundary.arrived(at, Load::items(calls));
        told.unwrap_or_else(impossible);
    }

    /// Reports to the controller that the callers of `calls` calls got their answers while the batch of these
    /// calls still runs.
    pub(super) fn handle_answered(&mut self, now: Time, calls: u64) {
        let now = self.boundary.at(now);
        let told = self.boundary.expect(now, calls);
        told.unwrap_or_else(impossible);
    }

    /// Reports to the controller that the batch `id` is finished, and that the callers of its `calls` calls
    /// have their answers. `ok` is false if the batch failed. Returns the duration of the batch in
    /// nanoseconds.
    pub(super) fn handle_done(&mut self, now: Time, id: BatchId, ok: bool, calls: u64) -> u64 {
        let now = self.boundary.at(now);
        let cost_ns = self.boundary.done(now, id, ok);
        let told = self.boundary.expect(now, calls);
        told.and(cost_ns).unwrap_or_else(impossible)
    }

    /// Reports a finished batch like `handle_done`, with the duration `cost_ns` in nanoseconds, because the
    /// batch finished some time before the actor noticed it.
    pub(super) fn handle_done_with(
        &mut self,
        now: Time,
        id: BatchId,
        cost_ns: u64,
        ok: bool,
        calls: u64,
    ) {
        let now = self.boundary.at(now);
        let done = self.boundary.done_with(now, id, cost_ns, ok);
        let told = done.and_then(|()| self.boundary.expect(now, calls));
        told.unwrap_or_else(impossible);
    }

    /// Returns the number of batches that run now, for the statistics of the actor.
    pub(super) const fn running(&self) -> u32 {
        self.boundary.running()
    }

    /// Returns the number of batches that may run at once, by the controller's latest decision.
    pub(super) const fn in_flight(&self) -> u32 {
        self.boundary.in_flight()
    }

    /// Makes the next poll return [`DriverStep::Continue`], unless the actor stops, because the handler
    /// asked for a call of `handle_continue`.
    pub(super) fn ask_continue(&mut self) {
        self.continuing = true;
    }

    /// Starts a drain: the actor accepts no more items, and handles the waiting items. `has_come` is true
    /// once the queue is closed and no item waits; then the actor ends as soon as no batch runs.
    pub(super) fn drain(&mut self, has_come: bool) {
        if self.life != Life::Stopped {
            self.life = if has_come {
                Life::Drained
            } else {
                Life::Draining
            };
        }
    }

    /// Stops the actor: the core starts no further batch, and ends the actor once no batch runs.
    pub(super) fn stop(&mut self) {
        self.life = Life::Stopped;
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    pub(super) fn size_costs(&self) -> SizeCosts {
        self.boundary.size_costs()
    }
}

/// Panics with `error`. A boundary refuses only calls that contradict each other, and an actor makes no
/// such call, so the error is a bug of the actor.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the actor keeps to the order of calls: {error}")
}

#[cfg(test)]
mod tests;
