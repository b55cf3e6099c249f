//! The adapter for simple rules, which look at one batch after the other and return a limit.
//!
//! Every historical rule has this form, and so has a rule that a user writes.

use super::{BatchId, Controller, Decision, Event, Load, Reason, Snapshot, When};
use crate::Time;

/// A rule that observes batches and returns a limit: the simplest way to write a controller. [`Ruled`] turns
/// it into a [`Controller`].
pub trait Rule: Send {
    /// Returns the greatest number of items that the next batch may take; 0 counts as 1.
    fn limit(&self) -> u64;

    /// Observes one batch. With one batch at a time this is the batch that ended last. With several in flight
    /// the batch may still run: see [`Ruled`].
    fn observe(&mut self, batch: Observed);

    /// Returns how long a batch below the limit waits for company, in nanoseconds from the arrival of its
    /// oldest item. [`Bounds::age_max`](super::Bounds::age_max) ends the wait earlier: by default after
    /// 1 s. With the default, 0, no batch waits: the limit then bounds a greedy drain.
    fn linger_ns(&self) -> u64 {
        0
    }

    /// Returns how many batches may run at once; 0 counts as 1.
    fn in_flight(&self) -> u32 {
        1
    }
}

/// A batch in the form in which a [`Rule`] observes it, to set its next limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The load that the batch took.
    pub batch: Load,
    /// The load that the batch left in the backlog; 0 if it took the whole backlog.
    pub left: Load,
    /// The rule's limit at the start of the batch. Where the [`Bounds`](super::Bounds) allow less, the driver
    /// used that smaller limit.
    pub limit: u64,
    /// True if the batch has at least `limit` items. It is false for every batch that ended below `limit`,
    /// also if items were left: because the handler finished the batch early
    /// ([`Append::Finish`](crate::batcher::Append::Finish)), because of the bound on bytes, or because
    /// `items_max` is below `limit`.
    pub full: bool,
    /// The reason why the driver cut the batch at its last item.
    pub reason: Reason,
    /// The cost of the batch in nanoseconds. `None` if the driver did not measure the cost, if the batch
    /// failed, or if the batch still runs.
    pub cost_ns: Option<u64>,
}

/// A [`Rule`] as a [`Controller`]. [`Ruled::with_in_flight`] sets the number of batches that run at once;
/// without that call the rule sets it ([`Rule::in_flight`], one by default).
///
/// The rule observes each batch once, before it returns the limit of the next batch. With one batch at a time
/// the rule observes a batch when the batch is done ([`Event::Done`]), with its cost. If the driver reports
/// no end, the rule observes the batch without a cost at the next [`Event::Ready`] or [`Event::Started`].
///
/// With several batches in flight the adapter follows only the batch that started last. If the driver asks
/// for the next batch while this one runs, the rule observes it at that moment, without a cost
/// ([`Observed::cost_ns`] is `None`); its end changes nothing. The rule then sees a cost only of a batch
/// that ends before the driver asks again. A rule that needs the cost of every batch runs one batch at a
/// time, or implements [`Controller`] itself.
#[derive(Clone, Debug)]
pub struct Ruled<R> {
    rule: R,
    in_flight: Option<u32>,
    open: Option<(BatchId, Observed)>,
}

impl<R: Rule> Ruled<R> {
    /// Turns `rule` into a controller, so that a boundary or an actor can use it.
    #[must_use]
    pub const fn new(rule: R) -> Self {
        Self {
            rule,
            in_flight: None,
            open: None,
        }
    }

    /// Makes the rule run up to `batches` batches at once where the boundary allows that, in place of
    /// [`Rule::in_flight`]. 0 counts as 1.
    #[must_use]
    pub fn with_in_flight(self, batches: u32) -> Self {
        Self {
            in_flight: Some(batches),
            ..self
        }
    }

    /// Returns the rule, to read its state.
    pub const fn rule(&self) -> &R {
        &self.rule
    }

    fn close(&mut self, cost_ns: Option<u64>) {
        if let Some((_, open)) = self.open.take() {
            self.rule.observe(Observed { cost_ns, ..open });
        }
    }
}

impl<R: Rule> Controller for Ruled<R> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        let decision = self.decide(now, event);
        Decision {
            in_flight: self
                .in_flight
                .unwrap_or_else(|| self.rule.in_flight())
                .max(1),
            ..decision
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            limit: self.rule.limit().max(1),
            binding: Some(Reason::Limit),
            ..Snapshot::default()
        }
    }

    /// Returns false: a rule learns from batches only, so the driver need not report arrivals.
    fn wants_arrivals(&self) -> bool {
        false
    }
}

impl<R: Rule> Ruled<R> {
    fn decide(&mut self, now: Time, event: Event) -> Decision {
        match event {
            Event::Ready { backlog, oldest } => {
                self.close(None);
                let limit = self.rule.limit().max(1);
                let linger = self.rule.linger_ns();
                let until = oldest.after(linger);
                if backlog.items >= limit {
                    let reason = if backlog.items > limit {
                        Reason::Limit
                    } else {
                        Reason::Drained
                    };
                    return Decision::now(limit, reason);
                }
                if linger == 0 {
                    return Decision::now(limit, Reason::Drained);
                }
                let when = if now >= until {
                    When::Now
                } else {
                    When::After {
                        items: limit,
                        until,
                    }
                };
                return Decision {
                    when,
                    ..Decision::now(limit, Reason::Linger)
                };
            }
            Event::Started {
                id,
                batch,
                left,
                reason,
            } => {
                self.close(None);
                let limit = self.rule.limit().max(1);
                let full = batch.items >= limit;
                self.open = Some((
                    id,
                    Observed {
                        batch,
                        left,
                        limit,
                        full,
                        reason,
                        cost_ns: None,
                    },
                ));
            }
            // With several batches in flight the rule learns only the cost of the batch that started last.
            Event::Done { id, cost_ns, ok } if self.open.is_some_and(|(open, _)| open == id) => {
                self.close(ok.then_some(cost_ns));
            }
            _ => {}
        }
        Decision::now(self.rule.limit().max(1), Reason::Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{
        Aimd, Bounds, Choice, Exponential, Fixed, Greedy, IntoController, StormAimd,
    };

    struct Doubling(u64, u64);
    impl Rule for Doubling {
        fn limit(&self) -> u64 {
            self.0
        }
        fn observe(&mut self, batch: Observed) {
            self.0 = if batch.full { self.0 * 2 } else { self.0 };
        }
        fn linger_ns(&self) -> u64 {
            self.1
        }
    }

    fn ready(c: &mut impl Controller, at: u64, items: u64, oldest: u64) -> Decision {
        let oldest = Time::from_nanos(oldest);
        c.on(
            Time::from_nanos(at),
            Event::Ready {
                backlog: Load::items(items),
                oldest,
            },
        )
    }

    #[test]
    fn a_batch_is_observed_once_with_or_without_its_cost() {
        let mut c = Ruled::new(Doubling(4, 0));
        let started = Event::Started {
            id: BatchId::default(),
            batch: Load::items(4),
            left: Load::items(1),
            reason: Reason::Limit,
        };
        c.on(Time::ZERO, started);
        c.on(
            Time::ZERO,
            Event::Done {
                id: BatchId::default(),
                cost_ns: 7,
                ok: true,
            },
        );
        assert_eq!(ready(&mut c, 0, 1, 0).limit_items, 8);
        let d = c.on(
            Time::ZERO,
            Event::Started {
                id: BatchId::default(),
                batch: Load::items(8),
                left: Load::items(0),
                reason: Reason::Drained,
            },
        );
        assert_eq!(
            d.limit_items, 8,
            "not observed before it is done or the next is asked for"
        );
        assert_eq!(ready(&mut c, 0, 1, 0).limit_items, 16);
    }

    #[test]
    fn a_linger_waits_for_the_limit_and_no_longer_than_told() {
        let mut c = Ruled::new(Doubling(4, 100));
        let d = ready(&mut c, 10, 3, 5);
        assert_eq!(
            (d.when, d.reason),
            (
                When::After {
                    items: 4,
                    until: Time::from_nanos(105)
                },
                Reason::Linger
            )
        );
        assert_eq!(ready(&mut c, 10, 4, 5).when, When::Now);
        assert_eq!(ready(&mut c, 105, 3, 5).when, When::Now);
    }

    #[test]
    fn every_rule_may_run_several_batches_at_once() {
        fn in_flight(c: impl IntoController) -> u32 {
            ready(&mut c.into_controller(), 0, 1, 0).in_flight
        }
        let linger = std::time::Duration::ZERO;
        assert_eq!(in_flight(Greedy), 1);
        assert_eq!(in_flight(Fixed::new(8)), 1);
        assert_eq!(in_flight(Fixed::new(8).with_in_flight(3)), 3);
        assert_eq!(in_flight(Greedy.with_in_flight(7)), 7);
        assert_eq!(in_flight(Greedy.with_in_flight(0)), 1);
        assert_eq!(in_flight(Exponential::new().with_in_flight(7)), 7);
        assert_eq!(in_flight(Aimd::new(64).with_in_flight(7)), 7);
        let storm = StormAimd::new(64).with_tick(linger);
        assert_eq!(in_flight(storm.with_in_flight(7)), 7);
        assert_eq!(in_flight(Ruled::new(Doubling(4, 0)).with_in_flight(7)), 7);
        let bounds = Bounds {
            in_flight_max: Some(5),
            ..Bounds::default()
        };
        let named = "greedy:64".parse::<Choice>().unwrap();
        assert_eq!(in_flight(named.build(bounds).unwrap()), 5);
    }
}
