//! Keeps the books of one boundary: a place in a program where a driver cuts a stream of items into batches.
//! All drivers of the crate share this bookkeeping.
//!
//! A [`Boundary`] holds a [controller](crate::controller) within hard [`Bounds`], the wait in progress, and
//! the running batches. A driver reports each event together with its moment, and calls [`Boundary::poll`]
//! for the next step. The boundary reads no clock and does no I/O; it never sees an item.
//!
//! # The cycle
//!
//! 1. [`arrived`](Boundary::arrived) when items join the backlog, if the driver can tell.
//! 2. [`poll`](Boundary::poll) when an item waits: take a batch now, hold, or wait until a batch is done.
//! 3. [`started`](Boundary::started) with the load taken; it returns the id of the batch.
//! 4. [`done`](Boundary::done) with that id. Batches may end in any order.
//! 5. [`expect`](Boundary::expect) if callers of that batch were answered and call again.
//!
//! ```
//! use tidegate::Time;
//! use tidegate::boundary::{Boundary, Cut, Step};
//! use tidegate::controller::{Bounds, Greedy, Load, Recorder, replay};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let at = Time::from_nanos;
//! let mut boundary = Boundary::new(Recorder::new(Greedy.controller(), 100), Bounds::items(1, 64))?;
//! boundary.arrived(at(10), Load::items(3))?;
//! let Step::Take(limit) = boundary.poll(at(10), Load::items(3), at(10))? else {
//!     return Err("greedy takes the whole backlog".into());
//! };
//! assert!(limit.items >= 3);
//! let id = boundary.started(at(11), Load::items(3), Load::items(0), Cut::Drained)?;
//! assert_eq!(boundary.done(at(5_011), id, true)?, 5_000);
//! assert!(boundary.done(at(5_011), id, true).is_err(), "a batch is done once");
//!
//! // A controller given by the driver can be read back.
//! replay(&mut Greedy.controller(), boundary.controller().log())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! A call that contradicts earlier calls returns a [`BoundaryError`] and changes nothing. Such
//! calls are a clock that goes back, an empty batch, more batches than the bounds allow, and a
//! batch that is done twice or never started. A driver that joins the times of several clocks
//! passes each time through [`Boundary::at`] first.

mod decisions;
mod error;
mod table;

use std::fmt;

use decisions::Track;
#[cfg(feature = "sim")]
pub(crate) use decisions::parse_bounds;
pub use decisions::{
    DECISIONS_HEADER, DecisionLine, DecisionLines, DecisionLog, Run, read_decisions,
};
pub use error::BoundaryError;

use crate::Time;
use crate::controller::{
    BatchId, Bounded, Bounds, BoundsError, Controller, Decision, Event, Load, Reason, SizeCosts,
    Snapshot, When,
};
use table::Table;

/// The next step of the driver at a boundary, as [`Boundary::poll`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take a batch of at least one item within these limits now. A single item above the limit on bytes
    /// forms a batch alone.
    Take(Load),
    /// Hold the batch back until more than `items` items wait or until the moment `until`, then poll
    /// again. An earlier poll is harmless.
    Hold {
        /// The largest backlog, in items, at which the driver still waits.
        items: u64,
        /// The latest moment at which the driver polls again.
        until: Time,
    },
    /// As many batches run as are allowed. Poll again when a batch is done, or at the moment `until`, when
    /// the running batches count as stuck. An earlier poll is harmless.
    Busy {
        /// The latest moment to poll again; [`Time::NEVER`] where only the end of a batch can help.
        until: Time,
    },
    /// No item waits: poll again when an item arrives.
    Rest,
}

/// The place at which the driver ended a batch, as the condition that ended it. The boundary derives the
/// [`Reason`] of the batch from it and from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// The batch took the whole backlog.
    Drained,
    /// The batch reached the limit on items.
    Items,
    /// The next item would have passed the limit on bytes.
    Bytes,
    /// The batch is a single item above the limit on bytes.
    Oversized,
    /// The stage that runs the batch, such as a handler, asked for no further item.
    Finished,
    /// The driver cut the batch for this reason of its own, which does not follow from the decision.
    Forced(Reason),
}

/// The state of one boundary: a controller within hard bounds, the wait in progress, and the running batches.
/// See the [module](self).
///
/// ```
/// use tidegate::Time;
/// use tidegate::boundary::{Boundary, Cut, Step};
/// use tidegate::controller::{Bounds, Fixed, Load};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut boundary = Boundary::new(Fixed::new(10).controller(), Bounds::default())?;
/// let Step::Take(limit) = boundary.poll(Time::ZERO, Load::items(25), Time::ZERO)? else {
///     return Err("no batch runs, and items wait".into());
/// };
/// assert_eq!(limit.items, 10);
/// let id = boundary.started(Time::ZERO, Load::items(10), Load::items(15), Cut::Items)?;
/// // The rule runs one batch at a time.
/// assert!(!matches!(boundary.poll(Time::ZERO, Load::items(15), Time::ZERO)?, Step::Take(_)));
/// assert_eq!(boundary.done(Time::from_nanos(700), id, true)?, 700);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Boundary<C = Box<dyn Controller>> {
    controller: Bounded<C>,
    /// The latest moment that a call to the boundary reported. A later call with an earlier moment is an
    /// error.
    now: Time,
    /// The limits on the next batch, by the controller's latest decision on any event, for
    /// [`Boundary::limit`].
    limit: Load,
    /// The reason in the controller's latest decision on any event, for [`Boundary::reason`].
    reason: Reason,
    /// The reason in the controller's latest answer to a poll, from which the boundary derives the reason of
    /// a cut.
    decided: Reason,
    /// The number of batches that may run at once, by the controller's latest decision.
    in_flight: u32,
    /// The moment at which the wait in progress ends and the driver polls again; `None` while no batch is
    /// held back.
    due: Option<Time>,
    table: Table,
    /// The writer of the decisions into a shared log, if the driver called `log_to`.
    track: Option<Box<Track>>,
}

impl<C: Controller> Boundary<C> {
    /// Creates a boundary where `controller` decides within `bounds`. A rule becomes a controller by its
    /// method `controller()`. The boundary allocates a table of [`Bounds::in_flight`] batches, at most
    /// [`Boundary::IN_FLIGHT_MAX`], and nothing later.
    ///
    /// # Errors
    /// Bounds that no batch can satisfy.
    pub fn new(controller: C, bounds: Bounds) -> Result<Self, BoundsError> {
        let table = Table::new(bounds.in_flight());
        Ok(Self {
            controller: Bounded::new(controller, bounds)?,
            now: Time::ZERO,
            limit: Load::new(bounds.items_max, bounds.bytes_max),
            reason: Reason::Memory,
            decided: Reason::Drained,
            in_flight: 1,
            due: None,
            table,
            track: None,
        })
    }

    /// Writes each further decision into `log`, under `name`, which has no blanks. Call this method before
    /// the first event: a replay needs all decisions of a controller.
    pub fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.track = Some(Box::new(Track::new(log, name, self.controller.bounds())));
    }

    // ---- methods with which the driver reports events

    /// Reports items that joined the backlog at `now` to the controller. Does nothing for 0 items.
    ///
    /// # Errors
    /// `now` is before the moment of an earlier call ([`BoundaryError::TimeWentBack`]).
    pub fn arrived(&mut self, now: Time, items: Load) -> Result<(), BoundaryError> {
        self.tick(now)?;
        if items.items > 0 {
            self.tell(Event::Arrived(items));
        }
        Ok(())
    }

    /// Reports to the controller that the senders of `items` items have their answers, and that each of them
    /// will send another item, so that waiting for these items can pay off. Does nothing for 0 items.
    ///
    /// # Errors
    /// `now` is before the moment of an earlier call ([`BoundaryError::TimeWentBack`]).
    pub fn expect(&mut self, now: Time, items: u64) -> Result<(), BoundaryError> {
        self.tick(now)?;
        if items > 0 {
            self.tell(Event::Expected { items });
        }
        Ok(())
    }

    /// Reports replies to `items` items to the controller. The replies came `took_ns` nanoseconds after the
    /// flush that carried these items, and that flush had `batch` items in all. See [`Event::Replied`].
    ///
    /// # Errors
    /// `now` is before the moment of an earlier call ([`BoundaryError::TimeWentBack`]).
    pub fn replied(
        &mut self,
        now: Time,
        items: u64,
        batch: u64,
        took_ns: u64,
    ) -> Result<(), BoundaryError> {
        self.tick(now)?;
        self.tell(Event::Replied {
            items,
            batch,
            took_ns,
        });
        Ok(())
    }

    /// Reports to the controller that the producer is about to block, so that no item arrives before another
    /// event.
    ///
    /// # Errors
    /// `now` is before the moment of an earlier call ([`BoundaryError::TimeWentBack`]).
    pub fn blocking(&mut self, now: Time) -> Result<(), BoundaryError> {
        self.tick(now)?;
        self.tell(Event::Blocking);
        Ok(())
    }

    /// Reports that the driver took the load `batch` and left the load `left` behind, cut at `cut`. Returns
    /// the id of the batch, unique over the life of this boundary, with which the driver later reports its
    /// end. A driver may start a batch without a poll before it, up to [`Bounds::in_flight`] at once.
    ///
    /// # Errors
    /// The batch has no items ([`BoundaryError::EmptyBatch`]), as many batches run as the bounds allow
    /// ([`BoundaryError::Full`]), or `now` is before the moment of an earlier call
    /// ([`BoundaryError::TimeWentBack`]).
    pub fn started(
        &mut self,
        now: Time,
        batch: Load,
        left: Load,
        cut: Cut,
    ) -> Result<BatchId, BoundaryError> {
        self.check(now)?;
        if batch.items == 0 {
            return Err(BoundaryError::EmptyBatch);
        }
        let id = self.table.insert(now)?;
        self.now = now;
        if left.items == 0 {
            self.due = None;
        }
        let reason = self.reason_for(cut);
        self.tell(Event::Started {
            id,
            batch,
            left,
            reason,
        });
        Ok(id)
    }

    /// Reports that the batch of `id` is finished; `ok` is true if the batch did its work. Returns its cost:
    /// the nanoseconds since it started.
    ///
    /// # Errors
    /// The batch of `id` is done already ([`BoundaryError::AlreadyDone`]), this boundary never gave `id` to a
    /// batch ([`BoundaryError::NeverStarted`]), or `now` is before the moment of an earlier call
    /// ([`BoundaryError::TimeWentBack`]). Two boundaries may hand out equal ids, so a boundary refuses the id
    /// of another boundary only while it runs no batch of that id.
    pub fn done(&mut self, now: Time, id: BatchId, ok: bool) -> Result<u64, BoundaryError> {
        self.check(now)?;
        let since = self.table.remove(id)?;
        let cost_ns = now.since(since);
        self.finished(now, id, cost_ns, ok);
        Ok(cost_ns)
    }

    /// Reports a finished batch like [`Boundary::done`], but with a cost in nanoseconds that the driver
    /// measured itself. The driver also passes `ok` as false if the batch did its work and the driver did not
    /// measure its cost.
    ///
    /// # Errors
    /// As for [`Boundary::done`].
    pub fn done_with(
        &mut self,
        now: Time,
        id: BatchId,
        cost_ns: u64,
        ok: bool,
    ) -> Result<(), BoundaryError> {
        self.check(now)?;
        self.table.remove(id)?;
        self.finished(now, id, cost_ns, ok);
        Ok(())
    }

    /// Reports a batch that started and finished since the last call, at a cost in nanoseconds that the
    /// driver measured: [`Boundary::started`] and [`Boundary::done_with`] at one moment.
    ///
    /// # Errors
    /// As for [`Boundary::started`].
    pub fn ran(
        &mut self,
        now: Time,
        batch: Load,
        left: Load,
        cut: Cut,
        cost_ns: u64,
        ok: bool,
    ) -> Result<(), BoundaryError> {
        let id = self.started(now, batch, left, cut)?;
        self.done_with(now, id, cost_ns, ok)
    }

    // ---- methods with which the driver learns the next step

    /// Returns the next step at `now` while `backlog` waits. The oldest waiting item arrived at `oldest`
    /// (`now` where the driver does not know it). A repeated poll is harmless.
    ///
    /// # Errors
    /// `now` is before the moment of an earlier call ([`BoundaryError::TimeWentBack`]).
    pub fn poll(&mut self, now: Time, backlog: Load, oldest: Time) -> Result<Step, BoundaryError> {
        self.tick(now)?;
        self.due = None;
        if backlog.items == 0 {
            return Ok(Step::Rest);
        }
        if self.is_busy() && now < self.stuck_at() {
            return Ok(self.busy());
        }
        let decision = self.tell(Event::Ready { backlog, oldest });
        self.decided = decision.reason;
        if self.is_busy() {
            return Ok(self.busy());
        }
        let (items, until) = match decision.when {
            When::Now => return Ok(Step::Take(self.limit())),
            // The driver holds the batch only until the next arrival, because an arrival may change the
            // decision.
            When::At(until) => (backlog.items, until),
            When::After { items, until } => (items.saturating_sub(1).max(backlog.items), until),
        };
        if now >= until {
            return Ok(Step::Take(self.limit()));
        }
        self.due = Some(until);
        Ok(Step::Hold { items, until })
    }

    /// Returns the end of the wait in progress, at which the driver polls again at the latest; `None` while
    /// no batch is held back.
    #[must_use]
    pub const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns the limits on the next batch, by the latest decision; before the first decision, the bounds
    /// themselves.
    #[must_use]
    pub const fn limit(&self) -> Load {
        self.limit
    }

    /// Returns the reason in the controller's latest decision: for its limits, or for a wait before the
    /// batch.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the reason of a batch that the driver cuts at `cut` after the latest poll, for metrics and
    /// logs.
    #[must_use]
    pub const fn reason_for(&self, cut: Cut) -> Reason {
        match cut {
            Cut::Forced(reason) => reason,
            Cut::Finished => Reason::Asked,
            Cut::Oversized => Reason::Oversized,
            Cut::Bytes => Reason::Memory,
            // The decision found the backlog below the limit and gave the reason `Drained`. Further items
            // have arrived since, so now the limit cuts the batch.
            Cut::Items => match self.decided {
                Reason::Drained => Reason::Limit,
                decided => decided,
            },
            Cut::Drained => match self.decided {
                decided @ (Reason::Linger | Reason::Age | Reason::Anticipate | Reason::Pace) => {
                    decided
                }
                _ => Reason::Drained,
            },
        }
    }

    /// Returns the number of batches that run at this boundary now.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.table.running()
    }

    /// Returns the number of batches that may run at once by the latest decision: at least
    /// 1, at most [`Bounds::in_flight`].
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        let (allowed, most) = (self.in_flight, self.table.most());
        if allowed < most { allowed } else { most }
    }

    /// Returns `now`, or the latest moment that this boundary has seen if that is later. A driver that joins
    /// the times of several clocks passes each time through this function.
    #[must_use]
    pub fn at(&self, now: Time) -> Time {
        self.now.max(now)
    }

    /// Returns the controller's state and the boundary's counts at this moment, for people and dashboards.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            in_flight: self.in_flight(),
            running: self.running(),
            ..self.controller.snapshot()
        }
    }

    /// Returns the controller's measured costs by size, for people and dashboards.
    #[must_use]
    pub fn size_costs(&self) -> SizeCosts {
        self.controller.size_costs()
    }

    /// Returns whether the controller's decisions depend on [`Boundary::arrived`]; otherwise a driver may
    /// omit these calls.
    #[must_use]
    pub fn wants_arrivals(&self) -> bool {
        self.controller.wants_arrivals()
    }

    /// Returns the bounds within which the controller decides.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        self.controller.bounds()
    }

    /// Returns the controller, so that the caller can read its state.
    #[must_use]
    pub const fn controller(&self) -> &C {
        self.controller.inner()
    }

    /// Returns the controller, so that a caller can freeze or retune it. Events that a caller gives to the
    /// controller directly bypass the boundary.
    pub const fn controller_mut(&mut self) -> &mut C {
        self.controller.inner_mut()
    }

    /// Ends the boundary and returns its controller for other use. The controller does not learn the ends of
    /// running batches.
    #[must_use]
    pub fn into_controller(self) -> C {
        self.controller.into_inner()
    }

    /// Asserts the invariants of the boundary; for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        self.table.check_invariants();
        assert!((1..=self.table.most()).contains(&self.in_flight()));
        let Bounds {
            items_min,
            items_max,
            bytes_max,
            ..
        } = self.bounds();
        let limit = self.limit();
        assert!((items_min..=items_max).contains(&limit.items));
        assert!((1..=bytes_max).contains(&limit.bytes));
    }

    // ---- private helpers

    const fn is_busy(&self) -> bool {
        self.table.running() >= self.in_flight()
    }

    /// Returns the moment at which the running batches count as stuck; [`Time::NEVER`] if no other batch may
    /// run beside them.
    fn stuck_at(&self) -> Time {
        if self.table.running() < self.table.most() {
            self.controller.stuck_at()
        } else {
            Time::NEVER
        }
    }

    fn busy(&self) -> Step {
        let at = self.stuck_at();
        let until = if at > self.now { at } else { Time::NEVER };
        Step::Busy { until }
    }

    fn check(&self, now: Time) -> Result<(), BoundaryError> {
        if now < self.now {
            let last = self.now;
            return Err(BoundaryError::TimeWentBack { now, last });
        }
        Ok(())
    }

    fn tick(&mut self, now: Time) -> Result<(), BoundaryError> {
        self.check(now)?;
        self.now = now;
        Ok(())
    }

    fn tell(&mut self, event: Event) -> Decision {
        let decision = self.controller.on(self.now, event);
        self.limit = Load::new(decision.limit_items, decision.limit_bytes);
        self.reason = decision.reason;
        self.in_flight = decision.in_flight;
        if let Some(track) = &mut self.track {
            track.note(self.now, event, decision);
        }
        decision
    }

    fn finished(&mut self, now: Time, id: BatchId, cost_ns: u64, ok: bool) {
        self.now = now;
        self.tell(Event::Done { id, cost_ns, ok });
    }
}

impl Boundary {
    /// The greatest number of batches that any boundary runs at once, also where its bounds allow more. This
    /// number bounds the memory of a boundary.
    pub const IN_FLIGHT_MAX: u32 = table::IN_FLIGHT_MAX;
}

impl<C> fmt::Debug for Boundary<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boundary")
            .field("now", &self.now)
            .field("limit", &self.limit)
            .field("reason", &self.reason)
            .field("due", &self.due)
            .field("running", &self.table.running())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
