//! Keeps a controller within hard bounds, which a user sets, and counts its batches.

use std::time::Duration;

use super::{Controller, Counts, Decision, Event, Load, Reason, SizeCosts, Snapshot, When};
use crate::{Time, nanos};

/// The greatest number of batches that any boundary runs at once, even if its bounds allow more, so that its
/// table of batches stays small.
pub(crate) const IN_FLIGHT_MAX: u32 = 1 << 16;

/// Hard bounds on batches, which override every decision of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound on a controller's limit in items: at least 1. A lower limit counts as this number.
    pub items_min: u64,
    /// The upper bound on a controller's limit in items: no batch has more items.
    pub items_max: u64,
    /// The upper bound on a controller's limit in bytes. A single larger item forms a batch alone. This bound
    /// has no effect where items have no weight: an actor weighs its items only with
    /// [`Builder::weigh`](crate::batcher::Builder::weigh).
    pub bytes_max: u64,
    /// The longest time that an item waits for company, counted from its arrival. This bound cuts every wait
    /// of the controller, also the linger of a rule.
    pub age_max: Duration,
    /// The greatest number of batches that run at once: at least 1. `None` leaves the choice to the driver: a
    /// boundary takes [`Bounds::in_flight`], and an actor takes 64 if the form of its handler allows several.
    /// A boundary runs at most 65,536
    /// ([`Boundary::IN_FLIGHT_MAX`](crate::boundary::Boundary::IN_FLIGHT_MAX)), and [`Knee`](super::Knee) at
    /// most 1024.
    pub in_flight_max: Option<u32>,
}

impl Bounds {
    /// Bounds batches to between `items_min` and `items_max` items; bytes and age have no bound. In place
    /// of the default bounds this also lifts their `age_max` of 1 s. To change only a number of items,
    /// write `Bounds { items_max: 1000, ..Bounds::default() }`.
    #[must_use]
    pub const fn items(items_min: u64, items_max: u64) -> Self {
        Self {
            items_min,
            items_max,
            bytes_max: u64::MAX,
            age_max: Duration::MAX,
            in_flight_max: None,
        }
    }

    /// Returns the greatest number of batches that run at once: 1 where [`Bounds::in_flight_max`] is not set.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        match self.in_flight_max {
            Some(most) => most,
            None => 1,
        }
    }

    /// Checks that a controller can work within these bounds.
    ///
    /// # Errors
    /// A bound is impossible. The error says which bound, and which values are allowed.
    pub const fn check(&self) -> Result<(), BoundsError> {
        if self.items_min == 0 || self.items_max == 0 {
            return Err(BoundsError::ZeroItems);
        }
        if self.items_min > self.items_max {
            return Err(BoundsError::FloorAboveCeiling {
                floor: self.items_min,
                ceiling: self.items_max,
            });
        }
        if self.bytes_max == 0 {
            return Err(BoundsError::ZeroBytes);
        }
        if self.in_flight() == 0 {
            return Err(BoundsError::ZeroInFlight);
        }
        Ok(())
    }
}

impl Default for Bounds {
    /// Returns the default bounds, which suit most actors: batches of 1 to 8192 items, without a bound on
    /// bytes; no item waits longer than a second.
    fn default() -> Self {
        Self {
            items_min: 1,
            items_max: 8192,
            bytes_max: u64::MAX,
            age_max: Duration::from_secs(1),
            in_flight_max: None,
        }
    }
}

/// The error of bounds that no batch can satisfy, with the bound that the user must change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoundsError {
    /// The bounds have an `items_min` or an `items_max` of 0, and every batch has an item.
    ZeroItems,
    /// `bytes_max` is 0.
    ZeroBytes,
    /// `in_flight_max` is 0.
    ZeroInFlight,
    /// `items_min` is above `items_max`.
    FloorAboveCeiling {
        /// The value of `items_min`.
        floor: u64,
        /// The value of `items_max`.
        ceiling: u64,
    },
}

impl std::fmt::Display for BoundsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ZeroItems => f.write_str("a batch bound of 0 items: at least 1 is needed"),
            Self::ZeroBytes => f.write_str("a batch bound of 0 bytes: at least 1 is needed"),
            Self::ZeroInFlight => {
                f.write_str("a bound of 0 batches in flight: at least 1 is needed")
            }
            Self::FloorAboveCeiling { floor, ceiling } => {
                write!(
                    f,
                    "the floor of {floor} items is above the ceiling of {ceiling}: lower the one or raise the other"
                )
            }
        }
    }
}

impl std::error::Error for BoundsError {}

/// Keeps a controller within [`Bounds`], and counts its batches by reason and the time that items wait, for
/// [`Snapshot`](super::Snapshot).
#[derive(Clone, Debug)]
pub struct Bounded<C> {
    inner: C,
    bounds: Bounds,
    age_max_ns: u64,
    now: Time,
    counts: Counts,
    wait: Option<Wait>,
}

/// A batch held back although it could start: the backlog at the start of the wait and now, and the item
/// time, in nanoseconds, that the wait has cost so far.
#[derive(Clone, Copy, Debug)]
struct Wait {
    items_at_start: u64,
    items: u64,
    since: Time,
    item_ns: u64,
}

impl<C: Controller> Bounded<C> {
    /// Keeps `inner` within `bounds`. A rule becomes a controller by its method `controller()`.
    ///
    /// # Errors
    /// Bounds that no batch can satisfy.
    pub fn new(inner: C, bounds: Bounds) -> Result<Self, BoundsError> {
        bounds.check()?;
        let age_max_ns = nanos(bounds.age_max);
        Ok(Self {
            inner,
            bounds,
            age_max_ns,
            now: Time::ZERO,
            counts: Counts::default(),
            wait: None,
        })
    }

    /// Returns the controller within the bounds, to read its state.
    pub const fn inner(&self) -> &C {
        &self.inner
    }

    /// Returns the controller within the bounds, so that the caller can freeze or retune it.
    pub const fn inner_mut(&mut self) -> &mut C {
        &mut self.inner
    }

    /// Drops the bounds, and returns the controller within them for other use.
    pub fn into_inner(self) -> C {
        self.inner
    }

    /// Returns the bounds within which this wrapper keeps the controller.
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    #[inline]
    fn clamp(&self, mut d: Decision) -> Decision {
        let b = &self.bounds;
        if d.limit_items > b.items_max {
            d.limit_items = b.items_max;
            d.reason = memory_unless_waiting(d);
        }
        d.limit_items = d.limit_items.max(b.items_min);
        if d.limit_bytes > b.bytes_max {
            d.limit_bytes = b.bytes_max;
        }
        d.limit_bytes = d.limit_bytes.max(1);
        d.in_flight = d.in_flight.min(b.in_flight()).max(1);
        d
    }

    /// Ends a wait of the controller in the decision `d`: at once if the backlog has reached a hard bound,
    /// and at the latest once the oldest item has waited as long as `age_max` allows.
    fn bound_wait(&self, mut d: Decision, backlog: Load, oldest: Time) -> Decision {
        let latest = oldest.after(self.age_max_ns);
        let until = match d.when {
            When::Now => return d,
            When::At(t) | When::After { until: t, .. } => t,
        };
        let enough = match d.when {
            When::After { items, .. } => backlog.items >= items.min(d.limit_items),
            _ => false,
        };
        if backlog.items >= self.bounds.items_max || backlog.bytes >= self.bounds.bytes_max {
            d.when = When::Now;
            d.reason = Reason::Memory;
        } else if self.now >= latest {
            d.when = When::Now;
            d.reason = Reason::Age;
        } else if enough || self.now >= until {
            d.when = When::Now;
        } else if until > latest {
            d.when = match d.when {
                When::After { items, .. } => When::After {
                    items,
                    until: latest,
                },
                _ => When::At(latest),
            };
            d.reason = Reason::Age;
        }
        d
    }

    /// Adds the time since the last event to the wait in progress, once for each item that waits, for the
    /// price of waiting in [`Counts`](super::Counts).
    #[cold]
    fn charge(&mut self) {
        if let Some(w) = &mut self.wait {
            let item_ns = w.items.saturating_mul(self.now.since(w.since));
            w.item_ns = w.item_ns.saturating_add(item_ns);
            w.since = self.now;
        }
    }

    fn started(&mut self, batch: Load, reason: Reason) {
        self.counts.by_reason.add(reason, 1);
        self.counts.items = self.counts.items.saturating_add(batch.items);
        self.counts.bytes = self.counts.bytes.saturating_add(batch.bytes);
        self.counts.items_max = self.counts.items_max.max(batch.items);
        if let Some(w) = self.wait.take() {
            self.counts.waits += 1;
            self.counts.waits_vain += u64::from(w.items <= w.items_at_start);
            self.counts.regret_ns = self.counts.regret_ns.saturating_add(w.item_ns);
        }
    }
}

impl<C: Controller> Controller for Bounded<C> {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event) -> Decision {
        self.now = self.now.max(now);
        if self.wait.is_some() {
            self.charge();
        }
        let d = self.inner.on(self.now, event);
        let mut d = self.clamp(d);
        match event {
            Event::Ready { backlog, oldest } => {
                d = self.bound_wait(d, backlog, oldest);
                match (&mut self.wait, d.when) {
                    (Some(w), _) => w.items = backlog.items,
                    (None, When::Now) => {}
                    (None, _) => {
                        let items = backlog.items;
                        self.wait = Some(Wait {
                            items_at_start: items,
                            items,
                            since: self.now,
                            item_ns: 0,
                        });
                    }
                }
            }
            Event::Started { batch, reason, .. } => self.started(batch, reason),
            _ => {}
        }
        d
    }

    fn snapshot(&self) -> Snapshot {
        let inner = self.inner.snapshot();
        let limit = inner.limit.clamp(
            self.bounds.items_min,
            self.bounds.items_max.max(self.bounds.bytes_max),
        );
        Snapshot {
            limit,
            counts: self.counts,
            ..inner
        }
    }

    fn size_costs(&self) -> SizeCosts {
        self.inner.size_costs()
    }

    fn wants_arrivals(&self) -> bool {
        self.inner.wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        self.inner.stuck_at()
    }
}

const fn memory_unless_waiting(d: Decision) -> Reason {
    match (d.when, d.reason) {
        (When::Now, Reason::Drained) => Reason::Drained,
        (When::Now, _) => Reason::Memory,
        _ => d.reason,
    }
}
