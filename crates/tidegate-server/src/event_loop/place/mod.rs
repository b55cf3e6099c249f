//! Decides which thread writes and syncs the log: the log thread, or the loop's own thread.
//!
//! The log thread works while the loop reads the next messages, but a batch must wake the log thread, and the
//! sync must wake the loop. On the loop's thread a sync costs no wake-up, but the loop does nothing else
//! meanwhile. The loop's thread may sync where the two wake-ups take longer than the work that the loop does
//! during a sync of the log thread; the loop measures both while the log thread syncs. A [`trial`] finds out
//! if it pays: both threads sync by turns, and the loop compares the bytes that became durable. A trial comes
//! again now and then, and soon if the loop's work between two syncs has changed.

mod looks;
#[cfg(test)]
mod tests;
mod trial;

use std::time::Duration;

use tidegate::Time;

pub(super) use looks::Looks;
use trial::{Seen, Trial};

/// The thread that writes and syncs the log at a given moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// The log's own thread writes and syncs, while the loop works, so that the two overlap.
    #[default]
    LogThread,
    /// The loop's thread writes and syncs between two turns, which saves wake-ups.
    Loop,
}

/// A way to sync, of which the loop uses the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The log's own thread syncs.
    LogThread,
    /// The loop's thread syncs, and sleeps until a socket has something for it.
    Loop,
    /// The loop's thread syncs. After the acknowledgements it looks for the next message for a moment before
    /// it sleeps, which saves the wake-up and costs processor time.
    Awake,
}

impl Way {
    const fn place(self) -> Place {
        match self {
            Self::LogThread => Place::LogThread,
            Self::Loop | Self::Awake => Place::Loop,
        }
    }
}

/// The loop's thread syncs only if the median of the syncs is at most this long, which is well below the
/// bound on a turn of the loop.
const SYNC_MAX: Duration = Duration::from_micros(500);
/// The loop's thread may sync only if the overlapping work is below this share of the measured wake-ups, or
/// (`OVERLAP_LITTLE`) of a sync. The rest of the wake-ups makes up for errors of the measurement.
const OVERLAP_BELOW: (u64, u64) = (3, 4);
const OVERLAP_LITTLE: u64 = 8;
/// The number of measurements of each kind from which the loop takes the medians.
const MEASURED: usize = 15;
/// The least ratio of a trial with which the loop's thread begins to sync, and (`KEEP_FROM`) keeps the duty.
/// Where callers do not wait for acknowledgements both places serve as many, and the loop's thread saves the
/// wake-ups.
const BEGIN_FROM: f64 = 1.0;
const KEEP_FROM: f64 = 0.96;
/// The least ratio of a trial with which the loop begins to stay awake, and (`STAY_AWAKE_FROM`) goes on: the
/// processor time that it spends must pay.
const WAKE_FROM: f64 = 1.08;
const STAY_AWAKE_FROM: f64 = 1.04;
/// The longest time for which the loop looks for the next message without sleeping.
pub(super) const AWAKE_MAX: Duration = Duration::from_micros(150);
/// The number of such times in a row without a message after which the loop sleeps again.
const IN_VAIN_MAX: u32 = 8;
/// The time between two trials at first, and (`APART_MAX`) at most: each trial that confirms the place
/// doubles the time.
const APART: Duration = Duration::from_secs(1);
const APART_MAX: Duration = Duration::from_secs(64);
/// The factor by which the loop's work between two syncs grows or shrinks until a trial comes at once.
const CHANGED: u64 = 2;
/// The number of median syncs for which the loop may wait for callers within a trial; a longer wait does not
/// count, because the callers then rest.
const REST_FROM: u64 = 4;
/// The time for which the log thread has the duty after a late sync on the loop's thread, because the disk
/// may be late again: at first, and (`AFTER_LATE_MAX`) at most. A late sync costs other clients 2 ms, so the
/// shortest time bounds the cost to a fiftieth. If the disk is late again within as long after that time, the
/// time doubles.
const AFTER_LATE: Duration = Duration::from_millis(100);
const AFTER_LATE_MAX: Duration = Duration::from_secs(64);

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
    /// The way outside of trials.
    way: Way,
    /// True if the next trial of a loop that syncs and sleeps is the one of staying awake; otherwise that
    /// trial compares the loop with the log thread.
    wake_next: bool,
    /// The number of times in a row that the loop stayed awake in vain.
    in_vain: u32,
    trial: Option<Trial>,
    wakeups: Last,
    syncs: Last,
    /// The measurements of the loop's work during a sync of the log thread, which a sync on the loop's thread
    /// would delay.
    overlap: Last,
    /// The measurements of the loop's work between the ends of two syncs, and (`work_judged`) their median at
    /// the last trial, by which the loop sees a change.
    work: Last,
    work_judged: u64,
    /// The time that the loop has worked since the last sync ended.
    worked: Duration,
    watched: Option<Watched>,
    /// The number of measurements since the last decision; the loop decides again only after some.
    fresh: usize,
    /// The time of the next trial, and (`apart`) the time from that trial to the one after it.
    next_trial: Time,
    apart: Duration,
    /// The end of the last turn, and true (`rested`) if everything was durable then.
    last_ended: Time,
    rested: bool,
    /// The time before which the loop's thread does not sync again after a late sync, and (`after_late`) the
    /// time for which it left syncs to the log thread after that late sync.
    not_before: Time,
    after_late: Duration,
}

/// The log's counts that the decision needs, taken at the end of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) syncs: u64,
    pub(super) sync_ns: u64,
    /// The bytes of the log that are durable.
    pub(super) durable: u64,
    /// True if all batches were durable when the turn handed its own batches to the log, so that the loop can
    /// measure their sync.
    pub(super) was_at_rest: bool,
    /// True if the log has accepted batches that no sync has made durable yet, so that a sync follows.
    pub(super) is_pending: bool,
}

impl Placing {
    pub(super) const fn new() -> Self {
        Self {
            way: Way::LogThread,
            wake_next: true,
            in_vain: 0,
            trial: None,
            wakeups: Last::new(),
            syncs: Last::new(),
            overlap: Last::new(),
            work: Last::new(),
            work_judged: 0,
            worked: Duration::ZERO,
            watched: None,
            fresh: 0,
            next_trial: Time::ZERO,
            apart: APART,
            last_ended: Time::ZERO,
            rested: false,
            not_before: Time::ZERO,
            after_late: Duration::ZERO,
        }
    }

    /// Returns the thread that should write and sync the log from `now` on. The loop takes or gives back the
    /// duty accordingly.
    pub(super) fn place(&self, now: Time) -> Place {
        self.way(now).place()
    }

    /// Returns whether the loop should look for the next message for at most [`AWAKE_MAX`] before it sleeps.
    pub(super) fn stays_awake(&self, now: Time) -> bool {
        self.way(now) == Way::Awake
    }

    /// Takes the outcome of staying awake: `found` is true if a message came meanwhile.
    pub(super) const fn handle_awake(&mut self, found: bool) {
        self.in_vain = if found { 0 } else { self.in_vain + 1 };
        if self.in_vain >= IN_VAIN_MAX && matches!(self.way, Way::Awake) {
            // The callers have gone, or send at a rate of their own.
            (self.way, self.trial, self.in_vain) = (Way::Loop, None, 0);
        }
    }

    fn way(&self, now: Time) -> Way {
        match &self.trial {
            _ if now < self.not_before => Way::LogThread,
            Some(trial) => trial.way(),
            None => self.way,
        }
    }

    /// Takes measurements at the end of a turn of the loop that began at `begun`, from the counts of the log
    /// at its end. `place` is the thread that has the duty of writing.
    pub(super) fn handle_turn(&mut self, place: Place, begun: Time, now: Time, log: Counts) {
        let idle = self.idle(begun);
        (self.last_ended, self.rested) = (now, !log.is_pending);
        match place {
            Place::Loop => self.worked += now - begun,
            Place::LogThread => self.watch(begun, now, log),
        }
        if let Some(trial) = &mut self.trial {
            let (syncs, durable) = (log.syncs, log.durable);
            let seen = Seen {
                place,
                now,
                syncs,
                durable,
                idle,
            };
            if let Some(wins) = trial.observe(seen) {
                self.judge(now, wins);
            }
        }
    }

    /// Returns the wait before a turn that began at `begun` if callers rested meanwhile: nothing was on its
    /// way to the disk, and the wait was long.
    fn idle(&self, begun: Time) -> Duration {
        let waited = begun - self.last_ended;
        let sync = Duration::from_nanos(self.syncs.median().unwrap_or_default());
        match self.rested && waited > sync * REST_FROM as u32 {
            true => waited,
            false => Duration::ZERO,
        }
    }

    /// Measures a sync of the log thread, and the loop's work meanwhile.
    fn watch(&mut self, begun: Time, now: Time, log: Counts) {
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

    /// Takes the measurement of a sync on the loop's thread that took this long, and decides which thread has
    /// the duty of writing from now on.
    pub(super) fn handle_synced(&mut self, now: Time, took: Duration) {
        self.watched = None;
        self.syncs.push(took.as_nanos() as u64);
        self.work.push(self.worked.as_nanos() as u64);
        self.worked = Duration::ZERO;
        self.fresh += 1;
        self.decide(now);
    }

    /// Gives the duty back to the log thread for a while, because a sync on the loop's thread took so long
    /// that another thread runs the loop now.
    pub(super) fn handle_late(&mut self, now: Time) {
        self.after_late = match now < self.not_before + self.after_late {
            true => (2 * self.after_late).clamp(AFTER_LATE, AFTER_LATE_MAX),
            // The last late sync is long past.
            false => AFTER_LATE,
        };
        self.not_before = now + self.after_late;
        (self.trial, self.watched) = (None, None);
    }

    fn decide(&mut self, now: Time) {
        if self.fresh < MEASURED {
            return;
        }
        self.fresh = 0;
        let Some(sync) = self.syncs.median() else {
            return;
        };
        if Duration::from_nanos(sync) > SYNC_MAX {
            (self.way, self.trial) = (Way::LogThread, None);
            return;
        }
        let work = self.work.median().unwrap_or_default();
        let changed = work > self.work_judged * CHANGED || work * CHANGED < self.work_judged;
        let is_due =
            now >= self.next_trial || changed && now + self.apart >= self.next_trial + APART;
        let may = self.way != Way::LogThread || self.saves_more_than_it_delays();
        if self.trial.is_none() && may && is_due && now >= self.not_before {
            let [first, second] = match self.way {
                Way::Loop if self.wake_next => [Way::Loop, Way::Awake],
                Way::LogThread | Way::Loop => [Way::LogThread, Way::Loop],
                Way::Awake => [Way::Loop, Way::Awake],
            };
            let wanted = match (second, self.way == second) {
                (Way::Awake, false) => WAKE_FROM,
                (Way::Awake, true) => STAY_AWAKE_FROM,
                (_, false) => BEGIN_FROM,
                (_, true) => KEEP_FROM,
            };
            self.trial = Some(Trial::new([first, second], wanted));
        }
    }

    /// Returns whether the wake-ups of the log thread take longer than the loop's work during a sync, or
    /// whether this work is little; false as long as there are too few measurements.
    fn saves_more_than_it_delays(&self) -> bool {
        let (num, den) = OVERLAP_BELOW;
        let sync = self.syncs.median().unwrap_or_default();
        let medians = self.wakeups.median().zip(self.overlap.median());
        medians.is_some_and(|(wakeups, overlap)| {
            overlap * den < wakeups * num || overlap * OVERLAP_LITTLE < sync
        })
    }

    /// Ends a trial. `wins` is true if the second way made enough more bytes durable a second than the first.
    fn judge(&mut self, now: Time, wins: bool) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        let [first, second] = trial.ways();
        let may = second == Way::Awake || self.saves_more_than_it_delays();
        let better = if wins && may { second } else { first };
        let has_begun = self.way == Way::LogThread && better == Way::Loop;
        self.apart = match better == self.way {
            true => (2 * self.apart).min(APART_MAX),
            false => APART,
        };
        self.wake_next = has_begun || second != Way::Awake;
        self.way = better;
        // A loop that has just begun to sync tries at once if staying awake pays.
        self.next_trial = now
            + if has_begun {
                Duration::ZERO
            } else {
                self.apart
            };
        self.work_judged = self.work.median().unwrap_or_default();
        self.in_vain = 0;
    }
}
