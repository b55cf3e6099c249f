//! A controller that can be told to hold still.

use super::{Controller, Decision, Event, Snapshot, When};
use crate::Time;

/// Wraps a controller with a switch. While frozen it learns nothing and repeats the limits, the linger and
/// the reason of its last answer to [`Event::Ready`]; after a thaw it goes on from where it stood.
#[derive(Clone, Debug)]
pub struct Freeze<C> {
    inner: C,
    frozen: bool,
    last: Option<(Decision, Linger)>,
}

/// A wait as a length, so that it can be repeated at another time.
#[derive(Clone, Copy, Debug)]
enum Linger {
    None,
    Ns(u64),
}

impl<C: Controller> Freeze<C> {
    /// `inner`, not frozen.
    #[must_use]
    pub const fn new(inner: C) -> Self {
        Self {
            inner,
            frozen: false,
            last: None,
        }
    }

    /// Stops learning, and deciding anything new.
    pub const fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Goes on from where it stood.
    pub const fn thaw(&mut self) {
        self.frozen = false;
    }

    /// Returns whether it is frozen.
    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// The controller inside.
    pub const fn inner(&self) -> &C {
        &self.inner
    }

    fn repeat(&self, last: (Decision, Linger), oldest: Time, now: Time, items: u64) -> Decision {
        let (mut d, linger) = last;
        d.when = match (linger, d.when) {
            (Linger::Ns(ns), _) if now >= oldest.after(ns) => When::Now,
            (Linger::Ns(_), When::After { items: enough, .. }) if items >= enough => When::Now,
            (Linger::Ns(ns), When::After { items, .. }) => When::After {
                items,
                until: oldest.after(ns),
            },
            (Linger::Ns(ns), _) => When::At(oldest.after(ns)),
            (Linger::None, _) => When::Now,
        };
        d
    }
}

impl<C: Controller> Controller for Freeze<C> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        if self.frozen
            && let Some(last) = self.last
        {
            return match event {
                Event::Ready { backlog, oldest } => self.repeat(last, oldest, now, backlog.items),
                _ => Decision {
                    when: When::Now,
                    ..last.0
                },
            };
        }
        let d = self.inner.on(now, event);
        if let Event::Ready { oldest, .. } = event {
            let linger = match d.when {
                When::Now => Linger::None,
                When::At(t) | When::After { until: t, .. } => Linger::Ns(t.since(oldest)),
            };
            self.last = Some((d, linger));
        }
        d
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            frozen: self.frozen,
            ..self.inner.snapshot()
        }
    }

    fn wants_arrivals(&self) -> bool {
        self.inner.wants_arrivals()
    }

    fn stuck_at(&self) -> Time {
        self.inner.stuck_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{BatchId, Exponential, Load, Reason};

    fn batch(c: &mut impl Controller, n: u64) -> u64 {
        let d = c.on(
            Time::ZERO,
            Event::Ready {
                backlog: Load::items(n),
                oldest: Time::ZERO,
            },
        );
        let batch = Load::items(n.min(d.limit_items));
        c.on(
            Time::ZERO,
            Event::Started {
                id: BatchId::default(),
                batch,
                left: Load::default(),
                reason: Reason::Limit,
            },
        );
        c.on(
            Time::ZERO,
            Event::Done {
                id: BatchId::default(),
                cost_ns: 1,
                ok: true,
            },
        );
        d.limit_items
    }

    #[test]
    fn frozen_it_repeats_itself_and_thawed_it_goes_on() {
        let mut c = Freeze::new(Exponential::new().controller());
        assert_eq!((batch(&mut c, 1000), batch(&mut c, 1000)), (32, 64));
        c.freeze();
        assert_eq!((batch(&mut c, 1000), batch(&mut c, 1000)), (64, 64));
        assert!(c.snapshot().frozen);
        c.thaw();
        assert_eq!(batch(&mut c, 1000), 128);
    }
}
