//! What an actor does next: pure, told the time, knowing neither items nor queues nor threads.
//!
//! A driver asks [`Core::poll`] with what waits, does the [`Step`] it is answered and reports back:
//! `handle_batch` when it took a batch, `handle_done` when that is finished. The order of the answers: a stop
//! before everything, a continue before any further batch, then batches, and with nothing left the idle call
//! once, then rest. A drain never waits for company.
//!
//! Invariants: no batch is empty; no limit passes the bounds; every batch reported is done before the next is
//! taken; after the end nothing but the end is answered; the handler is told of idleness once between two
//! batches.

use crate::Time;
use crate::controller::{
    BatchId, Bounded, Controller, Decision, Event, Load, Reason, Snapshot, When,
};

/// See the [module](self).
pub(super) struct Core {
    controller: Bounded<Box<dyn Controller>>,
    life: Life,
    /// The handler asked for a continue.
    continuing: bool,
    /// The handler was told that nothing waits.
    idle: bool,
    /// The decision that the next batch is taken under.
    decision: Decision,
    /// It was taken before its time, because there was no room for more.
    pressed: bool,
    /// When the batch in the handler's hands was taken.
    running: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// Nothing more is accepted; what waits or is still on its way from senders' buffers is handled.
    Draining,
    /// All of that has come.
    Drained,
    Stopped,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Call the handler's continue.
    Continue,
    /// Take a batch within this and hand it over.
    Take(Load),
    /// Wait until more than `items` wait, or until `until`, then ask again.
    Hold { items: u64, until: Time },
    /// Tell the handler that nothing waits.
    Idle,
    /// Wait for whatever comes.
    Rest,
    /// Terminate the handler: nothing waits, or nobody wants it handled.
    End,
}

/// Where gathering a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Nothing was left.
    Drained,
    /// The limit on items.
    Items,
    /// The next item would have passed the limit on bytes.
    Bytes,
    /// A single item larger than the limit on bytes.
    Oversized,
    /// The handler wanted no more.
    Finished,
}

impl Core {
    pub(super) const fn new(controller: Bounded<Box<dyn Controller>>) -> Self {
        Self {
            controller,
            life: Life::Running,
            continuing: false,
            idle: false,
            decision: Decision::now(1, Reason::Drained),
            pressed: false,
            running: None,
        }
    }

    /// What to do at `now`, while `backlog` waits, the oldest of it since `oldest`.
    pub(super) fn poll(&mut self, now: Time, backlog: Load, oldest: Time) -> Step {
        debug_assert!(self.running.is_none(), "the batch before is still running");
        if self.life == Life::Stopped {
            return Step::End;
        }
        if std::mem::take(&mut self.continuing) {
            return Step::Continue;
        }
        if backlog.items == 0 {
            return self.poll_empty();
        }
        let decision = self.controller.on(now, Event::Ready { backlog, oldest });
        self.decision = decision;
        self.pressed = false;
        let limit = Load::new(decision.limit_items, decision.limit_bytes);
        let (items, until) = match decision.when {
            _ if self.life != Life::Running => return Step::Take(limit),
            When::Now => return Step::Take(limit),
            // Each arrival may change its mind.
            When::At(until) => (backlog.items, until),
            When::After { items, until } => (items.saturating_sub(1).max(backlog.items), until),
        };
        if now >= until {
            return Step::Take(limit);
        }
        Step::Hold { items, until }
    }

    /// Instead of the wait just answered: what that waits for has no room to come.
    pub(super) fn take_now(&mut self) -> Step {
        self.pressed = true;
        let Decision {
            limit_items,
            limit_bytes,
            ..
        } = self.decision;
        Step::Take(Load::new(limit_items, limit_bytes))
    }

    fn poll_empty(&mut self) -> Step {
        if self.life == Life::Drained {
            self.life = Life::Stopped;
            return Step::End;
        }
        if std::mem::replace(&mut self.idle, true) {
            Step::Rest
        } else {
            Step::Idle
        }
    }

    /// A batch was taken, `left` stayed behind. Says why it was cut there; `None` if it is empty after all,
    /// because everybody in it had given up: then there is nothing to handle.
    pub(super) fn handle_batch(
        &mut self,
        now: Time,
        batch: Load,
        left: Load,
        cut: Cut,
    ) -> Option<Reason> {
        if batch.items == 0 {
            return None;
        }
        let reason = self.reason(cut);
        self.idle = false;
        self.running = Some(now);
        let started = Event::Started {
            id: BatchId::default(),
            batch,
            left,
            reason,
        };
        self.controller.on(now, started);
        Some(reason)
    }

    fn reason(&self, cut: Cut) -> Reason {
        let decided = self.decision.reason;
        match cut {
            Cut::Finished => Reason::Asked,
            Cut::Oversized => Reason::Oversized,
            Cut::Bytes => Reason::Memory,
            // More may have come since the decision found the backlog below the limit.
            Cut::Items if decided == Reason::Drained => Reason::Limit,
            Cut::Items => decided,
            Cut::Drained if self.life != Life::Running => Reason::Closing,
            Cut::Drained if self.pressed => Reason::Memory,
            Cut::Drained => match decided {
                Reason::Linger | Reason::Age | Reason::Anticipate | Reason::Pace => decided,
                _ => Reason::Drained,
            },
        }
    }

    /// `calls` calls arrived at `at`, told before whatever happened later.
    pub(super) fn handle_arrived(&mut self, at: Time, calls: u64) {
        self.controller.on(at, Event::Arrived(Load::items(calls)));
    }

    /// The batch taken last is finished; `ok` if it did its work. Returns what it took.
    pub(super) fn handle_done(&mut self, now: Time, ok: bool) -> Option<u64> {
        let cost_ns = now.since(self.running.take()?);
        self.controller.on(
            now,
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok,
            },
        );
        Some(cost_ns)
    }

    /// Call the handler's continue before anything else.
    pub(super) fn ask_continue(&mut self) {
        self.continuing = true;
    }

    /// Nothing more is accepted: handle what waits, and end after it if all of it `has_come`.
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
        self.controller.snapshot()
    }
}

#[cfg(test)]
mod tests;
