//! Decides when a receiver's acknowledgement leaves, by a controller of the engine that weighs the cost of
//! acknowledgements.
//!
//! The receiver itself decides which messages it must acknowledge at once: when the client has used a quarter
//! of its window, and before the connection closes. The controller decides the rest. The default controller
//! acknowledges a lone message at once, acknowledges under load as often as one per cent of a core pays for,
//! and never waits longer than 5 ms.

use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::{Boundary, BoundaryError, Cut, Step};
use tidegate::controller::{
    BatchId, Bounded, Bounds, Controller, Knee, Load, Objective, Reason, Snapshot,
};

/// The longest time that an acknowledgement may wait to cover more messages, from the moment at which the
/// first message that it covers could be acknowledged.
const AGE_MAX: Duration = Duration::from_millis(5);
/// The share of a core that the server may spend on the acknowledgements of one connection.
const BUDGET: f64 = 0.01;

/// Returns the default controller, which decides when a receiver's acknowledgements leave.
#[must_use]
pub fn cadence() -> Box<dyn Controller> {
    paced(BUDGET, AGE_MAX).unwrap_or_else(|| unreachable!("the defaults are valid"))
}

fn paced(budget: f64, age_max: Duration) -> Option<Box<dyn Controller>> {
    let bounds = Bounds {
        items_max: u64::MAX,
        age_max,
        ..Bounds::default()
    };
    let knee = Knee::new(Objective::CostBudget(budget), bounds).ok()?;
    Some(Box::new(Bounded::new(knee, bounds).ok()?))
}

/// Decides when one receiver's acknowledgements leave: the engine's boundary around their controller.
pub(super) struct Cadence {
    boundary: Boundary,
    /// The id of the acknowledgement that the server writes to the socket now; the boundary learns its cost
    /// by this id.
    sending: Option<BatchId>,
}

impl Cadence {
    pub(super) fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            boundary: boundary(controller),
            sending: None,
        }
    }

    /// Returns whether the receiver must now acknowledge the messages that wait since `oldest`. Repeated
    /// calls are harmless.
    pub(super) fn allows(&mut self, now: Time, backlog: Load, oldest: Time) -> bool {
        let now = self.boundary.at(now);
        let step = self.boundary.poll(now, backlog, oldest);
        matches!(step.unwrap_or_else(impossible), Step::Take(_))
    }

    /// Records that an acknowledgement of the messages in `batch` leaves now. The reason is `forced` or, if
    /// that is `None`, the controller's reason. Returns the reason.
    pub(super) fn started(&mut self, now: Time, batch: Load, forced: Option<Reason>) -> Reason {
        let reason = forced.unwrap_or_else(|| self.boundary.reason());
        let (now, left) = (self.boundary.at(now), Load::default());
        let started = self.boundary.started(now, batch, left, Cut::Forced(reason));
        self.sending = Some(started.unwrap_or_else(impossible));
        reason
    }

    /// Records that the driver has written the acknowledgement, at a cost of `cost_ns` nanoseconds, for the
    /// budget.
    pub(super) fn finished(&mut self, now: Time, cost_ns: u64) {
        if let Some(id) = self.sending.take() {
            let now = self.boundary.at(now);
            let done = self.boundary.done_with(now, id, cost_ns, true);
            done.unwrap_or_else(impossible);
        }
    }

    /// Returns the time at which the receiver must ask the controller again, if no message arrives before.
    pub(super) const fn due(&self) -> Option<Time> {
        self.boundary.due()
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }
}

/// Returns the engine's boundary around `controller`. The boundary adds no limit, because the controller
/// keeps its bounds itself.
pub(super) fn boundary(controller: Box<dyn Controller>) -> Boundary {
    let boundary = Boundary::new(controller, Bounds::items(1, u64::MAX));
    boundary.unwrap_or_else(|e| unreachable!("bounds without a limit: {e}"))
}

/// Panics, because the engine's boundary refuses only calls that contradict each other, and the link makes
/// none.
#[cold]
pub(super) fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the link keeps to the order of calls: {error}")
}

impl std::fmt::Debug for Cadence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cadence")
            .field("boundary", &self.boundary)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tidegate::controller::{Event, Recorder, replay};

    use super::super::Block;
    use super::super::sender::{Sender, SenderConfig, writes};
    use super::*;
    use crate::Seq;
    use crate::frame::Layout;

    fn recorded(controller: Box<dyn Controller>) -> Arc<Mutex<Recorder<Box<dyn Controller>>>> {
        Arc::new(Mutex::new(Recorder::new(controller, 100_000)))
    }

    #[test]
    fn the_events_of_acknowledgements_replay_bit_for_bit() {
        let recorder = recorded(cadence());
        let mut acks = Cadence::new(Box::new(Arc::clone(&recorder)));
        let (mut sent, mut held) = (0, 0);
        for turn in 1..3000_u64 {
            let now = Time::from_nanos(turn * 50_000);
            let forced = turn.is_multiple_of(97).then_some(Reason::Memory);
            let backlog = Load::new(1 + turn % 5, 100);
            if forced.is_none() && !acks.allows(now, backlog, now) {
                held += 1;
                assert!(acks.due().is_some_and(|due| due > now));
                continue;
            }
            let reason = acks.started(now, backlog, forced);
            assert!(forced.is_none() || forced == Some(reason));
            acks.finished(now.after(8_000), 8_000);
            sent += 1;
        }
        assert!(sent > 30 && held > 30, "{sent} {held}");
        assert_eq!(acks.snapshot().counts.batches(), sent);
        let recorder = recorder.lock().unwrap();
        assert_eq!(recorder.omitted(), 0);
        replay(&mut cadence(), recorder.log()).unwrap();
    }

    #[test]
    fn the_events_of_writes_replay_bit_for_bit() {
        let recorder = recorded(writes(1 << 20));
        let config = SenderConfig {
            session: None,
            held_max: 64 << 20,
            plain_window: u64::MAX,
            write_max: 1 << 20,
            opening: Duration::from_secs(5),
            stall: Duration::ZERO,
        };
        let mut sender = Sender::new(Time::ZERO, config, Box::new(Arc::clone(&recorder)));
        sender.handle_connected(Time::ZERO);
        let mut written = 0;
        for turn in 1..500_u64 {
            let now = Time::from_nanos(turn * 100_000);
            let (mut bytes, first) = (Vec::new(), Seq::new(turn));
            Layout::Plain.encode(first, &vec![b'x'; 50 + turn as usize], &mut bytes);
            let block = Block {
                bytes,
                first,
                count: 1,
            };
            assert!(sender.push(now, block).is_ok());
            let mut slices = [&[][..]; 8];
            let n = sender.poll_transmit(now, &mut slices);
            let bytes: usize = slices[..n].iter().map(|s| s.len()).sum();
            assert!(bytes > 0);
            sender.wrote(now.after(4_000), bytes, 4_000);
            written += 1;
        }
        let recorder = recorder.lock().unwrap();
        let started = |e: &Event| matches!(e, Event::Started { .. });
        let log = recorder.log();
        assert_eq!(log.iter().filter(|e| started(&e.event)).count(), written);
        replay(&mut writes(1 << 20), log).unwrap();
    }
}
