//! The decisions of an actor: pure, told the time, knowing neither items nor queues nor threads.
//!
//! A driver asks [`Core::poll`] with the backlog, does the [`Step`] of the answer and reports back:
//! `handle_batch` when it took a batch, `handle_done` when that is finished. The order of the answers: a
//! stop before everything, a continue before any further batch, then batches, and with nothing left the
//! idle call once, then rest. A drain never waits for company, and no actor ends while a batch runs. The
//! [`Boundary`] holds the controller and the batches that run; this file adds the life of an actor.
//!
//! Invariants: no batch is empty; no limit passes the bounds; after the end nothing but the end is
//! answered; the handler is told of idleness once between two batches, while no batch runs.

use crate::Time;
use crate::boundary::{self, Boundary, BoundaryError, Cut};
use crate::controller::{BatchId, Load, Reason, Snapshot};

/// See the [module](self).
pub(super) struct Core {
    boundary: Boundary,
    life: Life,
    /// The handler asked for a continue.
    continuing: bool,
    /// The handler was told that nothing waits.
    idle: bool,
    /// The next batch is taken before its time, because there is no room for more.
    pressed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// Nothing more is accepted; the items that wait or are still on their way from senders' buffers are
    /// handled.
    Draining,
    /// All of them have come.
    Drained,
    Stopped,
}

/// The next move of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Call the handler's continue.
    Continue,
    /// Take a batch within this and hand it over.
    Take(Load),
    /// Wait until more than `items` wait, or until `until`, then ask again.
    Hold { items: u64, until: Time },
    /// Wait until a batch is done, or until `until`: no other may start before.
    Busy { until: Time },
    /// Tell the handler that nothing waits.
    Idle,
    /// Wait for anything to happen.
    Rest,
    /// Terminate the handler: nothing waits, or the rest is to be given back.
    End,
}

/// Nothing but the end of a batch helps.
pub(super) const BUSY: Step = Step::Busy { until: Time::NEVER };

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

    /// What to do at `now`, while `backlog` waits, the oldest of it since `oldest`.
    pub(super) fn poll(&mut self, now: Time, backlog: Load, oldest: Time) -> Step {
        if self.life == Life::Stopped {
            return match self.boundary.running() {
                0 => Step::End,
                _ => BUSY,
            };
        }
        if std::mem::take(&mut self.continuing) {
            return Step::Continue;
        }
        if backlog.items == 0 {
            return self.poll_empty();
        }
        self.pressed = false;
        let now = self.boundary.at(now);
        let step = self.boundary.poll(now, backlog, oldest);
        match step.unwrap_or_else(impossible) {
            boundary::Step::Take(limit) => Step::Take(limit),
            boundary::Step::Hold { .. } if self.life != Life::Running => {
                Step::Take(self.boundary.limit())
            }
            boundary::Step::Hold { items, until } => Step::Hold { items, until },
            boundary::Step::Busy { until } => Step::Busy { until },
            boundary::Step::Rest => Step::Rest,
        }
    }

    /// Instead of the hold just answered: the items it waits for have no room to come.
    pub(super) fn take_now(&mut self) -> Step {
        self.pressed = true;
        Step::Take(self.boundary.limit())
    }

    /// Instead of the hold just answered: the driver waits no longer.
    pub(super) const fn take_held(&self) -> Step {
        Step::Take(self.boundary.limit())
    }

    fn poll_empty(&mut self) -> Step {
        let runs = self.boundary.running() > 0;
        if self.life == Life::Drained {
            if runs {
                return BUSY;
            }
            self.life = Life::Stopped;
            return Step::End;
        }
        if runs || std::mem::replace(&mut self.idle, true) {
            Step::Rest
        } else {
            Step::Idle
        }
    }

    /// A batch was taken, `left` stayed behind. Answers its id and why it was cut there; `None` if it is
    /// empty after all, because all its callers had given up: then there is nothing to handle.
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

    /// `calls` calls arrived at `at`, told before anything that happened later.
    pub(super) fn handle_arrived(&mut self, at: Time, calls: u64) {
        let at = self.boundary.at(at);
        let told = self.boundary.arrived(at, Load::items(calls));
        told.unwrap_or_else(impossible);
    }

    /// Callers of `calls` calls got their answers, while their batch counts as running.
    pub(super) fn handle_answered(&mut self, now: Time, calls: u64) {
        let now = self.boundary.at(now);
        let told = self.boundary.expect(now, calls);
        told.unwrap_or_else(impossible);
    }

    /// The batch of `id` is finished, `ok` if it did its work, and the callers of its `calls` calls are told.
    /// Answers how long it took, in nanoseconds.
    pub(super) fn handle_done(&mut self, now: Time, id: BatchId, ok: bool, calls: u64) -> u64 {
        let now = self.boundary.at(now);
        let cost_ns = self.boundary.done(now, id, ok);
        let told = self.boundary.expect(now, calls);
        told.and(cost_ns).unwrap_or_else(impossible)
    }

    /// Like `handle_done`, for a batch that was finished before the actor looked: it took `cost_ns`.
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

    /// How many batches run.
    pub(super) const fn running(&self) -> u32 {
        self.boundary.running()
    }

    /// How many batches may run at once.
    pub(super) const fn in_flight(&self) -> u32 {
        self.boundary.in_flight()
    }

    /// Call the handler's continue before anything else.
    pub(super) fn ask_continue(&mut self) {
        self.continuing = true;
    }

    /// Nothing more is accepted: handle the items that wait, and end after them if that is all (`has_come`).
    pub(super) fn drain(&mut self, has_come: bool) {
        if self.life != Life::Stopped {
            self.life = if has_come {
                Life::Drained
            } else {
                Life::Draining
            };
        }
    }

    /// End now.
    pub(super) fn stop(&mut self) {
        self.life = Life::Stopped;
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// A boundary refuses only calls that contradict each other, and an actor makes none.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the actor keeps to the order of calls: {error}")
}

#[cfg(test)]
mod tests;
