//! A controller that decides beside the one that acts, and is never obeyed.

use super::{Controller, Decision, Event, Snapshot, When};
use crate::Time;

/// `active` decides; `shadow` is told the same events and its answers are only compared. What it is told are
/// the batches of the active one, so its answers say what it would do next from here, not how the run would
/// have gone under it: for that, replay the [event log](super::Recorder) in the simulator.
#[derive(Clone, Debug)]
pub struct Shadow<A, S> {
    active: A,
    shadow: S,
    comparison: Comparison,
}

/// How often the shadow would have decided otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Answers to [`Event::Ready`] compared.
    pub decisions: u64,
    /// Batches the shadow would have taken smaller than the active one did.
    pub smaller: u64,
    /// Batches it would have taken larger.
    pub larger: u64,
    /// It would have waited where the active one started.
    pub waits: u64,
    /// It would have started where the active one waited.
    pub starts: u64,
    /// Its last answer.
    pub last: Option<Decision>,
}

impl<A: Controller, S: Controller> Shadow<A, S> {
    /// `active` decides, `shadow` looks on.
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

    /// How the two differed so far.
    pub const fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// The shadow's own state.
    pub fn shadow_snapshot(&self) -> Snapshot {
        self.shadow.snapshot()
    }

    /// Lets the shadow act from now on, and the active one look on.
    #[must_use]
    pub fn swap(self) -> Shadow<S, A> {
        Shadow::new(self.shadow, self.active)
    }

    /// Takes both controllers out, the active one first.
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

    /// The active controller's.
    fn snapshot(&self) -> Snapshot {
        self.active.snapshot()
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
        let (active, shadow) = c.clone().into_inner();
        assert_eq!((active.snapshot().limit, shadow.snapshot().limit), (10, 4));
        assert_eq!(c.swap().snapshot().limit, 4);
    }
}
