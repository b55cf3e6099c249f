//! A fixed delay, as other clients offer it: for those who know theirs, and to compare with.

use std::time::Duration;

use tidegate::controller::{Controller, Decision, Event, Reason, Snapshot, When};
use tidegate::{Time, nanos};

/// At most one flush in `delay`, counted from the start of the flush before; a lone caller is never held up.
#[derive(Clone, Copy, Debug)]
pub struct Spaced {
    delay_ns: u64,
    begun: Option<Time>,
    in_flight: u64,
}

impl Spaced {
    /// At most one flush in `delay`.
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
