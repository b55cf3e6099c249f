//! Decides how long the loop gathers before it writes: the engine at the boundary of the sockets.
//!
//! An item is a copy of a message in an outbox. A batch is all copies in one round of writes, and its
//! cost is the time of these writes. The controller decides how much the loop may gather before the
//! next round and, with an objective that puts a price on writing, until when a smaller batch may wait.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, DecisionLog, Step};
use tidegate::controller::{BatchId, Bounds, Choice, ChoiceError, Load, Reason, Snapshot};

/// The largest and the smallest limit on the copies in one batch.
const ITEMS_MAX: u64 = 65_536;
const ITEMS_MIN: u64 = 16;
/// Bytes in one batch: beyond it outboxes fall out of the caches.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest that a message waits for others, under any objective.
const AGE_MAX: Duration = Duration::from_millis(100);

/// The boundary of the socket writes.
#[derive(Debug)]
pub(crate) struct Flow {
    boundary: Boundary,
    /// The time at which the oldest unwritten message was gathered.
    oldest: Option<Time>,
    /// The round of writes in progress.
    writing: Option<BatchId>,
}

impl Flow {
    /// Builds the controller of `choice` within the bounds of this boundary.
    pub(crate) fn new(choice: Choice) -> Result<Self, ChoiceError> {
        let bounds = Bounds {
            bytes_max: BYTES_MAX,
            age_max: AGE_MAX,
            ..Bounds::items(ITEMS_MIN, ITEMS_MAX)
        };
        Ok(Self {
            boundary: Boundary::new(choice.build(bounds)?, bounds)?,
            oldest: None,
            writing: None,
        })
    }

    /// Writes the decisions into `log`, under the name `sockets`.
    pub(crate) fn log_to(&mut self, log: &DecisionLog) {
        self.boundary.log_to(log, "sockets");
    }

    /// The most that the loop gathers before it writes.
    pub(crate) const fn limit(&self) -> Load {
        self.boundary.limit()
    }

    /// The reason for the current limit.
    pub(crate) const fn reason(&self) -> Reason {
        self.boundary.reason()
    }

    /// Decides on `gathered` in an idle loop. Returns the time until which it may wait; `None`: write now.
    pub(crate) fn wait(&mut self, now: Time, gathered: Load) -> Option<Time> {
        if gathered.items == 0 {
            return None;
        }
        let oldest = *self.oldest.get_or_insert(now);
        let now = self.boundary.at(now);
        match self
            .boundary
            .poll(now, gathered, oldest)
            .unwrap_or_else(impossible)
        {
            Step::Hold { until, .. } => Some(until),
            Step::Take(_) | Step::Busy { .. } | Step::Rest => None,
        }
    }

    /// A round of writes begins with `batch`.
    pub(crate) fn started(&mut self, now: Time, batch: Load, reason: Reason) {
        self.oldest = None;
        let (now, left) = (self.boundary.at(now), Load::default());
        let cut = Cut::Forced(reason);
        let started = self.boundary.started(now, batch, left, cut);
        self.writing = Some(started.unwrap_or_else(impossible));
    }

    /// The round of writes took `cost_ns`.
    pub(crate) fn done(&mut self, now: Time, cost_ns: u64) {
        if let Some(id) = self.writing.take() {
            let now = self.boundary.at(now);
            let done = self.boundary.done_with(now, id, cost_ns, true);
            done.unwrap_or_else(impossible);
        }
    }

    /// A snapshot of the controller, for the monitor.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// A boundary refuses only calls that contradict each other.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the loop keeps to the order of calls: {error}")
}
