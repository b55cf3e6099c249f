//! A log without threads, for simulations: whoever opened it says what time it is, when a sync ends, and when
//! the keeper does its errands. What the log does then follows from what it is told alone.

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

/// What a log without threads does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doing {
    /// It has written, and a sync runs: [`Steps::sync`] says that it has ended.
    Syncing,
    /// It waits until something is appended, or until then: [`Steps::step`].
    Waiting(Option<Time>),
    /// It has failed: see [`Log::failure`].
    Failed,
}

/// What the threads of a log do, in steps. Goes with the [`Opened`] it came with; dropped, the log stands
/// still.
pub struct Steps {
    driver: Driver,
    keeper: Keeper,
    now: Arc<AtomicU64>,
    doing: Doing,
}

impl Log {
    /// As [`open`](Self::open), without threads.
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
    /// Takes what was appended and writes what is to be written at `now`. While a sync runs, only the time
    /// passes.
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

    /// The sync that runs ends at `now`, as the storage has it. Another one may run then.
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

    /// The keeper does what it was asked to: allocates, releases, or removes a file.
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
