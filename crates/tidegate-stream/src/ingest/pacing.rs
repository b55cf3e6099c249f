//! Decides when the server sends flow acknowledgements to publishers of fast-ingest batches, and how many
//! messages each acknowledgement covers, because each of them costs the server time.
//!
//! One controller weighs the cost of acknowledgements for the whole server. While the server has no other
//! work, it sends an acknowledgement at once. Under load it spends at most one per cent of a core on
//! acknowledgements, and sends each of them after 5 ms at the latest. The server acknowledges a batch at once
//! if it has stored as many messages of the batch as one acknowledgement covers ([`Spacing`]), because the
//! publisher may have stopped to wait for it.

use crate::convert::saturating_u16;
use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, DecisionLog, Step};
use tidegate::controller::{BatchId, Bounds, Knee, Load, Objective, Reason, SizeCosts, Snapshot};

/// The limit on the time between the storing of a message and the flow acknowledgement that covers it, so
/// that a publisher that waits goes on soon.
const AGE_MAX: Duration = Duration::from_millis(5);
/// The share of one processor core that sending flow acknowledgements may cost. The controller sends
/// acknowledgements less often beyond it.
const BUDGET: f64 = 0.01;
/// The size of the messages that all publishers of fast-ingest batches together should have in flight at
/// most, in bytes, so that the server's memory is enough. [`Spacing`] divides this number among the open
/// batches.
const WINDOW_BYTES: u64 = 64 << 20;
/// The limit on the messages that the first acknowledgement of a batch covers, before the server has measured
/// how many are in flight.
const FIRST: u16 = 100;

/// Decides when the server sends flow acknowledgements for all open fast-ingest batches, by a controller of
/// the engine.
#[derive(Debug)]
pub(super) struct Pacing {
    boundary: Boundary<Knee>,
    /// The id that the controller has given to the acknowledgements that the server is sending now; `None` if
    /// it is sending none. The report of their cost needs it.
    sending: Option<BatchId>,
    /// The cost, in nanoseconds, of acknowledgements that the server sent while the controller had none under
    /// way. The controller counts this cost with the next acknowledgements. So the controller learns the
    /// whole cost.
    unpaid_ns: u64,
}

impl Pacing {
    pub(super) fn new() -> Self {
        let bounds = Bounds {
            items_max: u64::MAX,
            age_max: AGE_MAX,
            ..Bounds::default()
        };
        let boundary = Knee::new(Objective::CostBudget(BUDGET), bounds)
            .ok()
            .and_then(|knee| Boundary::new(knee, bounds).ok());
        Self {
            boundary: boundary.unwrap_or_else(|| unreachable!("constants within their ranges")),
            sending: None,
            unpaid_ns: 0,
        }
    }

    /// Makes the controller of acknowledgements write its decisions into `log`, under `name`, so that an
    /// operator can read why it decided so.
    pub(super) fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.boundary.log_to(log, name);
    }

    /// Returns whether the controller allows the server to send acknowledgements now. `backlog` is the number
    /// of messages that are stored and not acknowledged, and `oldest` the time since which the first of them
    /// waits. The caller may ask again at any time, for example after each outcome.
    pub(super) fn allows(&mut self, now: Time, backlog: u64, oldest: Time) -> bool {
        let (now, backlog) = (self.boundary.at(now), Load::items(backlog));
        // The connection writes acknowledgements that still wait in a buffer together with the next ones, so
        // the controller must not wait for them.
        self.done(now, 0, false);
        let step = self.boundary.poll(now, backlog, oldest);
        matches!(step.unwrap_or_else(impossible), Step::Take(_))
    }

    /// Records that the server begins to send acknowledgements for `acked` messages, and leaves `left`
    /// messages unacknowledged. `forced` is true if the controller did not allow this, and publishers may
    /// have stopped to wait for an acknowledgement. The controller learns from it.
    pub(super) fn started(&mut self, now: Time, acked: u64, left: u64, forced: bool) {
        let reason = match forced {
            true => Reason::Limit,
            false => self.boundary.reason(),
        };
        let (batch, left) = (Load::items(acked), Load::items(left));
        let (now, cut) = (self.boundary.at(now), Cut::Forced(reason));
        let started = self.boundary.started(now, batch, left, cut);
        self.sending = Some(started.unwrap_or_else(impossible));
    }

    /// Records that the server has sent the acknowledgements that [`Pacing::started`] recorded, and that
    /// sending them took `cost_ns` nanoseconds. The controller learns the cost of an acknowledgement.
    pub(super) fn finished(&mut self, now: Time, cost_ns: u64) {
        let cost_ns = self.unpaid_ns.saturating_add(cost_ns);
        let paid = self.done(self.boundary.at(now), cost_ns, true);
        self.unpaid_ns = if paid { 0 } else { cost_ns };
    }

    fn done(&mut self, now: Time, cost_ns: u64, ok: bool) -> bool {
        let Some(id) = self.sending.take() else {
            return false;
        };
        let done = self.boundary.done_with(now, id, cost_ns, ok);
        done.unwrap_or_else(impossible);
        true
    }

    /// Returns the time at which the caller must ask [`Pacing::allows`] again; `None` if the controller has
    /// set no time.
    pub(super) const fn due(&self) -> Option<Time> {
        self.boundary.due()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    pub(super) fn size_costs(&self) -> SizeCosts {
        self.boundary.size_costs()
    }
}

/// Panics: the boundary, which runs the controller of acknowledgements, returns an error only if this module
/// calls it in a wrong order.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("acknowledgements keep to the order of calls: {error}")
}

/// The limit on the messages of a fast-ingest batch that one acknowledgement covers. The server sends this
/// number to the publisher as `msgs`, and the publisher paces itself by it.
///
/// A publisher stops sending when a small multiple of this number is in flight. So the number should exceed
/// the messages that would be in flight if the publisher did not stop: the server chooses twice the measured
/// count. A publisher that has stopped has just its limit in flight, and the server gives it twice as much,
/// at most the number that it asked for. A higher number only allows more unacknowledged messages, so the
/// server lowers it again, by at most half each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    most: u16,
    now: u16,
    /// The moving average of the sizes of the batch's messages, in bytes, by which the server divides its
    /// memory among the batches.
    message_bytes: u64,
}

impl Spacing {
    /// Creates the spacing for a publisher that wants an acknowledgement at least for every `most` messages;
    /// `most` is above 0. The first acknowledgement covers at most 100.
    pub(super) fn new(most: u16) -> Self {
        Self {
            most,
            now: most.min(FIRST),
            message_bytes: 0,
        }
    }

    /// Returns the limit on the messages that one acknowledgement covers, as the server last told the
    /// publisher; in a new batch, the limit for the first acknowledgement.
    pub(super) const fn get(self) -> u16 {
        self.now
    }

    /// Adds a message of this many bytes to the moving average of the sizes of the batch's messages, so that
    /// large messages get a lower limit.
    pub(super) fn weigh(&mut self, bytes: u64) {
        self.message_bytes = self.message_bytes - self.message_bytes / 16 + bytes / 16;
    }

    /// Chooses the limit on the messages that the next acknowledgement covers, and returns it for the answer.
    /// `under_way` messages of the batch are unacknowledged now, and `open` batches share the server.
    pub(super) fn choose(&mut self, under_way: u64, open: usize) -> u16 {
        let share = WINDOW_BYTES / (open.max(1) as u64 * self.message_bytes.max(1));
        let wanted = (2 * under_way).max(u64::from(self.now / 2)).min(share);
        self.now = saturating_u16(wanted).clamp(1, self.most);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacing_follows_what_is_under_way() {
        let mut spacing = Spacing::new(1000);
        assert_eq!(spacing.get(), 100);
        // The publisher has stopped with its whole limit in flight, so the limit doubles up to the number
        // that it asked for.
        for expected in [200, 400, 800, 1000, 1000] {
            let under_way = u64::from(spacing.get());
            assert_eq!(spacing.choose(under_way, 1), expected);
        }
        // The publisher sends freely: twice the messages in flight are enough, so the limit falls by half
        // each time.
        for expected in [500, 250, 125, 80, 80] {
            assert_eq!(spacing.choose(40, 1), expected);
        }
        assert_eq!(Spacing::new(5).get(), 5);
    }

    #[test]
    fn large_messages_and_many_batches_share_the_window() {
        let mut spacing = Spacing::new(u16::MAX);
        for _ in 0..1000 {
            spacing.weigh(1 << 20);
        }
        assert!((60..=70).contains(&spacing.choose(1000, 1)));
        assert_eq!(spacing.choose(1000, 1000), 1);
    }

    #[test]
    fn a_lone_message_is_acknowledged_at_once() {
        let mut pacing = Pacing::new();
        assert!(pacing.allows(Time::from_nanos(1_000_000), 1, Time::from_nanos(1_000_000)));
    }

    #[test]
    fn costly_acknowledgements_are_paced_and_never_held_for_long() {
        let mut pacing = Pacing::new();
        let mut now = Time::from_nanos(0);
        for _ in 0..200 {
            now = now + Duration::from_millis(6);
            if pacing.allows(now, 10, now) {
                pacing.started(now, 10, 0, false);
                pacing.finished(now, 1_000_000);
            }
        }
        // Each acknowledgement costs a millisecond, so one acknowledgement for every message would cost more
        // than one per cent of a core.
        let allowed = pacing.allows(now, 1, now);
        assert!(!allowed && pacing.due().is_some_and(|due| due <= now + AGE_MAX));
    }

    #[test]
    fn acknowledgements_that_wait_to_be_written_do_not_keep_later_ones_back() {
        let mut pacing = Pacing::new();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        assert!(pacing.allows(at(10), 1, at(10)));
        pacing.started(at(10), 1, 0, false);
        // The server has not written the first acknowledgement yet, and the controller must still allow the
        // next one.
        assert!(pacing.allows(at(20), 1, at(20)));
        pacing.started(at(20), 1, 0, false);
        assert!(!pacing.allows(at(20), 0, at(20)), "nothing waits");
        pacing.finished(at(21), 700);
        assert_eq!(pacing.unpaid_ns, 700);
        assert!(pacing.allows(at(40), 1, at(40)));
        pacing.started(at(40), 1, 0, false);
        pacing.finished(at(41), 300);
        assert_eq!((pacing.unpaid_ns, pacing.boundary.running()), (0, 0));
        assert_eq!(pacing.snapshot().counts.batches(), 3);
    }
}
