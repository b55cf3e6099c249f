//! A second controller that decides beside the active controller, for comparison only, so that a user can
//! judge a controller before using it.

use super::{Controller, Decision, Event, SizeCosts, Snapshot, When};
use crate::Time;

/// Obeys `active`, sends the same events to `shadow`, and compares their answers. The events describe the
/// batches of the active controller. The shadow's answers therefore tell its next decision at each point, not
/// the run that it would have had. Nor does a recorded [event log](super::Recorder) give that run:
/// [`replay`](super::replay) names only the first decision that differs. The simulator (feature `sim`) runs a
/// controller on generated arrivals, not on a recorded log.
///
/// ```
/// use tidegate::Time;
/// use tidegate::controller::{Controller, Event, Fixed, Load, Shadow};
///
/// let mut both = Shadow::new(Fixed::new(10).controller(), Fixed::new(4).controller());
/// let backlog = Load::items(8);
/// let decision = both.on(Time::ZERO, Event::Ready { backlog, oldest: Time::ZERO });
/// assert_eq!(decision.limit_items, 10);
/// assert_eq!(both.comparison().smaller, 1); // the shadow would have taken four of eight items
/// ```
#[derive(Clone, Debug)]
pub struct Shadow<A, S> {
    active: A,
    shadow: S,
    comparison: Comparison,
}

/// Counts of the decisions of a shadow controller, and of its decisions that differ from those of the active
/// controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of answers to [`Event::Ready`] in which the shadow was compared with the active controller.
    pub decisions: u64,
    /// The number of batches for which the shadow allowed fewer items than the active controller took.
    pub smaller: u64,
    /// The number of batches for which the shadow allowed more items than the active controller took.
    pub larger: u64,
    /// The number of decisions on which the shadow would have waited and the active controller started.
    pub waits: u64,
    /// The number of decisions on which the shadow would have started and the active controller waited.
    pub starts: u64,
    /// The shadow's last answer to [`Event::Ready`], which the next batch is compared with; `None` before the
    /// first.
    pub last: Option<Decision>,
}

impl<A: Controller, S: Controller> Shadow<A, S> {
    /// Obeys `active` and compares `shadow` with it. Both are controllers; a rule becomes one by its method
    /// `controller()`: `Shadow::new(knee, Fixed::new(16).controller())`.
    #[must_use]
    pub const fn new(active: A, shadow: S) -> Self {
        let comparison = Comparison {
            decisions: 0,
            smaller: 0,
            larger: 0,
            waits: 0,
            starts: 0,
            last: None,
        };
        Self {
            active,
            shadow,
            comparison,
        }
    }

    /// Returns how the decisions of the two controllers have differed so far.
    pub const fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// Returns the state and the counts of the shadow controller, to compare them with the active
    /// controller's.
    pub fn shadow_snapshot(&self) -> Snapshot {
        self.shadow.snapshot()
    }

    /// Makes the shadow the active controller, and the active controller the shadow, after a comparison.
    #[must_use]
    pub fn swap(self) -> Shadow<S, A> {
        Shadow::new(self.shadow, self.active)
    }

    /// Returns both controllers, the active controller first, and ends the comparison.
    #[must_use]
    pub fn into_inner(self) -> (A, S) {
        (self.active, self.shadow)
    }

    fn compare(&mut self, backlog: u64, active: Decision, shadow: Decision) {
        let c = &mut self.comparison;
        c.decisions += 1;
        c.last = Some(shadow);
        match (active.when == When::Now, shadow.when == When::Now) {
            (true, true) => {
                let (a, s) = (
                    active.limit_items.min(backlog),
                    shadow.limit_items.min(backlog),
                );
                c.smaller += u64::from(s < a);
                c.larger += u64::from(s > a);
            }
            (true, false) => c.waits += 1,
            (false, true) => c.starts += 1,
            (false, false) => {}
        }
    }
}

impl<A: Controller, S: Controller> Controller for Shadow<A, S> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        let active = self.active.on(now, event);
        let shadow = self.shadow.on(now, event);
        if let Event::Ready { backlog, .. } = event {
            self.compare(backlog.items, active, shadow);
        }
        active
    }

    /// Returns the state and the counts of the active controller, because the batches are its own.
    fn snapshot(&self) -> Snapshot {
        self.active.snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        self.active.size_costs()
    }

    fn wants_arrivals(&self) -> bool {
        self.active.wants_arrivals() || self.shadow.wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        self.active.stuck_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Fixed, Load};

    #[test]
    fn the_shadow_is_counted_and_never_obeyed() {
        let mut c = Shadow::new(Fixed::new(10).controller(), Fixed::new(4).controller());
        for n in [3, 8, 20] {
            let d = c.on(
                Time::ZERO,
                Event::Ready {
                    backlog: Load::items(n),
                    oldest: Time::ZERO,
                },
            );
            assert_eq!(d.limit_items, 10);
        }
        let k = c.comparison();
        assert_eq!((k.decisions, k.smaller, k.larger, k.waits), (3, 2, 0, 0));
        assert_eq!((c.snapshot().limit, c.shadow_snapshot().limit), (10, 4));
        let (active, shadow) = c.clone().into_inner();
        assert_eq!((active.snapshot().limit, shadow.snapshot().limit), (10, 4));
        assert_eq!(c.swap().snapshot().limit, 4);
    }
}
