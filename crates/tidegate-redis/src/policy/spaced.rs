//! A controller with a fixed delay between flushes, as other Redis clients offer it: for programs that know
//! the right delay, and for comparison.

use std::time::Duration;

use tidegate::controller::{Controller, Decision, Event, Reason, Snapshot, When};
use tidegate::{Time, nanos};

/// A controller that flushes at most once in `delay`, counted from the start of the previous flush. A lone
/// caller never waits.
#[derive(Clone, Copy, Debug)]
pub struct Spaced {
    delay_ns: u64,
    begun: Option<Time>,
    in_flight: u64,
}

impl Spaced {
    /// Creates a controller that flushes at most once in `delay`.
    #[must_use]
    pub fn new(delay: Duration) -> Self {
        Self {
            delay_ns: nanos(delay),
            begun: None,
            in_flight: 0,
        }
    }
}

impl Controller for Spaced {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        match event {
            Event::Ready { backlog, .. } => {
                let lone = backlog.items + self.in_flight <= 1;
                let due = self.begun.map_or(Time::ZERO, |t| t.after(self.delay_ns));
                if !lone && now < due {
                    return Decision {
                        when: When::At(due),
                        ..Decision::now(u64::MAX, Reason::Linger)
                    };
                }
                return Decision::now(u64::MAX, Reason::Drained);
            }
            Event::Started { batch, .. } => {
                self.begun = Some(now);
                self.in_flight += batch.items;
            }
            Event::Replied { items, .. } => self.in_flight = self.in_flight.saturating_sub(items),
            _ => {}
        }
        Decision::now(u64::MAX, Reason::Drained)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use tidegate::controller::{BatchId, Load};

    use super::*;

    #[test]
    fn flushes_are_spaced_and_a_lone_caller_is_spared() {
        let mut c = Spaced::new(Duration::from_micros(100));
        let at = |us: u64| Time::from_nanos(us * 1_000);
        let ready = |c: &mut Spaced, us, n| {
            let (backlog, oldest) = (Load::items(n), at(us));
            c.on(at(us), Event::Ready { backlog, oldest }).when
        };
        let start = |c: &mut Spaced, us, n| {
            let (batch, left, reason) = (Load::items(n), Load::default(), Reason::Drained);
            c.on(
                at(us),
                Event::Started {
                    id: BatchId::default(),
                    batch,
                    left,
                    reason,
                },
            );
        };
        assert_eq!(ready(&mut c, 10, 5), When::Now);
        start(&mut c, 10, 5);
        assert_eq!(
            ready(&mut c, 20, 1),
            When::At(at(110)),
            "one queued, five in flight: not alone"
        );
        assert_eq!(ready(&mut c, 110, 1), When::Now);
        let (items, batch, took_ns) = (5, 5, 1);
        c.on(
            at(30),
            Event::Replied {
                items,
                batch,
                took_ns,
            },
        );
        assert_eq!(ready(&mut c, 40, 1), When::Now);
    }
}
