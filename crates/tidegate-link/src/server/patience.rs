//! A controller around another controller of acknowledgements, for clients that wait for each
//! acknowledgement.
//!
//! The inner controller's budget makes an acknowledgement wait until more messages share it. A client in
//! lock-step sends nothing until it has its acknowledgement, so no message arrives and the client spends all
//! its time waiting. The outer controller detects this: a wait ends with no more messages than it began with.
//! After four such waits in a row acknowledgements leave at once for 250 ms; then one more wait tests again.
//! A message that arrives during a wait ends the exception.
//!
//! The exception overruns the budget for as long as the client waits for each acknowledgement: the budget
//! gives way to the client's throughput. Pure.

use tidegate::Time;
use tidegate::controller::{Controller, Decision, Event, Reason, SizeCosts, Snapshot, When};

/// The number of futile waits in a row after which acknowledgements leave at once. If a few messages usually
/// arrive in a wait, chance alone does not produce so many futile ones.
const VAIN: u32 = 4;
/// The nanoseconds for which acknowledgements leave at once, before one more wait tests whether the client
/// still waits for each of them.
const BELIEVED_NS: u64 = 250_000_000;

/// The controller that acknowledges at once for clients in lock-step, and otherwise as its inner controller
/// decides.
pub(super) struct Patience<C> {
    inner: C,
    /// The number of unacknowledged messages when the current wait of an acknowledgement began, to see
    /// whether the wait gains any; `None` if no acknowledgement waits.
    wait: Option<u64>,
    /// The number of waits of an acknowledgement in a row during which no message arrived. [`VAIN`] of them
    /// show a client in lock-step.
    vain: u32,
    /// The time until which acknowledgements leave at once, because the client waits for each of them.
    eager_until: Time,
}

impl<C: Controller> Patience<C> {
    pub(super) const fn new(inner: C) -> Self {
        Self {
            inner,
            wait: None,
            vain: 0,
            eager_until: Time::ZERO,
        }
    }

    fn judge(&mut self, now: Time, gathered: u64) {
        let Some(began_with) = self.wait.take() else {
            return;
        };
        if gathered > began_with {
            self.vain = 0;
            return;
        }
        self.vain = self.vain.saturating_add(1);
        if self.vain >= VAIN {
            self.eager_until = now.after(BELIEVED_NS);
        }
    }
}

impl<C: Controller> Controller for Patience<C> {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        let mut d = self.inner.on(now, event);
        match event {
            Event::Ready { backlog, .. } => {
                let waits = match d.when {
                    When::Now => false,
                    When::At(until) => until > now,
                    When::After { items, until } => backlog.items < items && until > now,
                };
                if waits && now < self.eager_until {
                    d.when = When::Now;
                    d.reason = Reason::Anticipate;
                } else if waits {
                    self.wait.get_or_insert(backlog.items);
                }
            }
            Event::Started { batch, .. } => self.judge(now, batch.items),
            _ => {}
        }
        d
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        self.inner.size_costs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::cadence;
    use tidegate::controller::{BatchId, Load};

    const MS: u64 = 1_000_000;

    /// Simulates an acknowledgement of `items` messages that arrived at `now`, and of `later` more that
    /// arrived before it left. Returns the nanoseconds that the acknowledgement waited.
    fn ack(c: &mut impl Controller, now: u64, items: u64, later: u64) -> u64 {
        let oldest = Time::from_nanos(now);
        let mut at = oldest;
        let mut backlog = items;
        loop {
            let ready = Event::Ready {
                backlog: Load::items(backlog),
                oldest,
            };
            match c.on(at, ready).when {
                When::At(t) | When::After { until: t, .. } if t > at => {
                    backlog = items + later;
                    at = t;
                }
                _ => break,
            }
        }
        let batch = Load::items(backlog);
        let left = Load::items(0);
        let reason = Reason::Drained;
        c.on(
            at,
            Event::Started {
                id: BatchId::default(),
                batch,
                left,
                reason,
            },
        );
        let cost_ns = 10_000;
        c.on(
            at.after(cost_ns),
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok: true,
            },
        );
        at.since(oldest)
    }

    #[test]
    fn a_client_in_lock_step_soon_waits_no_more() {
        let mut c = Patience::new(cadence());
        let mut now = 0;
        let mut waited = 0;
        for _ in 0..10_000 {
            let wait = ack(&mut c, now, 1, 0);
            waited += wait;
            now += wait + 60_000;
        }
        // Without the exception, every acknowledgement would wait for a millisecond, and
        // the test for ten seconds.
        assert!(waited < 20 * MS, "{waited}");
    }

    #[test]
    fn a_client_that_goes_on_sending_is_acknowledged_by_the_budget() {
        let mut c = Patience::new(cadence());
        let mut now = 0;
        for _ in 0..1000 {
            ack(&mut c, now, 1, 0);
            now += 60_000;
        }
        // From now on messages arrive during every wait, so the first such wait must end the exception.
        now += BELIEVED_NS;
        let mut at_once = 0;
        for _ in 0..1000 {
            let wait = ack(&mut c, now, 1, 9);
            at_once += u64::from(wait == 0);
            now += wait + 100_000;
        }
        assert!(at_once <= 2, "{at_once}");
    }
}
