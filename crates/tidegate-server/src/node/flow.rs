//! When the loop stops gathering and writes: the engine at the boundary of the sockets.
//!
//! An item is a copy of a message in an outbox, a batch is what one round of writes carries, its cost the
//! time these writes take. The controller answers how much may be gathered before the next round, and, with
//! an objective that puts a price on writing, until when a smaller batch may wait.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::{
    BatchId, Bounds, Choice, ChoiceError, Controller, Event, Load, Reason, Snapshot, When,
};

/// Copies in one batch, at most and at least.
const ITEMS_MAX: u64 = 65_536;
const ITEMS_MIN: u64 = 16;
/// Bytes in one batch: beyond it outboxes fall out of the caches.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest a message waits for company, whatever the objective.
const AGE_MAX: Duration = Duration::from_millis(100);

/// The controller of the socket writes.
pub(crate) struct Flow {
    controller: Box<dyn Controller>,
    limit: Load,
    /// What bounds the limit.
    reason: Reason,
    /// When the oldest message not written was gathered.
    oldest: Option<Time>,
}

impl Flow {
    /// `choice`, within the bounds of this boundary.
    pub(crate) fn new(choice: Choice) -> Result<Self, ChoiceError> {
        let bounds = Bounds {
            bytes_max: BYTES_MAX,
            age_max: AGE_MAX,
            ..Bounds::items(ITEMS_MIN, ITEMS_MAX)
        };
        Ok(Self {
            controller: choice.build(bounds)?,
            limit: Load::new(ITEMS_MAX, BYTES_MAX),
            reason: Reason::Memory,
            oldest: None,
        })
    }

    /// How much may be gathered before it is written.
    pub(crate) const fn limit(&self) -> Load {
        self.limit
    }

    /// What bounds that.
    pub(crate) const fn reason(&self) -> Reason {
        self.reason
    }

    /// `gathered` waits and there is nothing else to do: until when may it wait? `None`: write now.
    pub(crate) fn wait(&mut self, now: Time, gathered: Load) -> Option<Time> {
        if gathered.items == 0 {
            return None;
        }
        let oldest = *self.oldest.get_or_insert(now);
        let ready = Event::Ready {
            backlog: gathered,
            oldest,
        };
        match self.controller.on(now, ready).when {
            When::Now => None,
            When::At(at) => Some(at).filter(|at| *at > now),
            When::After { items, until } => {
                Some(until).filter(|u| *u > now && gathered.items < items)
            }
        }
    }

    /// A round of writes begins with `batch`.
    pub(crate) fn started(&mut self, now: Time, batch: Load, reason: Reason) {
        self.oldest = None;
        let left = Load::default();
        self.controller.on(
            now,
            Event::Started {
                id: BatchId::default(),
                batch,
                left,
                reason,
            },
        );
    }

    /// It took `cost_ns`.
    pub(crate) fn done(&mut self, now: Time, cost_ns: u64) {
        let decision = self.controller.on(
            now,
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok: true,
            },
        );
        self.limit = Load::new(decision.limit_items, decision.limit_bytes);
        self.reason = decision.reason;
    }

    /// What the controller knows, for the monitor.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.controller.snapshot()
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
