//! Decides how long the event loop gathers messages before it writes to the sockets, with a controller of the
//! engine, so that a write carries many messages without a long wait.
//!
//! An item is a copy of a message in an outbox. A batch is all copies in one round of writes, and its cost is
//! the time of these writes. The controller decides how many copies the loop may gather before the next round
//! and, with an objective that puts a price on writing, until when a smaller batch may wait.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, DecisionLog, Step};
use tidegate::controller::{
    BatchId, Bounds, Choice, ChoiceError, Load, Reason, SizeCosts, Snapshot,
};

/// The bounds of the controller's choice: the greatest and (`ITEMS_MIN`) the least number of copies of
/// messages that it may allow in one batch, which is one round of socket writes.
const ITEMS_MAX: u64 = 65_536;
const ITEMS_MIN: u64 = 16;
/// The greatest number of bytes that the loop gathers in the clients' outboxes for one round of writes: with
/// more, the outboxes would not fit into the caches of the processor.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest time for which a copy of a message waits in an outbox so that further copies join its round of
/// writes, with any objective of the controller.
const AGE_MAX: Duration = Duration::from_millis(100);

/// The boundary at which the loop cuts the batches of its socket writes, with the controller that decides
/// about them.
#[derive(Debug)]
pub(crate) struct Flow {
    boundary: Boundary,
    /// The time at which the loop found the oldest copy of a message that still waits for a round of writes,
    /// from which its wait counts; `None` if the loop has found none since the last round began.
    oldest: Option<Time>,
    /// The id that the controller gave the round of writes in progress; `None` between two rounds. With it
    /// the loop reports the end of the round.
    writing: Option<BatchId>,
}

impl Flow {
    /// Builds the controller that `choice`, the operator's setting, names. The bounds of this module apply to
    /// each round of writes: to the copies of messages and the bytes in it, and to the time that a copy waits
    /// for it.
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

    /// Makes the controller write its decisions into `log`, under the name `sockets`, so that an operator can
    /// read them.
    pub(crate) fn log_to(&mut self, log: &DecisionLog) {
        self.boundary.log_to(log, "sockets");
    }

    /// Returns the bounds on the copies of messages and on the bytes that the loop may gather in outboxes
    /// before it must write.
    pub(crate) const fn limit(&self) -> Load {
        self.boundary.limit()
    }

    /// Returns the controller's reason for the current limit, which the record of decisions shows.
    pub(crate) const fn reason(&self) -> Reason {
        self.boundary.reason()
    }

    /// Decides, when the loop has no other work, how long the `gathered` copies of messages may wait for
    /// further copies. Returns the end of this time; `None` if no copy waits, or if the loop must write now.
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

    /// Tells the controller that the loop begins a round of writes for this `reason`, with the copies of
    /// messages and the bytes in `batch`, so that it learns their cost at the end.
    pub(crate) fn started(&mut self, now: Time, batch: Load, reason: Reason) {
        self.oldest = None;
        let (now, left) = (self.boundary.at(now), Load::default());
        let cut = Cut::Forced(reason);
        let started = self.boundary.started(now, batch, left, cut);
        self.writing = Some(started.unwrap_or_else(impossible));
    }

    /// Tells the controller that the round of writes has ended and that its writes took `cost_ns`
    /// nanoseconds, from which it learns the cost of rounds.
    pub(crate) fn done(&mut self, now: Time, cost_ns: u64) {
        if let Some(id) = self.writing.take() {
            let now = self.boundary.at(now);
            let done = self.boundary.done_with(now, id, cost_ns, true);
            done.unwrap_or_else(impossible);
        }
    }

    /// Returns the state of the controller, for the monitor.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    /// Returns the state of the controller with its costs by size, for the samples of the boundaries.
    pub(super) fn observe(&self) -> (Snapshot, SizeCosts) {
        (self.boundary.snapshot(), self.boundary.size_costs())
    }
}

/// Panics, because the boundary returns an error only if this module calls its functions in a wrong order,
/// which is a programming error.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the loop keeps to the order of calls: {error}")
}
