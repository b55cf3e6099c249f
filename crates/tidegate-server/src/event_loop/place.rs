//! Decides which thread writes and syncs the log: the log thread, or the loop's own thread.
//!
//! The log thread works while the loop reads the next messages, but a batch must wake the log thread, and the
//! sync must wake the loop. On the loop's thread a sync costs no wake-up, but the loop does nothing else
//! meanwhile. So the loop's thread syncs where the two wake-ups take longer than the work that the loop does
//! during a sync of the log thread. The loop measures both while the log thread syncs. While the loop's
//! thread syncs, nothing can overlap, so the log thread syncs again for a moment now and then, and at once if
//! the loop's work between two syncs has grown.

use std::time::Duration;

use tidegate::Time;

/// The thread that writes and syncs the log at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The log's own thread writes and syncs, while the loop works, so that the two overlap.
    LogThread,
    /// The loop's thread writes and syncs between two turns, which saves wake-ups.
    Loop,
}

/// The loop's thread syncs only if the median of the syncs is at most this long, which is well below the
/// bound on a turn of the loop.
const SYNC_MAX: Duration = Duration::from_micros(500);
/// The loop's thread begins to sync only if the overlapping work is below this share of the measured
/// wake-ups. The rest makes up for errors of the measurement, so that the duty does not go back and forth.
const BEGIN_BELOW: (u64, u64) = (3, 4);
/// The number of measurements of each kind from which the loop takes the medians.
const MEASURED: usize = 15;
/// The time for which the loop's thread syncs before the log thread syncs again, so that the loop measures
/// the wake-ups.
const MEASURE_AGAIN: Duration = Duration::from_secs(5);
/// The time for which the log thread keeps the duty after a late sync on the loop's thread, because the disk
/// may be late again: at first, and (`AFTER_LATE_MAX`) at most. A further late sync doubles the time, unless
/// the late sync before is long past.
const AFTER_LATE: Duration = Duration::from_secs(10);
const AFTER_LATE_MAX: Duration = Duration::from_secs(640);

/// The last measurements of one kind, in nanoseconds, from which the loop takes the median.
#[derive(Clone, Copy, Debug)]
struct Last {
    ns: [u64; MEASURED],
    taken: usize,
}

impl Last {
    const fn new() -> Self {
        Self {
            ns: [0; MEASURED],
            taken: 0,
        }
    }

    fn push(&mut self, ns: u64) {
        self.ns[self.taken % MEASURED] = ns;
        self.taken += 1;
    }

    /// Returns the median of the measurements, by which the loop decides, or `None` as long as there are too
    /// few.
    fn median(&self) -> Option<u64> {
        let mut sorted = self.ns;
        sorted.sort_unstable();
        (self.taken >= MEASURED).then(|| sorted[MEASURED / 2])
    }
}

/// A sync of the log thread that the loop measures, from the append of its batch on. The append found the log
/// at rest, so the sync covers only this batch.
#[derive(Clone, Copy, Debug)]
struct Watched {
    since: Time,
    /// The log's counts of syncs and of their nanoseconds at the append, by which the loop sees the sync's
    /// end and cost.
    syncs: u64,
    sync_ns: u64,
    /// The time that the loop has worked since the append, which overlaps with the sync.
    worked: Duration,
}

/// Decides which thread writes and syncs the log, from the loop's measurements; see the [module](self).
#[derive(Debug)]
pub(super) struct Placing {
    place: Place,
    wakeups: Last,
    syncs: Last,
    /// The measurements of the loop's work during a sync of the log thread, which a sync on the loop's thread
    /// would delay.
    overlap: Last,
    /// The measurements of the loop's work between the ends of two syncs, and (`work_before`) their median
    /// when the loop's thread began to sync, by which it sees a growth.
    work: Last,
    work_before: u64,
    /// The time that the loop has worked since the last sync ended.
    worked: Duration,
    watched: Option<Watched>,
    /// The number of measurements since the last decision; the loop decides again only after some.
    fresh: usize,
    /// The time at which the log thread syncs again, so that the loop measures the wake-ups.
    again: Time,
    /// The time before which the loop's thread does not sync again after a late sync, and (`after_late`) the
    /// time for which it leaves syncs to the log thread after the next late sync.
    not_before: Time,
    after_late: Duration,
}

/// The log's counts that the decision needs, taken at the end of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) syncs: u64,
    pub(super) sync_ns: u64,
    /// True if all batches were durable when the turn handed its own batches to the log, so that the loop can
    /// measure their sync.
    pub(super) was_at_rest: bool,
    /// True if the log has accepted batches that no sync has made durable yet, so that a sync follows.
    pub(super) is_pending: bool,
}

impl Placing {
    pub(super) const fn new() -> Self {
        Self {
            place: Place::LogThread,
            wakeups: Last::new(),
            syncs: Last::new(),
            overlap: Last::new(),
            work: Last::new(),
            work_before: 0,
            worked: Duration::ZERO,
            watched: None,
            fresh: 0,
            again: Time::ZERO,
            not_before: Time::ZERO,
            after_late: AFTER_LATE,
        }
    }

    /// Returns the thread that should write and sync the log from now on. The loop takes or gives back the
    /// duty accordingly.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Takes measurements at the end of a turn of the loop that began at `begun`, from the counts of the log
    /// at its end. The loop decides by them, and calls this only while the log thread has the duty of
    /// writing.
    pub(super) fn handle_turn(&mut self, begun: Time, now: Time, log: Counts) {
        let turn = now - begun;
        if let Some(watched) = &mut self.watched {
            if log.syncs == watched.syncs {
                watched.worked += turn;
                return;
            }
            let watched = *watched;
            self.watched = None;
            if log.syncs == watched.syncs + 1 {
                let sync_ns = log.sync_ns - watched.sync_ns;
                let waited = (begun - watched.since).saturating_sub(watched.worked);
                let waited_ns = waited.as_nanos() as u64;
                self.syncs.push(sync_ns);
                self.overlap.push(watched.worked.as_nanos() as u64);
                self.wakeups.push(waited_ns.saturating_sub(sync_ns));
                self.fresh += 1;
                self.decide(now);
            }
        }
        self.worked += turn;
        if log.was_at_rest && log.is_pending {
            self.work.push(self.worked.as_nanos() as u64);
            self.worked = Duration::ZERO;
            self.watched = Some(Watched {
                since: now,
                syncs: log.syncs,
                sync_ns: log.sync_ns,
                worked: Duration::ZERO,
            });
        }
    }

    /// Counts the work of a turn that began at `begun`, while the loop's thread has the duty of writing, to
    /// compare it with later work.
    pub(super) fn handle_turn_with_duty(&mut self, begun: Time, now: Time) {
        self.worked += now - begun;
    }

    /// Takes the measurement of a sync on the loop's thread that took this long, and decides which thread has
    /// the duty of writing from now on.
    pub(super) fn handle_synced(&mut self, now: Time, took: Duration) {
        self.syncs.push(took.as_nanos() as u64);
        self.work.push(self.worked.as_nanos() as u64);
        self.worked = Duration::ZERO;
        self.fresh += 1;
        self.decide(now);
    }

    /// Gives the duty back to the log thread for a while, because a sync on the loop's thread took so long
    /// that another thread runs the loop now.
    pub(super) fn handle_late(&mut self, now: Time) {
        let wait = match now < self.not_before + AFTER_LATE_MAX {
            true => self.after_late,
            // The last late sync is long past, so the log thread keeps the duty only for the shortest time.
            false => AFTER_LATE,
        };
        *self = Self {
            not_before: now + wait,
            after_late: (2 * wait).min(AFTER_LATE_MAX),
            ..Self::new()
        };
    }

    fn decide(&mut self, now: Time) {
        if self.fresh < MEASURED {
            return;
        }
        self.fresh = 0;
        let medians = (
            self.wakeups.median(),
            self.syncs.median(),
            self.overlap.median(),
            self.work.median(),
        );
        let (Some(wakeups), Some(sync), Some(overlap), Some(work)) = medians else {
            return;
        };
        let fits = Duration::from_nanos(sync) <= SYNC_MAX && now >= self.not_before;
        let (num, den) = BEGIN_BELOW;
        self.place = match self.place {
            Place::LogThread if fits && overlap * den < wakeups * num => {
                self.again = now + MEASURE_AGAIN;
                self.work_before = work;
                Place::Loop
            }
            // The loop's work between two syncs has grown and could overlap with syncs of the log thread, so
            // the log thread syncs again to measure that.
            Place::Loop if !fits || work > self.work_before + wakeups || now >= self.again => {
                self.watched = None;
                self.overlap = Last::new();
                Place::LogThread
            }
            place => place,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a loop, a log thread and one closed loop of callers in virtual time.
    struct World {
        placing: Placing,
        now: Time,
        log: Counts,
    }

    impl World {
        fn new() -> Self {
            Self {
                placing: Placing::new(),
                now: Time::ZERO,
                log: Counts::default(),
            }
        }

        /// Plays a round: the loop works, the log syncs, and the wake-ups take their time where the log
        /// thread syncs. `overlap` is the part of the work that the loop can do during a sync. All times are
        /// in microseconds.
        fn round(&mut self, (work, overlap): (u64, u64), sync: u64, wakeups: u64) {
            let begun = self.now;
            let overlap = match self.placing.place() {
                Place::LogThread => overlap,
                Place::Loop => 0,
            };
            self.now = begun + Duration::from_micros(work - overlap);
            match self.placing.place() {
                Place::LogThread => {
                    self.log.was_at_rest = true;
                    self.log.is_pending = true;
                    self.placing.handle_turn(begun, self.now, self.log);
                    let during = self.now + Duration::from_micros(overlap);
                    self.placing.handle_turn(self.now, during, self.log);
                    self.now = self.now + Duration::from_micros(sync.max(overlap) + wakeups);
                    self.log.syncs += 1;
                    self.log.sync_ns += sync * 1000;
                    self.log.is_pending = false;
                    self.placing.handle_turn(self.now, self.now, self.log);
                }
                Place::Loop => {
                    self.placing.handle_turn_with_duty(begun, self.now);
                    self.now = self.now + Duration::from_micros(sync);
                    self.placing
                        .handle_synced(self.now, Duration::from_micros(sync));
                }
            }
        }

        fn rounds(&mut self, rounds: usize, work: (u64, u64), sync: u64, wakeups: u64) -> Place {
            (0..rounds).for_each(|_| self.round(work, sync, wakeups));
            self.placing.place()
        }
    }

    #[test]
    fn the_loop_syncs_where_the_wakeups_cost_more_than_the_overlap_saves() {
        assert_eq!(World::new().rounds(100, (40, 0), 100, 60), Place::Loop);
        assert_eq!(World::new().rounds(100, (40, 10), 100, 60), Place::Loop);
        let busy = (400, 90);
        assert_eq!(World::new().rounds(100, busy, 100, 60), Place::LogThread);
    }

    #[test]
    fn the_loop_never_waits_for_a_slow_disk() {
        let place = World::new().rounds(1000, (20, 0), 5000, 60);
        assert_eq!(place, Place::LogThread);
    }

    #[test]
    fn the_place_follows_a_change_of_the_load() {
        let mut world = World::new();
        assert_eq!(world.rounds(100, (20, 0), 100, 60), Place::Loop);
        assert_eq!(world.rounds(100, (400, 90), 100, 60), Place::LogThread);
        assert_eq!(world.rounds(100, (20, 0), 100, 60), Place::Loop);
    }

    #[test]
    fn the_wakeups_are_measured_again_now_and_then() {
        let mut world = World::new();
        world.rounds(100, (20, 0), 100, 60);
        let mut measured = 0;
        for _ in 0..100_000 {
            world.round((20, 0), 100, 60);
            measured += usize::from(world.placing.place() == Place::LogThread);
        }
        let share = measured as f64 / 100_000.0;
        assert!(measured > 0 && share < 0.01, "{measured}");
    }

    #[test]
    fn a_late_sync_keeps_the_duty_with_the_log_thread_for_a_while() {
        let mut world = World::new();
        world.rounds(100, (20, 0), 100, 60);
        for wait in [AFTER_LATE, 2 * AFTER_LATE] {
            world.placing.handle_late(world.now);
            let late = world.now;
            while world.rounds(1, (20, 0), 100, 60) == Place::LogThread {}
            assert!(world.now - late >= wait);
        }
    }
}
