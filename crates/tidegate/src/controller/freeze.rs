//! A wrapper that freezes a controller, so that a user can hold a setting or compare runs: the controller
//! learns nothing, and the wrapper repeats its last decision.

use super::{BatchId, Controller, Decision, Event, SizeCosts, Snapshot, When};
use crate::Time;

/// Wraps a controller with a switch. While frozen, the controller learns nothing, and the wrapper repeats the
/// limits, the linger and the reason of the last answer to [`Event::Ready`]. After a thaw the controller
/// continues from its former state.
///
/// The controller inside gets one [`Event::Done`] for each batch that it saw start. It learns nothing from a
/// batch that ran while frozen, or beside a batch that started while frozen.
///
/// ```
/// use tidegate::Time;
/// use tidegate::controller::{BatchId, Controller, Event, Exponential, Freeze, Load, Reason};
///
/// /// A full batch, with a backlog behind it; returns its limit.
/// fn full_batch(rule: &mut impl Controller) -> u64 {
///     let (id, backlog) = (BatchId::default(), Load::items(1000));
///     let limit = rule.on(Time::ZERO, Event::Ready { backlog, oldest: Time::ZERO }).limit_items;
///     let (batch, left) = (Load::items(limit), Load::items(1000 - limit));
///     rule.on(Time::ZERO, Event::Started { id, batch, left, reason: Reason::Limit });
///     rule.on(Time::ZERO, Event::Done { id, cost_ns: 500, ok: true });
///     limit
/// }
///
/// let mut rule = Freeze::new(Exponential::new().controller());
/// assert_eq!([full_batch(&mut rule), full_batch(&mut rule)], [32, 64]);
/// rule.freeze();
/// assert_eq!([full_batch(&mut rule), full_batch(&mut rule)], [64, 64]);
/// rule.thaw();
/// assert_eq!(full_batch(&mut rule), 128);
/// ```
#[derive(Clone, Debug)]
pub struct Freeze<C> {
    inner: C,
    frozen: bool,
    last: Option<(Decision, Linger)>,
    /// The running batches that the wrapper follows, to know which ends the controller inside may learn from.
    open: Vec<Open>,
}

/// A running batch, as the wrapper follows it until the batch is done.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: BatchId,
    /// True if the wrapper reported the start of the batch to the controller inside. Only then does that
    /// controller learn that the batch is done.
    seen: bool,
    /// True if the wrapper hides the cost of the batch from the controller inside, because the batch ran
    /// while frozen or beside a batch that started so.
    tainted: bool,
}

/// The wait in the controller's last decision, as a duration after the arrival of the oldest item. In this
/// form the wrapper can repeat the wait at another time.
#[derive(Clone, Copy, Debug)]
enum Linger {
    None,
    Ns(u64),
}

/// The greatest number of running batches that the wrapper follows. Beyond that number the wrapper forgets
/// the batch that started first.
const OPEN_MAX: usize = super::IN_FLIGHT_MAX as usize;

impl<C: Controller> Freeze<C> {
    /// Wraps the controller `inner`, which continues to learn until [`freeze`](Self::freeze). A rule becomes
    /// a controller by its method `controller()`.
    #[must_use]
    pub const fn new(inner: C) -> Self {
        Self {
            inner,
            frozen: false,
            last: None,
            open: Vec::new(),
        }
    }

    /// Stops the controller's learning. From now on the wrapper repeats the controller's last decision.
    pub fn freeze(&mut self) {
        self.frozen = true;
        for batch in &mut self.open {
            batch.tainted = true;
        }
    }

    /// Ends the freeze: the controller decides again, from its state before the freeze.
    pub const fn thaw(&mut self) {
        self.frozen = false;
    }

    /// Returns whether the controller is frozen, so that it learns nothing.
    pub const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Returns the controller that the wrapper freezes, to read its state.
    pub const fn inner(&self) -> &C {
        &self.inner
    }

    /// Drops the wrapper and returns the controller inside, in its present state.
    #[must_use]
    pub fn into_inner(self) -> C {
        self.inner
    }

    fn started(&mut self, id: BatchId) {
        // A driver that reports no `Done` may use an id again. The wrapper then forgets the earlier batch.
        self.open.retain(|batch| batch.id != id);
        if self.open.len() == OPEN_MAX {
            self.open.remove(0);
        }
        let seen = !self.is_holding();
        let tainted = !seen || self.open.iter().any(|batch| !batch.seen);
        self.open.push(Open { id, seen, tainted });
    }

    /// Removes the batch of `id` from the running batches and returns it. A batch of an unknown id counts as
    /// seen, so that the controller inside learns that it is done.
    fn done(&mut self, id: BatchId) -> Open {
        match self.open.iter().position(|batch| batch.id == id) {
            Some(at) => self.open.remove(at),
            None => Open {
                id,
                seen: true,
                tainted: self.is_holding(),
            },
        }
    }

    /// Returns whether the wrapper repeats the last decision in place of the controller: it is frozen, and
    /// the controller has decided before.
    const fn is_holding(&self) -> bool {
        self.frozen && self.last.is_some()
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
    fn on(&mut self, now: Time, mut event: Event) -> Decision {
        let mut passes = !self.is_holding();
        match &mut event {
            Event::Started { id, .. } => self.started(*id),
            Event::Done { id, ok, .. } => {
                let batch = self.done(*id);
                passes = batch.seen;
                *ok = *ok && !batch.tainted;
            }
            _ => {}
        }
        if let Some(last) = self.last.filter(|_| self.frozen || !passes) {
            if passes {
                self.inner.on(now, event);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{
        Bounds, Exponential, Fixed, Knee, Load, Objective, Reason, Recorder, Ruled,
    };

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

    fn done(c: &mut impl Controller, now: &mut u64, id: u64, cost_ns: u64) {
        *now += cost_ns;
        let id = BatchId::new(id);
        let ok = true;
        c.on(Time::from_nanos(*now), Event::Done { id, cost_ns, ok });
    }

    fn started(c: &mut impl Controller, now: u64, id: u64) {
        let started = Event::Started {
            id: BatchId::new(id),
            batch: Load::items(32),
            left: Load::default(),
            reason: Reason::Limit,
        };
        c.on(Time::from_nanos(now), started);
    }

    /// Returns a frozen wrapper with the batches of `ids` in flight. The recorder inside keeps every event
    /// that the wrapper passes on.
    fn frozen_over(ids: std::ops::Range<u64>) -> Freeze<Recorder<Ruled<Fixed>>> {
        let fixed = Fixed::new(32).with_in_flight(8).controller();
        let mut c = Freeze::new(Recorder::new(fixed, 1000));
        let backlog = Load::items(1000);
        let oldest = Time::ZERO;
        c.on(Time::ZERO, Event::Ready { backlog, oldest });
        for id in ids {
            started(&mut c, 0, id);
        }
        c.freeze();
        c
    }

    fn dones(c: &Freeze<Recorder<Ruled<Fixed>>>) -> Vec<(u64, bool)> {
        let log = c.inner().log().iter();
        log.filter_map(|entry| match entry.event {
            Event::Done { id, ok, .. } => Some((id.get(), ok)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn a_batch_that_ends_while_frozen_does_not_stay_open() {
        let mut c = frozen_over(0..3);
        let mut now = 0;
        done(&mut c, &mut now, 1, 10);
        assert_eq!(dones(&c), [(1, false)]);
        c.thaw();
        done(&mut c, &mut now, 2, 10);
        done(&mut c, &mut now, 0, 10);
        assert_eq!(dones(&c), [(1, false), (2, false), (0, false)]);
        started(&mut c, now, 3);
        done(&mut c, &mut now, 3, 10);
        assert_eq!(dones(&c).last(), Some(&(3, true)));
    }

    #[test]
    fn a_batch_that_starts_while_frozen_is_never_seen_and_taints_those_beside_it() {
        let mut c = frozen_over(0..0);
        let mut now = 0;
        started(&mut c, now, 0);
        c.thaw();
        started(&mut c, now, 1);
        let d = c.on(Time::ZERO, Event::Blocking);
        done(&mut c, &mut now, 0, 10);
        done(&mut c, &mut now, 1, 10);
        assert_eq!(dones(&c), [(1, false)]);
        assert_eq!((d.limit_items, d.in_flight), (32, 8));
        started(&mut c, now, 2);
        done(&mut c, &mut now, 2, 10);
        assert_eq!(dones(&c), [(1, false), (2, true)]);
    }

    #[test]
    fn thawed_with_a_batch_in_flight_the_default_learns_again() {
        let bounds = Bounds {
            in_flight_max: Some(2),
            ..Bounds::default()
        };
        let mut c = Freeze::new(Knee::new(Objective::Lean, bounds).unwrap());
        let mut now = 0;
        let (backlog, oldest) = (Load::items(1000), Time::ZERO);
        c.on(Time::ZERO, Event::Ready { backlog, oldest });
        started(&mut c, 0, 0);
        started(&mut c, 0, 1);
        c.freeze();
        done(&mut c, &mut now, 0, 1032);
        done(&mut c, &mut now, 1, 1032);
        c.thaw();
        for id in 2..400 {
            let oldest = Time::from_nanos(now);
            let d = c.on(oldest, Event::Ready { backlog, oldest });
            let (batch, left) = (Load::items(d.limit_items.min(1000)), Load::default());
            let (id, reason) = (BatchId::new(id), Reason::Limit);
            let started = Event::Started {
                id,
                batch,
                left,
                reason,
            };
            c.on(oldest, started);
            done(&mut c, &mut now, id.get(), 1000 + batch.items);
        }
        assert!(c.snapshot().model.is_some(), "{:?}", c.snapshot());
        assert_eq!(c.into_inner().snapshot().resets, 0);
    }
}
