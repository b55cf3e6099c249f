//! A log without threads, for simulations: the simulation sets the time, ends the syncs, and runs the
//! keeper's errands. The actions of the log depend only on these inputs, so a simulation can repeat them
//! exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::Time;

use crate::append::Now;
use crate::driver::{Driver, Next};
use crate::index::RecordInfo;
use crate::keeper::Keeper;
use crate::open::Parts;
use crate::storage::Storage;
use crate::{Failure, Log, OpenError, Opened, Options};

/// The state of a log without threads. It tells the simulation which method of [`Steps`] to call next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// The log has written batches, and a sync of them is running: the caller ends the sync with
    /// [`Steps::sync`].
    Syncing,
    /// The log has no work until a caller appends a batch, or until this time; the caller then calls
    /// [`Steps::step`].
    Waiting(Option<Time>),
    /// A write or a sync of the log has failed: [`Log::failure`] returns the failure.
    Failed,
}

/// Does the work of a log's threads in steps, for the [`Opened`] log that [`Log::open_stepped`] returned
/// with it. After a drop of the steps, that log makes no progress.
pub struct Steps {
    driver: Driver,
    keeper: Keeper,
    now: Arc<AtomicU64>,
    doing: Doing,
}

impl Log {
    /// Opens the log as [`open`](Self::open) does, but starts no threads: a simulation does their work
    /// through the returned [`Steps`], in an order of its choice.
    ///
    /// # Errors
    /// The same errors as those of [`open`](Self::open).
    pub fn open_stepped(
        storage: Arc<dyn Storage>,
        options: Options,
        now: Time,
        mut visit: impl FnMut(RecordInfo),
    ) -> Result<(Opened, Steps), OpenError> {
        let told = Arc::new(AtomicU64::new(now.as_nanos()));
        let parts = Parts::open(storage, options, Now::Told(Arc::clone(&told)), &mut visit)?;
        let steps = Steps {
            driver: parts.driver,
            keeper: parts.keeper,
            now: told,
            doing: Doing::Waiting(None),
        };
        Ok((parts.opened, steps))
    }
}

impl Steps {
    /// Takes the appended batches. If the controller starts a sync at `now`, writes the batches that the
    /// sync covers. While a sync is running, only advances the time, because the log must not write before
    /// the sync has ended.
    pub fn step(&mut self, now: Time) -> Doing {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        if let Doing::Waiting(_) = self.doing {
            let next = self.driver.step(now, false);
            self.doing = match next {
                Ok(Next::Sync) => Doing::Syncing,
                Ok(Next::Wait(until)) => Doing::Waiting(until),
                Ok(Next::End) => Doing::Waiting(None),
                Err(failure) => self.fail(&failure),
            };
        }
        self.doing
    }

    /// Syncs the written batches, and handles the result of the sync at `now`. The log may then write
    /// further batches. In that case another sync is running afterwards.
    pub fn sync(&mut self, now: Time) -> Doing {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        if self.doing == Doing::Syncing {
            let synced = self.driver.sync_written();
            self.doing = match self.driver.handle_synced(now, synced) {
                Ok(true) => Doing::Syncing,
                Ok(false) => Doing::Waiting(None),
                Err(failure) => self.fail(&failure),
            };
        }
        self.step(now)
    }

    /// Makes the keeper do its waiting errand, in place of the keeper's thread: allocate or release
    /// segments, or remove a file. Returns whether an errand waited: the log's user may then have room, and
    /// must look again.
    pub fn keep(&mut self) -> bool {
        let errand = self.keeper.next(Some(Duration::ZERO));
        let waited = errand.top_up || !errand.release.is_empty();
        self.keeper.step(errand);
        waited
    }

    fn fail(&mut self, failure: &Failure) -> Doing {
        self.driver.refuse_waiting(failure);
        Doing::Failed
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps")
            .field("doing", &self.doing)
            .finish_non_exhaustive()
    }
}
