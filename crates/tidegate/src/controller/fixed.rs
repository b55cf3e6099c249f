//! The rules with a limit that never changes: [`Fixed`] with a constant limit, and [`Greedy`] without one.

use super::{Observed, Rule, Ruled};

/// The rule with a constant limit. By default the drain is greedy: a batch takes the backlog up to the limit.
/// With a linger, a batch below the limit waits, as with the batch size and `linger_ms` of most libraries.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Time;
/// use tidegate::controller::{Controller, Event, Fixed, Load, When};
///
/// let mut fixed = Fixed::new(100).with_linger(Duration::from_millis(5)).controller();
/// let oldest = Time::from_nanos(1_000);
/// let decision = fixed.on(oldest, Event::Ready { backlog: Load::items(7), oldest });
/// assert_eq!(decision.limit_items, 100);
/// assert!(decision.when != When::Now, "seven items wait for company");
/// let decision = fixed.on(oldest, Event::Ready { backlog: Load::items(100), oldest });
/// assert_eq!(decision.when, When::Now);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    limit: u64,
    linger_ns: u64,
    in_flight: u32,
}

impl Fixed {
    /// Creates the rule for batches of up to `limit` items; no item waits.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self {
            limit,
            linger_ns: 0,
            in_flight: 1,
        }
    }

    /// Makes a batch below the limit wait for company for `linger`, counted from the arrival of its oldest
    /// item. No item waits longer than [`Bounds::age_max`](super::Bounds::age_max), 1 s by default: a
    /// linger above that needs a larger `age_max`, too.
    #[must_use]
    pub fn with_linger(self, linger: std::time::Duration) -> Self {
        Self {
            linger_ns: crate::nanos(linger),
            ..self
        }
    }

    /// Makes the rule run up to `batches` batches at once, where the boundary allows that. The default is
    /// one.
    #[must_use]
    pub const fn with_in_flight(self, batches: u32) -> Self {
        Self {
            in_flight: batches,
            ..self
        }
    }

    /// Turns the rule into a [`Controller`](super::Controller), as boundaries and actors use it.
    #[must_use]
    pub const fn controller(self) -> Ruled<Self> {
        Ruled::new(self)
    }
}

impl Rule for Fixed {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, _: Observed) {}

    fn linger_ns(&self) -> u64 {
        self.linger_ns
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

/// The rule without a limit: a batch takes the whole backlog, as far as the hard bounds allow.
///
/// ```
/// use tidegate::Time;
/// use tidegate::boundary::{Boundary, Step};
/// use tidegate::controller::{Bounds, Greedy, Load};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut boundary = Boundary::new(Greedy.controller(), Bounds::items(1, 64))?;
/// let Step::Take(limit) = boundary.poll(Time::ZERO, Load::items(1000), Time::ZERO)? else {
///     return Err("greedy never waits".into());
/// };
/// assert_eq!(limit.items, 64); // the hard bound
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl Greedy {
    /// Turns the rule into a [`Controller`](super::Controller) that runs up to `batches` batches at once,
    /// where the boundary allows that.
    #[must_use]
    pub fn with_in_flight(self, batches: u32) -> Ruled<Self> {
        self.controller().with_in_flight(batches)
    }

    /// Turns the rule into a [`Controller`](super::Controller), as boundaries and actors use it.
    #[must_use]
    pub const fn controller(self) -> Ruled<Self> {
        Ruled::new(self)
    }
}

impl Rule for Greedy {
    fn limit(&self) -> u64 {
        u64::MAX
    }

    fn observe(&mut self, _: Observed) {}
}
