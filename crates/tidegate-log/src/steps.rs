//! A log without threads, for simulations: the simulation sets the time, ends the syncs,
//! and runs the keeper's errands. The log's actions depend only on these inputs.

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

/// The state of a log without threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// A sync runs after a write; call [`Steps::sync`] to end it.
    Syncing,
    /// The log has no work until a batch is appended, or until this time; then call [`Steps::step`].
    Waiting(Option<Time>),
    /// The log has failed: see [`Log::failure`].
    Failed,
}

/// The work of a log's threads, in steps. It belongs to the [`Opened`] that it was made with; once the
/// `Steps` are dropped, the log makes no progress.
pub struct Steps {
    driver: Driver,
    keeper: Keeper,
    now: Arc<AtomicU64>,
    doing: Doing,
}

impl Log {
    /// Opens the log like [`open`](Self::open), without threads.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
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
    /// Takes the appended batches and writes those that are due at `now`. While a sync
    /// runs, only the time advances.
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

    /// Ends the running sync at `now`, with the storage's result. The log may begin another sync then.
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

    /// Runs the keeper's errand: it allocates, releases, or removes a file.
    pub fn keep(&mut self) {
        let errand = self.keeper.next(Some(Duration::ZERO));
        self.keeper.step(errand);
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
