//! Group commit: decides which of the waiting batches the next sync covers, and when that sync starts. The
//! engine's controller makes these decisions, and learns the cost of the disk's syncs. The module is pure:
//! the log thread passes the time as an argument, and `driver` carries out the decisions.
//!
//! The log thread calls `handle_arrived` for every batch, with the time of its arrival, and then `poll`,
//! which returns the next step. After a sync the log thread first calls `handle_arrived` for the batches
//! that arrived meanwhile, then `handle_done`, and then `poll` again. One sync runs at a time.

use std::collections::VecDeque;

use tidegate::Time;
use tidegate::boundary::{self, Boundary, BoundaryError, Cut};
use tidegate::controller::{BatchId, Load, Reason, SizeCosts, Snapshot};

/// Decides which waiting batches the next sync covers, and when the sync starts.
pub(crate) struct Gather {
    boundary: Boundary,
    waiting: VecDeque<Waiting>,
    backlog: Load,
    /// The controller's id of the batches that the running sync covers, for the report of their cost to the
    /// controller; `None` while no sync is running.
    running: Option<BatchId>,
    /// The reason for which the last sync took its batches and no others.
    reason: Reason,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    load: Load,
    since: Time,
}

/// The next step that the controller's decision asks of the log thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The log thread must now write and sync this many of the waiting batches, the oldest first, with one
    /// sync.
    Take(usize),
    /// The log thread must wait until a batch arrives, at most until this time, and then poll again: the
    /// controller holds the waiting batches back so that more can join them.
    Hold(Time),
    /// No batch waits, so the log thread must rest until a batch arrives.
    Rest,
}

impl Gather {
    pub(crate) const fn new(boundary: Boundary) -> Self {
        Self {
            boundary,
            waiting: VecDeque::new(),
            backlog: Load::items(0),
            running: None,
            reason: Reason::Drained,
        }
    }

    /// Adds a batch of `bytes` bytes that arrived at `at` to the backlog, and tells the controller, so that
    /// it can decide about the next sync. `callers` is the number of callers that wait for the batch.
    pub(crate) fn handle_arrived(&mut self, at: Time, callers: u64, bytes: u64) {
        let load = Load::new(callers, bytes);
        self.backlog.items += callers;
        self.backlog.bytes += bytes;
        self.waiting.push_back(Waiting { load, since: at });
        let told = self.boundary.arrived(self.boundary.at(at), load);
        told.unwrap_or_else(impossible);
    }

    /// Returns the next step of the log thread at the time `now`. If `closing` is true, no more batches can
    /// arrive, so the controller must not delay the sync for further batches.
    pub(crate) fn poll(&mut self, now: Time, closing: bool) -> Turn {
        debug_assert!(self.running.is_none(), "one sync at a time");
        let Some(oldest) = self.waiting.front() else {
            return Turn::Rest;
        };
        let now = self.boundary.at(now);
        let step = self.boundary.poll(now, self.backlog, oldest.since);
        match step.unwrap_or_else(impossible) {
            boundary::Step::Take(limit) => self.take(now, limit),
            boundary::Step::Hold { .. } if closing => self.take(now, self.boundary.limit()),
            boundary::Step::Hold { until, .. } => Turn::Hold(until),
            boundary::Step::Busy { .. } | boundary::Step::Rest => Turn::Rest,
        }
    }

    /// Takes the oldest waiting batches for the next sync, as many as the controller's limit of callers and
    /// bytes allows. Takes at least one batch, because the log must accept also a batch above the limit.
    fn take(&mut self, now: Time, limit: Load) -> Turn {
        let (mut taken, mut batch) = (0, Load::default());
        while let Some(next) = self.waiting.front() {
            let with = Load::new(batch.items + next.load.items, batch.bytes + next.load.bytes);
            if taken > 0 && (with.items > limit.items || with.bytes > limit.bytes) {
                break;
            }
            (taken, batch) = (taken + 1, with);
            self.waiting.pop_front();
        }
        self.backlog.items -= batch.items;
        self.backlog.bytes -= batch.bytes;
        let cut = match self.waiting.is_empty() {
            true => Cut::Drained,
            false => Cut::Items,
        };
        self.reason = self.boundary.reason_for(cut);
        let started = self.boundary.started(now, batch, self.backlog, cut);
        self.running = Some(started.unwrap_or_else(impossible));
        Turn::Take(taken)
    }

    /// Tells the controller that the running sync ended, and whether it succeeded, so that the controller can
    /// learn the cost of a sync.
    pub(crate) fn handle_done(&mut self, now: Time, ok: bool) {
        if let Some(id) = self.running.take() {
            let done = self.boundary.done(self.boundary.at(now), id, ok);
            done.unwrap_or_else(impossible);
        }
    }

    /// Returns the reason for which the last sync took its batches and no others.
    pub(crate) const fn reason(&self) -> Reason {
        self.reason
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    pub(crate) fn size_costs(&self) -> SizeCosts {
        self.boundary.size_costs()
    }
}

/// Panics because the controller's boundary refused a call. The boundary refuses only calls in an impossible
/// order, and [`Gather`] makes no such calls.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("the log thread keeps to the order of calls: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::controller::{Bounds, Controller, Knee, Objective};

    const BYTES: u64 = 1104;

    fn bounds() -> Bounds {
        Bounds {
            items_max: u64::MAX,
            bytes_max: 8 << 20,
            ..Bounds::default()
        }
    }

    fn group(anticipates: bool) -> Gather {
        let knee = Knee::new(Objective::Lean, bounds())
            .and_then(Knee::in_bytes)
            .unwrap();
        let knee = if anticipates {
            knee.anticipating()
        } else {
            knee
        };
        let boxed: Box<dyn Controller> = Box::new(knee);
        Gather::new(Boundary::new(boxed, bounds()).unwrap())
    }

    /// Simulates callers in a closed loop on a virtual clock: a sync takes `sync_ns` and 1 ns a byte, and
    /// each caller returns `back_ns` and a random time after its sync. Returns the records and syncs in two
    /// seconds, so that a test can compare controllers.
    fn closed_loop(mut group: Gather, callers: u64, sync_ns: u64, back_ns: u64) -> (u64, u64) {
        let (mut now, mut free_at, mut hold) = (0u64, None, None);
        let mut random = 1u64;
        let mut due: Vec<u64> = (0..callers).map(|n| n * 1000).collect();
        let (mut waiting, mut running, mut records, mut syncs) = (0u64, 0u64, 0, 0);
        while now < 2_000_000_000 {
            let arrival = due.iter().copied().min();
            let next = [arrival, free_at, hold].into_iter().flatten().min();
            now = next.expect("an event is always on the way");
            due.retain(|&at| {
                let came = at <= now;
                if came {
                    group.handle_arrived(Time::from_nanos(at), 1, BYTES);
                    waiting += 1;
                }
                !came
            });
            if free_at.is_some_and(|at| at <= now) {
                free_at = None;
                records += running;
                for n in 0..running {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    due.push(now + back_ns + n * 1000 + (random >> 33) % (back_ns / 4));
                }
                group.handle_done(Time::from_nanos(now), true);
            }
            hold = None;
            if free_at.is_none() {
                match group.poll(Time::from_nanos(now), false) {
                    Turn::Take(n) => {
                        (running, waiting, syncs) = (n as u64, waiting - n as u64, syncs + 1);
                        free_at = Some(now + sync_ns + running * BYTES);
                    }
                    Turn::Hold(until) => hold = Some(until.as_nanos()),
                    Turn::Rest => assert_eq!(waiting, 0),
                }
            }
        }
        (records, syncs)
    }

    #[test]
    fn on_a_slow_disk_a_sync_waits_for_callers_that_are_about_to_return() {
        for callers in [2, 10, 100] {
            let (with, syncs) = closed_loop(group(true), callers, 5_000_000, 100_000);
            let (without, _) = closed_loop(group(false), callers, 5_000_000, 100_000);
            let ratio = with as f64 / without as f64;
            println!("{callers} callers: {with} in {syncs} syncs, {without}: {ratio:.2}");
            assert!(ratio > 1.6, "{callers} callers: {with} against {without}");
        }
    }

    #[test]
    fn a_lone_caller_is_never_made_to_wait_and_returning_late_is_not_waited_for() {
        let (with, _) = closed_loop(group(true), 1, 130_000, 60_000);
        let (without, _) = closed_loop(group(false), 1, 130_000, 60_000);
        assert!(with as f64 > 0.98 * without as f64, "{with} {without}");
        let (with, _) = closed_loop(group(true), 10, 130_000, 400_000);
        let (without, _) = closed_loop(group(false), 10, 130_000, 400_000);
        assert!(with as f64 > 0.95 * without as f64, "{with} {without}");
    }
}
