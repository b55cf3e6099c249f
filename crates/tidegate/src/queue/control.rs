//! What a controlled producer tells its controller, and when: once a flush, never for an item.

use crate::Time;
use crate::controller::{Controller, Event, Load, Reason, Snapshot};

/// What an item costs its producer besides its share of the claim, in nanoseconds: the push into the buffer. It cannot be
/// measured for less than it costs, and without it a claim would seem dear beside the next to nothing that copying takes.
const ITEM_NS: u64 = 2;

/// A controller and its bookkeeping.
pub(super) struct Control {
    controller: Box<dyn Controller>,
    flushes: u64,
    now: Time,
    reason: Reason,
    /// What it decided last; whoever has memory for less takes less.
    pub(super) limit: u64,
}

impl Control {
    pub(super) fn new(mut controller: Box<dyn Controller>, now: Time) -> Self {
        let decision = controller.on(now, Event::Blocking);
        Self {
            controller,
            flushes: 0,
            now,
            reason: cut_by(decision.reason),
            limit: decision.limit_items,
        }
    }

    /// Why a batch that reaches the limit ends there.
    pub(super) const fn reason(&self) -> Reason {
        self.reason
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.controller.snapshot()
    }

    /// The first 64 flushes are measured, later ones one in 13: a controller's probes come every so many flushes, and no
    /// common factor may keep them from being seen.
    pub(super) const fn samples(&self) -> bool {
        self.flushes < 64 || self.flushes.is_multiple_of(13)
    }

    /// Reports what left the buffer, and answers the next limit.
    pub(super) fn told(
        &mut self,
        swept: u64,
        flushed: u64,
        left: u64,
        reason: Reason,
        measured: Option<(Time, Time)>,
    ) -> u64 {
        if let Some((_, end)) = measured {
            self.now = end;
        }
        let now = self.now;
        let started = |items, left, reason| Event::Started {
            batch: Load::items(items),
            left: Load::items(left),
            reason,
        };
        let mut done = Event::Done {
            cost_ns: 0,
            ok: false,
        };
        if swept > 0 {
            self.controller
                .on(now, started(swept, flushed + left, Reason::Linger));
            self.controller.on(now, done);
        }
        if flushed > 0 {
            self.flushes += 1;
            self.controller.on(now, started(flushed, left, reason));
            if let Some((start, end)) = measured {
                done = Event::Done {
                    cost_ns: end.since(start) + ITEM_NS * flushed,
                    ok: true,
                };
            }
        }
        let decision = self.controller.on(now, done);
        self.reason = cut_by(decision.reason);
        self.limit = decision.limit_items;
        self.limit
    }
}

/// The reason of a batch that reaches the limit: with next to nothing waiting, a controller says nothing bound it.
const fn cut_by(reason: Reason) -> Reason {
    match reason {
        Reason::Drained => Reason::Limit,
        other => other,
    }
}
