//! The controller of the default policy: it first waits for the callers just answered, then weighs the cost
//! of a wait.
//!
//! The controller applies three rules in this order. First, it flushes at once if no command is in flight and
//! it expects no caller, so a lone caller pays one round trip and the client arms no timer. Second, it
//! expects the callers just answered to submit again. The flush waits until as many commands are queued, or
//! until no command comes for a time that is short compared to the round trip. Third, the price of waiting
//! decides: [`Knee`] with its inflation objective. A limit applies to the waits for callers: while they bring
//! no command (the callers have submitted already, or left), the controller makes such a wait only once in 64
//! flushes.

use std::time::Duration;

use tidegate::controller::{
    Controller, Decision, Event, Knee, Load, Reason, SizeCosts, Snapshot, When,
};
use tidegate::{Time, nanos};

/// The longest time without a new command, in nanoseconds, for which the controller waits for expected
/// callers. After that time they are not likely to come soon.
const SILENCE_NS: u64 = 25_000;
/// The longest time without a new command for which the controller waits for expected callers, as a fraction
/// of the round trip. The shorter of this time and [`SILENCE_NS`] applies.
const SILENCE_SHARE: f64 = 0.25;
/// The number of queued commands from which on the controller waits for no further caller, because the cost
/// of a flush is then small per command.
const ENOUGH: u64 = 128;
/// The number of flushes in which the controller makes one wait for callers, while such waits bring no
/// command.
const PROBE: u64 = 64;

/// The controller of the default policy: it first waits for the callers just answered, then weighs the cost
/// of a wait. See docs/redis.md.
#[derive(Debug)]
pub struct Auto {
    price: Knee,
    /// The longest time, in nanoseconds, that a flush waits for further commands, if the program sets it. It
    /// replaces the wait that `price` computes.
    wait_ns: Option<u64>,
    in_flight: u64,
    /// The number of callers answered since the last flush, which the controller expects to submit again.
    expected: u64,
    rtt_ns: f64,
    /// The number of queued commands when the controller began to wait for expected callers; `None` if it has
    /// not waited since the last flush. If the flush then carries more commands, the wait has gained
    /// commands.
    first: Option<u64>,
    last: u64,
    silent_since: Time,
    waited: bool,
    gain: f64,
    flushes: u64,
    /// The estimated number of callers, from which the controller knows whether all have submitted: the
    /// greatest number of commands that were queued and in flight together, with slow decay.
    callers: f64,
}

impl Auto {
    /// Creates a controller. Its `price` decides how long a flush may wait while the controller expects no
    /// caller.
    #[must_use]
    pub const fn new(price: Knee) -> Self {
        Self {
            price,
            wait_ns: None,
            in_flight: 0,
            expected: 0,
            rtt_ns: 0.0,
            first: None,
            last: 0,
            silent_since: Time::ZERO,
            waited: false,
            gain: 1.0,
            flushes: 0,
            callers: 1.0,
        }
    }

    /// Makes a flush wait up to this long for further commands, however long the round trip is. If every
    /// known caller has a command queued or in flight, the flush does not wait.
    #[must_use]
    pub fn waiting(mut self, at_most: Duration) -> Self {
        self.wait_ns = Some(nanos(at_most));
        self
    }

    fn ready(&mut self, now: Time, backlog: Load, oldest: Time) -> Decision {
        let flush = Decision::now(u64::MAX, Reason::Drained);
        let total = backlog.items + self.in_flight;
        self.callers = self.callers.max(total as f64);
        if self.in_flight == 0 && self.expected <= backlog.items && self.wait_ns.is_none() {
            return flush;
        }
        if let Some(until) = self.anticipate(now, backlog.items) {
            self.waited = true;
            return Decision {
                when: When::After {
                    items: self.expected.min(ENOUGH),
                    until,
                },
                ..Decision::now(u64::MAX, Reason::Anticipate)
            };
        }
        let Some(wait) = self.wait_ns else {
            let d = self.price.on(now, Event::Ready { backlog, oldest });
            return Decision {
                limit_items: u64::MAX,
                limit_bytes: u64::MAX,
                ..d
            };
        };
        let due = oldest.after(wait);
        let everyone = total as f64 >= self.callers - 0.5;
        if everyone || now >= due {
            return flush;
        }
        Decision {
            when: When::At(due),
            ..Decision::now(u64::MAX, Reason::Pace)
        }
    }

    /// Returns the time until which a flush waits for expected callers, or `None` if it does not wait any
    /// longer.
    fn anticipate(&mut self, now: Time, queued: u64) -> Option<Time> {
        if queued >= self.expected.min(ENOUGH) {
            return None;
        }
        if self.first.is_none() || queued > self.last {
            self.silent_since = now;
        }
        self.first.get_or_insert(queued);
        self.last = queued;
        if self.gain < 0.25 && !self.flushes.is_multiple_of(PROBE) {
            return None;
        }
        let share = (self.rtt_ns * SILENCE_SHARE) as u64;
        let until = self.silent_since.after(SILENCE_NS.min(share));
        (now < until).then_some(until)
    }

    fn started(&mut self, batch: Load) {
        self.in_flight += batch.items;
        self.flushes += 1;
        self.callers -= self.callers / 4096.0;
        if std::mem::take(&mut self.waited) {
            let came = self.first.is_some_and(|first| batch.items > first);
            self.gain += (f64::from(u8::from(came)) - self.gain) / 16.0;
        }
        self.first = None;
        self.last = 0;
        self.expected = 0;
    }
}

impl Controller for Auto {
    fn on(&mut self, now: Time, event: Event) -> Decision {
        match event {
            Event::Ready { backlog, oldest } => return self.ready(now, backlog, oldest),
            Event::Started { batch, .. } => self.started(batch),
            Event::Replied { items, took_ns, .. } => {
                self.in_flight = self.in_flight.saturating_sub(items);
                let gain = if self.rtt_ns == 0.0 { 1.0 } else { 1.0 / 16.0 };
                self.rtt_ns += (took_ns as f64 - self.rtt_ns) * gain;
            }
            Event::Expected { items } => self.expected += items,
            _ => {}
        }
        self.price.on(now, event)
    }

    fn snapshot(&self) -> Snapshot {
        self.price.snapshot()
    }

    fn size_costs(&self) -> SizeCosts {
        self.price.size_costs()
    }
}

#[cfg(test)]
mod tests;
