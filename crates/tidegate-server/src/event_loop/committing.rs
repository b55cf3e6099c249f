//! Does the loop's part in the syncs of the log: decides which thread has the duty of writing, and whether
//! the loop's thread must commit a batch.

use std::time::Duration;

use tidegate::Time;
use tidegate_log::{Committed, Duty, Lsn};
use tidegate_raft::store::Store;

use super::Server;
use super::log_limit::LogLimit;
use super::place::{AWAKE_MAX, Counts, Looks, Place, Placing};

/// The least time between two log lines about late syncs, so that a slow disk does not fill the log.
const LOGGED: Duration = Duration::from_secs(60);

/// The state by which the loop decides about the duty of writing, see the [module](self).
#[derive(Debug)]
pub(super) struct Committing {
    placing: Placing,
    looks: Looks,
    /// True if the loop has asked the log thread for the duty of writing and does not have it yet.
    wants: bool,
    /// True if all batches were durable when this turn began to hand batches to the log, so that the loop can
    /// measure a sync.
    was_at_rest: bool,
    /// The log's segment of the last batch when this turn began to hand batches to the log, by which the loop
    /// sees that a sync would seal a segment.
    segment: u64,
    /// The log position up to which the loop's thread has offered batches to the log's controller.
    offered: Lsn,
    /// The time at which the loop's thread must commit again, because the controller lets a batch wait.
    again: Option<Time>,
    /// True after a sync on the loop's thread, until the loop waits for the next message.
    has_synced: bool,
    log: LogLimit,
}

/// The next step of the loop's thread when it has the duty of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCommit {
    /// Nothing is to be committed, so the loop waits for events.
    Nothing,
    /// The loop runs a turn without a wait before it commits, because further messages may be there.
    Look,
    /// The thread commits before the next turn.
    Commit,
}

impl Default for Committing {
    fn default() -> Self {
        Self {
            placing: Placing::new(),
            looks: Looks::default(),
            wants: false,
            was_at_rest: true,
            segment: 0,
            offered: Lsn::ZERO,
            again: None,
            has_synced: false,
            log: LogLimit::every(LOGGED),
        }
    }
}

impl Committing {
    /// Records whether the log is at rest before this turn hands batches to it, for the measurement of the
    /// next sync.
    pub(super) fn note_rest(&mut self, store: &Store) {
        self.segment = store.segment();
        self.was_at_rest = store.log().progress().pending_batches == 0;
    }

    /// Returns the time at which the loop's thread must commit again; `None` if the log's controller has set
    /// no time.
    pub(super) const fn deadline(&self) -> Option<Time> {
        self.again
    }
}

impl Server {
    /// Measures the turn that has ended, and decides which thread has the duty of writing: takes the duty
    /// from the log thread, or gives it back. Returns the duty if the loop's thread should have it, so that
    /// it commits before its next turn.
    pub(super) fn hold_duty(&mut self, duty: Option<Duty>) -> Option<Duty> {
        let Some(store) = &self.store else {
            return None;
        };
        let committing = &mut self.committing;
        let (begun, ended) = self.turns.last();
        let progress = store.log().progress();
        let counts = Counts {
            syncs: progress.syncs,
            sync_ns: progress.sync_ns,
            durable: store.log().durable().get(),
            was_at_rest: committing.was_at_rest,
            is_pending: progress.pending_batches > 0,
        };
        let place = match duty {
            Some(_) => Place::Loop,
            None => Place::LogThread,
        };
        committing.placing.handle_turn(place, begun, ended, counts);
        let duty = match (committing.placing.place(ended), duty) {
            // The sync would also seal a segment, which takes long, so the loop leaves it to the log thread.
            (Place::Loop, Some(_)) if store.segment() != committing.segment => None,
            (Place::Loop, Some(duty)) => Some(duty),
            (Place::Loop, None) => {
                if !std::mem::replace(&mut committing.wants, true) {
                    store.want_duty(true);
                }
                let duty = store.take_duty();
                if duty.is_some() {
                    committing.wants = false;
                    committing.offered = Lsn::ZERO;
                }
                duty
            }
            (Place::LogThread, duty) => {
                if std::mem::take(&mut committing.wants) {
                    store.want_duty(false);
                }
                // The loop drops the duty, which gives it back to the log thread.
                drop(duty);
                None
            }
        };
        if duty.is_none() {
            committing.again = None;
        }
        duty
    }

    /// Returns the next step of the loop's thread, which has the duty: it commits if batches are new to the
    /// log's controller, or if the time that the controller set has come.
    pub(super) fn next_commit(&mut self) -> NextCommit {
        let Some(store) = &self.store else {
            return NextCommit::Nothing;
        };
        let committing = &mut self.committing;
        let appended = store.appended();
        let (_, ended) = self.turns.last();
        let is_due = committing.again.is_some_and(|at| at <= ended);
        if appended == committing.offered && !is_due {
            return NextCommit::Nothing;
        }
        if !is_due && committing.looks.wants(appended.get()) {
            self.turns.handle_look();
            return NextCommit::Look;
        }
        committing.offered = appended;
        NextCommit::Commit
    }

    /// Returns the time until which the loop looks for the next message before it sleeps for at most `wait`;
    /// `None` if it sleeps at once, because no sync on its thread has just ended or looking does not pay.
    pub(super) fn awake_until(&mut self, wait: Option<Duration>) -> Option<Time> {
        if !self.committing.has_synced || wait == Some(Duration::ZERO) {
            return None;
        }
        self.committing.has_synced = false;
        let now = self.clock.now();
        let most = wait.map_or(AWAKE_MAX, |wait| wait.min(AWAKE_MAX));
        let stays_awake = self.committing.placing.stays_awake(now);
        stays_awake.then(|| now + most)
    }

    /// Takes the outcome of looking for the next message without sleeping.
    pub(super) const fn handle_awake(&mut self, found: bool) {
        self.committing.placing.handle_awake(found);
    }

    /// Measures a commit on the loop's thread that took this long, and sets the time of the next commit that
    /// the log's controller wants.
    pub(super) fn handle_committed_here(&mut self, took: Duration, committed: Committed) {
        let now = self.clock.now();
        let again = match committed {
            Committed::Synced { again } => {
                self.committing.placing.handle_synced(now, took);
                self.committing.looks.handle_synced();
                self.committing.has_synced = true;
                self.turns.count_sync();
                again
            }
            Committed::Nothing { again } => again,
            // The store reports the failure when the next turn asks it, so the loop does nothing here.
            _ => None,
        };
        self.committing.again = again.map(|after| now + after);
    }

    /// Gives the duty of writing to the log thread from now on, because no thread could stand by.
    pub(super) fn handle_no_partner(&mut self) {
        self.committing.placing.handle_late(self.clock.now());
        self.committing.again = None;
    }

    /// Gives the duty of writing to the log thread, because a sync on the loop's thread is late: the thread
    /// that stood by calls this and runs the loop now.
    pub(super) fn handle_late_sync(&mut self) {
        let now = self.clock.now();
        self.turns.handle_other_thread();
        self.committing.placing.handle_late(now);
        self.committing.again = None;
        if let Some(more) = self.committing.log.due(now) {
            tracing::warn!(
                "a sync of the log takes longer than 2 ms: the log thread syncs for a while, so that the event loop can serve clients meanwhile{more}"
            );
        }
    }
}
