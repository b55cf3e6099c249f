//! Controllers: how many items go into the next batch, and when it starts.
//!
//! One trait serves every boundary. A driver reports what happens as [`Event`]s, each with the time it
//! happened at, and is answered with a [`Decision`]: the most the next batch may take, when it may start, and
//! why. A controller sees counts, bytes, costs and times, never items; it reads no clock, does no I/O, draws
//! no random number, and computes with the four operations and square root only. The same events therefore
//! give the same decisions, bit for bit, on every platform.
//!
//! Two different things are called "batch size" elsewhere and are kept apart here. A **limit** bounds a
//! greedy drain: nobody waits for it. A **linger** makes items wait for company ([`When::At`],
//! [`When::After`]).
//!
//! # The cycle of a boundary
//!
//! 1. [`Event::Arrived`] whenever items join the backlog. A driver that cannot tell (it polls a queue)
//!    leaves it out.
//! 2. [`Event::Ready`] when a batch could start: something waits and the next stage has room for one more.
//!    Its answer is the decision: take up to the limits now, or ask again at the moment named or when more
//!    arrived. Asking again is always harmless.
//! 3. [`Event::Started`] with what was taken, what is left and why the batch was cut there.
//! 4. [`Event::Done`] with what it cost: one for each `Started`, `ok: false` where the cost was not measured
//!    or the batch failed. Where several batches run at once they may end in any order; each names itself by
//!    its [`BatchId`].
//! 5. [`Event::Expected`] right after it, if callers of the batch were answered and are known to come
//!    again. A driver that knows of the answers sooner says so before the batch is done: some callers are
//!    back by then.
//!
//! [`Boundary`](crate::boundary::Boundary) keeps the books of this cycle for any driver.
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
pub use snapshot::{ByReason, Counts, Model, Snapshot};
pub use storm_aimd::StormAimd;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Time;

/// Decides how many items go together, and when. See the [module](self) for the cycle of events.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a controller",
    note = "a rule of this crate becomes a controller by its method `controller()`",
    note = "a rule of your own becomes a controller by `Ruled::new`"
)]
pub trait Controller: Send {
    /// Takes in what happened at `now` and answers what to do.
    ///
    /// The answer to [`Event::Ready`] decides the next batch. The answer to any other event carries the
    /// limits in force, with [`When::Now`]: a boundary that never asks, such as a producer's buffer, is
    /// sized by the answer to [`Event::Done`]. `now` never goes back; a controller treats a `now` before
    /// the last one as the last one.
    fn on(&mut self, now: Time, event: Event) -> Decision;

    /// What it knows and did, for people and dashboards. Costs some hundred nanoseconds and allocates
    /// nothing.
    fn snapshot(&self) -> Snapshot;

    /// Returns whether its decisions depend on [`Event::Arrived`]. A driver that pays for each
    /// announcement, such as the batch actor, leaves arrivals out where they change nothing. A wrapper asks
    /// the controller inside.
    fn wants_arrivals(&self) -> bool {
        true
    }

    /// When the batches that run count as stuck. If none of them ends before, and as many run as may, the
    /// driver sends [`Event::Ready`] at that moment, and the answer may allow another. [`Time::NEVER`] unless
    /// a controller says otherwise. A wrapper asks the controller inside.
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

    fn wants_arrivals(&self) -> bool {
        (**self).wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        (**self).stuck_at()
    }
}

/// A controller that is shared with an observer: give one clone to the boundary, and read a [`Recorder`]'s
/// log, a [`Shadow`]'s comparison or the state of a [`Freeze`] through the other. Each event takes the lock
/// once.
impl<C: Controller> Controller for Arc<Mutex<C>> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        locked(self).on(now, event)
    }

    fn snapshot(&self) -> Snapshot {
        locked(self).snapshot()
    }

    fn wants_arrivals(&self) -> bool {
        locked(self).wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        locked(self).stuck_at()
    }
}

/// A panic of the observer says nothing about the controller.
fn locked<C>(shared: &Mutex<C>) -> MutexGuard<'_, C> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An amount of work: how many items, and how many bytes (or any other weight) they have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How many items.
    pub items: u64,
    /// Their bytes; 0 where the boundary does not weigh its items.
    pub bytes: u64,
}

impl Load {
    /// `items` items that nobody weighed.
    #[must_use]
    pub const fn items(items: u64) -> Self {
        Self { items, bytes: 0 }
    }

    /// `items` items of `bytes` bytes together.
    #[must_use]
    pub const fn new(items: u64, bytes: u64) -> Self {
        Self { items, bytes }
    }
}

/// Names one batch of a boundary from its start to its end, where several may run at once.
///
/// A boundary that runs one batch at a time may use the same id for all of them: the default, 0. A batch
/// that starts under the id of a batch that still runs takes its place: that batch is taken for lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(u64);

impl BatchId {
    /// The batch of this number. A number may be used again when its batch is done.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Something that happened at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Items joined the backlog.
    Arrived(Load),
    /// A batch could start: `backlog` waits (at least one item), the oldest of it since `oldest`, and fewer
    /// batches run than the last decision allowed in flight.
    Ready {
        /// The backlog now.
        backlog: Load,
        /// When its oldest item arrived; `now` where the driver does not know.
        oldest: Time,
    },
    /// A batch was taken. One [`Event::Done`] of the same id follows, before another batch of that id starts.
    Started {
        /// Which: its [`Event::Done`] bears the same id.
        id: BatchId,
        /// What it holds: never empty.
        batch: Load,
        /// The rest of the backlog.
        left: Load,
        /// Why it was cut there: [`Reason::Drained`] if it took everything, the decision's reason if that
        /// bound it, or the driver's own: [`Reason::Blocking`], [`Reason::Linger`], [`Reason::Asked`],
        /// [`Reason::Closing`].
        reason: Reason,
    },
    /// A batch is finished: each [`Event::Started`] has one.
    Done {
        /// Which.
        id: BatchId,
        /// Its cost to the stage that runs it.
        cost_ns: u64,
        /// Whether it did its work and the cost was measured. Otherwise the batch teaches nothing.
        ok: bool,
    },
    /// The producer is about to block: nothing arrives until something else happens.
    Blocking,
    /// Replies came back, `took_ns` after the flush that carried the first of them; its own waiting is not
    /// included.
    Replied {
        /// How many items are answered.
        items: u64,
        /// How many items that flush carried.
        batch: u64,
        /// From the flush to the reply.
        took_ns: u64,
    },
    /// So many arrivals are announced: their senders were just answered and are known to come again.
    Expected {
        /// How many.
        items: u64,
    },
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The most items the next batch may take: at least 1.
    pub limit_items: u64,
    /// The most bytes: at least 1. One item larger than that goes alone.
    pub limit_bytes: u64,
    /// The most batches that may run at once, this one included: at least 1.
    pub in_flight: u32,
    /// When the batch may start.
    pub when: When,
    /// The bound that set it.
    pub reason: Reason,
}

impl Decision {
    /// Start at once with up to `limit_items`, bytes not limited, one batch at a time.
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

/// When a batch may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once.
    Now,
    /// At this moment; ask again on each arrival before it.
    At(Time),
    /// As soon as the backlog has `items`, at the latest at `until`.
    After {
        /// The backlog to wait for.
        items: u64,
        /// The latest start.
        until: Time,
    },
}

/// Why a batch was cut where it was, or why it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Reason {
    /// It took everything that waited.
    Drained,
    /// The limit of a historical rule, or a fixed one.
    Limit,
    /// A larger batch would hardly be more efficient: k·a/b.
    Efficiency,
    /// The hard bound on items or bytes.
    Memory,
    /// The latency objective.
    Latency,
    /// Larger batches were measured to be worse.
    Convexity,
    /// A backlog is cut into parts so that its mean latency is least.
    DrainChunk,
    /// A batch of another size on purpose, to learn what it costs.
    Probe,
    /// It waits for callers that are about to come.
    Anticipate,
    /// The price on a flush: pacing by the cost budget, or the allowed inflation of latency.
    Pace,
    /// The oldest item has waited as long as the hard bound allows.
    Age,
    /// A linger ran out before the batch was full.
    Linger,
    /// The producer was about to block.
    Blocking,
    /// Somebody asked for a flush.
    Asked,
    /// The boundary is closing.
    Closing,
    /// A single item larger than the byte limit.
    Oversized,
    /// The backlog grows under the usual limit, so this one is larger.
    Backlog,
    /// Free slots share the backlog.
    Shared,
}

impl Reason {
    /// How many reasons this version knows.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Every reason, in the order of its index.
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

    /// Its name in logs, metrics and JSON.
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
