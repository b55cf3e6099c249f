//! The decisions of an actor, as pure code: the driver passes the time, and the
//! core sees no item, queue or thread.
//!
//! A driver calls [`Core::poll`] with the backlog, performs the [`DriverStep`] that it returns, and reports
//! back: `handle_batch` after it took a batch, `handle_done` after that batch is finished. A stop comes
//! before every other step, and a continue before any further batch. With an empty backlog the core
//! returns the idle step once, and then the rest step. An actor that drains never waits for further items,
//! and no actor ends while a batch runs. The [`Boundary`] holds the controller and the running batches;
//! this file adds the life of an actor.
//!
//! Invariants: no batch is empty; no limit exceeds the bounds; after the end the core returns only the end;
//! between two batches the core returns the idle step at most once, and only while no batch runs.

use crate::Time;
use crate::boundary::{self, Boundary, BoundaryError, Cut};
use crate::controller::{BatchId, Load, Reason, Snapshot};

/// The decisions of one actor: see the [module](self).
pub(super) struct Core {
    boundary: Boundary,
    life: Life,
    /// True if the handler asked for a continue.
    continuing: bool,
    /// True if the core returned the idle step since the last batch.
    idle: bool,
    /// True if the next batch starts before its wait ends, because senders find no room.
    pressed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// The actor accepts nothing more, and handles the items that wait and those still in senders' buffers.
    Draining,
    /// No further item can arrive.
    Drained,
    Stopped,
}

/// The next step of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverStep {
    /// Call the handler's continue.
    Continue,
    /// Take a batch within these limits and hand it over.
    Take(Load),
    /// Wait until more than `items` items wait, or until `until`, then poll again.
    Hold { items: u64, until: Time },
    /// Wait until a batch is done, or until `until`: no other batch may start before.
    Busy { until: Time },
    /// Call the handler's `idle`: nothing waits.
    Idle,
    /// Wait for the next event.
    Rest,
    /// Terminate the handler: nothing waits, or the actor gives the waiting items back.
    End,
}

/// The step of a driver while only the end of a batch allows another one.
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

    /// Returns the next step at `now`, while `backlog` waits. The oldest waiting item arrived at `oldest`.
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

    /// Replaces the hold that `poll` just returned by a batch, because the awaited items find no room.
    pub(super) fn take_now(&mut self) -> DriverStep {
        self.pressed = true;
        DriverStep::Take(self.boundary.limit())
    }

    /// Replaces the hold that `poll` just returned by a batch, because the driver waits no longer.
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

    /// Reports that the driver took a batch and `left` stayed behind. Returns the id of the batch and the
    /// reason of its cut. Returns `None` if the batch is empty because all its callers gave up.
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

    /// Reports that `calls` calls arrived at `at`. The actor reports them before any later event.
    pub(super) fn handle_arrived(&mut self, at: Time, calls: u64) {
        let at = self.boundary.at(at);
        let told = self.boundary.arrived(at, Load::items(calls));
        told.unwrap_or_else(impossible);
    }

    /// Reports that the callers of `calls` calls got their answers while their batch counts as running.
    pub(super) fn handle_answered(&mut self, now: Time, calls: u64) {
        let now = self.boundary.at(now);
        let told = self.boundary.expect(now, calls);
        told.unwrap_or_else(impossible);
    }

    /// Reports that the batch of `id` is finished, `ok` if it did its work, and that the callers of its
    /// `calls` calls have their answers. Returns the duration of the batch in nanoseconds.
    pub(super) fn handle_done(&mut self, now: Time, id: BatchId, ok: bool, calls: u64) -> u64 {
        let now = self.boundary.at(now);
        let cost_ns = self.boundary.done(now, id, ok);
        let told = self.boundary.expect(now, calls);
        told.and(cost_ns).unwrap_or_else(impossible)
    }

    /// Reports like `handle_done` a batch that finished before the actor noticed: the batch took `cost_ns`.
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

    /// Returns the number of running batches.
    pub(super) const fn running(&self) -> u32 {
        self.boundary.running()
    }

    /// Returns the number of batches that may run at once.
    pub(super) const fn in_flight(&self) -> u32 {
        self.boundary.in_flight()
    }

    /// Makes the next poll return the continue, unless the actor stops.
    pub(super) fn ask_continue(&mut self) {
        self.continuing = true;
    }

    /// Starts a drain: the actor accepts nothing more and handles the waiting items. It ends after them once
    /// no further item can arrive (`has_come`).
    pub(super) fn drain(&mut self, has_come: bool) {
        if self.life != Life::Stopped {
            self.life = if has_come {
                Life::Drained
            } else {
                Life::Draining
            };
        }
    }

    /// Ends the actor as soon as no batch runs.
    pub(super) fn stop(&mut self) {
        self.life = Life::Stopped;
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// Panics with `error`. A boundary refuses only calls that contradict each other,
/// and an actor makes no such call.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the actor keeps to the order of calls: {error}")
}

#[cfg(test)]
mod tests;
