//! When flow acknowledgements leave, and how many messages each is for.
//!
//! One controller prices them for the whole server: by default an acknowledgement leaves at once where
//! nothing else is to be done, and under load as often as one per cent of a core pays for, never later than 5
//! ms. A batch with as many messages stored as its publisher waits for ([`Spacing`]) is acknowledged at once,
//! because that publisher may stand still.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, Step};
use tidegate::controller::{BatchId, Bounds, Knee, Load, Objective, Reason, Snapshot};

/// The latest an acknowledgement leaves after the first message it is for was stored.
const AGE_MAX: Duration = Duration::from_millis(5);
/// The share of a core acknowledgements may cost.
const BUDGET: f64 = 0.01;
/// The most bytes all publishers together may have under way, as far as their spacing decides it.
const WINDOW_BYTES: u64 = 64 << 20;
/// What a new batch may begin with, until there is something to go by.
const FIRST: u16 = 100;

/// The boundary of the acknowledgements.
#[derive(Debug)]
pub(super) struct Pacing {
    boundary: Boundary<Knee>,
    /// The acknowledgements that are being sent.
    sending: Option<BatchId>,
    /// The cost of acknowledgements that were sent together with later ones.
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

    /// Returns whether `backlog` messages, stored since `oldest`, are to be acknowledged now. Asking again is
    /// harmless.
    pub(super) fn allows(&mut self, now: Time, backlog: u64, oldest: Time) -> bool {
        let (now, backlog) = (self.boundary.at(now), Load::items(backlog));
        // Acknowledgements that wait to be written are written together with those that follow.
        self.done(now, 0, false);
        let step = self.boundary.poll(now, backlog, oldest);
        matches!(step.unwrap_or_else(impossible), Step::Take(_))
    }

    /// `acked` messages are acknowledged, `left` are not: because the controller allowed it, or because their
    /// publishers stand still without it.
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

    /// The acknowledgements started have been sent.
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

    /// When to ask again.
    pub(super) const fn due(&self) -> Option<Time> {
        self.boundary.due()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// A boundary refuses only calls that contradict each other.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("acknowledgements keep to the order of calls: {error}")
}

/// How many messages of a batch one acknowledgement is for at most: what its publisher is told as `msgs`.
///
/// A publisher stands still when a small multiple of it is under way, so it is to be more than is ever under
/// way by itself: twice what was seen to be. A publisher that stands still is seen to have just that under
/// way and gets twice as much, up to its own wish. Beyond what is needed it only makes room for what nobody
/// acknowledged, so it shrinks again, by half each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    most: u16,
    now: u16,
    /// The mean bytes of a message, slowly forgotten.
    message_bytes: u64,
}

impl Spacing {
    /// For a publisher that wishes for an acknowledgement each `most` messages, which is more than 0.
    pub(super) fn new(most: u16) -> Self {
        Self {
            most,
            now: most.min(FIRST),
            message_bytes: 0,
        }
    }

    /// What the publisher was told last, or is to be told first.
    pub(super) const fn get(self) -> u16 {
        self.now
    }

    /// A message of so many bytes came.
    pub(super) fn weigh(&mut self, bytes: u64) {
        self.message_bytes = self.message_bytes - self.message_bytes / 16 + bytes / 16;
    }

    /// Chooses what to tell with the next acknowledgement: `under_way` messages are not acknowledged before
    /// it, and `open` batches share the server.
    pub(super) fn choose(&mut self, under_way: u64, open: usize) -> u16 {
        let share = WINDOW_BYTES / (open.max(1) as u64 * self.message_bytes.max(1));
        let wanted = (2 * under_way).max(u64::from(self.now / 2)).min(share);
        let wanted = u16::try_from(wanted).unwrap_or(u16::MAX);
        self.now = wanted.clamp(1, self.most);
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
        // Stands still: as much as it may have is under way.
        for expected in [200, 400, 800, 1000, 1000] {
            let under_way = u64::from(spacing.get());
            assert_eq!(spacing.choose(under_way, 1), expected);
        }
        // Goes its own way: twice what it needs is enough.
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
        // A millisecond each: more than one per cent of a core, if one left for every message.
        let allowed = pacing.allows(now, 1, now);
        assert!(!allowed && pacing.due().is_some_and(|due| due <= now + AGE_MAX));
    }

    #[test]
    fn acknowledgements_that_wait_to_be_written_do_not_keep_later_ones_back() {
        let mut pacing = Pacing::new();
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        assert!(pacing.allows(at(10), 1, at(10)));
        pacing.started(at(10), 1, 0, false);
        // The first is not written yet.
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
