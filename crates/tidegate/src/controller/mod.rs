//! Controllers: rules that decide how many items go into the next batch and when it starts.
//!
//! One trait serves every boundary. A driver reports each [`Event`] with the time at which it happened. The
//! controller answers with a [`Decision`]: the limits of the next batch, when it may start, and why. A
//! controller sees counts, bytes, costs and times, never items. It reads no clock, does no I/O, draws no
//! random number, and computes with the four operations and square root only. The same events therefore give
//! the same decisions, bit for bit, on every platform.
//!
//! Other projects use the term "batch size" for two things that this module keeps apart. A **limit**
//! bounds a greedy drain: no item waits for it. A **linger** makes items wait for company
//! ([`When::At`], [`When::After`]).
//!
//! # The cycle of a boundary
//!
//! 1. [`Event::Arrived`] on each arrival of items in the backlog. A driver that polls a queue does not see
//!    arrivals and leaves the event out.
//! 2. [`Event::Ready`] once a batch could start: the backlog is not empty and the next stage has room for one
//!    more batch. The controller's answer is the decision. The driver takes a batch up to the limits now, or
//!    asks again at the time in the decision or after the next arrivals. Asking again is always harmless.
//! 3. [`Event::Started`] with the batch, the rest of the backlog and the reason for the cut.
//! 4. [`Event::Done`] with the cost of the batch: one for each `Started`, with `ok: false` where the driver
//!    did not measure the cost or the batch failed. Several batches that run at once may end in any order;
//!    each names itself by its [`BatchId`].
//! 5. [`Event::Expected`] right after `Done`, if the callers of the batch have their answers and are known
//!    to call again. A driver that knows of the answers sooner sends this event before the batch is done,
//!    because some callers return by then.
//!
//! [`Boundary`](crate::boundary::Boundary) keeps the accounts of this cycle for any driver.
//!
// docs/controllers is a link to docs/controllers.md of the repository: a package holds the text itself.
#![doc = include_str!("../../docs/controllers")]

mod aimd;
mod bounds;
mod choice;
mod exponential;
mod fixed;
mod freeze;
mod into;
mod knee;
mod log;
mod objective;
mod rueidis_stats;
mod rule;
mod shadow;
mod snapshot;
mod storm_aimd;

pub use aimd::Aimd;
pub(crate) use bounds::IN_FLIGHT_MAX;
pub use bounds::{Bounded, Bounds, BoundsError};
pub use choice::{Choice, ChoiceError};
pub use exponential::Exponential;
pub use fixed::{Fixed, Greedy};
pub use freeze::Freeze;
pub use into::IntoController;
pub use knee::{Knee, KneeError};
pub use log::{Divergence, Entry, EntryError, LogError, Recorder, read_log, replay, write_log};
pub use objective::{Objective, ObjectiveError};
pub use rueidis_stats::RueidisStats;
pub use rule::{Observed, Rule, Ruled};
pub use shadow::{Comparison, Shadow};
pub use snapshot::{ByReason, Counts, Model, SizeCost, SizeCosts, Snapshot};
pub use storm_aimd::StormAimd;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Time;

/// Decides how many items go into one batch, and when it starts. The [module](self)
/// describes the cycle of events.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a controller",
    note = "a rule of this crate becomes a controller by its method `controller()`",
    note = "a rule of your own becomes a controller by `Ruled::new`"
)]
pub trait Controller: Send {
    /// Handles an event that happened at `now` and returns the decision.
    ///
    /// The answer to [`Event::Ready`] decides the next batch. The answer to any other event carries the
    /// limits in force, with [`When::Now`]. A boundary that never sends `Ready`, such as a producer's buffer,
    /// takes its size from the answer to [`Event::Done`]. `now` never goes back; a controller treats a `now`
    /// before the latest `now` as the latest.
    fn on(&mut self, now: Time, event: Event) -> Decision;

    /// Returns the state and the counts, for people and dashboards. Takes some hundred
    /// nanoseconds and allocates nothing.
    fn snapshot(&self) -> Snapshot;

    /// Returns the measured costs by size, for people and dashboards; none by default. Takes some hundred
    /// nanoseconds and allocates nothing. A wrapper asks the controller inside.
    fn size_costs(&self) -> SizeCosts {
        SizeCosts::default()
    }

    /// Returns whether the controller's decisions depend on [`Event::Arrived`]. A driver that pays for each
    /// of these events, such as the batch actor, leaves them out where they change no decision. A wrapper
    /// asks the controller inside.
    fn wants_arrivals(&self) -> bool {
        true
    }

    /// Returns the time from which on running batches count as stuck. The driver sends [`Event::Ready`] at
    /// that time if no batch ended before and no more batches may run; the answer may then allow another
    /// batch. The default is [`Time::NEVER`]. A wrapper asks the controller inside.
    fn stuck_at(&self) -> Time {
        Time::NEVER
    }
}

impl<C: Controller + ?Sized> Controller for Box<C> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        (**self).on(now, event)
    }

    fn snapshot(&self) -> Snapshot {
        (**self).snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        (**self).size_costs()
    }

    fn wants_arrivals(&self) -> bool {
        (**self).wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        (**self).stuck_at()
    }
}

/// A controller shared with an observer. The boundary holds one clone; the observer reads a
/// [`Recorder`]'s log, a [`Shadow`]'s comparison or the state of a [`Freeze`] through another.
/// Each event takes the lock once.
impl<C: Controller> Controller for Arc<Mutex<C>> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        locked(self).on(now, event)
    }

    fn snapshot(&self) -> Snapshot {
        locked(self).snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        locked(self).size_costs()
    }

    fn wants_arrivals(&self) -> bool {
        locked(self).wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        locked(self).stuck_at()
    }
}

/// Locks the controller, even if the observer panicked while it held the lock, so that the boundary goes on.
fn locked<C>(shared: &Mutex<C>) -> MutexGuard<'_, C> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An amount of work, by which controllers decide: a count of items, and the bytes (or any other weight) that
/// they have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of items in the load; a batch has at least one.
    pub items: u64,
    /// The number of bytes of all items in the load; 0 where the boundary does not weigh its items.
    pub bytes: u64,
}

impl Load {
    /// Creates a load of `items` items without a weight, for a boundary that does not weigh items.
    #[must_use]
    pub const fn items(items: u64) -> Self {
        Self { items, bytes: 0 }
    }

    /// Creates a load of `items` items that weigh `bytes` bytes together, for a boundary that weighs items.
    #[must_use]
    pub const fn new(items: u64, bytes: u64) -> Self {
        Self { items, bytes }
    }
}

/// Names one batch of a boundary from its start to its end, because several batches may run at once.
///
/// A boundary that runs one batch at a time may use the same id for all batches: the default, 0. A batch that
/// starts under the id of a running batch replaces that batch: the controller treats the running batch as
/// lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(u64);

impl BatchId {
    /// Creates the id with this number. A driver may use the number again after the batch is done.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of this id, as logs show it.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An event at a boundary, as the driver reports it to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Items with this load joined the backlog.
    Arrived(Load),
    /// A batch could start: `backlog` holds at least one item, the oldest since `oldest`, and fewer batches
    /// run than the last decision allowed in flight.
    Ready {
        /// The load that waits at the time of the event, for the next batch.
        backlog: Load,
        /// The time at which the backlog's oldest item arrived; `now` where the driver does not know it.
        oldest: Time,
    },
    /// The driver took a batch. One [`Event::Done`] of the same id follows before
    /// another batch of that id starts.
    Started {
        /// The id of the batch, which its [`Event::Done`] repeats.
        id: BatchId,
        /// The load that the batch took: at least one item.
        batch: Load,
        /// The load that the batch left in the backlog.
        left: Load,
        /// The reason why the driver cut the batch there: [`Reason::Drained`] if the batch took the whole
        /// backlog, the decision's reason if the decision's limit cut it, or the driver's own reason:
        /// [`Reason::Blocking`], [`Reason::Linger`], [`Reason::Asked`], [`Reason::Closing`].
        reason: Reason,
    },
    /// A batch ended. The driver reports this once for each [`Event::Started`].
    Done {
        /// The id of the batch.
        id: BatchId,
        /// The cost of the batch to the stage that runs it, in nanoseconds, from which the controller learns.
        cost_ns: u64,
        /// True if the batch did its work and the driver measured its cost. Otherwise the controller learns
        /// nothing from the batch.
        ok: bool,
    },
    /// The producer is about to block: no item arrives before another event, so a wait for items is useless.
    Blocking,
    /// Replies came back, `took_ns` nanoseconds after the flush that carried the first of their items. The
    /// time that the flush itself waited is not included.
    Replied {
        /// The number of items that these replies answer and that are no longer in flight.
        items: u64,
        /// The number of items that the flush carried, answered or not, because the latency depends on it.
        batch: u64,
        /// The nanoseconds from the flush to the reply: the latency of the replies.
        took_ns: u64,
    },
    /// Announces arrivals: `items` callers have just got their answers and are known to call again.
    Expected {
        /// The number of callers that will call again, each with one item.
        items: u64,
    },
}

/// The answer of a controller to an event: what the driver may do next, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The largest number of items that the next batch may take: at least 1.
    pub limit_items: u64,
    /// The largest number of bytes that the next batch may take: at least 1. A single larger item forms a
    /// batch alone.
    pub limit_bytes: u64,
    /// The largest number of batches that may run at once, the next batch included: at least 1. The driver
    /// starts no further batch while that many run.
    pub in_flight: u32,
    /// The start of the next batch: at once, at a time, or after more arrivals.
    pub when: When,
    /// The reason why the controller sets these limits or this wait, for logs and metrics.
    pub reason: Reason,
}

impl Decision {
    /// Returns the decision to start at once with up to `limit_items`, without a limit on bytes, one batch at
    /// a time.
    #[must_use]
    pub const fn now(limit_items: u64, reason: Reason) -> Self {
        Self {
            limit_items,
            limit_bytes: u64::MAX,
            in_flight: 1,
            when: When::Now,
            reason,
        }
    }
}

/// The time at which the next batch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The batch starts at once.
    Now,
    /// The batch starts at this time; the driver asks again on each arrival before it.
    At(Time),
    /// The batch starts as soon as the backlog has `items`, at the latest at `until`.
    After {
        /// The number of items in the backlog for which the start of the batch waits.
        items: u64,
        /// The latest time at which the batch starts.
        until: Time,
    },
}

/// The reason why a batch ends at its last item, or why it waits, for logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// The batch took the whole backlog.
    Drained,
    /// The batch reached the limit that a historical rule or a fixed setting sets.
    Limit,
    /// The controller sets the limit k·a/b (a: fixed cost of a batch, b: cost of an item), because a larger
    /// batch would hardly be more efficient.
    Efficiency,
    /// The hard bound on items or bytes sets the limit.
    Memory,
    /// The objective on latency, [`Objective::LatencyP99`], sets the limit.
    Latency,
    /// The controller limits batches to a size because larger batches were measured to be worse.
    Convexity,
    /// The controller cuts a backlog into parts, so that its mean latency is least.
    DrainChunk,
    /// The controller takes a batch of another size on purpose, to learn its cost.
    Probe,
    /// The batch waits for callers that are about to return.
    Anticipate,
    /// The batch waits because the objective puts a price on a flush: a cost budget, or an allowed inflation
    /// of latency.
    Pace,
    /// The batch starts because its oldest item has waited as long as the hard bound allows.
    Age,
    /// The batch starts below its limit because its linger ended.
    Linger,
    /// The driver flushed the batch because the producer was about to block, so that no further item would
    /// come.
    Blocking,
    /// The user of the boundary asked for a flush, or the handler finished the batch early.
    Asked,
    /// The batch starts because the boundary is closing.
    Closing,
    /// The batch is a single item larger than the byte limit.
    Oversized,
    /// The backlog grows under the usual limit, so the controller uses a larger limit.
    Backlog,
    /// The batch takes only its share of the backlog, because several batches may start now.
    Shared,
}

impl Reason {
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Every reason, in the order of its discriminant.
    pub const ALL: &'static [Self] = &[
        Self::Drained,
        Self::Limit,
        Self::Efficiency,
        Self::Memory,
        Self::Latency,
        Self::Convexity,
        Self::DrainChunk,
        Self::Probe,
        Self::Anticipate,
        Self::Pace,
        Self::Age,
        Self::Linger,
        Self::Blocking,
        Self::Asked,
        Self::Closing,
        Self::Oversized,
        Self::Backlog,
        Self::Shared,
    ];

    /// Returns the name of the reason in logs, metrics and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Limit => "limit",
            Self::Efficiency => "efficiency",
            Self::Memory => "memory",
            Self::Latency => "latency",
            Self::Convexity => "convexity",
            Self::DrainChunk => "drain_chunk",
            Self::Probe => "probe",
            Self::Anticipate => "anticipate",
            Self::Pace => "pace",
            Self::Age => "age",
            Self::Linger => "linger",
            Self::Blocking => "blocking",
            Self::Asked => "asked",
            Self::Closing => "closing",
            Self::Oversized => "oversized",
            Self::Backlog => "backlog",
            Self::Shared => "shared",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
