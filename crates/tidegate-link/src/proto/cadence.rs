//! When an acknowledgement leaves: asks the engine's controller, which prices it.
//!
//! The receiver decides what must be acknowledged at once (half a window used, closing); everything else is
//! the controller's: by default a lone message at once, under load as often as one per cent of a core pays
//! for, never later than 5 ms.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::{
    BatchId, Bounded, Bounds, Controller, Event, Knee, Load, Objective, Reason, When,
};

/// The latest an acknowledgement leaves after the first message it covers could be acknowledged.
const AGE_MAX: Duration = Duration::from_millis(5);
/// The share of a core acknowledgements may cost.
const BUDGET: f64 = 0.01;

/// The default controller of acknowledgements.
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

/// A controller and the moment it asked to be asked again.
pub(super) struct Cadence {
    controller: Box<dyn Controller>,
    due: Option<Time>,
    reason: Reason,
}

impl Cadence {
    pub(super) const fn new(controller: Box<dyn Controller>) -> Self {
        Self {
            controller,
            due: None,
            reason: Reason::Drained,
        }
    }

    /// Returns whether what waits since `oldest` is to be acknowledged now. Asking again is harmless.
    pub(super) fn allows(&mut self, now: Time, backlog: Load, oldest: Time) -> bool {
        let d = self.controller.on(now, Event::Ready { backlog, oldest });
        self.reason = d.reason;
        let until = match d.when {
            When::Now => None,
            When::After { items, .. } if backlog.items >= items => None,
            When::At(t) | When::After { until: t, .. } => Some(t).filter(|&t| t > now),
        };
        self.due = until;
        until.is_none()
    }

    /// An acknowledgement of `batch` goes out, for the controller's reason or for `forced`.
    pub(super) fn started(&mut self, now: Time, batch: Load, forced: Option<Reason>) -> Reason {
        let reason = forced.unwrap_or(self.reason);
        self.due = None;
        let left = Load::default();
        self.controller.on(
            now,
            Event::Started {
                id: BatchId::default(),
                batch,
                left,
                reason,
            },
        );
        reason
    }

    /// It is out.
    pub(super) fn finished(&mut self, now: Time, cost_ns: u64) {
        self.controller.on(
            now,
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok: true,
            },
        );
    }

    /// When to ask again.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn snapshot(&self) -> tidegate::controller::Snapshot {
        self.controller.snapshot()
    }
}

impl std::fmt::Debug for Cadence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cadence")
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}
