//! Decides how long the event loop gathers messages before it writes to the sockets: a controller of the
//! engine, at the boundary of the sockets.
//!
//! An item is a copy of a message in an outbox. A batch is all copies in one round of writes, and its
//! cost is the time of these writes. The controller decides how much the loop may gather before the
//! next round and, with an objective that puts a price on writing, until when a smaller batch may wait.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, DecisionLog, Step};
use tidegate::controller::{BatchId, Bounds, Choice, ChoiceError, Load, Reason, Snapshot};

/// The largest limit that the controller may set for the copies in one batch.
const ITEMS_MAX: u64 = 65_536;
const ITEMS_MIN: u64 = 16;
/// The most bytes of a batch: with more, the outboxes would not fit into the caches of the processor.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest time for which a message waits for other messages, under any objective.
const AGE_MAX: Duration = Duration::from_millis(100);

/// The boundary at which the loop cuts the batches of its socket writes.
#[derive(Debug)]
pub(crate) struct Flow {
    boundary: Boundary,
    /// The time at which the loop gathered the oldest unwritten message.
    oldest: Option<Time>,
    /// The controller's id of the round of writes in progress.
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

    /// Makes the controller write its decisions into `log`, under the name `sockets`.
    pub(crate) fn log_to(&mut self, log: &DecisionLog) {
        self.boundary.log_to(log, "sockets");
    }

    /// Returns the most that the loop gathers before it writes.
    pub(crate) const fn limit(&self) -> Load {
        self.boundary.limit()
    }

    /// Returns the reason for the current limit.
    pub(crate) const fn reason(&self) -> Reason {
        self.boundary.reason()
    }

    /// Decides, in an idle loop, how long the `gathered` messages may wait. Returns the time until which they
    /// may; `None` if the loop must write now.
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

    /// Notes that a round of writes of `batch` begins.
    pub(crate) fn started(&mut self, now: Time, batch: Load, reason: Reason) {
        self.oldest = None;
        let (now, left) = (self.boundary.at(now), Load::default());
        let cut = Cut::Forced(reason);
        let started = self.boundary.started(now, batch, left, cut);
        self.writing = Some(started.unwrap_or_else(impossible));
    }

    /// Notes that the round of writes took `cost_ns`.
    pub(crate) fn done(&mut self, now: Time, cost_ns: u64) {
        if let Some(id) = self.writing.take() {
            let now = self.boundary.at(now);
            let done = self.boundary.done_with(now, id, cost_ns, true);
            done.unwrap_or_else(impossible);
        }
    }

    /// Returns a snapshot of the controller, for the monitor.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// Panics: the boundary returns an error only if this module calls it in a wrong order.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the loop keeps to the order of calls: {error}")
}
