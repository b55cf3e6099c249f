//! Group commit: which of the waiting batches the next sync covers, and when it starts. Pure: told the time, knowing numbers
//! only; the engine's controller decides, with the disk as the server whose cost is fitted. `driver` does what it says.
//!
//! Order of calls: `handle_arrived` for everything that came, with the time it came at; then `poll`, and what it says; after
//! a sync what came meanwhile first, then `handle_done`, then `poll` again. One sync at a time.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate::controller::{Bounded, Controller, Event, Load, Reason, Snapshot, When};

/// Decides about syncs.
pub(crate) struct GroupCommit {
    controller: Bounded<Box<dyn Controller>>,
    waiting: VecDeque<Waiting>,
    backlog: Load,
    running: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    load: Load,
    since: Time,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write and sync so many of the batches that wait, the oldest first.
    Take(usize),
    /// Wait until something arrives, at most until then, and ask again.
    Hold(Time),
    /// Nothing waits.
    Rest,
}

impl GroupCommit {
    pub(crate) const fn new(controller: Bounded<Box<dyn Controller>>) -> Self {
        Self {
            controller,
            waiting: VecDeque::new(),
            backlog: Load::items(0),
            running: None,
        }
    }

    /// A batch came, for so many callers that wait for it.
    pub(crate) fn handle_arrived(&mut self, at: Time, callers: u64, bytes: u64) {
        let load = Load::new(callers, bytes);
        self.backlog.items += callers;
        self.backlog.bytes += bytes;
        self.waiting.push_back(Waiting { load, since: at });
        self.controller.on(at, Event::Arrived(load));
    }

    /// What to do at `now`; with `closing` nothing waits for company.
    pub(crate) fn poll(&mut self, now: Time, closing: bool) -> Step {
        debug_assert!(self.running.is_none(), "one sync at a time");
        let Some(oldest) = self.waiting.front() else {
            return Step::Rest;
        };
        let ready = Event::Ready {
            backlog: self.backlog,
            oldest: oldest.since,
        };
        let decision = self.controller.on(now, ready);
        let until = match decision.when {
            When::Now => now,
            When::At(until) => until,
            When::After { items, .. } if self.backlog.items >= items => now,
            When::After { until, .. } => until,
        };
        if until > now && !closing {
            return Step::Hold(until);
        }
        self.take(
            now,
            Load::new(decision.limit_items, decision.limit_bytes),
            decision.reason,
        )
    }

    /// Takes as many as the limit allows, at least one.
    fn take(&mut self, now: Time, limit: Load, reason: Reason) -> Step {
        let (mut taken, mut batch) = (0, Load::default());
        while let Some(next) = self.waiting.front() {
            let with = Load::new(batch.items + next.load.items, batch.bytes + next.load.bytes);
            if taken > 0 && (with.items > limit.items || with.bytes > limit.bytes) {
                break;
            }
            (taken, batch) = (taken + 1, with);
            self.waiting.pop_front();
        }
        self.backlog.items -= batch.items;
        self.backlog.bytes -= batch.bytes;
        let reason = match (self.waiting.is_empty(), reason) {
            (true, Reason::Anticipate | Reason::Age | Reason::Pace) => reason,
            (true, _) => Reason::Drained,
            (false, Reason::Drained) => Reason::Limit,
            (false, _) => reason,
        };
        let started = Event::Started {
            batch,
            left: self.backlog,
            reason,
        };
        self.controller.on(now, started);
        self.running = Some(now);
        Step::Take(taken)
    }

    /// The sync is through.
    pub(crate) fn handle_done(&mut self, now: Time, ok: bool) {
        if let Some(since) = self.running.take() {
            let cost_ns = now.since(since);
            self.controller.on(now, Event::Done { cost_ns, ok });
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.controller.snapshot()
    }
}
