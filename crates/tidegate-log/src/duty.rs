//! The duty of writing the log. Only the thread that has the duty writes and syncs. At first the log thread
//! has it. If the appending thread asks for the duty, the log thread offers it after its next sync. An
//! appending thread with the duty writes and syncs its batches itself, so that it need not wake another
//! thread for a batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate::Clock;

use crate::driver::{Driver, Next};
use crate::shared::{Shared, lock};

/// The thread that has the duty, and the driver while the driver passes from one thread to the other.
enum Holder {
    LogThread,
    /// The log thread has offered its driver and waits; the appending thread may take the driver.
    Offered(Box<Driver>),
    /// The appending thread has taken the driver in a [`Duty`].
    Caller,
    /// The appending thread has returned the driver, and the log thread must go on with it.
    Returned(Box<Driver>),
}

/// The shared state through which the log thread and the appending thread pass the duty to each other.
pub(crate) struct Passing {
    wanted: AtomicBool,
    holder: Mutex<Holder>,
    returned: Condvar,
}

impl Default for Passing {
    fn default() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            holder: Mutex::new(Holder::LogThread),
            returned: Condvar::new(),
        }
    }
}

impl Passing {
    /// Notes whether the appending thread wants the duty. If that thread no longer wants it, withdraws an
    /// open offer, so that the log thread goes on.
    pub(crate) fn want(&self, wants: bool) {
        self.wanted.store(wants, Ordering::Release);
        if !wants {
            let mut holder = lock(&self.holder);
            *holder = match std::mem::replace(&mut *holder, Holder::LogThread) {
                Holder::Offered(driver) => Holder::Returned(driver),
                other => other,
            };
            self.returned.notify_all();
        }
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Takes the driver for the appending thread, if the log thread offers it.
    fn take(&self) -> Option<Box<Driver>> {
        let mut holder = lock(&self.holder);
        match std::mem::replace(&mut *holder, Holder::Caller) {
            Holder::Offered(driver) => {
                self.wanted.store(false, Ordering::Release);
                Some(driver)
            }
            other => {
                *holder = other;
                None
            }
        }
    }

    fn give_back(&self, driver: Box<Driver>) {
        *lock(&self.holder) = Holder::Returned(driver);
        self.returned.notify_all();
    }

    /// Offers the log thread's driver to the appending thread, and blocks until that thread returns the
    /// driver or withdraws its request. Calls `offered` once the offer stands, to tell the appending thread.
    pub(crate) fn offer(&self, driver: Box<Driver>, offered: impl FnOnce()) -> Box<Driver> {
        let mut holder = lock(&self.holder);
        if !self.is_wanted() {
            return driver;
        }
        *holder = Holder::Offered(driver);
        drop(holder);
        offered();
        let mut holder = lock(&self.holder);
        loop {
            match std::mem::replace(&mut *holder, Holder::LogThread) {
                Holder::Returned(driver) => return driver,
                other => *holder = other,
            }
            let woken = self.returned.wait(holder);
            holder = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The duty of writing the log, taken from the log thread by
/// [`Appender::take_duty`](crate::Appender::take_duty). Nothing becomes durable unless the holder calls
/// [`commit`](Self::commit) after each append. A drop returns the duty to the log thread, which then writes
/// the waiting batches. The appender's close needs the log thread, so the holder must drop the duty first.
pub struct Duty {
    /// The driver of the log, with which the holder writes and syncs. `None` only while the duty is being
    /// dropped.
    driver: Option<Box<Driver>>,
    shared: Arc<Shared>,
    clock: Clock,
}

/// The result of [`Duty::commit`]. If `again` is a time, the holder of the duty must commit again after it,
/// because further batches wait or the log must write a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Committed {
    /// The batches that the controller chose for this sync are durable.
    Synced {
        /// The time after which the holder of the duty must commit again; `None` if it need not.
        again: Option<Duration>,
    },
    /// No batch waits, or the controller delays the sync so that more batches can join it.
    Nothing {
        /// The time after which the holder of the duty must commit again; `None` if it need not.
        again: Option<Duration>,
    },
    /// A write or a sync has failed, so the log accepts nothing more: [`Log::failure`](crate::Log::failure)
    /// returns the failure.
    Failed,
}

impl Duty {
    pub(crate) fn take(shared: &Arc<Shared>, clock: Clock) -> Option<Self> {
        let mut driver = shared.passing.take()?;
        driver.set_waking(false);
        Some(Self {
            driver: Some(driver),
            shared: Arc::clone(shared),
            clock,
        })
    }

    /// Writes and syncs as many of the waiting batches as the controller decides, and blocks until they are
    /// durable or the sync has failed. Calls the callbacks of the batches. Does not call the log's
    /// [waker](crate::Options::waker), because the caller learns of the new durable position when this
    /// function returns.
    pub fn commit(&mut self) -> Committed {
        let Some(driver) = &mut self.driver else {
            return Committed::Failed;
        };
        if self.shared.failure().is_some() {
            // After a failed sync, the next sync may report success although the disk has lost bytes. So the
            // holder must not sync again.
            return Committed::Failed;
        }
        let now = self.clock.now();
        match driver.step(now, false) {
            Ok(Next::Sync) => match driver.sync(&self.clock) {
                Ok(()) => Committed::Synced {
                    again: Some(driver.next_step(self.clock.now())),
                },
                Err(_) => Committed::Failed,
            },
            Ok(Next::Wait(until)) => Committed::Nothing {
                again: until.map(|at| at - now),
            },
            Ok(Next::End) => Committed::Nothing { again: None },
            Err(_) => Committed::Failed,
        }
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            if std::thread::panicking() {
                // The panic may have come in the middle of a commit. Nothing shows then whether the batches
                // are durable, so the log counts as failed.
                let error = std::io::Error::other("the thread with the duty panicked");
                self.shared.fail("syncing the log", error);
            }
            driver.set_waking(true);
            self.shared.passing.give_back(driver);
            // The last commit called no waker, so the drop calls it: the durable position may have advanced.
            self.shared.wake();
        }
    }
}

impl std::fmt::Debug for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Duty").finish_non_exhaustive()
    }
}
