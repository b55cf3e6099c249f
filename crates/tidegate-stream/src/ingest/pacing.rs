//! Decides when the server sends flow acknowledgements, and how many messages each of them covers.
//!
//! One controller weighs the cost of acknowledgements for the whole server. While the server has nothing else
//! to do, it sends an acknowledgement at once. Under load it spends at most one per cent of a core on
//! acknowledgements, and sends each of them after 5 ms at the latest. The server acknowledges a batch at once
//! if it has stored as many messages of the batch as the publisher waits for ([`Spacing`]), because that
//! publisher may have stopped sending.

use crate::convert::saturating_u16;
use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, DecisionLog, Step};
use tidegate::controller::{BatchId, Bounds, Knee, Load, Objective, Reason, Snapshot};

/// The most time between storing the first message that an acknowledgement covers and sending it.
const AGE_MAX: Duration = Duration::from_millis(5);
/// The share of a core that acknowledgements may cost.
const BUDGET: f64 = 0.01;
/// The most bytes that all publishers together should have in flight. [`Spacing`] divides this number among
/// the open batches.
const WINDOW_BYTES: u64 = 64 << 20;
/// The spacing of a new batch, before the server has measured the messages in flight.
const FIRST: u16 = 100;

/// Decides when the server sends flow acknowledgements.
#[derive(Debug)]
pub(super) struct Pacing {
    boundary: Boundary<Knee>,
    /// The controller's id of the acknowledgements that the server is sending.
    sending: Option<BatchId>,
    /// The cost of acknowledgements that the server sent together with later ones.
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

    /// Makes the controller write its decisions into `log`, under `name`.
    pub(super) fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.boundary.log_to(log, name);
    }

    /// Returns whether the server may acknowledge now. `backlog` messages are stored and not acknowledged,
    /// the first of them since `oldest`. Repeated calls are harmless.
    pub(super) fn allows(&mut self, now: Time, backlog: u64, oldest: Time) -> bool {
        let (now, backlog) = (self.boundary.at(now), Load::items(backlog));
        // The server sends acknowledgements that still wait to be written together with the next ones.
        self.done(now, 0, false);
        let step = self.boundary.poll(now, backlog, oldest);
        matches!(step.unwrap_or_else(impossible), Step::Take(_))
    }

    /// Records that the server acknowledges `acked` messages and leaves `left` unacknowledged. The controller
    /// allowed this, or the caller `forced` it, because publishers may have stopped sending until they get
    /// the acknowledgement.
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

    /// Records that the server has sent the acknowledgements that [`Pacing::started`] recorded, and that this
    /// took `cost_ns`.
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

    /// Returns the time at which to call [`Pacing::allows`] again.
    pub(super) const fn due(&self) -> Option<Time> {
        self.boundary.due()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// Panics: the boundary returns an error only if this module calls it in a wrong order.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("acknowledgements keep to the order of calls: {error}")
}

/// The most messages of a batch that one acknowledgement covers: the number that the server tells the
/// publisher as `msgs`.
///
/// A publisher stops sending when a small multiple of this number is in flight. So the number should exceed
/// the messages that would be in flight without that stop: the server chooses twice the measured count. A
/// publisher that has stopped has just its limit in flight, and gets twice as much, at most the number that
/// it asked for. A higher number only allows more unacknowledged messages, so the server lowers it again, by
/// at most half each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    most: u16,
    now: u16,
    /// The bytes of a message, as a moving average.
    message_bytes: u64,
}

impl Spacing {
    /// Creates the spacing for a publisher that asks for an acknowledgement every `most` messages; `most` is
    /// above 0.
    pub(super) fn new(most: u16) -> Self {
        Self {
            most,
            now: most.min(FIRST),
            message_bytes: 0,
        }
    }

    /// Returns the number that the server told the publisher last or, before that, will tell it first.
    pub(super) const fn get(self) -> u16 {
        self.now
    }

    /// Adds a message of this many bytes to the moving average.
    pub(super) fn weigh(&mut self, bytes: u64) {
        self.message_bytes = self.message_bytes - self.message_bytes / 16 + bytes / 16;
    }

    /// Chooses the number for the next acknowledgement. Before that acknowledgement `under_way` messages of
    /// the batch are unacknowledged, and `open` batches share the server.
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
        // The publisher has stopped: its limit is in flight.
        for expected in [200, 400, 800, 1000, 1000] {
            let under_way = u64::from(spacing.get());
            assert_eq!(spacing.choose(under_way, 1), expected);
        }
        // The publisher sends freely: twice the messages in flight are enough.
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
        // At a millisecond each, one acknowledgement for every message would cost more than one per cent of a
        // core.
        let allowed = pacing.allows(now, 1, now);
        assert!(!allowed && pacing.due().is_some_and(|due| due <= now + AGE_MAX));
    }

    #[test]
    fn acknowledgements_that_wait_to_be_written_do_not_keep_later_ones_back() {
        let mut pacing = Pacing::new();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        assert!(pacing.allows(at(10), 1, at(10)));
        pacing.started(at(10), 1, 0, false);
        // The first acknowledgement is not written yet.
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
